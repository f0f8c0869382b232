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
#include <stdlib.h>

#include "base/check.h"
#include "base/math.h"

/* A leaf of 128 records, packed, with its table entry and padding, twice. */
#define LEAF_PAIR_BYTES 6656

/* The catalog's and the slot table's changed objects and nodes, a pair of chunks a level. */
#define OWN_TREES_BYTES (64 * 1024)

/* Segments of nodes that only trims and what the administrator does may use up. */
#define CHECKPOINTS_SPARE 3

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
    pool->data.slots_kept = pool->data.ready_kept = (uint32_t)pool_node_slots_kept(pool);
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

/* The half of the reserve that is for checkpoints: slots that the data head must leave free, for what it has chosen
 * ahead the node head cannot use. */
uint64_t pool_node_slots_kept(const struct pool *pool)
{
    return (pool->reserve_slots + 1) / 2;
}

/* What lies ready for the data head alone. */
static uint64_t in_place_bytes(const struct pool *pool)
{
    uint64_t usable = pool_usable_segment_bytes(pool);
    return pool->data.next_count * usable + min_u64(data_head_room(&pool->data), usable);
}

uint64_t pool_capacity_bytes(struct pool *pool, bool privileged)
{
    uint64_t free = slots_free_count(&pool->slots), nodes_kept = pool_node_slots_kept(pool);
    uint64_t log_kept = privileged ? 0 : pool->reserve_slots - nodes_kept;
    uint64_t slots = free > nodes_kept ? free - nodes_kept : 0;
    /* What is missing of the checkpoints' half is missing to everybody who is not privileged. */
    if (!privileged && free < nodes_kept)
        log_kept += nodes_kept - free;
    if (!privileged && slots + pool->data.next_count <= log_kept)
        return 0;
    return slots * pool_usable_segment_bytes(pool) + in_place_bytes(pool) - log_kept * pool_usable_segment_bytes(pool);
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

/* Leaves that the next checkpoint changes, counted one by one. */
static int count_leaves(struct pool *pool, uint64_t *ret_leaves)
{
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next) {
        struct map_update *updates;
        uint64_t count, last = UINT64_MAX;
        int result = pending_updates(&((struct volume *)l)->active, &updates, &count);
        if (result != 0)
            return result;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t first = updates[i].first >> MAP_LEAF_BITS;
            uint64_t end = (updates[i].first + updates[i].count - 1) >> MAP_LEAF_BITS;
            *ret_leaves += (uint64_t)(first != last) + (end != first);
            last = end;
        }
        free(updates);
    }
    return 0;
}

/* Whether there is storage already for so much data and so many nodes: writing them cannot fail for lack of space. */
static bool is_prepared(struct pool *pool, uint64_t data_bytes, uint64_t node_bytes)
{
    uint64_t in_place = in_place_bytes(pool);
    uint64_t missing = data_bytes > in_place ? data_bytes - in_place : 0;
    return slots_ready_count(&pool->slots) * pool_usable_segment_bytes(pool) >= missing + node_bytes;
}

/* Allocates BARE slots until it is so. Lock held, released meanwhile. */
static int prepare(struct pool *pool, uint64_t data_bytes, uint64_t node_bytes)
{
    while (!is_prepared(pool, data_bytes, node_bytes)) {
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
    uint64_t need = checkpoint_need_bytes(pool), usable = pool_usable_segment_bytes(pool);
    pool->data.ready_kept = (uint32_t)min_u64(div_ceil(need, usable), pool->geometry.slot_count);
    int result = prepare(pool, wanted, need + (privileged ? 0 : CHECKPOINTS_SPARE * usable));
    /* On a full host file system a trim must be taken all the same: it is what gives storage back. */
    if (result == -ENOSPC && privileged && wanted <= in_place_bytes(pool))
        result = 0;
    if (result != 0)
        pool->reserved_bytes -= bytes;
    return result;
}

int pool_prepare_checkpoint(struct pool *pool, uint64_t *ret_spare_bytes)
{
    CHECK(env_mutex_held(&pool->lock));
    uint64_t leaves = 0, usable = pool_usable_segment_bytes(pool), need = checkpoint_need_bytes(pool);
    int result = prepare(pool, 0, need);
    if (result == -ENOSPC) {
        result = count_leaves(pool, &leaves);
        need = leaves * LEAF_PAIR_BYTES + min_u64(usable, OWN_TREES_BYTES);
    }
    if (result != 0)
        return result;
    uint64_t have = slots_ready_count(&pool->slots) * usable + node_head_held_bytes(&pool->nodes);
    *ret_spare_bytes = have > need ? have - need : 0;
    return have >= need ? 0 : -ENOSPC;
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
