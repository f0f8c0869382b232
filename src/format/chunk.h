/*
 * A chunk: what is written to the log in one piece. doc/format/chunk.md.
 *
 *     header (CHUNK_HEADER_BYTES) | entry table | echo | payload, packed to the byte | zeroes | trailer | footer
 * (CHUNK_FOOTER_BYTES)
 *
 * Chunks begin and end on write units. Header and table are on the device twice, so that one bad write unit can neither
 * hide entries whose payload is intact nor break the chain. A chunk of more than one write unit has a second copy in
 * its trailer, which starts in a write unit after the last one that header and table touch; the footer behind it lets a
 * reader who knows only where chunks may end find it. For a chunk of one write unit the second copy is the echo in the
 * chunk that follows it in the chain; a bridge, which the log turns on, always has a trailer. Chunks of the node head
 * have neither: each is written twice.
 *
 * The chain value of a chunk is XXH3-128 over its header (which holds the chain value before it, the incarnation and
 * its own address) and its table (which holds the checksum of every payload): it is stored at the end of the header as
 * its checksum. So the chain covers the payload through the table, and a chunk whose payload rotted can still be told
 * from one that never was written.
 */
#ifndef ASHLAR_FORMAT_CHUNK_H
#define ASHLAR_FORMAT_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/checksum.h"
#include "format/limits.h"

struct error;

#define CHUNK_HEADER_BYTES 192
#define CHUNK_FOOTER_BYTES 32

enum chunk_head {
    CHUNK_HEAD_DATA = 0,
    CHUNK_HEAD_NODE = 1,
    CHUNK_HEAD_RELOCATE_1 = 2, /* reserved for the cleaner */
    CHUNK_HEAD_RELOCATE_2 = 3,
    CHUNK_HEAD_RELOCATE_3 = 4,
};

#define CHUNK_FLAG_COPY 0x01 /* the second copy of the chunk before it (node head) */
#define CHUNK_FLAG_BRIDGE \
    0x02 /* one BRIDGE entry, no payload: the chain goes on in another segment under a new incarnation */

struct chunk_header {
    uint8_t head; /* enum chunk_head */
    uint32_t flags;
    uint8_t pool_uuid[16];
    uint64_t address;
    uint64_t incarnation;
    struct checksum previous_chain; /* data head; zero for the others */
    uint64_t durable_to; /* data-head address below which everything was known flushed when this was sealed */
    uint64_t wall_ns;
    uint64_t features;    /* incompatible feature bits this chunk makes use of */
    uint64_t sequence;    /* running number of chunks in this head, for people */
    uint32_t chunk_bytes; /* whole chunk, multiple of the write unit */
    uint32_t table_bytes;
    uint32_t payload_bytes;
    uint32_t entry_count;
    uint32_t echo_bytes; /* header and table of the chunk before, if that is one write unit long; else 0 */
    uint32_t next_slots[LOOKAHEAD_SLOTS_MAX]; /* data head: slots of the segments that follow this one; SLOT_NONE where
                                                 fewer */
    uint64_t
        next_segments_first; /* segment number of next_slots[0]; the following ones are given in next_segment_deltas */
    uint8_t next_segment_deltas[LOOKAHEAD_SLOTS_MAX]; /* segment number of next_slots[k] = that of k - 1, plus this ([0]
                                                         is 0) */
    struct checksum chain;                            /* chain value of this chunk = checksum of header and table */
};

enum entry_kind {
    ENTRY_DATA = 1,   /* a record of a branch; in the node head: a catalog or table record */
    ENTRY_PATCH = 2,  /* sectors of a record */
    ENTRY_TRIM = 3,   /* records [index, index + count) become holes dated with the entry's address */
    ENTRY_ZERO = 4,   /* the same, provisioned */
    ENTRY_NODE = 5,   /* map node `index` of `level` */
    ENTRY_BRIDGE = 6, /* index = segment that follows, count = its slot */
};

struct chunk_entry {
    uint8_t kind;                      /* enum entry_kind */
    uint8_t level;                     /* NODE */
    uint8_t codec, codec_param, flags; /* as in struct pointer */
    uint64_t branch;
    uint64_t index;
    uint64_t count;                      /* TRIM, ZERO: records; BRIDGE: slot; else 1 */
    uint16_t first_sector, sector_count; /* PATCH */
    uint32_t length;                     /* stored bytes; 0 for TRIM, ZERO, BRIDGE */
    uint32_t
        payload_offset; /* of its bytes from the start of the chunk; its log address is header.address + this. 0 for
                           entries without bytes: a hole is dated with the address of the chunk that holds its trim */
    struct checksum checksum; /* of the stored bytes; zero where there are none */
};

/* Bytes the table of these entries takes (entries in log order; payload_offset is not looked at). */
size_t chunk_table_bytes(const struct chunk_entry *entries, size_t count);
/* Upper bound of what one more entry of this kind can add to a table. */
#define CHUNK_TABLE_ENTRY_BYTES_MAX 72

/* Which second copy of header and table a chunk is to have. */
enum chunk_copy {
    CHUNK_COPY_NONE,    /* node head: the chunk itself is written twice */
    CHUNK_COPY_ECHO,    /* data head: a trailer, or, if the chunk is one write unit long, the echo in the next one */
    CHUNK_COPY_TRAILER, /* bridge */
};

/* Size of the whole chunk for a table, and for echo and payload together, of these sizes. */
uint32_t chunk_size_bytes(size_t table_bytes, size_t echo_and_payload_bytes, uint32_t write_unit_bytes,
                          enum chunk_copy copy);
/* The copy that a chunk with this head and these flags has. */
enum chunk_copy chunk_copy_of(uint8_t head, uint32_t flags);
/* Longest echo: a chunk whose header and table are longer than this has a trailer. */
static inline uint32_t chunk_echo_bytes_max(uint32_t write_unit_bytes)
{
    return write_unit_bytes / 2;
}

/*
 * Encodes everything but echo and payload into buf (header->chunk_bytes long; the echo, header->echo_bytes of it, is
 * already in place at CHUNK_HEADER_BYTES + table_bytes, the payload behind it in the order of the entries): header,
 * table, zeroes, trailer, footer. Takes table_bytes, payload_bytes, entry_count and chunk_bytes from the entries, sets
 * them and header->chain.
 */
void chunk_encode(struct chunk_header *header, const struct chunk_entry *entries, size_t count, uint8_t *buf,
                  uint32_t write_unit_bytes);

/*
 * Decodes a header from the first CHUNK_HEADER_BYTES of a chunk: magic, version, bounds; not yet its checksum, which
 * needs the table. 0, -ENODATA (no chunk header here), -EBADMSG (values out of bounds), -EOPNOTSUPP (newer version or
 * features).
 */
int chunk_header_decode(const uint8_t *buf, size_t buf_bytes, uint32_t write_unit_bytes,
                        struct chunk_header *ret_header, struct error *err);

/*
 * Verifies header and table together (buf holds at least CHUNK_HEADER_BYTES + table_bytes) and decodes the entries into
 * ret_entries (room for header->entry_count). 0, -EBADMSG. Entries come with bounds checked: index and count without
 * wrap-around, lengths that add up to payload_bytes, sectors inside RECORD_BYTES_MAX.
 */
int chunk_table_decode(const uint8_t *buf, size_t buf_bytes, const struct chunk_header *header,
                       struct chunk_entry *ret_entries, struct error *err);

/*
 * The chunk before `header`'s in the chain, from the echo at buf + CHUNK_HEADER_BYTES + header->table_bytes (buf holds
 * the echo; header verified). 0: it verifies, and is the one whose chain value `header` names. -ENODATA: no echo.
 * -EBADMSG: a damaged one. What else is to hold of that chunk (its place, the chain before it) is the caller's to look
 * at.
 */
int chunk_echo_decode(const uint8_t *buf, size_t buf_bytes, const struct chunk_header *header,
                      uint32_t write_unit_bytes, struct chunk_header *ret_header, struct chunk_entry *ret_entries);

/*
 * Looks at the last CHUNK_FOOTER_BYTES before a possible chunk end. 0 and the footer's values if they are a footer;
 * *ret_trailer_bytes is the length of the header-and-table copy that ends where the footer begins. -ENODATA otherwise.
 */
int chunk_footer_decode(const uint8_t *footer, uint64_t *ret_address, uint32_t *ret_chunk_bytes,
                        uint32_t *ret_trailer_bytes);
/* true if the CHUNK_FOOTER_BYTES at footer are the footer of exactly this chunk (whose header came from its trailer and
 * verified): address, sizes and chain value. */
bool chunk_footer_matches(const uint8_t *footer, const struct chunk_header *header);

#endif
