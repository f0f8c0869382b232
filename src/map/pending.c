/*
 * The pending list (pending.h): its two ordered maps, cutting ranges where newer ones or points fall into them, and
 * turning the whole into updates for a merge.
 */
#include "map/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

static struct pending_point *point_of(struct tree_node *n)
{
    return n == NULL ? NULL : CONTAINER_OF(n, struct pending_point, node);
}

static struct pending_range *range_of(struct tree_node *n)
{
    return n == NULL ? NULL : CONTAINER_OF(n, struct pending_range, node);
}

static void free_point(struct pending *p, struct pending_point *point)
{
    tree_remove(&p->points, &point->node);
    free(point->patches);
    free(point);
}

void pending_free(struct pending *p)
{
    struct tree_node *n;
    while ((n = p->points.root) != NULL)
        free_point(p, point_of(n));
    while ((n = p->ranges.root) != NULL) {
        tree_remove(&p->ranges, n);
        free(range_of(n));
    }
    CHECK_EQ(p->points.count, 0);
    CHECK_EQ(p->ranges.count, 0);
}

bool pending_empty(const struct pending *p)
{
    return p->points.count == 0 && p->ranges.count == 0;
}

/* The range that covers index, NULL if none does. */
static struct pending_range *covering(const struct pending *p, uint64_t index)
{
    struct pending_range *r = range_of(tree_find_le(&p->ranges, index));
    return r != NULL && index - r->node.key < r->count ? r : NULL;
}

static struct pending_point *point_for(struct pending *p, uint64_t index)
{
    struct pending_point *point = point_of(tree_find(&p->points, index));
    if (point != NULL)
        return point;
    point = calloc(1, sizeof *point);
    if (point == NULL)
        return NULL;
    struct pending_range *r = covering(p, index);
    if (r != NULL) {
        point->has_base = true;
        point->base = r->pointer;
    }
    point->node.key = index;
    tree_insert(&p->points, &point->node);
    return point;
}

int pending_set(struct pending *p, uint64_t index, const struct pointer *pointer)
{
    CHECK(pointer_valid(pointer));
    struct pending_point *point = point_for(p, index);
    if (point == NULL)
        return -ENOMEM;
    point->has_base = true;
    point->base = *pointer;
    point->patch_count = 0;
    return 0;
}

int pending_add_patch(struct pending *p, uint64_t index, const struct patch *patch)
{
    CHECK_EQ(patch->pointer.kind, POINTER_PATCH);
    struct pending_point *point = point_for(p, index);
    if (point == NULL)
        return -ENOMEM;
    if (point->patch_count == point->patch_room) {
        uint8_t room = point->patch_room == 0 ? 1 : (uint8_t)(point->patch_room * 2);
        struct patch *patches = realloc(point->patches, room * sizeof *patches);
        if (patches == NULL)
            return -ENOMEM; /* the point, if new and empty, says nothing: harmless */
        point->patches = patches;
        point->patch_room = room;
    }
    point->patches[point->patch_count++] = *patch;
    point->patch_count = (uint8_t)patches_prune(point->patches, point->patch_count, NULL, NULL);
    CHECK_LE(point->patch_count, PATCHES_PER_RECORD_MAX);
    return 0;
}

static struct pending_range *new_range(uint64_t first, uint64_t count, const struct pointer *pointer)
{
    struct pending_range *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->node.key = first;
    r->count = count;
    r->pointer = *pointer;
    return r;
}

/* Cuts what ranges have inside [first, end) out of them. May need one node: the range that reaches over both sides. */
static int cut_ranges(struct pending *p, uint64_t first, uint64_t end)
{
    struct pending_range *r = range_of(tree_find_le(&p->ranges, first));
    if (r != NULL && r->node.key < first && r->node.key + r->count > first) {
        uint64_t old_end = r->node.key + r->count;
        if (old_end > end) {
            struct pending_range *tail = new_range(end, old_end - end, &r->pointer);
            if (tail == NULL)
                return -ENOMEM;
            tree_insert(&p->ranges, &tail->node);
        }
        r->count = first - r->node.key;
    }
    while ((r = range_of(tree_find_ge(&p->ranges, first))) != NULL && r->node.key < end) {
        uint64_t old_end = r->node.key + r->count;
        tree_remove(&p->ranges, &r->node);
        if (old_end <= end) {
            free(r);
        } else {
            r->node.key = end;
            r->count = old_end - end;
            tree_insert(&p->ranges, &r->node);
        }
    }
    return 0;
}

int pending_set_range(struct pending *p, uint64_t first, uint64_t count, const struct pointer *pointer)
{
    CHECK_GT(count, 0);
    CHECK(pointer->kind == POINTER_HOLE || pointer->kind == POINTER_PROVISIONED);
    uint64_t end = first + count;
    struct pending_range *r = new_range(first, count, pointer);
    if (r == NULL)
        return -ENOMEM;
    int result = cut_ranges(p, first, end);
    if (result != 0) {
        free(r);
        return result;
    }
    struct tree_node *n;
    while ((n = tree_find_ge(&p->points, first)) != NULL && n->key < end)
        free_point(p, point_of(n));
    tree_insert(&p->ranges, &r->node);
    return 0;
}

enum pending_answer pending_lookup(const struct pending *p, uint64_t index, struct map_entry *ret_entry)
{
    struct pending_point *point = point_of(tree_find(&p->points, index));
    struct pending_range *r;
    if (point == NULL) {
        r = covering(p, index);
        if (r == NULL)
            return PENDING_NOTHING;
        ret_entry->base = r->pointer;
        return PENDING_WHOLE;
    }
    CHECK_LE(ret_entry->patch_count + point->patch_count, MAP_ENTRY_PATCHES_MAX);
    memmove(ret_entry->patches + point->patch_count, ret_entry->patches, ret_entry->patch_count * sizeof(struct patch));
    if (point->patch_count > 0)
        memcpy(ret_entry->patches, point->patches, point->patch_count * sizeof(struct patch));
    ret_entry->patch_count += point->patch_count;
    if (point->has_base)
        ret_entry->base = point->base;
    return point->has_base ? PENDING_WHOLE : PENDING_PATCHES;
}

static enum map_class class_of_range(const struct pending_range *r)
{
    return r->pointer.kind == POINTER_PROVISIONED ? MAP_PROVISIONED : MAP_ZERO;
}

static enum map_class class_of_point(const struct pending_point *point)
{
    if (point->patch_count > 0 || !point->has_base)
        return MAP_DATA;
    if (point->base.kind == POINTER_PROVISIONED)
        return MAP_PROVISIONED;
    return point->base.kind == POINTER_HOLE || point->base.kind == POINTER_ABSENT ? MAP_ZERO : MAP_DATA;
}

void pending_classify(const struct pending *p, uint64_t index, uint64_t limit, bool *ret_known,
                      enum map_class *ret_class, uint64_t *ret_count)
{
    struct pending_point *point = point_of(tree_find_ge(&p->points, index));
    *ret_known = true;
    if (point != NULL && point->node.key == index) {
        *ret_class = class_of_point(point);
        *ret_count = 1;
        return;
    }
    uint64_t until = point == NULL ? UINT64_MAX : point->node.key;
    struct pending_range *r = covering(p, index);
    if (r != NULL) {
        *ret_class = class_of_range(r);
        until = min_u64(until, r->node.key + r->count);
    } else {
        struct pending_range *next = range_of(tree_find_ge(&p->ranges, index));
        *ret_known = false;
        if (next != NULL)
            until = min_u64(until, next->node.key);
    }
    *ret_count = min_u64(limit, until - index);
}

struct update_list {
    struct map_update *updates;
    uint64_t count;
};

static void add_range_piece(struct update_list *list, const struct pending_range *r, uint64_t first, uint64_t end)
{
    if (first < end)
        list->updates[list->count++] =
            (struct map_update){.first = first, .count = end - first, .has_base = true, .base = r->pointer};
}

static void add_point(struct update_list *list, const struct pending_point *point)
{
    if (!point->has_base && point->patch_count == 0)
        return;
    list->updates[list->count++] = (struct map_update){.first = point->node.key,
                                                       .count = 1,
                                                       .has_base = point->has_base,
                                                       .base = point->base,
                                                       .patch_count = point->patch_count,
                                                       .patches = point->patches};
}

int pending_updates(const struct pending *p, struct map_update **ret_updates, uint64_t *ret_count)
{
    /* Each point adds itself and cuts at most one range in two. */
    uint64_t room = 2 * p->points.count + p->ranges.count + 1;
    struct update_list list = {.updates = malloc(room * sizeof(struct map_update))};
    if (list.updates == NULL)
        return -ENOMEM;
    struct tree_node *n = tree_first(&p->points);
    for (struct tree_node *rn = tree_first(&p->ranges); rn != NULL; rn = tree_next(&p->ranges, rn)) {
        const struct pending_range *r = range_of(rn);
        uint64_t at = rn->key, end = rn->key + r->count;
        for (; n != NULL && n->key < end; n = tree_next(&p->points, n)) {
            if (n->key >= at) {
                add_range_piece(&list, r, at, n->key);
                at = n->key + 1;
            }
            add_point(&list, point_of(n));
        }
        add_range_piece(&list, r, at, end);
    }
    for (; n != NULL; n = tree_next(&p->points, n))
        add_point(&list, point_of(n));
    CHECK_LE(list.count, room);
    *ret_updates = list.updates;
    *ret_count = list.count;
    return 0;
}
