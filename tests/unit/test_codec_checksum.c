/*
 * Checksums against published values, against libxxhash's plain functions (the product may use vectorised ones), and
 * the chain against its definition. Every length through the algorithm's internal limits (16, 128, 240, 1024 bytes).
 */
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "codec/checksum.h"
#include "seed.h"
#include "tap.h"

#define LONGEST (300 * 1024)

static uint8_t data[16 + LONGEST];

static bool equals(struct checksum c, uint64_t high, uint64_t low)
{
    return c.high == high && c.low == low;
}

static void test_published(void)
{
    EXPECT(equals(checksum_of(NULL, 0), UINT64_C(0x99aa06d3014798d8), UINT64_C(0x6001c324468d497f)));
    EXPECT(equals(checksum_of("abc", 3), UINT64_C(0x06b05ab6733a6185), UINT64_C(0x78af5f94892f3950)));
}

/* bytes are data from `at` on, n of them. */
static void expect_right(size_t at, size_t n)
{
    XXH128_hash_t plain = XXH3_128bits(data + at, n);
    EXPECT(equals(checksum_of(data + at, n), plain.high64, plain.low64));
}

static void expect_chain_right(size_t n)
{
    struct checksum previous = {.low = UINT64_C(0x0706050403020100), .high = UINT64_C(0x0f0e0d0c0b0a0908)};
    uint8_t saved[16];
    memcpy(saved, data, sizeof(saved));
    for (uint8_t i = 0; i < 16; i++)
        data[i] = i;
    struct checksum wanted = checksum_of(data, 16 + n);
    memcpy(data, saved, sizeof(saved));
    EXPECT(checksum_equal(checksum_chain(previous, data + 16, n), wanted));
}

static void test_lengths(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    prng_fill(&r, data, sizeof(data));
    for (size_t n = 0; n <= 2200; n++) {
        expect_right(n % 3, n);
        expect_chain_right(n);
    }
    for (unsigned i = 0; i < 200; i++) {
        size_t n = prng_below(&r, LONGEST - 64);
        expect_right(prng_below(&r, 64), n);
        expect_chain_right(n);
    }
}

static void test_chain_of_nothing(void)
{
    struct checksum zero = {0}, one = {.low = 1}, other = {.high = 1};
    EXPECT(checksum_equal(checksum_chain(zero, NULL, 0), checksum_chain(zero, data, 0)));
    EXPECT(!checksum_equal(checksum_chain(zero, NULL, 0), checksum_chain(one, NULL, 0)));
    EXPECT(!checksum_equal(checksum_chain(one, NULL, 0), checksum_chain(other, NULL, 0)));
}

static void test_equal(void)
{
    struct checksum a = {.low = 1, .high = 2}, low = {.low = 3, .high = 2}, high = {.low = 1, .high = 3};
    EXPECT(checksum_equal(a, a));
    EXPECT(!checksum_equal(a, low));
    EXPECT(!checksum_equal(a, high));
}

int main(void)
{
    RUN(test_published);
    RUN(test_lengths);
    RUN(test_chain_of_nothing);
    RUN(test_equal);
    return tap_done();
}
