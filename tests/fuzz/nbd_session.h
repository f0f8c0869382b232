/*
 * What the fuzz targets of the NBD server share: a server on memory that lives as long as the program, and one session
 * with it: bytes in, the server's answer out.
 */
#ifndef ASHLAR_TESTS_FUZZ_NBD_SESSION_H
#define ASHLAR_TESTS_FUZZ_NBD_SESSION_H

#include <stddef.h>
#include <stdint.h>

#define SESSION_EXPORT "disk"
#define SESSION_EXPORT_BYTES (3u * 1024 * 1024 + 17)

/* Sends n bytes, then ends that direction; returns what came back up to the end of the connection, *ret_bytes of it, to
 * be freed. Aborts if the server has not closed within ten seconds. */
uint8_t *nbd_session(const uint8_t *bytes, size_t n, size_t *ret_bytes);

#endif
