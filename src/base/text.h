/*
 * Text: a growable string, sizes as people write them, names, escaping.
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
 * Reads a size: decimal digits with one optional suffix K M G T P (or KiB MiB GiB TiB PiB), all 1024-based, no sign, no
 * fraction, no space. "KB", "MB"... are refused with the hint that K is 1024. `what` names the value in the error text
 * ("--size"). Errors: -EINVAL (malformed), -ERANGE (over 2^63 - 1).
 */
int size_parse(const char *string, const char *what, uint64_t *ret_bytes, struct error *err);

/* "1.5G", "16K", "512": at most 3 significant decimals, 1024-based. buf of 16 bytes is enough. Returns buf. */
char *size_format(uint64_t bytes, char *buf, size_t buf_bytes);
/* Exact where the size is a multiple of a suffix ("16K"), digits otherwise: what size_parse reads back to the same
 * number. */
char *size_format_exact(uint64_t bytes, char *buf, size_t buf_bytes);

/* 16 bytes as 8-4-4-4-12 hex digits. buf has 37 bytes. */
char *uuid_format(const uint8_t uuid[16], char *buf);

#endif
