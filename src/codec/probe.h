/*
 * What a glance at some bytes says about compressing them.
 */
#ifndef ASHLAR_CODEC_PROBE_H
#define ASHLAR_CODEC_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/* n >= PROBE_BYTES_MIN. true if a sample of the bytes looks evenly distributed over all 256 values, so that only
 * repetitions could make them smaller. */
#define PROBE_BYTES_MIN 256
bool bytes_are_flat(const void *bytes, size_t n);

#endif
