/*
 * Labels: round trip, place, single-bit flips, every range, extensions.
 */
#include "tap.h"
#include "seed.h"

#include <errno.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format_objects.h"

#define UNIT 4096
#define SEGMENT (64 * 1024)

static uint64_t seed;
static uint8_t buf[WRITE_UNIT_BYTES_MAX], again[WRITE_UNIT_BYTES_MAX];

static uint32_t ring_slot_of(const struct label *l)
{
    return (uint32_t)(l->sequence % LABEL_RING_SLOTS);
}

/* A label of a pool of 8 slots, with everything in it that can be. */
static struct label plain_label(void)
{
    struct label l = {.device_count = 1,
                      .sequence = 33,
                      .oldest_intact = 32,
                      .checkpoint = 7,
                      .incarnation = 0x1122334455667788,
                      .flags = LABEL_CLEAN,
                      .write_unit_bytes = UNIT,
                      .segment_bytes = SEGMENT,
                      .lookahead_count = 2,
                      .next_segment = 12,
                      .next_branch = 18,
                      .replay_address = 5 * SEGMENT + UNIT,
                      .replay_slot = 0,
                      .node_address = 6 * SEGMENT,
                      .node_slot = 1,
                      .root_count = 2};
    l.devices[0] = (struct label_device){.state = LABEL_DEVICE_ACTIVE,
                                         .size_bytes = 2 * LABEL_RING_SLOTS * UNIT + 8 * SEGMENT,
                                         .data_start_bytes = LABEL_RING_SLOTS * UNIT,
                                         .slot_count = 8};
    for (int k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        l.replay_next_slots[k] = SLOT_NONE;
    l.replay_next_slots[0] = 2;
    l.replay_next_segments[0] = 7;
    l.replay_next_slots[1] = 7;
    l.replay_next_segments[1] = 11;
    for (uint16_t i = 0; i < 2; i++)
        l.roots[i] = (struct label_root){.kind = (uint16_t)(ROOT_CATALOG + i),
                                         .height = 1,
                                         .pointer = {.address = 4 * SEGMENT + 4096,
                                                     .length = 100,
                                                     .kind = POINTER_NODE,
                                                     .checksum_kind = CHECKSUM_KIND_XXH3_128}};
    return l;
}

static void test_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 2000; i++) {
        const struct label l = random_label(&r);
        struct label m;
        const uint32_t unit = l.write_unit_bytes;
        label_encode(&l, buf, unit);
        REQUIRE(label_decode(buf, unit, l.in_back_ring, ring_slot_of(&l), &m, NULL) == 0);
        label_encode(&m, again, unit);
        REQUIRE(memcmp(buf, again, unit) == 0);
        REQUIRE(m.in_back_ring == l.in_back_ring && m.sequence == l.sequence && m.replay_slot == l.replay_slot);
        REQUIRE(checksum_equal(m.replay_chain, l.replay_chain));
        REQUIRE(m.root_count == l.root_count);
        for (uint32_t k = 0; k < m.root_count; k++)
            REQUIRE(pointer_equal(&m.roots[k].pointer, &l.roots[k].pointer));
        /* Nowhere else does it verify. */
        REQUIRE(label_decode(buf, unit, !l.in_back_ring, ring_slot_of(&l), &m, NULL) == -EBADMSG);
        const uint32_t other = (ring_slot_of(&l) + 1 + (uint32_t)prng_below(&r, 31)) % LABEL_RING_SLOTS;
        REQUIRE(label_decode(buf, unit, l.in_back_ring, other, &m, NULL) == -EBADMSG);
    }
}

static void test_every_bit(void)
{
    const struct label l = plain_label();
    struct label m;
    unsigned refused = 0;
    label_encode(&l, buf, UNIT);
    EXPECT_EQ(label_decode(buf, UNIT, false, 1, &m, NULL), 0);
    for (size_t bit = 0; bit < 8 * UNIT; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += label_decode(buf, UNIT, false, 1, &m, NULL) == (bit / 8 < 8 ? -ENODATA : -EBADMSG);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    EXPECT_EQ(refused, 8 * UNIT);
}

static void test_no_label(void)
{
    struct label m;
    struct error err = {0};
    memset(buf, 0, UNIT);
    EXPECT_EQ(label_decode(buf, UNIT, false, 0, &m, &err), -ENODATA);
    EXPECT_TEXT(err.text, "no label here");
}

static void repair(uint32_t ring_slot)
{
    const struct checksum position = {.low = 0, .high = ring_slot};
    const struct checksum c = checksum_chain(position, buf, UNIT - 16);
    struct sink out = sink_of(buf + UNIT - 16, 16);
    sink_u64(&out, c.low);
    sink_u64(&out, c.high);
}

/* Sets `width` bytes at offset of an encoded plain label, repairs the checksum, decodes. */
static int decode_with(size_t offset, uint64_t value, unsigned width, struct error *err)
{
    const struct label l = plain_label();
    struct label m;
    label_encode(&l, buf, UNIT);
    for (unsigned i = 0; i < width; i++)
        buf[offset + i] = (uint8_t)(value >> 8 * i);
    repair(1);
    return label_decode(buf, UNIT, false, 1, &m, err);
}

struct change {
    size_t offset;
    unsigned width;
    uint64_t value;
    int result;
    const char *text; /* NULL: any */
};

static void expect_changes(const struct change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct error err = {0};
        const int r = decode_with(changes[i].offset, changes[i].value, changes[i].width, &err);
        if (r != changes[i].result)
            printf("# offset %zu value %" PRIu64 ": %d, %s\n", changes[i].offset, changes[i].value, r, err.text);
        EXPECT_EQ(r, changes[i].result);
        if (changes[i].text != NULL)
            EXPECT_TEXT(err.text, changes[i].text);
    }
}

/* Offsets: doc/format/label.md. */
static void test_versions_and_features(void)
{
    static const struct change changes[] = {
        {8, 4, 2, -EOPNOTSUPP, "pool of format version 2: this program knows versions up to 1, use a newer one"},
        {8, 4, 0, -EBADMSG, "label: format version 0 does not exist"},
        {16, 8, 4, -EOPNOTSUPP, "pool with unknown incompatible features 0x4: a newer program is needed"},
        {24, 8, UINT64_MAX, 0, NULL},
        {32, 8, UINT64_MAX, 0, NULL},
    };
    expect_changes(changes, sizeof(changes) / sizeof(changes[0]));
}

static void test_ranges(void)
{
    static const struct change changes[] = {
        {12, 4, 8192, -EBADMSG, "label: write unit of 8192 bytes, read as 4096"},
        {56, 4, 1, -EBADMSG, NULL}, /* device id */
        {60, 4, 0, -EBADMSG, NULL}, /* device count */
        {60, 4, 2, -EBADMSG, NULL},
        {60, 4, 9, -EBADMSG, "label: 9 devices and 2 roots"},
        {64, 8, 65, 0, NULL}, /* sequence: the same ring slot */
        {64, 8, 34, -EBADMSG, "label 34 in ring slot 1"},
        {64, 8, 1, -EBADMSG, NULL}, /* older than the oldest intact */
        {72, 8, 0, -EBADMSG, NULL}, /* oldest intact */
        {72, 8, 33, 0, NULL},
        {72, 8, 34, -EBADMSG, NULL},
        {96, 4, 2, -EBADMSG, "label: unknown flags 0x2"},
        {100, 4, SEGMENT - UNIT, -EBADMSG, NULL},
        {100, 4, SEGMENT + 512, -EBADMSG, NULL},
        {100, 4, SEGMENT_BYTES_MAX + UNIT, -EBADMSG, NULL},
        {104, 4, 0, -EBADMSG, NULL}, /* lookahead */
        {104, 4, 1, -EBADMSG, NULL}, /* two next slots are there */
        {104, 4, 8, 0, NULL},
        {104, 4, 9, -EBADMSG, NULL},
        {108, 4, 1, -EBADMSG, NULL}, /* one root, and the other's bytes */
        {108, 4, 17, -EBADMSG, NULL},
        {128, 8, 11, -EBADMSG, NULL}, /* next segment: 11 is in use */
        {128, 8, UINT64_MAX / SEGMENT, 0, NULL},
        {128, 8, UINT64_MAX / SEGMENT + 1, -EBADMSG, NULL},
        {136, 8, 15, -EBADMSG, NULL},                /* next branch */
        {144, 8, 5 * SEGMENT + 512, -EBADMSG, NULL}, /* replay address */
        {144, 8, 7 * SEGMENT, -EBADMSG, NULL},       /* in the segment that follows */
        {144, 8, UINT64_MAX - 4095, -EBADMSG, NULL},
        {168, 4, 8, -EBADMSG, "label: data head in slot 8 of 8"},
        {168, 4, 1, -EBADMSG, "label: slot 1 is named twice"},
        {168, 4, SLOT_NONE, -EBADMSG, NULL}, /* the data head always has a slot */
        {172, 4, SLOT_NONE, -EBADMSG, NULL}, /* node slot: none, but an address */
        {172, 4, 8, -EBADMSG, "label: node head in slot 8 of 8"},
        {172, 4, 3, 0, NULL},
        {176, 8, 1, -EBADMSG, NULL},
        {176, 8, 12 * SEGMENT, -EBADMSG, NULL},
        {184, 1, 1, -EBADMSG, NULL}, /* reserved */
        {192, 8, 5, -EBADMSG, NULL}, /* next segments: not above the one before */
        {200, 8, 7, -EBADMSG, NULL},
        {200, 8, 12, -EBADMSG, NULL}, /* not issued */
        {208, 8, 1, -EBADMSG, NULL},  /* without a slot */
        {256, 4, 8, -EBADMSG, NULL},
        {256, 4, SLOT_NONE, -EBADMSG, NULL}, /* a gap */
        {260, 4, 2, -EBADMSG, "label: slot 2 is named twice"},
    };
    expect_changes(changes, sizeof(changes) / sizeof(changes[0]));
}

static void test_device_and_root_ranges(void)
{
    enum { DEVICE = 288, ROOT = 800, LAST = 1568 };
    static const struct change changes[] = {
        {DEVICE + 0, 4, 1, -EBADMSG, NULL},
        {DEVICE + 4, 1, 0, -EBADMSG, NULL},
        {DEVICE + 4, 1, 2, -EBADMSG, NULL},
        {DEVICE + 5, 1, 1, -EBADMSG, NULL},
        {DEVICE + 8, 8, 2 * LABEL_RING_SLOTS * UNIT + 8 * SEGMENT + 4095, 0, NULL},
        {DEVICE + 8, 8, 2 * LABEL_RING_SLOTS * UNIT + 8 * SEGMENT - 1, -EBADMSG, NULL},
        {DEVICE + 8, 8, 0, -EBADMSG, NULL},
        {DEVICE + 16, 8, LABEL_RING_SLOTS * UNIT + UNIT, -EBADMSG, NULL},
        {DEVICE + 16, 8, LABEL_RING_SLOTS * UNIT - UNIT, -EBADMSG, NULL},
        {DEVICE + 16, 8, LABEL_RING_SLOTS * UNIT + 512, -EBADMSG, NULL},
        {DEVICE + 24, 4, 9, -EBADMSG, NULL},
        {DEVICE + 24, 4, 7, -EBADMSG, NULL}, /* slot 7 is in use */
        {DEVICE + 24, 4, 0, -EBADMSG, NULL},
        {DEVICE + 24, 4, UINT32_MAX, -EBADMSG, NULL},
        {DEVICE + 28, 1, 1, -EBADMSG, NULL},
        {DEVICE + 48, 1, 1, -EBADMSG, NULL},
        {DEVICE + 64, 1, 1, -EBADMSG, NULL}, /* the second device */
        {ROOT + 0, 2, 2, -EBADMSG, "label: two roots of kind 2"},
        {ROOT + 0, 2, 3, -EBADMSG, "label: root of kind 3, which no feature of this pool allows"},
        {ROOT + 0, 2, 0, -EBADMSG, NULL},
        {ROOT + 2, 1, 0, -EBADMSG, NULL}, /* height */
        {ROOT + 2, 1, 7, 0, NULL},
        {ROOT + 2, 1, 8, -EBADMSG, NULL},
        {ROOT + 3, 1, 1, -EBADMSG, NULL},
        {ROOT + 8, 8, 12 * SEGMENT, -EBADMSG, NULL}, /* address of its pointer: not issued */
        {ROOT + 8, 8, 5 * SEGMENT - 100, 0, NULL},
        {ROOT + 8, 8, 5 * SEGMENT - 99, -EBADMSG, NULL}, /* over the end of its segment */
        {ROOT + 48 + 8, 8, 8 * SEGMENT - 100, 0, NULL},  /* of the slot table: a place in one of 8 slots */
        {ROOT + 48 + 8, 8, 8 * SEGMENT, -EBADMSG, NULL},
        {ROOT + 8 + 11, 1, POINTER_DATA, -EBADMSG, NULL},
        {ROOT + 40, 1, 1, -EBADMSG, NULL},
        {ROOT + 2 * 48, 1, 1, -EBADMSG, NULL}, /* the third root */
        {LAST + 4, 1, 1, -EBADMSG, NULL},
        {LAST + 32, 1, 1, -EBADMSG, NULL}, /* behind an extension area of no bytes */
        {UNIT - 17, 1, 1, -EBADMSG, NULL},
    };
    expect_changes(changes, sizeof(changes) / sizeof(changes[0]));
}

/* Puts an extension area of these bytes into a plain label and decodes it. */
static int decode_with_extensions(const uint8_t *area, uint32_t area_bytes, uint32_t said_bytes)
{
    const struct label l = plain_label();
    struct label m;
    label_encode(&l, buf, UNIT);
    struct sink out = sink_of(buf + 1568, UNIT - 16 - 1568);
    sink_u32(&out, said_bytes);
    sink_zeroes(&out, 28);
    sink_copy(&out, area, area_bytes);
    repair(1);
    return label_decode(buf, UNIT, false, 1, &m, NULL);
}

static void test_extensions(void)
{
    static const uint8_t skipped[] = {7, 0, 3, 0, 'a', 'b', 'c', 8, 0, 0, 0};
    static const uint8_t must[] = {7, 0, 1, 0, 'a', 8, 0x80, 0, 0};
    static const uint8_t twice[] = {7, 0, 0, 0, 7, 0, 0, 0};
    static const uint8_t backwards[] = {7, 0, 0, 0, 6, 0, 0, 0};
    static const uint8_t zero[] = {0, 0, 0, 0};
    static const uint8_t cut[] = {7, 0, 2, 0, 'a'};
    EXPECT_EQ(decode_with_extensions(skipped, sizeof(skipped), sizeof(skipped)), 0);
    EXPECT_EQ(decode_with_extensions(must, sizeof(must), sizeof(must)), -EOPNOTSUPP);
    EXPECT_EQ(decode_with_extensions(twice, sizeof(twice), sizeof(twice)), -EBADMSG);
    EXPECT_EQ(decode_with_extensions(backwards, sizeof(backwards), sizeof(backwards)), -EBADMSG);
    EXPECT_EQ(decode_with_extensions(zero, sizeof(zero), sizeof(zero)), -EBADMSG);
    EXPECT_EQ(decode_with_extensions(cut, sizeof(cut), sizeof(cut)), -EBADMSG);
    EXPECT_EQ(decode_with_extensions(skipped, sizeof(skipped), 7), -EBADMSG); /* bytes behind the area */
    EXPECT_EQ(decode_with_extensions(NULL, 0, 2480), -EBADMSG);
    EXPECT_EQ(decode_with_extensions(NULL, 0, 2481), -EBADMSG);
    EXPECT_EQ(decode_with_extensions(NULL, 0, UINT32_MAX), -EBADMSG);
}

static void test_places(void)
{
    EXPECT_EQ(label_offset_bytes(1 << 20, 4096, false, 0), 0);
    EXPECT_EQ(label_offset_bytes(1 << 20, 4096, false, 31), 31 * 4096);
    EXPECT_EQ(label_offset_bytes(1 << 20, 4096, true, 0), (1 << 20) - 32 * 4096);
    EXPECT_EQ(label_offset_bytes((1 << 20) + 4095, 4096, true, 31), (1 << 20) - 4096);
    EXPECT_EQ(label_offset_bytes((1 << 20) + 4096, 4096, true, 31), 1 << 20);
    EXPECT_EQ(label_offset_bytes(2 * 32 * 4096, 4096, true, 0), 32 * 4096);
    EXPECT_EQ(label_offset_bytes(2 * 32 * 4096 - 1, 4096, true, 0), UINT64_MAX);
    EXPECT_EQ(label_offset_bytes(2 * 32 * 4096, 65536, true, 31), UINT64_MAX);
    EXPECT_EQ(label_offset_bytes((1 << 24) + 65535, 65536, true, 0), (1 << 24) - 32 * 65536);
}

static void test_find_root(void)
{
    struct label l = plain_label();
    EXPECT(label_find_root(&l, ROOT_SLOT_TABLE) == &l.roots[1]);
    EXPECT(label_find_root(&l, ROOT_KEYS) == NULL);
    l.root_count = 0;
    EXPECT(label_find_root(&l, ROOT_CATALOG) == NULL);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_round_trip);
    RUN(test_every_bit);
    RUN(test_no_label);
    RUN(test_versions_and_features);
    RUN(test_ranges);
    RUN(test_device_and_root_ranges);
    RUN(test_extensions);
    RUN(test_places);
    RUN(test_find_root);
    return tap_done();
}
