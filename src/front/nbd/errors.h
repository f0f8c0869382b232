/*
 * From the engine's errno to the eight numbers that exist on the wire: the one place where that is decided.
 */
#ifndef ASHLAR_FRONT_NBD_ERRORS_H
#define ASHLAR_FRONT_NBD_ERRORS_H

#include <stdint.h>

/* result: 0 or negative errno. fast_zero: the command was WRITE_ZEROES with FAST_ZERO, the only one that may answer
 * ENOTSUP. Returns 0 or one of enum nbd_error_number. */
uint32_t nbd_error_of(int result, int fast_zero);

/* "EIO" and so on, for messages. */
const char *nbd_error_name(uint32_t error);

#endif
