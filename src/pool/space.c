/*
 * Space: what may be accepted, so that all of it can be stored (R32).
 *
 * There is no cleaner in this version, so free space is free slots, not dead bytes. What is accepted is measured at its
 * worst: the raw record and its share of headers, trailers and padding. Storage for it, and for the next checkpoint's
 * nodes, is assured before it is accepted: BARE slots are allocated on the device as reservations grow, so that a full
 * host file system refuses new writes and never fails a write of the log or a checkpoint (R23).
 *
 * The reserve is kept from data: one open segment for each of the five heads; for each of three checkpoint intervals
 * (one in use, two in quarantine) the log of one interval; twice the largest checkpoint; two slots for recovery. A
 * checkpoint of one interval writes at most 1.6 bytes of nodes a byte of log (the worst: 4 KiB patches, each on a leaf
 * of its own, 3.2 KiB packed, both copies), so two intervals and a slot cover it.
 */
#include "pool/pool_impl.h"

#include <errno.h>

#include "base/check.h"
#include "base/math.h"

/* A leaf of 128 records, packed, with its table entry and padding, twice. */
#define LEAF_PAIR_BYTES 6656

/* Checkpoints in a row for one who asks for space, as long as each gets segments back. */
#define EVACUATIONS_MAX 16

uint64_t record_reserve_bytes(uint32_t record_bytes)
{
    return record_bytes + RECORD_OVERHEAD_BYTES;
}

/* A segment is left when the next entry does not fit any more: its largest record is lost to that (R33), and a bridge's
 * place. */
uint64_t pool_usable_segment_bytes(const struct pool *pool)
{
    const struct geometry *g = &pool->geometry;
    return g->segment_bytes - g->segment_bytes / SEGMENT_RECORDS_MIN - 4 * (uint64_t)g->write_unit_bytes;
}

void pool_compute_reserve(struct pool *pool)
{
    uint64_t interval_slots = div_ceil(pool->interval_bytes, pool->geometry.segment_bytes);
    uint64_t checkpoint_slots = 2 * interval_slots + 1;
    pool->reserve_slots = 4 + 3 * interval_slots + 2 * checkpoint_slots + 2;
    /* A tiny pool would be all reserve: there a quarter must do, and checkpoints come sooner. */
    pool->reserve_slots = min_u64(pool->reserve_slots, pool->geometry.slot_count / 4);
}

uint64_t pool_provisioned_bytes(const struct pool *pool)
{
    uint64_t sum = 0;
    for (const struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next) {
        const struct volume *v = (const struct volume *)l;
        sum += v->provisioned_records * record_reserve_bytes(v->record_bytes);
        sum += v->provision_active_bytes + v->provision_frozen_bytes;
    }
    return sum;
}

uint64_t pool_capacity_bytes(struct pool *pool, bool privileged)
{
    uint64_t slots = slots_free_count(&pool->slots) + pool->data.next_count;
    uint64_t kept = privileged ? pool->reserve_slots / 2 : pool->reserve_slots;
    uint64_t usable = pool_usable_segment_bytes(pool);
    if (slots <= kept)
        return 0;
    return (slots - kept) * usable + min_u64(data_head_room(&pool->data), usable);
}

/*
 * What the next checkpoint writes at most: for each entry of the log since the last one, and each that what is dirty
 * can become, a leaf in both copies, but for no leaf twice; and a segment for the pool's own trees.
 */
static uint64_t checkpoint_need_bytes(const struct pool *pool)
{
    uint64_t entries = pool->active_entries + pool->frozen_entries + 1, leaves = 1;
    entries += pool->reserved_bytes / record_reserve_bytes(RECORD_BYTES_MIN);
    for (const struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next)
        leaves += div_ceil(volume_record_count((const struct volume *)l), map_fanout(0));
    return min_u64(entries, leaves) * LEAF_PAIR_BYTES + pool_usable_segment_bytes(pool);
}

/* Storage that is there already: writes to it cannot fail for lack of space. */
static uint64_t prepared_bytes(struct pool *pool)
{
    uint64_t slots = slots_ready_count(&pool->slots) + pool->data.next_count;
    uint64_t usable = pool_usable_segment_bytes(pool);
    return slots * usable + min_u64(data_head_room(&pool->data), usable);
}

/* Allocates BARE slots until `bytes` are prepared. Lock held, released meanwhile. */
static int prepare(struct pool *pool, uint64_t bytes)
{
    while (prepared_bytes(pool) < bytes) {
        uint32_t slot = slots_take_bare(&pool->slots);
        if (slot == SLOT_NONE)
            return -ENOSPC;
        struct device_io io = {.kind = DEVICE_ALLOCATE,
                               .offset_bytes = slots_device_offset(&pool->slots, slot, 0),
                               .length_bytes = pool->geometry.segment_bytes};
        env_mutex_unlock(&pool->lock);
        int result = device_run(pool->dev, &io, 1);
        env_mutex_lock(&pool->lock);
        slots_return(&pool->slots, slot, result == 0, pool->checkpoint);
        if (result != 0)
            return result;
    }
    return 0;
}

static int try_reserve(struct pool *pool, uint64_t bytes, bool privileged)
{
    uint64_t wanted = pool->reserved_bytes + pool_provisioned_bytes(pool) + bytes;
    if (wanted > pool_capacity_bytes(pool, privileged))
        return -ENOSPC;
    /* Accounted before the device is asked, so that two who prepare at once do not count on the same slot. */
    pool->reserved_bytes += bytes;
    int result = prepare(pool, wanted + checkpoint_need_bytes(pool));
    if (result != 0)
        pool->reserved_bytes -= bytes;
    return result;
}

/* Nothing was sealed and no checkpoint was done since space was last refused: another try would end the same way. */
static bool nothing_changed(const struct pool *pool)
{
    return pool->denied && pool->denied_sealed_to == pool->data.sealed_to &&
           pool->denied_checkpoint == pool->checkpoint;
}

int pool_reserve(struct pool *pool, uint64_t bytes, bool privileged)
{
    CHECK(env_mutex_held(&pool->lock));
    int result = try_reserve(pool, bytes, privileged);
    if (result != -ENOSPC || nothing_changed(pool))
        return result;
    /* Dirty data holds its worst case; written out it holds what it takes. */
    result = pool_sync_volume(pool, NULL);
    if (result == 0)
        result = try_reserve(pool, bytes, privileged);
    /* What is dead at one checkpoint is free after the next; a third makes up for one that was under way. */
    for (int i = 0; (i < 3 || (pool->evacuating && i < EVACUATIONS_MAX)) && result == -ENOSPC; i++) {
        result = pool_run_checkpoint(pool, false);
        if (result == 0)
            result = try_reserve(pool, bytes, privileged);
    }
    pool->denied = result == -ENOSPC;
    pool->denied_sealed_to = pool->data.sealed_to;
    pool->denied_checkpoint = pool->checkpoint;
    return result;
}

void pool_unreserve(struct pool *pool, uint64_t bytes)
{
    CHECK_GE(pool->reserved_bytes, bytes);
    pool->reserved_bytes -= bytes;
}
