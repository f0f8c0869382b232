/*
 * The pattern of a fuzz target: one file, two functions, and the shared main of fuzz_main.c.
 *
 * Built twice: as a plain program that replays a corpus made by fuzz_generate and seeded mutations of it (an ordinary
 * test), and, with -Dfuzzers=true under clang, as a libFuzzer binary NAME_libfuzzer. The tree holds no corpus files:
 * `NAME --corpus DIR COUNT` writes the generated one for libFuzzer to begin with, `NAME FILE...` runs what it found.
 */
#ifndef ASHLAR_TESTS_FUZZ_FUZZ_H
#define ASHLAR_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"

/* Room for a generated input. */
#define FUZZ_INPUT_BYTES_MAX (160 * 1024)

/*
 * Gives n bytes of input to what is tested. Must stand any bytes; aborts (CHECK) if a property is broken. Returns 1 if
 * the input was taken as valid, else 0.
 */
int fuzz_one(const uint8_t *bytes, size_t n);

/* Writes an input that fuzz_one takes as valid into buf (FUZZ_INPUT_BYTES_MAX bytes), returns its length. Depends on r
 * only. */
size_t fuzz_generate(struct prng *r, uint8_t *buf);

#endif
