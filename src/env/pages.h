/*
 * Large buffers as whole pages from the OS: memory is taken when a page is first touched and given back when the buffer
 * is freed, so that a record of which only a few sectors are known costs only those.
 */
#ifndef ASHLAR_ENV_PAGES_H
#define ASHLAR_ENV_PAGES_H

#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096

/* Zeroed. NULL: no memory. */
uint8_t *pages_new(size_t length_bytes);
void pages_free(uint8_t *pages, size_t length_bytes); /* NULL is fine */

#endif
