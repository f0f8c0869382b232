/*
 * Assertions. A failed check is a fault of our own code, never of a disk, a peer or a user: those get an error.
 *
 * CHECK and its two-operand forms are cheap and stay on in every build; DEBUG_CHECK is for costly ones and is on in
 * debug builds (ASHLAR_DEBUG). No operand may have a side effect.
 */
#ifndef ASHLAR_BASE_CHECK_H
#define ASHLAR_BASE_CHECK_H

#include <stdint.h>

/* Prints "file:line: what" to stderr and aborts. */
_Noreturn void check_failed(const char *file, int line, const char *what);
/* The same with both operands of a comparison. */
_Noreturn void check_failed_values(const char *file, int line, const char *what, uint64_t left, uint64_t right);

#define CHECK(cond)                                  \
    do {                                             \
        if (__builtin_expect(!(cond), 0))            \
            check_failed(__FILE__, __LINE__, #cond); \
    } while (0)

#define CHECK_OP(a, op, b)                                                                            \
    do {                                                                                              \
        if (__builtin_expect(!((a)op(b)), 0))                                                         \
            check_failed_values(__FILE__, __LINE__, #a " " #op " " #b, (uint64_t)(a), (uint64_t)(b)); \
    } while (0)
#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) CHECK_OP(a, <, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_GE(a, b) CHECK_OP(a, >=, b)
#define CHECK_GT(a, b) CHECK_OP(a, >, b)

#ifdef ASHLAR_DEBUG
#define DEBUG_CHECK(cond) CHECK(cond)
#else
#define DEBUG_CHECK(cond) ((void)0)
#endif

#endif
