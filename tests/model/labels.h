/*
 * The label rings of a simulated disk, seen from outside: found and spoilt.
 */
#ifndef ASHLAR_TESTS_MODEL_LABELS_H
#define ASHLAR_TESTS_MODEL_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "env/sim.h"
#include "format/label.h"

/* The newest label that is valid in either ring, with a write unit of WRITE_UNIT_BYTES_MIN. false: there is none. */
bool labels_newest(const struct sim_disk *disk, uint64_t disk_bytes, struct label *ret_label);

/*
 * Writes noise over both copies of the newest label, if an older valid one remains. Returns whether it did.
 */
bool labels_spoil_newest(struct sim_disk *disk, uint64_t disk_bytes, uint64_t seed);

#endif
