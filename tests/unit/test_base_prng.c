/*
 * The generator against published outputs, its helpers against their definitions.
 */
#include <string.h>

#include "base/prng.h"
#include "seed.h"
#include "tap.h"

/* xoshiro256** from the state 1, 2, 3, 4; the first two numbers are worked out by hand from the definition:
 * rotl(2 * 5, 7) * 9 = 11520, and the state after one step has a zero second word. */
static void test_known_outputs(void)
{
    static const uint64_t wanted[] = {UINT64_C(11520),
                                      UINT64_C(0),
                                      UINT64_C(1509978240),
                                      UINT64_C(1215971899390074240),
                                      UINT64_C(1216172134540287360),
                                      UINT64_C(607988272756665600),
                                      UINT64_C(16172922978634559625),
                                      UINT64_C(8476171486693032832),
                                      UINT64_C(10595114339597558777),
                                      UINT64_C(2904607092377533576)};
    struct prng r = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        EXPECT_EQ(prng_u64(&r), (int64_t)wanted[i]);
}

/* splitmix64 from 1234567. */
static void test_known_seed(void)
{
    static const uint64_t wanted[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                      UINT64_C(9817491932198370423), UINT64_C(4593380528125082431)};
    struct prng r;
    prng_seed(&r, 1234567);
    EXPECT(memcmp(r.state, wanted, sizeof(wanted)) == 0);
}

static void test_below(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    for (uint64_t n = 1; n <= 20; n++) {
        unsigned counts[20] = {0};
        bool inside = true;
        for (unsigned i = 0; i < 2000 * n; i++) {
            uint64_t v = prng_below(&r, n);
            inside = inside && v < n;
            counts[v < n ? v : 0]++;
        }
        EXPECT(inside);
        for (uint64_t v = 0; v < n; v++)
            EXPECT(counts[v] > 1600 && counts[v] < 2400); /* 2000 +- 9 standard deviations */
    }
    uint64_t n = (UINT64_C(1) << 63) + 1; /* almost half of all products are drawn again */
    for (unsigned i = 0; i < 1000; i++)
        EXPECT(prng_below(&r, n) < n);
}

/* With n = 3 * 2^62 the high word of the bare product is 3x/4 rounded down: multiples of three twice as often. */
static void test_below_has_no_bias(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    unsigned residues[3] = {0};
    for (unsigned i = 0; i < 60000; i++)
        residues[prng_below(&r, UINT64_C(3) << 62) % 3]++;
    for (unsigned i = 0; i < 3; i++)
        EXPECT(residues[i] > 19000 && residues[i] < 21000);
}

static void test_chance(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    unsigned never = 0, always = 0, third = 0;
    for (unsigned i = 0; i < 30000; i++) {
        never += prng_chance(&r, 0);
        always += prng_chance(&r, 1000);
        third += prng_chance(&r, 333);
    }
    EXPECT_EQ(never, 0);
    EXPECT_EQ(always, 30000);
    EXPECT(third > 9400 && third < 10600);
}

/* The bytes are the numbers in little-endian order; a fill of any length is a prefix of a longer one. */
static void test_fill(void)
{
    uint8_t long_fill[64], short_fill[72];
    struct prng r;
    prng_seed(&r, 5);
    prng_fill(&r, long_fill, sizeof(long_fill));
    prng_seed(&r, 5);
    for (unsigned i = 0; i < 8; i++) {
        uint64_t v = prng_u64(&r);
        for (unsigned b = 0; b < 8; b++)
            EXPECT_EQ(long_fill[8 * i + b], v >> 8 * b & 0xff);
    }
    for (size_t n = 0; n <= 64; n++) {
        memset(short_fill, 0xa5, sizeof(short_fill));
        prng_seed(&r, 5);
        prng_fill(&r, short_fill, n);
        EXPECT(memcmp(short_fill, long_fill, n) == 0 && short_fill[n] == 0xa5);
    }
}

int main(void)
{
    RUN(test_known_outputs);
    RUN(test_known_seed);
    RUN(test_below);
    RUN(test_below_has_no_bias);
    RUN(test_chance);
    RUN(test_fill);
    return tap_done();
}
