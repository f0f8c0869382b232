/*
 * A label: the root of everything. One write unit long; doc/format/label.md. A ring of LABEL_RING_SLOTS at the front of
 * the device and another at its end; label number n lies in ring slot n % LABEL_RING_SLOTS of both (written to the
 * front ring, flushed, then to the back ring). The newest label that is valid anywhere wins.
 */
#ifndef ASHLAR_FORMAT_LABEL_H
#define ASHLAR_FORMAT_LABEL_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/checksum.h"
#include "format/limits.h"
#include "format/pointer.h"

struct error;

#define LABEL_DEVICES_MAX 8
#define LABEL_ROOTS_MAX 16

/* Feature bits this version knows. incompatible: refuse to open; read-only-compatible: open read-only; compatible:
 * ignore. */
#define FEATURES_INCOMPATIBLE_KNOWN UINT64_C(0)
#define FEATURES_READ_ONLY_COMPATIBLE_KNOWN UINT64_C(0)
#define FEATURES_COMPATIBLE_KNOWN UINT64_C(0)

/* Root kinds: durable numbers, never reused. Kinds above ROOT_SLOT_TABLE are reserved, and refused unless a feature bit
 * allows them. */
enum root_kind {
    ROOT_CATALOG = 1,    /* tree of branch BRANCH_CATALOG: index = object id, record = one catalog object */
    ROOT_SLOT_TABLE = 2, /* tree of branch BRANCH_SLOT_TABLE: index = slot / SLOTS_PER_TABLE_RECORD. Addresses in it,
                            and of its root, are slot * segment size + offset: to read it takes no slot table */
    ROOT_SEGMENT_TABLE = 3,
    ROOT_DYING_TREES = 4,
    ROOT_EXTRA_REFERENCES = 5,
    ROOT_ERROR_LIST = 6,
    ROOT_DICTIONARIES = 7,
    ROOT_KEYS = 8,
    ROOT_POINTER_RUNS = 9,
};

struct label_root {
    uint16_t kind;
    uint8_t height; /* levels of the tree, 0 = empty tree, pointer absent */
    struct pointer pointer;
};

enum label_device_state {
    LABEL_DEVICE_ACTIVE = 1,
};

struct label_device {
    uint32_t id;
    uint8_t state;
    uint64_t size_bytes;
    uint64_t data_start_bytes; /* where slot 0 begins */
    uint32_t slot_count;
    uint8_t uuid[16];
};

#define LABEL_CLEAN 0x01 /* written by close: nothing was issued beyond the replay start */

struct label {
    uint64_t features_incompatible, features_read_only_compatible, features_compatible;
    uint8_t pool_uuid[16];
    uint32_t device_id; /* of the device this copy lies on */
    uint32_t device_count;
    struct label_device devices[LABEL_DEVICES_MAX];
    uint64_t sequence;      /* 1, 2, 3 ... */
    uint64_t oldest_intact; /* the oldest label all of whose slots are still intact */
    uint64_t checkpoint;  /* number of the checkpoint whose roots these are (several labels may carry one checkpoint) */
    uint64_t incarnation; /* random, drawn at each open for writing */
    uint32_t flags;       /* LABEL_CLEAN */
    uint32_t write_unit_bytes;
    uint32_t segment_bytes;
    uint32_t lookahead_count; /* 1 .. LOOKAHEAD_SLOTS_MAX, fixed at create */
    uint64_t created_wall_ns, written_wall_ns;
    uint64_t next_segment; /* segment numbers below this were issued (by any head) */
    uint64_t next_branch;  /* branch numbers and object ids below this were issued */

    /* Replay starts here: the data head at the cut. */
    uint64_t replay_address;
    struct checksum replay_chain;
    uint32_t replay_slot;                               /* slot of the segment of replay_address */
    uint64_t replay_next_segments[LOOKAHEAD_SLOTS_MAX]; /* the segments that follow, in order, and their slots; */
    uint32_t replay_next_slots[LOOKAHEAD_SLOTS_MAX];    /* SLOT_NONE where there are fewer */

    /* The node head at the cut; a clean label's next open goes on there. node_slot SLOT_NONE: no open node segment, and
     * node_address is 0. */
    uint64_t node_address;
    uint32_t node_slot;

    uint32_t root_count;
    struct label_root roots[LABEL_ROOTS_MAX];

    bool in_back_ring; /* position of this copy: part of its checksum */
};

/* Fills write_unit_bytes bytes of buf. The label must be valid (asserted). */
void label_encode(const struct label *l, uint8_t *buf, uint32_t write_unit_bytes);

/*
 * Decodes buf (write_unit_bytes long), which was read from ring slot `ring_slot` of the front or back ring.
 * 0; -ENODATA: no label here (no magic; all zero is one case); -EBADMSG: a damaged label (checksum, wrong position,
 * value out of range: err says which); -EOPNOTSUPP: a valid label of a newer format version or with unknown
 * incompatible features (err names them). Unknown read-only-compatible features are left for the caller.
 */
int label_decode(const uint8_t *buf, uint32_t write_unit_bytes, bool back_ring, uint32_t ring_slot,
                 struct label *ret_label, struct error *err);

/* Where ring slot `ring_slot` lies on a device of device_bytes: the back ring ends at the last whole write unit of the
 * device. UINT64_MAX for the back ring of a device too short for two. */
uint64_t label_offset_bytes(uint64_t device_bytes, uint32_t write_unit_bytes, bool back_ring, uint32_t ring_slot);

/* The root of that kind, NULL if the label has none. */
const struct label_root *label_find_root(const struct label *l, enum root_kind kind);

#endif
