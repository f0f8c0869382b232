/*
 * The pass over the slots: every chunk of every segment in use, against the list of what is referred to.
 *
 * For each slot the walk over its chunks and the objects sorted by address run side by side. An object must have an
 * entry that says exactly what its pointer says; its bytes must verify; no two objects may share bytes. In the node
 * head both copies must be right. Where the entries are lost, the pointer alone still verifies the bytes.
 */
#include "check/inspection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/chunk.h"
#include "check/repair.h"

struct pass {
    struct inspection *ins;
    uint32_t slot;
    uint64_t first_place;         /* of the slot */
    struct check_object *objects; /* in the slot, by place */
    size_t count, next;
    struct checksum chain; /* of the chunk before, if chain_known */
    bool chain_known;
    bool ended; /* the chunk before was a bridge */
};

static int object_compare(const void *a, const void *b)
{
    const struct check_object *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->tree < y->tree ? -1 : x->tree > y->tree;
}

/* The first object at or behind a place. */
static size_t object_lower_bound(const struct inspection *ins, uint64_t place)
{
    size_t low = 0, high = ins->objects.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ins->objects.list[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct check_tree *tree_of(const struct inspection *ins, const struct check_object *o)
{
    return &ins->trees.list[o->tree];
}

static void object_found(struct inspection *ins, enum check_problem_id id, const struct check_object *o,
                         uint64_t device_offset, const char *detail)
{
    const bool node = o->kind == ENTRY_NODE;
    const uint32_t bits = node ? map_level_bits(o->level) : 0;
    check_found_in(ins, id, tree_of(ins, o), o->index << bits, UINT64_C(1) << bits, device_offset, o->address, "%s%s%s",
                   node                     ? "a map node"
                   : o->kind == ENTRY_PATCH ? "a patch"
                                            : "a record",
                   detail[0] != '\0' ? ": " : "", detail);
}

/* NULL, or in what entry and pointer differ. */
static const char *entry_difference(const struct inspection *ins, const struct chunk_entry *e,
                                    const struct check_object *o)
{
    if (e->kind != o->kind)
        return "kind";
    if (e->branch != tree_of(ins, o)->volume.branch)
        return "branch";
    if (e->index != o->index || e->level != o->level)
        return "index";
    if (e->length != o->length)
        return "length";
    if (!checksum_equal(e->checksum, o->checksum))
        return "checksum";
    if (e->codec != o->codec || e->flags != o->flags)
        return "codec or flags";
    if (e->first_sector != o->first_sector || e->sector_count != o->sector_count)
        return "sectors";
    return NULL;
}

static void check_overlap(struct pass *p)
{
    const struct check_object *o = &p->objects[p->next];
    const struct check_object *before = p->next > 0 ? o - 1 : NULL;
    if (before == NULL || before->place + before->length <= o->place)
        return;
    char detail[120];
    (void)snprintf(detail, sizeof(detail), "with what branch %" PRIu64 " has at log address %" PRIu64,
                   tree_of(p->ins, before)->volume.branch, before->address);
    object_found(p->ins, CHECK_PROBLEM_OVERLAP, o, CHECK_NOWHERE, detail);
}

/* ---- payload ---- */

/* Verifies a volume's record or patch; bytes NULL: not to be read now. */
static void check_data(struct inspection *ins, const struct check_object *o, const uint8_t *bytes,
                       uint64_t device_offset)
{
    enum check_problem_id id;
    const bool data = o->tree >= CHECK_TREES_OWN && o->kind != ENTRY_NODE;
    if (bytes != NULL && data && !check_object_verify(ins, o, bytes, &id))
        check_note_damage(ins, o, device_offset, id);
}

/* Payload of the chunk at hand that nothing refers to. */
static void check_dead(struct inspection *ins, const struct check_chunk *c, const struct chunk_entry *e,
                       const uint8_t *bytes)
{
    if (!ins->options.all || e->length == 0)
        return;
    for (uint32_t copy = 0; copy < c->span_bytes; copy += c->header.chunk_bytes) {
        const uint32_t offset = copy + e->payload_offset;
        if (!checksum_equal(checksum_of(bytes + offset, e->length), e->checksum))
            check_found(ins, CHECK_PROBLEM_DEAD_DAMAGED, c->device_offset_bytes + offset, c->address + offset,
                        "branch %" PRIu64 ", index %" PRIu64 ", %" PRIu32 " bytes", e->branch, e->index, e->length);
    }
}

/* Both copies of an entry of the node head, referred to or not; counts those that are wrong. */
static void count_copy_damage(const struct check_chunk *c, const struct chunk_entry *e, const uint8_t *bytes,
                              uint32_t ret_wrong[2])
{
    bool right[2];
    for (uint32_t copy = 0; copy < 2; copy++) {
        const uint8_t *at = bytes + copy * c->header.chunk_bytes + e->payload_offset;
        right[copy] = checksum_equal(checksum_of(at, e->length), e->checksum);
    }
    /* Where both are wrong the walk over the maps has said what that means. */
    if (right[0] != right[1])
        ret_wrong[right[0] ? 1 : 0]++;
}

static void check_pair(struct pass *p, const struct check_chunk *c, const uint8_t *bytes)
{
    struct inspection *ins = p->ins;
    uint32_t wrong[2] = {0, 0};
    for (uint32_t i = 0; i < c->header.entry_count; i++)
        count_copy_damage(c, &ins->entries[i], bytes, wrong);
    const bool intact[2] = {c->first_intact, c->second_intact};
    for (uint32_t copy = 0; copy < 2; copy++)
        if (!intact[copy] || wrong[copy] != 0)
            check_found(ins, CHECK_PROBLEM_NODE_COPY_DAMAGED,
                        c->device_offset_bytes + copy * (uint64_t)c->header.chunk_bytes,
                        c->address + copy * (uint64_t)c->header.chunk_bytes,
                        "%s copy, %" PRIu32 " bytes: %s, %" PRIu32 " of %" PRIu32 " entries damaged",
                        copy == 0 ? "first" : "second", c->header.chunk_bytes,
                        intact[copy] ? "header and table intact" : "header or table damaged", wrong[copy],
                        c->header.entry_count);
    if (!intact[0] || !intact[1] || wrong[0] != 0 || wrong[1] != 0)
        check_repair_pair(ins, c, bytes);
}

/* ---- chunks ---- */

static void check_identity(struct pass *p, const struct check_chunk *c)
{
    struct inspection *ins = p->ins;
    const struct slot *t = &ins->slots[p->slot].table;
    if ((t->state == SLOT_OPEN || t->state == SLOT_CLOSED) && t->head != c->header.head)
        check_found(ins, CHECK_PROBLEM_SLOT_SEGMENT_MISMATCH, c->device_offset_bytes, c->address,
                    "slot %" PRIu32 ": a chunk of head %u in a segment of head %u", p->slot, c->header.head, t->head);
    if (c->header.head != CHUNK_HEAD_DATA)
        return;
    if (p->chain_known && !checksum_equal(p->chain, c->header.previous_chain))
        check_found(ins, CHECK_PROBLEM_CHAIN_MISMATCH, c->device_offset_bytes, c->address, "slot %" PRIu32, p->slot);
    p->chain = c->header.chain;
    p->chain_known = true;
    p->ended = (c->header.flags & CHUNK_FLAG_BRIDGE) != 0;
}

/* An object inside a chunk whose entries are known. *next_entry is the first entry not yet passed. */
static void check_in_chunk(struct pass *p, const struct check_chunk *c, const uint8_t *bytes, uint32_t *next_entry)
{
    struct inspection *ins = p->ins;
    const struct check_object *o = &p->objects[p->next];
    const uint64_t in_chunk = o->place - p->first_place - c->at;
    const uint64_t device_offset = c->device_offset_bytes + in_chunk;
    const struct chunk_entry *e = ins->entries;
    uint32_t i = *next_entry;
    while (i < c->header.entry_count && (e[i].length == 0 || e[i].payload_offset < in_chunk)) {
        if (bytes != NULL)
            check_dead(ins, c, &e[i], bytes);
        i++;
    }
    const char *difference = NULL;
    if (in_chunk >= c->header.chunk_bytes)
        object_found(ins, CHECK_PROBLEM_MAP_ADDRESS, o, device_offset, "the second copy is named");
    else if (i >= c->header.entry_count || e[i].payload_offset != in_chunk)
        object_found(ins, CHECK_PROBLEM_ENTRY_MISSING, o, device_offset, "");
    else
        difference = entry_difference(ins, &e[i++], o);
    if (difference != NULL)
        object_found(ins, CHECK_PROBLEM_ENTRY_MISMATCH, o, device_offset, difference);
    *next_entry = i;
    if (bytes != NULL && in_chunk + o->length <= c->span_bytes)
        check_data(ins, o, bytes + in_chunk, device_offset);
}

static int check_chunk(struct pass *p, const struct check_chunk *c, uint64_t until)
{
    struct inspection *ins = p->ins;
    const bool pair = check_chunk_is_pair(c);
    const uint64_t end = p->first_place + c->at + c->span_bytes;
    const uint8_t *bytes = NULL;
    check_identity(p, c);
    ins->report->summary.chunks++;
    if (!ins->options.quick || pair) {
        bytes = check_window_bytes(&ins->scan, c->device_offset_bytes, c->span_bytes, until);
        if (bytes == NULL)
            return -ENOMEM;
    }
    if (pair)
        check_pair(p, c, bytes);
    else if (check_half(ins, c) != 0)
        return -ENOMEM;
    uint32_t next_entry = 0;
    for (; p->next < p->count && p->objects[p->next].place < end; p->next++) {
        check_overlap(p);
        check_in_chunk(p, c, bytes, &next_entry);
    }
    for (; next_entry < c->header.entry_count && bytes != NULL; next_entry++)
        check_dead(ins, c, &ins->entries[next_entry], bytes);
    return 0;
}

/* Objects up to a place in the slot that no known chunk holds. */
static void check_without_chunk(struct pass *p, uint32_t until, bool damaged)
{
    struct inspection *ins = p->ins;
    const uint64_t end = p->first_place + until;
    for (; p->next < p->count && p->objects[p->next].place < end; p->next++) {
        const struct check_object *o = &p->objects[p->next];
        const uint64_t offset = ins->data_start_bytes + o->place;
        check_overlap(p);
        if (!damaged)
            object_found(ins, CHECK_PROBLEM_ENTRY_MISSING, o, offset, "");
        if (!ins->options.quick)
            check_data(ins, o, check_window_bytes(&ins->point, offset, o->length, 0), offset);
    }
}

/*
 * A segment of the node head that was filled while the table was written is closed by the next opening of the pool,
 * with its whole length: how far it was written nobody knows any more.
 */
static bool gap_is_unused(const struct pass *p, const struct check_walk *walk, const struct check_chunk *gap)
{
    const struct slot *t = &p->ins->slots[p->slot].table;
    const bool objects = p->next < p->count && p->objects[p->next].place < p->first_place + walk->limit;
    return t->head == CHUNK_HEAD_NODE && t->state == SLOT_CLOSED && t->used_bytes == p->ins->segment_bytes &&
           gap->at + gap->span_bytes >= walk->limit && !objects;
}

/* Why no chunk could be made out here: the table says wrong where the segment ends, the slot holds another one, or
 * damage. */
static void check_gap(struct pass *p, const struct check_walk *walk, const struct check_chunk *gap)
{
    struct inspection *ins = p->ins;
    const uint32_t at = gap->at;
    const uint8_t *bytes =
        check_window_bytes(&ins->scan, gap->device_offset_bytes, CHUNK_HEADER_BYTES, gap->device_offset_bytes);
    struct chunk_header h;
    struct check_chunk longer;
    const bool header =
        bytes != NULL && chunk_header_decode(bytes, CHUNK_HEADER_BYTES, ins->write_unit_bytes, &h, NULL) == 0;
    p->chain_known = false;
    if (gap_is_unused(p, walk, gap))
        return;
    if (at == 0 && header && h.address / ins->segment_bytes != walk->segment)
        check_found(ins, CHECK_PROBLEM_SLOT_SEGMENT_MISMATCH, gap->device_offset_bytes, h.address,
                    "slot %" PRIu32 " holds segment %" PRIu64 ", the table says %" PRIu64, p->slot,
                    h.address / ins->segment_bytes, walk->segment);
    else if (check_chunk_read(ins, &ins->scan, p->slot, walk->segment, at, ins->segment_bytes, &longer) == 0 &&
             at + longer.span_bytes > walk->limit)
        check_found(ins, CHECK_PROBLEM_SLOT_USED_MISMATCH, gap->device_offset_bytes, gap->address,
                    "slot %" PRIu32 ": the chunk here reaches beyond %" PRIu32 " bytes", p->slot, walk->limit);
    else
        check_found(ins, CHECK_PROBLEM_CHUNK_DAMAGED, gap->device_offset_bytes, gap->address,
                    "slot %" PRIu32 ", %" PRIu32 " bytes", p->slot, gap->span_bytes);
}

/* Behind the end of a closed data segment no chunk may go on with the chain. */
static void check_end(struct pass *p, const struct check_walk *walk)
{
    struct inspection *ins = p->ins;
    struct check_chunk more;
    if (ins->slots[p->slot].table.state != SLOT_CLOSED || !p->chain_known || p->ended)
        return;
    /* The segment of the cut was filled and left while the checkpoint was written: what lies behind the cut is the
     * replay's. */
    if (p->slot == ins->label.replay_slot)
        return;
    if (check_chunk_read(ins, &ins->scan, p->slot, walk->segment, walk->limit, ins->segment_bytes, &more) == 0 &&
        more.header.head == CHUNK_HEAD_DATA && checksum_equal(more.header.previous_chain, p->chain))
        check_found(ins, CHECK_PROBLEM_SLOT_USED_MISMATCH, more.device_offset_bytes, more.address,
                    "slot %" PRIu32 ": the segment goes on behind %" PRIu32 " bytes", p->slot, walk->limit);
}

static int check_slot(struct inspection *ins, uint32_t slot)
{
    const struct check_slot *s = &ins->slots[slot];
    const bool used = s->table.state == SLOT_OPEN || s->table.state == SLOT_CLOSED;
    if (!used && s->object_count == 0)
        return 0;
    struct check_walk walk = {.ins = ins, .window = &ins->scan, .slot = slot, .segment = check_slot_segment(ins, slot)};
    if (walk.segment > UINT64_MAX / ins->segment_bytes - 1)
        return 0;
    walk.limit = check_segment_limit(ins, slot, &walk.limit_known);
    struct pass p = {.ins = ins, .slot = slot, .first_place = (uint64_t)slot * ins->segment_bytes};
    const size_t first = object_lower_bound(ins, p.first_place);
    p.objects = ins->objects.count > 0 ? ins->objects.list + first : NULL;
    p.count = object_lower_bound(ins, p.first_place + ins->segment_bytes) - first;
    const uint64_t until = check_slot_offset(ins, slot) + walk.limit;
    for (;;) {
        struct check_chunk c;
        const enum check_step step = check_walk_next(&walk, &c);
        if (step == CHECK_STEP_END)
            break;
        check_without_chunk(&p, c.at, false);
        if (step == CHECK_STEP_CHUNK) {
            const int result = check_chunk(&p, &c, until);
            if (result != 0)
                return result;
            continue;
        }
        check_gap(&p, &walk, &c);
        check_without_chunk(&p, c.at + c.span_bytes, true);
    }
    if (walk.limit_known)
        check_end(&p, &walk);
    check_without_chunk(&p, ins->segment_bytes, false);
    check_progress(ins, walk.limit);
    return 0;
}

int check_slots(struct inspection *ins, uint32_t first, uint32_t end, struct error *err)
{
    if (ins->objects.count > 0)
        qsort(ins->objects.list, ins->objects.count, sizeof(*ins->objects.list), object_compare);
    for (uint32_t slot = first; slot < end; slot++) {
        const int result = check_slot(ins, slot);
        if (result != 0)
            return error_set(err, result, "%s: out of memory in slot %" PRIu32, ins->dev->name, slot);
    }
    return 0;
}
