/*
 * Bytes stored after close against the least that the codec alone would need (S12).
 *
 * usage: stored POOL_FILE CORPUS. Makes the pool (the file must not exist), writes the corpus to a volume (zstd-3,
 * 16 KiB records) in 128 KiB writes, closes, opens again, verifies, and prints what the pool holds. The yardstick is
 * the sum over records that are not all zeroes of min(ZSTD level 3, raw), by the same library in the same process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/error.h"
#include "common.h"
#include "pool/pool.h"
#include "volume/volume.h"

#define RECORD_BYTES 16384
#define REQUEST_BYTES (128u << 10)
#define POOL_BYTES (UINT64_C(64) << 30)

static struct pool *open_pool(const char *path, struct volume **ret_volume)
{
    struct error err = {0};
    struct device *dev;
    struct pool *pool;
    struct pool_options options = {.background = true};
    if (device_open(env_os(), path, 0, 0, &dev, &err) != 0 || pool_open(dev, &options, &pool, &err) != 0 ||
        volume_get(pool, "v", ret_volume, &err) != 0)
        bench_die("%s", err.text);
    return pool;
}

static void make_pool(const char *path, uint64_t volume_bytes)
{
    struct error err = {0};
    struct device *dev;
    struct pool *pool;
    struct pool_options options = {.background = true};
    struct pool_create_options create = {0};
    struct volume_settings settings = {
        .size_bytes = volume_bytes, .record_bytes = RECORD_BYTES, .codec = {.id = CODEC_ZSTD, .level = 3}};
    /* A size that people give: the interval between checkpoints follows from it, and so the dead versions of the map.
     */
    if (device_open(env_os(), path, DEVICE_OPEN_CREATE, POOL_BYTES, &dev, &err) != 0 ||
        pool_create(dev, &create, &err) != 0 || pool_open(dev, &options, &pool, &err) != 0 ||
        volume_create(pool, "v", &settings, &err) != 0 || pool_close(pool, &err) != 0)
        bench_die("%s", err.text);
}

static void close_pool(struct pool *pool, struct volume *v)
{
    struct error err = {0};
    volume_put(v);
    if (pool_close(pool, &err) != 0)
        bench_die("%s", err.text);
}

static void fill(struct volume *v, const struct corpus *c)
{
    uint64_t length_bytes = c->block_count * BLOCK_BYTES;
    for (uint64_t at = 0; at < length_bytes; at += REQUEST_BYTES) {
        uint64_t n = length_bytes - at < REQUEST_BYTES ? length_bytes - at : REQUEST_BYTES;
        int ret = volume_write(v, at, c->bytes + at, n, 0);
        if (ret != 0)
            bench_die("write at %llu: %s", (unsigned long long)at, strerror(-ret));
    }
}

static void verify(struct volume *v, const struct corpus *c)
{
    static uint8_t buf[REQUEST_BYTES];
    uint64_t length_bytes = c->block_count * BLOCK_BYTES;
    for (uint64_t at = 0; at < length_bytes; at += REQUEST_BYTES) {
        uint64_t n = length_bytes - at < REQUEST_BYTES ? length_bytes - at : REQUEST_BYTES;
        int ret = volume_read(v, at, buf, n);
        if (ret != 0 || memcmp(buf, c->bytes + at, n) != 0)
            bench_die("read at %llu: %s", (unsigned long long)at, ret != 0 ? strerror(-ret) : "other bytes");
    }
}

/* The tail of the last record is zeroes, as in the volume. */
static uint64_t yardstick_bytes(const struct corpus *c, uint64_t *ret_records)
{
    static uint8_t record[RECORD_BYTES], packed[2 * RECORD_BYTES];
    uint64_t sum = 0, length_bytes = c->block_count * BLOCK_BYTES;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    *ret_records = 0;
    for (uint64_t at = 0; at < length_bytes; at += RECORD_BYTES) {
        uint64_t n = length_bytes - at < RECORD_BYTES ? length_bytes - at : RECORD_BYTES;
        memset(record, 0, sizeof record);
        memcpy(record, c->bytes + at, n);
        if (bytes_are_zero(record, sizeof record))
            continue;
        size_t length = ZSTD_compressCCtx(context, packed, sizeof packed, record, sizeof record, 3);
        sum += ZSTD_isError(length) || length > RECORD_BYTES ? RECORD_BYTES : length;
        ++*ret_records;
    }
    ZSTD_freeCCtx(context);
    return sum;
}

int main(int argc, char **argv)
{
    struct corpus c;
    struct pool *pool;
    struct volume *v;
    struct pool_info empty, full;
    struct volume_info volume;
    uint64_t records;
    if (argc != 3)
        bench_die("usage: stored POOL_FILE CORPUS");
    corpus_load(&c, argv[2]);
    make_pool(argv[1], c.block_count * BLOCK_BYTES);
    pool = open_pool(argv[1], &v);
    pool_get_info(pool, &empty);
    double start = bench_seconds();
    fill(v, &c);
    close_pool(pool, v);
    double took = bench_seconds() - start;
    pool = open_pool(argv[1], &v);
    pool_get_info(pool, &full);
    volume_get_info(v, &volume);
    verify(v, &c);
    close_pool(pool, v);
    unsigned long long least = yardstick_bytes(&c, &records);
    printf("{\"corpus_bytes\": %llu, \"records\": %llu, \"least_bytes\": %llu, \"log_bytes\": %llu, "
           "\"empty_log_bytes\": %llu, \"allocated_bytes\": %llu, \"live_bytes\": %llu, \"dead_bytes\": %llu, "
           "\"stored_bytes\": %llu, \"metadata_bytes\": %llu, \"checkpoint\": %llu, \"fill_seconds\": %.3f}\n",
           (unsigned long long)c.length_bytes, (unsigned long long)records, least, (unsigned long long)full.log_bytes,
           (unsigned long long)empty.log_bytes, (unsigned long long)full.allocated_bytes,
           (unsigned long long)full.live_bytes, (unsigned long long)full.dead_bytes,
           (unsigned long long)volume.stored_bytes, (unsigned long long)volume.metadata_bytes,
           (unsigned long long)full.checkpoint, took);
    return 0;
}
