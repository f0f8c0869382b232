/*
 * What rebuilding nodes bit for bit and reviving them share: the entries found for the nodes that are lost.
 */
#ifndef ASHLAR_CHECK_REBUILD_IMPL_H
#define ASHLAR_CHECK_REBUILD_IMPL_H

#include "check/rebuild.h"

/* Where an entry was found: how far it is to be trusted to be the newest of its kind. */
enum trust { TRUST_LIVE, TRUST_QUARANTINED, TRUST_FREE, TRUST_COUNT };

struct found_entry {
    size_t lost;            /* number of the node it belongs to */
    uint64_t chunk_address; /* with `order`: its place in the order of the log */
    uint64_t address;       /* in the log; of a trim that of its chunk: the date */
    uint64_t pointed;       /* what a pointer to its bytes holds as address */
    uint64_t offsets[2];    /* on the device, of both copies; of entries of the node head */
    uint32_t order;
    enum trust trust;
    struct chunk_entry entry;
};

/* Log addresses [from, to) of a segment in which no chunk can be made out. */
struct rebuild_gap {
    uint64_t from, to;
    uint32_t slot;
};

/* Of an inner node that is lost: where in `found`, plus 1, the newest entries below each child are. 0: none yet. */
struct rebuild_newest {
    uint32_t data[TRUST_COUNT][MAP_FANOUT_MAX], node[TRUST_COUNT][MAP_FANOUT_MAX];
};

struct rebuild {
    struct inspection *ins;
    size_t lost_from, lost_end;            /* of ins->lost: for which entries are collected */
    CHECK_ARRAY(struct found_entry) found; /* ordered by lost node, then by the order of the log */
    struct rebuild_newest **newest;        /* by lost node; while they are collected */
    bool full;                             /* there were more for these nodes */
    bool overflowed;                       /* not all lost nodes could be dealt with together */
    CHECK_ARRAY(struct rebuild_gap) gaps;  /* in segments in use */
    enum trust trust;                      /* of the slot at hand */
    struct node node;
    struct node_patch patches[NODE_PATCHES_MAX];
    uint64_t known_to[MAP_FANOUT_MAX]; /* the older version knows what had become of each child up to this address */
    uint8_t *bytes;
};

/* The pointer that an entry puts into a map. */
struct pointer rebuild_pointer(const struct found_entry *f);
/* r->node becomes that node, empty. */
void rebuild_begin(struct rebuild *r, const struct check_lost_node *lost);
/* Lets an entry of the data head take effect in r->node, a leaf. false: a record would get too many patches. */
bool rebuild_apply_to_leaf(struct rebuild *r, const struct found_entry *f);

#endif
