/*
 * ashlar status POOL: how the pool and its server are. Exit status 1 if the pool failed or damage was met.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"

static void print_server(const json_t *server, const char *pool)
{
    if (!json_is_object(server)) {
        printf("server       none; ashlar serve %s\n", pool);
        return;
    }
    const json_t *listening = json_object_get(server, "listening");
    printf("server       process %llu, up %llu s, %llu connections\n", (unsigned long long)output_u64(server, "pid"),
           (unsigned long long)output_u64(server, "uptime-seconds"),
           (unsigned long long)output_u64(server, "connections"));
    for (size_t i = 0; i < json_array_size(listening); i++)
        printf("             %s\n", json_string_value(json_array_get(listening, i)));
}

/*
 * Room and contents are two measures, each in a line of its own. Room is what may still be accepted, at its worst: a
 * segment counts for less than its size, because a record that does not fit its rest goes to the next one. Contents
 * are the bytes that lie there. So what is stored may be more than the room that is taken.
 */
static void print_space(const json_t *result)
{
    char a[16], b[16], c[16];
    printf("space        %s free for new data, of %s; %s reserved for what is not stored yet\n",
           output_size(result, "free", a), output_size(result, "usable", b), output_size(result, "reserved", c));
    printf("stored       %s live, %s dead in segments with it, %s dead in segments that will soon be free\n",
           output_size(result, "live", a), output_size(result, "dead", b), output_size(result, "pending-free", c));
    printf("file         %s, of which the file system holds %s\n", output_size(result, "size", a),
           output_size(result, "allocated", b));
}

static void print_log(const json_t *result)
{
    const json_t *log = json_object_get(result, "log"), *cache = json_object_get(result, "cache");
    char a[16], b[16], c[16];
    printf("log          checkpoint %llu, %s behind it to replay after a crash\n",
           (unsigned long long)output_u64(log, "checkpoint"), output_size(log, "replay", a));
    printf("cache        %s of %s, %s dirty\n", output_size(cache, "used", a), output_size(cache, "size", b),
           output_size(cache, "dirty", c));
}

static void print_device(const json_t *result)
{
    const json_t *device = json_object_get(result, "device");
    char a[16], b[16];
    printf("device       %s: %llu reads (%s), %llu writes (%s), %llu flushes\n", output_text(device, "engine"),
           (unsigned long long)output_u64(device, "reads"), output_size(device, "read-bytes", a),
           (unsigned long long)output_u64(device, "writes"), output_size(device, "written-bytes", b),
           (unsigned long long)output_u64(device, "flushes"));
}

static void print_damage(const json_t *result)
{
    const json_t *damage = json_object_get(result, "damage"), *lost = json_object_get(result, "lost-log");
    if (output_u64(lost, "to") > output_u64(lost, "from"))
        printf("lost         flushed log from address %llu to %llu was given up at open\n",
               (unsigned long long)output_u64(lost, "from"), (unsigned long long)output_u64(lost, "to"));
    for (size_t i = 0; i < json_array_size(damage); i++) {
        const json_t *d = json_array_get(damage, i);
        printf("damage       volume %s, %llu bytes at %llu: %s (log address %llu, seen %s)\n", output_text(d, "volume"),
               (unsigned long long)output_u64(d, "length"), (unsigned long long)output_u64(d, "offset"),
               output_text(d, "kind"), (unsigned long long)output_u64(d, "address"), output_text(d, "seen"));
    }
}

static void print_volumes(const json_t *result)
{
    const json_t *volumes = json_object_get(result, "volumes");
    static const char *const headings[] = {"VOLUME", "USERS", "READS", "WRITES", "FLUSHES", "READ", "WRITTEN", "DIRTY"};
    struct table t = {.columns = sizeof(headings) / sizeof(headings[0])};
    static const char *const counts[] = {"reads", "writes", "flushes"};
    char buf[32];
    if (json_array_size(volumes) == 0)
        return;
    for (unsigned i = 0; i < t.columns; i++)
        table_add(&t, headings[i]);
    for (size_t i = 0; i < json_array_size(volumes); i++) {
        const json_t *v = json_array_get(volumes, i), *requests = json_object_get(v, "requests");
        table_add(&t, output_text(v, "name"));
        snprintf(buf, sizeof(buf), "%llu", (unsigned long long)output_u64(v, "users"));
        table_add(&t, buf);
        for (unsigned k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
            snprintf(buf, sizeof(buf), "%llu", (unsigned long long)output_u64(requests, counts[k]));
            table_add(&t, buf);
        }
        table_add(&t, output_size(requests, "read-bytes", buf));
        table_add(&t, output_size(requests, "written-bytes", buf));
        table_add(&t, output_size(v, "dirty", buf));
    }
    putchar('\n');
    table_print(&t);
}

static void print_status(const struct invocation *in, const json_t *result)
{
    const char *state = output_text(result, "state");
    printf("pool         %s%s\n", output_text(result, "pool"),
           json_is_true(json_object_get(result, "read-only")) ? ", read-only" : "");
    printf("state        %s%s\n", state,
           strcmp(state, "failed") == 0    ? ": a write or flush of the device failed; stop and serve again to recover"
           : strcmp(state, "damaged") == 0 ? ": see below, and ashlar check"
                                           : "");
    print_server(json_object_get(result, "server"), in->operands[0]);
    print_space(result);
    print_log(result);
    print_device(result);
    print_damage(result);
    print_volumes(result);
}

static int run_status(struct invocation *in)
{
    struct error err = {0};
    json_t *result = NULL;
    if (session_run(in, in->operands[0], "status", NULL, -1, NULL, &result, &err) < 0)
        return output_error(in, &err, EXIT_FAILED);
    if (in->json)
        output_json(result);
    else
        print_status(in, result);
    bool good = strcmp(output_text(result, "state"), "good") == 0;
    json_decref(result);
    return good ? EXIT_DONE : EXIT_FAILED;
}

const struct verb verb_status = {
    .name = "status",
    .operands = "POOL",
    .summary = "how the pool, its server and its clients are",
    .details =
        "What is stored is as of the last checkpoint, a few seconds ago while the pool is served; ashlar(1) says\n"
        "what each figure means. Exit status 1 if the pool failed or if damaged data was met since it was opened.",
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run_status,
};
