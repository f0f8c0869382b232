/*
 * Replay (replay.h): one step a chunk, deciding at each whether the chain goes on, ends, or is damaged.
 */
#include "log/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "log/rules.h"
#include "log/window.h"

struct replay {
    struct slots *slots;
    const struct geometry *geometry;
    struct window window;
    struct chunk_entry *entries; /* CHUNK_ENTRIES_MAX: of the chunk being looked at */
    struct chunk_entry *scratch; /* the same, for looking ahead */
    uint64_t checkpoint;
    uint32_t echo_bytes; /* as in replay_end, of the chunk being looked at */
    uint8_t echo[WRITE_UNIT_BYTES_MAX / 2];
    struct replay_end end;
};

static uint64_t address_of(const struct replay *r, struct placed_segment at, uint32_t position)
{
    return at.segment * r->geometry->segment_bytes + position;
}

/* true if buf starts with an intact header and table of a data chunk that lies at `address`. */
static int decode_front(const struct replay *r, const uint8_t *buf, size_t buf_bytes, uint64_t address,
                        struct chunk_header *header, struct chunk_entry *entries)
{
    int result = chunk_header_decode(buf, buf_bytes, r->geometry->write_unit_bytes, header, NULL);
    if (result != 0)
        return result;
    if (header->head != CHUNK_HEAD_DATA || header->address != address ||
        memcmp(header->pool_uuid, r->geometry->pool_uuid, sizeof header->pool_uuid) != 0)
        return -ENODATA;
    return chunk_table_decode(buf, buf_bytes, header, entries, NULL);
}

/* The chunk at a place, from its front. 0, -ENODATA or -EBADMSG where there is none, -EOPNOTSUPP, device errors. */
static int decode_at(struct replay *r, struct placed_segment at, uint32_t position, struct chunk_header *header,
                     struct chunk_entry *entries)
{
    uint32_t unit = r->geometry->write_unit_bytes, room = r->geometry->segment_bytes - position;
    const uint8_t *buf = window_get(&r->window, at.slot, position, unit);
    if (buf == NULL)
        return r->window.error;
    int result = chunk_header_decode(buf, unit, unit, header, NULL);
    if (result != 0)
        return result;
    uint64_t front = CHUNK_HEADER_BYTES + (uint64_t)header->table_bytes;
    if (header->chunk_bytes > room || front > header->chunk_bytes)
        return -EBADMSG;
    buf = window_get(&r->window, at.slot, position, (uint32_t)front);
    if (buf == NULL)
        return r->window.error;
    return decode_front(r, buf, front, address_of(r, at, position), header, entries);
}

/* The copy of header and table at the end of a chunk whose front is damaged: its footer can stand before any write
 * unit's end. */
static int decode_trailer(struct replay *r, struct placed_segment at, uint32_t position, uint64_t address,
                          struct chunk_header *header, struct chunk_entry *entries)
{
    uint32_t unit = r->geometry->write_unit_bytes;
    uint32_t limit = (uint32_t)min_u64(r->geometry->segment_bytes - position, CHUNK_BYTES_MAX);
    for (uint32_t length = 2 * unit; length <= limit; length += unit) {
        uint64_t footer_address;
        uint32_t chunk_bytes, trailer_bytes;
        const uint8_t *buf = window_get(&r->window, at.slot, position, length);
        if (buf == NULL)
            return r->window.error;
        const uint8_t *footer = buf + length - CHUNK_FOOTER_BYTES;
        if (chunk_footer_decode(footer, &footer_address, &chunk_bytes, &trailer_bytes) != 0)
            continue;
        if (footer_address != address || chunk_bytes != length || trailer_bytes > length - CHUNK_FOOTER_BYTES)
            continue;
        if (decode_front(r, footer - trailer_bytes, trailer_bytes, address, header, entries) == 0 &&
            header->chunk_bytes == length)
            return 0;
    }
    return -ENODATA;
}

enum verdict {
    VERDICT_NONE, /* no chunk of the chain here */
    VERDICT_INTACT,
    VERDICT_PAYLOAD, /* header and table intact, some payload not */
    VERDICT_ECHO,    /* header and table known from the next chunk, nothing else left */
};

static void keep_echo(struct replay *r, const struct chunk_header *header, const uint8_t *front)
{
    bool echoed = header->chunk_bytes == r->geometry->write_unit_bytes;
    r->echo_bytes = echoed ? CHUNK_HEADER_BYTES + header->table_bytes : 0;
    memcpy(r->echo, front, r->echo_bytes);
}

static int look_at(struct replay *r, struct placed_segment at, uint32_t position, struct chunk_header *header,
                   enum verdict *ret_verdict)
{
    uint32_t room = r->geometry->segment_bytes - position;
    uint64_t address = address_of(r, at, position);
    bool from_trailer = false;
    *ret_verdict = VERDICT_NONE;
    if (room < r->geometry->write_unit_bytes)
        return 0;
    int result = decode_at(r, at, position, header, r->entries);
    /* A rotten version byte reads as a newer version: that the pool is of ours is known from its label. */
    if (result == -ENODATA || result == -EBADMSG || result == -EOPNOTSUPP) {
        result = decode_trailer(r, at, position, address, header, r->entries);
        from_trailer = true;
        if (result == -ENODATA)
            return 0;
    }
    if (result != 0)
        return result;
    if (!checksum_equal(header->previous_chain, r->end.chain))
        return 0;
    const uint8_t *buf = window_get(&r->window, at.slot, position, header->chunk_bytes);
    if (buf == NULL)
        return r->window.error;
    *ret_verdict = VERDICT_INTACT;
    keep_echo(r, header, buf);
    r->end.repaired_header_count += from_trailer;
    for (uint32_t i = 0; i < header->entry_count; i++) {
        const struct chunk_entry *e = &r->entries[i];
        if (e->length > 0 && !checksum_equal(checksum_of(buf + e->payload_offset, e->length), e->checksum))
            *ret_verdict = VERDICT_PAYLOAD;
    }
    return 0;
}

/* The chunk that is missing at `lost`, from the echo in the one that would follow it at `at`. */
static int look_behind(struct replay *r, uint64_t lost, struct placed_segment at, uint32_t position,
                       struct chunk_header *header, enum verdict *ret_verdict)
{
    struct chunk_header next;
    uint32_t unit = r->geometry->write_unit_bytes;
    if (position + unit > r->geometry->segment_bytes)
        return 0;
    int result = decode_at(r, at, position, &next, r->scratch);
    if (result == -ENODATA || result == -EBADMSG || result == -EOPNOTSUPP)
        return 0;
    if (result != 0)
        return result;
    uint32_t echo_at = CHUNK_HEADER_BYTES + next.table_bytes;
    const uint8_t *buf = window_get(&r->window, at.slot, position, echo_at + next.echo_bytes);
    if (buf == NULL)
        return r->window.error;
    if (chunk_echo_decode(buf, echo_at + next.echo_bytes, &next, unit, header, r->entries) != 0)
        return 0;
    if (header->address != lost || !checksum_equal(header->previous_chain, r->end.chain))
        return 0;
    *ret_verdict = VERDICT_ECHO;
    keep_echo(r, header, buf + echo_at);
    r->end.repaired_header_count++;
    return 0;
}

/* A chunk of one write unit is missing where the log should go on, at its end or at the start of the next segment. */
static int find_lost_chunk(struct replay *r, struct chunk_header *header, enum verdict *ret_verdict, bool *ret_in_next)
{
    uint32_t unit = r->geometry->write_unit_bytes, here = r->end.position_bytes;
    uint64_t lost = address_of(r, r->end.at, here);
    *ret_in_next = false;
    int result = look_behind(r, lost, r->end.at, here + unit, header, ret_verdict);
    if (result != 0 || *ret_verdict != VERDICT_NONE || r->end.next_count == 0)
        return result;
    result = look_behind(r, lost, r->end.next[0], 0, header, ret_verdict);
    if (result != 0 || *ret_verdict != VERDICT_NONE)
        return result;
    *ret_in_next = true;
    lost = address_of(r, r->end.next[0], 0);
    result = look_behind(r, lost, r->end.next[0], unit, header, ret_verdict);
    if (result != 0 || *ret_verdict != VERDICT_NONE || r->end.next_count == 1)
        return result;
    return look_behind(r, lost, r->end.next[1], 0, header, ret_verdict);
}

/* What is found ahead of the end of the chain. */
struct ahead {
    uint64_t budget;  /* bytes to look at */
    uint64_t highest; /* address up to which a chunk found calls the log durable */
    bool found;
    struct placed_segment bridge_to; /* slot SLOT_NONE: no bridge found */
};

/* Looks for whole chunks of segment `at` from position on. */
static int scan_segment(struct replay *r, struct placed_segment at, uint32_t position, struct ahead *a)
{
    uint32_t unit = r->geometry->write_unit_bytes;
    for (; position + unit <= r->geometry->segment_bytes && a->budget >= unit; position += unit, a->budget -= unit) {
        struct chunk_header header;
        int result = decode_at(r, at, position, &header, r->scratch);
        if (result == -ENODATA || result == -EBADMSG || result == -EOPNOTSUPP)
            continue;
        if (result != 0)
            return result;
        a->found = true;
        a->highest = max_u64(a->highest, header.durable_to);
        if ((header.flags & CHUNK_FLAG_BRIDGE) != 0 && r->scratch[0].index > at.segment &&
            r->scratch[0].count < r->geometry->slot_count)
            a->bridge_to =
                (struct placed_segment){.segment = r->scratch[0].index, .slot = (uint32_t)r->scratch[0].count};
    }
    return 0;
}

/* What chunks ahead of the end of the chain know to be durable, behind bridges too: a chunk before a bridge is called
 * so only there. */
static int look_ahead(struct replay *r, struct ahead *ret_ahead)
{
    struct ahead a = {.budget = REPLAY_AHEAD_BYTES, .bridge_to = {.slot = SLOT_NONE}};
    int result = scan_segment(r, r->end.at, r->end.position_bytes, &a);
    for (uint32_t i = 0; i < r->end.next_count && result == 0 && a.budget > 0; i++)
        result = scan_segment(r, r->end.next[i], 0, &a);
    while (result == 0 && a.bridge_to.slot != SLOT_NONE && a.budget > 0) {
        struct placed_segment to = a.bridge_to;
        a.bridge_to.slot = SLOT_NONE;
        result = scan_segment(r, to, 0, &a);
    }
    *ret_ahead = a;
    return result;
}

static bool list_has(const struct placed_segment *list, uint32_t count, uint64_t segment)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].segment == segment)
            return true;
    }
    return false;
}

/* The slots that the chunk names for the segments to come. Those named before and not any more (behind a bridge) are
 * free again, and may be among the new ones. */
static int take_next(struct replay *r, const struct placed_segment *next, uint32_t count)
{
    for (uint32_t i = 0; i < r->end.next_count; i++) {
        if (!list_has(next, count, r->end.next[i].segment))
            slots_return(r->slots, r->end.next[i].slot, false, r->checkpoint);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (list_has(r->end.next, r->end.next_count, next[i].segment))
            continue;
        int result = slots_adopt(r->slots, next[i].slot, next[i].segment, CHUNK_HEAD_DATA, r->checkpoint);
        if (result != 0)
            return result;
        r->end.segment_highest = max_u64(r->end.segment_highest, next[i].segment);
    }
    memcpy(r->end.next, next, count * sizeof *next);
    r->end.next_count = count;
    return 0;
}

static int take_next_of_chunk(struct replay *r, const struct chunk_header *header)
{
    struct placed_segment next[LOOKAHEAD_SLOTS_MAX];
    uint64_t segment = header->next_segments_first;
    uint32_t count = 0;
    for (; count < LOOKAHEAD_SLOTS_MAX && header->next_slots[count] != SLOT_NONE; count++) {
        segment += header->next_segment_deltas[count];
        if (segment <= r->end.at.segment)
            return -EBADMSG;
        next[count] = (struct placed_segment){.segment = segment, .slot = header->next_slots[count]};
    }
    return take_next(r, next, count);
}

static void move_to(struct replay *r, struct placed_segment at)
{
    slots_close(r->slots, r->end.at.slot, r->end.position_bytes, r->checkpoint);
    slots_open(r->slots, at.slot, r->checkpoint);
    r->end.at = at;
    r->end.segment_count++;
    r->end.position_bytes = 0;
    r->end.segment_highest = max_u64(r->end.segment_highest, at.segment);
}

static void advance(struct replay *r)
{
    struct placed_segment at = r->end.next[0];
    r->end.next_count--;
    memmove(r->end.next, r->end.next + 1, r->end.next_count * sizeof r->end.next[0]);
    move_to(r, at);
}

static int cross_bridge(struct replay *r, const struct chunk_entry *e)
{
    struct placed_segment at = {.segment = e->index, .slot = (uint32_t)e->count};
    if (e->count >= r->geometry->slot_count || at.segment <= r->end.at.segment)
        return -EBADMSG;
    int result = slots_adopt(r->slots, at.slot, at.segment, CHUNK_HEAD_DATA, r->checkpoint);
    if (result != 0)
        return result;
    /* The bridge's own list begins with where it leads. */
    uint32_t k = 0;
    while (k < r->end.next_count && r->end.next[k].segment != at.segment)
        k++;
    if (k < r->end.next_count) {
        r->end.next_count -= k + 1;
        memmove(r->end.next, r->end.next + k + 1, r->end.next_count * sizeof r->end.next[0]);
    } else {
        r->end.next_count = 0;
    }
    move_to(r, at);
    r->end.after_bridge = true;
    return 0;
}

static int take_chunk(struct replay *r, const struct chunk_header *header, replay_apply apply, void *arg)
{
    r->end.chain = header->chain;
    r->end.echo_bytes = r->echo_bytes;
    memcpy(r->end.echo, r->echo, r->echo_bytes);
    r->end.chunk_sequence = header->sequence;
    r->end.position_bytes += header->chunk_bytes;
    r->end.replayed_bytes += header->chunk_bytes;
    r->end.chunk_count++;
    r->end.after_bridge = false;
    int result = take_next_of_chunk(r, header);
    if (result != 0)
        return result;
    if ((header->flags & CHUNK_FLAG_BRIDGE) != 0)
        return header->entry_count == 1 && r->entries[0].kind == ENTRY_BRIDGE ? cross_bridge(r, &r->entries[0])
                                                                              : -EBADMSG;
    return apply(arg, header, r->entries, header->entry_count);
}

/* Where the chain goes on, if it does: behind the last chunk, or at the start of the next segment (*ret_in_next). */
static int find_next_chunk(struct replay *r, struct chunk_header *header, enum verdict *ret_verdict, bool *ret_in_next)
{
    *ret_in_next = false;
    int result = look_at(r, r->end.at, r->end.position_bytes, header, ret_verdict);
    if (result != 0 || *ret_verdict != VERDICT_NONE || r->end.next_count == 0)
        return result;
    *ret_in_next = true;
    return look_at(r, r->end.next[0], 0, header, ret_verdict);
}

/* One step: 1 taken, 0 the end, negative error. */
static int step(struct replay *r, replay_apply apply, void *arg)
{
    struct chunk_header header;
    enum verdict verdict;
    bool in_next;
    struct ahead ahead = {0};
    uint64_t here = address_of(r, r->end.at, r->end.position_bytes);
    int result = find_next_chunk(r, &header, &verdict, &in_next);
    if (result == 0 && verdict == VERDICT_NONE)
        result = find_lost_chunk(r, &header, &verdict, &in_next);
    if (result == 0 && verdict != VERDICT_INTACT)
        result = look_ahead(r, &ahead);
    if (result != 0)
        return result;
    if ((r->geometry->rules_off & RULE_OFF_DURABLE_TO) != 0)
        ahead.highest = 0;
    bool damaged = verdict == VERDICT_PAYLOAD || verdict == VERDICT_ECHO;
    bool flushed = damaged && ahead.highest >= header.address + header.chunk_bytes;
    if (verdict == VERDICT_INTACT || flushed) {
        /* look_ahead moved the window only: r->entries are still those of this chunk. */
        r->end.damaged_entry_count += flushed;
        if (in_next)
            advance(r);
        result = take_chunk(r, &header, apply, arg);
        return result == 0 ? 1 : result;
    }
    r->end.traces_beyond = ahead.found;
    if (ahead.highest > here) {
        r->end.damaged = true;
        r->end.damaged_from = here;
        r->end.damaged_to = ahead.highest;
    }
    return 0;
}

static int begin(struct replay *r, const struct label *label)
{
    const struct geometry *g = r->geometry;
    struct placed_segment next[LOOKAHEAD_SLOTS_MAX];
    uint32_t count = 0;
    r->end.at =
        (struct placed_segment){.segment = label->replay_address / g->segment_bytes, .slot = label->replay_slot};
    r->end.position_bytes = (uint32_t)(label->replay_address % g->segment_bytes);
    r->end.chain = label->replay_chain;
    r->end.segment_highest = r->end.at.segment;
    r->checkpoint = label->checkpoint;
    int result = slots_adopt(r->slots, r->end.at.slot, r->end.at.segment, CHUNK_HEAD_DATA, r->checkpoint);
    if (result != 0)
        return result;
    slots_open(r->slots, r->end.at.slot, r->checkpoint);
    for (; count < LOOKAHEAD_SLOTS_MAX && label->replay_next_slots[count] != SLOT_NONE; count++)
        next[count] = (struct placed_segment){.segment = label->replay_next_segments[count],
                                              .slot = label->replay_next_slots[count]};
    return take_next(r, next, count);
}

static void free_replay(struct replay *r)
{
    window_fini(&r->window);
    free(r->entries);
    free(r->scratch);
    free(r);
}

static struct replay *replay_new(struct device *dev, struct slots *slots, const struct geometry *geometry)
{
    struct replay *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->slots = slots;
    r->geometry = geometry;
    r->entries = malloc(CHUNK_ENTRIES_MAX * sizeof *r->entries);
    r->scratch = malloc(CHUNK_ENTRIES_MAX * sizeof *r->scratch);
    int result = window_init(&r->window, dev, slots, geometry);
    if (result == 0 && r->entries != NULL && r->scratch != NULL)
        return r;
    free_replay(r);
    return NULL;
}

int replay_run(struct device *dev, struct slots *slots, const struct geometry *geometry, const struct label *label,
               replay_apply apply, void *arg, struct replay_end *ret_end, struct error *err)
{
    struct replay *r = replay_new(dev, slots, geometry);
    if (r == NULL)
        return error_set(err, -ENOMEM, "%s: no memory to replay the log", dev->name);
    int result = begin(r, label);
    while (result == 0 || result == 1) {
        result = step(r, apply, arg);
        if (result == 0)
            break;
    }
    if (result == 0)
        *ret_end = r->end;
    else
        error_set(err, result, "%s: replay of the log stopped at address %llu: %s", dev->name,
                  (unsigned long long)address_of(r, r->end.at, r->end.position_bytes),
                  result == -EBADMSG
                      ? "what the log says about its slots contradicts the slot table; 'ashlar check' tells more"
                      : strerror(-result));
    free_replay(r);
    return result;
}
