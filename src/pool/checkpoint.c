/*
 * A checkpoint: the state at one cut of the data head, written as trees, then named by a label.
 *
 *     choose   where slots are short: node segments to be emptied (evacuate.c)
 *     freeze   (lock, sealing held) the cut is the data head's position; the active lists become frozen lists, new
 *              ones begin
 *     merge    frozen lists into new trees, side by side, level by level; the account of slots and volumes moves along
 *     settle   slots that hold nothing live at the cut are quarantined; catalog objects and slot-table records that
 *              changed are written, then the two trees over them
 *     flush    every data chunk below the cut is written, then the device is flushed: nodes and data are durable
 *     label    front ring, flush, back ring, flush (R25)
 *     install  (lock) new roots, the frozen lists are dropped; slots quarantined at the checkpoint before are free
 *              (R20)
 *
 * What a crash leaves after each step: up to the label, the old label and a longer replay; after it, the new one. A
 * slot freed here held nothing live at the cut before last and lies below both replay starts, so either of the two
 * newest labels can be opened (R20, R21).
 *
 * An error on the way leaves memory half changed (counts are moved as pointers move), so it fails the pool: only a
 * reopen, which starts from the last label, brings it back. Space for a checkpoint is kept in the reserve (space.c).
 */
#include "pool/checkpoint_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "log/label_ring.h"
#include "log/rules.h"

/* ---- freeze ---- */

/* The tail that a shrink cut off becomes a hole in the same checkpoint that makes the new size durable. */
static int freeze_shrink(struct volume *v, uint64_t date)
{
    uint64_t records = volume_record_count(v), from = v->shrunk_from_records;
    v->shrunk_from_records = 0;
    if (from <= records)
        return 0;
    struct pointer hole = {.kind = POINTER_HOLE, .address = date};
    return pending_set_range(&v->frozen, records, from - records, &hole);
}

static void drop_range_ops(struct pool *pool, const struct volume *v)
{
    for (struct list *l = pool->range_ops.next; l != &pool->range_ops;) {
        struct range_op *op = (struct range_op *)l;
        l = l->next;
        if (op->volume != v)
            continue;
        list_remove(&op->link);
        pool->range_op_count--;
        free(op);
    }
}

/* true if there was something to drop: then the lock may have been let go of meanwhile. */
static bool drop_what_goes_of(struct pool *pool, struct volume *v)
{
    if (v->destroyed && !v->dropped) {
        v->dropped = true;
        volume_drop_cached(v, 0);
        drop_range_ops(pool, v);
        pending_free(&v->overlay);
        pending_free(&v->active);
        return true;
    }
    if (!v->destroyed && v->shrunk_from_records > 0 && !v->tail_dropped) {
        v->tail_dropped = true;
        volume_drop_cached(v, volume_record_count(v));
        return true;
    }
    return false;
}

/* What is cut off or destroyed leaves memory first. May wait for reads under way, so this comes before the cut is
 * taken: nobody can bring it back, the size or the name is gone already. More may have gone while it waited, so that
 * the cut is taken only when there was nothing left to drop. */
static void drop_what_goes(struct pool *pool)
{
    for (bool found = true; found;) {
        found = false;
        for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next)
            found |= drop_what_goes_of(pool, (struct volume *)l);
    }
}

static int freeze_volume(struct checkpoint_work *w, struct volume *v)
{
    CHECK(pending_empty(&v->frozen));
    CHECK(pending_empty(&v->overlay_sealing));
    v->frozen = v->active;
    memset(&v->active, 0, sizeof v->active);
    v->provision_frozen_bytes = v->provision_active_bytes;
    v->provision_active_bytes = 0;
    int result = freeze_shrink(v, w->label.replay_address - 1);
    bool raised = v->tree.height < map_height_for(div_ceil(v->next_size_bytes, v->record_bytes));
    if (pending_empty(&v->frozen) && !v->catalog_changed && !v->destroyed && !raised && !checkpoint_touches(w, v))
        return result;
    struct checkpoint_volume *cv = &w->volumes[w->volume_count++];
    cv->volume = v;
    cv->destroyed = v->destroyed;
    volume_to_catalog(v, &cv->object);
    v->catalog_changed = false;
    return result;
}

static void freeze_cut(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    struct data_head *h = &pool->data;
    struct label *l = &w->label;
    l->replay_address = data_head_address(h);
    l->replay_chain = h->chain;
    l->replay_slot = h->at.slot;
    for (uint32_t i = 0; i < LOOKAHEAD_SLOTS_MAX; i++) {
        l->replay_next_segments[i] = i < h->next_count ? h->next[i].segment : 0;
        l->replay_next_slots[i] = i < h->next_count ? h->next[i].slot : SLOT_NONE;
    }
    w->cut_number = h->sealed_to;
    w->cut_log_bytes = h->log_bytes;
}

/* Lock and sealing held: no batch is between its capture and its seal. */
static int freeze(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    int result = 0;
    drop_what_goes(pool);
    w->volumes = calloc(pool->volume_count + 1, sizeof *w->volumes);
    if (w->volumes == NULL)
        return -ENOMEM;
    w->number = pool->checkpoint + 1;
    freeze_cut(w);
    pool->changed = false;
    pool->frozen_entries = pool->active_entries;
    pool->active_entries = 0;
    for (struct list *l = pool->volumes.next; l != &pool->volumes && result == 0; l = l->next)
        result = freeze_volume(w, (struct volume *)l);
    return result;
}

/* ---- flush and label ---- */

static int flush_below_cut(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    env_mutex_lock(&pool->lock);
    int result = data_head_wait_written(&pool->data, w->cut_number);
    env_mutex_unlock(&pool->lock);
    return result == 0 ? device_flush(pool->dev) : result;
}

/* Fills in a label from the present state, next sequence and all; the replay position and roots are the caller's. */
static void fill_label(struct pool *pool, struct label *l)
{
    const struct geometry *g = &pool->geometry;
    memcpy(l->pool_uuid, g->pool_uuid, sizeof l->pool_uuid);
    l->features_incompatible = pool->label.features_incompatible;
    l->features_read_only_compatible = pool->label.features_read_only_compatible;
    l->features_compatible = pool->label.features_compatible;
    l->device_id = pool->label.device_id;
    l->device_count = pool->label.device_count;
    memcpy(l->devices, pool->label.devices, sizeof l->devices);
    l->sequence = pool->label.sequence + 1;
    l->incarnation = g->incarnation;
    l->write_unit_bytes = g->write_unit_bytes;
    l->segment_bytes = g->segment_bytes;
    l->lookahead_count = g->lookahead_count;
    l->created_wall_ns = pool->label.created_wall_ns;
    l->written_wall_ns = env_wall_ns(pool->env);
}

static int write_label(struct checkpoint_work *w, bool clean)
{
    struct pool *pool = w->pool;
    struct label *l = &w->label;
    fill_label(pool, l);
    l->checkpoint = w->number;
    l->oldest_intact = pool->checkpoint_label_sequence;
    l->flags = clean ? LABEL_CLEAN : 0;
    l->node_slot = pool->nodes.at.slot;
    l->node_address = pool->nodes.at.slot == SLOT_NONE ? 0 : node_head_address(&pool->nodes);
    l->root_count = 2;
    l->roots[0] =
        (struct label_root){.kind = ROOT_CATALOG, .height = w->catalog_tree.height, .pointer = w->catalog_tree.root};
    l->roots[1] =
        (struct label_root){.kind = ROOT_SLOT_TABLE, .height = w->table_tree.height, .pointer = w->table_tree.root};
    env_mutex_lock(&pool->lock);
    l->next_segment = pool->numbers.next;
    l->next_branch = pool->next_branch;
    env_mutex_unlock(&pool->lock);
    return label_ring_write(pool->dev, l);
}

/* ---- install ---- */

static void install_volume(struct checkpoint_work *w, struct checkpoint_volume *cv)
{
    struct volume *v = cv->volume;
    pending_free(&v->frozen);
    v->provision_frozen_bytes = 0;
    v->tree = cv->new_tree;
    v->tree.cut_address = w->label.replay_address;
    v->mapped_records = cv->object.mapped_records;
    v->stored_bytes = cv->object.stored_bytes;
    v->node_bytes = cv->object.node_bytes;
    v->provisioned_records = cv->object.provisioned_records;
    if (cv->destroyed) {
        list_remove(&v->link);
        w->pool->volume_count--;
        if (v->orphan)
            volume_free(v);
    }
}

static void install(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    CHECK(env_mutex_held(&pool->lock));
    /* The ring of reader counts comes round: whoever still reads since then must be done first. */
    while (pool->reader_count[w->number % READER_EPOCHS] > 0)
        env_cond_wait(&pool->cache_cond, &pool->lock);
    for (uint32_t i = 0; i < w->volume_count; i++)
        install_volume(w, &w->volumes[i]);
    pool->catalog_tree = w->catalog_tree;
    pool->table_tree = w->table_tree;
    pool->checkpoint = w->number;
    pool->checkpointed = true;
    pool->frozen_entries = 0;
    pool->previous_label_sequence = pool->checkpoint_label_sequence;
    pool->checkpoint_label_sequence = w->label.sequence;
    pool->checkpoint_log_bytes = w->cut_log_bytes;
    pool->label = w->label;
    pool->changed_ns = env_now_ns(pool->env);
}

/* ---- freeing slots ---- */

/* Slots quarantined at this checkpoint or before may go. */
static uint64_t releasable(struct pool *pool)
{
    unsigned off = pool->geometry.rules_off;
    if (pool->checkpoint == 0)
        return 0;
    uint64_t limit = (off & RULE_OFF_QUARANTINE_2) != 0 ? pool->checkpoint : pool->checkpoint - 1;
    if ((off & RULE_OFF_QUARANTINE) != 0)
        return UINT64_MAX;
    /* A reader who came at checkpoint e may look at what was emptied after e (R22). */
    for (uint64_t back = 1; back < READER_EPOCHS && back <= pool->checkpoint; back++) {
        uint64_t epoch = pool->checkpoint - back;
        if (pool->reader_count[epoch % READER_EPOCHS] > 0)
            limit = min_u64(limit, epoch);
    }
    return limit;
}

static uint32_t stock_count(const struct pool *pool)
{
    uint64_t stock = max_u64(64 * MIB, pool->geometry.device_bytes / 50);
    return (uint32_t)min_u64(div_ceil(stock, pool->geometry.segment_bytes), pool->geometry.slot_count);
}

void pool_release_slots(struct pool *pool)
{
    unsigned off = pool->geometry.rules_off;
    CHECK(env_mutex_held(&pool->lock));
    if ((off & RULE_OFF_QUARANTINE) != 0)
        pool_test_forget_dead_slots(pool);
    slots_release(&pool->slots, releasable(pool), pool->checkpoint);
    uint32_t slot;
    while (!pool->data.failed && (slot = slots_take_for_punch(&pool->slots, stock_count(pool))) != SLOT_NONE) {
        struct device_io io = {.kind = DEVICE_PUNCH,
                               .offset_bytes = slots_device_offset(&pool->slots, slot, 0),
                               .length_bytes = pool->geometry.segment_bytes};
        env_mutex_unlock(&pool->lock);
        int result = device_run(pool->dev, &io, 1);
        env_mutex_lock(&pool->lock);
        slots_punched(&pool->slots, slot, pool->checkpoint);
        if (result != 0 && result != -EOPNOTSUPP)
            data_head_fail(&pool->data);
        if (result == -EOPNOTSUPP)
            break;
    }
}

/* ---- the whole ---- */

static void free_work(struct checkpoint_work *w)
{
    for (uint32_t i = 0; i < w->volume_count; i++)
        map_merge_end(&w->volumes[i].merge);
    free(w->volumes);
    free(w->touches);
}

static int run_frozen(struct checkpoint_work *w, bool clean)
{
    bool late_flush = (w->pool->geometry.rules_off & RULE_OFF_LABEL_ORDER) != 0;
    int result = checkpoint_merge_volumes(w);
    if (result == 0)
        result = checkpoint_write_trees(w);
    if (result == 0 && !late_flush)
        result = flush_below_cut(w);
    if (result == 0)
        result = write_label(w, clean);
    if (result == 0 && late_flush)
        result = flush_below_cut(w);
    return result;
}

/*
 * What the data head has chosen ahead, but for the very next, goes back where the node head is short of slots. Chunks
 * that named them are behind: a replay that meets those gives them up at the next chunk, or at its end.
 */
static void give_lookahead_back(struct pool *pool)
{
    struct data_head *h = &pool->data;
    if (h->next_count <= 1 || slots_free_count(&pool->slots) >= pool_node_slots_kept(pool))
        return;
    pool_take_sealing(pool);
    while (h->next_count > 1)
        slots_return(&pool->slots, h->next[--h->next_count].slot, true, pool->checkpoint);
    pool_give_sealing(pool);
}

static int run_checkpoint(struct checkpoint_work *w, bool clean)
{
    struct pool *pool = w->pool;
    give_lookahead_back(pool);
    int result = pool_prepare_checkpoint(pool, &w->spare_bytes);
    env_mutex_unlock(&pool->lock);
    if (result == 0)
        result = checkpoint_choose_evacuation(w);
    env_mutex_lock(&pool->lock);
    pool->evacuating = w->touch_count > 0 || w->rewrite_own;
    pool_take_sealing(pool);
    env_mutex_unlock(&pool->lock);
    if (result == 0)
        result = pool_begin_writing(pool);
    env_mutex_lock(&pool->lock);
    if (result != 0) {
        /* Nothing has begun. */
        pool_give_sealing(pool);
        return result;
    }
    result = freeze(w);
    pool_give_sealing(pool);
    if (result == 0) {
        env_mutex_unlock(&pool->lock);
        result = run_frozen(w, clean);
        env_mutex_lock(&pool->lock);
    }
    if (result == 0) {
        install(w);
        pool_release_slots(pool);
        return 0;
    }
    node_head_abandon(&pool->nodes);
    slots_mark_all_changed(&pool->slots);
    if (!pool->data.failed) {
        data_head_fail(&pool->data);
        env_mutex_unlock(&pool->lock);
        pool_notice(pool, "%s: the checkpoint failed (%s); the pool takes no more writes until it is opened again",
                    pool->dev->name, strerror(-result));
        env_mutex_lock(&pool->lock);
    }
    return result;
}

int pool_run_checkpoint(struct pool *pool, bool clean)
{
    CHECK(env_mutex_held(&pool->lock));
    while (pool->checkpointing)
        env_cond_wait(&pool->seal_cond, &pool->lock);
    int result = pool_writable(pool);
    if (result != 0)
        return result;
    pool->checkpointing = true;
    struct checkpoint_work *w = calloc(1, sizeof *w);
    if (w == NULL) {
        result = -ENOMEM;
    } else {
        w->pool = pool;
        result = run_checkpoint(w, clean);
        free_work(w);
        free(w);
    }
    pool->checkpointing = false;
    env_cond_broadcast(&pool->seal_cond);
    env_cond_broadcast(&pool->cache_cond);
    return result;
}

bool pool_checkpoint_due(struct pool *pool)
{
    return pool->data.log_bytes - pool->checkpoint_log_bytes >= pool->interval_bytes;
}
