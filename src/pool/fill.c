/*
 * Reading records: everything a set of records lacks is looked up, read in one go, decompressed side by side, and put
 * into the sectors that memory does not know better.
 *
 * The records are marked `filling` before (R29): who wants them meanwhile waits; nothing is put into the cache after
 * the fact. Old content goes below new: base first, then its patches in order, and only into sectors that are not
 * valid. What does not verify makes the sectors it was to fill `lost`: they read as EIO, the others as they are.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

/* A record under work: what the map says, and the stored bytes of base and patches as they come from the device. */
struct fill {
    struct record *record;
    struct map_entry entry;
    uint8_t *stored[1 + MAP_ENTRY_PATCHES_MAX];
    int results[1 + MAP_ENTRY_PATCHES_MAX]; /* of reading each */
    uint8_t *raw;                           /* the record as the log has it */
    uint64_t *raw_valid;                    /* which sectors of it are good */
    int result;                             /* -ENOMEM and lookup errors */
};

struct fill_job {
    struct pool *pool;
    struct fill *fills;
    uint32_t count;
};

static struct volume *volume_of(const struct record *r)
{
    return r->owner;
}

static void note(struct pool *pool, const struct fill *f, uint64_t address, int error)
{
    pool_note_damage(pool, volume_of(f->record), f->record->index, address, error);
}

/* ---- reading ---- */

static int add_item(struct reader_item *items, uint32_t *count, const struct pointer *p, uint8_t **bytes)
{
    *bytes = malloc(p->length);
    if (*bytes == NULL)
        return -ENOMEM;
    items[(*count)++] = (struct reader_item){.pointer = p, .bytes = *bytes};
    return 0;
}

/*
 * Memory knows every sector of the patch: it is not looked at. It may be sealed and not on the device yet, and would
 * then be called damaged. (Nobody changes a record while it is filled, and one whose patch is on its way stays in
 * memory.)
 */
static bool patch_is_known(const struct fill *f, const struct patch *patch)
{
    uint32_t end = (uint32_t)patch->first_sector + patch->sector_count;
    return end <= record_sectors(f->record) && bitmap_next_clear(f->record->valid, patch->first_sector, end) >= end;
}

static int collect_items(struct fill *f, struct reader_item *items, uint32_t *count)
{
    int result = 0;
    if (f->entry.base.kind == POINTER_DATA)
        result = add_item(items, count, &f->entry.base, &f->stored[0]);
    for (uint32_t i = 0; i < f->entry.patch_count && result == 0; i++) {
        if (patch_is_known(f, &f->entry.patches[i]))
            continue;
        result = add_item(items, count, &f->entry.patches[i].pointer, &f->stored[1 + i]);
    }
    return result;
}

static void hand_back_results(struct fill *f, const struct reader_item *items, uint32_t *at)
{
    if (f->stored[0] != NULL)
        f->results[0] = items[(*at)++].result;
    for (uint32_t i = 0; i < f->entry.patch_count; i++) {
        if (f->stored[1 + i] != NULL)
            f->results[1 + i] = items[(*at)++].result;
    }
}

static void read_stored(struct pool *pool, struct fill *fills, uint32_t count)
{
    uint32_t room = 0, used = 0, at = 0;
    for (uint32_t i = 0; i < count; i++)
        room += fills[i].result == 0 ? 1 + fills[i].entry.patch_count : 0;
    struct reader_item *items = malloc((room + 1) * sizeof *items);
    for (uint32_t i = 0; i < count; i++) {
        if (fills[i].result == 0)
            fills[i].result = items == NULL ? -ENOMEM : collect_items(&fills[i], items, &used);
    }
    if (items != NULL)
        reader_read_many(&pool->reader, items, used);
    for (uint32_t i = 0; i < count && items != NULL; i++)
        hand_back_results(&fills[i], items, &at);
    free(items);
}

/* ---- decompressing ---- */

static bool has_lost_sectors(const struct pointer *p)
{
    return p->kind == POINTER_DATA && (p->flags & POINTER_LOSSY) != 0;
}

static void unpack_base(struct fill_job *job, struct fill *f, struct codec_context *codec)
{
    const struct pointer *p = &f->entry.base;
    uint32_t sectors = record_sectors(f->record), loss_bytes = RECORD_LOSS_MAP_BYTES(f->record->record_bytes);
    int result = f->results[0];
    if (p->kind == POINTER_LOST) {
        note(job->pool, f, p->address, -EBADMSG);
        return;
    }
    if (p->kind == POINTER_DATA && result == 0)
        result = codec_decompress(codec, p->codec, f->stored[0], p->length, f->raw,
                                  f->record->record_bytes + (has_lost_sectors(p) ? loss_bytes : 0));
    if (p->kind == POINTER_DATA && result != 0) {
        note(job->pool, f, p->address, result);
        return;
    }
    bitmap_set_range(f->raw_valid, 0, sectors);
    if (!has_lost_sectors(p))
        return;
    const uint8_t *lost = f->raw + f->record->record_bytes;
    for (uint32_t i = 0; i < sectors; i++) {
        if ((lost[i / 8] >> i % 8 & 1) != 0)
            bitmap_clear_range(f->raw_valid, i, 1);
    }
}

static void unpack_patch(struct fill_job *job, struct fill *f, uint32_t i, struct codec_context *codec)
{
    const struct patch *patch = &f->entry.patches[i];
    uint32_t first = patch->first_sector, count = patch->sector_count;
    int result = f->results[1 + i];
    if (first + count > record_sectors(f->record))
        result = -EBADMSG;
    if (result == 0)
        result = codec_decompress(codec, patch->pointer.codec, f->stored[1 + i], patch->pointer.length,
                                  f->raw + (size_t)first * SECTOR_BYTES, (size_t)count * SECTOR_BYTES);
    if (result == 0) {
        bitmap_set_range(f->raw_valid, first, count);
        return;
    }
    note(job->pool, f, patch->pointer.address, result);
    if (first < record_sectors(f->record))
        bitmap_clear_range(f->raw_valid, first, min_u64(count, record_sectors(f->record) - first));
}

static void unpack(void *arg, uint32_t item, struct codec_context *codec)
{
    struct fill_job *job = arg;
    struct fill *f = &job->fills[item];
    if (f->result != 0)
        return;
    size_t room = f->record->record_bytes + RECORD_LOSS_MAP_BYTES(f->record->record_bytes);
    f->raw = calloc(1, room);
    f->raw_valid = calloc(f->record->words, sizeof *f->raw_valid);
    if (f->raw == NULL || f->raw_valid == NULL || codec == NULL) {
        f->result = -ENOMEM;
        return;
    }
    unpack_base(job, f, codec);
    for (uint32_t i = 0; i < f->entry.patch_count; i++) {
        if (f->stored[1 + i] != NULL)
            unpack_patch(job, f, i, codec);
    }
}

/* ---- putting it together ---- */

/* Lock held. Good sectors become valid where memory knows nothing newer; the others are lost. */
static void merge_into_record(struct pool *pool, struct fill *f)
{
    struct record *r = f->record;
    uint32_t sectors = record_sectors(r);
    size_t first = bitmap_next_clear(r->valid, 0, sectors);
    while (first < sectors) {
        bool good = bitmap_test(f->raw_valid, first);
        size_t end = first + 1;
        while (end < sectors && !bitmap_test(r->valid, end) && bitmap_test(f->raw_valid, end) == good)
            end++;
        if (good) {
            uint8_t *to = record_fill(&pool->cache, r, (uint32_t)first, (uint32_t)(end - first));
            memcpy(to, f->raw + first * SECTOR_BYTES, (end - first) * SECTOR_BYTES);
        } else {
            bitmap_set_range(r->lost, first, end - first);
        }
        first = bitmap_next_clear(r->valid, end, sectors);
    }
}

static void free_fill(struct fill *f)
{
    for (uint32_t i = 0; i < 1 + MAP_ENTRY_PATCHES_MAX; i++)
        free(f->stored[i]);
    free(f->raw);
    free(f->raw_valid);
}

/* Lock held. */
static void finish(struct pool *pool, struct fill *f, bool content)
{
    struct record *r = f->record;
    /* Only who holds the sealing token and saw no capture under way may count again what was known. */
    if (f->result == 0 && (r->patch_count == RECORD_PATCHES_UNKNOWN || !content)) {
        r->patch_count = (uint8_t)min_u64(f->entry.patch_count, RECORD_PATCHES_UNKNOWN - 1);
        r->patches_may_overlap = false;
    }
    /* Nobody can count them: as if there were too many for another, so that the record is written whole. */
    if (!content && f->result != 0 && f->result != -ENOMEM) {
        r->patch_count = RECORD_PATCHES_UNKNOWN - 1;
        r->patches_may_overlap = false;
    }
    if (content && f->result == 0)
        merge_into_record(pool, f);
    /* A map that cannot be read is damage as much as a record: what memory does not know is lost. */
    if (content && f->result != 0 && f->result != -ENOMEM) {
        for (uint32_t i = 0; i < record_sectors(r); i++) {
            if (!bitmap_test(r->valid, i))
                bitmap_set_range(r->lost, i, 1);
        }
    }
    r->filling = false;
}

static int run(struct pool *pool, struct record **records, uint32_t count, bool content)
{
    struct fill *fills = calloc(count, sizeof *fills);
    int result = 0;
    env_mutex_lock(&pool->lock);
    uint64_t epoch = pool_reader_enter(pool);
    env_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < count && fills != NULL; i++) {
        CHECK(records[i]->filling);
        fills[i].record = records[i];
        fills[i].result = volume_resolve(volume_of(records[i]), records[i]->index, &fills[i].entry);
        if (fills[i].result != 0 && fills[i].result != -ENOMEM)
            note(pool, &fills[i], 0, fills[i].result);
    }
    if (content && fills != NULL) {
        struct fill_job job = {.pool = pool, .fills = fills, .count = count};
        read_stored(pool, fills, count);
        workers_run(pool->workers, unpack, &job, count);
    }
    env_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (fills != NULL)
            finish(pool, &fills[i], content);
        else
            records[i]->filling = false;
        if (fills == NULL || fills[i].result == -ENOMEM)
            result = -ENOMEM;
    }
    pool_reader_leave(pool, epoch);
    env_cond_broadcast(&pool->cache_cond);
    env_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < count && fills != NULL; i++)
        free_fill(&fills[i]);
    free(fills);
    return result;
}

int pool_fill(struct pool *pool, struct record **records, uint32_t count)
{
    return run(pool, records, count, true);
}

int pool_find_patches(struct pool *pool, struct record **records, uint32_t count)
{
    return run(pool, records, count, false);
}

void pool_wait_filled(struct pool *pool, struct record *r)
{
    CHECK_GT(r->pins, 0);
    while (r->filling)
        env_cond_wait(&pool->cache_cond, &pool->lock);
}
