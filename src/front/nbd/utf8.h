/*
 * Whether bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef ASHLAR_FRONT_NBD_UTF8_H
#define ASHLAR_FRONT_NBD_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool utf8_valid(const uint8_t *bytes, size_t n);

#endif
