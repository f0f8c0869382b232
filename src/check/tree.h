/*
 * Walking a pointer tree: the slot table's, the catalog's, a volume's map.
 */
#ifndef ASHLAR_CHECK_TREE_H
#define ASHLAR_CHECK_TREE_H

#include "check/inspection.h"

/* What a walk calls, top down; every member may be NULL. A nonzero return ends the walk and is its result. */
struct check_visitor {
    void *arg;
    int (*node)(void *arg, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number);
    int (*leaf)(void *arg, uint32_t tree, const struct node *leaf);
    int (*record)(void *arg, uint32_t tree, const struct pointer *p, uint64_t index);
    int (*patch)(void *arg, uint32_t tree, const struct patch *p, uint64_t index);
    /* Records [first, first + count) are a hole, provisioned, or lost. A hole may reach past the volume's end. */
    int (*hole)(void *arg, uint32_t tree, const struct pointer *p, uint64_t first, uint64_t count);
    bool report; /* say what is wrong; a second walk over the same tree is silent */
};

/*
 * Walks tree number `tree` of ins->trees. Nodes that cannot be read, from either copy, or break the rules are reported,
 * left out, and make the tree incomplete. Visits each node at most once however the image was made, because a node
 * names its branch, level and number. 0, -ENOMEM, or what a visitor returned.
 */
int check_tree_walk(struct inspection *ins, uint32_t tree, const struct check_visitor *visitor);

/*
 * The bytes a pointer names, verified against it, from the first copy or else the second (objects of the node head
 * only); into ret_bytes (p->length). 0; -EBADMSG: neither is right; -ENOENT: its segment lies in no slot.
 */
int check_object_read(struct inspection *ins, uint32_t tree, const struct pointer *p, bool has_copy, uint8_t *ret_bytes,
                      uint64_t *ret_device_offset_bytes);

#endif
