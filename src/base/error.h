/*
 * Errors. Every function that can fail returns 0 or a negative errno value; those whose failure a person reads also
 * take a struct error, filled once by the thrower and never overwritten by callers.
 *
 * Corruption has a class of its own inside the engine, -EBADMSG ("bad checksum, stale or misdirected block, malformed
 * object"); it becomes EIO at the front doors.
 */
#ifndef ASHLAR_BASE_ERROR_H
#define ASHLAR_BASE_ERROR_H

#include <errno.h>

#define ERROR_TEXT_BYTES 512

struct error {
    int code;                    /* 0 or negative errno */
    char text[ERROR_TEXT_BYTES]; /* one line: what, where, which value, what to do; no newline at its end */
};

/* Fills err (may be NULL; a code and text already there are kept) and returns code. A text too long ends in "...";
 * control characters in it become '?'. */
int error_set(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
