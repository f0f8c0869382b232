/*
 * Zero bytes: every length and every place of a single bit. Flatness: what must and must not pass for flat.
 */
#include <string.h>

#include "base/prng.h"
#include "codec/codec.h"
#include "codec/probe.h"
#include "seed.h"
#include "tap.h"

static void test_zero(void)
{
    static uint8_t bytes[300];
    EXPECT(bytes_are_zero(NULL, 0));
    for (size_t n = 0; n <= 200; n++) {
        for (size_t at = 0; at <= n + 1; at++) { /* the last two lie behind the n bytes */
            for (size_t start = 0; start < 2; start++) {
                bytes[start + at] = at % 2 == 0 ? 0x80 : 1;
                EXPECT_EQ(bytes_are_zero(bytes + start, n), at >= n);
                bytes[start + at] = 0;
            }
        }
    }
}

/* The same byte everywhere else would please a comparison with itself. */
static void test_zero_patterns(void)
{
    uint8_t bytes[4096];
    for (unsigned value = 0; value < 256; value++) {
        memset(bytes, (int)value, sizeof(bytes));
        EXPECT_EQ(bytes_are_zero(bytes, sizeof(bytes)), value == 0);
        EXPECT_EQ(bytes_are_zero(bytes, 1), value == 0);
    }
    for (size_t period = 1; period <= 64; period++) {
        memset(bytes, 0, sizeof(bytes));
        for (size_t i = period - 1; i < sizeof(bytes); i += period)
            bytes[i] = 1;
        EXPECT(!bytes_are_zero(bytes, sizeof(bytes)));
    }
}

#define LARGEST (1 << 20)

static uint8_t record[LARGEST];

static const size_t sizes[] = {1024, 1025, 1535, 4096, 16384, 65536, 131072, 131072 + 17, LARGEST};

/* Share in percent of 40 records of random bytes below `values`, the last `zero_per_mille` of them zero, that are flat.
 */
static unsigned flat_percent(struct prng *r, size_t n, unsigned values, unsigned zero_per_mille)
{
    unsigned flat = 0;
    for (unsigned i = 0; i < 40; i++) {
        prng_fill(r, record, n);
        for (size_t at = 0; values < 256 && at < n; at++)
            record[at] = (uint8_t)(record[at] * values / 256);
        size_t zeroes = n * zero_per_mille / 1000;
        memset(record + n - zeroes, 0, zeroes);
        flat += bytes_are_flat(record, n);
    }
    return flat * 100 / 40;
}

static void test_flat(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        EXPECT(flat_percent(&r, sizes[i], 256, 0) >= 95); /* 5.7 standard deviations: in truth always */
        EXPECT_EQ(flat_percent(&r, sizes[i], 200, 0), 0); /* 4.5 % to save */
        EXPECT_EQ(flat_percent(&r, sizes[i], 64, 0), 0);
        EXPECT_EQ(flat_percent(&r, sizes[i], 256, 80), 0);
    }
}

/* Small records give fewer samples than can be sure; what is plain must be seen all the same. */
static void test_flat_small(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    for (size_t n = PROBE_BYTES_MIN; n < 1100; n++) {
        prng_fill(&r, record, n);
        (void)bytes_are_flat(record, n); /* stays inside: ASan sees to it */
        uint8_t *exact = malloc(n);
        REQUIRE(exact != NULL);
        memset(exact, 'x', n);
        EXPECT(!bytes_are_flat(exact, n));
        for (size_t at = 0; at < n; at++)
            exact[at] = (uint8_t)at;
        EXPECT(bytes_are_flat(exact, n));
        free(exact);
    }
}

int main(void)
{
    RUN(test_zero);
    RUN(test_zero_patterns);
    RUN(test_flat);
    RUN(test_flat_small);
    return tap_done();
}
