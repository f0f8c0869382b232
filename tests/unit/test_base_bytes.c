/*
 * Cursors: fixed bytes for the order, every buffer size around every operation for the bounds, varints of every length
 * with every malformed relative.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "seed.h"
#include "tap.h"

static const uint8_t counting[18] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09,
                                     0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0xf2};

static void test_little_endian(void)
{
    struct source s = source_of(counting, sizeof(counting));
    EXPECT_EQ(source_u8(&s), 0x01);
    EXPECT_EQ(source_u16(&s), 0x0302);
    EXPECT_EQ(source_u24(&s), 0x060504);
    EXPECT_EQ(source_u32(&s), 0x0a090807);
    EXPECT_EQ(source_left(&s), 8);
    EXPECT_EQ(source_u64(&s), (int64_t)UINT64_C(0xf211100f0e0d0c0b));
    EXPECT(!s.bad);
    EXPECT_EQ(source_left(&s), 0);

    uint8_t written[18];
    struct sink k = sink_of(written, sizeof(written));
    sink_u8(&k, 0x01);
    sink_u16(&k, 0x0302);
    sink_u24(&k, 0x060504);
    sink_u32(&k, 0x0a090807);
    EXPECT_EQ(sink_left(&k), 8);
    sink_u64(&k, UINT64_C(0xf211100f0e0d0c0b));
    EXPECT(!k.bad);
    EXPECT_EQ(sink_left(&k), 0);
    EXPECT(memcmp(written, counting, sizeof(counting)) == 0);
}

/* One read of the kind that takes `width` bytes: 1 2 3 4 8 numbers, 5 a copy, 6 a pointer, 7 zeroes. True if it gave
 * what counting (or a zero area) holds at `at`. */
static bool read_one(struct source *s, unsigned width, size_t at)
{
    uint64_t wanted = 0, got = 0;
    uint8_t copy[5] = {9, 9, 9, 9, 9};
    for (unsigned i = width; i-- > 0;)
        wanted = wanted << 8 | (s->bytes == counting && at + i < sizeof(counting) ? counting[at + i] : 0);
    if (width == 1)
        got = source_u8(s);
    else if (width == 2)
        got = source_u16(s);
    else if (width == 3)
        got = source_u24(s);
    else if (width == 4)
        got = source_u32(s);
    else if (width == 8)
        got = source_u64(s);
    else if (width == 5) {
        source_copy(s, copy, 5);
        memcpy(&got, copy, 5);
    } else if (width == 6) {
        const uint8_t *bytes = source_take(s, 6);
        return s->bad ? bytes == NULL : bytes == s->bytes + at;
    } else {
        source_zeroes(s, 7);
        return true;
    }
    return got == (s->bad ? 0 : wanted);
}

static void test_source_bounds(void)
{
    static const uint8_t zeroes[18];
    for (unsigned width = 1; width <= 8; width++) {
        for (size_t size = 0; size <= sizeof(counting); size++) {
            for (size_t skip = 0; skip <= size; skip++) {
                struct source s = source_of(width == 7 ? zeroes : counting, size);
                source_take(&s, skip);
                EXPECT(!s.bad);
                EXPECT(read_one(&s, width, skip));
                bool fits = skip + width <= size;
                EXPECT_EQ(s.bad, !fits);
                EXPECT_EQ(s.position, fits ? skip + width : skip);
                if (fits)
                    continue;
                EXPECT_EQ(source_left(&s), 0);
                EXPECT_EQ(source_u8(&s), 0); /* though a byte may be there */
                EXPECT_EQ(source_varint(&s), 0);
                EXPECT(source_take(&s, 0) == NULL);
                uint8_t copy = 7;
                source_copy(&s, &copy, 1);
                EXPECT_EQ(copy, 0);
                EXPECT(s.bad);
            }
        }
    }
}

static void test_huge_lengths(void)
{
    struct source s = source_of(counting, sizeof(counting));
    source_u8(&s);
    EXPECT(source_take(&s, SIZE_MAX) == NULL);
    EXPECT(s.bad);
    uint8_t bytes[4];
    struct sink k = sink_of(bytes, sizeof(bytes));
    sink_u8(&k, 1);
    sink_zeroes(&k, SIZE_MAX);
    EXPECT(k.bad);
}

static void test_zeroes(void)
{
    for (size_t n = 0; n <= 8; n++) {
        for (size_t other = 0; other <= n; other++) {
            uint8_t bytes[9] = {0};
            bytes[other] = 0x80; /* behind the n bytes if other == n */
            struct source s = source_of(bytes, sizeof(bytes));
            source_zeroes(&s, n);
            EXPECT_EQ(s.bad, other < n);
            EXPECT_EQ(s.position, other < n ? 0 : n);
        }
    }
}

static void write_one(struct sink *k, unsigned width)
{
    static const uint8_t five[5] = {1, 1, 1, 1, 1};
    if (width == 1)
        sink_u8(k, 0xff);
    else if (width == 2)
        sink_u16(k, 0xffff);
    else if (width == 3)
        sink_u24(k, 0xffffff);
    else if (width == 4)
        sink_u32(k, UINT32_MAX);
    else if (width == 8)
        sink_u64(k, UINT64_MAX);
    else if (width == 5)
        sink_copy(k, five, 5);
    else if (width == 6)
        sink_varint(k, UINT64_C(1) << 35);
    else
        sink_zeroes(k, 7);
}

static void test_sink_bounds(void)
{
    for (unsigned width = 1; width <= 8; width++) {
        for (size_t size = 0; size <= 18; size++) {
            for (size_t skip = 0; skip <= size; skip++) {
                uint8_t bytes[24];
                memset(bytes, 0xa5, sizeof(bytes));
                struct sink k = sink_of(bytes, size);
                sink_zeroes(&k, skip);
                EXPECT(!k.bad);
                write_one(&k, width);
                bool fits = skip + width <= size;
                EXPECT_EQ(k.bad, !fits);
                EXPECT_EQ(k.position, fits ? skip + width : skip);
                size_t untouched = k.position;
                while (untouched < sizeof(bytes) && bytes[untouched] == 0xa5)
                    untouched++;
                EXPECT_EQ(untouched, sizeof(bytes));
                EXPECT_EQ(skip == k.position || bytes[skip] != 0xa5, true);
                if (fits)
                    continue;
                write_one(&k, 1); /* though a byte might fit */
                EXPECT(k.bad && k.position == skip && sink_left(&k) == 0);
            }
        }
    }
}

static void test_nothing(void)
{
    struct source s = source_of(NULL, 0);
    source_copy(&s, NULL, 0);
    source_zeroes(&s, 0);
    EXPECT(!s.bad);
    struct sink k = sink_of(NULL, 0);
    sink_copy(&k, NULL, 0);
    sink_zeroes(&k, 0);
    EXPECT(!k.bad);
    sink_varint(&k, 0);
    EXPECT(k.bad);
}

/* Writes v as a varint, expects `length` bytes, reads it back, and refuses it cut short at every place. */
static void expect_varint(uint64_t v, size_t length)
{
    uint8_t bytes[16];
    struct sink k = sink_of(bytes, sizeof(bytes));
    sink_varint(&k, v);
    EXPECT(!k.bad);
    EXPECT_EQ(k.position, length);
    EXPECT_EQ(varint_bytes(v), length);
    struct source s = source_of(bytes, length);
    EXPECT_EQ(source_varint(&s), (int64_t)v);
    EXPECT(!s.bad);
    EXPECT_EQ(s.position, length);
    for (size_t cut = 0; cut < length; cut++) {
        s = source_of(bytes, cut);
        EXPECT_EQ(source_varint(&s), 0);
        EXPECT(s.bad);
        EXPECT_EQ(s.position, 0);
        k = sink_of(bytes, cut);
        sink_varint(&k, v);
        EXPECT(k.bad);
        EXPECT_EQ(k.position, 0);
    }
    /* The same value one byte longer: the last byte continues into a zero. */
    bytes[length - 1] |= 0x80;
    bytes[length] = 0;
    s = source_of(bytes, length + 1);
    EXPECT_EQ(source_varint(&s), 0);
    EXPECT(s.bad);
}

static void test_varint_lengths(void)
{
    expect_varint(0, 1);
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t v = UINT64_C(1) << bit;
        expect_varint(v, bit / 7 + 1);
        expect_varint(v | (v - 1), bit / 7 + 1);
        if (v > 1)
            expect_varint(v - 1, (bit - 1) / 7 + 1);
    }
    struct prng r;
    prng_seed(&r, seed_choose());
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t v = prng_u64(&r) >> prng_below(&r, 64);
        unsigned bits = 64 - (unsigned)__builtin_clzll(v | 1);
        expect_varint(v, (bits - 1) / 7 + 1);
    }
}

static void test_varint_every_two_bytes(void)
{
    for (unsigned n = 0; n < 65536; n++) {
        uint8_t bytes[2] = {(uint8_t)n, (uint8_t)(n >> 8)};
        struct source s = source_of(bytes, 2);
        uint64_t v = source_varint(&s);
        if (bytes[0] < 0x80)
            EXPECT(!s.bad && v == bytes[0] && s.position == 1);
        else if (bytes[1] >= 0x80 || bytes[1] == 0)
            EXPECT(s.bad && v == 0 && s.position == 0);
        else
            EXPECT(!s.bad && v == (bytes[0] & 0x7fU) + bytes[1] * 128U && s.position == 2);
    }
}

static void test_varint_over_64_bits(void)
{
    uint8_t bytes[12];
    memset(bytes, 0xff, sizeof(bytes));
    for (unsigned last = 0; last < 256; last++) {
        bytes[9] = (uint8_t)last;
        bytes[10] = 1; /* an eleventh byte must not help */
        struct source s = source_of(bytes, sizeof(bytes));
        uint64_t v = source_varint(&s);
        EXPECT_EQ(s.bad, last != 1);
        EXPECT_EQ(v, last == 1 ? (int64_t)UINT64_MAX : 0);
    }
}

static void test_zigzag(void)
{
    static const int64_t first[] = {0, -1, 1, -2, 2, -3};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        EXPECT_EQ(zigzag(first[i]), i);
        EXPECT_EQ(unzigzag(i), first[i]);
    }
    EXPECT(zigzag(INT64_MAX) == UINT64_MAX - 1 && zigzag(INT64_MIN) == UINT64_MAX);
    for (unsigned bit = 0; bit < 64; bit++) {
        int64_t v = (int64_t)(UINT64_C(1) << bit);
        EXPECT_EQ(unzigzag(zigzag(v)), v);
        EXPECT_EQ(unzigzag(zigzag(~v)), ~v);
    }
}

int main(void)
{
    RUN(test_little_endian);
    RUN(test_source_bounds);
    RUN(test_huge_lengths);
    RUN(test_zeroes);
    RUN(test_sink_bounds);
    RUN(test_nothing);
    RUN(test_varint_lengths);
    RUN(test_varint_every_two_bytes);
    RUN(test_varint_over_64_bits);
    RUN(test_zigzag);
    return tap_done();
}
