/*
 * Rounding and overflow-checked arithmetic on unsigned 64-bit numbers. Divisions say how they round.
 */
#ifndef ASHLAR_BASE_MATH_H
#define ASHLAR_BASE_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline bool is_power_of_2(uint64_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

/* unit is not 0; the result may not overflow: callers bound n first. */
static inline uint64_t round_down(uint64_t n, uint64_t unit)
{
    return n - n % unit;
}

static inline uint64_t round_up(uint64_t n, uint64_t unit)
{
    return n % unit == 0 ? n : n - n % unit + unit;
}

static inline uint64_t div_ceil(uint64_t n, uint64_t unit)
{
    return n / unit + (n % unit != 0);
}

/* true and *ret_sum written if a + b fits. */
static inline bool add_fits(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *ret_sum = sum;
    return true;
}

static inline bool mul_fits(uint64_t a, uint64_t b, uint64_t *ret_product)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *ret_product = product;
    return true;
}

/* true if [offset, offset + length) lies inside [0, size). */
static inline bool range_inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

#endif
