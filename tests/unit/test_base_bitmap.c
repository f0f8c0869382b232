/*
 * Bitmaps against an array of one bool a bit: every range of a bitmap of three words, over several contents. The words
 * around the bitmap and the bits behind its size are filled with both zeroes and ones, which must neither change nor
 * count.
 */
#include <string.h>

#include "base/bitmap.h"
#include "base/prng.h"
#include "seed.h"
#include "tap.h"

#define BITS 150
#define WORDS BITMAP_WORDS(BITS)

struct pair {
    uint64_t guard_before;
    uint64_t words[WORDS];
    uint64_t guard_after;
    bool bits[WORDS * 64]; /* the model, bits behind BITS included */
};

/* Each bit is set with probability per_mille / 1000; the guards and the bits behind BITS have the value of `outside`.
 */
static void pair_fill(struct pair *p, struct prng *r, unsigned per_mille, bool outside)
{
    memset(p, outside ? 0xff : 0, sizeof(*p) - sizeof(p->bits));
    for (size_t i = 0; i < WORDS * 64; i++) {
        p->bits[i] = i < BITS ? prng_chance(r, per_mille) : outside;
        uint64_t bit = UINT64_C(1) << i % 64;
        p->words[i / 64] = p->bits[i] ? p->words[i / 64] | bit : p->words[i / 64] & ~bit;
    }
}

static bool pair_agrees(const struct pair *p, bool outside)
{
    uint64_t guard = outside ? UINT64_MAX : 0;
    bool agrees = p->guard_before == guard && p->guard_after == guard;
    for (size_t i = 0; i < WORDS * 64; i++)
        agrees = agrees && bitmap_test(p->words, i) == p->bits[i];
    return agrees;
}

static size_t model_next(const struct pair *p, size_t from, size_t size, bool value)
{
    size_t i = from;
    while (i < size && p->bits[i] != value)
        i++;
    return i < size ? i : size;
}

static void expect_range_reads(const struct pair *p, size_t first, size_t count)
{
    size_t set = 0;
    for (size_t i = first; i < first + count; i++)
        set += p->bits[i];
    EXPECT_EQ(bitmap_all_set(p->words, first, count), set == count);
    EXPECT_EQ(bitmap_none_set(p->words, first, count), set == 0);
    EXPECT_EQ(bitmap_next_set(p->words, first, first + count), model_next(p, first, first + count, true));
    EXPECT_EQ(bitmap_next_clear(p->words, first, first + count), model_next(p, first, first + count, false));
}

static void expect_range_writes(const struct pair *p, size_t first, size_t count, bool outside)
{
    struct pair set = *p, clear = *p;
    bitmap_set_range(set.words, first, count);
    bitmap_clear_range(clear.words, first, count);
    for (size_t i = first; i < first + count; i++) {
        set.bits[i] = true;
        clear.bits[i] = false;
    }
    EXPECT(pair_agrees(&set, outside));
    EXPECT(pair_agrees(&clear, outside));
}

static void test_every_range(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    static const unsigned densities[] = {0, 3, 500, 997, 1000};
    for (size_t d = 0; d < sizeof(densities) / sizeof(densities[0]); d++) {
        for (int outside = 0; outside <= 1; outside++) {
            struct pair p;
            pair_fill(&p, &r, densities[d], outside);
            EXPECT(pair_agrees(&p, outside));
            for (size_t first = 0; first <= BITS; first++) {
                for (size_t count = 0; first + count <= BITS; count++) {
                    expect_range_reads(&p, first, count);
                    expect_range_writes(&p, first, count, outside);
                }
            }
        }
    }
}

static void test_single_bits(void)
{
    for (size_t bit = 0; bit < BITS; bit++) {
        uint64_t set[WORDS] = {0}, clear[WORDS];
        memset(clear, 0xff, sizeof(clear));
        bitmap_set_range(set, bit, 1);
        bitmap_clear_range(clear, bit, 1);
        for (size_t from = 0; from <= BITS; from++) {
            EXPECT_EQ(bitmap_next_set(set, from, BITS), from <= bit ? bit : BITS);
            EXPECT_EQ(bitmap_next_clear(clear, from, BITS), from <= bit ? bit : BITS);
        }
        for (size_t size = 0; size <= BITS; size++) {
            EXPECT_EQ(bitmap_next_set(set, 0, size), bit < size ? bit : size);
            EXPECT_EQ(bitmap_count(set, size), bit < size);
            EXPECT_EQ(bitmap_count(clear, size), size - (bit < size));
        }
    }
}

static void test_from_beyond_size(void)
{
    uint64_t ones[WORDS];
    memset(ones, 0xff, sizeof(ones));
    EXPECT_EQ(bitmap_next_set(ones, 100, 70), 70);
    EXPECT_EQ(bitmap_next_set(ones, 0, 0), 0);
    EXPECT(bitmap_all_set(NULL, 0, 0) && bitmap_none_set(NULL, 0, 0));
    EXPECT_EQ(bitmap_count(NULL, 0), 0);
}

static void test_words(void)
{
    EXPECT_EQ(BITMAP_WORDS(0), 0);
    EXPECT_EQ(BITMAP_WORDS(1), 1);
    EXPECT_EQ(BITMAP_WORDS(64), 1);
    EXPECT_EQ(BITMAP_WORDS(65), 2);
}

int main(void)
{
    RUN(test_every_range);
    RUN(test_single_bits);
    RUN(test_from_beyond_size);
    RUN(test_words);
    return tap_done();
}
