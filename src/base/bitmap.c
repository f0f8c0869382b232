/*
 * Bitmaps by whole words. A range is handled as a first word with its low bits masked off, whole words between, and a
 * last word with its high bits masked off; every function walks words with the same mask (word_mask), so the edge cases
 * are in one place. Bits of the last word beyond a bitmap's size are neither read as content nor changed.
 */
#include "base/bitmap.h"

#define WORD_BITS 64

/* The bits of word number `word` that lie in [first, end); the word must intersect that range. */
static uint64_t word_mask(size_t word, size_t first, size_t end)
{
    uint64_t mask = UINT64_MAX;
    if (word == first / WORD_BITS)
        mask &= UINT64_MAX << first % WORD_BITS;
    if (word == (end - 1) / WORD_BITS)
        mask &= UINT64_MAX >> (WORD_BITS - 1 - (end - 1) % WORD_BITS);
    return mask;
}

void bitmap_set_range(uint64_t *map, size_t first, size_t count)
{
    size_t end = first + count;
    for (size_t word = first / WORD_BITS; count != 0 && word <= (end - 1) / WORD_BITS; word++)
        map[word] |= word_mask(word, first, end);
}

void bitmap_clear_range(uint64_t *map, size_t first, size_t count)
{
    size_t end = first + count;
    for (size_t word = first / WORD_BITS; count != 0 && word <= (end - 1) / WORD_BITS; word++)
        map[word] &= ~word_mask(word, first, end);
}

bool bitmap_all_set(const uint64_t *map, size_t first, size_t count)
{
    return bitmap_next_clear(map, first, first + count) == first + count;
}

bool bitmap_none_set(const uint64_t *map, size_t first, size_t count)
{
    return bitmap_next_set(map, first, first + count) == first + count;
}

/* The first bit in [from, size) that differs from the same bit of `background` (all zero or all one). */
static size_t next_different(const uint64_t *map, size_t from, size_t size, uint64_t background)
{
    if (from >= size)
        return size;
    for (size_t word = from / WORD_BITS; word <= (size - 1) / WORD_BITS; word++) {
        uint64_t different = (map[word] ^ background) & word_mask(word, from, size);
        if (different != 0)
            return word * WORD_BITS + (size_t)__builtin_ctzll(different);
    }
    return size;
}

size_t bitmap_next_set(const uint64_t *map, size_t from, size_t size)
{
    return next_different(map, from, size, 0);
}

size_t bitmap_next_clear(const uint64_t *map, size_t from, size_t size)
{
    return next_different(map, from, size, UINT64_MAX);
}

size_t bitmap_count(const uint64_t *map, size_t size)
{
    size_t count = 0;
    for (size_t word = 0; word < size / WORD_BITS; word++)
        count += (size_t)__builtin_popcountll(map[word]);
    if (size % WORD_BITS != 0)
        count += (size_t)__builtin_popcountll(map[size / WORD_BITS] & word_mask(size / WORD_BITS, 0, size));
    return count;
}
