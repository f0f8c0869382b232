/*
 * The walk over a tree of pointers, and the rules that every pointer must keep wherever it stands.
 *
 * The level falls at each step, so that the walk ends; at most MAP_LEVELS_MAX nodes are in memory at a time.
 */
#include "check/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/chunk.h"

struct walk {
    struct inspection *ins;
    const struct check_visitor *visitor;
    uint32_t tree_number;
    struct node *nodes[MAP_LEVELS_MAX]; /* one a level */
    struct node_patch *patches;
    uint8_t *bytes;
};

static struct check_tree *tree_of(const struct walk *w)
{
    return &w->ins->trees.list[w->tree_number];
}

static uint64_t records_below(uint8_t level)
{
    return UINT64_C(1) << map_level_bits(level);
}

/* A part of the tree stays unknown. */
static void lose(struct walk *w)
{
    struct inspection *ins = w->ins;
    tree_of(w)->incomplete = true;
    ins->incomplete = true;
    if (w->tree_number == CHECK_TREE_TABLE)
        ins->table_incomplete = true;
}

static void __attribute__((format(printf, 6, 7)))
complain(struct walk *w, enum check_problem_id id, uint8_t level, uint64_t number, const struct pointer *p,
         const char *format, ...)
{
    if (!w->visitor->report)
        return;
    char detail[160];
    va_list args;
    va_start(args, format);
    if (vsnprintf(detail, sizeof(detail), format, args) < 0)
        detail[0] = '\0';
    va_end(args);
    const uint64_t first = number << map_level_bits(level);
    check_found_in(w->ins, id, tree_of(w), first, records_below(level),
                   check_locate(w->ins, w->tree_number, p->address, p->length), p->address,
                   "node of level %u, number %" PRIu64 "%s%s", level, number, detail[0] != '\0' ? ": " : "", detail);
}

/* ---- reading ---- */

static bool read_at(struct inspection *ins, const struct pointer *p, uint64_t place, uint8_t *ret_bytes)
{
    const uint8_t *bytes = check_window_bytes(&ins->point, ins->data_start_bytes + place, p->length, UINT64_MAX);
    if (bytes == NULL)
        return false;
    memcpy(ret_bytes, bytes, p->length);
    return checksum_equal(checksum_of(ret_bytes, p->length), p->checksum);
}

int check_object_read(struct inspection *ins, uint32_t tree, const struct pointer *p, bool has_copy, uint8_t *ret_bytes,
                      uint64_t *ret_device_offset_bytes)
{
    const uint64_t place = check_place(ins, tree, p->address, p->length);
    *ret_device_offset_bytes = place == CHECK_NOWHERE ? CHECK_NOWHERE : ins->data_start_bytes + place;
    if (place == CHECK_NOWHERE)
        return -ENOENT;
    if (read_at(ins, p, place, ret_bytes))
        return 0;
    struct check_chunk c;
    if (!has_copy || check_chunk_around(ins, &ins->scan, place, &c) != 0 || !check_chunk_is_pair(&c) ||
        !read_at(ins, p, place + c.header.chunk_bytes, ret_bytes))
        return -EBADMSG;
    *ret_device_offset_bytes += c.header.chunk_bytes;
    return 0;
}

/* ---- rules ---- */

/* A log address that stored bytes may have at all: in one segment that was issued. */
static const char *address_fault(const struct inspection *ins, const struct pointer *p)
{
    if (p->address / ins->segment_bytes >= ins->label.next_segment)
        return "address in a segment that was never issued";
    if (!range_inside(p->address % ins->segment_bytes, p->length, ins->segment_bytes))
        return "bytes beyond the end of the segment";
    return NULL;
}

/* Where a node or record of the slot table must lie: its pointers are places, so that it can be read to find places. */
static const char *table_place_fault(const struct inspection *ins, const struct pointer *p)
{
    const uint64_t slot = p->address / ins->segment_bytes, at = p->address % ins->segment_bytes;
    if (slot >= ins->slot_count)
        return "a slot that the device does not have";
    if (!range_inside(at, p->length, ins->segment_bytes))
        return "bytes beyond the end of the slot";
    if (slot == ins->label.node_slot && at + p->length > ins->label.node_address % ins->segment_bytes)
        return "place not below the node head";
    return NULL;
}

/* Where a node, or a record of the pool's own trees, must lie: in the node head, below the label's position there. */
static const char *node_head_fault(const struct walk *w, const struct pointer *p, uint64_t parent_address)
{
    const struct inspection *ins = w->ins;
    if (w->tree_number == CHECK_TREE_TABLE)
        return table_place_fault(ins, p);
    const char *fault = address_fault(ins, p);
    if (fault == NULL && p->address >= parent_address)
        fault = "address not below that of the node above";
    if (fault == NULL && ins->label.node_slot != SLOT_NONE && p->address + p->length > ins->label.node_address)
        fault = "address not below the node head";
    return fault;
}

/* Where a volume's record or patch must lie: in the data head below the cut. */
static const char *data_head_fault(const struct inspection *ins, const struct pointer *p)
{
    const char *fault = address_fault(ins, p);
    if (fault == NULL && p->address + p->length > ins->label.replay_address)
        fault = "address not below the replay start";
    return fault;
}

static const char *record_fault(const struct walk *w, const struct pointer *p, uint32_t raw_bytes,
                                uint64_t leaf_address)
{
    const bool own = w->tree_number < CHECK_TREES_OWN;
    if (p->codec == CODEC_OFF ? p->length != raw_bytes : p->length >= raw_bytes)
        return "length does not fit the record size";
    return own ? node_head_fault(w, p, leaf_address) : data_head_fault(w->ins, p);
}

/* ---- walking ---- */

/* A pointer without bytes that stands for records [first, first + count). */
static bool is_hole(const struct pointer *p)
{
    return p->kind == POINTER_HOLE || p->kind == POINTER_PROVISIONED || p->kind == POINTER_LOST;
}

static int visit_hole(struct walk *w, const struct pointer *p, uint64_t first, uint64_t count)
{
    struct check_tree *t = tree_of(w);
    t->lossy |= p->kind == POINTER_LOST;
    if (p->kind == POINTER_LOST && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_RANGE_LOST, t, first, count, CHECK_NOWHERE, p->address,
                       "the node was at that address");
    if (p->kind != POINTER_LOST && p->address >= w->ins->label.replay_address && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_MAP_ADDRESS, t, first, count, CHECK_NOWHERE, p->address,
                       "a hole dated not below the replay start");
    const uint64_t end = max_u64(first, t->record_count);
    if (p->kind == POINTER_PROVISIONED && count > end - first && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_MAP_BEYOND_END, t, first, count, CHECK_NOWHERE, p->address,
                       "provisioned records %" PRIu64 "+%" PRIu64 " of %" PRIu64, first, count, t->record_count);
    if (w->visitor->hole == NULL)
        return 0;
    return w->visitor->hole(w->visitor->arg, w->tree_number, p, first, count);
}

static uint32_t raw_bytes_of(const struct check_tree *t, const struct pointer *p)
{
    return t->record_bytes + ((p->flags & POINTER_LOSSY) != 0 ? RECORD_LOSS_MAP_BYTES(t->record_bytes) : 0);
}

/* A pointer in a leaf. Returns false (reported) if what it names is out of bounds and must not be followed. */
static bool leaf_pointer_allowed(struct walk *w, const struct pointer *p, uint64_t index, uint64_t leaf_address)
{
    const struct check_tree *t = tree_of(w);
    const uint64_t offset = check_locate(w->ins, w->tree_number, p->address, p->length);
    const char *fault = record_fault(w, p, raw_bytes_of(t, p), leaf_address);
    if (fault != NULL && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_MAP_ADDRESS, t, index, 1, offset, p->address, "%s", fault);
    else if (fault == NULL && index >= t->record_count && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_MAP_BEYOND_END, t, index, 1, offset, p->address,
                       "record %" PRIu64 " of %" PRIu64, index, t->record_count);
    else if (fault == NULL && offset == CHECK_NOWHERE && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_SEGMENT_LOST, t, index, 1, offset, p->address, "segment %" PRIu64,
                       p->address / w->ins->segment_bytes);
    return fault == NULL && offset != CHECK_NOWHERE;
}

static int visit_patch(struct walk *w, const struct patch *p, uint64_t index)
{
    const struct check_tree *t = tree_of(w);
    const uint32_t sectors = t->record_bytes / SECTOR_BYTES;
    const char *fault = data_head_fault(w->ins, &p->pointer);
    if (w->tree_number < CHECK_TREES_OWN)
        fault = "a patch on a record of the pool's own";
    else if (p->first_sector >= sectors || p->sector_count > sectors - p->first_sector)
        fault = "sectors beyond the record";
    const uint64_t offset = check_locate(w->ins, w->tree_number, p->pointer.address, p->pointer.length);
    if (fault != NULL && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_MAP_ADDRESS, t, index, 1, offset, p->pointer.address, "patch: %s", fault);
    else if (fault == NULL && index >= t->record_count && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_MAP_BEYOND_END, t, index, 1, offset, p->pointer.address,
                       "patch on record %" PRIu64 " of %" PRIu64, index, t->record_count);
    else if (fault == NULL && offset == CHECK_NOWHERE && w->visitor->report)
        check_found_in(w->ins, CHECK_PROBLEM_SEGMENT_LOST, t, index, 1, offset, p->pointer.address,
                       "segment %" PRIu64 " of a patch", p->pointer.address / w->ins->segment_bytes);
    if (fault != NULL || offset == CHECK_NOWHERE || w->visitor->patch == NULL)
        return 0;
    return w->visitor->patch(w->visitor->arg, w->tree_number, p, index);
}

static int visit_leaf(struct walk *w, const struct node *n, uint64_t leaf_address)
{
    int result = w->visitor->leaf != NULL ? w->visitor->leaf(w->visitor->arg, w->tree_number, n) : 0;
    const uint64_t first = n->number << MAP_LEAF_BITS;
    for (uint32_t i = 0; i < map_fanout(0) && result == 0; i++) {
        const struct pointer *p = &n->children[i];
        if (is_hole(p))
            result = visit_hole(w, p, first + i, 1);
        else if (p->kind == POINTER_DATA && leaf_pointer_allowed(w, p, first + i, leaf_address) &&
                 w->visitor->record != NULL)
            result = w->visitor->record(w->visitor->arg, w->tree_number, p, first + i);
    }
    for (uint32_t i = 0; i < n->patch_count && result == 0; i++)
        result = visit_patch(w, &n->patches[i].patch, first + n->patches[i].child);
    return result;
}

/* Both copies of a node are damaged. */
static void note_lost(struct walk *w, const struct pointer *p, uint8_t level, uint64_t number)
{
    complain(w, CHECK_PROBLEM_NODE_DAMAGED, level, number, p, "%" PRIu32 " bytes", p->length);
    struct check_lost_node *lost = w->visitor->report ? check_array_add(&w->ins->lost) : NULL;
    if (lost == NULL)
        return;
    *lost = (struct check_lost_node){.pointer = *p,
                                     .address = p->address,
                                     .branch = tree_of(w)->volume.branch,
                                     .tree = w->tree_number,
                                     .level = level,
                                     .number = number};
    if (w->tree_number == CHECK_TREE_TABLE)
        lost->address = check_address_of_place(w->ins, p->address);
}

/* Reads, verifies and decodes a node into w->nodes[level]. false: reported, the tree is incomplete. */
static bool read_node(struct walk *w, const struct pointer *p, uint8_t level, uint64_t number, uint64_t parent_address)
{
    struct inspection *ins = w->ins;
    const char *fault = node_head_fault(w, p, parent_address);
    if (fault == NULL && p->length > ins->node_bytes_max)
        fault = "longer than any node";
    if (fault != NULL) {
        complain(w, CHECK_PROBLEM_MAP_ADDRESS, level, number, p, "%s", fault);
        return false;
    }
    uint64_t offset;
    int result = check_object_read(ins, w->tree_number, p, true, w->bytes, &offset);
    if (result == -ENOENT)
        complain(w, CHECK_PROBLEM_SEGMENT_LOST, level, number, p, "segment %" PRIu64, p->address / ins->segment_bytes);
    else if (result != 0)
        note_lost(w, p, level, number);
    if (result != 0)
        return false;
    struct node *n = w->nodes[level];
    struct error err = {0};
    n->patches = w->patches;
    const uint64_t own_address = w->tree_number == CHECK_TREE_TABLE ? UINT64_MAX : p->address;
    if (node_decode(w->bytes, p->length, tree_of(w)->volume.branch, level, number, own_address, n, &err) == 0)
        return true;
    complain(w, CHECK_PROBLEM_NODE_INVALID, level, number, p, "%s", err.text);
    return false;
}

static int visit_node(struct walk *w, const struct pointer *p, uint8_t level, uint64_t number, uint64_t parent_address);

static int visit_inner(struct walk *w, const struct node *n, uint64_t own_address)
{
    int result = 0;
    const uint8_t below = (uint8_t)(n->level - 1);
    for (uint32_t i = 0; i < map_fanout(n->level) && result == 0; i++) {
        const struct pointer *p = &n->children[i];
        const uint64_t number = (n->number << MAP_INNER_BITS) + i;
        if (is_hole(p))
            result = visit_hole(w, p, number << map_level_bits(below), records_below(below));
        else if (p->kind == POINTER_NODE)
            result = visit_node(w, p, below, number, own_address);
    }
    return result;
}

static int visit_node(struct walk *w, const struct pointer *p, uint8_t level, uint64_t number, uint64_t parent_address)
{
    if (!read_node(w, p, level, number, parent_address)) {
        lose(w);
        return 0;
    }
    int result = 0;
    if (w->visitor->node != NULL)
        result = w->visitor->node(w->visitor->arg, w->tree_number, p, level, number);
    if (result != 0)
        return result;
    return level == 0 ? visit_leaf(w, w->nodes[0], p->address) : visit_inner(w, w->nodes[level], p->address);
}

/* The decoders of label and catalog have seen to the height. */
static int visit_root(struct walk *w)
{
    const struct pointer *p = &tree_of(w)->volume.root;
    const uint8_t height = tree_of(w)->volume.height;
    CHECK_LE(height, MAP_LEVELS_MAX);
    if (height == 0 || p->kind == POINTER_ABSENT)
        return 0;
    if (is_hole(p))
        return visit_hole(w, p, 0, records_below((uint8_t)(height - 1)));
    if (p->kind != POINTER_NODE) {
        complain(w, CHECK_PROBLEM_MAP_ADDRESS, (uint8_t)(height - 1), 0, p, "a root that is no node");
        lose(w);
        return 0;
    }
    return visit_node(w, p, (uint8_t)(height - 1), 0, UINT64_MAX);
}

int check_tree_walk(struct inspection *ins, uint32_t tree, const struct check_visitor *visitor)
{
    CHECK_LT(tree, ins->trees.count);
    if (ins->trees.list[tree].skipped)
        return 0;
    struct walk w = {.ins = ins, .visitor = visitor, .tree_number = tree};
    const uint8_t height = ins->trees.list[tree].volume.height;
    CHECK_LE(height, MAP_LEVELS_MAX);
    w.patches = calloc(NODE_PATCHES_MAX, sizeof(*w.patches));
    w.bytes = malloc(ins->node_bytes_max);
    bool room = w.patches != NULL && w.bytes != NULL;
    for (uint8_t i = 0; i < height && room; i++) {
        w.nodes[i] = malloc(sizeof(struct node));
        room = w.nodes[i] != NULL;
    }
    const int result = room ? visit_root(&w) : -ENOMEM;
    for (uint8_t i = 0; i < height; i++)
        free(w.nodes[i]);
    free(w.bytes);
    free(w.patches);
    return result;
}
