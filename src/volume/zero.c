/*
 * Trim and write-zeroes. Whole records become holes (or provisioned zeroes) by one log entry for the whole range,
 * however long; the edges, records covered in part, are written as zeroes through the cache, exact to the byte.
 *
 * In a full pool the edges of a trim are left as they were, which a trim may do; those of a write-zeroes are charged
 * like a write (R34). A trim's own log entry may use half of the reserve: a full pool can always be trimmed.
 */
#include "volume/access.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/math.h"

#define RANGE_OP_BYTES 8192 /* a chunk with one trim in it, at its worst */

/* Calls visit() for the cached records of [first, first + count); visit may drop the record. Stops at, and returns, the
 * first one for which it answers true. A small range is looked up index by index, a large one by going through the
 * table. */
static struct record *each_cached(struct volume *v, uint64_t first, uint64_t count,
                                  bool (*visit)(struct volume *v, struct record *r, void *arg), void *arg)
{
    struct cache *c = &v->pool->cache;
    if (count <= c->record_count) {
        for (uint64_t i = 0; i < count; i++) {
            struct record *r = cache_find(c, v->branch, first + i);
            if (r != NULL && visit(v, r, arg))
                return r;
        }
        return NULL;
    }
    for (uint32_t i = 0; i <= c->bucket_mask; i++) {
        for (struct record *r = c->buckets[i], *next; r != NULL; r = next) {
            next = r->hash_next;
            if (r->branch == v->branch && r->index - first < count && visit(v, r, arg))
                return r;
        }
    }
    return NULL;
}

static bool is_filling(struct volume *v, struct record *r, void *arg)
{
    (void)v;
    (void)arg;
    return r->filling;
}

static bool drop(struct volume *v, struct record *r, void *arg)
{
    uint64_t *oldest_at = arg;
    if (r->urgent)
        *oldest_at = min_u64(*oldest_at, r->dirty_at);
    pool_unreserve(v->pool, r->reserved_bytes);
    r->reserved_bytes = 0;
    cache_drop(&v->pool->cache, r);
    return false;
}

/*
 * Drops records [first, first + count) from memory: what they held is void. Waits first, for whoever reads one of them,
 * and drops then, all in one moment: the caller puts the trim into the overlay before he lets go of the lock.
 *
 * Somebody may wait for one of the dropped records to be durable (a flush, FUA). What he waits for is superseded, but
 * only by a trim that is in memory too: were he let go, the content before both could come back. So the trim takes over
 * the oldest stamp among the dropped (*oldest_at), and he waits for it.
 */
static void drop_range(struct volume *v, uint64_t first, uint64_t count, uint64_t *oldest_at)
{
    struct pool *pool = v->pool;
    struct record *r;
    while ((r = each_cached(v, first, count, is_filling, NULL)) != NULL) {
        cache_pin(&pool->cache, r);
        pool_wait_filled(pool, r);
        cache_unpin(&pool->cache, r);
    }
    (void)each_cached(v, first, count, drop, oldest_at);
}

static int add_range_op(struct volume *v, uint64_t first, uint64_t count, bool provision)
{
    struct pool *pool = v->pool;
    struct range_op *op = calloc(1, sizeof *op);
    if (op == NULL)
        return -ENOMEM;
    uint64_t oldest_at = UINT64_MAX;
    drop_range(v, first, count, &oldest_at);
    struct pointer p = {.kind = provision ? POINTER_PROVISIONED : POINTER_HOLE};
    int result = pending_set_range(&v->overlay, first, count, &p);
    if (result != 0) {
        free(op);
        return result;
    }
    *op = (struct range_op){
        .volume = v, .first = first, .count = count, .provision = provision, .at = min_u64(++pool->clock, oldest_at)};
    list_init(&op->link);
    list_append(&pool->range_ops, &op->link);
    pool->range_op_count++;
    pool->range_ops_oldest_at = min_u64(pool->range_ops_oldest_at, op->at);
    pool_kick_keeper(pool);
    return 0;
}

/* Space for the range itself: what provisioned zeroes promise, or the log entry of a trim. */
static int reserve_range(struct volume *v, uint64_t count, bool provision)
{
    struct pool *pool = v->pool;
    uint64_t bytes = RANGE_OP_BYTES;
    if (provision && !mul_fits(count, record_reserve_bytes(v->record_bytes), &bytes))
        return -ENOSPC;
    int result = pool_reserve(pool, bytes, !provision);
    if (result != 0)
        return result;
    pool_unreserve(pool, bytes);
    if (provision)
        v->provision_active_bytes += bytes;
    return 0;
}

/* Too many trims wait for a batch: write some out. */
static int drain_range_ops(struct pool *pool)
{
    while (pool->range_op_count > TRIMS_UNSEALED_MAX && !pool->data.failed) {
        if (pool->sealing) {
            env_cond_wait(&pool->seal_cond, &pool->lock);
            continue;
        }
        pool->sealing = true;
        int result = pool_run_batch(pool, BATCH_BACKGROUND, false);
        if (result != 0)
            return result;
    }
    return pool_writable(pool);
}

static int zero_whole(struct volume *v, uint64_t first, uint64_t count, unsigned flags)
{
    bool provision = (flags & VOLUME_PROVISION) != 0;
    int result = drain_range_ops(v->pool);
    if (result == 0)
        result = reserve_range(v, count, provision);
    if (result == 0)
        result = pool_writable(v->pool);
    return result == 0 ? add_range_op(v, first, count, provision) : result;
}

/* Reads as zeroes already, and need not be provisioned: nothing to write. */
static bool zero_already(struct volume *v, uint64_t index, unsigned flags)
{
    enum map_class class;
    uint64_t count;
    if ((flags & VOLUME_PROVISION) != 0 || cache_find(&v->pool->cache, v->branch, index) != NULL)
        return false;
    if (volume_classify(v, index, 1, &class, &count) != 0 || class == MAP_DATA)
        return false;
    return cache_find(&v->pool->cache, v->branch, index) == NULL;
}

static int zero_edge(struct volume *v, const struct piece *p, bool is_trim, unsigned flags)
{
    if (zero_already(v, p->index, flags))
        return 0;
    int result = volume_write_piece(v, p, NULL, 0, flags);
    return is_trim && result == -ENOSPC ? 0 : result;
}

static int zero_range(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, bool is_trim, unsigned flags)
{
    int result = 0;
    for (uint64_t done = 0; done < length_bytes && result == 0;) {
        struct piece p = piece_at(v, offset_bytes, length_bytes, done);
        uint64_t whole = (length_bytes - done) / v->record_bytes;
        bool to_end = offset_bytes + length_bytes == v->size_bytes;
        /* The last record of a volume may be short: covered to the volume's end it is covered whole. */
        if (p.offset_bytes == 0 && to_end && (length_bytes - done) % v->record_bytes != 0)
            whole++;
        if (p.offset_bytes == 0 && whole > 0) {
            result = zero_whole(v, p.index, whole, flags);
            done += min_u64(whole * v->record_bytes, length_bytes - done);
        } else {
            result = zero_edge(v, &p, is_trim, flags);
            done += p.length_bytes;
        }
    }
    return result;
}

static int zero(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, bool is_trim, unsigned flags)
{
    struct pool *pool = v->pool;
    env_mutex_lock(&pool->lock);
    int result = pool_writable(pool);
    if (result == 0 && !range_inside(offset_bytes, length_bytes, v->size_bytes))
        result = -EINVAL;
    if (result == 0)
        result = zero_range(v, offset_bytes, length_bytes, is_trim, flags);
    if (result == 0 && is_trim)
        v->trim_count++;
    if (result == 0 && !is_trim)
        v->zero_count++;
    if (result == 0 && (flags & VOLUME_FUA) != 0)
        result = pool_sync(pool, pool->clock);
    env_mutex_unlock(&pool->lock);
    return result;
}

int volume_trim(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
{
    return zero(v, offset_bytes, length_bytes, true, flags & VOLUME_FUA);
}

int volume_zero(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
{
    return zero(v, offset_bytes, length_bytes, false, flags & (VOLUME_FUA | VOLUME_PROVISION));
}
