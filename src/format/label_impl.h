/*
 * What the encoder and the decoder of labels share: numbers of the layout, the rules of validity, the checksum.
 * Bytes and rules: doc/format/label.md.
 */
#ifndef ASHLAR_FORMAT_LABEL_IMPL_H
#define ASHLAR_FORMAT_LABEL_IMPL_H

#include "format/label.h"

#define LABEL_MAGIC "ASHLABEL"
#define LABEL_MAGIC_BYTES 8
#define LABEL_CHECKSUM_BYTES 16
#define LABEL_DEVICES_OFFSET 288
#define LABEL_DEVICE_BYTES 64
#define LABEL_ROOTS_OFFSET (LABEL_DEVICES_OFFSET + LABEL_DEVICES_MAX * LABEL_DEVICE_BYTES)
#define LABEL_ROOT_BYTES 48
#define LABEL_EXTENSION_OFFSET (LABEL_ROOTS_OFFSET + LABEL_ROOTS_MAX * LABEL_ROOT_BYTES)
#define LABEL_EXTENSION_HEADER_BYTES 32
#define LABEL_EXTENSION_AREA_OFFSET (LABEL_EXTENSION_OFFSET + LABEL_EXTENSION_HEADER_BYTES)

#define LABEL_TAG_MUST_UNDERSTAND 0x8000

_Static_assert(LABEL_DEVICES_OFFSET == LABEL_MAGIC_BYTES + 4 + 4 + 3 * 8 + 16 + 4 + 4 + 4 * 8 + 4 * 4 + 4 * 8 + 8 + 16 +
                                           4 + 4 + 8 + 8 + LOOKAHEAD_SLOTS_MAX * (8 + 4),
               "fields fill the fixed part of a label");
_Static_assert(LABEL_EXTENSION_AREA_OFFSET == 1600, "as in doc/format/label.md");
_Static_assert(LABEL_EXTENSION_AREA_OFFSET + LABEL_CHECKSUM_BYTES < WRITE_UNIT_BYTES_MIN, "a label is one write unit");

/* 0, or -EBADMSG with the value that is out of range. */
int label_check(const struct label *l, struct error *err);

/* Checksum of a label at this place, over all of the write unit but the checksum itself. */
struct checksum label_checksum(const uint8_t *buf, uint32_t write_unit_bytes, bool back_ring, uint32_t ring_slot);

#endif
