/*
 * XXH3-128 of xxHash, by libxxhash.
 */
#ifndef ASHLAR_CODEC_CHECKSUM_H
#define ASHLAR_CODEC_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct checksum {
    uint64_t low, high;
};

/* bytes may be NULL if n is 0. Neither function allocates or fails. */
struct checksum checksum_of(const void *bytes, size_t n);
/* The checksum of a chain value followed by bytes: XXH3-128(low LE, high LE, bytes). */
struct checksum checksum_chain(struct checksum previous, const void *bytes, size_t n);

static inline bool checksum_equal(struct checksum a, struct checksum b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
