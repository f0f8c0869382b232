/*
 * What a failed assertion does: one line to stderr, then abort, so that a core and the line tell the same story. The
 * line is formatted on the stack and written with one write(2): the heap and stdio may be what is broken.
 */
#include "base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_BYTES 512

static _Noreturn void line_write_and_abort(char *line, int length)
{
    if (length > 0) {
        size_t bytes = (size_t)length < LINE_BYTES ? (size_t)length : LINE_BYTES - 1;
        line[bytes - 1] = '\n'; /* also where the line was cut */
        ssize_t written = write(STDERR_FILENO, line, bytes);
        (void)written; /* there is nobody left to tell */
    }
    abort();
}

void check_failed(const char *file, int line, const char *what)
{
    char text[LINE_BYTES];
    int length = snprintf(text, sizeof(text), "%s:%d: check failed: %s\n", file, line, what);
    line_write_and_abort(text, length);
}

void check_failed_values(const char *file, int line, const char *what, uint64_t left, uint64_t right)
{
    char text[LINE_BYTES];
    int length =
        snprintf(text, sizeof(text),
                 "%s:%d: check failed: %s (left %" PRIu64 " = 0x%" PRIx64 ", right %" PRIu64 " = 0x%" PRIx64 ")\n",
                 file, line, what, left, left, right, right);
    line_write_and_abort(text, length);
}
