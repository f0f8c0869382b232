/*
 * What the two halves of the image builder share.
 */
#ifndef ASHLAR_TESTS_UNIT_IMAGE_BUILDER_IMPL_H
#define ASHLAR_TESTS_UNIT_IMAGE_BUILDER_IMPL_H

#include "image_builder.h"

#define OPEN_PAYLOAD_BYTES (100u * 1024)
#define OPEN_ENTRIES 512u

void image_tamper(struct image *img, enum image_object object, unsigned number, void *value);
/* Leaves the head's segment for the next one. */
void image_advance(struct image *img, struct image_head *h);
uint64_t image_head_address(const struct image_head *h);
uint8_t *image_head_bytes(struct image *img, const struct image_head *h);

void image_chunk_begin(struct image_chunk *c);
void image_chunk_end(struct image_chunk *c);
struct chunk_entry *image_chunk_add(struct image_chunk *c, const struct chunk_entry *e, const void *bytes);
/* Encodes the chunk where the head stands; payload offsets are filled into the entries. */
void image_chunk_write(struct image *img, struct image_head *h, struct image_chunk *c, uint32_t flags,
                       enum image_object object, unsigned number);
uint32_t image_chunk_bytes(const struct image *img, const struct image_chunk *c, enum chunk_copy copy);

/* Leaves that the volume's size makes. */
unsigned image_leaf_count(const struct image_volume *v);

#endif
