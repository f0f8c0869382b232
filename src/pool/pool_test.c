/*
 * The entry points for tests (pool_test.h): one step of the background each, and what the rules forbid, on request.
 */
#include "pool/pool_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "log/rules.h"
#include "pool/checkpoint_impl.h"
#include "pool/pool_impl.h"

int pool_test_write_back(struct pool *pool, struct volume *v, uint64_t index)
{
    env_mutex_lock(&pool->lock);
    struct record *r = cache_find(&pool->cache, v->branch, index);
    int result = pool_writable(pool);
    if (result == 0 && r != NULL && record_is_dirty(r)) {
        /* What was gathered of it before is sealed first, as write-back by itself would: one picture of a record at a
         * time. */
        if (r->captures > 0) {
            pool_take_sealing(pool);
            result = pool_seal_gathered(pool);
        }
        r = cache_find(&pool->cache, v->branch, index);
        if (result == 0 && r != NULL && record_is_dirty(r))
            result = pool_capture_ahead(pool, r);
    }
    env_mutex_unlock(&pool->lock);
    return result;
}

int pool_test_seal(struct pool *pool)
{
    env_mutex_lock(&pool->lock);
    int result = pool_writable(pool);
    if (result == 0) {
        pool_take_sealing(pool);
        result = pool_seal_gathered(pool);
    }
    env_mutex_unlock(&pool->lock);
    return result;
}

void pool_test_evict(struct pool *pool, struct volume *v, uint64_t index)
{
    env_mutex_lock(&pool->lock);
    struct record *r = cache_find(&pool->cache, v->branch, index);
    if (r != NULL && !record_is_dirty(r) && r->pins == 0 && !r->filling)
        cache_drop(&pool->cache, r);
    env_mutex_unlock(&pool->lock);
}

void pool_test_reap(struct pool *pool)
{
    env_mutex_lock(&pool->lock);
    while (pool->checkpointing)
        env_cond_wait(&pool->seal_cond, &pool->lock);
    if (pool_writable(pool) == 0)
        pool_release_slots(pool);
    cache_audit(&pool->cache);
    env_mutex_unlock(&pool->lock);
}

/* ---- what the rules forbid ---- */

static void refer(struct pool *pool, uint8_t *referred, const struct pointer *p)
{
    uint64_t offset;
    if (pointer_has_bytes(p) && slots_resolve(&pool->slots, p->address, &offset) == 0)
        referred[(offset - pool->geometry.data_start_bytes) / pool->geometry.segment_bytes] = 1;
}

static void refer_list(struct pool *pool, uint8_t *referred, const struct pending *list)
{
    struct map_update *updates;
    uint64_t count;
    if (pending_updates(list, &updates, &count) != 0)
        return;
    for (uint64_t i = 0; i < count; i++) {
        if (updates[i].has_base)
            refer(pool, referred, &updates[i].base);
        for (uint32_t k = 0; k < updates[i].patch_count; k++)
            refer(pool, referred, &updates[i].patches[k].pointer);
    }
    free(updates);
}

void pool_test_forget_dead_slots(struct pool *pool)
{
    uint64_t start = pool->label.replay_address / pool->geometry.segment_bytes;
    bool pinned = (pool->geometry.rules_off & RULE_OFF_PIN_REPLAY) == 0;
    uint8_t *referred = calloc(pool->geometry.slot_count, 1);
    CHECK(referred != NULL);
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next) {
        refer_list(pool, referred, &((struct volume *)l)->active);
        refer_list(pool, referred, &((struct volume *)l)->frozen);
    }
    for (uint32_t slot = 0; slot < pool->geometry.slot_count; slot++) {
        struct slot t = slots_get(&pool->slots, slot);
        bool closed = t.state == SLOT_CLOSED || t.state == SLOT_QUARANTINED;
        if (!closed || t.live_bytes != 0 || slots_own_bytes(&pool->slots, slot) != 0 || referred[slot] != 0)
            continue;
        if (pinned && t.head == CHUNK_HEAD_DATA && t.segment >= start)
            continue;
        slots_return(&pool->slots, slot, true, pool->checkpoint);
    }
    free(referred);
}
