/*
 * Data is copied out of two tables made once, and every 512 bytes get the stamp and their number written over their
 * first bytes: a million operations must not spend their time making data. A table is longer than the largest record,
 * so noise stays incompressible inside one.
 *
 * The tables are written once, before the first use, by the one thread that runs a simulation.
 */
#include "model/pattern.h"

#include <stdbool.h>
#include <string.h>

#include "base/prng.h"
#include "codec/checksum.h"
#include "format/limits.h"

#define TABLE_BYTES ((size_t)128 * 1024)

struct tables {
    bool ready;
    uint8_t noise[TABLE_BYTES], text[TABLE_BYTES];
};

static struct tables *tables_get(void)
{
    static struct tables tables;
    if (tables.ready)
        return &tables;
    struct prng random;
    prng_seed(&random, 1);
    prng_fill(&random, tables.noise, TABLE_BYTES);
    char words[16][8];
    prng_fill(&random, words, sizeof(words));
    for (size_t i = 0; i < TABLE_BYTES; i += 8)
        memcpy(tables.text + i, words[prng_below(&random, 16)], 8);
    tables.ready = true;
    return &tables;
}

void pattern_fill(void *ret_bytes, size_t n, uint64_t stamp, enum pattern_style style)
{
    uint8_t *out = ret_bytes;
    if (style == PATTERN_ZERO || style == PATTERN_CONSTANT) {
        memset(out, style == PATTERN_ZERO ? 0 : 0x51 + (int)(stamp & 3), n);
        return;
    }
    const struct tables *tables = tables_get();
    const uint8_t *from = style == PATTERN_TEXT ? tables->text : tables->noise;
    size_t at = (size_t)(stamp * UINT64_C(0x9e3779b97f4a7c15) >> 40) % TABLE_BYTES;
    for (size_t done = 0; done < n;) {
        size_t part = TABLE_BYTES - at < n - done ? TABLE_BYTES - at : n - done;
        memcpy(out + done, from + at, part);
        done += part;
        at = 0;
    }
    for (size_t i = 0; i < n; i += SECTOR_BYTES) {
        uint64_t mark = stamp << 16 | (i / SECTOR_BYTES + 1);
        size_t part = n - i < sizeof(mark) ? n - i : sizeof(mark);
        memcpy(out + i, &mark, part);
        if (style == PATTERN_MIXED && i / SECTOR_BYTES % 3 == 1)
            memset(out + i + part, 0, (n - i < SECTOR_BYTES ? n - i : SECTOR_BYTES) - part);
    }
}

uint64_t sector_value(const void *sector)
{
    static const uint8_t zeroes[SECTOR_BYTES];
    if (memcmp(sector, zeroes, SECTOR_BYTES) == 0)
        return 0;
    uint64_t value = checksum_of(sector, SECTOR_BYTES).low;
    return value == 0 ? 1 : value;
}
