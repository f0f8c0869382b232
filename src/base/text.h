/*
 * Text: a growable string, sizes as people write them, UUIDs.
 */
#ifndef ASHLAR_BASE_TEXT_H
#define ASHLAR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* A growable NUL-terminated string; all zero is an empty one. Allocation failure aborts (texts are short). */
struct text {
    char *bytes;
    size_t length, capacity;
};

void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *t);

/*
 * Reads a size: decimal digits with one optional suffix K M G T P (or KiB MiB GiB TiB PiB), in either case, all
 * 1024-based, no sign, no fraction, no space. "KB", "MB"... are refused with the hint that K is 1024. 0 is a size:
 * where it makes no sense the caller refuses it. `what` names the value in the error text ("--size"). *ret_bytes is
 * written on success only. Errors: -EINVAL (malformed), -ERANGE (over 2^63 - 1).
 */
int size_parse(const char *string, const char *what, uint64_t *ret_bytes, struct error *err);

/* "1.5G", "16K", "512", "1023M": three digits, rounded to nearest (a fourth only from 1000 to 1023), 1024-based. buf of
 * 24 bytes is enough for this and the next. Returns buf. */
char *size_format(uint64_t bytes, char *buf, size_t buf_bytes);
/* Exact where the size is a multiple of a suffix ("16K"), digits otherwise: what size_parse reads back to the same
 * number. */
char *size_format_exact(uint64_t bytes, char *buf, size_t buf_bytes);

/* 16 bytes as 8-4-4-4-12 hex digits. buf has 37 bytes. */
char *uuid_format(const uint8_t uuid[16], char *buf);

#endif
