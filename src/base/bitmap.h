/*
 * Bitmaps in arrays of 64-bit words, owned by the caller. Ranges are half-open: [first, first + count).
 */
#ifndef ASHLAR_BASE_BITMAP_H
#define ASHLAR_BASE_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITMAP_WORDS(bits) (((bits) + 63) / 64)

static inline bool bitmap_test(const uint64_t *map, size_t bit)
{
    return (map[bit / 64] >> bit % 64 & 1) != 0;
}

/* first + count may not overflow. */
void bitmap_set_range(uint64_t *map, size_t first, size_t count);
void bitmap_clear_range(uint64_t *map, size_t first, size_t count);
/* true if every bit of the range is set; an empty range is. */
bool bitmap_all_set(const uint64_t *map, size_t first, size_t count);
/* true if no bit of the range is set; an empty range is. */
bool bitmap_none_set(const uint64_t *map, size_t first, size_t count);
/* The first set (clear) bit in [from, size), or size if there is none. */
size_t bitmap_next_set(const uint64_t *map, size_t from, size_t size);
size_t bitmap_next_clear(const uint64_t *map, size_t from, size_t size);
size_t bitmap_count(const uint64_t *map, size_t size);

#endif
