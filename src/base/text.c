/*
 * Growable strings, sizes as people write them, UUIDs.
 *
 * Sizes are 1024-based throughout, as block devices are. "KB" is refused rather than guessed: half of its readers take
 * it for 1000, and a volume has its size for life.
 */
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

/* Suffix number i stands for 1024^i. */
static const char suffixes[] = " KMGTP";
#define SUFFIX_LAST (sizeof(suffixes) - 2)

#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX)

static void text_reserve(struct text *t, size_t more_bytes)
{
    if (more_bytes <= t->capacity - t->length)
        return;
    size_t wanted = t->length + more_bytes;
    size_t capacity = t->capacity < 64 ? 64 : t->capacity;
    while (capacity < wanted)
        capacity *= 2;
    char *bytes = realloc(t->bytes, capacity);
    CHECK(bytes != NULL);
    t->bytes = bytes;
    t->capacity = capacity;
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    size_t room = t->capacity - t->length;
    int length = vsnprintf(room > 0 ? t->bytes + t->length : NULL, room, format, args);
    va_end(args);
    CHECK(length >= 0);
    if ((size_t)length >= room) {
        text_reserve(t, (size_t)length + 1);
        int second = vsnprintf(t->bytes + t->length, (size_t)length + 1, format, again);
        CHECK(second == length);
    }
    va_end(again);
    t->length += (size_t)length;
}

void text_free(struct text *t)
{
    free(t->bytes);
    *t = (struct text){0};
}

/* The exponent of 1024 that a suffix stands for ("", "K", "KiB" ...; case does not matter), -1 if none. */
static int suffix_exponent(const char *suffix)
{
    if (suffix[0] == '\0')
        return 0;
    const char *at = suffix[0] == ' ' ? NULL : strchr(suffixes, toupper((unsigned char)suffix[0]));
    if (at == NULL || (suffix[1] != '\0' && strcasecmp(suffix + 1, "iB") != 0))
        return -1;
    return (int)(at - suffixes);
}

static int suffix_refuse(const char *string, const char *suffix, const char *what, struct error *err)
{
    bool letter = suffix[0] != ' ' && strchr(suffixes, toupper((unsigned char)suffix[0])) != NULL;
    if (letter && strcasecmp(suffix + 1, "B") == 0) {
        char upper = (char)toupper((unsigned char)suffix[0]);
        return error_set(err, -EINVAL,
                         "%s: '%s' is ambiguous: suffixes are 1024-based and without B here (K is 1024); write %.*s%c",
                         what, string, (int)(suffix - string), string, upper);
    }
    if (suffix[0] == '.' || suffix[0] == ',')
        return error_set(
            err, -EINVAL,
            "%s: '%s' has a fraction: write a whole number in a smaller unit, as 1536M for one and a half G", what,
            string);
    return error_set(err, -EINVAL, "%s: '%s' is not a size: '%s' is no suffix; use digits and one of K M G T P", what,
                     string, suffix);
}

int size_parse(const char *string, const char *what, uint64_t *ret_bytes, struct error *err)
{
    if (string[0] == '\0')
        return error_set(err, -EINVAL, "%s: empty; a size is digits and one of K M G T P, as 10G", what);
    if (string[0] == '-' || string[0] == '+')
        return error_set(err, -EINVAL, "%s: '%s' has a sign; a size is digits and one of K M G T P, as 10G", what,
                         string);
    if (string[0] < '0' || string[0] > '9')
        return error_set(err, -EINVAL, "%s: '%s' is not a size; write digits and one of K M G T P, as 10G", what,
                         string);
    uint64_t bytes = 0;
    bool fits = true;
    const char *p = string;
    for (; *p >= '0' && *p <= '9'; p++)
        fits = fits && mul_fits(bytes, 10, &bytes) && add_fits(bytes, (uint64_t)(*p - '0'), &bytes);
    int exponent = suffix_exponent(p);
    if (exponent < 0)
        return suffix_refuse(string, p, what, err);
    if (!fits || !mul_fits(bytes, UINT64_C(1) << 10 * exponent, &bytes) || bytes > SIZE_MAX_BYTES)
        return error_set(err, -ERANGE, "%s: '%s' is too large; the limit is 2^63 - 1 bytes (just under 8192P)", what,
                         string);
    *ret_bytes = bytes;
    return 0;
}

/*
 * Three digits are kept and rounded to nearest: 2 decimals under 10, 1 under 100, none above. Rounding may reach 1024
 * (1023.7K), which is 1 of the next unit.
 */
char *size_format(uint64_t bytes, char *buf, size_t buf_bytes)
{
    unsigned exponent = 0;
    while (exponent < SUFFIX_LAST && bytes >> 10 * exponent >= 1024)
        exponent++;
    uint64_t unit = UINT64_C(1) << 10 * exponent;
    uint64_t whole = bytes / unit;
    unsigned decimals = whole < 10 ? 2 : whole < 100 ? 1 : 0;
    uint64_t scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
    uint64_t fraction = (bytes % unit * scale + unit / 2) / unit;
    whole += fraction / scale;
    fraction %= scale;
    if (whole == 1024 && exponent < SUFFIX_LAST) {
        whole = 1;
        exponent++;
    }
    for (; decimals > 0 && fraction % 10 == 0; decimals--)
        fraction /= 10;
    char suffix[2] = {exponent > 0 ? suffixes[exponent] : '\0', '\0'};
    int length = decimals == 0
                     ? snprintf(buf, buf_bytes, "%" PRIu64 "%s", whole, suffix)
                     : snprintf(buf, buf_bytes, "%" PRIu64 ".%0*" PRIu64 "%s", whole, (int)decimals, fraction, suffix);
    CHECK(length > 0 && (size_t)length < buf_bytes);
    return buf;
}

char *size_format_exact(uint64_t bytes, char *buf, size_t buf_bytes)
{
    unsigned exponent = 0;
    while (exponent < SUFFIX_LAST && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        exponent++;
    }
    char suffix[2] = {exponent > 0 ? suffixes[exponent] : '\0', '\0'};
    int length = snprintf(buf, buf_bytes, "%" PRIu64 "%s", bytes, suffix);
    CHECK(length > 0 && (size_t)length < buf_bytes);
    return buf;
}

char *uuid_format(const uint8_t uuid[16], char *buf)
{
    static const char digits[] = "0123456789abcdef";
    char *p = buf;
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *p++ = '-';
        *p++ = digits[uuid[i] >> 4];
        *p++ = digits[uuid[i] & 15];
    }
    *p = '\0';
    return buf;
}
