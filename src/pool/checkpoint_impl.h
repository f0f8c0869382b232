/*
 * What the two files of a checkpoint share: checkpoint.c (its steps) and checkpoint_trees.c (what it writes).
 */
#ifndef ASHLAR_POOL_CHECKPOINT_IMPL_H
#define ASHLAR_POOL_CHECKPOINT_IMPL_H

#include "pool/pool_impl.h"

struct checkpoint_volume {
    struct volume *volume;
    struct catalog_volume object; /* as it will be on disk; roots and account are completed by the merge */
    struct map_merge merge;
    struct map_tree new_tree;
};

struct checkpoint_work {
    struct pool *pool;
    uint64_t number;
    uint64_t cut_number, cut_log_bytes;
    struct label label;
    struct checkpoint_volume *volumes; /* those that changed */
    uint32_t volume_count;
    struct map_tree catalog_tree, table_tree; /* the new ones */
};

/* New trees of all changed volumes, with their accounts. No lock held. */
int checkpoint_merge_volumes(struct checkpoint_work *w) __attribute__((warn_unused_result));
/* Quarantine, catalog, slot table. No lock held. */
int checkpoint_write_trees(struct checkpoint_work *w) __attribute__((warn_unused_result));

/* RULE_OFF_QUARANTINE (pool_test.c): frees at once what nothing refers to, with RULE_OFF_PIN_REPLAY in the replay range
 * too. */
void pool_test_forget_dead_slots(struct pool *pool);

#endif
