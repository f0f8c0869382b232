/*
 * The test harness: TAP on standard output, one header. A test program is a list of functions:
 *
 *     static void test_addition(void) { EXPECT_EQ(1 + 1, 2); }
 *     int main(void) { RUN(test_addition); return tap_done(); }
 *
 * A failed EXPECT prints where and which values, and the function goes on; REQUIRE leaves the function. A function that
 * made no expectation fails: a test that asserts nothing is a defect. tap_skip("why") marks the running function as
 * skipped.
 */
#ifndef ASHLAR_TESTS_TAP_H
#define ASHLAR_TESTS_TAP_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned tap_count, tap_failures, tap_expectations, tap_failed_here;
static const char *tap_skip_reason;

static inline void tap_fail(const char *file, int line, const char *what)
{
    tap_failed_here++;
    printf("# %s:%d: %s\n", file, line, what);
    fflush(stdout);
}

static inline bool tap_expect(bool ok, const char *file, int line, const char *what)
{
    tap_expectations++;
    if (!ok)
        tap_fail(file, line, what);
    return ok;
}

static inline bool tap_expect_equal(int64_t a, int64_t b, const char *file, int line, const char *what)
{
    tap_expectations++;
    if (a == b)
        return true;
    tap_fail(file, line, what);
    printf("#   left %" PRId64 " (0x%" PRIx64 "), right %" PRId64 " (0x%" PRIx64 ")\n", a, (uint64_t)a, b, (uint64_t)b);
    return false;
}

static inline bool tap_expect_text(const char *a, const char *b, const char *file, int line, const char *what)
{
    tap_expectations++;
    if (a != NULL && b != NULL && strcmp(a, b) == 0)
        return true;
    tap_fail(file, line, what);
    printf("#   left \"%s\"\n#   right \"%s\"\n", a ? a : "(null)", b ? b : "(null)");
    return false;
}

#define EXPECT(cond) ((void)tap_expect((cond), __FILE__, __LINE__, #cond))
#define EXPECT_EQ(a, b) ((void)tap_expect_equal((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, #a " == " #b))
#define EXPECT_TEXT(a, b) ((void)tap_expect_text((a), (b), __FILE__, __LINE__, #a " is " #b))
#define REQUIRE(cond)                                       \
    do {                                                    \
        if (!tap_expect((cond), __FILE__, __LINE__, #cond)) \
            return;                                         \
    } while (0)

static inline void tap_skip(const char *reason)
{
    tap_skip_reason = reason;
}

static inline void tap_run(void (*function)(void), const char *name)
{
    tap_expectations = tap_failed_here = 0;
    tap_skip_reason = NULL;
    function();
    tap_count++;
    if (tap_skip_reason != NULL && tap_failed_here == 0) {
        printf("ok %u - %s # SKIP %s\n", tap_count, name, tap_skip_reason);
    } else if (tap_expectations == 0) {
        printf("not ok %u - %s\n# it expected nothing\n", tap_count, name);
        tap_failures++;
    } else {
        printf("%s %u - %s\n", tap_failed_here ? "not ok" : "ok", tap_count, name);
        tap_failures += tap_failed_here != 0;
    }
    fflush(stdout);
}

#define RUN(function) tap_run(function, #function)

static inline int tap_done(void)
{
    printf("1..%u\n", tap_count);
    return tap_failures == 0 ? 0 : 1;
}

#endif
