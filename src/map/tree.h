/*
 * A map: the radix tree of pointers of one branch. Leaves hold 128 record pointers, inner nodes 256 node pointers;
 * nodes are immutable records in the log, so a tree never changes: a checkpoint makes a new one that shares what it did
 * not touch (merge.h).
 *
 * Where an inner pointer is absent, a hole, provisioned or lost, that holds for everything under it.
 */
#ifndef ASHLAR_MAP_TREE_H
#define ASHLAR_MAP_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/limits.h"
#include "format/pointer.h"

struct node_store;

struct map_tree {
    uint64_t branch;
    uint8_t height; /* levels; 1 .. MAP_LEVELS_MAX */
    bool physical;  /* the slot table's: node and record pointers are places on the device, not log addresses */
    struct pointer root;
    uint64_t cut_address; /* every data-head address in the tree is below; 0: not checked (the pool's own trees) */
};

/* As many patches as the layers over each other can have; on disk at most PATCHES_PER_RECORD_MAX. */
#define MAP_ENTRY_PATCHES_MAX (3 * PATCHES_PER_RECORD_MAX)

/* What a map says about one record: a pointer, and patches newer than it, oldest first. */
struct map_entry {
    struct pointer base;
    uint32_t patch_count;
    struct patch patches[MAP_ENTRY_PATCHES_MAX];
};

/* Takes out of a list of patches, oldest first, those that a single newer one covers: nothing of them shows. Calls
 * dropped(arg, patch), if given, for each. Returns how many are left. */
uint32_t patches_prune(struct patch *patches, uint32_t count, void (*dropped)(void *arg, const struct patch *patch),
                       void *arg);

/*
 * Looks a record up. Blocks on the device when nodes are not cached. 0; -EBADMSG when a node on the way is damaged;
 * device errors. An index beyond the tree is absent.
 */
int map_lookup(struct node_store *store, const struct map_tree *tree, uint64_t index, struct map_entry *ret_entry)
    __attribute__((warn_unused_result));

/* The pointer to node `number` of `level` (level < height), or what stands for it further up. */
int map_find_node(struct node_store *store, const struct map_tree *tree, uint8_t level, uint64_t number,
                  struct pointer *ret_pointer) __attribute__((warn_unused_result));

enum map_class { MAP_ZERO, MAP_PROVISIONED, MAP_DATA };

/* What index is, and how many records from it on (at least 1, at most limit) are the same as far as one look tells. */
int map_classify(struct node_store *store, const struct map_tree *tree, uint64_t index, uint64_t limit,
                 enum map_class *ret_class, uint64_t *ret_count) __attribute__((warn_unused_result));

/* Calls node() for every node and data() for every record pointer and patch of a tree, children first. Stops at the
 * first nonzero result. unreadable() is told of nodes that do not verify (and the walk goes on if it answers 0). For
 * open, destroy, recounts. */
struct map_walk {
    void *arg;
    int (*node)(void *arg, const struct pointer *p, uint8_t level, uint64_t number);
    int (*data)(void *arg, const struct pointer *p, uint64_t index, bool is_patch);
    int (*empty)(void *arg, const struct pointer *p, uint64_t first_index,
                 uint64_t count); /* hole, provisioned, lost; may be NULL */
    int (*unreadable)(void *arg, const struct pointer *p, uint8_t level, uint64_t number, int error);
    bool leaves_unread; /* node() is told of leaves, but they are not read; data() is never called */
};
int map_walk_subtree(struct node_store *store, const struct map_tree *tree, const struct pointer *p, uint8_t level,
                     uint64_t number, const struct map_walk *walk) __attribute__((warn_unused_result));
/* The whole tree. */
int map_walk_tree(struct node_store *store, const struct map_tree *tree, const struct map_walk *walk)
    __attribute__((warn_unused_result));

#endif
