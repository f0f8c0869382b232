/*
 * A leaf holds, for each of its records, what the newest entry of that record said when the leaf was written; an inner
 * node holds the newest node of each number below it, or a hole where the newest thing there was a trim. Entries are in
 * the chunk tables of the segments, which say which branch and index they belong to, so that the content can be
 * collected again. Since the node was written nothing in it has changed up to the replay start, or it would have been
 * written anew.
 *
 * What cannot be known is what entries were in segments that have been freed: a trim holds no bytes, so nothing keeps
 * its segment. Its traces may still lie in quarantined and free slots. Therefore several answers are tried, from the
 * plainest to the one that trusts the oldest traces, and the checksum in the parent decides: only a node with exactly
 * the bytes that were lost is written back, in place. Without such an answer the node stays lost, and is reported so;
 * guessing could bring data back that had been trimmed.
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
#include "check/repair.h"

#define FOUND_ENTRIES_MAX (1u << 18) /* what is collected for the nodes of one run */

/* Where an entry was found: how far it is to be trusted to be the newest of its kind. */
enum trust { TRUST_LIVE, TRUST_QUARANTINED, TRUST_FREE, TRUST_COUNT };

struct found_entry {
    size_t lost;      /* number of the node it belongs to */
    uint64_t address; /* in the log: the order; of a trim that of its chunk: the date */
    uint64_t pointed; /* what a pointer to its bytes holds as address */
    uint32_t order;   /* among entries of one address */
    enum trust trust;
    struct chunk_entry entry;
};

struct rebuild {
    struct inspection *ins;
    CHECK_ARRAY(struct found_entry) found;
    enum trust trust; /* of the slot at hand */
    struct node node;
    struct node_patch patches[NODE_PATCHES_MAX];
    uint8_t *bytes;
};

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
static size_t lost_lower_bound(const struct inspection *ins, uint64_t branch, uint8_t level, uint64_t number)
{
    const struct check_lost_node key = {.branch = branch, .level = level, .number = number};
    size_t low = 0, high = ins->lost.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (lost_compare(&ins->lost.list[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
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
    if (r->found.count >= FOUND_ENTRIES_MAX)
        return 0;
    struct found_entry *f = check_array_add(&r->found);
    if (f == NULL)
        return -ENOMEM;
    const uint64_t place = (uint64_t)c->slot * r->ins->segment_bytes + c->at + e->payload_offset;
    *f = (struct found_entry){.lost = lost,
                              .address = address,
                              .pointed = n->tree == CHECK_TREE_TABLE ? place : address,
                              .order = i,
                              .trust = r->trust,
                              .entry = *e};
    return 0;
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
        const uint8_t level = (uint8_t)(e->level + 1);
        const uint64_t number = e->index >> MAP_INNER_BITS;
        const size_t k = lost_lower_bound(ins, e->branch, level, number);
        const struct check_lost_node key = {.branch = e->branch, .level = level, .number = number};
        return k < ins->lost.count && lost_compare(&ins->lost.list[k], &key) == 0 ? keep(r, k, c, i) : 0;
    }
    const uint64_t last = e->index + (e->count - 1);
    for (uint8_t level = 0; level < MAP_LEVELS_MAX; level++) {
        size_t k = lost_lower_bound(ins, e->branch, level, e->index >> map_level_bits(level));
        for (; k < ins->lost.count && result == 0; k++) {
            const struct check_lost_node *n = &ins->lost.list[k];
            if (n->branch != e->branch || n->level != level || n->number > last >> map_level_bits(level))
                break;
            result = keep(r, k, c, i);
        }
    }
    return result;
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
        if (step == CHECK_STEP_GAP || (!check_chunk_is_pair(&c) && c.address >= ins->label.replay_address))
            continue;
        for (uint32_t i = 0; i < c.header.entry_count && result == 0; i++)
            result = collect_entry(r, &c, i);
    }
    return result;
}

static int found_compare(const void *a, const void *b)
{
    const struct found_entry *x = a, *y = b;
    if (x->lost != y->lost)
        return x->lost < y->lost ? -1 : 1;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* ---- putting together ---- */

static struct pointer pointer_to(const struct found_entry *f)
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

/* Puts a patch behind those on the same child; false: a record cannot have that many. */
static bool add_patch(struct node *n, uint32_t child, const struct found_entry *f)
{
    uint32_t at = 0, on_child = 0;
    for (; at < n->patch_count && n->patches[at].child <= child; at++)
        on_child += n->patches[at].child == child;
    if (on_child == PATCHES_PER_RECORD_MAX)
        return false;
    memmove(&n->patches[at + 1], &n->patches[at], (n->patch_count - at) * sizeof(*n->patches));
    n->patches[at] = (struct node_patch){.child = (uint8_t)child,
                                         .patch = {.first_sector = f->entry.first_sector,
                                                   .sector_count = f->entry.sector_count,
                                                   .pointer = pointer_to(f)}};
    n->patch_count++;
    return true;
}

static bool apply_to_leaf(struct node *n, const struct found_entry *f)
{
    const uint64_t first = n->number << MAP_LEAF_BITS, end = first + map_fanout(0);
    const struct chunk_entry *e = &f->entry;
    for (uint64_t i = max_u64(e->index, first); i < min_u64(e->index + e->count, end); i++) {
        const uint32_t child = (uint32_t)(i - first);
        if (e->kind == ENTRY_PATCH)
            return add_patch(n, child, f);
        drop_patches(n, child);
        n->children[child] = pointer_to(f);
    }
    return true;
}

/*
 * Inner nodes, in two passes over the entries: first the data head, which says whether the newest thing below a child
 * is a trim of all of it; then the node head, which names the nodes for the other children.
 */
static void apply_to_inner(struct node *n, const struct found_entry *f, bool node_head)
{
    const uint32_t bits = map_level_bits(n->level - 1u);
    const uint64_t first = n->number << MAP_INNER_BITS;
    const struct chunk_entry *e = &f->entry;
    if ((e->kind == ENTRY_NODE) != node_head)
        return;
    if (node_head) {
        struct pointer *p = &n->children[e->index - first];
        if (p->kind == POINTER_ABSENT || p->kind == POINTER_NODE)
            *p = pointer_to(f);
        return;
    }
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        const uint64_t from = (first + i) << bits, to = (first + i + 1) << bits;
        if (e->index >= to || e->index + e->count <= from)
            continue;
        const bool whole = e->length == 0 && e->index <= from && e->index + e->count >= to;
        n->children[i] = whole ? pointer_to(f) : (struct pointer){0};
    }
}

/* Puts a node together from entries [from, to) that are trusted enough; true if it is the one that was lost. */
static bool put_together(struct rebuild *r, const struct check_lost_node *lost, size_t from, size_t to,
                         enum trust trust)
{
    struct node *n = &r->node;
    memset(n->children, 0, sizeof(n->children));
    n->branch = lost->branch;
    n->level = lost->level;
    n->number = lost->number;
    n->patch_count = 0;
    n->patches = r->patches;
    for (int node_head = 0; node_head <= (lost->level > 0); node_head++)
        for (size_t i = from; i < to; i++) {
            if (r->found.list[i].trust > trust)
                continue;
            if (lost->level > 0)
                apply_to_inner(n, &r->found.list[i], node_head != 0);
            else if (!apply_to_leaf(n, &r->found.list[i]))
                return false;
        }
    const size_t room = node_encoded_bytes_max(n->level, n->patch_count);
    if (room > r->ins->node_bytes_max)
        return false;
    const size_t length = node_encode(n, r->bytes, room);
    return length == lost->pointer.length && checksum_equal(checksum_of(r->bytes, length), lost->pointer.checksum);
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

static int rebuild_all(struct rebuild *r)
{
    struct inspection *ins = r->ins;
    int result = 0;
    qsort(ins->lost.list, ins->lost.count, sizeof(*ins->lost.list), lost_compare);
    for (uint32_t slot = 0; slot < ins->slot_count && result == 0; slot++)
        result = collect_slot(r, slot);
    if (result != 0 || r->found.count == 0)
        return result;
    qsort(r->found.list, r->found.count, sizeof(*r->found.list), found_compare);
    for (size_t from = 0, to; from < r->found.count; from = to) {
        const struct check_lost_node *lost = &ins->lost.list[r->found.list[from].lost];
        for (to = from; to < r->found.count && r->found.list[to].lost == r->found.list[from].lost;)
            to++;
        for (enum trust trust = TRUST_LIVE; trust < TRUST_COUNT; trust++)
            if (put_together(r, lost, from, to, trust)) {
                plan_node(r, lost);
                break;
            }
    }
    return 0;
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
        if (r->bytes != NULL)
            result = rebuild_all(r);
        free(r->bytes);
        free(r->found.list);
    }
    free(r);
    return result == 0 ? 0 : error_set(err, result, "%s: out of memory rebuilding map nodes", ins->dev->name);
}
