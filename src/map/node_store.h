/*
 * Map nodes in memory: read through the reader, checked, decoded, kept in a cache with a byte budget.
 *
 * Nodes are immutable and keyed by where they lie, which never changes meaning while a tree refers to it; so nothing is
 * ever invalidated. A slot that is reused brings nodes under new log addresses; slot-table nodes, which are keyed by
 * their place on the device, are not cached.
 *
 * Locking: one mutex inside, a leaf. Device reads happen without it; two readers may read the same node twice.
 */
#ifndef ASHLAR_MAP_NODE_STORE_H
#define ASHLAR_MAP_NODE_STORE_H

#include <stdint.h>

#include "base/list.h"
#include "env/env.h"
#include "format/node.h"
#include "log/reader.h"
#include "map/tree.h"

/* A decoded node; read-only for all but its maker, alive while a reference is held. */
struct cached_node {
    struct list lru;
    struct cached_node *hash_next;
    uint64_t address;
    uint32_t references; /* guarded by the store's lock */
    bool in_cache;
    uint8_t level;
    uint64_t branch, number;
    uint32_t patch_count;
    struct node_patch *patches; /* behind the children, in the same allocation */
    struct pointer children[];  /* map_fanout(level) */
};

struct node_store {
    struct env_mutex lock;
    struct reader *reader;
    struct cached_node **buckets;
    uint32_t bucket_mask;
    struct list lru; /* least recently used first */
    uint64_t used_bytes, budget_bytes;
    uint64_t hits, misses;
};

int node_store_init(struct node_store *s, struct env *env, struct reader *reader, uint64_t budget_bytes)
    __attribute__((warn_unused_result));
void node_store_fini(struct node_store *s);

/* A reference to the node p names, which must be node (tree->branch, level, number). -EBADMSG, -ENOMEM, device errors.
 */
int node_store_get(struct node_store *s, const struct map_tree *tree, const struct pointer *p, uint8_t level,
                   uint64_t number, struct cached_node **ret_node) __attribute__((warn_unused_result));
void node_store_put(struct node_store *s, struct cached_node *node);

/* A copy of n, not yet in the cache: its place is not known yet. NULL: no memory. */
struct cached_node *cached_node_of(const struct node *n);
uint64_t cached_node_bytes(const struct cached_node *node); /* memory it takes */
/* Takes a node made by cached_node_of into the cache under its address; or frees it, when `address` is 0. */
void node_store_adopt(struct node_store *s, struct cached_node *node, uint64_t address);

#endif
