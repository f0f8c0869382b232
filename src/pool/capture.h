/*
 * A capture: the picture of a record, or of a run of its sectors, on its way into the log.
 *
 * Taken under the pool lock, so that it shows the record between two writes, never in the middle of one; then
 * compressed without it. A whole record keeps a reference to the buffer (a writer who comes meanwhile gets a copy of
 * his own); a run of dirty sectors is small and copied.
 *
 * Which of the two: a run of sectors (a patch) where at most a quarter of the record is dirty and the record does not
 * have PATCHES_PER_RECORD_MAX patches already; else the whole record, for which the rest must be in memory. If the rest
 * cannot be read, the record goes out with a map of its lost sectors: new data is never lost to old damage (R19).
 */
#ifndef ASHLAR_POOL_CAPTURE_H
#define ASHLAR_POOL_CAPTURE_H

#include "format/chunk.h"
#include "pool/pool_impl.h"

struct capture {
    struct list link;
    struct record *record; /* pinned, captures counted */
    struct volume *volume;
    struct record_buffer *buffer; /* whole record */
    uint8_t *copy;                /* sectors of a patch, or a lossy record with its loss map */
    uint32_t raw_bytes;
    bool is_patch, is_zero, provision;
    uint32_t first_sector, sector_count; /* patch */
    struct codec_choice codec;
    uint64_t reserved_bytes;
    /* after capture_compress: */
    uint8_t *packed;          /* NULL: stored as it is */
    struct chunk_entry entry; /* all but the payload offset */
};

enum capture_plan {
    CAPTURE_NOW,           /* can be captured as it is */
    CAPTURE_NEEDS_PATCHES, /* first find out how many patches it has */
    CAPTURE_NEEDS_FILL,    /* first read the rest */
};

/* What a dirty record needs. Lock held. */
enum capture_plan capture_plan(const struct record *r);

/* Captures a dirty record for which the plan is CAPTURE_NOW: appends one or more captures to the list; the record is
 * clean. Lock held. -ENOMEM: nothing changed. */
int capture_record(struct pool *pool, struct record *r, struct list *captures) __attribute__((warn_unused_result));

/* Compresses and hashes. No lock. codec NULL: stored raw. */
void capture_compress(struct capture *c, struct codec_context *codec);

/* The bytes that go into the chunk: entry.length of them. */
const uint8_t *capture_bytes(const struct capture *c);

/* Lets the record go and frees the capture. Lock held. */
void capture_release(struct pool *pool, struct capture *c);

#endif
