/*
 * The record cache (cache.h has the states and invariants): a hash table of records, buffers that are shared with a
 * picture on its way into the log and copied on the next write, and the accounts that eviction goes by.
 */
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "env/pages.h"

/* From this size on a buffer is made of pages that cost nothing until they are touched. */
#define PAGED_BYTES_MIN (64 * 1024)

int cache_init(struct cache *c, uint64_t budget_bytes)
{
    memset(c, 0, sizeof *c);
    uint32_t buckets = 1024;
    while (buckets < budget_bytes / RECORD_BYTES_DEFAULT && buckets < 1u << 22)
        buckets *= 2;
    c->buckets = calloc(buckets, sizeof(struct record *));
    if (c->buckets == NULL)
        return -ENOMEM;
    c->bucket_mask = buckets - 1;
    c->budget_bytes = budget_bytes;
    c->dirty_limit_bytes = budget_bytes / 4;
    list_init(&c->lru);
    return 0;
}

static struct record **bucket_of(struct cache *c, uint64_t branch, uint64_t index)
{
    uint64_t h = (index + branch * UINT64_C(0xc2b2ae3d27d4eb4f)) * UINT64_C(0x9e3779b97f4a7c15);
    return &c->buckets[(uint32_t)(h >> 32) & c->bucket_mask];
}

/* ---- buffers ---- */

static struct record_buffer *buffer_new(uint32_t size_bytes)
{
    struct record_buffer *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->bytes = size_bytes >= PAGED_BYTES_MIN ? pages_new(size_bytes) : malloc(size_bytes);
    b->size_bytes = size_bytes;
    b->references = 1;
    if (b->bytes == NULL) {
        free(b);
        return NULL;
    }
    return b;
}

void record_buffer_get(struct record_buffer *b)
{
    CHECK_GT(b->references, 0);
    b->references++;
}

void record_buffer_put(struct cache *c, struct record_buffer *b)
{
    CHECK_GT(b->references, 0);
    if (--b->references > 0)
        return;
    CHECK_GE(c->used_bytes, b->charged_bytes);
    c->used_bytes -= b->charged_bytes;
    if (b->size_bytes >= PAGED_BYTES_MIN)
        pages_free(b->bytes, b->size_bytes);
    else
        free(b->bytes);
    free(b);
}

/* What the valid sectors of a record cost in its buffer. */
static uint32_t buffer_cost(const struct record *r)
{
    const uint32_t sectors_a_page = PAGE_BYTES / SECTOR_BYTES;
    if (r->record_bytes < PAGED_BYTES_MIN)
        return r->record_bytes;
    uint32_t pages = 0;
    for (uint32_t i = 0; i < r->words; i++) {
        uint64_t v = r->valid[i];
        for (uint32_t k = 0; v != 0 && k < 64 / sectors_a_page; k++, v >>= sectors_a_page)
            pages += (v & ((1u << sectors_a_page) - 1)) != 0;
    }
    return pages * PAGE_BYTES;
}

static void charge(struct cache *c, struct record *r)
{
    uint32_t cost = buffer_cost(r);
    c->used_bytes += cost;
    c->used_bytes -= r->buffer->charged_bytes;
    if (r->dirty_state) {
        c->dirty_bytes += cost;
        c->dirty_bytes -= r->buffer->charged_bytes;
    }
    r->buffer->charged_bytes = cost;
}

/* ---- table ---- */

static size_t record_struct_bytes(const struct record *r)
{
    return sizeof *r + 3 * (size_t)r->words * sizeof(uint64_t);
}

static bool evictable(const struct record *r)
{
    return r->in_table && !r->dirty_state && r->pins == 0 && !r->filling;
}

static void update_lru(struct cache *c, struct record *r)
{
    list_remove(&r->lru);
    if (evictable(r))
        list_append(&c->lru, &r->lru);
}

static void free_record(struct cache *c, struct record *r)
{
    CHECK(!r->in_table);
    CHECK_EQ(r->pins, 0);
    list_remove(&r->lru);
    record_buffer_put(c, r->buffer);
    c->used_bytes -= record_struct_bytes(r);
    free(r);
}

static void take_out(struct cache *c, struct record *r)
{
    struct record **link = bucket_of(c, r->branch, r->index);
    CHECK(r->in_table);
    while (*link != r)
        link = &(*link)->hash_next;
    *link = r->hash_next;
    r->in_table = false;
    c->record_count--;
}

struct record *cache_find(struct cache *c, uint64_t branch, uint64_t index)
{
    struct record *r = *bucket_of(c, branch, index);
    while (r != NULL && (r->index != index || r->branch != branch))
        r = r->hash_next;
    if (r != NULL)
        update_lru(c, r);
    return r;
}

struct record *cache_create(struct cache *c, uint64_t branch, uint64_t index, uint32_t record_bytes, void *owner)
{
    uint32_t words = (uint32_t)BITMAP_WORDS(record_bytes / SECTOR_BYTES);
    struct record *r = calloc(1, sizeof *r + 3 * (size_t)words * sizeof(uint64_t));
    struct record_buffer *b = r == NULL ? NULL : buffer_new(record_bytes);
    if (b == NULL) {
        free(r);
        return NULL;
    }
    CHECK(cache_find(c, branch, index) == NULL);
    list_init(&r->lru);
    list_init(&r->dirty_link);
    r->branch = branch;
    r->index = index;
    r->owner = owner;
    r->buffer = b;
    r->record_bytes = record_bytes;
    r->words = words;
    r->pins = 1;
    r->patch_count = RECORD_PATCHES_UNKNOWN;
    r->in_table = true;
    r->valid = r->maps;
    r->dirty = r->maps + words;
    r->lost = r->maps + 2 * (size_t)words;
    struct record **bucket = bucket_of(c, branch, index);
    r->hash_next = *bucket;
    *bucket = r;
    c->record_count++;
    c->used_bytes += record_struct_bytes(r);
    charge(c, r);
    return r;
}

void cache_pin(struct cache *c, struct record *r)
{
    r->pins++;
    update_lru(c, r);
}

void cache_unpin(struct cache *c, struct record *r)
{
    CHECK_GT(r->pins, 0);
    r->pins--;
    if (r->pins > 0)
        return;
    CHECK(!r->filling);
    /* What could not be read is tried again next time, not remembered. */
    if (r->in_table && !r->dirty_state && !bitmap_none_set(r->lost, 0, record_sectors(r)))
        take_out(c, r);
    if (r->in_table)
        update_lru(c, r);
    else
        free_record(c, r);
}

static void end_dirty(struct cache *c, struct record *r)
{
    if (!r->dirty_state)
        return;
    c->dirty_bytes -= r->buffer->charged_bytes;
    r->dirty_state = false;
    r->urgent = false;
    list_remove(&r->dirty_link);
    memset(r->dirty, 0, r->words * sizeof(uint64_t));
}

void cache_drop(struct cache *c, struct record *r)
{
    CHECK(!r->filling);
    CHECK_EQ(r->reserved_bytes, 0);
    end_dirty(c, r);
    take_out(c, r);
    list_remove(&r->lru);
    if (r->pins == 0)
        free_record(c, r);
}

void cache_evict(struct cache *c)
{
    while (c->used_bytes > c->budget_bytes && !list_empty(&c->lru)) {
        struct record *r = (struct record *)c->lru.next;
        CHECK(evictable(r));
        take_out(c, r);
        free_record(c, r);
    }
}

void cache_fini(struct cache *c)
{
    if (c->buckets == NULL)
        return;
    for (uint32_t i = 0; i <= c->bucket_mask; i++) {
        while (c->buckets[i] != NULL) {
            struct record *r = c->buckets[i];
            CHECK_EQ(r->pins, 0);
            r->reserved_bytes = 0;
            cache_drop(c, r);
        }
    }
    CHECK_EQ(c->record_count, 0);
    CHECK_EQ(c->dirty_bytes, 0);
    CHECK_EQ(c->used_bytes, 0);
    free(c->buckets);
    c->buckets = NULL;
}

/* ---- content ---- */

static void copy_valid(const struct record *r, uint8_t *to)
{
    uint32_t sectors = record_sectors(r);
    for (size_t first = bitmap_next_set(r->valid, 0, sectors); first < sectors;) {
        size_t end = bitmap_next_clear(r->valid, first, sectors);
        memcpy(to + first * SECTOR_BYTES, r->buffer->bytes + first * SECTOR_BYTES, (end - first) * SECTOR_BYTES);
        first = bitmap_next_set(r->valid, end, sectors);
    }
}

/* Copy on write: a picture of the record is on its way to the log and keeps the old buffer. */
static bool own_buffer(struct cache *c, struct record *r)
{
    if (r->buffer->references == 1)
        return true;
    struct record_buffer *b = buffer_new(r->record_bytes);
    if (b == NULL)
        return false;
    copy_valid(r, b->bytes);
    struct record_buffer *old = r->buffer;
    /* dirty_bytes goes with the record's buffer; the old one stays charged to used_bytes until the picture is done with
     * it. */
    if (r->dirty_state)
        c->dirty_bytes -= old->charged_bytes;
    r->buffer = b;
    b->charged_bytes = buffer_cost(r);
    c->used_bytes += b->charged_bytes;
    if (r->dirty_state)
        c->dirty_bytes += b->charged_bytes;
    record_buffer_put(c, old);
    return true;
}

uint8_t *record_write(struct cache *c, struct record *r, uint32_t first, uint32_t count)
{
    CHECK(!r->filling);
    CHECK_LE(first + count, record_sectors(r));
    if (!own_buffer(c, r))
        return NULL;
    bitmap_set_range(r->valid, first, count);
    bitmap_set_range(r->dirty, first, count);
    bitmap_clear_range(r->lost, first, count);
    if (!r->dirty_state) {
        r->dirty_state = true;
        c->dirty_bytes += r->buffer->charged_bytes;
        update_lru(c, r);
    }
    charge(c, r);
    return r->buffer->bytes + (size_t)first * SECTOR_BYTES;
}

uint8_t *record_fill(struct cache *c, struct record *r, uint32_t first, uint32_t count)
{
    CHECK(r->filling);
    CHECK_LE(first + count, record_sectors(r));
    bitmap_set_range(r->valid, first, count);
    bitmap_clear_range(r->lost, first, count);
    charge(c, r);
    return r->buffer->bytes + (size_t)first * SECTOR_BYTES;
}

void record_set_clean(struct cache *c, struct record *r)
{
    CHECK(r->dirty_state);
    end_dirty(c, r);
    update_lru(c, r);
}

void cache_audit(const struct cache *c)
{
    uint64_t dirty_bytes = 0, count = 0, lru = 0;
    for (uint32_t i = 0; i <= c->bucket_mask; i++) {
        for (const struct record *r = c->buckets[i]; r != NULL; r = r->hash_next) {
            count++;
            CHECK(r->in_table);
            CHECK_EQ(r->buffer->charged_bytes, buffer_cost(r));
            CHECK_EQ(evictable(r), !list_empty(&r->lru));
            CHECK_EQ(r->dirty_state, !list_empty(&r->dirty_link));
            CHECK_EQ(r->dirty_state, !bitmap_none_set(r->dirty, 0, record_sectors(r)));
            for (uint32_t k = 0; k < r->words; k++) {
                CHECK_EQ(r->valid[k] & r->lost[k], 0);
                CHECK_EQ(r->dirty[k] & ~r->valid[k], 0);
            }
            dirty_bytes += r->dirty_state ? r->buffer->charged_bytes : 0;
        }
    }
    for (const struct list *l = c->lru.next; l != &c->lru; l = l->next)
        lru++;
    CHECK_LE(lru, count);
    CHECK_EQ(count, c->record_count);
    CHECK_EQ(dirty_bytes, c->dirty_bytes);
}
