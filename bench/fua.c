/*
 * Random 4 KiB writes with FUA, in-process, beside pwrite + fdatasync in a file on the same file system (S9, S10).
 *
 * usage: fua POOL VOLUME YARDSTICK_FILE CORPUS. Commands: "yard SECONDS cached|direct", "writes SECONDS THREADS",
 * "verify". The volume exists; what it held before does not matter.
 *        fua make FILE VOLUME MIB CODEC CORPUS: makes a pool in an existing file, whatever it holds (so that a pool can
 * lie on storage that was written before), and in it a volume full of the corpus.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "common.h"
#include "pool/pool.h"
#include "volume/volume.h"

struct bench {
    struct corpus corpus;
    struct yardstick yardstick;
    struct pool *pool;
    struct volume *volume;
    struct stream stream;
};

struct lane {
    struct bench *bench;
    unsigned number, count;
    double end;
    uint64_t writes;
};

static void *lane_run(void *arg)
{
    struct lane *l = arg;
    while (bench_seconds() < l->end) {
        uint64_t offset_bytes;
        const uint8_t *bytes = stream_next(&l->bench->stream, l->number, l->count, &offset_bytes);
        int ret = volume_write(l->bench->volume, offset_bytes, bytes, BLOCK_BYTES, VOLUME_FUA);
        if (ret != 0)
            bench_die("volume_write: %s", strerror(-ret));
        l->writes++;
    }
    return NULL;
}

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void run_writes(struct bench *b, double seconds, unsigned threads)
{
    struct lane lanes[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    struct pool_info before, after;
    if (threads < 1 || threads > THREADS_MAX)
        bench_die("1 to %d threads", THREADS_MAX);
    pool_get_info(b->pool, &before);
    double start = bench_seconds(), cpu = cpu_seconds();
    for (unsigned i = 0; i < threads; i++)
        lanes[i] = (struct lane){.bench = b, .number = i, .count = threads, .end = start + seconds};
    if (threads == 1) {
        (void)lane_run(&lanes[0]);
    } else {
        for (unsigned i = 0; i < threads; i++) {
            if (pthread_create(&ids[i], NULL, lane_run, &lanes[i]) != 0)
                bench_die("no thread");
        }
        for (unsigned i = 0; i < threads; i++)
            (void)pthread_join(ids[i], NULL);
    }
    double took = bench_seconds() - start;
    cpu = cpu_seconds() - cpu;
    pool_get_info(b->pool, &after);
    uint64_t writes = 0;
    for (unsigned i = 0; i < threads; i++)
        writes += lanes[i].writes;
    printf("{\"writes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.4f, \"flushes\": %llu, \"device_writes\": %llu, "
           "\"device_bytes\": %llu, \"device_reads\": %llu, \"checkpoints\": %llu}\n",
           (unsigned long long)writes, took, cpu, (unsigned long long)(after.device.flushes - before.device.flushes),
           (unsigned long long)(after.device.writes - before.device.writes),
           (unsigned long long)(after.device.write_bytes - before.device.write_bytes),
           (unsigned long long)(after.device.reads - before.device.reads),
           (unsigned long long)(after.checkpoint - before.checkpoint));
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
        int ret = volume_read(b->volume, i * BLOCK_BYTES, block, BLOCK_BYTES);
        if (ret != 0 || memcmp(block, expected, BLOCK_BYTES) != 0)
            bench_die("block %llu: %s", (unsigned long long)i, ret != 0 ? strerror(-ret) : "holds something else");
        checked++;
    }
    printf("{\"checked\": %llu}\n", checked);
}

static void open_pool(struct bench *b, const char *path, const char *volume)
{
    struct error err = {0};
    struct device *dev;
    struct pool_options options = {.background = true};
    if (device_open(env_os(), path, 0, 0, &dev, &err) != 0 || pool_open(dev, &options, &b->pool, &err) != 0 ||
        volume_get(b->pool, volume, &b->volume, &err) != 0)
        bench_die("%s", err.text);
}

static void make(char **argv)
{
    struct bench b = {0};
    struct error err = {0};
    struct device *dev;
    struct pool_create_options create = {0};
    struct pool_options options = {.background = true};
    struct volume_settings settings = {.size_bytes = strtoull(argv[4], NULL, 10) << 20};
    corpus_load(&b.corpus, argv[6]);
    if (codec_choice_parse(argv[5], &settings.codec, &err) != 0 ||
        device_open(env_os(), argv[2], 0, 0, &dev, &err) != 0 || pool_create(dev, &create, &err) != 0 ||
        pool_open(dev, &options, &b.pool, &err) != 0 || volume_create(b.pool, argv[3], &settings, &err) != 0 ||
        volume_get(b.pool, argv[3], &b.volume, &err) != 0)
        bench_die("%s", err.text);
    uint64_t sources = b.corpus.block_count / 32;
    for (uint64_t at = 0; at < settings.size_bytes; at += 32 * BLOCK_BYTES) {
        const uint8_t *bytes = b.corpus.bytes + at / (32 * BLOCK_BYTES) % sources * 32 * BLOCK_BYTES;
        if (volume_write(b.volume, at, bytes, 32 * BLOCK_BYTES, 0) != 0)
            bench_die("filling the volume failed");
    }
    volume_put(b.volume);
    if (pool_close(b.pool, &err) != 0)
        bench_die("%s", err.text);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    char line[128];
    if (argc == 7 && strcmp(argv[1], "make") == 0) {
        make(argv);
        return 0;
    }
    if (argc != 5)
        bench_die("usage: fua POOL VOLUME YARDSTICK_FILE CORPUS");
    corpus_load(&b.corpus, argv[4]);
    yardstick_open(&b.yardstick, argv[3], &b.corpus);
    open_pool(&b, argv[1], argv[2]);
    stream_init(&b.stream, &b.corpus, volume_size_bytes(b.volume), 1);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char mode[16] = "";
        double seconds = 0;
        unsigned threads = 0;
        if (sscanf(line, "yard %lf %15s", &seconds, mode) == 2)
            run_yardstick(&b, seconds, strcmp(mode, "direct") == 0);
        else if (sscanf(line, "writes %lf %u", &seconds, &threads) == 2)
            run_writes(&b, seconds, threads);
        else if (strcmp(line, "verify\n") == 0)
            verify(&b);
        else
            bench_die("unknown command: %s", line);
        (void)fflush(stdout);
    }
    struct error err = {0};
    volume_put(b.volume);
    if (pool_close(b.pool, &err) != 0)
        bench_die("%s", err.text);
    return 0;
}
