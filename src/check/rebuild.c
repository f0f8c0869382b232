/*
 * A leaf holds, for each of its records, what the newest entry of that record said when the leaf was written; an inner
 * node holds the newest node of each number below it, or a hole where the newest thing there was a trim. Entries are in
 * the chunk tables of the segments, which say which branch and index they belong to, so that the content can be
 * collected again. Since the node was written nothing in it has changed up to the replay start, or it would have been
 * written anew.
 *
 * What cannot be known is what entries were in segments that have been freed: a trim holds no bytes, so nothing keeps
 * its segment. But its traces may still lie in quarantined and free slots, and older versions of the node, dead but not
 * yet written over, tell what had become of each record when they were written. Therefore several answers are tried:
 * from the entries alone, and from each older version with the entries that are newer than what it says; each without
 * and with the traces in slots that are not in use. The checksum in the parent decides: only a node with exactly the
 * bytes that were lost is written back, in place. Without such an answer guessing could bring data back that had been
 * trimmed; what the accounts prove all the same is told by revive.c.
 */
#include "check/rebuild.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/chunk.h"
#include "check/rebuild_impl.h"
#include "check/repair.h"
#include "check/revive.h"

#define VERSIONS_TRIED_MAX 8

/* true if the entry is an older version of the node itself, not something below it. */
static bool is_version(const struct check_lost_node *lost, const struct found_entry *f)
{
    return f->entry.kind == ENTRY_NODE && f->entry.level == lost->level;
}

/* ---- collecting ---- */

static int lost_compare(const void *a, const void *b)
{
    const struct check_lost_node *x = a, *y = b;
    if (x->branch != y->branch)
        return x->branch < y->branch ? -1 : 1;
    if (x->level != y->level)
        return x->level < y->level ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* The first lost node of a branch and level from a number on. */
static size_t lost_lower_bound(const struct rebuild *r, uint64_t branch, uint8_t level, uint64_t number)
{
    const struct check_lost_node key = {.branch = branch, .level = level, .number = number};
    size_t low = r->lost_from, high = r->lost_end;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (lost_compare(&r->ins->lost.list[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int found_compare(const void *a, const void *b)
{
    const struct found_entry *x = a, *y = b;
    if (x->lost != y->lost)
        return x->lost < y->lost ? -1 : 1;
    if (x->chunk_address != y->chunk_address)
        return x->chunk_address < y->chunk_address ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/*
 * Where in `found`, plus 1, the newest entry of the kind is, if of such entries only the newest counts: of an inner
 * node those with bytes below one child, in slots that are trusted alike. (Whatever an older one did, the newest does
 * again.) A volume has one for each of its records below its root.
 */
static int newest_of_kind(struct rebuild *r, size_t lost, const struct chunk_entry *e, uint32_t **ret_place)
{
    const uint8_t level = r->ins->lost.list[lost].level;
    const bool node = e->kind == ENTRY_NODE;
    *ret_place = NULL;
    if (level == 0 || e->length == 0 || (node && e->level == level))
        return 0;
    struct rebuild_newest **newest = &r->newest[lost];
    if (*newest == NULL)
        *newest = calloc(1, sizeof(**newest));
    if (*newest == NULL)
        return -ENOMEM;
    const uint64_t child = (node ? e->index : e->index >> map_level_bits(level - 1u)) % map_fanout(level);
    *ret_place = node ? &(*newest)->node[r->trust][child] : &(*newest)->data[r->trust][child];
    return 0;
}

static int found_add(struct rebuild *r, const struct found_entry *entry)
{
    uint32_t *place;
    int result = newest_of_kind(r, entry->lost, &entry->entry, &place);
    if (result != 0)
        return result;
    if (place != NULL && *place != 0) {
        struct found_entry *before = &r->found.list[*place - 1];
        if (found_compare(before, entry) < 0)
            *before = *entry;
        return 0;
    }
    r->full |= r->found.count >= r->ins->options.found_max;
    if (r->full)
        return 0;
    struct found_entry *f = check_array_add(&r->found);
    if (f == NULL)
        return -ENOMEM;
    *f = *entry;
    if (place != NULL)
        *place = (uint32_t)r->found.count;
    return 0;
}

static int keep(struct rebuild *r, size_t lost, const struct check_chunk *c, uint32_t i)
{
    const struct chunk_entry *e = &r->ins->entries[i];
    const struct check_lost_node *n = &r->ins->lost.list[lost];
    const uint64_t address = c->address + (e->length != 0 ? e->payload_offset : 0);
    /* A node points down to what was written before it; a volume's leaf to the data head, whose addresses are another
     * sequence. */
    if (check_chunk_is_pair(c) && address >= n->address)
        return 0;
    const uint64_t place = (uint64_t)c->slot * r->ins->segment_bytes + c->at + e->payload_offset;
    const uint64_t offset = c->device_offset_bytes + e->payload_offset;
    const struct found_entry f = {.lost = lost,
                                  .chunk_address = c->address,
                                  .offsets = {offset, offset + c->header.chunk_bytes},
                                  .address = address,
                                  .pointed = n->tree == CHECK_TREE_TABLE ? place : address,
                                  .order = i,
                                  .trust = r->trust,
                                  .entry = *e};
    return found_add(r, &f);
}

/* Gives an entry to that lost node, if it is one. */
static int collect_for(struct rebuild *r, const struct check_chunk *c, uint32_t i, uint8_t level, uint64_t number)
{
    const struct inspection *ins = r->ins;
    const struct check_lost_node key = {.branch = ins->entries[i].branch, .level = level, .number = number};
    const size_t k = lost_lower_bound(r, key.branch, level, number);
    return k < r->lost_end && lost_compare(&ins->lost.list[k], &key) == 0 ? keep(r, k, c, i) : 0;
}

/* Gives an entry to the lost nodes it says something about. */
static int collect_entry(struct rebuild *r, const struct check_chunk *c, uint32_t i)
{
    const struct inspection *ins = r->ins;
    const struct chunk_entry *e = &ins->entries[i];
    int result = 0;
    if (e->kind == ENTRY_BRIDGE)
        return 0;
    if (e->kind == ENTRY_NODE) {
        result = collect_for(r, c, i, e->level, e->index);
        return result != 0 ? result : collect_for(r, c, i, (uint8_t)(e->level + 1), e->index >> MAP_INNER_BITS);
    }
    const uint64_t last = e->index + (e->count - 1);
    for (uint8_t level = 0; level < MAP_LEVELS_MAX; level++) {
        size_t k = lost_lower_bound(r, e->branch, level, e->index >> map_level_bits(level));
        for (; k < r->lost_end && result == 0; k++) {
            const struct check_lost_node *n = &ins->lost.list[k];
            if (n->branch != e->branch || n->level != level || n->number > last >> map_level_bits(level))
                break;
            result = keep(r, k, c, i);
        }
    }
    return result;
}

/* The end of a node segment that was closed with its whole length, because nobody knew how far it was written. */
static bool gap_is_unused(const struct rebuild *r, const struct check_walk *walk, const struct check_chunk *gap)
{
    const struct slot *t = &r->ins->slots[walk->slot].table;
    return t->head == CHUNK_HEAD_NODE && t->state == SLOT_CLOSED && t->used_bytes == r->ins->segment_bytes &&
           gap->at + gap->span_bytes >= walk->limit;
}

static int note_gap(struct rebuild *r, uint32_t slot, const struct check_chunk *gap)
{
    struct rebuild_gap *g = check_array_add(&r->gaps);
    if (g == NULL)
        return -ENOMEM;
    *g = (struct rebuild_gap){.from = gap->address, .to = gap->address + gap->span_bytes, .slot = slot};
    return 0;
}

static int collect_slot(struct rebuild *r, uint32_t slot)
{
    struct inspection *ins = r->ins;
    const uint8_t state = ins->slots[slot].table.state;
    struct check_walk walk = {.ins = ins, .window = &ins->scan, .slot = slot, .segment = check_slot_segment(ins, slot)};
    struct check_chunk c;
    enum check_step step;
    int result = 0;
    if (walk.segment > UINT64_MAX / ins->segment_bytes - 1)
        return 0;
    walk.limit = check_segment_limit(ins, slot, &walk.limit_known);
    r->trust = state == SLOT_OPEN || state == SLOT_CLOSED ? TRUST_LIVE
               : state == SLOT_QUARANTINED                ? TRUST_QUARANTINED
                                                          : TRUST_FREE;
    while (result == 0 && (step = check_walk_next(&walk, &c)) != CHECK_STEP_END) {
        if (step == CHECK_STEP_GAP && r->trust == TRUST_LIVE && !gap_is_unused(r, &walk, &c))
            result = note_gap(r, slot, &c);
        if (step == CHECK_STEP_GAP || (!check_chunk_is_pair(&c) && c.address >= ins->label.replay_address))
            continue;
        for (uint32_t i = 0; i < c.header.entry_count && result == 0; i++)
            result = collect_entry(r, &c, i);
    }
    return result;
}

static void forget_found(struct rebuild *r)
{
    r->found.count = r->gaps.count = 0;
    r->full = false;
    for (size_t i = 0; i < r->ins->lost.count; i++) {
        free(r->newest[i]);
        r->newest[i] = NULL;
    }
}

/* Collects the entries for lost nodes from lost_from on, for as many of them as there is room for. */
static int collect(struct rebuild *r)
{
    int result = 0;
    r->lost_end = r->ins->lost.count;
    for (;;) {
        const size_t nodes = r->lost_end - r->lost_from;
        forget_found(r);
        for (uint32_t slot = 0; slot < r->ins->slot_count && result == 0 && (!r->full || nodes == 1); slot++)
            result = collect_slot(r, slot);
        r->overflowed |= r->full;
        if (result != 0 || !r->full || nodes == 1)
            break;
        r->lost_end = r->lost_from + nodes / 2;
    }
    if (result == 0 && r->found.count > 0)
        qsort(r->found.list, r->found.count, sizeof(*r->found.list), found_compare);
    return result;
}

/* ---- putting together ---- */

struct pointer rebuild_pointer(const struct found_entry *f)
{
    static const uint8_t kinds[] = {
        [ENTRY_DATA] = POINTER_DATA, [ENTRY_PATCH] = POINTER_PATCH, [ENTRY_NODE] = POINTER_NODE};
    const struct chunk_entry *e = &f->entry;
    if (e->length == 0)
        return (struct pointer){.kind = e->kind == ENTRY_ZERO ? POINTER_PROVISIONED : POINTER_HOLE,
                                .address = f->address};
    return (struct pointer){.address = f->pointed,
                            .length = e->length,
                            .kind = kinds[e->kind],
                            .codec = e->codec,
                            .codec_param = e->codec_param,
                            .checksum_kind = CHECKSUM_KIND_XXH3_128,
                            .flags = e->flags,
                            .checksum = e->checksum};
}

/* Drops the patches on a child. */
static void drop_patches(struct node *n, uint32_t child)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n->patch_count; i++)
        if (n->patches[i].child != child)
            n->patches[kept++] = n->patches[i];
    n->patch_count = kept;
}

/* Drops the patches on a child that one of these sectors covers. */
static void drop_covered(struct node *n, uint32_t child, const struct chunk_entry *e)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n->patch_count; i++) {
        const struct patch *p = &n->patches[i].patch;
        bool covered = n->patches[i].child == child && p->first_sector >= e->first_sector &&
                       (uint32_t)p->first_sector + p->sector_count <= (uint32_t)e->first_sector + e->sector_count;
        if (!covered)
            n->patches[kept++] = n->patches[i];
    }
    n->patch_count = kept;
}

/* Puts a patch behind those on the same child; false: a record cannot have that many. */
static bool add_patch(struct node *n, uint32_t child, const struct found_entry *f)
{
    drop_covered(n, child, &f->entry);
    uint32_t at = 0, on_child = 0;
    for (; at < n->patch_count && n->patches[at].child <= child; at++)
        on_child += n->patches[at].child == child;
    if (on_child == PATCHES_PER_RECORD_MAX)
        return false;
    memmove(&n->patches[at + 1], &n->patches[at], (n->patch_count - at) * sizeof(*n->patches));
    n->patches[at] = (struct node_patch){.child = (uint8_t)child,
                                         .patch = {.first_sector = f->entry.first_sector,
                                                   .sector_count = f->entry.sector_count,
                                                   .pointer = rebuild_pointer(f)}};
    n->patch_count++;
    return true;
}

bool rebuild_apply_to_leaf(struct rebuild *r, const struct found_entry *f)
{
    struct node *n = &r->node;
    const uint64_t first = n->number << MAP_LEAF_BITS, end = first + map_fanout(0);
    const struct chunk_entry *e = &f->entry;
    for (uint64_t i = max_u64(e->index, first); i < min_u64(e->index + e->count, end); i++) {
        const uint32_t child = (uint32_t)(i - first);
        if (f->address <= r->known_to[child])
            continue;
        if (e->kind == ENTRY_PATCH)
            return add_patch(n, child, f);
        drop_patches(n, child);
        n->children[child] = rebuild_pointer(f);
    }
    return true;
}

/*
 * Inner nodes, in two passes over the entries: first the data head, which says whether the newest thing below a child
 * is a trim of all of it; then the node head, which names the nodes for the other children.
 */
static void apply_to_inner(struct rebuild *r, const struct found_entry *f, bool node_head)
{
    struct node *n = &r->node;
    const uint32_t bits = map_level_bits(n->level - 1u);
    const uint64_t first = n->number << MAP_INNER_BITS;
    const struct chunk_entry *e = &f->entry;
    if ((e->kind == ENTRY_NODE) != node_head)
        return;
    if (node_head) {
        struct pointer *p = &n->children[e->index - first];
        if (p->kind == POINTER_ABSENT || p->kind == POINTER_NODE)
            *p = rebuild_pointer(f);
        return;
    }
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        const uint64_t from = (first + i) << bits, to = (first + i + 1) << bits;
        if (e->index >= to || e->index + e->count <= from || f->address <= r->known_to[i])
            continue;
        const bool whole = e->length == 0 && e->index <= from && e->index + e->count >= to;
        n->children[i] = whole ? rebuild_pointer(f) : (struct pointer){0};
    }
}

void rebuild_begin(struct rebuild *r, const struct check_lost_node *lost)
{
    memset(r->node.children, 0, sizeof(r->node.children));
    memset(r->known_to, 0, sizeof(r->known_to));
    r->node.branch = lost->branch;
    r->node.level = lost->level;
    r->node.number = lost->number;
    r->node.patch_count = 0;
    r->node.patches = r->patches;
}

/* The node to begin with: an older version of itself, if one of its copies is intact. */
static bool begin_with_version(struct rebuild *r, const struct check_lost_node *lost, const struct found_entry *f)
{
    struct inspection *ins = r->ins;
    const struct chunk_entry *e = &f->entry;
    bool intact = false;
    rebuild_begin(r, lost);
    for (int copy = 0; copy < 2 && !intact; copy++) {
        const uint8_t *bytes = check_window_bytes(&ins->point, f->offsets[copy], e->length, 0);
        intact =
            bytes != NULL && checksum_equal(checksum_of(bytes, e->length), e->checksum) &&
            node_decode(bytes, e->length, lost->branch, lost->level, lost->number, UINT64_MAX, &r->node, NULL) == 0;
    }
    /* Entries with an address up to what the version names were written before it. Nodes count by another clock. */
    for (uint32_t i = 0; intact && i < map_fanout(lost->level); i++)
        if (r->node.children[i].kind != POINTER_NODE && r->node.children[i].kind != POINTER_LOST)
            r->known_to[i] = r->node.children[i].address;
    for (uint32_t i = 0; intact && i < r->node.patch_count; i++) {
        uint64_t *known = &r->known_to[r->node.patches[i].child];
        *known = max_u64(*known, r->node.patches[i].patch.pointer.address);
    }
    return intact;
}

/* Goes on with what was begun by entries [from, to) that are trusted enough; true if it is the node that was lost. */
static bool put_together(struct rebuild *r, const struct check_lost_node *lost, size_t from, size_t to,
                         enum trust trust)
{
    struct node *n = &r->node;
    for (int node_head = 0; node_head <= (lost->level > 0); node_head++)
        for (size_t i = from; i < to; i++) {
            const struct found_entry *f = &r->found.list[i];
            if (f->trust > trust || is_version(lost, f))
                continue;
            if (lost->level > 0)
                apply_to_inner(r, f, node_head != 0);
            else if (!rebuild_apply_to_leaf(r, f))
                return false;
        }
    const size_t room = node_encoded_bytes_max(n->level, n->patch_count);
    if (room > r->ins->node_bytes_max)
        return false;
    const size_t length = node_encode(n, r->bytes, room);
    return length == lost->pointer.length && checksum_equal(checksum_of(r->bytes, length), lost->pointer.checksum);
}

/* Tries all answers, the plainest first. */
static bool find_answer(struct rebuild *r, const struct check_lost_node *lost, size_t from, size_t to)
{
    unsigned tried = 0;
    for (enum trust trust = TRUST_LIVE; trust < TRUST_COUNT; trust++) {
        rebuild_begin(r, lost);
        if (put_together(r, lost, from, to, trust))
            return true;
    }
    for (size_t i = to; i > from && tried < VERSIONS_TRIED_MAX; i--) {
        const struct found_entry *version = &r->found.list[i - 1];
        if (!is_version(lost, version))
            continue;
        tried++;
        for (enum trust trust = TRUST_LIVE; trust < TRUST_COUNT; trust++)
            if (begin_with_version(r, lost, version) && put_together(r, lost, from, to, trust))
                return true;
    }
    return false;
}

/* Both copies, if the chunk around is known well enough to say where the second lies. */
static void plan_node(struct rebuild *r, const struct check_lost_node *lost)
{
    struct inspection *ins = r->ins;
    const struct check_tree *t = &ins->trees.list[lost->tree];
    const uint64_t place = check_place(ins, lost->tree, lost->pointer.address, lost->pointer.length);
    const uint64_t offset = ins->data_start_bytes + place;
    struct check_chunk c;
    CHECK_NE(place, CHECK_NOWHERE);
    check_repair_add(ins, offset, r->bytes, lost->pointer.length,
                     "map node of level %u, number %" PRIu64 " of %.40s, rebuilt from the log", lost->level,
                     lost->number, t->volume.name);
    if (check_chunk_around(ins, &ins->scan, place, &c) == 0 && check_chunk_is_pair(&c))
        check_repair_add(ins, offset + c.header.chunk_bytes, r->bytes, lost->pointer.length,
                         "second copy of that map node");
}

static void answer(struct rebuild *r)
{
    for (size_t from = 0, to; from < r->found.count; from = to) {
        const struct check_lost_node *lost = &r->ins->lost.list[r->found.list[from].lost];
        for (to = from; to < r->found.count && r->found.list[to].lost == r->found.list[from].lost;)
            to++;
        if (find_answer(r, lost, from, to))
            plan_node(r, lost);
    }
}

static int rebuild_all(struct rebuild *r)
{
    struct inspection *ins = r->ins;
    int result = 0;
    qsort(ins->lost.list, ins->lost.count, sizeof(*ins->lost.list), lost_compare);
    for (r->lost_from = 0; r->lost_from < ins->lost.count && result == 0; r->lost_from = r->lost_end) {
        result = collect(r);
        if (result == 0)
            answer(r);
    }
    /* What has no such answer is next, when all that has is in place again. */
    return result != 0 || check_repair_planned(ins) || r->found.count == 0 ? result : check_revive(r);
}

int check_rebuild(struct inspection *ins, struct error *err)
{
    if (ins->lost.count == 0)
        return 0;
    struct rebuild *r = calloc(1, sizeof(*r));
    int result = -ENOMEM;
    if (r != NULL) {
        r->ins = ins;
        r->bytes = malloc(ins->node_bytes_max);
        r->newest = calloc(ins->lost.count, sizeof(*r->newest));
        if (r->bytes != NULL && r->newest != NULL) {
            result = rebuild_all(r);
            forget_found(r);
        }
        free(r->bytes);
        free(r->newest);
        free(r->gaps.list);
        free(r->found.list);
    }
    free(r);
    return result == 0 ? 0 : error_set(err, result, "%s: out of memory rebuilding map nodes", ins->dev->name);
}
