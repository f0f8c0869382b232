/*
 * Merging updates into a tree: makes a new tree that holds them and shares every node they do not touch.
 *
 * Level by level from the leaves up: all leaves that updates touch are read, changed and appended to the node head;
 * when the caller has closed the chunk, and so their addresses are known, they are the updates of the level above; the
 * one update left above the top level is the new root. A range that covers a whole node goes up as it is, and the
 * subtree it replaces is walked and given up; so a trimmed terabyte costs what was mapped in it, not its size.
 *
 * Along the way the account is kept: live bytes a slot (or own bytes, for the pool's own trees), records, stored bytes
 * and node bytes of the branch. Each pointer is added exactly when it enters a new node and taken away exactly when it
 * leaves one.
 *
 * A node that does not verify, in both its copies, leaves POINTER_LOST for what it held: a checkpoint is never blocked
 * by old damage, and what was lost reads as EIO. (A device error is not damage: the merge fails, the old tree stands.)
 *
 * Use, for any number of trees side by side:
 *     map_merge_begin; while (!map_merge_done) { map_merge_level; node_head_close_chunk; map_merge_promote; }
 * map_merge_end
 */
#ifndef ASHLAR_MAP_MERGE_H
#define ASHLAR_MAP_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "log/node_head.h"
#include "map/node_store.h"
#include "map/pending.h"
#include "map/tree.h"

struct map_account {
    int64_t mapped_records, stored_bytes, node_bytes, provisioned_records;
};

struct map_merge {
    struct node_store *store;
    struct node_head *node_head;
    struct slots *slots;
    uint64_t checkpoint;
    bool own;            /* the catalog or the slot table: own bytes instead of live bytes */
    bool forget_patches; /* RULE_OFF_PATCH_CHECKPOINT */
    struct map_tree old_tree, new_tree;
    struct map_account account; /* changes */
    uint64_t lost_nodes;

    uint8_t level; /* the level to be made next */
    struct map_update *updates;
    uint64_t update_count;
    struct map_update *raised; /* for the level above; their base pointers are completed when the chunk closes */
    struct cached_node **raised_nodes;
    uint64_t raised_count, raised_room;
    uint64_t raised_node_bytes; /* memory that raised_nodes hold, bounded by the store's budget */
    struct merge_scratch *scratch;
};

/*
 * Takes over `updates` (malloc'ed, sorted, not overlapping). new_height >= old_tree->height: more where the volume
 * grew. -ENOMEM.
 */
int map_merge_begin(struct map_merge *m, struct node_store *store, struct node_head *node_head, struct slots *slots,
                    const struct map_tree *old_tree, uint8_t new_height, struct map_update *updates,
                    uint64_t update_count, uint64_t checkpoint) __attribute__((warn_unused_result));
bool map_merge_done(const struct map_merge *m);
/* Makes the nodes of the present level. -ENOMEM, -ENOSPC, device errors. */
int map_merge_level(struct map_merge *m) __attribute__((warn_unused_result));
/* The chunk was closed: what was made becomes the updates of the next level. */
void map_merge_promote(struct map_merge *m);
/* new_tree is complete, if the merge is done. Frees everything, done or not. */
void map_merge_end(struct map_merge *m);

/* Takes everything under a root out of the account. For destroy. Device errors (damage is passed over). */
int map_merge_discard_tree(struct map_merge *m) __attribute__((warn_unused_result));

#endif
