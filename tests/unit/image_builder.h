/*
 * Makes small pool images by the format's encoders alone, for tests of the checker: a second writer of the format that
 * knows nothing of the engine, and can be made to write what the engine never may.
 *
 *     struct image *img = image_new();
 *     unsigned v = image_volume(img, "disk", 1 * MIB, 4096);
 *     image_write(img, v, 7, 'a'); image_seal(img);
 *     image_checkpoint(img);
 *     ... image_device(img) ...
 *     image_free(img);
 *
 * A tamper function sees every object just before it is encoded and may change it.
 */
#ifndef ASHLAR_TESTS_UNIT_IMAGE_BUILDER_H
#define ASHLAR_TESTS_UNIT_IMAGE_BUILDER_H

#include "env/sim.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "format/label.h"
#include "format/node.h"
#include "format/table.h"

#define IMAGE_UNIT_BYTES 4096u
#define IMAGE_SEGMENT_BYTES (128u * 1024)
#define IMAGE_SLOTS 40u
#define IMAGE_RING_BYTES (LABEL_RING_SLOTS * IMAGE_UNIT_BYTES)
#define IMAGE_BYTES (2 * IMAGE_RING_BYTES + IMAGE_SLOTS * IMAGE_SEGMENT_BYTES)
#define IMAGE_VOLUMES_MAX 4
#define IMAGE_RECORDS_MAX 1024u
#define IMAGE_LEAVES_MAX (IMAGE_RECORDS_MAX >> MAP_LEAF_BITS)

enum image_object {
    IMAGE_LEAF,       /* struct node */
    IMAGE_INNER,      /* struct node */
    IMAGE_CATALOG,    /* struct catalog_volume */
    IMAGE_TABLE,      /* struct slot[IMAGE_SLOTS] */
    IMAGE_LABEL,      /* struct label, once a ring */
    IMAGE_DATA_CHUNK, /* struct image_chunk */
    IMAGE_NODE_CHUNK, /* struct image_chunk, once a copy */
};

struct image_chunk {
    struct chunk_header header;
    struct chunk_entry *entries;
    uint32_t entry_count;
    uint8_t *payload; /* not in entries order's offsets: packed */
    uint32_t payload_bytes, payload_capacity;
};

struct image_record {
    struct pointer base;
    struct patch patches[PATCHES_PER_RECORD_MAX];
    unsigned patch_count;
};

struct image_volume {
    struct catalog_volume catalog;
    struct image_record records[IMAGE_RECORDS_MAX];
    struct pointer leaves[IMAGE_LEAVES_MAX];
    bool leaf_changed[IMAGE_LEAVES_MAX];
    bool gone;
};

struct image_head {
    uint8_t head; /* enum chunk_head */
    uint32_t slot, position_bytes;
    uint64_t segment, sequence;
    struct checksum chain;
};

struct image {
    struct sim *sim;
    struct sim_disk *disk;
    struct device *dev;
    uint8_t *bytes; /* IMAGE_BYTES: what goes onto the disk */
    struct codec_context *codec;

    uint8_t pool_uuid[16];
    uint64_t incarnation, checkpoint, sequence, next_segment, next_branch;
    uint32_t label_flags; /* of the labels to come */
    bool front_only;      /* the label's back copy is not written */
    struct image_head data, node;
    struct slot slots[IMAGE_SLOTS];
    uint32_t next_slot; /* chosen for the data segment that follows */
    uint64_t next_slot_segment;
    uint64_t durable_to;            /* what data chunks claim */
    uint8_t echo[IMAGE_UNIT_BYTES]; /* header and table of the newest data chunk, if it is one write unit long */
    uint32_t echo_bytes;

    struct image_volume *volumes;
    unsigned volume_count;
    struct pointer catalog_root, table_root;
    struct image_chunk open; /* data chunk being filled */

    /* Called before an object is encoded; number: leaf, volume, copy, ring. */
    void (*tamper)(struct image *img, enum image_object object, unsigned number, void *value);
    void *tamper_arg;
    /* Device offsets of what was last written, for damaging it. */
    uint64_t last_data_chunk, last_node_chunk, last_label_front, last_label_back;
    uint32_t last_chunk_bytes;
};

struct image *image_new(void);
void image_free(struct image *img);

/* Adds a volume; its number. */
unsigned image_volume(struct image *img, const char *name, uint64_t size_bytes, uint32_t record_bytes);

/* Entries of the open data chunk. */
void image_write(struct image *img, unsigned v, uint64_t index, int seed);
void image_write_codec(struct image *img, unsigned v, uint64_t index, int seed, uint8_t codec);
/* With a loss map of noise behind the record. */
void image_write_lossy(struct image *img, unsigned v, uint64_t index, int seed);
void image_patch(struct image *img, unsigned v, uint64_t index, uint16_t first_sector, uint16_t sector_count, int seed);
void image_trim(struct image *img, unsigned v, uint64_t index, uint64_t count);
void image_zero(struct image *img, unsigned v, uint64_t index, uint64_t count);
/* Writes the open data chunk; its device offset. */
uint64_t image_seal(struct image *img);
/* Writes a bridge chunk, as a recovery does, with a new incarnation. */
void image_bridge(struct image *img);
/* Writes nodes, catalog, table and a label. */
void image_checkpoint(struct image *img);
/* Only another label of the same checkpoint. */
void image_label(struct image *img);

/* Puts the bytes on a simulated disk (again, if they changed) and opens it. */
struct device *image_device(struct image *img);
/* Takes back what the disk holds now. */
void image_reload(struct image *img);
/* Where a log address lies on the device. */
uint64_t image_offset(const struct image *img, uint64_t address);
/* Overwrites a range with noise. */
void image_damage(struct image *img, uint64_t offset, uint64_t length);

#endif
