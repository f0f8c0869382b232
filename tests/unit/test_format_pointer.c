/*
 * Pointers: layout, round trip, what is refused.
 */
#include "tap.h"
#include "seed.h"

#include <errno.h>

#include "base/bytes.h"
#include "format_objects.h"

static uint64_t seed;

static int decode(const uint8_t *bytes, size_t n, struct pointer *p)
{
    struct source in = source_of(bytes, n);
    return pointer_decode(&in, p);
}

static void encode(const struct pointer *p, uint8_t bytes[POINTER_BYTES])
{
    struct sink out = sink_of(bytes, POINTER_BYTES);
    pointer_encode(&out, p);
    EXPECT_EQ(out.position, POINTER_BYTES);
    EXPECT(!out.bad);
}

static void test_layout(void)
{
    const struct pointer p = {.address = 0x1122334455667788,
                              .length = 0x0abcde,
                              .kind = POINTER_DATA,
                              .codec = CODEC_ZSTD,
                              .checksum_kind = CHECKSUM_KIND_XXH3_128,
                              .flags = POINTER_LOSSY,
                              .checksum = {.low = 0x0102030405060708, .high = 0x090a0b0c0d0e0f10}};
    static const uint8_t expected[POINTER_BYTES] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xde, 0xbc, 0x0a,
                                                    3,    2,    0,    1,    1,    0x08, 0x07, 0x06, 0x05, 0x04, 0x03,
                                                    0x02, 0x01, 0x10, 0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09};
    uint8_t bytes[POINTER_BYTES];
    encode(&p, bytes);
    EXPECT(memcmp(bytes, expected, sizeof(bytes)) == 0);
    struct pointer q;
    EXPECT_EQ(decode(expected, sizeof(expected), &q), 0);
    EXPECT(pointer_equal(&p, &q));
}

static void test_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 20000; i++) {
        const struct pointer p = random_pointer(&r, random_pointer_kind(&r));
        struct pointer q;
        uint8_t bytes[POINTER_BYTES];
        REQUIRE(pointer_valid(&p));
        encode(&p, bytes);
        REQUIRE(decode(bytes, sizeof(bytes), &q) == 0);
        REQUIRE(pointer_equal(&p, &q));
        q.address ^= 1;
        REQUIRE(!pointer_equal(&p, &q));
    }
}

/* Every flip of a bit is refused or gives a different pointer; those of kind, codec parameter and checksum kind and of
 * the unused flags are refused or change the kind. */
static void test_bit_flips(void)
{
    struct prng r;
    prng_seed(&r, seed);
    unsigned refused = 0;
    for (int i = 0; i < 300; i++) {
        const struct pointer p = random_pointer(&r, random_pointer_kind(&r));
        uint8_t bytes[POINTER_BYTES];
        encode(&p, bytes);
        for (unsigned bit = 0; bit < 8 * POINTER_BYTES; bit++) {
            struct pointer q;
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (decode(bytes, sizeof(bytes), &q) != 0)
                refused++;
            else
                REQUIRE(pointer_valid(&q) && !pointer_equal(&p, &q));
            const bool in_param_or_sum_kind = bit / 8 == 13 || bit / 8 == 14;
            if (in_param_or_sum_kind)
                REQUIRE(decode(bytes, sizeof(bytes), &q) == -EBADMSG);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    EXPECT(refused > 0);
}

static void test_truncation(void)
{
    struct prng r;
    prng_seed(&r, seed);
    const struct pointer p = random_pointer(&r, POINTER_DATA);
    struct pointer q;
    uint8_t bytes[POINTER_BYTES];
    encode(&p, bytes);
    for (size_t n = 0; n < POINTER_BYTES; n++)
        EXPECT_EQ(decode(bytes, n, &q), -EBADMSG);
}

struct refusal {
    const char *what;
    struct pointer p;
};

static void test_refusals(void)
{
    static const struct refusal cases[] = {
        {"absent with an address", {.kind = POINTER_ABSENT, .address = 1}},
        {"absent with a checksum", {.kind = POINTER_ABSENT, .checksum = {.high = 1}}},
        {"hole with a length", {.kind = POINTER_HOLE, .length = 1}},
        {"hole with a checksum kind", {.kind = POINTER_HOLE, .checksum_kind = CHECKSUM_KIND_XXH3_128}},
        {"provisioned with a codec", {.kind = POINTER_PROVISIONED, .codec = CODEC_LZ4}},
        {"data without bytes", {.kind = POINTER_DATA, .checksum_kind = CHECKSUM_KIND_XXH3_128}},
        {"data without a checksum", {.kind = POINTER_DATA, .length = 1}},
        {"data with an unknown checksum", {.kind = POINTER_DATA, .length = 1, .checksum_kind = 2}},
        {"data with an unknown codec", {.kind = POINTER_DATA, .length = 1, .checksum_kind = 1, .codec = 3}},
        {"data with a codec parameter", {.kind = POINTER_DATA, .length = 1, .checksum_kind = 1, .codec_param = 1}},
        {"data with unknown flags", {.kind = POINTER_DATA, .length = 1, .checksum_kind = 1, .flags = 4}},
        {"data with sector ranges",
         {.kind = POINTER_DATA, .length = 1, .checksum_kind = 1, .flags = POINTER_SECTOR_RANGES}},
        {"data too long", {.kind = POINTER_DATA, .length = RECORD_BYTES_MAX + 1, .checksum_kind = 1}},
        {"lossy data too long",
         {.kind = POINTER_DATA, .length = RECORD_BYTES_MAX + 257, .checksum_kind = 1, .flags = POINTER_LOSSY}},
        {"data over the end of addresses",
         {.kind = POINTER_DATA, .length = 2, .checksum_kind = 1, .address = UINT64_MAX - 1}},
        {"compressed node", {.kind = POINTER_NODE, .length = 1, .checksum_kind = 1, .codec = CODEC_ZSTD}},
        {"lossy node", {.kind = POINTER_NODE, .length = 1, .checksum_kind = 1, .flags = POINTER_LOSSY}},
        {"lossy patch", {.kind = POINTER_PATCH, .length = 1, .checksum_kind = 1, .flags = POINTER_LOSSY}},
        {"inline", {.kind = POINTER_INLINE, .length = 1, .checksum_kind = 1}},
        {"lost with bytes", {.kind = POINTER_LOST, .length = 1, .checksum_kind = 1}},
        {"unknown kind", {.kind = 8, .length = 1, .checksum_kind = 1}},
        {"unknown kind", {.kind = 255}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (pointer_valid(&cases[i].p))
            printf("# taken: %s\n", cases[i].what);
        EXPECT(!pointer_valid(&cases[i].p));
    }
    const struct pointer longest = {
        .kind = POINTER_DATA, .length = RECORD_BYTES_MAX + 256, .checksum_kind = 1, .flags = POINTER_LOSSY};
    EXPECT(pointer_valid(&longest));
    const struct pointer last = {.kind = POINTER_DATA, .length = 1, .checksum_kind = 1, .address = UINT64_MAX - 1};
    EXPECT(pointer_valid(&last));
}

static struct patch patch_of(uint16_t first, uint16_t count, uint8_t codec, uint32_t length)
{
    const struct patch p = {
        first, count, {.kind = POINTER_PATCH, .codec = codec, .length = length, .checksum_kind = 1}};
    return p;
}

static void test_patches(void)
{
    struct patch p = patch_of(0, 8, CODEC_OFF, 4096);
    EXPECT(patch_valid(&p));
    p = patch_of(0, 8, CODEC_OFF, 4095);
    EXPECT(!patch_valid(&p));
    p = patch_of(0, 8, CODEC_LZ4, 4096);
    EXPECT(!patch_valid(&p));
    p = patch_of(0, 8, CODEC_LZ4, 4095);
    EXPECT(patch_valid(&p));
    p = patch_of(2047, 1, CODEC_OFF, 512);
    EXPECT(patch_valid(&p));
    p = patch_of(2048, 1, CODEC_OFF, 512);
    EXPECT(!patch_valid(&p));
    p = patch_of(2047, 2, CODEC_OFF, 1024);
    EXPECT(!patch_valid(&p));
    p = patch_of(0, 0, CODEC_LZ4, 1);
    EXPECT(!patch_valid(&p));
    p = patch_of(65535, 65535, CODEC_LZ4, 1);
    EXPECT(!patch_valid(&p));
    p = patch_of(0, 2048, CODEC_OFF, RECORD_BYTES_MAX);
    EXPECT(patch_valid(&p));
    p.pointer.kind = POINTER_DATA;
    EXPECT(!patch_valid(&p));
}

int main(void)
{
    seed = seed_choose();
    RUN(test_layout);
    RUN(test_round_trip);
    RUN(test_bit_flips);
    RUN(test_truncation);
    RUN(test_refusals);
    RUN(test_patches);
    return tap_done();
}
