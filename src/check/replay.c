/*
 * The log behind the checkpoint: what a recovery would apply, followed as a recovery follows it.
 *
 * From the label's replay start on, the next chunk lies right behind the last one, or at the start of the next segment
 * that the last header (at first: the label) names, or, behind a bridge, where the bridge says. It counts if it names
 * the pool, its own address and the chain value before it. Where none does, the log ends.
 *
 * First the chain is followed by headers and tables alone; that gives the highest durable_to any of its chunks claims.
 * A chunk of one write unit that is missing is taken from its echo in the next one. Chunks that end above it were
 * perhaps never whole: there the first one whose payload does not verify is the end of the log, and nothing is wrong
 * (R16). Below it a payload that does not verify is a damaged record. And if the chain itself ends below what some
 * chunk further on claims to be durable, flushed log is damaged. (A chunk that was cut off from the chain by an earlier
 * power cut never claims more than where it was cut off.)
 */
#include "check/inspection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/chunk.h"
#include "check/repair.h"

#define LOOK_AHEAD_BYTES (16 * MIB) /* as much log as may be in flight */

struct place {
    uint64_t segment;
    uint32_t slot;
};

struct chain {
    struct inspection *ins;
    struct place at;
    uint32_t offset; /* in the segment: where the next chunk is to begin */
    struct place next[LOOKAHEAD_SLOTS_MAX];
    uint32_t next_count;
    struct checksum value;
    uint64_t durable_to;
    bool bridged; /* the last chunk was a bridge: the log goes on at `at` or not at all */
    bool stopped; /* it runs into a slot where it cannot be */
};

static void begin(struct chain *chain, struct inspection *ins)
{
    const struct label *l = &ins->label;
    *chain = (struct chain){.ins = ins, .value = l->replay_chain};
    chain->at = (struct place){.segment = l->replay_address / ins->segment_bytes, .slot = l->replay_slot};
    chain->offset = (uint32_t)(l->replay_address % ins->segment_bytes);
    chain->durable_to = l->replay_address;
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX && l->replay_next_slots[k] != SLOT_NONE; k++)
        chain->next[chain->next_count++] =
            (struct place){.segment = l->replay_next_segments[k], .slot = l->replay_next_slots[k]};
    if (chain->at.slot != SLOT_NONE)
        ins->slots[chain->at.slot].replay_segment = chain->at.segment;
}

static uint64_t chain_address(const struct chain *chain)
{
    return chain->at.segment * chain->ins->segment_bytes + chain->offset;
}

/* The chunk at a place, if it is the one that comes next. */
static bool next_chunk_at(struct chain *chain, struct place at, uint32_t offset, struct check_chunk *ret_chunk)
{
    struct inspection *ins = chain->ins;
    if (at.slot >= ins->slot_count || at.segment > UINT64_MAX / ins->segment_bytes - 1)
        return false;
    if (check_chunk_read(ins, &ins->scan, at.slot, at.segment, offset, ins->segment_bytes, ret_chunk) != 0)
        return false;
    return ret_chunk->header.head == CHUNK_HEAD_DATA && checksum_equal(ret_chunk->header.previous_chain, chain->value);
}

/*
 * Whether a slot is free for the log behind the checkpoint (R20, R21). Free is what the table calls so; what was in
 * quarantine, for it holds nothing of this checkpoint (and newer labels, lost since, may have let it go); and what the
 * heads took after the cut: the table was written a little later than the label's positions, and a recovery forgets
 * what it says about those.
 */
static bool slot_is_free(const struct inspection *ins, uint32_t slot)
{
    const struct label *l = &ins->label;
    const struct slot *t = &ins->slots[slot].table;
    const bool open = t->state == SLOT_OPEN || t->state == SLOT_NEXT;
    if (t->state == SLOT_BARE || t->state == SLOT_READY || t->state == SLOT_QUARANTINED)
        return true;
    if (t->head == CHUNK_HEAD_DATA)
        return t->segment > l->replay_address / ins->segment_bytes;
    return open && slot != l->node_slot &&
           (l->node_slot == SLOT_NONE || t->segment > l->node_address / ins->segment_bytes);
}

/* Takes note that the log runs into a slot; false, and reported, if it cannot be there. A slot is entered once only. */
static bool may_enter(struct chain *chain, struct place to)
{
    struct inspection *ins = chain->ins;
    if (to.slot >= ins->slot_count)
        return false;
    struct check_slot *s = &ins->slots[to.slot];
    const bool free = slot_is_free(ins, to.slot) || ins->table_incomplete;
    if (!free || s->replay_segment != CHECK_NOWHERE) {
        check_found(ins, CHECK_PROBLEM_LOG_SLOT_CONFLICT, check_slot_offset(ins, to.slot),
                    to.segment * ins->segment_bytes, "segment %" PRIu64 " in slot %" PRIu32 ", state %u", to.segment,
                    to.slot, s->table.state);
        return false;
    }
    s->replay_segment = to.segment;
    return true;
}

static void take_next_segments(struct chain *chain, const struct chunk_header *h)
{
    uint64_t segment = h->next_segments_first;
    chain->next_count = 0;
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX && h->next_slots[k] != SLOT_NONE; k++) {
        segment += h->next_segment_deltas[k];
        chain->next[chain->next_count++] = (struct place){.segment = segment, .slot = h->next_slots[k]};
    }
}

/* Moves on behind a chunk; echo_offset as in struct check_replay_chunk. */
static int follow(struct chain *chain, const struct check_chunk *c, uint64_t echo_offset)
{
    struct inspection *ins = chain->ins;
    struct check_replay_chunk *r = check_array_add(&ins->replay);
    if (r == NULL)
        return -ENOMEM;
    *r = (struct check_replay_chunk){
        .address = c->address, .slot = c->slot, .chunk_bytes = c->header.chunk_bytes, .echo_offset = echo_offset};
    chain->value = c->header.chain;
    chain->durable_to = max_u64(chain->durable_to, c->header.durable_to);
    chain->offset += c->header.chunk_bytes;
    take_next_segments(chain, &c->header);
    chain->bridged = (c->header.flags & CHUNK_FLAG_BRIDGE) != 0;
    if (chain->bridged) {
        const struct chunk_entry *bridge = &ins->entries[0];
        chain->at = (struct place){.segment = bridge->index, .slot = (uint32_t)bridge->count};
        chain->offset = 0;
        chain->stopped = !may_enter(chain, chain->at);
    }
    return check_note_durable(ins, c->header.incarnation, c->header.durable_to);
}

/* The chunk that is missing at a place, if the one that would follow it lies at another and has its echo. */
static bool lost_chunk_at(struct chain *chain, struct place at, uint32_t offset, struct place after,
                          uint32_t after_offset, struct check_chunk *ret_chunk, uint64_t *ret_echo)
{
    struct inspection *ins = chain->ins;
    struct check_chunk next;
    if (at.slot >= ins->slot_count || after.slot >= ins->slot_count ||
        after.segment > UINT64_MAX / ins->segment_bytes - 1 || at.segment > UINT64_MAX / ins->segment_bytes - 1)
        return false;
    if (after_offset >= ins->segment_bytes ||
        check_chunk_read(ins, &ins->scan, after.slot, after.segment, after_offset, ins->segment_bytes, &next) != 0 ||
        next.header.echo_bytes == 0)
        return false;
    *ret_echo = check_chunk_echo_offset(&next);
    return check_chunk_read_echo(ins, &ins->scan, *ret_echo, at.slot, at.segment, offset, ret_chunk) == 0 &&
           checksum_equal(ret_chunk->header.chain, next.header.previous_chain) &&
           checksum_equal(ret_chunk->header.previous_chain, chain->value);
}

/* The next chunk: at the end of the last one, or (*ret_in_next) at the start of the next segment. */
static bool find_next(struct chain *chain, struct check_chunk *ret_chunk, uint64_t *ret_echo, bool *ret_in_next)
{
    const uint32_t unit = chain->ins->write_unit_bytes;
    const struct place at = chain->at, *next = chain->next;
    const bool goes_on = !chain->bridged && chain->next_count > 0;
    *ret_echo = 0;
    *ret_in_next = false;
    if (next_chunk_at(chain, at, chain->offset, ret_chunk))
        return true;
    *ret_in_next = goes_on && next_chunk_at(chain, next[0], 0, ret_chunk);
    if (*ret_in_next || lost_chunk_at(chain, at, chain->offset, at, chain->offset + unit, ret_chunk, ret_echo) ||
        (goes_on && lost_chunk_at(chain, at, chain->offset, next[0], 0, ret_chunk, ret_echo)))
        return true;
    *ret_in_next =
        goes_on && (lost_chunk_at(chain, next[0], 0, next[0], unit, ret_chunk, ret_echo) ||
                    (chain->next_count > 1 && lost_chunk_at(chain, next[0], 0, next[1], 0, ret_chunk, ret_echo)));
    if (!*ret_in_next)
        *ret_echo = 0;
    return *ret_in_next;
}

/* 1: followed one more chunk; 0: there is none; -ENOMEM. */
static int step(struct chain *chain)
{
    struct inspection *ins = chain->ins;
    struct check_chunk c;
    uint64_t echo_offset;
    bool in_next;
    if (chain->stopped || !find_next(chain, &c, &echo_offset, &in_next))
        return 0;
    if (in_next && !may_enter(chain, chain->next[0])) {
        chain->stopped = true;
        return 0;
    }
    if (in_next) {
        chain->at = chain->next[0];
        chain->offset = 0;
    }
    if (ins->replay.count == 0 && (ins->label.flags & LABEL_CLEAN) != 0)
        check_found(ins, CHECK_PROBLEM_CLEAN_LABEL_LOG, c.device_offset_bytes, c.address, "%" PRIu32 " bytes",
                    c.header.chunk_bytes);
    const int result = follow(chain, &c, echo_offset);
    return result == 0 ? 1 : result;
}

/* ---- the end of the chain ---- */

/* What chunks behind the place where the chain ends say. */
struct ahead {
    uint64_t left_bytes; /* to be looked at */
    uint64_t claim;      /* the highest durable_to among them */
    bool found;          /* any chunk; the first one lies here: */
    struct place at;
    uint32_t offset;
    struct checksum previous_chain; /* and follows the chunk with this chain value */
    struct place bridge_to;         /* slot SLOT_NONE: no bridge found */
};

/* A chunk of the data head that begins there, whatever comes before it. */
static bool any_chunk_at(struct inspection *ins, struct place at, uint32_t offset, uint64_t until,
                         struct check_chunk *ret_chunk)
{
    const uint64_t start = check_slot_offset(ins, at.slot);
    const uint8_t *bytes = check_window_bytes(&ins->scan, start + offset, CHUNK_HEADER_BYTES, until);
    struct chunk_header h;
    /* A header is cheap to tell from none; a chunk is taken at its word only if it verifies. */
    if (bytes == NULL || chunk_header_decode(bytes, CHUNK_HEADER_BYTES, ins->write_unit_bytes, &h, NULL) != 0)
        return false;
    return h.head == CHUNK_HEAD_DATA &&
           check_chunk_read(ins, &ins->scan, at.slot, at.segment, offset, ins->segment_bytes, ret_chunk) == 0;
}

static void look_ahead_in(struct inspection *ins, struct place at, uint32_t offset, struct ahead *a)
{
    if (at.slot >= ins->slot_count || at.segment > UINT64_MAX / ins->segment_bytes - 1)
        return;
    const uint64_t start = check_slot_offset(ins, at.slot);
    while (ins->segment_bytes > offset && a->left_bytes > 0) {
        struct check_chunk c;
        uint32_t n = ins->write_unit_bytes;
        if (any_chunk_at(ins, at, offset, start + min_u64(ins->segment_bytes, offset + a->left_bytes), &c)) {
            if (!a->found) {
                a->at = at;
                a->offset = offset;
                a->previous_chain = c.header.previous_chain;
            }
            a->found = true;
            a->claim = max_u64(a->claim, c.header.durable_to);
            if ((c.header.flags & CHUNK_FLAG_BRIDGE) != 0 && ins->entries[0].index > at.segment)
                a->bridge_to =
                    (struct place){.segment = ins->entries[0].index, .slot = (uint32_t)ins->entries[0].count};
            n = c.header.chunk_bytes;
        }
        offset += n;
        a->left_bytes -= min_u64(a->left_bytes, n);
    }
}

/* As far ahead as chunks may have been in flight. */
static struct ahead look_ahead(struct chain *chain)
{
    struct ahead a = {.left_bytes = LOOK_AHEAD_BYTES, .bridge_to = {.slot = SLOT_NONE}};
    look_ahead_in(chain->ins, chain->at, chain->offset, &a);
    for (uint32_t k = 0; k < chain->next_count && !chain->bridged; k++)
        look_ahead_in(chain->ins, chain->next[k], 0, &a);
    /* A chunk before a bridge is called durable only behind it. */
    while (a.bridge_to.slot != SLOT_NONE && a.left_bytes > 0) {
        const struct place to = a.bridge_to;
        a.bridge_to.slot = SLOT_NONE;
        look_ahead_in(chain->ins, to, 0, &a);
    }
    return a;
}

/* The volume an entry belongs to; NULL: the checkpoint does not know its branch. */
static struct check_tree *volume_of(struct inspection *ins, const struct chunk_entry *e)
{
    size_t low = 0, high = ins->by_branch_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ins->trees.list[ins->by_branch[middle]].volume.branch < e->branch)
            low = middle + 1;
        else
            high = middle;
    }
    struct check_tree *t = low < ins->by_branch_count ? &ins->trees.list[ins->by_branch[low]] : NULL;
    return t != NULL && t->volume.branch == e->branch ? t : NULL;
}

/* Names what the chunks behind damaged log hold: lost if the log is cut off there. */
static void name_unreached(struct chain *chain, const struct ahead *a)
{
    struct inspection *ins = chain->ins;
    struct chain beyond = *chain;
    uint64_t steps_left = (uint64_t)ins->slot_count * (ins->segment_bytes / ins->write_unit_bytes);
    struct check_chunk c;
    beyond.at = a->at;
    beyond.offset = a->offset;
    beyond.value = a->previous_chain;
    for (; steps_left > 0; steps_left--) {
        if (!next_chunk_at(&beyond, beyond.at, beyond.offset, &c)) {
            if (beyond.next_count == 0 || !next_chunk_at(&beyond, beyond.next[0], 0, &c))
                return;
            beyond.at = beyond.next[0];
            beyond.offset = 0;
        }
        for (uint32_t i = 0; i < c.header.entry_count; i++) {
            const struct chunk_entry *e = &ins->entries[i];
            const struct check_tree *t = volume_of(ins, e);
            if (t != NULL && e->index < t->record_count)
                check_found_in(ins, CHECK_PROBLEM_LOG_UNREACHED, t, e->index, e->count, c.device_offset_bytes,
                               c.address, "entry %" PRIu32 " of its chunk", i);
        }
        beyond.value = c.header.chain;
        beyond.offset += c.header.chunk_bytes;
        take_next_segments(&beyond, &c.header);
        if ((c.header.flags & CHUNK_FLAG_BRIDGE) != 0) {
            beyond.at = (struct place){.segment = ins->entries[0].index, .slot = (uint32_t)ins->entries[0].count};
            beyond.offset = beyond.next_count = 0;
        }
    }
}

/* ---- payload ---- */

struct replayed {
    struct inspection *ins;
    uint64_t durable_to;
    struct check_chunk chunk;
    const uint8_t *bytes;
    uint8_t *last_front; /* header and table of the chunk before, as long as an echo may be */
    size_t last_front_bytes;
};

/* true if every payload of the chunk is what its table says. */
static bool payload_verifies(const struct replayed *r)
{
    const struct inspection *ins = r->ins;
    for (uint32_t i = 0; i < r->chunk.header.entry_count; i++) {
        const struct chunk_entry *e = &ins->entries[i];
        if (e->length != 0 && !checksum_equal(checksum_of(r->bytes + e->payload_offset, e->length), e->checksum))
            return false;
    }
    return true;
}

static void apply_entry(struct replayed *r, const struct chunk_entry *e)
{
    struct inspection *ins = r->ins;
    struct check_tree *t = volume_of(ins, e);
    if (e->kind == ENTRY_BRIDGE)
        return;
    /* Past the end: written while a checkpoint was made that cuts the volume off. Ranges may reach beyond it. */
    if (t == NULL || e->index >= t->record_count) {
        ins->report->summary.skipped_entries++;
        return;
    }
    ins->report->summary.replay_entries++;
    const uint64_t address = r->chunk.address + e->payload_offset;
    const uint64_t offset = r->chunk.device_offset_bytes + e->payload_offset;
    if (e->kind == ENTRY_PATCH && !range_inside(e->first_sector, e->sector_count, t->record_bytes / SECTOR_BYTES)) {
        check_found_in(ins, CHECK_PROBLEM_LOG_ENTRY_RANGE, t, e->index, 1, offset, address,
                       "a patch of sectors %u+%u on a record of %" PRIu32, e->first_sector, e->sector_count,
                       t->record_bytes / SECTOR_BYTES);
        return;
    }
    if (e->length == 0 || r->bytes == NULL)
        return;
    const struct check_object o = {.address = address,
                                   .index = e->index,
                                   .checksum = e->checksum,
                                   .length = e->length,
                                   .tree = (uint32_t)(t - ins->trees.list),
                                   .first_sector = e->first_sector,
                                   .sector_count = e->sector_count,
                                   .kind = e->kind,
                                   .codec = e->codec,
                                   .flags = e->flags};
    enum check_problem_id id;
    if (!check_object_verify(ins, &o, r->bytes + e->payload_offset, &id))
        check_note_damage(ins, &o, offset, id);
}

/* Reads chunk number i of the replay again, with its payload if `payload`. -ESTALE: it is not there any more. */
static int load_chunk(struct replayed *r, size_t i, bool payload)
{
    struct inspection *ins = r->ins;
    const struct check_replay_chunk *c = &ins->replay.list[i];
    const uint64_t segment = c->address / ins->segment_bytes;
    const uint32_t at = (uint32_t)(c->address % ins->segment_bytes);
    r->bytes = NULL;
    if (c->echo_offset != 0) {
        if (check_chunk_read_echo(ins, &ins->scan, c->echo_offset, c->slot, segment, at, &r->chunk) != 0)
            return -ESTALE;
    } else if (check_chunk_read(ins, &ins->scan, c->slot, segment, at, at + c->chunk_bytes, &r->chunk) != 0)
        return -ESTALE;
    if (!payload)
        return 0;
    const uint64_t start = r->chunk.device_offset_bytes;
    r->bytes = check_window_bytes(&ins->scan, start, c->chunk_bytes, start + c->chunk_bytes);
    return r->bytes != NULL ? 0 : -ENOMEM;
}

/* Where the log ends: at the first chunk above durable_to that is not whole. */
static int cut_tail(struct replayed *r)
{
    struct inspection *ins = r->ins;
    for (size_t i = 0; i < ins->replay.count; i++) {
        const struct check_replay_chunk *c = &ins->replay.list[i];
        if (c->address + c->chunk_bytes <= r->durable_to)
            continue;
        const int result = load_chunk(r, i, true);
        if (result != 0)
            return result;
        if (c->echo_offset != 0 || !payload_verifies(r)) {
            ins->replay.count = i;
            return 0;
        }
    }
    return 0;
}

/* Decodes over ins->entries. */
static int look_at_echo(struct replayed *r)
{
    struct inspection *ins = r->ins;
    struct chunk_header echo;
    if (chunk_echo_decode(r->bytes, r->chunk.header.chunk_bytes, &r->chunk.header, ins->write_unit_bytes, &echo,
                          ins->entries) != -EBADMSG)
        return 0;
    return check_echo_damaged(ins, &r->chunk, r->last_front_bytes != 0 ? r->last_front : NULL, r->last_front_bytes);
}

/* The chunk just loaded is the one before the next. */
static void keep_front(struct replayed *r)
{
    const size_t n = CHUNK_HEADER_BYTES + (size_t)r->chunk.header.table_bytes;
    r->last_front_bytes = r->chunk.header.chunk_bytes == r->ins->write_unit_bytes ? n : 0;
    memcpy(r->last_front, r->ins->front, r->last_front_bytes);
}

static int apply_all(struct replayed *r)
{
    struct inspection *ins = r->ins;
    struct check_summary *s = &ins->report->summary;
    for (size_t i = 0; i < ins->replay.count; i++) {
        const int result = load_chunk(r, i, !ins->options.quick);
        if (result != 0)
            return result;
        for (uint32_t k = 0; k < r->chunk.header.entry_count; k++)
            apply_entry(r, &ins->entries[k]);
        /* The echo of a chunk that is not replayed is of no use any more. */
        const bool echo_matters = i > 0 && r->bytes != NULL;
        if (check_half(ins, &r->chunk) != 0 || (echo_matters && look_at_echo(r) != 0))
            return -ENOMEM;
        keep_front(r);
        s->replay_chunks++;
        s->replay_bytes += r->chunk.header.chunk_bytes;
        s->replay_to = r->chunk.address + r->chunk.header.chunk_bytes;
    }
    return 0;
}

static int replay_failed(const struct inspection *ins, int result, struct error *err)
{
    if (result == -ESTALE)
        return error_set(err, result, "%s: the log behind the checkpoint changed while it was read", ins->dev->name);
    return error_set(err, result, "%s: reading the log behind the checkpoint: %s", ins->dev->name, strerror(-result));
}

int check_replay(struct inspection *ins, struct error *err)
{
    struct chain chain;
    int result;
    begin(&chain, ins);
    ins->report->summary.replay_from = ins->report->summary.replay_to = ins->label.replay_address;
    do
        result = step(&chain);
    while (result > 0);
    const uint64_t end = chain_address(&chain);
    if (result == 0 && !chain.stopped && (ins->label.flags & LABEL_CLEAN) == 0) {
        const struct ahead a = look_ahead(&chain);
        if (a.claim > end) {
            check_found(ins, CHECK_PROBLEM_LOG_DAMAGED, check_slot_offset(ins, chain.at.slot) + chain.offset, end,
                        "what follows says that the log was flushed up to %" PRIu64, a.claim);
            name_unreached(&chain, &a);
        }
        chain.durable_to = max_u64(chain.durable_to, a.claim);
    }
    struct replayed r = {.ins = ins, .durable_to = chain.durable_to};
    r.last_front = malloc(chunk_echo_bytes_max(ins->write_unit_bytes));
    if (result == 0 && r.last_front == NULL)
        result = -ENOMEM;
    if (result == 0)
        result = cut_tail(&r);
    if (result == 0)
        result = apply_all(&r);
    free(r.last_front);
    return result == 0 ? 0 : replay_failed(ins, result, err);
}

/* ---- what the log replaces ---- */

/* true if this entry, written later, stands in for the damaged object of its branch. */
static bool replaces(const struct chunk_entry *e, uint64_t address, const struct check_object *o)
{
    if (address <= o->address || o->index < e->index || o->index - e->index >= e->count)
        return false;
    if (e->kind == ENTRY_PATCH)
        return o->kind == ENTRY_PATCH && o->first_sector >= e->first_sector &&
               o->first_sector + o->sector_count <= e->first_sector + e->sector_count;
    return e->kind == ENTRY_DATA || e->kind == ENTRY_TRIM || e->kind == ENTRY_ZERO;
}

static int damage_compare(const void *a, const void *b)
{
    const struct check_object *x = &((const struct check_damage *)a)->object;
    const struct check_object *y = &((const struct check_damage *)b)->object;
    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* The first damage of a tree at or behind an index. */
static size_t damage_lower_bound(const struct inspection *ins, uint32_t tree, uint64_t index)
{
    size_t low = 0, high = ins->damages.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct check_object *o = &ins->damages.list[middle].object;
        if (o->tree < tree || (o->tree == tree && o->index < index))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void supersede_by_chunk(struct inspection *ins, const struct check_chunk *c)
{
    /* An entry without bytes stands where the bytes of the entries before it end. */
    uint64_t address = c->address + CHUNK_HEADER_BYTES + c->header.table_bytes + c->header.echo_bytes;
    for (uint32_t k = 0; k < c->header.entry_count; k++) {
        const struct chunk_entry *e = &ins->entries[k];
        const struct check_tree *t = volume_of(ins, e);
        const uint32_t tree = t != NULL ? (uint32_t)(t - ins->trees.list) : 0;
        size_t i = t != NULL ? damage_lower_bound(ins, tree, e->index) : ins->damages.count;
        for (; i < ins->damages.count; i++) {
            struct check_damage *d = &ins->damages.list[i];
            if (d->object.tree != tree || d->object.index - e->index >= e->count)
                break;
            d->superseded |= replaces(e, address, &d->object);
        }
        address += e->length;
    }
}

int check_replay_supersede(struct inspection *ins, struct error *err)
{
    struct replayed r = {.ins = ins};
    if (ins->damages.count == 0)
        return 0;
    qsort(ins->damages.list, ins->damages.count, sizeof(*ins->damages.list), damage_compare);
    for (size_t i = 0; i < ins->replay.count; i++) {
        const int result = load_chunk(&r, i, false);
        if (result != 0)
            return replay_failed(ins, result, err);
        supersede_by_chunk(ins, &r.chunk);
    }
    return 0;
}
