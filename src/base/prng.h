/*
 * Seeded pseudo-random numbers (xoshiro256**, seeded by splitmix64; Blackman and Vigna). For tests, simulation and
 * tie-breaking; never for identities or secrets (those come from env).
 */
#ifndef ASHLAR_BASE_PRNG_H
#define ASHLAR_BASE_PRNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prng {
    uint64_t state[4];
};

void prng_seed(struct prng *r, uint64_t seed);
uint64_t prng_u64(struct prng *r);
/* Uniform in [0, n), n > 0, without modulo bias. */
uint64_t prng_below(struct prng *r, uint64_t n);
/* true with probability per_mille / 1000. */
bool prng_chance(struct prng *r, unsigned per_mille);
void prng_fill(struct prng *r, void *bytes, size_t n);

#endif
