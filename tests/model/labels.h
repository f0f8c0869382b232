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
 * Writes noise over both copies of the newest label, if the one before it is valid and, by the newest one's word,
 * intact; and only if the newest one's number is at least not_below: a pool that lost a label and wrote none since has
 * no second one to lose. Returns its number, or 0 if it did nothing.
 */
uint64_t labels_spoil_newest(struct sim_disk *disk, uint64_t disk_bytes, uint64_t not_below, uint64_t seed);

#endif
