/*
 * The main of every fuzz target; see fuzz.h. The replay is deterministic: seed 1 unless ASHLAR_SEED says otherwise,
 * one generator state per input, so that a failing input is found again by seed and number.
 */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ASHLAR_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    (void)fuzz_one(bytes, n);
    return 0;
}

#else

#define INPUTS_DEFAULT 4000
#define MUTANTS_PER_INPUT 4

static uint64_t seed_from_environment(void)
{
    const char *text = getenv("ASHLAR_SEED");
    return text != NULL ? strtoull(text, NULL, 0) : 1;
}

static struct prng prng_for(uint64_t seed, uint64_t number)
{
    struct prng r;
    prng_seed(&r, seed * UINT64_C(0x9e3779b97f4a7c15) + number);
    return r;
}

static uint64_t interesting_number(struct prng *r)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x100,
                                       0x7fff,
                                       0xffff,
                                       0x10000,
                                       INT32_MAX,
                                       UINT32_MAX,
                                       UINT64_C(1) << 32,
                                       INT64_MAX,
                                       UINT64_MAX};
    return prng_chance(r, 500) ? numbers[prng_below(r, sizeof(numbers) / sizeof(numbers[0]))]
                               : UINT64_C(1) << prng_below(r, 64);
}

/* Changes buf of n >= 1 bytes somehow; returns its new length, >= 1. */
static size_t mutate(struct prng *r, uint8_t *buf, size_t n)
{
    const size_t at = (size_t)prng_below(r, n);
    const size_t count = (size_t)prng_below(r, n - at < 64 ? n - at + 1 : 64);
    uint64_t number = interesting_number(r);
    switch (prng_below(r, 7)) {
    case 0: /* a bit */
        buf[at] ^= (uint8_t)(1u << prng_below(r, 8));
        return n;
    case 1: /* a byte */
        buf[at] = (uint8_t)prng_u64(r);
        return n;
    case 2: /* a little-endian number of 1, 2, 4 or 8 bytes */
        for (size_t i = 0, width = (size_t)1 << prng_below(r, 4); i < width && at + i < n; i++, number >>= 8)
            buf[at + i] = (uint8_t)number;
        return n;
    case 3: /* cut off */
        return at + 1;
    case 4: /* taken out */
        memmove(buf + at, buf + at + count, n - at - count);
        return n > count ? n - count : 1;
    case 5: /* doubled */
        if (n + count > FUZZ_INPUT_BYTES_MAX)
            return n;
        memmove(buf + at + count, buf + at, n - at);
        return n + count;
    default: /* one more or less */
        buf[at] = (uint8_t)(buf[at] + (prng_chance(r, 500) ? 1 : -1));
        return n;
    }
}

static int replay_corpus(uint64_t inputs)
{
    static uint8_t valid[FUZZ_INPUT_BYTES_MAX], mutant[FUZZ_INPUT_BYTES_MAX];
    const uint64_t seed = seed_from_environment();
    uint64_t refused = 0, accepted_mutants = 0;
    printf("# ASHLAR_SEED=%" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < inputs; i++) {
        struct prng r = prng_for(seed, i);
        const size_t n = fuzz_generate(&r, valid);
        if (fuzz_one(valid, n) != 1 && refused++ == 0)
            printf("# generated input %" PRIu64 " was refused\n", i);
        for (unsigned k = 0; k < MUTANTS_PER_INPUT; k++) {
            size_t length = n;
            memcpy(mutant, valid, n);
            const uint64_t mutations = 1 + prng_below(&r, 4);
            for (uint64_t m = 0; m < mutations; m++)
                length = mutate(&r, mutant, length);
            /* A heap copy of its own, so that AddressSanitizer sees every read behind its end. */
            uint8_t *copy = malloc(length);
            if (copy == NULL)
                abort();
            memcpy(copy, mutant, length);
            accepted_mutants += (uint64_t)fuzz_one(copy, length);
            free(copy);
        }
    }
    printf("# %" PRIu64 " of %" PRIu64 " mutants are valid too\n", accepted_mutants, inputs * MUTANTS_PER_INPUT);
    printf("%s 1 - %" PRIu64 " generated inputs are taken, %" PRIu64 " mutants stood\n1..1\n",
           refused == 0 && inputs > 0 ? "ok" : "not ok", inputs, inputs * MUTANTS_PER_INPUT);
    return refused == 0 && inputs > 0 ? 0 : 1;
}

static int write_corpus(const char *directory, uint64_t inputs)
{
    static uint8_t buf[FUZZ_INPUT_BYTES_MAX];
    for (uint64_t i = 0; i < inputs; i++) {
        struct prng r = prng_for(seed_from_environment(), i);
        const size_t n = fuzz_generate(&r, buf);
        char path[4096];
        snprintf(path, sizeof(path), "%s/generated-%06" PRIu64, directory, i);
        FILE *f = fopen(path, "wb");
        if (f == NULL || fwrite(buf, 1, n, f) != n || fclose(f) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

static int run_file(const char *path)
{
    static uint8_t buf[16 * 1024 * 1024];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    const size_t n = fread(buf, 1, sizeof(buf), f);
    fclose(f);
    uint8_t *copy = malloc(n + (n == 0));
    if (copy == NULL)
        abort();
    memcpy(copy, buf, n);
    printf("# %s: %s\n", path, fuzz_one(copy, n) == 1 ? "valid" : "refused");
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--corpus") == 0)
        return write_corpus(argv[2], strtoull(argv[3], NULL, 10));
    if (argc == 1)
        return replay_corpus(INPUTS_DEFAULT);
    if (argc == 3 && strcmp(argv[1], "--inputs") == 0)
        return replay_corpus(strtoull(argv[2], NULL, 10));
    int status = 0;
    for (int i = 1; i < argc; i++)
        status |= run_file(argv[i]);
    return status;
}

#endif
