/*
 * Fuzz target: a slot table record. Input: which record (2 bytes), segment size (1 byte, as a power), then the record.
 * Records carry no checksum of their own (their pointer does). What is taken must encode to the same bytes.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "format_objects.h"

#define RECORD_COUNT (SLOT_COUNT_MAX / SLOTS_PER_TABLE_RECORD)

int fuzz_one(const uint8_t *bytes, size_t n)
{
    struct source in = source_of(bytes, n);
    const uint32_t first_slot = source_u16(&in) % RECORD_COUNT * SLOTS_PER_TABLE_RECORD;
    const uint32_t segment_bytes = SEGMENT_BYTES_MIN << source_u8(&in) % 13;
    const size_t record_bytes = source_left(&in);
    if (in.bad)
        return 0;
    struct slot slots[SLOTS_PER_TABLE_RECORD];
    struct error err = {0};
    const int r = table_record_decode(bytes + 3, record_bytes, first_slot, segment_bytes, slots, &err);
    if (r != 0) {
        CHECK_EQ(r, -EBADMSG);
        CHECK_EQ(err.code, r);
        return 0;
    }
    for (size_t i = 0; i < SLOTS_PER_TABLE_RECORD; i++) {
        CHECK_LE(slots[i].used_bytes, segment_bytes);
        CHECK_LE(slots[i].live_bytes, segment_bytes);
    }
    uint8_t again[TABLE_RECORD_BYTES];
    table_record_encode(slots, first_slot, again);
    CHECK(memcmp(again, bytes + 3, TABLE_RECORD_BYTES) == 0);
    return 1;
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    struct slot slots[SLOTS_PER_TABLE_RECORD];
    const uint32_t record = (uint32_t)prng_below(r, RECORD_COUNT);
    const uint8_t shift = (uint8_t)prng_below(r, 13);
    random_slots(r, SEGMENT_BYTES_MIN << shift, slots);
    struct sink out = sink_of(buf, 3);
    sink_u16(&out, (uint16_t)record);
    sink_u8(&out, shift);
    table_record_encode(slots, record * SLOTS_PER_TABLE_RECORD, buf + 3);
    return 3 + TABLE_RECORD_BYTES;
}
