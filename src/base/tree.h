/*
 * An ordered map from 64-bit keys to nodes embedded in the caller's structs: a treap whose priority is a hash of the
 * key, so that its shape depends on its content only and expected depth is logarithmic. No allocation, no locking. Keys
 * are unique.
 */
#ifndef ASHLAR_BASE_TREE_H
#define ASHLAR_BASE_TREE_H

#include <stddef.h>
#include <stdint.h>

struct tree_node {
    uint64_t key;
    struct tree_node *left, *right;
};

struct tree {
    struct tree_node *root;
    size_t count;
};

/* A tree that is all zero is empty. The node's key must not be in the tree; it may not change while the node is. */
void tree_insert(struct tree *t, struct tree_node *node);
/* The node must be in the tree. */
void tree_remove(struct tree *t, struct tree_node *node);
struct tree_node *tree_find(const struct tree *t, uint64_t key);
/* The node with the smallest key >= key (largest key <= key), NULL if there is none. */
struct tree_node *tree_find_ge(const struct tree *t, uint64_t key);
struct tree_node *tree_find_le(const struct tree *t, uint64_t key);
/* First, and the one after node, in key order; NULL at the end. */
struct tree_node *tree_first(const struct tree *t);
struct tree_node *tree_next(const struct tree *t, const struct tree_node *node);

/* The struct that embeds a member. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
