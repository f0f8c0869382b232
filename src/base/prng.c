/*
 * xoshiro256** seeded by splitmix64, as published by Blackman and Vigna. Same seed, same numbers, on every machine:
 * seeds in test reports stay replayable.
 */
#include "base/prng.h"

#include <string.h>

#include "base/check.h"

static uint64_t rotate_left(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

/* Any seed, zero included, gives a state that is not all zero (the one state xoshiro may not have): splitmix64 is a
 * bijection of a counter, so at most one of four successive outputs is zero. */
void prng_seed(struct prng *r, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        r->state[i] = z ^ z >> 31;
    }
}

uint64_t prng_u64(struct prng *r)
{
    uint64_t *s = r->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* The high word of a 64 x 64 bit product maps the numbers to [0, n); of the 2^64 products, the 2^64 mod n with the
 * smallest low words are drawn again, after which each result has the same number of products (Lemire). */
uint64_t prng_below(struct prng *r, uint64_t n)
{
    CHECK(n > 0);
    unsigned __int128 product = (unsigned __int128)prng_u64(r) * n;
    if ((uint64_t)product < n) {
        uint64_t excess = -n % n;
        while ((uint64_t)product < excess)
            product = (unsigned __int128)prng_u64(r) * n;
    }
    return (uint64_t)(product >> 64);
}

bool prng_chance(struct prng *r, unsigned per_mille)
{
    return prng_below(r, 1000) < per_mille;
}

void prng_fill(struct prng *r, void *bytes, size_t n)
{
    uint8_t *p = bytes;
    while (n > 0) {
        uint64_t word = prng_u64(r);
        uint8_t little_endian[8];
        for (unsigned i = 0; i < 8; i++)
            little_endian[i] = (uint8_t)(word >> 8 * i);
        size_t step = n < 8 ? n : 8;
        memcpy(p, little_endian, step);
        p += step;
        n -= step;
    }
}
