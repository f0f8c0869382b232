/*
 * What the files of a checkpoint share: checkpoint.c (its steps), checkpoint_trees.c (what it writes), evacuate.c (what
 * it writes once more, to get segments back).
 */
#ifndef ASHLAR_POOL_CHECKPOINT_IMPL_H
#define ASHLAR_POOL_CHECKPOINT_IMPL_H

#include "pool/pool_impl.h"

struct checkpoint_volume {
    struct volume *volume;
    bool destroyed;               /* as it was at the cut: what is destroyed later goes with the next checkpoint */
    struct catalog_volume object; /* as it will be on disk; roots and account are completed by the merge */
    struct map_merge merge;
    struct map_tree new_tree;
};

/* A map node to be written once more: the one on the way to this record, and those above it. */
struct map_touch {
    struct volume *volume;
    uint64_t index;
};

struct checkpoint_work {
    struct pool *pool;
    uint64_t number;
    uint64_t cut_number, cut_log_bytes;
    struct label label;
    struct checkpoint_volume *volumes; /* those that changed */
    uint32_t volume_count;
    struct map_tree catalog_tree, table_tree; /* the new ones */
    uint64_t spare_bytes;                     /* storage for nodes beyond what the changes need */
    struct map_touch *touches;                /* evacuation */
    uint32_t touch_count;
    bool rewrite_own; /* the whole catalog and slot table */
};

/* New trees of all changed volumes, with their accounts. No lock held. */
int checkpoint_merge_volumes(struct checkpoint_work *w) __attribute__((warn_unused_result));
/* Quarantine, catalog, slot table. No lock held. */
int checkpoint_write_trees(struct checkpoint_work *w) __attribute__((warn_unused_result));

/*
 * Where free slots are short: fills in touches and rewrite_own, so that node segments with little in them can be freed.
 * Before the freeze, no lock held. -ENOMEM, device errors.
 */
int checkpoint_choose_evacuation(struct checkpoint_work *w) __attribute__((warn_unused_result));
/* true if the volume has to be part of the checkpoint for it. */
bool checkpoint_touches(const struct checkpoint_work *w, const struct volume *v);
/* Adds the volume's touches to its updates (as pending_updates makes them). -ENOMEM. */
int checkpoint_add_touches(const struct checkpoint_work *w, const struct volume *v, struct map_update **updates,
                           uint64_t *count) __attribute__((warn_unused_result));

/* RULE_OFF_QUARANTINE (pool_test.c): frees at once what nothing refers to, with RULE_OFF_PIN_REPLAY in the replay range
 * too. */
void pool_test_forget_dead_slots(struct pool *pool);

#endif
