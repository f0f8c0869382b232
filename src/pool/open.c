/*
 * Opening a pool: newest label, slot table, catalog, replay. Writes nothing (R27): the first write of the open does
 * what a crash made necessary (begin_write.c).
 *
 * What the label's slot table says is the state at the label's cut, but slots went on meanwhile:
 *   node head   what it wrote behind the label's position is forgotten (R28). A segment below the label's node segment
 *               that the table still calls open or next was filled by that very checkpoint: closed. One above it: free.
 *   data head   segments above the replay start hold what the log will tell: they are free until replay adopts them.
 *   quarantine  of an earlier checkpoint than the label's: over, both labels that needed it are past.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "log/label_ring.h"
#include "log/rules.h"

#define CACHE_BYTES_DEFAULT (256 * MIB)
#define CACHE_BYTES_MIN (8 * MIB)

static void set_geometry(struct pool *pool)
{
    const struct label *l = &pool->label;
    struct geometry *g = &pool->geometry;
    memcpy(g->pool_uuid, l->pool_uuid, sizeof g->pool_uuid);
    g->device_bytes = l->devices[0].size_bytes;
    g->data_start_bytes = l->devices[0].data_start_bytes;
    g->write_unit_bytes = l->write_unit_bytes;
    g->segment_bytes = l->segment_bytes;
    g->slot_count = l->devices[0].slot_count;
    g->lookahead_count = l->lookahead_count;
    g->rules_off = pool->options.rules_off;
    g->incarnation = 1;
    if ((g->rules_off & RULE_OFF_INCARNATION) == 0)
        env_random(pool->env, &g->incarnation, sizeof g->incarnation);
}

static void set_intervals(struct pool *pool)
{
    const struct geometry *g = &pool->geometry;
    uint64_t bytes = pool->options.checkpoint_log_bytes;
    if (bytes == 0)
        bytes = max_u64(min_u64(256 * MIB, g->device_bytes / 256), g->segment_bytes);
    pool->interval_bytes = bytes;
    pool_compute_reserve(pool);
}

static int init_parts(struct pool *pool)
{
    uint64_t cache_bytes =
        pool->options.cache_bytes == 0 ? CACHE_BYTES_DEFAULT : max_u64(pool->options.cache_bytes, CACHE_BYTES_MIN);
    uint64_t node_bytes = cache_bytes / 8;
    int result = slots_init(&pool->slots, pool->env, &pool->geometry);
    if (result != 0)
        return result;
    reader_init(&pool->reader, pool->dev, &pool->slots, &pool->geometry);
    result = node_store_init(&pool->node_store, pool->env, &pool->reader, node_bytes);
    if (result == 0)
        result = cache_init(&pool->cache, cache_bytes - node_bytes);
    if (result == 0)
        result = node_head_init(&pool->nodes, &pool->lock, pool->dev, &pool->slots, &pool->geometry, &pool->numbers);
    if (result == 0)
        result = workers_new(pool->env, pool->options.worker_count, &pool->workers);
    return result;
}

static struct map_tree tree_of_root(const struct label *l, enum root_kind kind, uint64_t branch)
{
    struct map_tree tree = {.branch = branch, .physical = kind == ROOT_SLOT_TABLE};
    const struct label_root *root = label_find_root(l, kind);
    if (root != NULL) {
        tree.height = root->height;
        tree.root = root->pointer;
    }
    return tree;
}

/* ---- slot table ---- */

struct load {
    struct pool *pool;
    struct error *err;
};

static uint32_t slot_of_place(const struct pool *pool, const struct pointer *p)
{
    return (uint32_t)(p->address / pool->geometry.segment_bytes);
}

static int count_node(void *arg, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct load *load = arg;
    (void)level;
    (void)number;
    slots_add_own(&load->pool->slots, slot_of_place(load->pool, p), p->length);
    return 0;
}

static int unreadable(void *arg, const struct pointer *p, uint8_t level, uint64_t number, int error)
{
    struct load *load = arg;
    (void)error;
    return error_set(load->err, -EBADMSG,
                     "%s: the slot table is damaged: node %" PRIu64
                     " of level %u in slot %u does not verify in either copy; 'ashlar check --repair' may help",
                     load->pool->dev->name, number, level, slot_of_place(load->pool, p));
}

static int load_record(void *arg, const struct pointer *p, uint64_t index, bool is_patch)
{
    struct load *load = arg;
    struct pool *pool = load->pool;
    uint8_t stored[TABLE_RECORD_BYTES], raw[TABLE_RECORD_BYTES];
    struct slot slots[SLOTS_PER_TABLE_RECORD];
    if (is_patch || p->length > sizeof stored || index >= slots_record_count(&pool->slots))
        return error_set(load->err, -EBADMSG, "%s: slot table record %" PRIu64 " is malformed", pool->dev->name, index);
    int result = reader_read(&pool->reader, p, true, stored);
    struct codec_context *codec = workers_borrow_codec(pool->workers);
    if (result == 0)
        result = codec == NULL ? -ENOMEM : codec_decompress(codec, p->codec, stored, p->length, raw, sizeof raw);
    workers_return_codec(pool->workers, codec);
    uint32_t first = (uint32_t)index * SLOTS_PER_TABLE_RECORD;
    if (result == 0)
        result = table_record_decode(raw, sizeof raw, first, pool->geometry.segment_bytes, slots, load->err);
    for (uint32_t i = 0; i < SLOTS_PER_TABLE_RECORD && first + i < pool->geometry.slot_count && result == 0; i++)
        result = slots_load(&pool->slots, first + i, &slots[i]);
    if (result != 0)
        return error_set(load->err, result,
                         "%s: slot table record %" PRIu64 " cannot be used: %s; 'ashlar check --repair' may help",
                         pool->dev->name, index,
                         result == -EBADMSG ? "it does not verify or contradicts another" : strerror(-result));
    slots_add_own(&pool->slots, slot_of_place(pool, p), p->length);
    return 0;
}

static int load_table(struct pool *pool, struct error *err)
{
    struct load load = {.pool = pool, .err = err};
    struct map_walk walk = {.arg = &load, .node = count_node, .data = load_record, .unreadable = unreadable};
    if (pool->table_tree.height == 0)
        return error_set(err, -EBADMSG, "%s: the label names no slot table", pool->dev->name);
    int result = map_walk_tree(&pool->node_store, &pool->table_tree, &walk);
    return result == 0
               ? 0
               : error_set(err, result, "%s: reading the slot table failed: %s", pool->dev->name, strerror(-result));
}

/* ---- what went on since the table was written ---- */

static void settle_node_slot(struct pool *pool, uint32_t slot, const struct slot *t)
{
    const struct label *l = &pool->label;
    uint64_t node_segment = l->node_slot == SLOT_NONE ? UINT64_MAX : l->node_address / pool->geometry.segment_bytes;
    if (slot == l->node_slot)
        return;
    if (t->segment < node_segment && t->state == SLOT_OPEN)
        slots_close(&pool->slots, slot, pool->geometry.segment_bytes, l->checkpoint);
    else if (t->segment < node_segment && l->node_slot != SLOT_NONE)
        slots_close(&pool->slots, slot, pool->geometry.segment_bytes, l->checkpoint);
    else
        slots_return(&pool->slots, slot, false, l->checkpoint);
}

static int settle_slots(struct pool *pool)
{
    const struct label *l = &pool->label;
    uint64_t replay_segment = l->replay_address / pool->geometry.segment_bytes;
    for (uint32_t slot = 0; slot < pool->geometry.slot_count; slot++) {
        struct slot t = slots_get(&pool->slots, slot);
        if (t.state == SLOT_BARE || t.state == SLOT_READY)
            continue;
        if (t.head == CHUNK_HEAD_NODE && (t.state == SLOT_OPEN || t.state == SLOT_NEXT))
            settle_node_slot(pool, slot, &t);
        else if (t.head == CHUNK_HEAD_DATA && t.segment > replay_segment)
            slots_return(&pool->slots, slot, false, l->checkpoint);
    }
    if (l->checkpoint > 0)
        slots_release(&pool->slots, l->checkpoint - 1, l->checkpoint);
    if (l->node_slot == SLOT_NONE)
        return 0;
    return slots_adopt(&pool->slots, l->node_slot, l->node_address / pool->geometry.segment_bytes, CHUNK_HEAD_NODE,
                       l->checkpoint);
}

/* ---- replay ---- */

static struct volume *volume_of_branch(struct pool *pool, uint64_t branch)
{
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next) {
        if (((struct volume *)l)->branch == branch)
            return (struct volume *)l;
    }
    return NULL;
}

static struct pointer pointer_of_entry(const struct chunk_header *header, const struct chunk_entry *e)
{
    return (struct pointer){.kind = e->kind == ENTRY_PATCH ? POINTER_PATCH : POINTER_DATA,
                            .address = header->address + e->payload_offset,
                            .length = e->length,
                            .codec = e->codec,
                            .codec_param = e->codec_param,
                            .flags = e->flags,
                            .checksum_kind = CHECKSUM_KIND_XXH3_128,
                            .checksum = e->checksum};
}

/* Ranges may reach past the end of a volume that a later label made shorter. */
static int apply_range(struct volume *v, const struct chunk_header *header, const struct chunk_entry *e)
{
    uint64_t records = volume_record_count(v);
    struct pointer p = {.kind = e->kind == ENTRY_ZERO ? POINTER_PROVISIONED : POINTER_HOLE, .address = header->address};
    uint64_t count = min_u64(e->count, records - e->index);
    if (e->kind == ENTRY_ZERO)
        v->provision_active_bytes += count * record_reserve_bytes(v->record_bytes);
    return pending_set_range(&v->active, e->index, count, &p);
}

static int apply_entry(struct pool *pool, const struct chunk_header *header, const struct chunk_entry *e)
{
    struct volume *v = volume_of_branch(pool, e->branch);
    if (v == NULL || e->index >= volume_record_count(v)) {
        pool->skipped_entries++;
        return 0;
    }
    struct pointer p = pointer_of_entry(header, e);
    switch ((enum entry_kind)e->kind) {
    case ENTRY_DATA:
        return pending_set(&v->active, e->index, &p);
    case ENTRY_PATCH: {
        struct patch patch = {.first_sector = e->first_sector, .sector_count = e->sector_count, .pointer = p};
        struct map_entry known = {.patch_count = 0};
        (void)pending_lookup(&v->active, e->index, &known);
        known.patches[known.patch_count++] = patch;
        if (patches_prune(known.patches, known.patch_count, NULL, NULL) > PATCHES_PER_RECORD_MAX)
            return -EBADMSG;
        return pending_add_patch(&v->active, e->index, &patch);
    }
    case ENTRY_TRIM:
    case ENTRY_ZERO:
        return apply_range(v, header, e);
    case ENTRY_NODE:
    case ENTRY_BRIDGE:
    default:
        return -EBADMSG;
    }
}

static int apply_chunk(void *arg, const struct chunk_header *header, const struct chunk_entry *entries, uint32_t count)
{
    struct pool *pool = arg;
    int result = 0;
    pool->changed = true;
    pool->active_entries += count;
    for (uint32_t i = 0; i < count && result == 0; i++)
        result = apply_entry(pool, header, &entries[i]);
    return result;
}

static int judge_damage(struct pool *pool, struct error *err)
{
    const struct replay_end *end = &pool->replayed;
    if (!end->damaged)
        return 0;
    if (!pool->options.lose_damaged_log && !pool->options.read_only)
        return error_set(
            err, -EBADMSG,
            "%s: flushed log is damaged at addresses %" PRIu64 " to %" PRIu64
            ": what was written there is lost; open read-only to look, or with --lose-damaged-log to go on without it",
            pool->dev->name, end->damaged_from, end->damaged_to);
    pool->lost_from = end->damaged_from;
    pool->lost_to = end->damaged_to;
    pool_notice(pool,
                "%s: flushed log at addresses %" PRIu64 " to %" PRIu64 " is damaged; what was written there is lost",
                pool->dev->name, end->damaged_from, end->damaged_to);
    return 0;
}

static void set_heads(struct pool *pool)
{
    const struct replay_end *end = &pool->replayed;
    const struct label *l = &pool->label;
    struct data_head *h = &pool->data;
    h->at = end->at;
    h->position_bytes = end->position_bytes;
    h->chain = end->chain;
    h->echo_bytes = end->echo_bytes;
    memcpy(h->echo, end->echo, end->echo_bytes);
    memcpy(h->next, end->next, sizeof h->next);
    h->next_count = end->next_count;
    /* What was read here an earlier process may have written and not flushed: it counts as one chunk, written, not
     * durable. So the first flush of this open asks the device, and covers what that process acknowledged. */
    h->sealed_to = h->written_to = 1;
    h->written_address = end->at.segment * pool->geometry.segment_bytes + end->position_bytes;
    h->durable_address = l->replay_address;
    h->log_bytes = end->replayed_bytes;
    pool->numbers.next = max_u64(l->next_segment, end->segment_highest + 1);
    pool->next_branch = l->next_branch;
    pool->was_clean = (l->flags & LABEL_CLEAN) != 0 && end->chunk_count == 0 && !end->traces_beyond;
    if (l->node_slot == SLOT_NONE)
        return;
    uint32_t used = (uint32_t)(l->node_address % pool->geometry.segment_bytes);
    if (pool->was_clean) {
        pool->nodes.at =
            (struct placed_segment){.segment = l->node_address / pool->geometry.segment_bytes, .slot = l->node_slot};
        pool->nodes.position_bytes = used;
        slots_open(&pool->slots, l->node_slot, l->checkpoint);
    } else {
        slots_close(&pool->slots, l->node_slot, used, l->checkpoint);
    }
}

static int recover(struct pool *pool, struct error *err)
{
    int result = load_table(pool, err);
    if (result == 0)
        result = settle_slots(pool);
    if (result == 0)
        result = pool_load_catalog(pool, err);
    if (result == 0)
        result =
            replay_run(pool->dev, &pool->slots, &pool->geometry, &pool->label, apply_chunk, pool, &pool->replayed, err);
    if (result == 0)
        result = judge_damage(pool, err);
    if (result == 0)
        set_heads(pool);
    return result;
}

static struct pool *pool_new(struct device *dev, const struct pool_options *options)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->env = dev->env;
    pool->dev = dev;
    pool->options = *options;
    pool->read_only = options->read_only || dev->info.is_read_only;
    env_mutex_init(&pool->lock, pool->env);
    env_cond_init(&pool->cache_cond, pool->env);
    env_cond_init(&pool->seal_cond, pool->env);
    env_cond_init(&pool->keeper_cond, pool->env);
    list_init(&pool->volumes);
    list_init(&pool->urgent);
    list_init(&pool->range_ops);
    list_init(&pool->gathered);
    pool->range_ops_oldest_at = UINT64_MAX;
    data_head_init(&pool->data, pool->env, &pool->lock, dev, &pool->slots, &pool->geometry, &pool->numbers);
    return pool;
}

static int open_pool(struct pool *pool, struct error *err)
{
    int result = label_ring_read(pool->dev, &pool->label, err);
    if (result != 0)
        return result;
    if ((pool->label.features_read_only_compatible & ~FEATURES_READ_ONLY_COMPATIBLE_KNOWN) != 0 && !pool->read_only)
        return error_set(err, -EOPNOTSUPP,
                         "%s: the pool has features 0x%" PRIx64 " that this version can only read; open it read-only",
                         pool->dev->name,
                         pool->label.features_read_only_compatible & ~FEATURES_READ_ONLY_COMPATIBLE_KNOWN);
    set_geometry(pool);
    set_intervals(pool);
    pool->catalog_tree = tree_of_root(&pool->label, ROOT_CATALOG, BRANCH_CATALOG);
    pool->table_tree = tree_of_root(&pool->label, ROOT_SLOT_TABLE, BRANCH_SLOT_TABLE);
    pool->checkpoint = pool->label.checkpoint;
    pool->checkpoint_label_sequence = pool->label.sequence;
    if (pool->catalog_tree.height == 0 || pool->catalog_tree.height > CATALOG_HEIGHT_MAX)
        return error_set(err, -EBADMSG, "%s: the label names a catalog of height %u, which is not one of this version",
                         pool->dev->name, pool->catalog_tree.height);
    result = init_parts(pool);
    if (result == 0)
        result = recover(pool, err);
    if (result == 0 && pool->options.background && !pool->read_only)
        result = pool_start_keeper(pool);
    return result == 0 ? 0
                       : error_set(err, result, "%s: opening the pool failed: %s", pool->dev->name, strerror(-result));
}

int pool_open(struct device *dev, const struct pool_options *options, struct pool **ret_pool, struct error *err)
{
    struct pool *pool = pool_new(dev, options);
    if (pool == NULL) {
        device_close(dev);
        return error_set(err, -ENOMEM, "out of memory opening a pool");
    }
    int result = open_pool(pool, err);
    if (result != 0) {
        pool_free(pool);
        return result;
    }
    *ret_pool = pool;
    return 0;
}
