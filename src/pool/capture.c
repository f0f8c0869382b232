/*
 * Captures (capture.h): choosing between patches and the whole record, taking the bytes, compressing them.
 */
#include "pool/capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

static uint32_t dirty_runs(const struct record *r)
{
    uint32_t sectors = record_sectors(r), runs = 0;
    for (size_t at = bitmap_next_set(r->dirty, 0, sectors); at < sectors; runs++)
        at = bitmap_next_set(r->dirty, bitmap_next_clear(r->dirty, at, sectors), sectors);
    return runs;
}

static bool small_change(const struct record *r)
{
    return bitmap_count(r->dirty, record_sectors(r)) * 4 <= record_sectors(r) &&
           dirty_runs(r) <= PATCHES_PER_RECORD_MAX;
}

static bool as_patches(const struct record *r)
{
    return small_change(r) && r->patch_count != RECORD_PATCHES_UNKNOWN &&
           r->patch_count + dirty_runs(r) <= PATCHES_PER_RECORD_MAX;
}

static bool all_valid_or_lost(const struct record *r)
{
    uint32_t sectors = record_sectors(r);
    return bitmap_count(r->valid, sectors) + bitmap_count(r->lost, sectors) == sectors;
}

enum capture_plan capture_plan(const struct record *r)
{
    CHECK(record_is_dirty(r));
    if (as_patches(r))
        return CAPTURE_NOW;
    /* Of too many some may be gone since they were counted. While a capture is not sealed the map cannot be asked. */
    bool recount = r->patches_may_overlap && r->captures == 0;
    if (small_change(r) && (r->patch_count == RECORD_PATCHES_UNKNOWN || recount))
        return CAPTURE_NEEDS_PATCHES;
    return all_valid_or_lost(r) ? CAPTURE_NOW : CAPTURE_NEEDS_FILL;
}

static struct capture *capture_new(struct pool *pool, struct record *r)
{
    struct capture *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    list_init(&c->link);
    c->record = r;
    c->volume = r->owner;
    c->codec = c->volume->codec;
    c->provision = r->provision;
    c->entry.branch = r->branch;
    c->entry.index = r->index;
    c->entry.count = 1;
    cache_pin(&pool->cache, r);
    r->captures++;
    r->sealed_in = UINT64_MAX; /* until it is sealed, it is in no chunk */
    return c;
}

void capture_release(struct pool *pool, struct capture *c)
{
    CHECK_GT(c->record->captures, 0);
    CHECK(list_empty(&c->link));
    c->record->captures--;
    if (c->buffer != NULL)
        record_buffer_put(&pool->cache, c->buffer);
    cache_unpin(&pool->cache, c->record);
    free(c->copy);
    free(c->packed);
    free(c);
}

static void release_list(struct pool *pool, struct list *captures)
{
    while (!list_empty(captures)) {
        struct capture *c = (struct capture *)captures->next;
        list_remove(&c->link);
        capture_release(pool, c);
    }
}

static struct capture *capture_run(struct pool *pool, struct record *r, uint32_t first, uint32_t count)
{
    struct capture *c = capture_new(pool, r);
    if (c == NULL)
        return NULL;
    c->is_patch = true;
    c->first_sector = first;
    c->sector_count = count;
    c->raw_bytes = count * SECTOR_BYTES;
    c->copy = malloc(c->raw_bytes);
    if (c->copy == NULL) {
        capture_release(pool, c);
        return NULL;
    }
    memcpy(c->copy, r->buffer->bytes + (size_t)first * SECTOR_BYTES, c->raw_bytes);
    return c;
}

static int capture_patches(struct pool *pool, struct record *r, struct list *captures)
{
    uint32_t sectors = record_sectors(r);
    for (size_t first = bitmap_next_set(r->dirty, 0, sectors); first < sectors;) {
        size_t end = bitmap_next_clear(r->dirty, first, sectors);
        struct capture *c = capture_run(pool, r, (uint32_t)first, (uint32_t)(end - first));
        if (c == NULL)
            return -ENOMEM;
        list_append(captures, &c->link);
        first = bitmap_next_set(r->dirty, end, sectors);
    }
    return 0;
}

/* The record's bytes, zero where they are lost, and one bit a sector for what is lost. */
static int copy_lossy(const struct record *r, struct capture *c)
{
    uint32_t sectors = record_sectors(r);
    c->raw_bytes = r->record_bytes + RECORD_LOSS_MAP_BYTES(r->record_bytes);
    c->copy = calloc(1, c->raw_bytes);
    if (c->copy == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < sectors; i++) {
        if (bitmap_test(r->valid, i))
            memcpy(c->copy + (size_t)i * SECTOR_BYTES, r->buffer->bytes + (size_t)i * SECTOR_BYTES, SECTOR_BYTES);
        else
            c->copy[r->record_bytes + i / 8] |= (uint8_t)(1u << i % 8);
    }
    c->entry.flags = POINTER_LOSSY;
    return 0;
}

static int capture_whole(struct pool *pool, struct record *r, struct list *captures)
{
    struct capture *c = capture_new(pool, r);
    if (c == NULL)
        return -ENOMEM;
    list_append(captures, &c->link);
    if (!record_all_valid(r))
        return copy_lossy(r, c);
    c->raw_bytes = r->record_bytes;
    c->buffer = r->buffer;
    record_buffer_get(c->buffer);
    return 0;
}

int capture_record(struct pool *pool, struct record *r, struct list *captures)
{
    struct list fresh;
    bool patches = as_patches(r);
    CHECK_EQ(capture_plan(r), CAPTURE_NOW);
    list_init(&fresh);
    int result = patches ? capture_patches(pool, r, &fresh) : capture_whole(pool, r, &fresh);
    if (result != 0) {
        release_list(pool, &fresh);
        return result;
    }
    /* From here on the count is that of the map as it will be when this is sealed: the next capture comes after. */
    r->patches_may_overlap = patches && r->patch_count > 0;
    r->patch_count = patches ? (uint8_t)(r->patch_count + dirty_runs(r)) : 0;
    ((struct capture *)fresh.next)->reserved_bytes = r->reserved_bytes;
    r->reserved_bytes = 0;
    r->provision = false;
    record_set_clean(&pool->cache, r);
    while (!list_empty(&fresh)) {
        struct list *l = fresh.next;
        list_remove(l);
        list_append(captures, l);
    }
    return 0;
}

const uint8_t *capture_bytes(const struct capture *c)
{
    if (c->packed != NULL)
        return c->packed;
    return c->buffer != NULL ? c->buffer->bytes : c->copy;
}

void capture_compress(struct capture *c, struct codec_context *codec)
{
    const uint8_t *raw = c->buffer != NULL ? c->buffer->bytes : c->copy;
    struct codec_choice choice = c->codec;
    size_t length = 0;
    if (!c->is_patch && c->buffer != NULL && bytes_are_zero(raw, c->raw_bytes)) {
        c->is_zero = true;
        c->entry.kind = c->provision ? ENTRY_ZERO : ENTRY_TRIM;
        return;
    }
    /* A patch is read with every read of its record and rewritten soon: the fast codec is the right one for it. */
    if (c->is_patch && choice.id != CODEC_OFF)
        choice = (struct codec_choice){.id = CODEC_LZ4};
    if (codec != NULL && choice.id != CODEC_OFF) {
        c->packed = malloc(c->raw_bytes);
        if (c->packed != NULL)
            length = codec_compress(codec, choice, raw, c->raw_bytes, c->packed, c->raw_bytes);
    }
    if (length == 0) {
        free(c->packed);
        c->packed = NULL;
        choice.id = CODEC_OFF;
        length = c->raw_bytes;
    }
    c->entry.kind = c->is_patch ? ENTRY_PATCH : ENTRY_DATA;
    c->entry.codec = choice.id;
    c->entry.first_sector = (uint16_t)c->first_sector;
    c->entry.sector_count = (uint16_t)c->sector_count;
    c->entry.length = (uint32_t)length;
    c->entry.checksum = checksum_of(capture_bytes(c), length);
}
