/*
 * The keeper: a thread that writes out what has been dirty for a while, so that a flush finds little to do, and runs
 * checkpoints by amount of log and by time. It sleeps while nothing is dirty and nothing changed.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

#define TICK_NS UINT64_C(250000000)
#define DIRTY_AGE_TICKS 8                      /* about two seconds */
#define CHECKPOINT_AGE_NS UINT64_C(5000000000) /* after the last change that no checkpoint holds */

static bool something_to_do(const struct pool *pool)
{
    return pool->cache.dirty_bytes > 0 || !list_empty(&pool->range_ops) || pool->changed;
}

static bool much_to_write(const struct pool *pool)
{
    return pool->cache.dirty_bytes > pool->cache.dirty_limit_bytes / 2 || pool->range_op_count > TRIMS_UNSEALED_MAX / 2;
}

/* What is done without waiting for the tick to end. */
static bool work_is_due(struct pool *pool)
{
    return much_to_write(pool) || pool_checkpoint_due(pool);
}

/* Records that were dirty at the tick `age` ticks ago are due: the clock then tells them from younger ones. */
static bool oldest_is_due(const struct pool *pool, uint64_t clock_then)
{
    if (much_to_write(pool))
        return true;
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next) {
        const struct volume *v = (const struct volume *)l;
        if (!list_empty(&v->dirty) && CONTAINER_OF(v->dirty.next, struct record, dirty_link)->dirty_at <= clock_then)
            return true;
    }
    return pool->range_ops_oldest_at <= clock_then;
}

static int write_back(struct pool *pool, uint64_t clock_then)
{
    int result = 0;
    while (result == 0 && !pool->stopping && !pool->data.failed && oldest_is_due(pool, clock_then)) {
        if (pool->sealing) {
            env_cond_wait(&pool->seal_cond, &pool->lock);
            continue;
        }
        pool->sealing = true;
        result = pool_run_batch(pool, BATCH_BACKGROUND, false);
    }
    return result;
}

/*
 * One tick; or, as long as there is nothing to do, no end. What is due cuts a tick short, single records that become
 * dirty do not: their age is counted in ticks, and a writer that wakes the keeper pays for it. `whole`: not cut short,
 * because what is due has just been tried in vain.
 */
static void rest(struct pool *pool, bool whole)
{
    if (!something_to_do(pool)) {
        pool->keeper_idle = true;
        env_cond_wait(&pool->keeper_cond, &pool->lock);
        pool->keeper_idle = false;
        return;
    }
    uint64_t start_ns = env_now_ns(pool->env), rested_ns = 0;
    while (rested_ns < TICK_NS && !pool->stopping && !pool->data.failed && (whole || !work_is_due(pool))) {
        (void)env_cond_wait_for(&pool->keeper_cond, &pool->lock, TICK_NS - rested_ns);
        rested_ns = env_now_ns(pool->env) - start_ns;
    }
}

static void keeper_main(void *arg)
{
    struct pool *pool = arg;
    uint64_t clock_at[DIRTY_AGE_TICKS] = {0};
    int result = 0;
    env_mutex_lock(&pool->lock);
    for (unsigned tick = 0; !pool->stopping && !pool->data.failed; tick++) {
        rest(pool, result != 0);
        uint64_t clock_then = clock_at[tick % DIRTY_AGE_TICKS];
        clock_at[tick % DIRTY_AGE_TICKS] = pool->clock;
        /* On an error the pool has failed, or is out of memory or space: then the next tick tries again. */
        result = write_back(pool, clock_then);
        bool old = pool->changed && env_now_ns(pool->env) - pool->changed_ns >= CHECKPOINT_AGE_NS;
        if (!pool->stopping && !pool->data.failed && (old || pool_checkpoint_due(pool))) {
            int checkpointed = pool_run_checkpoint(pool, false);
            result = result != 0 ? result : checkpointed;
        }
    }
    env_mutex_unlock(&pool->lock);
}

int pool_start_keeper(struct pool *pool)
{
    return env_thread_start(pool->env, "ashlar-keeper", keeper_main, pool, &pool->keeper);
}

void pool_stop_keeper(struct pool *pool)
{
    if (pool->keeper == NULL)
        return;
    env_mutex_lock(&pool->lock);
    pool->stopping = true;
    env_cond_broadcast(&pool->keeper_cond);
    env_mutex_unlock(&pool->lock);
    env_thread_join(pool->keeper);
    pool->keeper = NULL;
}

void pool_kick_keeper(struct pool *pool)
{
    CHECK(env_mutex_held(&pool->lock));
    /* A running keeper looks by itself before it rests. */
    if (pool->keeper_idle || (pool->keeper != NULL && work_is_due(pool)))
        env_cond_signal(&pool->keeper_cond);
}
