/*
 * Opening after a crash with much log behind the checkpoint (S16).
 *
 * usage: reopen fill POOL_FILE CORPUS LOG_MIB   makes the pool, fills it without checkpoints, and kills itself
 *        reopen open POOL_FILE                  opens (timed), reads one record, kills itself: the pool is not changed
 *        reopen raw POOL_FILE BYTES             reads so much of the file with O_DIRECT, 1 MiB at a time
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "common.h"
#include "pool/pool.h"
#include "volume/volume.h"

#define REQUEST_BYTES (128u << 10)
#define VOLUME_BYTES (UINT64_C(64) << 30)
#define RAW_BYTES (1u << 20)

static const struct pool_options options = {.background = false, .checkpoint_log_bytes = UINT64_C(1) << 40};

static struct pool *open_pool(const char *path, unsigned flags, uint64_t size_bytes)
{
    struct error err = {0};
    struct device *dev;
    struct pool *pool;
    struct pool_create_options create = {0};
    if (device_open(env_os(), path, flags, size_bytes, &dev, &err) != 0)
        bench_die("%s", err.text);
    if ((flags & DEVICE_OPEN_CREATE) != 0 && pool_create(dev, &create, &err) != 0)
        bench_die("%s", err.text);
    if (pool_open(dev, &options, &pool, &err) != 0)
        bench_die("%s", err.text);
    return pool;
}

static void crash(void)
{
    (void)fflush(stdout);
    (void)kill(getpid(), SIGKILL);
}

static void fill(const char *path, const char *corpus_path, uint64_t log_bytes)
{
    struct corpus c;
    struct error err = {0};
    struct volume *v;
    struct volume_settings settings = {.size_bytes = VOLUME_BYTES, .codec = {.id = CODEC_LZ4}};
    struct pool_info info;
    corpus_load(&c, corpus_path);
    struct pool *pool = open_pool(path, DEVICE_OPEN_CREATE, 4 * log_bytes);
    if (volume_create(pool, "v", &settings, &err) != 0 || volume_get(pool, "v", &v, &err) != 0)
        bench_die("%s", err.text);
    uint64_t turn_bytes = c.block_count * BLOCK_BYTES / REQUEST_BYTES * REQUEST_BYTES, at = 0;
    do {
        for (uint64_t i = 0; i < 64; i++, at += REQUEST_BYTES) {
            int ret = volume_write(v, at % VOLUME_BYTES, c.bytes + at % turn_bytes, REQUEST_BYTES, 0);
            if (ret != 0)
                bench_die("write: %s", strerror(-ret));
        }
        pool_get_info(pool, &info);
    } while (info.replay_bytes < log_bytes);
    if (volume_flush(v) != 0)
        bench_die("flush failed");
    pool_get_info(pool, &info);
    printf("{\"written_bytes\": %llu, \"replay_bytes\": %llu, \"checkpoint\": %llu}\n", (unsigned long long)at,
           (unsigned long long)info.replay_bytes, (unsigned long long)info.checkpoint);
    crash();
}

static void reopen(const char *path)
{
    static uint8_t bytes[REQUEST_BYTES];
    struct error err = {0};
    struct volume *v;
    struct pool_info info;
    double start = bench_seconds();
    struct pool *pool = open_pool(path, 0, 0);
    double took = bench_seconds() - start;
    pool_get_info(pool, &info);
    if (volume_get(pool, "v", &v, &err) != 0 || volume_read(v, 0, bytes, sizeof bytes) != 0)
        bench_die("the volume cannot be read after opening");
    printf("{\"seconds\": %.6f, \"replay_bytes\": %llu, \"read_bytes\": %llu, \"reads\": %llu}\n", took,
           (unsigned long long)info.replay_bytes, (unsigned long long)info.device.read_bytes,
           (unsigned long long)info.device.reads);
    crash();
}

static void raw(const char *path, uint64_t length_bytes)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    void *buf = aligned_alloc(BLOCK_BYTES, RAW_BYTES);
    if (fd < 0 || buf == NULL)
        bench_die("%s: %s", path, strerror(errno));
    double start = bench_seconds();
    uint64_t at = 0;
    for (; at < length_bytes; at += RAW_BYTES) {
        if (pread(fd, buf, RAW_BYTES, (off_t)at) != RAW_BYTES)
            bench_die("%s: read at %llu: %s", path, (unsigned long long)at, strerror(errno));
    }
    printf("{\"seconds\": %.6f, \"bytes\": %llu}\n", bench_seconds() - start, (unsigned long long)at);
    free(buf);
    (void)close(fd);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "fill") == 0)
        fill(argv[2], argv[3], strtoull(argv[4], NULL, 10) << 20);
    else if (argc == 3 && strcmp(argv[1], "open") == 0)
        reopen(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "raw") == 0)
        raw(argv[2], strtoull(argv[3], NULL, 10));
    else
        bench_die("usage: reopen fill POOL_FILE CORPUS LOG_MIB | open POOL_FILE | raw POOL_FILE BYTES");
    return 0;
}
