/*
 * Walking the chunks of a segment through damage.
 *
 * Where a header does not verify, the chunk may still be known from its second copy: the trailer, found by its footer,
 * which lies right before a write unit's end and names the chunk's address; or in the node head the copy, which names
 * its own address and so the length of the first. (The echo of a chunk of one write unit is looked for in the replay
 * only: elsewhere the chunk's records went with its header.) Where both are gone the walk goes on at the next header
 * that names its own address: nothing else in the log does, so a step never lands on bytes that merely look like a
 * chunk.
 */
#include "check/chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

/* Header and table that begin at a device offset, as those of a chunk with this address. Decodes into ins->entries. */
static int front_read(struct inspection *ins, struct check_window *window, uint64_t offset, uint64_t until,
                      uint64_t address, struct chunk_header *ret_header)
{
    const uint8_t *bytes = check_window_bytes(window, offset, CHUNK_HEADER_BYTES, until);
    struct chunk_header h;
    if (bytes == NULL || chunk_header_decode(bytes, CHUNK_HEADER_BYTES, ins->write_unit_bytes, &h, NULL) != 0)
        return -ENODATA;
    if (memcmp(h.pool_uuid, ins->label.pool_uuid, sizeof(h.pool_uuid)) != 0 || h.address != address)
        return -ENODATA;
    const size_t front_bytes = CHUNK_HEADER_BYTES + (size_t)h.table_bytes;
    if (offset + front_bytes > until)
        return -ENODATA;
    bytes = check_window_bytes(window, offset, front_bytes, until);
    if (bytes == NULL || chunk_table_decode(bytes, front_bytes, &h, ins->entries, NULL) != 0)
        return -ENODATA;
    if (front_bytes > ins->front_capacity_bytes) {
        uint8_t *bigger = realloc(ins->front, front_bytes);
        if (bigger == NULL)
            return -ENODATA;
        ins->front = bigger;
        ins->front_capacity_bytes = front_bytes;
    }
    memcpy(ins->front, bytes, front_bytes);
    *ret_header = h;
    return 0;
}

/* Whether the trailer is what the front in ins->front says. */
static bool trailer_intact(struct inspection *ins, struct check_window *window, const struct check_chunk *c,
                           uint64_t until)
{
    const size_t front_bytes = CHUNK_HEADER_BYTES + (size_t)c->header.table_bytes;
    const uint64_t end = c->device_offset_bytes + c->header.chunk_bytes;
    const uint8_t *bytes =
        check_window_bytes(window, end - CHUNK_FOOTER_BYTES - front_bytes, front_bytes + CHUNK_FOOTER_BYTES, until);
    return bytes != NULL && memcmp(bytes, ins->front, front_bytes) == 0 &&
           chunk_footer_matches(bytes + front_bytes, &c->header);
}

/* A header alike in everything that a copy does not change. */
static bool header_of_copy(const struct chunk_header *first, const struct chunk_header *copy)
{
    return copy->flags == (first->flags | CHUNK_FLAG_COPY) && copy->head == CHUNK_HEAD_NODE &&
           copy->chunk_bytes == first->chunk_bytes && copy->table_bytes == first->table_bytes &&
           copy->entry_count == first->entry_count;
}

/* Whether the second copy of a node chunk has intact header and table, the same table as in ins->front. */
static bool copy_intact(struct inspection *ins, struct check_window *window, const struct check_chunk *c,
                        uint64_t until)
{
    const uint64_t offset = c->device_offset_bytes + c->header.chunk_bytes;
    const size_t table_bytes = c->header.table_bytes;
    uint8_t *first = malloc(table_bytes + 1);
    if (first == NULL)
        return false;
    memcpy(first, ins->front + CHUNK_HEADER_BYTES, table_bytes);
    struct chunk_header h;
    const bool intact = front_read(ins, window, offset, until, c->address + c->header.chunk_bytes, &h) == 0 &&
                        header_of_copy(&c->header, &h) &&
                        memcmp(ins->front + CHUNK_HEADER_BYTES, first, table_bytes) == 0;
    free(first);
    return intact;
}

/* Looks for the trailer of a chunk of the data head whose front is damaged. */
static int read_by_trailer(struct inspection *ins, struct check_window *window, uint64_t room, uint64_t until,
                           struct check_chunk *c)
{
    const uint64_t start = c->device_offset_bytes;
    for (uint64_t n = 2 * (uint64_t)ins->write_unit_bytes; n <= room; n += ins->write_unit_bytes) {
        const uint8_t *footer = check_window_bytes(window, start + n - CHUNK_FOOTER_BYTES, CHUNK_FOOTER_BYTES, until);
        uint64_t address;
        uint32_t chunk_bytes, trailer_bytes;
        if (footer == NULL || chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes) != 0)
            continue;
        if (address != c->address || chunk_bytes != n)
            continue;
        const uint64_t trailer = start + n - CHUNK_FOOTER_BYTES - trailer_bytes;
        if (front_read(ins, window, trailer, until, c->address, &c->header) == 0 && c->header.chunk_bytes == n &&
            c->header.head == CHUNK_HEAD_DATA) {
            c->second_intact = true;
            c->span_bytes = (uint32_t)n;
            return 0;
        }
    }
    return -ENODATA;
}

/* Looks for the second copy of a node chunk whose first is damaged. */
static int read_by_copy(struct inspection *ins, struct check_window *window, uint64_t room, uint64_t until,
                        struct check_chunk *c)
{
    for (uint64_t n = ins->write_unit_bytes; 2 * n <= room; n += ins->write_unit_bytes) {
        if (front_read(ins, window, c->device_offset_bytes + n, until, c->address + n, &c->header) != 0)
            continue;
        if ((c->header.flags & CHUNK_FLAG_COPY) == 0 || c->header.chunk_bytes != n)
            continue;
        c->header.address = c->address;
        c->header.flags &= ~(uint32_t)CHUNK_FLAG_COPY;
        c->second_intact = true;
        c->span_bytes = (uint32_t)(2 * n);
        return 0;
    }
    return -ENODATA;
}

int check_chunk_read(struct inspection *ins, struct check_window *window, uint32_t slot, uint64_t segment, uint32_t at,
                     uint32_t limit, struct check_chunk *ret_chunk)
{
    const uint64_t start = check_slot_offset(ins, slot), until = start + limit;
    struct check_chunk c = {
        .slot = slot, .at = at, .address = segment * ins->segment_bytes + at, .device_offset_bytes = start + at};
    if (at % ins->write_unit_bytes != 0 || at >= limit || limit - at < ins->write_unit_bytes)
        return -ENODATA;
    const uint64_t room = limit - at;
    if (front_read(ins, window, start + at, until, c.address, &c.header) == 0 &&
        (c.header.flags & CHUNK_FLAG_COPY) == 0) {
        c.first_intact = true;
        c.span_bytes = c.header.chunk_bytes * (check_chunk_is_pair(&c) ? 2 : 1);
        if (c.span_bytes > room)
            return -ENODATA;
        if (check_chunk_is_pair(&c))
            c.second_intact = copy_intact(ins, window, &c, until);
        else
            c.second_intact = !check_chunk_has_trailer(&c, ins) || trailer_intact(ins, window, &c, until);
        /* A damaged copy was decoded over the entries. */
        if (!c.second_intact && front_read(ins, window, start + at, until, c.address, &c.header) != 0)
            return -ENODATA;
        *ret_chunk = c;
        return 0;
    }
    const uint64_t trailer_room = min_u64(room, CHUNK_BYTES_MAX), copy_room = min_u64(room, 2 * CHUNK_BYTES_MAX);
    /* Before the table is known the head is not either. */
    const struct slot *t = &ins->slots[slot].table;
    const bool head_known = t->state == SLOT_OPEN || t->state == SLOT_CLOSED;
    int result = -ENODATA;
    if (!head_known || t->head == CHUNK_HEAD_DATA)
        result = read_by_trailer(ins, window, trailer_room, until, &c);
    if (result != 0 && (!head_known || t->head == CHUNK_HEAD_NODE))
        result = read_by_copy(ins, window, copy_room, until, &c);
    if (result == 0)
        *ret_chunk = c;
    return result;
}

uint64_t check_chunk_echo_offset(const struct check_chunk *c)
{
    return c->device_offset_bytes + CHUNK_HEADER_BYTES + c->header.table_bytes;
}

int check_chunk_read_echo(struct inspection *ins, struct check_window *window, uint64_t echo_offset, uint32_t slot,
                          uint64_t segment, uint32_t at, struct check_chunk *ret_chunk)
{
    struct check_chunk c = {.slot = slot,
                            .at = at,
                            .address = segment * ins->segment_bytes + at,
                            .device_offset_bytes = check_slot_offset(ins, slot) + at,
                            .second_intact = true,
                            .span_bytes = ins->write_unit_bytes};
    const uint64_t until = echo_offset + chunk_echo_bytes_max(ins->write_unit_bytes);
    if (front_read(ins, window, echo_offset, until, c.address, &c.header) != 0 || c.header.head != CHUNK_HEAD_DATA ||
        c.header.chunk_bytes != ins->write_unit_bytes)
        return -ENODATA;
    *ret_chunk = c;
    return 0;
}

/* ---- walking ---- */

/* The first chunk behind a damaged one: *ret_at, or the limit if there is none. */
static enum check_step resynchronise(struct check_walk *walk, struct check_chunk *ret_chunk)
{
    struct inspection *ins = walk->ins;
    const uint64_t start = check_slot_offset(ins, walk->slot), until = start + walk->limit;
    const uint64_t segment_address = walk->segment * ins->segment_bytes;
    uint32_t at = walk->at;
    while (at < walk->limit) {
        struct chunk_header h;
        at += ins->write_unit_bytes;
        if (at >= walk->limit || front_read(ins, walk->window, start + at, until, segment_address + at, &h) != 0)
            continue;
        /* A second copy whose first begins behind the damage and is damaged itself. */
        if ((h.flags & CHUNK_FLAG_COPY) != 0 && h.chunk_bytes < at - walk->at)
            at -= h.chunk_bytes;
        else if ((h.flags & CHUNK_FLAG_COPY) != 0)
            continue;
        break;
    }
    at = (uint32_t)min_u64(at, walk->limit);
    *ret_chunk = (struct check_chunk){.slot = walk->slot,
                                      .at = walk->at,
                                      .address = segment_address + walk->at,
                                      .device_offset_bytes = start + walk->at,
                                      .span_bytes = at - walk->at};
    walk->at = at;
    return CHECK_STEP_GAP;
}

enum check_step check_walk_next(struct check_walk *walk, struct check_chunk *ret_chunk)
{
    if (walk->at >= walk->limit)
        return CHECK_STEP_END;
    if (check_chunk_read(walk->ins, walk->window, walk->slot, walk->segment, walk->at, walk->limit, ret_chunk) == 0) {
        walk->at += ret_chunk->span_bytes;
        return CHECK_STEP_CHUNK;
    }
    if (!walk->limit_known)
        return CHECK_STEP_END;
    return resynchronise(walk, ret_chunk);
}

uint32_t check_segment_limit(const struct inspection *ins, uint32_t slot, bool *ret_known)
{
    const struct slot *t = &ins->slots[slot].table;
    const struct label *l = &ins->label;
    *ret_known = true;
    if (slot == l->replay_slot)
        return (uint32_t)(l->replay_address % ins->segment_bytes);
    if (slot == l->node_slot)
        return (uint32_t)(l->node_address % ins->segment_bytes);
    /* The data head went on while the checkpoint was written: what it wrote since is looked at by the replay. */
    const bool placed = t->state == SLOT_NEXT || t->state == SLOT_OPEN || t->state == SLOT_CLOSED;
    if (placed && t->head == CHUNK_HEAD_DATA && t->segment > l->replay_address / ins->segment_bytes)
        return 0;
    if (t->state == SLOT_CLOSED)
        return t->used_bytes;
    *ret_known = false;
    return ins->segment_bytes;
}

int check_chunk_around(struct inspection *ins, struct check_window *window, uint64_t place,
                       struct check_chunk *ret_chunk)
{
    const uint32_t slot = (uint32_t)(place / ins->segment_bytes), at = (uint32_t)(place % ins->segment_bytes);
    struct check_walk walk = {.ins = ins, .window = window, .slot = slot, .segment = check_slot_segment(ins, slot)};
    if (walk.segment > UINT64_MAX / ins->segment_bytes - 1)
        return -ENODATA;
    walk.limit = check_segment_limit(ins, slot, &walk.limit_known);
    if (walk.limit <= at) {
        walk.limit = ins->segment_bytes;
        walk.limit_known = false;
    }
    for (;;) {
        const enum check_step step = check_walk_next(&walk, ret_chunk);
        if (step == CHECK_STEP_END || ret_chunk->at > at)
            return -ENODATA;
        if (step == CHECK_STEP_CHUNK && at - ret_chunk->at < ret_chunk->span_bytes)
            return 0;
    }
}
