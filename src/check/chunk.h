/*
 * Reading chunks, and what is left of damaged ones.
 *
 * A chunk's header and table lie on the device twice: in the data head at its start and in its trailer (or, of a chunk
 * of one write unit, in the echo of the next one), in the node head in the chunk and in the copy right behind it.
 * Either is enough.
 */
#ifndef ASHLAR_CHECK_CHUNK_H
#define ASHLAR_CHECK_CHUNK_H

#include "check/inspection.h"

/* A chunk that could be read; its entries are in ins->entries. A pair of the node head counts as one. */
struct check_chunk {
    uint32_t slot;
    uint32_t at;      /* bytes into the slot */
    uint64_t address; /* of the first copy */
    uint64_t device_offset_bytes;
    struct chunk_header header; /* of the first copy; if only the second was intact, what the first must have been, but
                                   for its chain value */
    bool first_intact;          /* header and table at the start */
    bool second_intact;         /* those of the trailer or of the second copy; true where neither is to be */
    uint32_t span_bytes;        /* on the device: chunk_bytes, in the node head twice that */
};

static inline bool check_chunk_is_pair(const struct check_chunk *c)
{
    return c->header.head == CHUNK_HEAD_NODE;
}

/* Chunks of data of one write unit have none. */
static inline bool check_chunk_has_trailer(const struct check_chunk *c, const struct inspection *ins)
{
    return c->header.head != CHUNK_HEAD_NODE && c->header.chunk_bytes > ins->write_unit_bytes;
}

/*
 * The chunk of `segment` that begins `at` bytes into the slot and ends by `limit` bytes: 0, or -ENODATA if neither of
 * its copies is intact there. Uses the window.
 */
int check_chunk_read(struct inspection *ins, struct check_window *window, uint32_t slot, uint64_t segment, uint32_t at,
                     uint32_t limit, struct check_chunk *ret_chunk);

/*
 * The chunk of one write unit that begins `at` bytes into the slot, from its echo at a device offset: 0, or -ENODATA if
 * that is not an intact echo of this chunk. Uses the window.
 */
int check_chunk_read_echo(struct inspection *ins, struct check_window *window, uint64_t echo_offset, uint32_t slot,
                          uint64_t segment, uint32_t at, struct check_chunk *ret_chunk);
/* Device offset of the echo in a chunk that has one. */
uint64_t check_chunk_echo_offset(const struct check_chunk *c);

/* All chunks of a segment in order. */
struct check_walk {
    struct inspection *ins;
    struct check_window *window;
    uint32_t slot;
    uint64_t segment;
    uint32_t at, limit; /* bytes into the slot */
    bool limit_known;   /* the segment reaches to the limit: less is damage; else it ends where no chunk follows */
};

enum check_step { CHECK_STEP_CHUNK, CHECK_STEP_GAP, CHECK_STEP_END };

/* The next chunk; or a gap [address, address + span_bytes) in which no chunk can be made out; or the end. */
enum check_step check_walk_next(struct check_walk *walk, struct check_chunk *ret_chunk);

/* The chunk whose span holds a place, by walking the slot; 0 or -ENODATA. */
int check_chunk_around(struct inspection *ins, struct check_window *window, uint64_t place,
                       struct check_chunk *ret_chunk);

/* How far the segment in a slot reaches, as the table and the label say; *ret_known false: nobody says. */
uint32_t check_segment_limit(const struct inspection *ins, uint32_t slot, bool *ret_known);

#endif
