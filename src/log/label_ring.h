/*
 * The two rings of labels on a device: finding the newest label at open, writing the next one.
 *
 * A label goes to the front ring, a device flush, then to the back ring, a device flush (R25). What a crash leaves:
 *   before the first write ended   the label before it, from both rings
 *   between the two flushes        either the new label (front) or the one before it (back); both are whole roots
 *   after the second flush         the new label, twice
 * A torn label does not verify. The newest label that is valid anywhere wins.
 */
#ifndef ASHLAR_LOG_LABEL_RING_H
#define ASHLAR_LOG_LABEL_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "env/device.h"
#include "format/label.h"

struct error;

/* Bytes of one ring. */
static inline uint64_t label_ring_bytes(uint32_t write_unit_bytes)
{
    return (uint64_t)LABEL_RING_SLOTS * write_unit_bytes;
}

/*
 * Reads both rings and returns the newest valid label. Blocks on the device. -EINVAL: no pool on the device (text says
 * what is there instead); -EOPNOTSUPP: the newest label is of a newer format or has features this program does not
 * know; -EBADMSG: labels are there, none of them valid, or the device is shorter than the pool; device errors.
 */
int label_ring_read(struct device *dev, struct label *ret_label, struct error *err) __attribute__((warn_unused_result));

/* Writes label l (of device 0) to both rings with a device flush behind each. Blocks. Device errors only. */
int label_ring_write(struct device *dev, const struct label *l) __attribute__((warn_unused_result));

#endif
