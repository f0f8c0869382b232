/*
 * The pending list of a branch: what its records have become since the last checkpoint, in log order of effect, not yet
 * in the tree (R37). A lookup asks here before it asks the tree.
 *
 * Two ordered maps: points (one record: a new pointer, patches, or both) and ranges (trims and provisioned zeroes of
 * whole records, any length). A range removes the points it covers; a point inside a range stands above it. A point
 * that has only patches stands above whatever lies below: the tree, or the frozen list of a checkpoint under way.
 *
 * Invariants: ranges do not overlap; a point without a base is not inside a range.
 * Locking: the owner's (the pool lock); a frozen list is read under it too, and changed by nobody.
 */
#ifndef ASHLAR_MAP_PENDING_H
#define ASHLAR_MAP_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tree.h"
#include "map/tree.h"

struct pending {
    struct tree points; /* struct pending_point, by index */
    struct tree ranges; /* struct pending_range, by first index */
};

struct pending_point {
    struct tree_node node;
    bool has_base;
    uint8_t patch_count, patch_room;
    struct pointer base;
    struct patch *patches; /* owned; oldest first */
};

struct pending_range {
    struct tree_node node;
    uint64_t count;
    struct pointer pointer; /* HOLE or PROVISIONED */
};

/* All zero is an empty list. */
void pending_free(struct pending *p);
bool pending_empty(const struct pending *p);

/* The record becomes `pointer`, without patches. 0 or -ENOMEM (nothing changed). */
int pending_set(struct pending *p, uint64_t index, const struct pointer *pointer) __attribute__((warn_unused_result));
/* A patch on top of what the record is; older ones in the list that it covers go. -ENOMEM. More than
 * PATCHES_PER_RECORD_MAX in the list is a fault of the caller.
 */
int pending_add_patch(struct pending *p, uint64_t index, const struct patch *patch) __attribute__((warn_unused_result));
/* Records [first, first + count) become `pointer` (a hole, provisioned). -ENOMEM. */
int pending_set_range(struct pending *p, uint64_t first, uint64_t count, const struct pointer *pointer)
    __attribute__((warn_unused_result));

enum pending_answer {
    PENDING_NOTHING, /* ask below */
    PENDING_PATCHES, /* patches only: they go on top of what lies below */
    PENDING_WHOLE,   /* base and patches: nothing below matters */
};

/* Puts what the list knows under what ret_entry already holds (from lists above): patches go before its patches; with
 * PENDING_WHOLE the base is set. ret_entry starts with patch_count 0. */
enum pending_answer pending_lookup(const struct pending *p, uint64_t index, struct map_entry *ret_entry);

/* What lies from index on: the class of index (if the list knows it: *ret_known), and how many records from it on, at
 * most limit, have the same answer. */
void pending_classify(const struct pending *p, uint64_t index, uint64_t limit, bool *ret_known,
                      enum map_class *ret_class, uint64_t *ret_count);

/* The list as updates for a merge, in index order, ranges cut where points stand above them. Pointers into the list. */
struct map_update {
    uint64_t first, count; /* count 1 where there are patches or no base */
    bool has_base;
    struct pointer base;
    uint32_t patch_count;
    const struct patch *patches;
};
/* -ENOMEM. The array is the caller's (free). */
int pending_updates(const struct pending *p, struct map_update **ret_updates, uint64_t *ret_count)
    __attribute__((warn_unused_result));

#endif
