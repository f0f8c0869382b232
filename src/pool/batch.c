/*
 * Write-out: a batch of dirty records and trims on its way into the log.
 *
 *   take     (lock) choose records; read what they lack; capture them and take the trims, in one moment
 *   pack     (no lock, sealing held) compress side by side
 *   seal     chunk by chunk: lay out without the lock, append and make effective in the pending lists with it
 *   write    (no lock, sealing given back) one vectored write a chunk; flush linked behind where somebody waits
 *   let go   (lock) records may be evicted again
 *
 * Order (R17): what a batch seals is, in log order: captures gathered ahead of it, then trims, then what it captured
 * itself, all as they were at one moment under the lock. Batches follow each other under the sealing token. So the
 * order of entries in the log is the order of their effect. A trim acknowledged after that moment is in the overlay,
 * above all this, until the next batch.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "log/rules.h"
#include "pool/capture.h"
#include "pool/selection.h"

#define BATCH_RAW_BYTES (4 * 1024 * 1024)
#define BATCH_RECORDS_MAX 1024
#define IN_FLIGHT_BYTES_MAX (16 * 1024 * 1024)

struct batch {
    struct pool *pool;
    uint32_t record_count;
    struct list captures; /* gathered first, then those of this batch */
    uint32_t gathered_count, capture_count;
    struct list ops;
    uint32_t ops_left;
    struct item_list items;
    struct log_chunk **chunks;
    uint32_t chunk_count, chunk_room;
    /* Last, because only the first record_count of each are ever looked at: they need not be cleared. */
    struct record *records[BATCH_RECORDS_MAX]; /* chosen, pinned */
    struct record *wanting[BATCH_RECORDS_MAX]; /* of them those that supply() is at */
};

static struct batch *batch_new(struct pool *pool)
{
    struct batch *b = malloc(sizeof *b);
    if (b == NULL)
        return NULL;
    memset(b, 0, offsetof(struct batch, records));
    b->pool = pool;
    list_init(&b->captures);
    list_init(&b->ops);
    return b;
}

/* ---- take ---- */

static bool choose(struct batch *b, struct record *r, uint64_t *raw_bytes)
{
    if (b->record_count == BATCH_RECORDS_MAX || *raw_bytes >= BATCH_RAW_BYTES)
        return false;
    cache_pin(&b->pool->cache, r);
    b->records[b->record_count++] = r;
    *raw_bytes += r->record_bytes;
    return true;
}

static void choose_from(struct batch *b, struct list *list, uint64_t *raw_bytes)
{
    for (struct list *l = list->next; l != list; l = l->next) {
        if (!choose(b, CONTAINER_OF(l, struct record, dirty_link), raw_bytes))
            return;
    }
}

static void choose_records(struct batch *b, enum batch_kind kind)
{
    uint64_t raw_bytes = 0;
    choose_from(b, &b->pool->urgent, &raw_bytes);
    if (kind != BATCH_BACKGROUND)
        return;
    /* The volume with the oldest dirty record first would starve nobody either, but costs a search; volumes take turns.
     */
    for (struct list *l = b->pool->volumes.next; l != &b->pool->volumes; l = l->next)
        choose_from(b, &((struct volume *)l)->dirty, &raw_bytes);
}

static bool still_dirty(const struct record *r)
{
    return r->in_table && record_is_dirty(r);
}

/* Brings in what the chosen records lack for one plan step. Lock held, released meanwhile. */
static int supply(struct batch *b, enum capture_plan need)
{
    struct record **wanting = b->wanting;
    uint32_t count = 0;
    /* First wait, then mark: who waits while others wait for what he marked could wait for ever. */
    for (uint32_t i = 0; i < b->record_count; i++)
        pool_wait_filled(b->pool, b->records[i]);
    for (uint32_t i = 0; i < b->record_count; i++) {
        struct record *r = b->records[i];
        if (!still_dirty(r) || r->filling || capture_plan(r) != need)
            continue;
        r->filling = true;
        wanting[count++] = r;
    }
    if (count == 0)
        return 0;
    env_mutex_unlock(&b->pool->lock);
    int result =
        need == CAPTURE_NEEDS_FILL ? pool_fill(b->pool, wanting, count) : pool_find_patches(b->pool, wanting, count);
    env_mutex_lock(&b->pool->lock);
    return result;
}

/* A gathered capture of a record goes before what is captured of it now; it is not captured twice into one batch (R17).
 */
static void take_gathered(struct batch *b)
{
    while (!list_empty(&b->pool->gathered)) {
        struct list *l = b->pool->gathered.next;
        list_remove(l);
        list_append(&b->captures, l);
        b->gathered_count++;
    }
}

static void take_ops(struct batch *b)
{
    struct pool *pool = b->pool;
    while (!list_empty(&pool->range_ops)) {
        struct list *l = pool->range_ops.next;
        list_remove(l);
        list_append(&b->ops, l);
        b->ops_left++;
    }
    pool->range_op_count = 0;
    pool->range_ops_oldest_at = UINT64_MAX;
    for (struct list *l = pool->volumes.next; l != &pool->volumes && b->ops_left > 0; l = l->next) {
        struct volume *v = (struct volume *)l;
        CHECK(pending_empty(&v->overlay_sealing));
        v->overlay_sealing = v->overlay;
        memset(&v->overlay, 0, sizeof v->overlay);
    }
}

static int take(struct batch *b, bool with_gathered)
{
    int result = 0;
    if (with_gathered)
        take_gathered(b);
    take_ops(b);
    for (uint32_t i = 0; i < b->record_count; i++) {
        struct record *r = b->records[i];
        /* What changed since it was supplied, or is being read just now, waits for the next batch. */
        if (result == 0 && still_dirty(r) && !r->filling && capture_plan(r) == CAPTURE_NOW)
            result = capture_record(b->pool, r, &b->captures);
        cache_unpin(&b->pool->cache, r);
    }
    for (struct list *l = b->captures.next; l != &b->captures; l = l->next)
        b->capture_count++;
    return result;
}

/* ---- pack ---- */

struct pack_job {
    struct capture **captures;
};

static void pack_one(void *arg, uint32_t item, struct codec_context *codec)
{
    struct pack_job *job = arg;
    capture_compress(job->captures[item], codec);
}

static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->entry.branch != b->entry.branch)
        return a->entry.branch < b->entry.branch ? -1 : 1;
    if (a->entry.index != b->entry.index)
        return a->entry.index < b->entry.index ? -1 : 1;
    return a->entry.first_sector < b->entry.first_sector ? -1 : a->entry.first_sector > b->entry.first_sector;
}

static void add_captures(struct batch *b, struct list **at, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, *at = (*at)->next) {
        struct capture *c = (struct capture *)*at;
        b->items.list[b->items.count++] = (struct item){.capture = c, .entry = c->entry};
    }
}

static int pack(struct batch *b)
{
    uint32_t fresh = b->capture_count - b->gathered_count, n = 0;
    b->items.list = calloc(b->capture_count + b->ops_left + 1, sizeof *b->items.list);
    struct capture **captures = calloc(fresh + 1, sizeof(struct capture *));
    if (b->items.list == NULL || captures == NULL) {
        free(captures);
        return -ENOMEM;
    }
    struct list *l = b->captures.next;
    for (uint32_t i = 0; i < b->capture_count; i++, l = l->next) {
        if (i >= b->gathered_count)
            captures[n++] = (struct capture *)l;
    }
    struct pack_job job = {.captures = captures};
    workers_run(b->pool->workers, pack_one, &job, fresh);
    free(captures);
    l = b->captures.next;
    add_captures(b, &l, b->gathered_count);
    for (struct list *o = b->ops.next; o != &b->ops; o = o->next) {
        struct range_op *op = (struct range_op *)o;
        b->items.list[b->items.count++] = (struct item){.op = op,
                                                        .entry = {.kind = op->provision ? ENTRY_ZERO : ENTRY_TRIM,
                                                                  .branch = op->volume->branch,
                                                                  .index = op->first,
                                                                  .count = op->count}};
    }
    b->items.ordered_count = b->items.count;
    add_captures(b, &l, fresh);
    /* Records of one batch are different ones: their order is free, and neighbours make short tables. */
    qsort(b->items.list + b->items.ordered_count, fresh, sizeof *b->items.list, compare_items);
    return 0;
}

/* ---- seal ---- */

/* The overlay of the trims in this batch has come down into the active lists. */
static void clear_overlays(struct pool *pool)
{
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next)
        pending_free(&((struct volume *)l)->overlay_sealing);
}

static int apply_op(struct batch *b, struct range_op *op, uint64_t chunk_address)
{
    struct pointer p = {.kind = op->provision ? POINTER_PROVISIONED : POINTER_HOLE, .address = chunk_address};
    int result = op->volume->destroyed ? 0 : pending_set_range(&op->volume->active, op->first, op->count, &p);
    CHECK_GT(b->ops_left, 0);
    if (--b->ops_left == 0)
        clear_overlays(b->pool);
    return result;
}

static int apply_capture(struct batch *b, struct capture *c, const struct chunk_entry *e, const struct log_chunk *chunk)
{
    struct volume *v = c->volume;
    struct pointer p = {.kind = c->is_patch ? POINTER_PATCH : POINTER_DATA,
                        .address = chunk->address + e->payload_offset,
                        .length = e->length,
                        .codec = e->codec,
                        .flags = e->flags,
                        .checksum_kind = CHECKSUM_KIND_XXH3_128,
                        .checksum = e->checksum};
    pool_unreserve(b->pool, c->reserved_bytes);
    c->reserved_bytes = 0;
    c->record->sealed_in = chunk->number;
    if (v->destroyed)
        return 0;
    if (c->is_zero) {
        p = (struct pointer){.kind = c->provision ? POINTER_PROVISIONED : POINTER_HOLE, .address = chunk->address};
        if (c->provision)
            v->provision_active_bytes += record_reserve_bytes(v->record_bytes);
        return pending_set(&v->active, e->index, &p);
    }
    if (!c->is_patch)
        return pending_set(&v->active, e->index, &p);
    struct patch patch = {.first_sector = e->first_sector, .sector_count = e->sector_count, .pointer = p};
    return pending_add_patch(&v->active, e->index, &patch);
}

static int append_and_apply(struct batch *b, struct selection *s, struct log_chunk *chunk)
{
    struct pool *pool = b->pool;
    env_mutex_lock(&pool->lock);
    int result = pool->data.failed ? -EIO : 0;
    if (result == 0) {
        data_head_append(&pool->data, chunk);
        b->chunks[b->chunk_count++] = chunk;
        pool->active_entries += s->count;
        pool_mark_changed(pool);
    }
    for (uint32_t i = 0; i < s->count && result == 0; i++) {
        struct item *item = s->items[i];
        item->sealed = true;
        result = item->op != NULL ? apply_op(b, item->op, chunk->address)
                                  : apply_capture(b, item->capture, &s->entries[i], chunk);
    }
    /* The chunk is in the log but the lists could not take it (out of memory): memory is no longer the truth. Only a
     * reopen is. */
    if (result != 0)
        data_head_fail(&pool->data);
    env_mutex_unlock(&pool->lock);
    return result;
}

static int grow_chunks(struct batch *b)
{
    if (b->chunk_count < b->chunk_room)
        return 0;
    uint32_t room = b->chunk_room == 0 ? 8 : 2 * b->chunk_room;
    struct log_chunk **chunks = realloc(b->chunks, room * sizeof(struct log_chunk *));
    if (chunks == NULL)
        return -ENOMEM;
    b->chunks = chunks;
    b->chunk_room = room;
    return 0;
}

/* The next segment was chosen after the newest chunk was sealed (there was no room on the host before), or only that
 * one names it, in a single write unit: a bridge names it. */
static int name_next(struct batch *b)
{
    struct data_head *h = &b->pool->data;
    int result = h->next_count > 0 ? 0 : data_head_refill(h, b->pool->checkpoint);
    if (result != 0 || h->assured_segment == h->next[0].segment)
        return result;
    result = grow_chunks(b);
    if (result == 0)
        result = data_head_seal_bridge(h, h->next[0], &b->chunks[b->chunk_count]);
    b->chunk_count += result == 0;
    return result;
}

static int next_segment(struct batch *b)
{
    struct pool *pool = b->pool;
    int result = name_next(b);
    if (result != 0)
        return result;
    env_mutex_lock(&pool->lock);
    result = data_head_advance(&pool->data, pool->checkpoint);
    env_mutex_unlock(&pool->lock);
    if (result == 0)
        (void)!data_head_refill(&pool->data, pool->checkpoint); /* fewer next segments is no error yet */
    return result;
}

static int seal_chunk(struct batch *b, struct selection *s)
{
    struct chunk_content content = {
        .entries = s->entries, .bytes = s->bytes, .count = s->count, .payload_bytes = s->payload_bytes};
    struct log_chunk *chunk = NULL;
    int result = grow_chunks(b);
    if (result == 0)
        result = data_head_build(&b->pool->data, &content, &chunk);
    if (result == 0)
        result = append_and_apply(b, s, chunk);
    if (result != 0 && chunk != NULL && (b->chunk_count == 0 || b->chunks[b->chunk_count - 1] != chunk))
        log_chunk_free(chunk);
    while (b->items.first_unsealed < b->items.count && b->items.list[b->items.first_unsealed].sealed)
        b->items.first_unsealed++;
    return result;
}

static int seal(struct batch *b)
{
    struct selection *s = selection_new(&b->items);
    int result = s == NULL ? -ENOMEM : 0;
    while (result == 0 && b->items.first_unsealed < b->items.count) {
        selection_fill(s, &b->items, &b->pool->data);
        result = s->count > 0 ? seal_chunk(b, s) : next_segment(b);
    }
    free(s);
    return result;
}

/* ---- the whole ---- */

static void let_go(struct batch *b)
{
    struct pool *pool = b->pool;
    while (!list_empty(&b->captures)) {
        struct capture *c = (struct capture *)b->captures.next;
        list_remove(&c->link);
        /* Not sealed: the pool has failed, and what was set aside does not matter any more. */
        pool_unreserve(pool, c->reserved_bytes);
        capture_release(pool, c);
    }
    while (!list_empty(&b->ops)) {
        struct list *l = b->ops.next;
        list_remove(l);
        free(l);
    }
    cache_evict(&pool->cache);
    env_cond_broadcast(&pool->cache_cond);
}

static void free_batch(struct batch *b)
{
    for (uint32_t i = 0; i < b->chunk_count; i++)
        log_chunk_free(b->chunks[i]);
    free(b->chunks);
    free(b->items.list);
    free(b);
}

static int prepare_batch(struct batch *b, enum batch_kind kind, bool with_gathered)
{
    struct pool *pool = b->pool;
    int result = 0;
    while (pool->data.in_flight_bytes > IN_FLIGHT_BYTES_MAX && !pool->data.failed)
        env_cond_wait(&pool->data.progress, &pool->lock);
    choose_records(b, kind);
    result = supply(b, CAPTURE_NEEDS_PATCHES);
    if (result == 0)
        result = supply(b, CAPTURE_NEEDS_FILL);
    int taken = take(b, with_gathered);
    return result != 0 ? result : taken;
}

static int write_chunks(struct batch *b, bool flush)
{
    /* Chunks that were sealed go to the device even if a later one could not be: others may wait for them. */
    return b->chunk_count == 0 ? 0 : data_head_write(&b->pool->data, b->chunks, b->chunk_count, flush);
}

static int run_batch(struct pool *pool, enum batch_kind kind, bool flush, bool with_gathered)
{
    CHECK(env_mutex_held(&pool->lock));
    CHECK(pool->sealing);
    struct batch *b = batch_new(pool);
    if (b == NULL) {
        pool_give_sealing(pool);
        return -ENOMEM;
    }
    pool->batches_started++;
    int result = prepare_batch(b, kind, with_gathered);
    bool something = b->capture_count > 0 || b->ops_left > 0;
    env_mutex_unlock(&pool->lock);
    /* -ENOMEM in the preparation: what was taken all the same must still go out, or the pool fails with it. */
    int sealed = something ? pool_begin_writing(pool) : 0;
    if (sealed == 0 && something)
        sealed = pack(b);
    if (sealed == 0 && something)
        sealed = seal(b);
    env_mutex_lock(&pool->lock);
    if (sealed != 0)
        data_head_fail(&pool->data);
    pool->batches_sealed++;
    pool_give_sealing(pool);
    env_mutex_unlock(&pool->lock);
    int written = write_chunks(b, flush);
    env_mutex_lock(&pool->lock);
    if (pool_checkpoint_due(pool))
        pool_kick_keeper(pool);
    let_go(b);
    free_batch(b);
    if (sealed != 0)
        return sealed;
    return written != 0 ? written : result;
}

static bool takes_gathered(const struct pool *pool)
{
    return (pool->geometry.rules_off & (RULE_OFF_PATCH_ORDER | RULE_OFF_TRIM_ORDER)) == 0;
}

int pool_run_batch(struct pool *pool, enum batch_kind kind, bool flush)
{
    return run_batch(pool, kind, flush, takes_gathered(pool));
}

int pool_seal_gathered(struct pool *pool)
{
    return run_batch(pool, BATCH_SYNC, false, true);
}

int pool_capture_ahead(struct pool *pool, struct record *r)
{
    struct batch *b = batch_new(pool);
    uint64_t raw_bytes = 0;
    if (b == NULL)
        return -ENOMEM;
    /* Pinned before the wait for the token: a trim may drop the record meanwhile. */
    (void)choose(b, r, &raw_bytes);
    pool_take_sealing(pool);
    /* Trims acknowledged before are older than this picture and go into the log before it. */
    int result = 0;
    while (result == 0 && !list_empty(&pool->range_ops)) {
        result = pool_run_batch(pool, BATCH_SYNC, false);
        pool_take_sealing(pool);
    }
    if (result == 0)
        result = supply(b, CAPTURE_NEEDS_PATCHES);
    if (result == 0)
        result = supply(b, CAPTURE_NEEDS_FILL);
    /* What somebody waits for goes out with its own batch, which he waits for; put aside here he would not. */
    if (result == 0 && still_dirty(r) && !r->urgent && !r->filling && capture_plan(r) == CAPTURE_NOW)
        result = capture_record(pool, r, &b->captures);
    cache_unpin(&pool->cache, r);
    struct codec_context *codec = workers_borrow_codec(pool->workers);
    while (!list_empty(&b->captures)) {
        struct capture *c = (struct capture *)b->captures.next;
        list_remove(&c->link);
        capture_compress(c, codec);
        list_append(&pool->gathered, &c->link);
    }
    workers_return_codec(pool->workers, codec);
    pool_give_sealing(pool);
    free(b);
    return result;
}

void pool_forget_gathered(struct pool *pool)
{
    while (!list_empty(&pool->gathered)) {
        struct capture *c = (struct capture *)pool->gathered.next;
        list_remove(&c->link);
        pool_unreserve(pool, c->reserved_bytes);
        capture_release(pool, c);
    }
}
