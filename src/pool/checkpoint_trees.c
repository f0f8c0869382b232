/*
 * What a checkpoint writes: the changed volumes' trees, the catalog objects that name them, the slot table, and the two
 * trees over those. Children before parents, each level in one chunk where it fits.
 */
#include "pool/checkpoint_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "log/rules.h"

/* ---- volumes ---- */

static int begin_volume(struct checkpoint_work *w, struct checkpoint_volume *cv)
{
    struct pool *pool = w->pool;
    struct volume *v = cv->volume;
    struct map_update *updates = NULL;
    uint64_t count = 0;
    uint8_t height = map_height_for(div_ceil(v->next_size_bytes, v->record_bytes));
    if (height < v->tree.height)
        height = v->tree.height;
    /* The frozen list is read by lookups and changed by nobody: no lock needed to walk it. */
    int result = cv->destroyed ? 0 : pending_updates(&v->frozen, &updates, &count);
    if (result == 0 && !cv->destroyed)
        result = checkpoint_add_touches(w, v, &updates, &count);
    if (result != 0)
        return result;
    result = map_merge_begin(&cv->merge, &pool->node_store, &pool->nodes, &pool->slots, &v->tree, height, updates,
                             count, w->number);
    cv->merge.forget_patches = (pool->geometry.rules_off & RULE_OFF_PATCH_CHECKPOINT) != 0;
    if (result == 0 && cv->destroyed)
        result = map_merge_discard_tree(&cv->merge);
    return result;
}

static bool merge_left(const struct checkpoint_volume *cv)
{
    return !cv->destroyed && !map_merge_done(&cv->merge);
}

static int run_levels(struct checkpoint_work *w)
{
    for (;;) {
        bool left = false;
        int result = 0;
        for (uint32_t i = 0; i < w->volume_count && result == 0; i++) {
            if (!merge_left(&w->volumes[i]))
                continue;
            left = true;
            result = map_merge_level(&w->volumes[i].merge);
        }
        if (result == 0 && left)
            result = node_head_close_chunk(&w->pool->nodes, w->number);
        if (result != 0 || !left)
            return result;
        for (uint32_t i = 0; i < w->volume_count; i++) {
            if (merge_left(&w->volumes[i]))
                map_merge_promote(&w->volumes[i].merge);
        }
    }
}

static uint64_t moved(uint64_t value, int64_t change)
{
    int64_t sum = (int64_t)value + change;
    /* Below zero only with a damaged catalog: check recounts it. */
    return sum < 0 ? 0 : (uint64_t)sum;
}

static void end_volume(struct checkpoint_work *w, struct checkpoint_volume *cv)
{
    struct map_account a = cv->merge.account;
    uint64_t lost = cv->merge.lost_nodes;
    map_merge_end(&cv->merge);
    cv->new_tree = cv->merge.new_tree;
    cv->object.height = cv->new_tree.height;
    cv->object.root = cv->new_tree.root;
    cv->object.mapped_records = moved(cv->object.mapped_records, a.mapped_records);
    cv->object.stored_bytes = moved(cv->object.stored_bytes, a.stored_bytes);
    cv->object.node_bytes = moved(cv->object.node_bytes, a.node_bytes);
    cv->object.provisioned_records = moved(cv->object.provisioned_records, a.provisioned_records);
    if (lost > 0)
        pool_notice(w->pool,
                    "%s: volume %s: %llu damaged map nodes; what they named reads as EIO until it is written again",
                    w->pool->dev->name, cv->object.name, (unsigned long long)lost);
}

int checkpoint_merge_volumes(struct checkpoint_work *w)
{
    int result = 0;
    for (uint32_t i = 0; i < w->volume_count && result == 0; i++)
        result = begin_volume(w, &w->volumes[i]);
    if (result == 0)
        result = run_levels(w);
    for (uint32_t i = 0; i < w->volume_count && result == 0; i++)
        end_volume(w, &w->volumes[i]);
    return result;
}

/* ---- the pool's own trees ---- */

/* A tree of the pool's own: its records are appended first, then merged. */
struct own_tree {
    struct map_tree *tree; /* old on entry, new at the end */
    struct map_update *updates;
    uint64_t count;
    struct map_merge merge;
};

static int append_record(struct checkpoint_work *w, struct own_tree *t, uint64_t index, const uint8_t *raw,
                         uint32_t raw_bytes, struct codec_context *codec)
{
    uint8_t packed[CATALOG_OBJECT_BYTES_MAX];
    CHECK_LE(raw_bytes, sizeof packed);
    size_t length = codec == NULL ? 0
                                  : codec_compress(codec, (struct codec_choice){.id = CODEC_LZ4}, raw, raw_bytes,
                                                   packed, sizeof packed);
    struct chunk_entry entry = {
        .kind = ENTRY_DATA, .branch = t->tree->branch, .index = index, .codec = length > 0 ? CODEC_LZ4 : CODEC_OFF};
    struct map_update *u = &t->updates[t->count++];
    *u = (struct map_update){.first = index, .count = 1, .has_base = true};
    return node_head_append(&w->pool->nodes, &entry, length > 0 ? packed : raw,
                            length > 0 ? (uint32_t)length : raw_bytes, t->tree->physical, &u->base, w->number);
}

static int compare_updates(const void *left, const void *right)
{
    const struct map_update *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

static int compare_volumes(const void *left, const void *right)
{
    const struct checkpoint_volume *a = left, *b = right;
    return a->object.object_id < b->object.object_id ? -1 : a->object.object_id > b->object.object_id;
}

static int append_catalog(struct checkpoint_work *w, struct own_tree *t, struct codec_context *codec)
{
    int result = 0;
    t->updates = calloc(w->volume_count + 1, sizeof *t->updates);
    if (t->updates == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < w->volume_count && result == 0; i++) {
        struct checkpoint_volume *cv = &w->volumes[i];
        uint8_t raw[CATALOG_OBJECT_BYTES_MAX] = {0};
        if (cv->destroyed) {
            t->updates[t->count++] = (struct map_update){.first = cv->object.object_id, .count = 1, .has_base = true};
            continue;
        }
        (void)catalog_volume_encode(&cv->object, raw, sizeof raw);
        result = append_record(w, t, cv->object.object_id, raw, sizeof raw, codec);
    }
    return result;
}

static int append_table(struct checkpoint_work *w, struct own_tree *t, struct codec_context *codec)
{
    struct pool *pool = w->pool;
    uint32_t records = slots_record_count(&pool->slots);
    struct slot slots[SLOTS_PER_TABLE_RECORD];
    uint8_t raw[TABLE_RECORD_BYTES];
    int result = 0;
    t->updates = calloc(records + 1, sizeof *t->updates);
    if (t->updates == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < records && result == 0; i++) {
        if (!slots_take_record(&pool->slots, i, false, slots))
            continue;
        table_record_encode(slots, i * SLOTS_PER_TABLE_RECORD, raw);
        result = append_record(w, t, i, raw, sizeof raw, codec);
    }
    return result;
}

/* Room for all that is still to be written, in segments that the slot table about to be written knows of. Choosing them
 * changes the table: the estimate counts that in, so two rounds settle it. */
static int reserve_own(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    int result = 0;
    for (int round = 0; round < 2 && result == 0; round++) {
        uint64_t changed = slots_changed_records(&pool->slots) + 4;
        env_mutex_lock(&pool->lock);
        uint64_t objects = pool->volume_count + (uint64_t)slots_record_count(&pool->slots);
        env_mutex_unlock(&pool->lock);
        /* A node has a child for each object under it at most. */
        uint32_t node_bytes = (uint32_t)min_u64(4096, 256 + 32 * objects);
        uint64_t bytes = w->volume_count * node_head_cost_bytes(CATALOG_OBJECT_BYTES_MAX / 4);
        bytes += min_u64(changed, slots_record_count(&pool->slots)) * node_head_cost_bytes(TABLE_RECORD_BYTES);
        bytes += (changed + w->volume_count + 8) * node_head_cost_bytes(node_bytes);
        bytes += 8 * 2 * (uint64_t)pool->geometry.write_unit_bytes;
        result = node_head_reserve(&pool->nodes, bytes, w->number);
    }
    return result;
}

static int merge_own(struct checkpoint_work *w, struct own_tree *trees, uint32_t count)
{
    struct pool *pool = w->pool;
    int result = 0;
    for (uint32_t i = 0; i < count && result == 0; i++) {
        struct own_tree *t = &trees[i];
        qsort(t->updates, t->count, sizeof *t->updates, compare_updates);
        uint8_t height = t->tree->height;
        if (t->count > 0 && map_height_for(t->updates[t->count - 1].first + 1) > height)
            height = map_height_for(t->updates[t->count - 1].first + 1);
        result = map_merge_begin(&t->merge, &pool->node_store, &pool->nodes, &pool->slots, t->tree, height, t->updates,
                                 t->count, w->number);
        t->updates = NULL;
        t->merge.own = true;
    }
    for (bool left = true; result == 0 && left;) {
        left = false;
        for (uint32_t i = 0; i < count && result == 0; i++) {
            if (map_merge_done(&trees[i].merge))
                continue;
            left = true;
            result = map_merge_level(&trees[i].merge);
        }
        if (result == 0 && left)
            result = node_head_close_chunk(&pool->nodes, w->number);
        for (uint32_t i = 0; i < count && result == 0 && left; i++) {
            if (!map_merge_done(&trees[i].merge))
                map_merge_promote(&trees[i].merge);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        map_merge_end(&trees[i].merge);
        if (result == 0)
            *trees[i].tree = trees[i].merge.new_tree;
    }
    return result;
}

int checkpoint_write_trees(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    struct own_tree trees[2] = {{.tree = &w->catalog_tree}, {.tree = &w->table_tree}};
    w->catalog_tree = pool->catalog_tree;
    w->table_tree = pool->table_tree;
    slots_quarantine(&pool->slots, w->label.replay_address / pool->geometry.segment_bytes, w->number);
    if ((pool->geometry.rules_off & RULE_OFF_QUARANTINE) != 0)
        pool_test_forget_dead_slots(pool);
    qsort(w->volumes, w->volume_count, sizeof *w->volumes, compare_volumes);
    struct codec_context *codec = workers_borrow_codec(pool->workers);
    int result = reserve_own(w);
    /* From here on no segment may be chosen that the slot table about to be written does not know of. */
    pool->nodes.choice_closed = true;
    if (result == 0)
        result = append_catalog(w, &trees[0], codec);
    if (result == 0)
        result = append_table(w, &trees[1], codec);
    if (result == 0)
        result = node_head_close_chunk(&pool->nodes, w->number);
    workers_return_codec(pool->workers, codec);
    if (result == 0)
        result = merge_own(w, trees, 2);
    pool->nodes.choice_closed = false;
    free(trees[0].updates);
    free(trees[1].updates);
    return result;
}
