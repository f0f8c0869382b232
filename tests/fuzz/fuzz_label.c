/*
 * Fuzz target: a label. Input: write unit (as a power) and ring, ring slot, then the label's bytes; what is missing up
 * to a write unit is zero. Given to the decoder as it is, then with its checksum made right for that place.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "format_objects.h"

#define CHECKSUM_BYTES 16
#define EXTENSION_BYTES_OFFSET 1568

struct place {
    uint32_t write_unit_bytes;
    uint32_t ring_slot;
    bool back_ring;
};

static void repair(uint8_t *label, struct place at)
{
    const struct checksum position = {.low = at.back_ring, .high = at.ring_slot};
    const size_t summed_bytes = at.write_unit_bytes - CHECKSUM_BYTES;
    const struct checksum c = checksum_chain(position, label, summed_bytes);
    struct sink out = sink_of(label + summed_bytes, CHECKSUM_BYTES);
    sink_u64(&out, c.low);
    sink_u64(&out, c.high);
}

static int decode(const uint8_t *bytes, struct place at)
{
    static uint8_t again[WRITE_UNIT_BYTES_MAX];
    struct label l;
    struct error err = {0};
    const int r = label_decode(bytes, at.write_unit_bytes, at.back_ring, at.ring_slot, &l, &err);
    if (r != 0) {
        CHECK_EQ(err.code, r);
        CHECK(err.text[0] != '\0');
        return 0;
    }
    label_encode(&l, again, at.write_unit_bytes);
    /* Extensions are skipped, so they are not written again. */
    struct source extension = source_of(bytes + EXTENSION_BYTES_OFFSET, 4);
    if (source_u32(&extension) == 0)
        CHECK(memcmp(again, bytes, at.write_unit_bytes) == 0);
    else
        CHECK_EQ(label_decode(again, at.write_unit_bytes, at.back_ring, at.ring_slot, &l, NULL), 0);
    return 1;
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    static uint8_t label[WRITE_UNIT_BYTES_MAX];
    if (n < 2)
        return 0;
    const struct place at = {.write_unit_bytes = WRITE_UNIT_BYTES_MIN << (bytes[0] & 7) % 5,
                             .ring_slot = bytes[1] % LABEL_RING_SLOTS,
                             .back_ring = (bytes[0] & 8) != 0};
    const size_t given = n - 2 < at.write_unit_bytes ? n - 2 : at.write_unit_bytes;
    memset(label, 0, at.write_unit_bytes);
    memcpy(label, bytes + 2, given);
    if (decode(label, at) == 1)
        return 1;
    repair(label, at);
    return decode(label, at);
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    const struct label l = random_label(r);
    buf[0] = l.in_back_ring ? 8 : 0;
    while ((uint32_t)WRITE_UNIT_BYTES_MIN << (buf[0] & 7) != l.write_unit_bytes)
        buf[0]++;
    buf[1] = (uint8_t)(l.sequence % LABEL_RING_SLOTS);
    label_encode(&l, buf + 2, l.write_unit_bytes);
    /* The longer part of most labels is zeroes: leave them to fuzz_one half of the time. */
    if (prng_chance(r, 500))
        return 2 + l.write_unit_bytes;
    return 2 + EXTENSION_BYTES_OFFSET + 64;
}
