/*
 * Optimal string alignment distance (insert, delete, replace, swap neighbours: 1 each), on words of up to 32 bytes,
 * with
 * '-' and '_' free: `recordsize` means `record-size`.
 */
#include "front/control/nearest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORD_BYTES_MAX = 32 };

static size_t word_normalise(const char *word, char *ret_word)
{
    size_t n = 0;
    for (; *word != '\0' && n < WORD_BYTES_MAX; word++) {
        char c = *word;
        if (c == '-' || c == '_')
            continue;
        ret_word[n++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return n;
}

static unsigned distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned d[WORD_BYTES_MAX + 1][WORD_BYTES_MAX + 1];
    for (size_t i = 0; i <= a_length; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= b_length; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        for (size_t j = 1; j <= b_length; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[a_length][b_length];
}

const char *nearest_name(const char *word, const char *const *names, size_t count)
{
    char wanted[WORD_BYTES_MAX], name[WORD_BYTES_MAX];
    size_t wanted_length = word_normalise(word, wanted);
    const char *nearest = NULL;
    unsigned best = (unsigned)wanted_length / 3 + 2; /* this far is too far */
    for (size_t i = 0; i < count; i++) {
        if (names[i] == NULL)
            continue;
        size_t name_length = word_normalise(names[i], name);
        unsigned far = distance(wanted, wanted_length, name, name_length);
        /* A beginning of at least three letters is near: `dest` means `destroy`. */
        if (wanted_length >= 3 && wanted_length < name_length && memcmp(wanted, name, wanted_length) == 0)
            far = 1;
        bool shorter = nearest != NULL && far == best && strlen(names[i]) < strlen(nearest);
        if ((far < best || shorter) && far < wanted_length) {
            best = far;
            nearest = names[i];
        }
    }
    return nearest;
}

char *nearest_hint(const char *word, const char *const *names, size_t count, char *buf, size_t buf_bytes)
{
    const char *nearest = nearest_name(word, names, count);
    if (nearest != NULL)
        snprintf(buf, buf_bytes, "; did you mean '%s'?", nearest);
    else
        buf[0] = '\0';
    return buf;
}
