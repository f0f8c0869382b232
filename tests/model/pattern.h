/*
 * Test data: cheap to make, and each piece recognisable.
 */
#ifndef ASHLAR_TESTS_MODEL_PATTERN_H
#define ASHLAR_TESTS_MODEL_PATTERN_H

#include <stddef.h>
#include <stdint.h>

enum pattern_style {
    PATTERN_NOISE,    /* does not compress */
    PATTERN_TEXT,     /* compresses well */
    PATTERN_ZERO,     /* nothing but zeroes: a record of them becomes a hole */
    PATTERN_MIXED,    /* noise and runs of zeroes */
    PATTERN_CONSTANT, /* one of four bytes, so that the same data is written again and again */
    PATTERN_STYLE_COUNT,
};

/*
 * Fills n bytes. The same stamp and style give the same bytes; two stamps differ in every 512 bytes, ZERO and CONSTANT
 * apart.
 */
void pattern_fill(void *ret_bytes, size_t n, uint64_t stamp, enum pattern_style style);

/* Names the value of one 512-byte sector: 0 for a sector of zeroes, and for no other. */
uint64_t sector_value(const void *sector);

#endif
