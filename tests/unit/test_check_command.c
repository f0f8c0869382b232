/*
 * `ashlar check` and `ashlar dump` as commands: exit statuses, words of the command line, and what they print, on an
 * image in a file.
 */
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "base/text.h"
#include "check_expect.h"
#include "cli/verb.h"

static char image_path[] = "/tmp/ashlar-check-XXXXXX";

/* Three volumes' worth of what a dump can meet. */
static struct image *sample(void)
{
    struct image *img = image_new();
    const unsigned a = image_volume(img, "alpha", 1000 * 4096, 4096);
    image_write(img, a, 3, 1);
    image_patch(img, a, 3, 2, 1, 4);
    image_trim(img, a, 10, 3);
    image_zero(img, a, 20, 2);
    image_seal(img);
    image_checkpoint(img);
    image_write(img, a, 300, 1);
    image_seal(img);
    image_bridge(img);
    return img;
}

static bool write_file(const struct image *img)
{
    const int fd = open(image_path, O_WRONLY | O_TRUNC);
    const bool done = fd >= 0 && write(fd, img->bytes, IMAGE_BYTES) == (ssize_t)IMAGE_BYTES;
    return fd >= 0 && close(fd) == 0 && done;
}

/* Runs a command; *ret_text is what it printed to standard output (errors go nowhere). */
static int run(const struct verb *verb, char **argv, char *ret_text, size_t text_bytes)
{
    char path[] = "/tmp/ashlar-check-out-XXXXXX";
    const int file = mkstemp(path), old_out = dup(STDOUT_FILENO), old_err = dup(STDERR_FILENO);
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    const int status = verb_run(verb, argc - 1, argv + 1);
    fflush(stdout);
    dup2(old_out, STDOUT_FILENO);
    dup2(old_err, STDERR_FILENO);
    const ssize_t n = pread(file, ret_text, text_bytes - 1, 0);
    ret_text[n > 0 ? n : 0] = '\0';
    close(file);
    close(old_out);
    close(old_err);
    unlink(path);
    return status;
}

static char out[256 * 1024];

#define RUN_COMMAND(verb, ...) run(verb, (char *[]){__VA_ARGS__, NULL}, out, sizeof(out))

static char *word(const char *text)
{
    static char words[8][64];
    static unsigned next;
    char *w = words[next++ % 8];
    snprintf(w, 64, "%s", text);
    return w;
}

static void test_check(void)
{
    struct image *img = sample();
    REQUIRE(write_file(img));
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 0);
    EXPECT(strstr(out, "\nclean\n") != NULL);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--quick"), image_path), 0);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path, word("--all"), word("--json")), 0);
    json_t *o = json_loads(out, 0, NULL);
    EXPECT(json_is_true(json_object_get(o, "clean")));
    json_decref(o);

    image_damage(img, img->last_label_front, IMAGE_UNIT_BYTES);
    REQUIRE(write_file(img));
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 1);
    EXPECT(strstr(out, "wrong: LABEL-DAMAGED: ") == out);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--repair"), image_path), 0);
    EXPECT(strstr(out, "repaired: device offset 4096, 4096 bytes: label 1 from its back copy\n") != NULL);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 0);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--label=1"), image_path), 0);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--label"), word("9"), image_path), 1);
    image_free(img);
}

/* What was printed is one error as every verb prints it: {"error": {"errno": ..., "name": ..., "text": ...}}. */
static bool error_is(const char *name)
{
    json_t *o = json_loads(out, 0, NULL), *error = json_object_get(o, "error");
    const char *said = json_string_value(json_object_get(error, "name"));
    const bool same = said != NULL && strcmp(said, name) == 0 && json_object_size(error) == 3 &&
                      json_is_string(json_object_get(error, "text")) &&
                      json_is_integer(json_object_get(error, "errno"));
    json_decref(o);
    return same;
}

static void test_usage(void)
{
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("a"), word("b")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--quik"), image_path), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--quick"), word("--all"), image_path), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--label"), word("-1"), image_path), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--json=yes"), image_path), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path, word("--label")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--help")), 0);
    EXPECT(strstr(out, "usage: ashlar check POOL") == out);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("/nonexistent/pool")), 1);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--json"), word("/nonexistent/pool")), 1);
    EXPECT(error_is("ENOENT"));
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), word("--json")), 2);
    EXPECT(error_is("EINVAL"));
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), word("--json"), word("/nonexistent/pool")), 1);
    EXPECT(error_is("ENOENT"));
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("labels")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("node")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("node"), word("x")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("slots"), word("1")), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), word("--help")), 0);
}

static void test_not_a_pool(void)
{
    struct image *img = image_new();
    REQUIRE(write_file(img));
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 1);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path), 1);
    REQUIRE(truncate(image_path, 100) == 0);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 1);
    REQUIRE(truncate(image_path, 0) == 0);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 1);
    image_free(img);
}

/* Elements with this value of "object" in the JSON that was printed. */
static unsigned objects(const char *name)
{
    unsigned count = 0;
    size_t i;
    json_t *o, *list = json_loads(out, 0, NULL);
    EXPECT(json_is_array(list));
    json_array_foreach(list, i, o)
    {
        count += strcmp(json_string_value(json_object_get(o, "object")), name) == 0;
    }
    json_decref(list);
    return count;
}

static void test_dump(void)
{
    struct image *img = sample();
    char address[32];
    REQUIRE(write_file(img));
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("--json")), 0);
    EXPECT_EQ(objects("label"), 2);
    EXPECT_EQ(objects("slot"), 3);
    EXPECT_EQ(objects("volume"), 1);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("chunks"), word("--json")), 0);
    EXPECT_EQ(objects("chunk"), 3 + 6);
    EXPECT_EQ(objects("damage"), 0);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("volume"), word("alpha"), word("--json")), 0);
    EXPECT_EQ(objects("node"), 2);
    EXPECT_EQ(objects("record"), 1);
    EXPECT_EQ(objects("patch"), 1);
    EXPECT_EQ(objects("range"), 5);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("volume"), word("beta")), 1);
    (void)snprintf(address, sizeof(address), "%" PRIu64, img->volumes[0].leaves[0].address);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("node"), address), 0);
    EXPECT(strstr(out, "node address=") == out);
    EXPECT(strstr(out, "\n    patch kind=patch ") != NULL);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("node"), word("7")), 1);
    /* As text, every kind. */
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path), 0);
    EXPECT(strstr(out, "label sequence=1 ") == out);
    EXPECT(strstr(out, "\nvolume name=alpha ") != NULL);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("chunks")), 0);
    EXPECT(strstr(out, "\n    entry kind=bridge ") != NULL);
    image_free(img);
}

static void test_dump_of_damage(void)
{
    struct image *img = sample();
    image_damage(img, img->last_label_front + 600, 10);
    image_damage(img, image_offset(img, img->volumes[0].records[3].base.address) / 4096 * 4096, 100);
    REQUIRE(write_file(img));
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("label")), 1);
    EXPECT(strstr(out, "label damaged=label does not match its checksum") == out);
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("chunks"), word("--json")), 1);
    EXPECT_EQ(objects("damage"), 1);
    /* No label at all: the rings are shown. */
    image_damage(img, img->last_label_back + 600, 10);
    REQUIRE(write_file(img));
    EXPECT_EQ(RUN_COMMAND(&verb_dump, word("dump"), image_path, word("--json")), 1);
    EXPECT_EQ(objects("label"), 2);
    EXPECT_EQ(RUN_COMMAND(&verb_check, word("check"), image_path), 1);
    image_free(img);
}

/* The manual lists every id, with its severity and its text as they are printed. */
static void test_manual(void)
{
    char path[512], text[160];
    const char *slash = strstr(__FILE__, "tests/unit/");
    (void)snprintf(path, sizeof(path), "%.*sman/ashlar-check.8", slash != NULL ? (int)(slash - __FILE__) : 0, __FILE__);
    FILE *manual = fopen(path, "r");
    if (manual == NULL) {
        tap_skip("the sources are not where they were");
        return;
    }
    const size_t n = fread(out, 1, sizeof(out) - 1, manual);
    out[n] = '\0';
    fclose(manual);
    for (unsigned i = 0; i < CHECK_PROBLEM_COUNT; i++) {
        const enum check_problem_id id = (enum check_problem_id)i;
        (void)snprintf(text, sizeof(text), ".It Li %s\n(%s) ", check_problem_name(id),
                       check_severity_name(check_problem_severity(id)));
        EXPECT(strstr(out, text) != NULL);
        if (strstr(out, text) == NULL)
            printf("# %s is missing or has another severity\n", check_problem_name(id));
    }
}

int main(void)
{
    const int fd = mkstemp(image_path);
    if (fd < 0)
        return 1;
    close(fd);
    RUN(test_check);
    RUN(test_usage);
    RUN(test_not_a_pool);
    RUN(test_dump);
    RUN(test_dump_of_damage);
    RUN(test_manual);
    unlink(image_path);
    return tap_done();
}
