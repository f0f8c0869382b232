/*
 * Compression: round trips over every choice, what must and must not shrink, and decompression of input that somebody
 * damaged or made up. The libraries are not instrumented, so buffers end in guard bytes that are checked.
 */
#include <errno.h>
#include <string.h>
#include <zstd.h>

#include "base/prng.h"
#include "codec/codec.h"
#include "seed.h"
#include "tap.h"

#define BYTES_MAX (2 << 20)
#define GUARD_BYTES 64

static uint8_t raw[BYTES_MAX], packed[BYTES_MAX + GUARD_BYTES], back[BYTES_MAX + GUARD_BYTES];
static struct prng prng;

/* Fills bytes as data of one kind. */
enum kind { KIND_RANDOM, KIND_ONE_BYTE, KIND_TEXT, KIND_SKEWED, KIND_TAIL, KIND_REPEATED, KIND_COUNT };

static void fill(enum kind kind, uint8_t *bytes, size_t n)
{
    static const char *const words[] = {"segment ", "chunk ", "of ", "the ", "log ", "\n", "0x", "record "};
    prng_fill(&prng, bytes, n);
    if (kind == KIND_ONE_BYTE)
        memset(bytes, bytes[0], n);
    for (size_t i = 0; kind == KIND_TEXT && i < n;) {
        const char *word = words[prng_below(&prng, 8)];
        for (; *word != '\0' && i < n; word++)
            bytes[i++] = (uint8_t)*word;
    }
    for (size_t i = 0; kind == KIND_SKEWED && i < n; i++)
        bytes[i] &= 0x3f;
    if (kind == KIND_TAIL) /* incompressible but for its last eighth */
        memset(bytes + n - n / 8, 0, n / 8);
    for (size_t i = 1024; kind == KIND_REPEATED && i < n; i++) /* flat, and nothing but repetitions */
        bytes[i] = bytes[i - 1024];
}

static bool guarded(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (bytes[n + i] != 0xa5)
            return false;
    return true;
}

/* Compresses raw[0..n) and brings it back; the compressed length. */
static size_t round_trip(struct codec_context *c, struct codec_choice choice, size_t n)
{
    memset(packed + n, 0xa5, GUARD_BYTES);
    size_t length = codec_compress(c, choice, raw, n, packed, n);
    bool fine = guarded(packed, n) && length <= n - (n + 63) / 64;
    if (length > 0) {
        memset(back, 0x5a, n);
        memset(back + n, 0xa5, GUARD_BYTES);
        fine = fine && codec_decompress(c, choice.id, packed, length, back, n) == 0 && memcmp(raw, back, n) == 0 &&
               guarded(back, n);
    }
    if (!fine)
        printf("# codec %u level %d, %zu bytes became %zu\n", choice.id, choice.level, n, length);
    EXPECT(fine);
    return length;
}

/* The number-th of all 26 choices. */
static struct codec_choice choice_of(unsigned number)
{
    if (number < 2)
        return (struct codec_choice){.id = (uint8_t)number};
    int level = (int)number - 2 - 5;
    return (struct codec_choice){.id = CODEC_ZSTD, .level = (int8_t)(level < 0 ? level : level + 1)};
}

#define CHOICES 26

static void test_small_sizes(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned number = 0; number < CHOICES; number++)
        for (unsigned kind = 0; kind < KIND_COUNT; kind++)
            for (size_t n = 1; n <= 64; n++) {
                fill((enum kind)kind, raw, n);
                round_trip(c, choice_of(number), n);
            }
    codec_context_free(c);
}

static void test_random_sizes(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned i = 0; i < 600; i++) {
        size_t n = 1 + prng_below(&prng, (UINT64_C(1) << (6 + prng_below(&prng, 12))));
        fill((enum kind)prng_below(&prng, KIND_COUNT), raw, n);
        round_trip(c, choice_of((unsigned)prng_below(&prng, CHOICES)), n);
    }
    codec_context_free(c);
}

static void test_largest(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned number = 1; number < CHOICES; number += 4) {
        fill(KIND_TEXT, raw, BYTES_MAX);
        EXPECT(round_trip(c, choice_of(number), BYTES_MAX) > 0);
    }
    codec_context_free(c);
}

/* What shrinks and what does not, at every level and record size. The probe must not stand in the way. */
static void test_what_shrinks(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (size_t n = 4096; n <= 1 << 20; n *= 4) {
        for (unsigned number = 0; number < CHOICES; number += n < 1 << 18 ? 1 : 5) {
            struct codec_choice choice = choice_of(number);
            fill(KIND_RANDOM, raw, n);
            EXPECT_EQ(round_trip(c, choice, n), 0);
            static const enum kind shrinking[] = {KIND_ONE_BYTE, KIND_TEXT, KIND_TAIL, KIND_REPEATED};
            for (unsigned i = 0; i < 4; i++) {
                fill(shrinking[i], raw, n);
                EXPECT_EQ(round_trip(c, choice, n) > 0, choice.id != CODEC_OFF);
            }
            fill(KIND_SKEWED, raw, n); /* only an entropy coder shrinks it; zstd below 1 has none for it */
            EXPECT_EQ(round_trip(c, choice, n) > 0, choice.id == CODEC_ZSTD && choice.level > 0);
        }
    }
    codec_context_free(c);
}

/* Incompressible records never reach libzstd at a high level: its state, megabytes, is not even made. */
static void test_incompressible_is_cheap(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    size_t empty_bytes = codec_context_bytes(c);
    for (size_t n = 4096; n <= 1 << 20; n *= 4) {
        fill(KIND_RANDOM, raw, n);
        EXPECT_EQ(round_trip(c, (struct codec_choice){.id = CODEC_ZSTD, .level = 19}, n), 0);
    }
    printf("# context: %zu bytes new, %zu after random data", empty_bytes, codec_context_bytes(c));
    EXPECT(codec_context_bytes(c) < 100 * 1024);
    fill(KIND_TEXT, raw, 1 << 20);
    EXPECT(round_trip(c, (struct codec_choice){.id = CODEC_ZSTD, .level = 19}, 1 << 20) > 0);
    printf(", %zu after 1 MiB of text at level 19\n", codec_context_bytes(c));
    EXPECT(codec_context_bytes(c) > 1 << 20);
    codec_context_free(c);
    codec_context_free(NULL);
}

/* What a context did before does not show in what it does. */
static void test_no_history(void)
{
    static uint8_t again[1 << 16];
    struct codec_context *old = codec_context_new();
    REQUIRE(old != NULL);
    for (unsigned i = 0; i < 300; i++) {
        size_t n = 1 + prng_below(&prng, sizeof(again));
        struct codec_choice choice = choice_of((unsigned)prng_below(&prng, CHOICES));
        fill((enum kind)prng_below(&prng, KIND_COUNT), raw, n);
        struct codec_context *fresh = codec_context_new();
        REQUIRE(fresh != NULL);
        size_t length = codec_compress(old, choice, raw, n, packed, n);
        EXPECT_EQ(codec_compress(fresh, choice, raw, n, again, n), length);
        EXPECT(memcmp(packed, again, length) == 0);
        codec_context_free(fresh);
    }
    codec_context_free(old);
}

/* Every capacity is kept to; one of n, or more, gives the same as one of the n - n/64 that the result may have. */
static void expect_keeps_to_capacity(struct codec_context *c, struct codec_choice choice, size_t n)
{
    size_t best = codec_compress(c, choice, raw, n, packed, n);
    EXPECT(best > 0);
    EXPECT_EQ(codec_compress(c, choice, raw, n, packed, 2 * n), best);
    for (size_t capacity = 0; capacity <= n; capacity++) {
        memset(packed + capacity, 0xa5, GUARD_BYTES);
        size_t length = codec_compress(c, choice, raw, n, packed, capacity);
        EXPECT(length <= capacity && guarded(packed, capacity));
        EXPECT(length > 0 || capacity < n - n / 64);
        if (length > 0)
            EXPECT(codec_decompress(c, choice.id, packed, length, back, n) == 0 && memcmp(back, raw, n) == 0);
    }
}

static void test_capacity(void)
{
    static const int8_t levels[] = {-5, 1, 3, 9, 19};
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned l = 0; l <= sizeof(levels); l++) {
        struct codec_choice choice = {.id = CODEC_LZ4};
        if (l < sizeof(levels))
            choice = (struct codec_choice){.id = CODEC_ZSTD, .level = levels[l]};
        fill(KIND_TEXT, raw, 700);
        expect_keeps_to_capacity(c, choice, 700);
        fill(KIND_REPEATED, raw, 1600); /* goes through the probe, which needs room too */
        expect_keeps_to_capacity(c, choice, 1600);
    }
    codec_context_free(c);
}

/* Decompresses n bytes into a guarded buffer of raw_bytes: any answer of the contract is fine, nothing else is. */
static int decompress_hostile(struct codec_context *c, uint8_t id, const uint8_t *bytes, size_t n, size_t raw_bytes)
{
    uint8_t *exact = malloc(n > 0 ? n : 1); /* so that ASan sees what is read of it here and in memcpy */
    if (exact == NULL)
        return -ENOMEM;
    memcpy(exact, bytes, n);
    memset(back + raw_bytes, 0xa5, GUARD_BYTES);
    int rc = codec_decompress(c, id, exact, n, back, raw_bytes);
    free(exact);
    EXPECT(guarded(back, raw_bytes));
    EXPECT(rc == 0 || rc == -EBADMSG);
    return rc;
}

static void damage_everywhere(struct codec_context *c, uint8_t id, size_t length, size_t n)
{
    for (size_t bit = 0; bit < length * 8; bit++) {
        packed[bit / 8] ^= (uint8_t)(1U << bit % 8);
        decompress_hostile(c, id, packed, length, n);
        packed[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++)
        EXPECT_EQ(decompress_hostile(c, id, packed, cut, n), -EBADMSG);
    for (size_t more = 1; more <= 8; more++) {
        memset(packed + length, more % 2 ? 0 : 0xff, more);
        EXPECT_EQ(decompress_hostile(c, id, packed, length + more, n), -EBADMSG);
    }
    for (size_t other = 0; other <= 2 * n; other++)
        if (other != n)
            EXPECT_EQ(decompress_hostile(c, id, packed, length, other), -EBADMSG);
    EXPECT_EQ(decompress_hostile(c, id, packed, length, n), 0);
    EXPECT(memcmp(back, raw, n) == 0);
}

static void test_damage(void)
{
    static const size_t lengths[] = {40, 300, 1500};
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned number = 1; number < CHOICES; number += number < 2 ? 1 : 6) {
        for (unsigned i = 0; i < 3; i++) {
            for (enum kind kind = KIND_ONE_BYTE; kind <= KIND_SKEWED; kind++) {
                struct codec_choice choice = choice_of(number);
                fill(kind, raw, lengths[i]);
                size_t length = codec_compress(c, choice, raw, lengths[i], packed, lengths[i]);
                if (length > 0)
                    damage_everywhere(c, choice.id, length, lengths[i]);
            }
        }
    }
    codec_context_free(c);
}

/* Several bytes wrong at once, in records large enough for every kind of block. */
static void test_random_damage(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned i = 0; i < 300; i++) {
        size_t n = 1 + prng_below(&prng, 300000);
        struct codec_choice choice = choice_of(1 + (unsigned)prng_below(&prng, 12));
        fill((enum kind)prng_below(&prng, KIND_COUNT), raw, n);
        size_t length = codec_compress(c, choice, raw, n, packed, n);
        for (unsigned hit = 0; length > 0 && hit < 20; hit++) {
            size_t at = prng_below(&prng, prng_chance(&prng, 500) ? length : length / 10 + 1);
            packed[at] = (uint8_t)prng_u64(&prng);
            decompress_hostile(c, choice.id, packed, length, n);
        }
    }
    codec_context_free(c);
}

static void test_garbage(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t id = prng_chance(&prng, 500) ? CODEC_LZ4 : CODEC_ZSTD;
        size_t n = prng_below(&prng, 300);
        prng_fill(&prng, packed, n);
        if (id == CODEC_ZSTD && n >= 4 && prng_chance(&prng, 800))
            memcpy(packed, "\x28\xb5\x2f\xfd", 4);
        decompress_hostile(c, id, packed, n, prng_below(&prng, 5000));
    }
    codec_context_free(c);
}

/* Valid zstd streams that are not the one form we write. */
static void test_other_zstd_forms(void)
{
    static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    struct codec_context *c = codec_context_new();
    ZSTD_CCtx *z = ZSTD_createCCtx();
    REQUIRE(c != NULL && z != NULL);
    size_t n = 1000;
    fill(KIND_TEXT, raw, n);
    size_t length = ZSTD_compress2(z, packed, BYTES_MAX, raw, n);
    EXPECT_EQ(decompress_hostile(c, CODEC_ZSTD, packed, length, n), 0);

    memcpy(packed + length, skippable, sizeof(skippable));
    EXPECT_EQ(decompress_hostile(c, CODEC_ZSTD, packed, length + sizeof(skippable), n), -EBADMSG);
    memmove(packed + sizeof(skippable), packed, length);
    memcpy(packed, skippable, sizeof(skippable));
    EXPECT_EQ(decompress_hostile(c, CODEC_ZSTD, packed, length + sizeof(skippable), n), -EBADMSG);
    EXPECT_EQ(decompress_hostile(c, CODEC_ZSTD, skippable, sizeof(skippable), 0), -EBADMSG);

    size_t half = ZSTD_compress2(z, packed, BYTES_MAX, raw, n / 2);
    half += ZSTD_compress2(z, packed + half, BYTES_MAX - half, raw + n / 2, n / 2);
    EXPECT_EQ(decompress_hostile(c, CODEC_ZSTD, packed, half, n), -EBADMSG);

    ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, 0);
    length = ZSTD_compress2(z, packed, BYTES_MAX, raw, n);
    EXPECT_EQ(decompress_hostile(c, CODEC_ZSTD, packed, length, n), -EBADMSG);
    ZSTD_freeCCtx(z);
    codec_context_free(c);
}

static void test_off_and_unknown(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    fill(KIND_RANDOM, raw, 100);
    EXPECT_EQ(decompress_hostile(c, CODEC_OFF, raw, 100, 100), 0);
    EXPECT(memcmp(raw, back, 100) == 0);
    EXPECT_EQ(decompress_hostile(c, CODEC_OFF, raw, 100, 99), -EBADMSG);
    EXPECT_EQ(decompress_hostile(c, CODEC_OFF, raw, 100, 101), -EBADMSG);
    EXPECT_EQ(codec_decompress(c, CODEC_OFF, NULL, 0, NULL, 0), 0);
    for (unsigned id = 3; id < 256; id++)
        EXPECT_EQ(codec_decompress(c, (uint8_t)id, raw, 100, back, 100), -EOPNOTSUPP);
    codec_context_free(c);
}

/* The frame as codec.h describes it: magic number, one segment with a content size, no checksum, no dictionary. */
static void test_frame(void)
{
    struct codec_context *c = codec_context_new();
    REQUIRE(c != NULL);
    static const struct {
        size_t n;
        uint8_t descriptor;
        unsigned size_bytes;
    } cases[] = {{255, 0x20, 1}, {256, 0x60, 2}, {4096, 0x60, 2}, {65536 + 255, 0x60, 2}, {65536 + 256, 0xa0, 4}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = cases[i].n;
        fill(KIND_TEXT, raw, n);
        size_t length = codec_compress(c, (struct codec_choice){.id = CODEC_ZSTD, .level = 3}, raw, n, packed, n);
        REQUIRE(length > 9);
        EXPECT(memcmp(packed, "\x28\xb5\x2f\xfd", 4) == 0);
        EXPECT_EQ(packed[4], cases[i].descriptor);
        uint64_t size = cases[i].size_bytes == 2 ? 256 : 0;
        for (unsigned b = 0; b < cases[i].size_bytes; b++)
            size += (uint64_t)packed[5 + b] << 8 * b;
        EXPECT_EQ(size, n);
    }
    codec_context_free(c);
}

int main(void)
{
    prng_seed(&prng, seed_choose());
    RUN(test_small_sizes);
    RUN(test_random_sizes);
    RUN(test_largest);
    RUN(test_what_shrinks);
    RUN(test_incompressible_is_cheap);
    RUN(test_no_history);
    RUN(test_capacity);
    RUN(test_damage);
    RUN(test_random_damage);
    RUN(test_garbage);
    RUN(test_other_zstd_forms);
    RUN(test_off_and_unknown);
    RUN(test_frame);
    return tap_done();
}
