/*
 * Flatness: byte values that do not favour each other leave nothing to an entropy coder.
 *
 * A sample of S bytes has S(S-1)/2 pairs. If all values are equally likely, 1/256 of the pairs are equal. An excess of
 * e over that (chi-square, a distance from the flat distribution) lets an entropy coder save about e / (2 ln 2) bits a
 * byte. The limit is an excess of 1/8: 0.09 bits, 1.1 %, below the 1/64 (1.6 %) that a record must save. The excess has
 * a standard deviation of 22.6 / S: with the 1024 samples of a 4 KiB record the limit is 5.7 of them away from random
 * bytes. Equal pairs only ever become more, so the count stops at the limit: text is recognised after 300 bytes or so,
 * data full of zeroes after 70.
 *
 * The sample is many short pieces, as files are often in part incompressible, and one piece of 16 bytes costs no more
 * cache lines than one byte. The pieces lie at uneven distances, not to fall on the same field of each of many equal
 * structs.
 *
 * What flat data can still save is repetitions; codec.c lets lz4 look for these. Both together, measured on Debian 12
 * (zstd 1.5.4, lz4 1.9.4; EPYC, one thread), zstd levels -5, 1, 3 and 9, records of 4 KiB, 16 KiB, 128 KiB and 1 MiB.
 * Bytes stored over the sum of min(compressed, raw), the rule of 1/64 included, at most:
 *
 *     tar of /usr/include, /usr/share           +0.001 %
 *     tar of /usr/bin                           +0.04 % (1 MiB at -5, the rule of 1/64; else 0.002)
 *     .gz .png .jar .whl .woff2 .deb ... in 4 KiB blocks, as in a file system (ratio 0.97)
 *                                               +0.08  0.11  0.14  0.20 % by record size, all at level 9; of these
 *                                                0.01  0.00  0.00  0.12 % are the rule of 1/64 alone
 *     tar of the same (0.94)                    +0.06  0.09  0.02  0.14 %
 *     16-bit and float noise, /dev/urandom      +0.00 %
 *
 * Megabytes a second on /dev/urandom, with the probe and with libzstd alone (given the same room):
 *
 *                   level 1        3             9           19
 *     4 KiB     3210 / 1520   3110 / 1060   3160 / 258   3160 / 30
 *     16 KiB    4970 / 2450   4820 / 2050   4690 / 357   5370 / 28
 *     128 KiB   (libzstd: 13000)  10000     4330 / 656   4790 / 19
 *     1 MiB     (libzstd:  8000)   8000    15400 / 268  19000 /  9
 *
 * and what the probe costs where it is of no use, tar of /usr/include: 333 / 342 at 4 KiB and level 1, 273 / 280 at
 * level 3, 415 / 423 at 16 KiB and level 3, nothing to be seen above.
 */
#include "codec/probe.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "codec/codec.h"

#define PIECE_BYTES 16
#define PIECES_MIN 64
#define PIECES_MAX 256
#define BYTES_PER_PIECE 512 /* between these two limits */

bool bytes_are_flat(const void *bytes, size_t n)
{
    CHECK(n >= PROBE_BYTES_MIN);
    size_t pieces = min_u64(max_u64(n / BYTES_PER_PIECE, PIECES_MIN), PIECES_MAX);
    pieces = min_u64(pieces, n / PIECE_BYTES);
    size_t stride = n / pieces;
    uint64_t samples = pieces * PIECE_BYTES;
    /* 9/8 of the samples * (samples - 1) / 2 / 256 pairs expected to be equal. */
    uint64_t limit = samples * (samples - 1) * 9 / (2 * 256 * 8);
    uint64_t equal_pairs = 0;
    uint16_t counts[256] = {0};
    uint32_t jitter = 0;
    for (size_t i = 0; i < pieces; i++) {
        jitter += UINT32_C(0x9e3779b9);
        size_t shift = (size_t)((uint64_t)jitter * (stride - PIECE_BYTES + 1) >> 32);
        const uint8_t *piece = (const uint8_t *)bytes + i * stride + shift;
        for (unsigned j = 0; j < PIECE_BYTES; j++)
            equal_pairs += counts[piece[j]]++;
        if (equal_pairs > limit)
            return false;
    }
    return true;
}

/* After 16 zero bytes, the rest is zero if each byte equals the one 16 before it: the C library's memcmp compares the
 * bytes with themselves at 80 to 95 GB/s where a loop over words, as gcc 12 compiles it at -O2, does 21. */
bool bytes_are_zero(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t head = n < 16 ? n : 16;
    for (size_t i = 0; i < head; i++)
        if (p[i] != 0)
            return false;
    return n <= 16 || memcmp(p, p + 16, n - 16) == 0;
}
