/*
 * A map node, packed. doc/format/node.md. Leaves (level 0) hold record pointers and the lists of patches on them; inner
 * nodes hold pointers to nodes, absent pointers, and holes, provisioned zeroes and lost ranges that stand for a whole
 * subtree.
 */
#ifndef ASHLAR_FORMAT_NODE_H
#define ASHLAR_FORMAT_NODE_H

#include <stdint.h>

#include "format/limits.h"
#include "format/pointer.h"

struct error;

struct node_patch {
    uint8_t child; /* position in the leaf */
    struct patch patch;
};

struct node {
    uint64_t branch;
    uint8_t level;
    uint64_t number; /* of this node among those of its level: record index >> map_level_bits(level) */
    struct pointer children[MAP_FANOUT_MAX]; /* map_fanout(level) of them */
    uint32_t patch_count;                    /* leaves only; ordered by child, then oldest first */
    struct node_patch *patches;              /* room for 128 * PATCHES_PER_RECORD_MAX in a leaf; owned by the caller */
};

#define NODE_PATCHES_MAX ((1u << MAP_LEAF_BITS) * PATCHES_PER_RECORD_MAX)

/* Packs a node into buf; returns its length, at most node_encoded_bytes_max(). The node must be valid (asserted). */
size_t node_encode(const struct node *n, uint8_t *buf, size_t buf_bytes);
/* Bound for any node's encoding with that many patches. */
size_t node_encoded_bytes_max(uint32_t level, uint32_t patch_count);

/*
 * Unpacks and checks: it is node (branch, level, number) and no other; every pointer is of a kind its level allows;
 * every address of a node below lies under own_address (UINT64_MAX for the slot table's tree, whose addresses are
 * places: levels alone keep that one from containing itself); patches are ordered, at most PATCHES_PER_RECORD_MAX a
 * record, on records that can carry them. ret_node->patches must have room for NODE_PATCHES_MAX if level is 0. 0 or
 * -EBADMSG with text.
 */
int node_decode(const uint8_t *buf, size_t buf_bytes, uint64_t branch, uint8_t level, uint64_t number,
                uint64_t own_address, struct node *ret_node, struct error *err);

#endif
