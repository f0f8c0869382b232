/*
 * Random writes over NBD by libnbd, which can set FUA on each: 4 KiB for S9 and S10, larger ones to fill a volume
 * (S19).
 *
 * usage: fua_nbd URI YARDSTICK_FILE|- CORPUS [STREAM_BYTES]. Commands: "yard SECONDS cached|direct",
 * "writes SECONDS DEPTH", "fill MIB REQUEST_KIB DEPTH", "verify". Only the first STREAM_BYTES of the volume are written
 * by "writes"; "fill" goes over all of it and verifies as it goes: every 64th request is read back.
 */
#include <errno.h>
#include <libnbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

struct bench {
    struct corpus corpus;
    struct yardstick yardstick;
    struct nbd_handle *nbd;
    uint64_t volume_bytes;
    struct stream stream;
};

/* One request that may be under way. */
struct lane {
    unsigned number;
    bool busy;
    int *failed;
    unsigned *busy_count;
};

static int lane_done(void *arg, int *error)
{
    struct lane *l = arg;
    l->busy = false;
    --*l->busy_count;
    if (*error != 0)
        *l->failed = *error;
    return 1;
}

static uint64_t write_alone(struct bench *b, double seconds)
{
    uint64_t writes = 0, offset_bytes;
    for (double end = bench_seconds() + seconds; bench_seconds() < end; writes++) {
        const uint8_t *bytes = stream_next(&b->stream, 0, 1, &offset_bytes);
        if (nbd_pwrite(b->nbd, bytes, BLOCK_BYTES, offset_bytes, LIBNBD_CMD_FLAG_FUA) < 0)
            bench_die("write: %s", nbd_get_error());
    }
    return writes;
}

static uint64_t write_deep(struct bench *b, double seconds, unsigned depth)
{
    struct lane lanes[THREADS_MAX];
    unsigned busy = 0;
    int failed = 0;
    uint64_t writes = 0;
    for (unsigned i = 0; i < depth; i++)
        lanes[i] = (struct lane){.number = i, .failed = &failed, .busy_count = &busy};
    double end = bench_seconds() + seconds;
    bool more = true;
    while (more || busy > 0) {
        for (unsigned i = 0; i < depth && more; i++) {
            if (lanes[i].busy)
                continue;
            uint64_t offset_bytes;
            const uint8_t *bytes = stream_next(&b->stream, i, depth, &offset_bytes);
            nbd_completion_callback done = {.callback = lane_done, .user_data = &lanes[i]};
            lanes[i].busy = true;
            busy++;
            if (nbd_aio_pwrite(b->nbd, bytes, BLOCK_BYTES, offset_bytes, done, LIBNBD_CMD_FLAG_FUA) < 0)
                bench_die("write: %s", nbd_get_error());
            writes++;
        }
        if (busy > 0 && nbd_poll(b->nbd, -1) < 0)
            bench_die("poll: %s", nbd_get_error());
        if (failed != 0)
            bench_die("write: %s", strerror(failed));
        more = bench_seconds() < end;
    }
    return writes;
}

static void run_writes(struct bench *b, double seconds, unsigned depth)
{
    if (depth < 1 || depth > THREADS_MAX)
        bench_die("depth 1 to %d", THREADS_MAX);
    double start = bench_seconds();
    uint64_t writes = depth == 1 ? write_alone(b, seconds) : write_deep(b, seconds, depth);
    printf("{\"writes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)writes, bench_seconds() - start);
}

static void run_fill(struct bench *b, uint64_t total_bytes, uint32_t request_bytes, unsigned depth)
{
    struct lane lanes[THREADS_MAX];
    unsigned busy = 0;
    int failed = 0;
    uint64_t random = 7, places = b->volume_bytes / request_bytes, requests = total_bytes / request_bytes, checked = 0;
    uint64_t sources = b->corpus.block_count - request_bytes / BLOCK_BYTES;
    uint8_t *back = malloc(request_bytes);
    if (depth < 1 || depth > THREADS_MAX || back == NULL)
        bench_die("depth 1 to %d", THREADS_MAX);
    for (unsigned i = 0; i < depth; i++)
        lanes[i] = (struct lane){.number = i, .failed = &failed, .busy_count = &busy};
    double start = bench_seconds();
    for (uint64_t done = 0; done < requests; done++) {
        while (busy == depth) {
            if (nbd_poll(b->nbd, -1) < 0)
                bench_die("poll: %s", nbd_get_error());
        }
        struct lane *l = lanes;
        while (l->busy)
            l++;
        uint64_t at = random_next(&random) % places * request_bytes;
        const uint8_t *bytes = b->corpus.bytes + random_next(&random) % sources * BLOCK_BYTES;
        nbd_completion_callback callback = {.callback = lane_done, .user_data = l};
        l->busy = true;
        busy++;
        if (nbd_aio_pwrite(b->nbd, bytes, request_bytes, at, callback, 0) < 0)
            bench_die("write: %s", nbd_get_error());
        if (done % 64 != 0)
            continue;
        while (busy > 0) {
            if (nbd_poll(b->nbd, -1) < 0)
                bench_die("poll: %s", nbd_get_error());
        }
        if (failed != 0)
            bench_die("a request before %llu failed: %s", (unsigned long long)at, strerror(failed));
        if (nbd_pread(b->nbd, back, request_bytes, at, 0) < 0)
            bench_die("read at %llu: %s", (unsigned long long)at, nbd_get_error());
        if (memcmp(back, bytes, request_bytes) != 0)
            bench_die("read at %llu: other bytes than were written", (unsigned long long)at);
        checked++;
    }
    while (busy > 0 && nbd_poll(b->nbd, -1) >= 0)
        ;
    if (failed != 0 || nbd_flush(b->nbd, 0) < 0)
        bench_die("write or flush failed: %s", failed != 0 ? strerror(failed) : nbd_get_error());
    printf("{\"requests\": %llu, \"checked\": %llu, \"seconds\": %.3f}\n", (unsigned long long)requests,
           (unsigned long long)checked, bench_seconds() - start);
    free(back);
}

static void run_yardstick(struct bench *b, double seconds, bool direct)
{
    double start = bench_seconds();
    uint64_t writes = yardstick_run(&b->yardstick, seconds, direct);
    printf("{\"writes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)writes, bench_seconds() - start);
}

static void verify(struct bench *b)
{
    uint8_t block[BLOCK_BYTES];
    unsigned long long checked = 0;
    for (uint64_t i = 0; i < b->stream.block_count; i++) {
        const uint8_t *expected = stream_expected(&b->stream, i);
        if (expected == NULL)
            continue;
        if (nbd_pread(b->nbd, block, BLOCK_BYTES, i * BLOCK_BYTES, 0) < 0 || memcmp(block, expected, BLOCK_BYTES) != 0)
            bench_die("block %llu cannot be read or holds something else", (unsigned long long)i);
        checked++;
    }
    printf("{\"checked\": %llu}\n", checked);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    char line[128];
    if (argc != 4 && argc != 5)
        bench_die("usage: fua_nbd URI YARDSTICK_FILE|- CORPUS [STREAM_BYTES]");
    corpus_load(&b.corpus, argv[3]);
    if (strcmp(argv[2], "-") != 0)
        yardstick_open(&b.yardstick, argv[2], &b.corpus);
    b.nbd = nbd_create();
    if (b.nbd == NULL || nbd_connect_uri(b.nbd, argv[1]) < 0)
        bench_die("%s: %s", argv[1], nbd_get_error());
    b.volume_bytes = (uint64_t)nbd_get_size(b.nbd);
    stream_init(&b.stream, &b.corpus, argc == 5 ? strtoull(argv[4], NULL, 10) : BLOCK_BYTES * THREADS_MAX, 2);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char mode[16] = "";
        double seconds = 0;
        unsigned depth = 0, mib = 0, kib = 0;
        if (sscanf(line, "yard %lf %15s", &seconds, mode) == 2)
            run_yardstick(&b, seconds, strcmp(mode, "direct") == 0);
        else if (sscanf(line, "writes %lf %u", &seconds, &depth) == 2)
            run_writes(&b, seconds, depth);
        else if (sscanf(line, "fill %u %u %u", &mib, &kib, &depth) == 3)
            run_fill(&b, (uint64_t)mib << 20, kib << 10, depth);
        else if (strcmp(line, "verify\n") == 0)
            verify(&b);
        else
            bench_die("unknown command: %s", line);
        (void)fflush(stdout);
    }
    (void)nbd_shutdown(b.nbd, 0);
    nbd_close(b.nbd);
    return 0;
}
