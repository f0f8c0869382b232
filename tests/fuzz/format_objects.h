/*
 * Random valid objects of the durable format, for the unit tests of src/format and as first inputs of the fuzz targets.
 * What comes out depends on the generator's state only. Every function returns an object that its encoder accepts.
 */
#ifndef ASHLAR_TESTS_FUZZ_FORMAT_OBJECTS_H
#define ASHLAR_TESTS_FUZZ_FORMAT_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "format/label.h"
#include "format/node.h"
#include "format/pointer.h"
#include "format/table.h"

/* Uniform in [low, high]. */
uint64_t random_between(struct prng *r, uint64_t low, uint64_t high);
/* A number of random magnitude: each count of bits up to `bits` is as likely. */
uint64_t random_magnitude(struct prng *r, unsigned bits);
struct checksum random_checksum(struct prng *r);
uint32_t random_write_unit(struct prng *r);

/* Any kind that version 1 takes. */
enum pointer_kind random_pointer_kind(struct prng *r);
/* A pointer of that kind with any address and length it may have. */
struct pointer random_pointer(struct prng *r, enum pointer_kind kind);
struct patch random_patch(struct prng *r);

struct label random_label(struct prng *r);

/* Fills a header but for what chunk_encode fills. flags and head are given. */
struct chunk_header random_chunk_header(struct prng *r, enum chunk_head head, uint32_t flags,
                                        uint32_t write_unit_bytes);
/* Fills entries (room for count_max >= 1) for such a chunk, of at most payload_max bytes together; returns how many. */
size_t random_chunk_entries(struct prng *r, enum chunk_head head, uint32_t flags, size_t count_max, size_t payload_max,
                            struct chunk_entry *entries);

/* How the addresses in a node lie. */
enum node_style {
    NODE_STYLE_ORDERED, /* each pointer follows the one before it */
    NODE_STYLE_RANDOM,  /* anywhere in 2^40 bytes */
    NODE_STYLE_WILD,    /* any kind, any address, any length */
    NODE_STYLE_COUNT,
};
/* patches: room for NODE_PATCHES_MAX, taken over by the node. per_mille of the children are there, the rest absent. */
void random_node(struct prng *r, enum node_style style, uint8_t level, unsigned per_mille, uint32_t patches_max,
                 struct node_patch *patches, struct node *ret_node);

struct catalog_volume random_volume(struct prng *r);
void random_volume_name(struct prng *r, char name[VOLUME_NAME_BYTES_MAX + 1]);

/* Slots that a table with that segment size may hold. */
void random_slots(struct prng *r, uint32_t segment_bytes, struct slot slots[SLOTS_PER_TABLE_RECORD]);

#endif
