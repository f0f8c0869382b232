/*
 * A pointer names stored bytes: where in the log, how many, how encoded, and what they must hash to. 32 bytes,
 * doc/format/pointer.md. The checksum is kept here, in the parent, so that a stale or misdirected block cannot vouch
 * for itself.
 */
#ifndef ASHLAR_FORMAT_POINTER_H
#define ASHLAR_FORMAT_POINTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "codec/checksum.h"

#define POINTER_BYTES 32

/* Numbers are durable: never reuse one. An unknown kind is refused. */
enum pointer_kind {
    POINTER_ABSENT = 0,      /* never written: reads as zeroes; all 32 bytes are 0 */
    POINTER_HOLE = 1,        /* dated hole: trimmed; address is that of the trim entry; length and checksum 0 */
    POINTER_PROVISIONED = 2, /* reads as zeroes, holds a reservation of one raw record; address as for a hole */
    POINTER_DATA = 3,        /* a record (in the pool's own trees: a catalog or table record) */
    POINTER_NODE = 4,        /* a map node */
    POINTER_PATCH = 5,       /* some sectors of a record; only inside struct patch */
    POINTER_INLINE = 6,      /* reserved: bytes in place of address and checksum; refused in version 1 */
    POINTER_LOST = 7, /* what was here is lost: a map node that named it could not be read any more. Reads as EIO until
                         written; address is that of the lost node; no bytes */
};

/* Bits of pointer.flags. Unknown bits are refused. */
#define POINTER_LOSSY \
    0x01 /* the record's bytes are followed by RECORD_LOSS_MAP_BYTES: one bit a sector, set = lost, reads as EIO */
#define POINTER_SECTOR_RANGES \
    0x02 /* reserved: a patch whose payload begins with a list of sector ranges; refused in version 1 */

#define CHECKSUM_KIND_NONE 0 /* only where there are no bytes */
#define CHECKSUM_KIND_XXH3_128 1

struct pointer {
    uint64_t address;    /* log address: segment number * segment size + offset */
    uint32_t length;     /* stored bytes, < 2^24 */
    uint8_t kind;        /* enum pointer_kind */
    uint8_t codec;       /* enum codec_id */
    uint8_t codec_param; /* reserved for a dictionary slot: 0 */
    uint8_t checksum_kind;
    uint8_t flags;
    struct checksum checksum;
};

/* Sectors [first_sector, first_sector + sector_count) of a record, newer than what the record's pointer names. */
struct patch {
    uint16_t first_sector;
    uint16_t sector_count;  /* >= 1 */
    struct pointer pointer; /* kind POINTER_PATCH; raw size is sector_count * SECTOR_BYTES */
};

/* Exactly POINTER_BYTES. */
void pointer_encode(struct sink *out, const struct pointer *p);
/* Parses and validates by itself (kind known, reserved bits 0, absent is all zero, lengths and checksum kind fit the
 * kind). 0 or -EBADMSG. */
int pointer_decode(struct source *in, struct pointer *ret_pointer);
/* The validation of pointer_decode alone: the encoder's side of the pair. A node's codec is CODEC_OFF: its raw size is
 * written nowhere. */
bool pointer_valid(const struct pointer *p);
/* A valid pointer of kind POINTER_PATCH whose sectors lie inside a record of RECORD_BYTES_MAX and whose length fits
 * them: exactly their bytes if stored raw (CODEC_OFF), fewer if compressed. */
bool patch_valid(const struct patch *p);

static inline bool pointer_has_bytes(const struct pointer *p)
{
    return p->kind == POINTER_DATA || p->kind == POINTER_NODE || p->kind == POINTER_PATCH;
}

/* true if both name the same bytes (or the same kind of nothing with the same date). */
bool pointer_equal(const struct pointer *a, const struct pointer *b);

#endif
