/*
 * The known word that a mistyped one most probably meant.
 */
#ifndef ASHLAR_FRONT_CONTROL_NEAREST_H
#define ASHLAR_FRONT_CONTROL_NEAREST_H

#include <stddef.h>

/* One of count names (NULL entries are skipped), or NULL if none is near enough to be worth a hint. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

/* The hint as text to append to an error: "; did you mean 'x'?" or "". buf is returned. */
char *nearest_hint(const char *word, const char *const *names, size_t count, char *buf, size_t buf_bytes);

#endif
