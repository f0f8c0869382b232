/*
 * What the encoder and the decoder of chunks share: numbers of the layout, the rules of validity, the order of runs.
 * Bytes and rules: doc/format/chunk.md.
 */
#ifndef ASHLAR_FORMAT_CHUNK_IMPL_H
#define ASHLAR_FORMAT_CHUNK_IMPL_H

#include "format/chunk.h"

#define CHUNK_MAGIC "ASHCHUNK"
#define CHUNK_FOOTER_MAGIC "ASHTRAIL"
#define CHUNK_MAGIC_BYTES 8
#define CHUNK_TABLE_ENCODING 1
#define CHUNK_HEADER_RESERVED_BYTES 12
#define CHUNK_CHECKSUM_BYTES 16
/* The part of the header that the chain value is taken over. */
#define CHUNK_HEADER_SUMMED_BYTES (CHUNK_HEADER_BYTES - CHUNK_CHECKSUM_BYTES)

_Static_assert(CHUNK_HEADER_BYTES == CHUNK_MAGIC_BYTES + 2 + 1 + 1 + 4 + 16 + 8 + 8 + 16 + 8 + 8 + 8 + 8 + 5 * 4 +
                                         4 * LOOKAHEAD_SLOTS_MAX + 8 + LOOKAHEAD_SLOTS_MAX +
                                         CHUNK_HEADER_RESERVED_BYTES + CHUNK_CHECKSUM_BYTES,
               "fields fill a chunk header");
_Static_assert(CHUNK_FOOTER_BYTES == CHUNK_MAGIC_BYTES + 8 + 4 + 4 + 8, "fields fill a chunk footer");

static inline bool chunk_entry_has_bytes(const struct chunk_entry *e)
{
    return e->kind == ENTRY_DATA || e->kind == ENTRY_PATCH || e->kind == ENTRY_NODE;
}

static inline bool chunk_has_trailer(const struct chunk_header *h, uint32_t write_unit_bytes)
{
    return h->head != CHUNK_HEAD_NODE && h->chunk_bytes > write_unit_bytes;
}

/* The first index behind an entry: what the next entry of the same run has. A run of patches stays on one record. */
static inline uint64_t chunk_entry_end(const struct chunk_entry *e)
{
    return e->kind == ENTRY_PATCH ? e->index : e->index + e->count;
}

/* NULL if the header's values fit together, else which do not. */
const char *chunk_header_fault(const struct chunk_header *h, uint32_t write_unit_bytes);
/* NULL if the entry is well formed by itself and may lie in such a chunk, else what is wrong. */
const char *chunk_entry_fault(const struct chunk_entry *e, uint8_t head, uint32_t chunk_flags);
/* true if `next` goes on in the run that `last` is in: the encoder then does not begin a new run, and a decoder refuses
 * one that does, so that a table has one encoding only. Both are valid entries. */
bool chunk_run_continues(const struct chunk_entry *last, const struct chunk_entry *next);
/* The chain value of a header and its table, both as bytes. */
struct checksum chunk_chain_of(const uint8_t *header, const uint8_t *table, size_t table_bytes);

#endif
