/*
 * All maps: every tree is walked once for the rules and the recounts, and what it refers to is listed, with its place,
 * for the pass over the slots. A pool with more objects than may be listed at a time is walked again, silently, for one
 * range of slots after the other: the number of walks is the number of objects over objects_max.
 */
#include "check/inspection.h"

#include <errno.h>
#include <inttypes.h>

#include "base/check.h"
#include "base/error.h"
#include "check/tree.h"

struct listing {
    struct inspection *ins;
    bool counting;                 /* the first walk */
    bool full;                     /* too many objects: the list was given up */
    uint32_t first_slot, end_slot; /* of the objects to list */
};

static int list_object(struct listing *l, const struct check_object *o)
{
    struct inspection *ins = l->ins;
    const uint32_t slot = (uint32_t)(o->place / ins->segment_bytes);
    CHECK_LT(slot, ins->slot_count);
    if (l->counting) {
        struct check_slot *s = &ins->slots[slot];
        s->object_count++;
        if (o->tree >= CHECK_TREES_OWN)
            s->live_bytes += o->length;
    }
    if (l->full || slot < l->first_slot || slot >= l->end_slot)
        return 0;
    if (l->counting && ins->objects.count >= ins->options.objects_max) {
        l->full = true;
        ins->objects.count = 0;
        return 0;
    }
    struct check_object *added = check_array_add(&ins->objects);
    if (added == NULL)
        return -ENOMEM;
    *added = *o;
    return 0;
}

static struct check_object object_of(struct inspection *ins, uint32_t tree, const struct pointer *p, uint64_t index)
{
    struct check_object o = {.place = check_place(ins, tree, p->address, p->length),
                             .address = p->address,
                             .index = index,
                             .checksum = p->checksum,
                             .length = p->length,
                             .tree = tree,
                             .codec = p->codec,
                             .flags = p->flags};
    CHECK_NE(o.place, CHECK_NOWHERE);
    if (tree == CHECK_TREE_TABLE)
        o.address = check_address_of_place(ins, o.place);
    return o;
}

static int list_node(void *arg, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct listing *l = arg;
    struct check_object o = object_of(l->ins, tree, p, number);
    o.kind = ENTRY_NODE;
    o.level = level;
    if (l->counting) {
        l->ins->trees.list[tree].node_bytes += p->length;
        l->ins->report->summary.nodes++;
    }
    return list_object(l, &o);
}

/* A record is mapped if it has bytes: its own, or patches on what reads as zeroes. */
static int count_leaf(void *arg, uint32_t tree, const struct node *leaf)
{
    struct listing *l = arg;
    bool mapped[1u << MAP_LEAF_BITS] = {false};
    for (uint32_t i = 0; i < map_fanout(0); i++)
        mapped[i] = leaf->children[i].kind == POINTER_DATA;
    for (uint32_t i = 0; i < leaf->patch_count; i++)
        mapped[leaf->patches[i].child] = true;
    for (uint32_t i = 0; i < map_fanout(0) && l->counting; i++)
        l->ins->trees.list[tree].mapped_records += mapped[i];
    return 0;
}

static int list_record(void *arg, uint32_t tree, const struct pointer *p, uint64_t index)
{
    struct listing *l = arg;
    struct check_object o = object_of(l->ins, tree, p, index);
    o.kind = ENTRY_DATA;
    if (l->counting) {
        l->ins->trees.list[tree].stored_bytes += p->length;
        if (tree >= CHECK_TREES_OWN) {
            l->ins->report->summary.records++;
            l->ins->report->summary.stored_bytes += p->length;
        }
    }
    return list_object(l, &o);
}

static int list_patch(void *arg, uint32_t tree, const struct patch *p, uint64_t index)
{
    struct listing *l = arg;
    struct check_object o = object_of(l->ins, tree, &p->pointer, index);
    o.kind = ENTRY_PATCH;
    o.first_sector = p->first_sector;
    o.sector_count = p->sector_count;
    if (l->counting) {
        l->ins->trees.list[tree].stored_bytes += p->pointer.length;
        l->ins->report->summary.patches++;
        l->ins->report->summary.stored_bytes += p->pointer.length;
    }
    return list_object(l, &o);
}

static int count_hole(void *arg, uint32_t tree, const struct pointer *p, uint64_t first, uint64_t count)
{
    struct listing *l = arg;
    (void)first;
    if (l->counting && p->kind == POINTER_PROVISIONED)
        l->ins->trees.list[tree].provisioned_records += count;
    return 0;
}

static int walk_all(struct listing *l)
{
    struct inspection *ins = l->ins;
    const struct check_visitor visitor = {.arg = l,
                                          .node = list_node,
                                          .leaf = count_leaf,
                                          .record = list_record,
                                          .patch = list_patch,
                                          .hole = count_hole,
                                          .report = l->counting};
    int result = 0;
    for (uint32_t t = 0; t < ins->trees.count && result == 0; t++)
        result = check_tree_walk(ins, t, &visitor);
    return result;
}

/* The slots from `first` on whose objects fit the list together; at least one slot. */
static uint32_t batch_end(const struct inspection *ins, uint32_t first)
{
    uint64_t sum = ins->slots[first].object_count;
    uint32_t end = first + 1;
    while (end < ins->slot_count && sum + ins->slots[end].object_count <= ins->options.objects_max)
        sum += ins->slots[end++].object_count;
    return end;
}

int check_maps(struct inspection *ins, struct error *err)
{
    struct listing l = {.ins = ins, .counting = true, .end_slot = ins->slot_count};
    int result = walk_all(&l);
    if (result == 0 && !l.full)
        return check_slots(ins, 0, ins->slot_count, err);
    l.counting = l.full = false;
    for (uint32_t first = 0; first < ins->slot_count && result == 0; first = l.end_slot) {
        l.first_slot = first;
        l.end_slot = batch_end(ins, first);
        ins->objects.count = 0;
        result = walk_all(&l);
        if (result == 0)
            result = check_slots(ins, first, l.end_slot, err);
    }
    return result == 0 ? 0 : error_set(err, result, "%s: out of memory for the maps", ins->dev->name);
}
