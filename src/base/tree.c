/*
 * A treap: a binary search tree by key that is at the same time a heap by priority (parents have the higher one). The
 * priority is a bijective hash of the key and computed when needed, so that
 *
 *   1. no two nodes have the same priority, and the shape depends on the set of keys alone, not on its history;
 *   2. for keys not chosen against the hash, expected depth is about 1.4 log2(count) and the deepest of a million
 * some 50.
 *
 * Keys chosen against the hash can make the tree deeper (an increasing run of priorities in key order). Therefore
 * nothing here recurses: such a tree is slow, never a stack overflow.
 *
 * Nodes have no parent link; the successor is found from the root, which costs one more descent and saves a
 * word a node and its upkeep.
 */
#include "base/tree.h"

#include "base/check.h"

/* The finalizer of splitmix64: a bijection in which every key bit reaches every priority bit. */
static uint64_t key_priority(uint64_t key)
{
    key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
    return key ^ key >> 31;
}

/* Takes a subtree apart into the nodes below key and those above it (key itself is not in it). */
static void subtree_split(struct tree_node *node, uint64_t key, struct tree_node **ret_below,
                          struct tree_node **ret_above)
{
    while (node != NULL) {
        if (node->key < key) {
            *ret_below = node;
            ret_below = &node->right;
            node = node->right;
        } else {
            CHECK(node->key != key);
            *ret_above = node;
            ret_above = &node->left;
            node = node->left;
        }
    }
    *ret_below = NULL;
    *ret_above = NULL;
}

void tree_insert(struct tree *t, struct tree_node *node)
{
    uint64_t priority = key_priority(node->key);
    struct tree_node **link = &t->root;
    while (*link != NULL && key_priority((*link)->key) > priority)
        link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
    /* Its equal, if there were one, would be found here: the heap order puts the same key at the same place. */
    CHECK(*link == NULL || (*link)->key != node->key);
    subtree_split(*link, node->key, &node->left, &node->right);
    *link = node;
    t->count++;
}

/* Puts two subtrees together; every key of below is smaller than every key of above. */
static struct tree_node *subtree_merge(struct tree_node *below, struct tree_node *above)
{
    struct tree_node *root = NULL;
    struct tree_node **link = &root;
    while (below != NULL && above != NULL) {
        if (key_priority(below->key) > key_priority(above->key)) {
            *link = below;
            link = &below->right;
            below = below->right;
        } else {
            *link = above;
            link = &above->left;
            above = above->left;
        }
    }
    *link = below != NULL ? below : above;
    return root;
}

void tree_remove(struct tree *t, struct tree_node *node)
{
    struct tree_node **link = &t->root;
    while (*link != node) {
        CHECK(*link != NULL); /* a node that is not in this tree */
        link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
    }
    *link = subtree_merge(node->left, node->right);
    node->left = node->right = NULL;
    t->count--;
}

struct tree_node *tree_find(const struct tree *t, uint64_t key)
{
    struct tree_node *node = t->root;
    while (node != NULL && node->key != key)
        node = key < node->key ? node->left : node->right;
    return node;
}

struct tree_node *tree_find_ge(const struct tree *t, uint64_t key)
{
    struct tree_node *best = NULL;
    for (struct tree_node *node = t->root; node != NULL;) {
        if (node->key < key) {
            node = node->right;
        } else {
            best = node;
            node = node->left;
        }
    }
    return best;
}

struct tree_node *tree_find_le(const struct tree *t, uint64_t key)
{
    struct tree_node *best = NULL;
    for (struct tree_node *node = t->root; node != NULL;) {
        if (node->key > key) {
            node = node->left;
        } else {
            best = node;
            node = node->right;
        }
    }
    return best;
}

struct tree_node *tree_first(const struct tree *t)
{
    struct tree_node *node = t->root;
    while (node != NULL && node->left != NULL)
        node = node->left;
    return node;
}

struct tree_node *tree_next(const struct tree *t, const struct tree_node *node)
{
    return node->key == UINT64_MAX ? NULL : tree_find_ge(t, node->key + 1);
}
