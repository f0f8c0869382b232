/*
 * One run of the checker: what it knows of the pool so far.
 *
 * Order of a run, each step leaning on those before it:
 *   labels     both rings; the label to check by is chosen                                  labels.c
 *   table      the slot table's tree; before it is known, segments are found by looking      contents.c
 *   catalog    the volumes                                                                   contents.c
 *   replay     the chain behind the checkpoint                                               replay.c
 *   maps       every tree is walked: rules of addresses, accounts recounted, objects listed  maps.c
 *   slots      every chunk of every segment in use, against the list of objects; payload     slots.c
 *   accounts   recounts against what the slot table and the catalog say                      account.c
 *
 * One thread; no locks.
 */
#ifndef ASHLAR_CHECK_INSPECTION_H
#define ASHLAR_CHECK_INSPECTION_H

#include "check/report.h"
#include "codec/codec.h"
#include "env/device.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "format/label.h"
#include "format/node.h"
#include "format/table.h"

struct inspection;

/* A part of the device in memory; grows to what is asked of it. */
struct check_window {
    struct inspection *ins;
    uint8_t *buffer;
    size_t capacity_bytes;
    uint64_t offset_bytes; /* on the device, of buffer[0] */
    size_t length_bytes;
    size_t readahead_bytes;
};

struct check_slot {
    struct slot table;       /* as the slot table has it */
    uint64_t segment_seen;   /* number of the segment whose first chunk lies at its start; CHECK_NOWHERE: none */
    uint64_t replay_segment; /* the segment that the replayed log has here; CHECK_NOWHERE: none */
    uint64_t live_bytes;     /* recounted */
    uint64_t object_count;   /* referenced objects, those of the pool's own trees included */
    bool held_before;        /* the pool's own trees of the checkpoint before refer to something in it */
};

struct check_segment {
    uint64_t number;
    uint32_t slot;
};

struct check_segments {
    struct check_segment *list; /* ordered by number */
    size_t count;
};

/* Trees by number: the pool's own, then the volumes. */
enum { CHECK_TREE_TABLE, CHECK_TREE_CATALOG, CHECK_TREES_OWN };

struct check_tree {
    struct catalog_volume volume; /* name, branch, root and height for the pool's own trees too */
    uint32_t record_bytes;        /* raw bytes of a record */
    uint64_t record_count;        /* indices from here on must hold nothing */
    bool skipped;                 /* its branch is another volume's: not walked */
    bool incomplete;              /* a part of it could not be read: recounts are too low */
    bool lossy;                   /* a part was lost before and is marked so: the account may still count it */
    /* Recounted: */
    uint64_t node_bytes, stored_bytes, mapped_records, provisioned_records;
};

/* A referenced object: what a pointer says. */
struct check_object {
    uint64_t place;   /* slot * segment_bytes + offset in the slot */
    uint64_t address; /* in the log; CHECK_NOWHERE if the segment is not known */
    uint64_t index;   /* record, or number of the node */
    struct checksum checksum;
    uint32_t length;
    uint32_t tree;
    uint16_t first_sector, sector_count;
    uint8_t kind; /* enum entry_kind: DATA, PATCH, NODE */
    uint8_t level, codec, flags;
};

/* A data object that failed to verify, kept until it is known whether the log behind the checkpoint replaces it. */
struct check_damage {
    struct check_object object;
    uint64_t device_offset_bytes;
    enum check_problem_id id;
    bool superseded;
};

enum check_half_part { CHECK_HALF_HEADER, CHECK_HALF_TRAILER, CHECK_HALF_ECHO /* of the chunk before */ };

/* A data chunk without one of its two copies of header and table: rot, or torn by a power cut? See judge.c. */
struct check_half_chunk {
    uint64_t address, device_offset_bytes, incarnation;
    uint32_t chunk_bytes;
    enum check_half_part damaged;
};

/* Up to which address the chunks of one opening of the pool claim to be durable. */
struct check_durable {
    uint64_t incarnation, durable_to;
};

/* A map node both of whose copies are damaged. */
struct check_lost_node {
    struct pointer pointer;
    uint64_t address; /* in the log */
    uint64_t branch;
    uint32_t tree;
    uint8_t level;
    uint64_t number;
};

/* A planned repair. */
struct check_write {
    struct check_repair repair;
    uint8_t *bytes;
    bool after_flush; /* the device is flushed first: what was written before must be there before this is */
};

struct check_replay_chunk {
    uint64_t address;
    uint32_t slot, chunk_bytes;
    uint64_t echo_offset; /* device offset of its echo, where only that is left of header and table; else 0 */
};

/* Growable arrays: a pointer, a count, a capacity. */
#define CHECK_ARRAY(type)       \
    struct {                    \
        type *list;             \
        size_t count, capacity; \
    }

struct inspection {
    struct device *dev;
    struct check_options options;
    struct check_report *report;
    struct codec_context *codec;

    struct label label;
    uint64_t newest_sequence;  /* of all labels; label may be an older one */
    struct label label_before; /* of the checkpoint before; sequence 0: not known */
    uint64_t device_bytes;     /* as far as the device can be read: whole aligned units */
    uint64_t pool_bytes;       /* as the label says */
    uint64_t data_start_bytes;
    uint32_t write_unit_bytes, segment_bytes, slot_count;

    struct check_window scan;  /* of passes in order */
    struct check_window point; /* of single objects */
    uint8_t *front;            /* header and table of the chunk at hand */
    size_t front_capacity_bytes;
    struct chunk_entry *entries; /* of the chunk at hand, CHUNK_ENTRIES_MAX */
    uint8_t *raw;                /* a decompressed record */
    size_t node_bytes_max;

    struct check_slot *slots;
    struct check_segments table_segments, seen_segments;
    unsigned looked; /* how often the slots were looked through for seen_segments: 0, 1, 2 (deep) */
    bool incomplete; /* a part of the table, the catalog or a volume's map could not be read: counts are too low */
    bool table_incomplete;

    CHECK_ARRAY(struct check_tree) trees;
    uint32_t *by_branch; /* numbers of volumes, ordered by branch */
    size_t by_branch_count;
    CHECK_ARRAY(struct check_object) objects;
    CHECK_ARRAY(struct check_damage) damages;
    CHECK_ARRAY(struct check_half_chunk) halves;
    CHECK_ARRAY(struct check_durable) durables;
    CHECK_ARRAY(struct check_replay_chunk) replay;
    CHECK_ARRAY(uint64_t) unreadable; /* device offsets of units that gave an error, each reported once */
    CHECK_ARRAY(struct check_lost_node) lost;
    CHECK_ARRAY(struct check_write) writes;
    uint64_t planned_bytes; /* of writes */
    uint64_t progress_done, progress_total;
};

/* Reads the labels, chooses one, sets up everything else. Problems go to the report. Errors as check_run. If labels
 * were there but none verifies, returns 0 with label.sequence 0, and there is nothing more to look at. */
int inspection_open(struct inspection *ins, struct device *dev, const struct check_options *options,
                    struct check_report *report, struct error *err);
void inspection_close(struct inspection *ins);

/* One more element at the end of a CHECK_ARRAY, zeroed; NULL: no memory. */
#define check_array_add(array)                                                                                 \
    ({                                                                                                         \
        __typeof__(array) array_ = (array);                                                                    \
        void *list_ = check_array_room(array_->list, array_->count, &array_->capacity, sizeof(*array_->list)); \
        array_->list = list_ != NULL ? list_ : array_->list;                                                   \
        list_ != NULL ? &array_->list[array_->count++] : NULL;                                                 \
    })
/* list, or where it lies now that it has room for (and a zeroed) element `count`; NULL: no memory, list as it was. */
void *check_array_room(void *list, size_t count, size_t *capacity, size_t element_bytes);

/*
 * n bytes at a device offset, for as long as the window is not used again; NULL past the end of the device or of
 * memory. Units that cannot be read are reported, once, and read as zeroes. `until`: reading ahead beyond that device
 * offset is of no use.
 */
const uint8_t *check_window_bytes(struct check_window *window, uint64_t offset_bytes, size_t n, uint64_t until);
uint64_t check_slot_offset(const struct inspection *ins, uint32_t slot);
/* Fills table_segments from the slots' table entries, reporting segments that two slots claim. */
int check_place_segments(struct inspection *ins, struct error *err);

/* The segment in a slot: as the table or the label has it, else by looking; CHECK_NOWHERE. */
uint64_t check_slot_segment(struct inspection *ins, uint32_t slot);
/*
 * Where the bytes that a pointer of this tree names lie: slot * segment_bytes + offset in the slot; CHECK_NOWHERE if
 * that is nowhere, or beyond the end of a segment. The slot table's own pointers are such places; those of all other
 * trees are log addresses.
 */
uint64_t check_place(struct inspection *ins, uint32_t tree, uint64_t address, uint64_t length);
/* The same as a device offset. */
uint64_t check_locate(struct inspection *ins, uint32_t tree, uint64_t address, uint64_t length);
/* The log address of a place; CHECK_NOWHERE if the segment in that slot is not known. */
uint64_t check_address_of_place(struct inspection *ins, uint64_t place);

/* Adds a problem with detail text. The place fields are CHECK_NOWHERE where they do not apply. */
void check_found(struct inspection *ins, enum check_problem_id id, uint64_t device_offset_bytes, uint64_t address,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same about records [first, first + count) of a tree. */
void check_found_in(struct inspection *ins, enum check_problem_id id, const struct check_tree *tree, uint64_t first,
                    uint64_t count, uint64_t device_offset_bytes, uint64_t address, const char *format, ...)
    __attribute__((format(printf, 8, 9)));

void check_progress(struct inspection *ins, uint64_t done_bytes);

/* labels.c: reads both rings; fills ins->label and reports what is wrong with the rings. */
int check_labels(struct inspection *ins, struct error *err);
/* Calls each() for every place of both rings that is not blank: label NULL where what is there does not verify, with
 * the reason. -ENOMEM. */
typedef void (*check_label_visit)(void *arg, bool back, uint64_t offset_bytes, const struct label *label,
                                  const char *why);
int check_visit_labels(struct inspection *ins, check_label_visit each, void *arg);

/* contents.c */
int check_load_table(struct inspection *ins, struct error *err);
int check_load_catalog(struct inspection *ins, struct error *err);

/* replay.c: follows the chain; fills ins->replay. -ESTALE (both): the log is not any more what it was a moment ago. */
int check_replay(struct inspection *ins, struct error *err);
/* Marks damages that the replayed log replaces. */
int check_replay_supersede(struct inspection *ins, struct error *err);

/* maps.c: walks all trees, recounts, and lists objects; then slots.c goes over the slots, as often as the list asks. */
int check_maps(struct inspection *ins, struct error *err);
/* slots.c: chunks of slots [first, end) against ins->objects. */
int check_slots(struct inspection *ins, uint32_t first, uint32_t end, struct error *err);
/* judge.c: what can only be judged when everything was seen. */
void check_note_damage(struct inspection *ins, const struct check_object *o, uint64_t device_offset_bytes,
                       enum check_problem_id id);
void check_report_halves(struct inspection *ins);
void check_report_damages(struct inspection *ins);
int check_note_durable(struct inspection *ins, uint64_t incarnation, uint64_t durable_to);

/* object.c: true if the bytes are the object's and decompress; else *ret_id says what is wrong. */
bool check_object_verify(struct inspection *ins, const struct check_object *o, const uint8_t *bytes,
                         enum check_problem_id *ret_id);

/* account.c */
void check_accounts(struct inspection *ins);

#endif
