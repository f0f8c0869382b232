/*
 * Records in memory, decompressed, keyed by (branch, record index): the volatile cache that acknowledged writes live in
 * until they are in the log, and the read cache.
 *
 * A record knows which of its sectors are valid (memory holds their newest content), which are dirty (newer than the
 * log), and which are lost (the log's content did not verify and nothing newer is known). Valid and lost exclude each
 * other; dirty sectors are valid.
 *
 * States of a record, all flags of one struct:
 *
 *     filling       somebody reads its missing sectors from the device; readers, writers and write-out wait; nobody
 *                   else changes it
 *     dirty         some sector is; then it is in its volume's dirty list, or, when its write-out is asked for, in the
 *                   urgent list
 *     in write-out  (captures > 0) a picture of it is on its way into the log; a writer who changes the buffer
 *                   meanwhile gets a copy of his own (the picture keeps the old one)
 *     dropped       out of the table (trimmed): lives on only for those who hold it, and is nobody's content any more
 *
 * Invariants
 *   1. At most one record of a key is in the table.
 *   2. A record is in the LRU list exactly if it is in the table, not dirty, not pinned and not filling: only those are
 * evicted.
 *   3. used_bytes is the sum of charged_bytes of all buffers and records; dirty_bytes that of records with dirty
 * sectors.
 *   4. A dirty record is in exactly one of the dirty and urgent lists.
 *
 * Locking: the pool lock for everything here.
 */
#ifndef ASHLAR_CACHE_CACHE_H
#define ASHLAR_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bitmap.h"
#include "base/list.h"
#include "format/limits.h"

struct cache;

/* The bytes of a record. Shared by the record and the pictures taken of it; who writes needs it for himself alone. */
struct record_buffer {
    uint8_t *bytes;
    uint32_t size_bytes;
    uint32_t references;
    uint32_t charged_bytes;
};

#define RECORD_PATCHES_UNKNOWN UINT8_MAX

struct record {
    struct list lru;
    struct list dirty_link; /* volume's dirty list, or the pool's urgent list */
    struct record *hash_next;
    uint64_t branch, index;
    void *owner; /* the volume */
    struct record_buffer *buffer;
    uint32_t record_bytes;
    uint32_t words;          /* of each bitmap */
    uint64_t dirty_at;       /* the pool's clock when it became dirty, or urgent; grows along each list */
    uint64_t sealed_in;      /* chunk that holds the newest sealed content; 0: none since open */
    uint64_t reserved_bytes; /* of the pool's space, while dirty */
    uint32_t pins;
    uint32_t captures;
    uint8_t patch_count;      /* patches on it in the map of sealed entries, or RECORD_PATCHES_UNKNOWN */
    bool patches_may_overlap; /* patch_count is an upper bound: some of them may cover others, which then are gone */
    bool in_table, filling, urgent, dirty_state, provision;
    uint64_t *valid, *dirty, *lost;
    uint64_t maps[]; /* valid, dirty, lost */
};

struct cache {
    struct record **buckets;
    uint32_t bucket_mask;
    uint64_t record_count;
    struct list lru; /* least recently used first */
    uint64_t used_bytes, budget_bytes;
    uint64_t dirty_bytes, dirty_limit_bytes;
    uint64_t hits, misses;
};

int cache_init(struct cache *c, uint64_t budget_bytes) __attribute__((warn_unused_result));
/* Nothing may be pinned. Dirty records are dropped: the caller flushed, or the pool has failed. */
void cache_fini(struct cache *c);

struct record *cache_find(struct cache *c, uint64_t branch, uint64_t index);
/* A new record without any valid sector, pinned once. NULL: no memory. */
struct record *cache_create(struct cache *c, uint64_t branch, uint64_t index, uint32_t record_bytes, void *owner);
void cache_pin(struct cache *c, struct record *r);
/* May free the record. */
void cache_unpin(struct cache *c, struct record *r);
/* Takes a record out of the table: its content is void. It must not be filling. Its dirty state ends; reserved_bytes is
 * the caller's to give back first. */
void cache_drop(struct cache *c, struct record *r);
/* Drops clean records until the budget holds, as far as there are any. */
void cache_evict(struct cache *c);

/* Sectors [first, first + count) get new content: makes the buffer the record's own and marks them valid and dirty.
 * Returns where to copy to, NULL: no memory (nothing changed). */
uint8_t *record_write(struct cache *c, struct record *r, uint32_t first, uint32_t count);
/* The same for content that comes from the log: valid, not dirty. Only while filling. */
uint8_t *record_fill(struct cache *c, struct record *r, uint32_t first, uint32_t count);
/* Only for dirty sectors: they have been captured. Takes the record out of its list. */
void record_set_clean(struct cache *c, struct record *r);

static inline uint32_t record_sectors(const struct record *r)
{
    return r->record_bytes / SECTOR_BYTES;
}

static inline bool record_is_dirty(const struct record *r)
{
    return r->dirty_state;
}

static inline bool record_all_valid(const struct record *r)
{
    return bitmap_all_set(r->valid, 0, record_sectors(r));
}

void record_buffer_get(struct record_buffer *b);
void record_buffer_put(struct cache *c, struct record_buffer *b);

/* Checks the invariants; aborts on a violation. For tests and debug builds. */
void cache_audit(const struct cache *c);

#endif
