/*
 * A pool as a whole: its state, flush, close.
 */
#include "pool/pool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "pool/pool_impl.h"

int pool_writable(struct pool *pool)
{
    if (pool->read_only)
        return -EROFS;
    return pool->data.failed ? -EIO : 0;
}

void pool_notice(struct pool *pool, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    if (pool->options.notice == NULL)
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pool->options.notice(pool->options.notice_arg, text);
}

void pool_mark_changed(struct pool *pool)
{
    CHECK(env_mutex_held(&pool->lock));
    if (pool->changed)
        return;
    pool->changed = true;
    pool->changed_ns = env_now_ns(pool->env);
    pool_kick_keeper(pool);
}

void pool_free(struct pool *pool)
{
    CHECK(pool->keeper == NULL);
    env_mutex_lock(&pool->lock);
    pool_forget_gathered(pool);
    env_mutex_unlock(&pool->lock);
    while (!list_empty(&pool->range_ops)) {
        struct list *l = pool->range_ops.next;
        list_remove(l);
        free(l);
    }
    cache_fini(&pool->cache);
    while (!list_empty(&pool->volumes)) {
        struct volume *v = (struct volume *)pool->volumes.next;
        list_remove(&v->link);
        volume_free(v);
    }
    data_head_fini(&pool->data);
    node_head_fini(&pool->nodes);
    node_store_fini(&pool->node_store);
    slots_fini(&pool->slots);
    workers_free(pool->workers);
    env_cond_destroy(&pool->cache_cond);
    env_cond_destroy(&pool->seal_cond);
    env_cond_destroy(&pool->keeper_cond);
    env_mutex_destroy(&pool->lock);
    device_close(pool->dev);
    free(pool);
}

int pool_flush(struct pool *pool)
{
    env_mutex_lock(&pool->lock);
    int result = pool_writable(pool);
    if (result == 0)
        result = pool_sync_volume(pool, NULL);
    env_mutex_unlock(&pool->lock);
    return result;
}

int pool_checkpoint(struct pool *pool)
{
    int result = pool_flush(pool);
    env_mutex_lock(&pool->lock);
    if (result == 0)
        result = pool_run_checkpoint(pool, false);
    env_mutex_unlock(&pool->lock);
    return result;
}

/* A pool that was opened clean and not written stays as it is, byte for byte. */
static bool needs_closing(const struct pool *pool)
{
    return !pool->read_only && (pool->writing || pool->changed || !pool->was_clean);
}

/* Everything is in the log and durable: where there is no room for a last checkpoint, the next open replays it, and
 * nothing is lost. */
static int last_checkpoint(struct pool *pool)
{
    int result = pool_run_checkpoint(pool, true);
    return result == -ENOSPC ? 0 : result;
}

int pool_close(struct pool *pool, struct error *err)
{
    int result = 0;
    char name[sizeof pool->dev->name];
    pool_stop_keeper(pool);
    env_mutex_lock(&pool->lock);
    memcpy(name, pool->dev->name, sizeof name);
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next)
        CHECK_EQ(((struct volume *)l)->users, 0);
    /* Dirty records make a pool that was never written need closing too. */
    bool dirty = pool->cache.dirty_bytes > 0 || !list_empty(&pool->range_ops) || !list_empty(&pool->gathered);
    if (pool->data.failed) {
        result = -EIO;
    } else if (!pool->read_only && (dirty || needs_closing(pool))) {
        result = pool_sync_volume(pool, NULL);
        if (result == 0)
            result = last_checkpoint(pool);
    }
    env_mutex_unlock(&pool->lock);
    pool_free(pool);
    if (result != 0)
        return error_set(err, result, "%s: closing the pool failed: %s; what was not flushed before may be lost", name,
                         strerror(-result));
    return 0;
}
