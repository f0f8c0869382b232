/*
 * What a pool says of itself: sizes, counts and shares, for lists and the statistics of the server.
 */
#include "pool/pool_impl.h"

#include <string.h>

#include "base/math.h"

/* What was written to the device, as far as it still stands: segments as far as they are filled, and the places of the
 * label rings that have ever held a label. */
static uint64_t log_bytes(struct pool *pool, const struct slots_summary *sum)
{
    uint64_t labels = min_u64(pool->label.sequence, LABEL_RING_SLOTS);
    uint64_t bytes = 2 * labels * pool->geometry.write_unit_bytes;
    bytes += sum->closed_used_bytes + sum->quarantined_bytes;
    bytes += pool->data.position_bytes;
    if (pool->nodes.at.slot != SLOT_NONE)
        bytes += pool->nodes.position_bytes;
    return bytes;
}

static void get_device(struct pool *pool, struct pool_info *info)
{
    struct device_stats *s = &pool->dev->stats;
    info->device.reads = atomic_load_explicit(&s->reads, memory_order_relaxed);
    info->device.writes = atomic_load_explicit(&s->writes, memory_order_relaxed);
    info->device.flushes = atomic_load_explicit(&s->flushes, memory_order_relaxed);
    info->device.punches = atomic_load_explicit(&s->punches, memory_order_relaxed);
    info->device.read_bytes = atomic_load_explicit(&s->read_bytes, memory_order_relaxed);
    info->device.write_bytes = atomic_load_explicit(&s->write_bytes, memory_order_relaxed);
    info->device_engine = pool->dev->info.engine;
}

static void get_space(struct pool *pool, struct pool_info *info)
{
    struct slots_summary sum = slots_summarise(&pool->slots);
    uint64_t usable = pool_usable_segment_bytes(pool), slots = pool->geometry.slot_count;
    uint64_t held = pool->reserved_bytes + pool_provisioned_bytes(pool), capacity = pool_capacity_bytes(pool, false);
    info->usable_bytes = slots > pool->reserve_slots ? (slots - pool->reserve_slots) * usable : 0;
    info->free_bytes = capacity > held ? capacity - held : 0;
    info->live_bytes = sum.live_bytes + sum.own_bytes;
    info->pending_free_bytes = sum.quarantined_bytes;
    info->dead_bytes = sum.dead_bytes;
    info->reserved_bytes = held;
    info->log_bytes = log_bytes(pool, &sum);
    info->free_slots = sum.free_count;
}

void pool_get_info(struct pool *pool, struct pool_info *ret_info)
{
    struct pool_info info;
    memset(&info, 0, sizeof info);
    info.allocated_bytes = device_allocated_bytes(pool->dev);
    env_mutex_lock(&pool->lock);
    memcpy(info.uuid, pool->geometry.pool_uuid, sizeof info.uuid);
    memcpy(info.path, pool->dev->name, sizeof info.path);
    info.size_bytes = pool->geometry.device_bytes;
    info.segment_bytes = pool->geometry.segment_bytes;
    info.write_unit_bytes = pool->geometry.write_unit_bytes;
    info.slot_count = pool->geometry.slot_count;
    info.created_wall_ns = pool->label.created_wall_ns;
    info.incarnation = pool->geometry.incarnation;
    info.label_sequence = pool->label.sequence;
    info.checkpoint = pool->checkpoint;
    info.replay_bytes = pool->data.log_bytes - pool->checkpoint_log_bytes;
    info.volume_count = pool->volume_count;
    info.cache_bytes = pool->cache.budget_bytes + pool->node_store.budget_bytes;
    info.cache_used_bytes = pool->cache.used_bytes;
    info.dirty_bytes = pool->cache.dirty_bytes;
    info.corrupt_reads = pool->corrupt_reads;
    info.skipped_entries = pool->skipped_entries;
    info.lost_from = pool->lost_from;
    info.lost_to = pool->lost_to;
    info.read_only = pool->read_only;
    info.failed = pool->data.failed;
    info.was_clean = pool->was_clean;
    get_space(pool, &info);
    get_device(pool, &info);
    env_mutex_unlock(&pool->lock);
    *ret_info = info;
}
