/*
 * Looking a record up below the cache: overlay, overlay_sealing, active, frozen, tree, from the newest on.
 *
 * A reader holds a pin from before it looks until its bytes have verified: slots that were emptied meanwhile are not
 * reused before it has gone (R22). Pins are counted by the checkpoint that was the newest when the reader came; a slot
 * quarantined at checkpoint s may still be looked at by readers who came before s was done.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

uint64_t pool_reader_enter(struct pool *pool)
{
    CHECK(env_mutex_held(&pool->lock));
    uint64_t epoch = pool->checkpoint;
    pool->reader_count[epoch % READER_EPOCHS]++;
    return epoch;
}

void pool_reader_leave(struct pool *pool, uint64_t epoch)
{
    CHECK(env_mutex_held(&pool->lock));
    CHECK_GT(pool->reader_count[epoch % READER_EPOCHS], 0);
    pool->reader_count[epoch % READER_EPOCHS]--;
}

/* The lists over the tree. true: the answer is whole. Lock held. */
static bool ask_lists(const struct volume *v, uint64_t index, struct map_entry *e)
{
    const struct pending *lists[] = {&v->overlay, &v->overlay_sealing, &v->active, &v->frozen};
    memset(&e->base, 0, sizeof e->base);
    e->patch_count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (pending_lookup(lists[i], index, e) == PENDING_WHOLE)
            return true;
    }
    return false;
}

/* On a failed pool the lists may name chunks that never became durable: those are nobody's content (R30). Lock held. */
static bool names_undurable(const struct pool *pool, const struct map_entry *e)
{
    uint64_t limit = pool->data.durable_address;
    if (pointer_has_bytes(&e->base) && e->base.address >= limit)
        return true;
    return e->patch_count > 0 && e->patches[e->patch_count - 1].pointer.address >= limit;
}

int volume_resolve(struct volume *v, uint64_t index, struct map_entry *ret_entry)
{
    struct pool *pool = v->pool;
    struct map_entry below;
    env_mutex_lock(&pool->lock);
    bool whole = ask_lists(v, index, ret_entry);
    bool void_content = pool->data.failed && names_undurable(pool, ret_entry);
    struct map_tree tree = v->tree;
    env_mutex_unlock(&pool->lock);
    if (void_content)
        return -EIO;
    if (whole) {
        ret_entry->patch_count = patches_prune(ret_entry->patches, ret_entry->patch_count, NULL, NULL);
        return 0;
    }
    int result = map_lookup(&pool->node_store, &tree, index, &below);
    if (result != 0)
        return result;
    if (below.patch_count + ret_entry->patch_count > MAP_ENTRY_PATCHES_MAX)
        return -EBADMSG;
    memmove(ret_entry->patches + below.patch_count, ret_entry->patches, ret_entry->patch_count * sizeof(struct patch));
    memcpy(ret_entry->patches, below.patches, below.patch_count * sizeof(struct patch));
    ret_entry->patch_count += below.patch_count;
    ret_entry->patch_count = patches_prune(ret_entry->patches, ret_entry->patch_count, NULL, NULL);
    ret_entry->base = below.base;
    return 0;
}

int volume_classify(struct volume *v, uint64_t index, uint64_t limit, enum map_class *ret_class, uint64_t *ret_count)
{
    struct pool *pool = v->pool;
    const struct pending *lists[] = {&v->overlay, &v->overlay_sealing, &v->active, &v->frozen};
    CHECK(env_mutex_held(&pool->lock));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        bool known;
        uint64_t count;
        pending_classify(lists[i], index, limit, &known, ret_class, &count);
        limit = min_u64(limit, count);
        if (known) {
            *ret_count = limit;
            return 0;
        }
    }
    struct map_tree tree = v->tree;
    env_mutex_unlock(&pool->lock);
    int result = map_classify(&pool->node_store, &tree, index, limit, ret_class, ret_count);
    env_mutex_lock(&pool->lock);
    return result;
}
