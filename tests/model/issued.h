/*
 * The log addresses that chunks of data were given, as seen by the writes that reach a disk: none is issued twice
 * (R15).
 */
#ifndef ASHLAR_TESTS_MODEL_ISSUED_H
#define ASHLAR_TESTS_MODEL_ISSUED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/sim.h"

struct issued_chunk;

/* All zero is an empty one. */
struct issued {
    struct issued_chunk *list;
    size_t count;
    bool twice; /* an address was issued to two chunks of different content */
};

/* A device operation is about to take effect: notes it if it writes a chunk of data. */
void issued_note(struct issued *issued, const struct sim_disk *disk, uint32_t segment_bytes,
                 const struct device_io *io);
void issued_free(struct issued *issued);

#endif
