/*
 * Making things durable: tokens, tickets, group commit.
 *
 * Whoever waits for durability has a ticket: a value of pool->clock. What he waits for is in the urgent list or among
 * the range ops with a stamp up to his ticket. One of the waiters leads: takes both tokens, runs a batch of everything
 * urgent, and sees to the device flush. The others gather behind sync_busy; when the leader is done, those whose data
 * went along leave, and one of the rest leads the next batch with all that has gathered. So sixteen writers cost two
 * flushes a round, not sixteen.
 */
#include "pool/pool_impl.h"

#include <errno.h>

#include "base/check.h"

void pool_take_sealing(struct pool *pool)
{
    CHECK(env_mutex_held(&pool->lock));
    while (pool->sealing)
        env_cond_wait(&pool->seal_cond, &pool->lock);
    pool->sealing = true;
}

void pool_give_sealing(struct pool *pool)
{
    CHECK(env_mutex_held(&pool->lock));
    CHECK(pool->sealing);
    pool->sealing = false;
    env_cond_broadcast(&pool->seal_cond);
}

void record_make_urgent(struct pool *pool, struct record *r)
{
    CHECK(record_is_dirty(r));
    if (r->urgent)
        return;
    list_remove(&r->dirty_link);
    list_append(&pool->urgent, &r->dirty_link);
    r->urgent = true;
    r->dirty_at = ++pool->clock;
}

static void make_volume_urgent(struct pool *pool, struct volume *v)
{
    while (!list_empty(&v->dirty))
        record_make_urgent(pool, CONTAINER_OF(v->dirty.next, struct record, dirty_link));
}

/* Moves all dirty records of the volume (all volumes: NULL) to the urgent list; returns the ticket. Lock held. */
static uint64_t make_urgent(struct pool *pool, struct volume *v)
{
    CHECK(env_mutex_held(&pool->lock));
    if (v != NULL) {
        make_volume_urgent(pool, v);
        return pool->clock;
    }
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next)
        make_volume_urgent(pool, (struct volume *)l);
    return pool->clock;
}

/* Something up to the ticket waits for a batch. */
static bool waits_for_batch(const struct pool *pool, uint64_t ticket)
{
    if (!list_empty(&pool->urgent) && CONTAINER_OF(pool->urgent.next, struct record, dirty_link)->dirty_at <= ticket)
        return true;
    return pool->range_ops_oldest_at <= ticket;
}

/* One batch, led by the caller, with its device flush; the others wait behind sync_busy. */
static int lead(struct pool *pool)
{
    pool->sync_busy = true;
    pool->sealing = true;
    int result = pool_run_batch(pool, BATCH_SYNC, true);
    /* If a second batch is needed, its flush covers this one too. */
    if (result == 0 && list_empty(&pool->urgent) && list_empty(&pool->range_ops))
        result = data_head_wait_durable(&pool->data, pool->data.sealed_to);
    pool->sync_busy = false;
    env_cond_broadcast(&pool->seal_cond);
    return result;
}

int pool_sync(struct pool *pool, uint64_t ticket)
{
    CHECK(env_mutex_held(&pool->lock));
    while (!pool->data.failed && waits_for_batch(pool, ticket)) {
        if (pool->sealing || pool->sync_busy) {
            env_cond_wait(&pool->seal_cond, &pool->lock);
            continue;
        }
        int result = lead(pool);
        if (result != 0)
            return result;
    }
    /* What was captured but not sealed yet is in the batch under way. */
    uint64_t started = pool->batches_started;
    while (!pool->data.failed && pool->batches_sealed < started)
        env_cond_wait(&pool->seal_cond, &pool->lock);
    if (pool->data.failed)
        return -EIO;
    return data_head_wait_durable(&pool->data, pool->data.sealed_to);
}

int pool_sync_volume(struct pool *pool, struct volume *v)
{
    CHECK(env_mutex_held(&pool->lock));
    int result = 0;
    uint64_t ticket = make_urgent(pool, v);
    /* Captured ahead by a test before it could become urgent: a flush takes it along whatever the rules say about
     * overtaking. */
    while (result == 0 && !list_empty(&pool->gathered)) {
        pool_take_sealing(pool);
        result = pool_seal_gathered(pool);
    }
    return result == 0 ? pool_sync(pool, ticket) : result;
}

/*
 * Replay after a crash must not need more than two intervals of log; nor may it run through more segments than a part
 * of the reserve: each crash leaves a segment half used behind its bridge, and without a checkpoint crash after crash
 * would use up the slots that are kept for checkpoints.
 */
static bool log_is_long(const struct pool *pool)
{
    bool wide = !pool->checkpointed && pool->replayed.segment_count * 4 >= pool->reserve_slots;
    return wide || pool->data.log_bytes - pool->checkpoint_log_bytes > 2 * pool->interval_bytes;
}

int pool_throttle(struct pool *pool)
{
    CHECK(env_mutex_held(&pool->lock));
    while (!pool->data.failed && pool->cache.dirty_bytes > pool->cache.dirty_limit_bytes) {
        if (pool->sealing) {
            env_cond_wait(&pool->seal_cond, &pool->lock);
            continue;
        }
        pool->sealing = true;
        int result = pool_run_batch(pool, BATCH_BACKGROUND, false);
        if (result != 0)
            return result;
    }
    /* One checkpoint serves all who wait. */
    while (!pool->data.failed && log_is_long(pool)) {
        if (pool->checkpointing) {
            env_cond_wait(&pool->seal_cond, &pool->lock);
            continue;
        }
        int result = pool_run_checkpoint(pool, false);
        if (result != 0)
            return result;
    }
    return pool->data.failed ? -EIO : 0;
}
