/*
 * Sizes are such that the log goes around the disk several times: about 9 MiB of log on a few MiB of disk, and volumes
 * small enough that whole segments die of being overwritten.
 */
#include "crash/workload.h"

#include "base/math.h"
#include "base/prng.h"
#include "model/driver.h"

void workload_make(struct workload *w, uint64_t seed, size_t operations)
{
    static const unsigned weights[OP_KIND_COUNT] = {
        [OP_WRITE] = 560,    [OP_READ] = 60,  [OP_FLUSH] = 60,  [OP_FLUSH_ALL] = 10, [OP_TRIM] = 100,
        [OP_ZERO] = 60,      [OP_RESIZE] = 6, [OP_CREATE] = 30, [OP_DESTROY] = 2,    [OP_RENAME] = 3,
        [OP_CHECKPOINT] = 4, [OP_CODEC] = 4,  [OP_VERIFY] = 2,  [OP_EXTENTS] = 20};
    *w = (struct workload){0};
    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        w->profile.weights[i] = weights[i];
    w->profile.volume_count = 3;
    w->profile.record_bytes[0] = 4096;
    w->profile.size_bytes[0] = 96 * KIB;
    w->profile.record_bytes[1] = 8192;
    w->profile.size_bytes[1] = 128 * KIB;
    w->profile.record_bytes[2] = 16384;
    w->profile.size_bytes[2] = 160 * KIB + 512;
    w->profile.length_max_bytes = 32 * KIB;
    w->profile.fua_per_mille = 180;
    w->profile.unaligned_per_mille = 200;
    w->profile.half_record_per_mille = 200;
    w->profile.same_data_per_mille = 30;
    w->options = (struct store_pool_options){
        .disk_bytes = 16 * MIB, .segment_bytes = 256 * KIB, .lookahead_count = 2, .seed = seed};
    history_make(&w->history, &w->profile, seed, operations);
}

bool workload_run(struct workload *w, struct text *why)
{
    w->store = store_pool_new(&w->options, why);
    if (w->store == NULL)
        return false;
    w->oracle = oracle_new();
    struct pool_info before, after;
    pool_get_info(store_pool_pool(w->store), &before);
    points_learn_slots(&w->points, store_pool_disk(w->store), w->options.disk_bytes);
    points_start(&w->points, store_pool_disk(w->store), w->oracle);
    struct driver *d = driver_new(&w->profile, w->store, w->oracle, &w->stats);
    bool good = driver_create_all(d, why);
    for (size_t i = 0; i < w->history.count && good; i++)
        good = driver_step(d, &w->history.ops[i], why);
    driver_free(d);
    pool_get_info(store_pool_pool(w->store), &after);
    w->checkpoints = after.checkpoint - before.checkpoint;
    points_stop(&w->points, store_pool_disk(w->store));
    return good;
}

uint64_t workload_operations(const struct workload *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        sum += w->stats.done[i];
    return sum;
}

void workload_free(struct workload *w)
{
    points_free(&w->points);
    if (w->store != NULL)
        w->store->ops->free(w->store);
    oracle_free(w->oracle);
    history_free(&w->history);
    *w = (struct workload){0};
}
