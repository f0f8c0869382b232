/*
 * Reading what pointers name: resolve, read whole write units round it, verify the checksum that the pointer carries.
 *
 * Bytes that do not verify are a bad block, never an answer: the place is resolved again (it may have moved meanwhile,
 * R22), a map node's second copy is tried, and only then the answer is -EBADMSG. A node read from its second copy is
 * counted as healed.
 */
#ifndef ASHLAR_LOG_READER_H
#define ASHLAR_LOG_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/device.h"
#include "format/pointer.h"
#include "log/geometry.h"
#include "log/slots.h"

struct reader {
    struct device *dev;
    struct slots *slots;
    const struct geometry *geometry;
    _Atomic uint64_t healed, bad; /* statistics: relaxed */
};

/* One pointer to read: bytes has room for pointer->length. */
struct reader_item {
    const struct pointer *pointer;
    uint8_t *bytes;
    int result; /* out: 0, -EBADMSG, -ENOMEM, device errors */
};

void reader_init(struct reader *r, struct device *dev, struct slots *slots, const struct geometry *geometry);

/* Reads the bytes of a pointer (kind DATA, NODE, PATCH). physical: a slot-table pointer. Blocks; holds no lock over it.
 */
int reader_read(struct reader *r, const struct pointer *p, bool physical, uint8_t *ret_bytes)
    __attribute__((warn_unused_result));

/* The same for many data pointers at once, so that the device sees them together; neighbours are read in one piece.
 * Each item has its result. */
void reader_read_many(struct reader *r, struct reader_item *items, uint32_t count);

#endif
