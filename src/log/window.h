/*
 * A window onto one slot while the log is walked: reads ahead in large pieces, serves small looks from memory.
 * Not for concurrent use.
 */
#ifndef ASHLAR_LOG_WINDOW_H
#define ASHLAR_LOG_WINDOW_H

#include <stdint.h>

#include "env/device.h"
#include "log/geometry.h"
#include "log/slots.h"

#define WINDOW_BYTES (4u * 1024 * 1024) /* at least twice CHUNK_BYTES_MAX */

struct window {
    struct device *dev;
    struct slots *slots;
    uint32_t segment_bytes;
    uint8_t *buffer; /* min(WINDOW_BYTES, segment_bytes) */
    uint32_t slot;   /* SLOT_NONE: empty */
    uint32_t first, length;
    int error; /* why window_get answered NULL: device errors */
};

int window_init(struct window *w, struct device *dev, struct slots *slots, const struct geometry *geometry)
    __attribute__((warn_unused_result));
void window_fini(struct window *w);

/* Bytes [position, position + length) of a slot, valid until the next call; position is a multiple of
 * DEVICE_ALIGN_BYTES, length at most CHUNK_BYTES_MAX and inside the slot. NULL: see error. Blocks on the device. */
const uint8_t *window_get(struct window *w, uint32_t slot, uint32_t position, uint32_t length);

#endif
