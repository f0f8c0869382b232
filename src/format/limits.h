/*
 * Numbers of the durable format. None may change for a format version once released.
 */
#ifndef ASHLAR_FORMAT_LIMITS_H
#define ASHLAR_FORMAT_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define FORMAT_VERSION 1

#define SECTOR_BYTES 512 /* the unit of atomicity promised to clients, of patches and of validity */

#define WRITE_UNIT_BYTES_MIN 4096
#define WRITE_UNIT_BYTES_MAX 65536

#define RECORD_BYTES_MIN 4096
#define RECORD_BYTES_MAX (1024 * 1024)
#define RECORD_BYTES_DEFAULT 16384
/* A lossy record (POINTER_LOSSY) carries one bit a sector behind its bytes. */
#define RECORD_LOSS_MAP_BYTES(record_bytes) ((record_bytes) / SECTOR_BYTES / 8)

#define SEGMENT_BYTES_MIN (64 * 1024) /* test pools; create uses 4 MiB and more */
#define SEGMENT_BYTES_MAX (256u * 1024 * 1024)
#define SEGMENT_RECORDS_MIN 16 /* a segment is at least this many times the largest record */

#define CHUNK_BYTES_MAX (2 * 1024 * 1024) /* a decoder refuses more */
#define CHUNK_ENTRIES_MAX 16384

#define LOOKAHEAD_SLOTS_MAX 8 /* slots of the next segments, named in every chunk header */
#define SLOT_COUNT_MAX (1u << 20)
#define SLOT_NONE UINT32_MAX

#define LABEL_RING_SLOTS 32

#define MAP_LEAF_BITS 7  /* 128 pointers in a leaf */
#define MAP_INNER_BITS 8 /* 256 in an inner node */
#define MAP_LEVELS_MAX 7 /* leaf = level 0; 7 + 6 * 8 = 55 bits of record index */
#define MAP_FANOUT_MAX 256
#define PATCHES_PER_RECORD_MAX 8

#define VOLUME_BYTES_MAX (UINT64_C(1) << 62) /* multiple of SECTOR_BYTES */
#define VOLUME_NAME_BYTES_MAX 240

/* Branch numbers below BRANCH_FIRST_USER belong to the pool's own trees. Branch numbers are never used twice. */
#define BRANCH_CATALOG 1
#define BRANCH_SLOT_TABLE 2
#define BRANCH_FIRST_USER 16

/* Pointers in a node of this level; level 0 is a leaf. */
static inline uint32_t map_fanout(uint32_t level)
{
    return level == 0 ? 1u << MAP_LEAF_BITS : 1u << MAP_INNER_BITS;
}

/* Record indices covered by one node of this level, as a shift. */
static inline uint32_t map_level_bits(uint32_t level)
{
    return MAP_LEAF_BITS + level * MAP_INNER_BITS;
}

#endif
