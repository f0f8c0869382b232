/*
 * Trees (tree.h): lookup, classes of runs of records, and the walk over everything. Each goes down by the levels, so
 * that damage below costs what lies under it and no more.
 */
#include "map/tree.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "map/node_store.h"

static bool patch_covers(const struct patch *newer, const struct patch *older)
{
    return newer->first_sector <= older->first_sector &&
           (uint32_t)newer->first_sector + newer->sector_count >= (uint32_t)older->first_sector + older->sector_count;
}

uint32_t patches_prune(struct patch *patches, uint32_t count, void (*dropped)(void *arg, const struct patch *patch),
                       void *arg)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool covered = false;
        for (uint32_t k = i + 1; k < count && !covered; k++)
            covered = patch_covers(&patches[k], &patches[i]);
        if (!covered)
            patches[kept++] = patches[i];
        else if (dropped != NULL)
            dropped(arg, &patches[i]);
    }
    return kept;
}

static bool beyond(const struct map_tree *tree, uint64_t index)
{
    CHECK_GT(tree->height, 0);
    uint32_t bits = map_level_bits(tree->height - 1u);
    return bits < 64 && index >> bits != 0;
}

/* Position, in its node of `level`, of the child on the way to record `index`. */
static uint32_t child_of(uint8_t level, uint64_t index)
{
    return level == 0 ? (uint32_t)(index & (map_fanout(0) - 1))
                      : (uint32_t)(index >> map_level_bits(level - 1u)) & (map_fanout(level) - 1);
}

int map_find_node(struct node_store *store, const struct map_tree *tree, uint8_t level, uint64_t number,
                  struct pointer *ret_pointer)
{
    uint64_t index = number << map_level_bits(level);
    struct pointer p = tree->root;
    CHECK_LT(level, tree->height);
    CHECK(!beyond(tree, index));
    for (uint8_t at = tree->height - 1; at > level && p.kind == POINTER_NODE; at--) {
        struct cached_node *node;
        int result = node_store_get(store, tree, &p, at, index >> map_level_bits(at), &node);
        if (result != 0)
            return result;
        p = node->children[child_of(at, index)];
        node_store_put(store, node);
    }
    *ret_pointer = p;
    return 0;
}

/* A record pointer that can be: data of a user's volume lies below the cut its tree was made at (R12a). */
static bool plausible(const struct map_tree *tree, const struct pointer *p)
{
    return tree->cut_address == 0 || !pointer_has_bytes(p) || p->address < tree->cut_address;
}

static int take_entry(const struct map_tree *tree, const struct cached_node *leaf, uint32_t child, struct map_entry *e)
{
    e->base = leaf->children[child];
    if (!plausible(tree, &e->base))
        return -EBADMSG;
    for (uint32_t i = 0; i < leaf->patch_count; i++) {
        if (leaf->patches[i].child != child)
            continue;
        CHECK_LT(e->patch_count, PATCHES_PER_RECORD_MAX);
        e->patches[e->patch_count] = leaf->patches[i].patch;
        if (!plausible(tree, &e->patches[e->patch_count++].pointer))
            return -EBADMSG;
    }
    return 0;
}

int map_lookup(struct node_store *store, const struct map_tree *tree, uint64_t index, struct map_entry *ret_entry)
{
    struct pointer p;
    ret_entry->patch_count = 0;
    memset(&ret_entry->base, 0, sizeof ret_entry->base);
    if (beyond(tree, index))
        return 0;
    int result = map_find_node(store, tree, 0, index >> MAP_LEAF_BITS, &p);
    if (result != 0)
        return result;
    if (p.kind != POINTER_NODE) {
        ret_entry->base = p;
        return 0;
    }
    struct cached_node *leaf;
    result = node_store_get(store, tree, &p, 0, index >> MAP_LEAF_BITS, &leaf);
    if (result != 0)
        return result;
    result = take_entry(tree, leaf, child_of(0, index), ret_entry);
    node_store_put(store, leaf);
    return result;
}

static enum map_class class_of(const struct pointer *p)
{
    if (p->kind == POINTER_PROVISIONED)
        return MAP_PROVISIONED;
    return p->kind == POINTER_ABSENT || p->kind == POINTER_HOLE ? MAP_ZERO : MAP_DATA;
}

static enum map_class class_in_leaf(const struct cached_node *leaf, uint32_t child)
{
    for (uint32_t i = 0; i < leaf->patch_count; i++) {
        if (leaf->patches[i].child == child)
            return MAP_DATA;
    }
    return class_of(&leaf->children[child]);
}

/* In an inner node: how many children from `child` on stand for whole subtrees of the same class. */
static uint64_t same_subtrees(const struct cached_node *node, uint32_t child)
{
    uint64_t count = 1;
    for (uint32_t i = child + 1; i < map_fanout(node->level); i++, count++) {
        if (node->children[i].kind == POINTER_NODE || class_of(&node->children[i]) != class_of(&node->children[child]))
            break;
    }
    return count;
}

int map_classify(struct node_store *store, const struct map_tree *tree, uint64_t index, uint64_t limit,
                 enum map_class *ret_class, uint64_t *ret_count)
{
    struct pointer p = tree->root;
    uint64_t end = UINT64_MAX; /* of what is known to be the same */
    CHECK_GT(limit, 0);
    *ret_count = limit;
    *ret_class = MAP_ZERO;
    if (beyond(tree, index))
        return 0;
    uint32_t bits = map_level_bits(tree->height - 1u);
    end = bits < 64 ? UINT64_C(1) << bits : UINT64_MAX;
    *ret_class = class_of(&p);
    for (int at = tree->height - 1; at >= 0 && p.kind == POINTER_NODE; at--) {
        struct cached_node *node;
        uint8_t level = (uint8_t)at;
        int result = node_store_get(store, tree, &p, level, index >> map_level_bits(level), &node);
        if (result != 0)
            return result;
        uint32_t child = child_of(level, index);
        p = node->children[child];
        if (level == 0) {
            *ret_class = class_in_leaf(node, child);
            uint32_t same = child + 1;
            while (same < map_fanout(0) && class_in_leaf(node, same) == *ret_class)
                same++;
            end = index - child + same;
            at = -1;
        } else if (p.kind != POINTER_NODE) {
            uint32_t shift = map_level_bits(level - 1u);
            *ret_class = class_of(&p);
            end = ((index >> shift) + same_subtrees(node, child)) << shift;
        }
        node_store_put(store, node);
        if (at < 0)
            break;
    }
    *ret_count = min_u64(limit, end - index);
    return 0;
}

static int walk_leaf(const struct cached_node *leaf, uint64_t first_index, const struct map_walk *walk)
{
    int result = 0;
    for (uint32_t i = 0; i < map_fanout(0) && result == 0; i++) {
        const struct pointer *p = &leaf->children[i];
        if (p->kind == POINTER_DATA)
            result = walk->data(walk->arg, p, first_index + i, false);
        else if (p->kind != POINTER_ABSENT && walk->empty != NULL)
            result = walk->empty(walk->arg, p, first_index + i, 1);
    }
    for (uint32_t i = 0; i < leaf->patch_count && result == 0; i++)
        result = walk->data(walk->arg, &leaf->patches[i].patch.pointer, first_index + leaf->patches[i].child, true);
    return result;
}

/* Recursion ends: level strictly decreases. */
int map_walk_subtree(struct node_store *store, const struct map_tree *tree, const struct pointer *p, uint8_t level,
                     uint64_t number, const struct map_walk *walk)
{
    uint64_t first_index = number << map_level_bits(level);
    if (p->kind == POINTER_ABSENT)
        return 0;
    if (p->kind != POINTER_NODE)
        return walk->empty == NULL ? 0 : walk->empty(walk->arg, p, first_index, UINT64_C(1) << map_level_bits(level));
    if (level == 0 && walk->leaves_unread)
        return walk->node(walk->arg, p, level, number);
    struct cached_node *node;
    int result = node_store_get(store, tree, p, level, number, &node);
    if (result == -EBADMSG)
        return walk->unreadable(walk->arg, p, level, number, result);
    if (result != 0)
        return result;
    if (level == 0) {
        result = walk_leaf(node, first_index, walk);
    } else {
        for (uint32_t i = 0; i < map_fanout(level) && result == 0; i++)
            result = map_walk_subtree(store, tree, &node->children[i], level - 1, number * map_fanout(level) + i, walk);
    }
    node_store_put(store, node);
    return result == 0 ? walk->node(walk->arg, p, level, number) : result;
}

int map_walk_tree(struct node_store *store, const struct map_tree *tree, const struct map_walk *walk)
{
    return map_walk_subtree(store, tree, &tree->root, tree->height - 1, 0, walk);
}
