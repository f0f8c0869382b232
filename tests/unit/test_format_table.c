/*
 * Slot table records: layout, round trip, what is refused.
 */
#include "tap.h"
#include "seed.h"

#include <errno.h>

#include "base/error.h"
#include "format_objects.h"

#define SEGMENT_BYTES (4u * 1024 * 1024)

static uint64_t seed;

static bool slots_equal(const struct slot *a, const struct slot *b)
{
    return a->state == b->state && a->head == b->head && a->device == b->device && a->used_bytes == b->used_bytes &&
           a->live_bytes == b->live_bytes && a->segment == b->segment && a->since == b->since;
}

static void test_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 200; i++) {
        struct slot slots[SLOTS_PER_TABLE_RECORD], again[SLOTS_PER_TABLE_RECORD];
        uint8_t buf[TABLE_RECORD_BYTES];
        const uint32_t first = (uint32_t)prng_below(&r, SLOT_COUNT_MAX / 128) * 128;
        random_slots(&r, SEGMENT_BYTES, slots);
        table_record_encode(slots, first, buf);
        REQUIRE(table_record_decode(buf, sizeof(buf), first, SEGMENT_BYTES, again, NULL) == 0);
        for (size_t k = 0; k < SLOTS_PER_TABLE_RECORD; k++)
            REQUIRE(slots_equal(&slots[k], &again[k]));
    }
}

static void test_bit_flips(void)
{
    struct prng r;
    prng_seed(&r, seed);
    struct slot slots[SLOTS_PER_TABLE_RECORD], again[SLOTS_PER_TABLE_RECORD];
    uint8_t buf[TABLE_RECORD_BYTES], back[TABLE_RECORD_BYTES];
    random_slots(&r, SEGMENT_BYTES, slots);
    table_record_encode(slots, 128, buf);
    unsigned refused = 0, taken = 0;
    for (size_t bit = 0; bit < 8 * sizeof(buf); bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (table_record_decode(buf, sizeof(buf), 128, SEGMENT_BYTES, again, NULL) != 0) {
            refused++;
        } else {
            taken++;
            table_record_encode(again, 128, back);
            REQUIRE(memcmp(back, buf, sizeof(buf)) == 0);
        }
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    EXPECT(refused > 0);
    EXPECT(taken > 0);
}

static void test_length_and_place(void)
{
    struct slot slots[SLOTS_PER_TABLE_RECORD] = {0}, again[SLOTS_PER_TABLE_RECORD];
    uint8_t buf[TABLE_RECORD_BYTES + 1] = {0};
    struct error err = {0};
    table_record_encode(slots, 256, buf);
    for (size_t n = 0; n <= sizeof(buf); n++)
        EXPECT_EQ(table_record_decode(buf, n, 256, SEGMENT_BYTES, again, NULL), n == TABLE_RECORD_BYTES ? 0 : -EBADMSG);
    EXPECT_EQ(table_record_decode(buf, TABLE_RECORD_BYTES, 128, SEGMENT_BYTES, again, &err), -EBADMSG);
    EXPECT_EQ(table_record_decode(buf, TABLE_RECORD_BYTES, SLOT_COUNT_MAX, SEGMENT_BYTES, again, NULL), -EBADMSG);
    EXPECT_TEXT(err.text, "slot table, slot 128: belongs to another table record");
}

/* Slot 3 of an otherwise free record, with its bytes set by hand. */
static int decode_slot(uint8_t state, uint8_t head, uint8_t device, uint8_t reserved, uint32_t used, uint32_t live,
                       uint8_t segment)
{
    struct slot slots[SLOTS_PER_TABLE_RECORD] = {0};
    uint8_t buf[TABLE_RECORD_BYTES];
    table_record_encode(slots, 0, buf);
    uint8_t *s = buf + 3 * SLOT_BYTES;
    s[0] = state;
    s[1] = head;
    s[2] = device;
    s[3] = reserved;
    for (int i = 0; i < 4; i++) {
        s[4 + i] = (uint8_t)(used >> 8 * i);
        s[8 + i] = (uint8_t)(live >> 8 * i);
    }
    s[16] = segment;
    return table_record_decode(buf, sizeof(buf), 0, SEGMENT_BYTES, slots, NULL);
}

static void test_refusals(void)
{
    EXPECT_EQ(decode_slot(SLOT_BARE, 0, 0, 0, 0, 0, 0), 0);
    EXPECT_EQ(decode_slot(SLOT_CLOSED, 1, 0, 0, SEGMENT_BYTES, SEGMENT_BYTES, 9), 0);
    EXPECT_EQ(decode_slot(SLOT_CLOSED, 1, 0, 0, SEGMENT_BYTES + 1, 0, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_CLOSED, 1, 0, 0, 1, SEGMENT_BYTES + 1, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_CLOSED, 2, 0, 0, 1, 1, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_CLOSED, 0, 1, 0, 1, 1, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_CLOSED, 0, 0, 1, 1, 1, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_READY, 0, 0, 0, 0, 0, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_READY, 1, 0, 0, 0, 0, 0), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_BARE, 0, 0, 0, 1, 0, 0), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_BARE, 0, 0, 0, 0, 1, 0), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_QUARANTINED, 0, 0, 0, 1, 0, 9), 0);
    EXPECT_EQ(decode_slot(SLOT_QUARANTINED, 0, 0, 0, 1, 1, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(SLOT_DAMAGED, 0, 0, 0, 1, 1, 9), -EBADMSG);
    EXPECT_EQ(decode_slot(7, 0, 0, 0, 1, 1, 9), -EBADMSG);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_round_trip);
    RUN(test_bit_flips);
    RUN(test_length_and_place);
    RUN(test_refusals);
    return tap_done();
}
