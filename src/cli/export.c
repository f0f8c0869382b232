/*
 * ashlar export POOL VOLUME FILE|-
 *
 * A new file is removed again if the export fails, so that half a copy is never taken for a whole one.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/verb.h"

struct target {
    const char *file;
    int fd;
    bool is_new; /* ours to remove */
};

/*
 * Opens what is there already, and empties it only when it is known not to be a pool in use: not the one that is
 * exported, by whatever name, and none that somebody serves, who has it locked.
 */
static int target_overwrite(const struct invocation *in, struct target *t, struct error *err)
{
    struct stat st, pool;
    int exclusive = stat(t->file, &st) == 0 && S_ISBLK(st.st_mode) ? O_EXCL : 0;
    t->fd = open(t->file, O_WRONLY | O_CLOEXEC | O_NOCTTY | exclusive);
    if (t->fd < 0 || fstat(t->fd, &st) < 0)
        return error_set(err, -errno, "'%s': %s", t->file, strerror(errno));
    int r = 0;
    if (stat(in->operands[0], &pool) == 0 && st.st_dev == pool.st_dev && st.st_ino == pool.st_ino)
        r = error_set(err, -EINVAL, "'%s' is the pool itself; nothing was changed: name another file", t->file);
    else if (S_ISBLK(st.st_mode) && S_ISBLK(pool.st_mode) && st.st_rdev == pool.st_rdev)
        r = error_set(err, -EINVAL, "'%s' is the pool itself; nothing was changed: name another file", t->file);
    else if ((S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) && flock(t->fd, LOCK_EX | LOCK_NB) < 0)
        r = error_set(err, -EBUSY, "'%s' is locked by another process; nothing was changed: name another file",
                      t->file);
    else if (S_ISREG(st.st_mode) && ftruncate(t->fd, 0) < 0)
        r = error_set(err, -errno, "'%s': %s", t->file, strerror(errno));
    if (r == 0)
        return 0;
    (void)close(t->fd);
    t->fd = -1;
    return r;
}

static int target_open(const struct invocation *in, struct target *ret_target, struct error *err)
{
    struct target *t = ret_target;
    struct stat st;
    bool force = invocation_flag(in, "force");
    *t = (struct target){.file = in->operands[2], .fd = -1};
    if (strcmp(t->file, "-") == 0) {
        if (isatty(STDOUT_FILENO))
            return error_set(err, -EINVAL, "export: standard output is a terminal; name a file or redirect it");
        t->fd = dup(STDOUT_FILENO);
        return t->fd < 0 ? error_set(err, -errno, "standard output: %s", strerror(errno)) : 0;
    }
    t->fd = open(t->file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
    t->is_new = t->fd >= 0;
    if (t->fd < 0 && errno == EEXIST) {
        if (!force && !(stat(t->file, &st) == 0 && S_ISCHR(st.st_mode)))
            return error_set(err, -EEXIST, "'%s' exists already; nothing was changed: --force overwrites it", t->file);
        return target_overwrite(in, t, err);
    }
    return t->fd < 0 ? error_set(err, -errno, "'%s': %s", t->file, strerror(errno)) : 0;
}

/* The name of a new file must survive a power cut too. */
static int target_finish(struct target *t, int r, struct error *err)
{
    char path[PATH_MAX];
    if (close(t->fd) < 0 && r == 0)
        r = error_set(err, -errno, "'%s': %s", t->file, strerror(errno));
    if (!t->is_new)
        return r;
    if (r < 0) {
        (void)unlink(t->file);
        return r;
    }
    snprintf(path, sizeof(path), "%s", t->file);
    int directory = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fsync(directory) < 0)
        r = error_set(err, -errno, "the directory of '%s': %s", t->file, strerror(errno));
    if (directory >= 0)
        close(directory);
    return r;
}

static void print_export(const struct invocation *in, const json_t *result)
{
    char size[16], data[16], rate[16];
    double seconds = output_real(result, "seconds");
    uint64_t data_bytes = output_u64(result, "data-bytes"), users = output_u64(result, "users");
    /* Standard output may be the copy itself. */
    FILE *out = strcmp(in->operands[2], "-") == 0 ? stderr : stdout;
    if (users > 0)
        fprintf(stderr, "ashlar: %s had %llu connection%s meanwhile: what they wrote may be there in part\n",
                output_text(result, "volume"), (unsigned long long)users, users == 1 ? "" : "s");
    fprintf(out, "%s: %s, %s of data in %.1f s, %s/s\n", output_text(result, "volume"),
            output_size(result, "bytes", size), size_format(data_bytes, data, sizeof(data)), seconds,
            size_format(seconds > 0 ? (uint64_t)((double)data_bytes / seconds) : data_bytes, rate, sizeof(rate)));
}

static int run_export(struct invocation *in)
{
    struct error err = {0};
    struct progress progress;
    struct target target;
    json_t *result = NULL;
    char what[64];
    bool to_stdout = strcmp(in->operands[2], "-") == 0;
    if (to_stdout && in->json) {
        error_set(&err, -EINVAL, "export: --json and '-' both want standard output");
        in->json = false;
        return output_error(in, &err, EXIT_USAGE);
    }
    if (session_check_path(in->operands[0], &err) < 0 || target_open(in, &target, &err) < 0)
        return output_error(in, &err, EXIT_FAILED);
    snprintf(what, sizeof(what), "export %.32s", in->operands[1]);
    progress_begin(&progress, what, PROGRESS_SIGNALS_WATCH);
    int r = session_run(in, in->operands[0], "export", json_pack("{s:s}", "volume", in->operands[1]), target.fd,
                        &progress, &result, &err);
    progress_end(&progress);
    r = target_finish(&target, r, &err);
    if (r == 0 && in->json)
        output_json(result);
    else if (r == 0)
        print_export(in, result);
    json_decref(result);
    return r < 0 ? output_error(in, &err, EXIT_FAILED) : EXIT_DONE;
}

static const struct option_spec export_options[] = {
    {"force", NULL, "overwrite a file or block device that exists"},
    {NULL},
};

const struct verb verb_export = {
    .name = "export",
    .operands = "POOL VOLUME FILE|-",
    .summary = "copies a volume to a file, a block device or standard output",
    .details =
        "Holes and zeroes become holes of the file. A volume that clients write to meanwhile is copied as it is\n"
        "read: that is no snapshot.",
    .options = export_options,
    .operand_count_min = 3,
    .operand_count_max = 3,
    .run = run_export,
};
