/*
 * A pool with volumes for tests that say step by step what happens.
 */
#ifndef ASHLAR_TESTS_SIM_RIG_H
#define ASHLAR_TESTS_SIM_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "model/pattern.h"
#include "model/store_pool.h"

#define RIG_SIZE_BYTES (UINT64_C(512) * 1024)

struct rig {
    struct store_pool_options options;
    struct store *s;
    struct text why;
};

/* Defaults: 16 MiB disk, 256 KiB segments, no workers, no background. Change r->options before rig_start if needed. */
void rig_init(struct rig *r);
/* Makes the pool and `volumes` volumes of RIG_SIZE_BYTES, codec off, records of record_bytes. Prints why it cannot. */
bool rig_start(struct rig *r, unsigned volumes, uint32_t record_bytes);
void rig_end(struct rig *r);

/* Writes noise of that stamp; the same stamp is what rig_reads expects. */
int rig_write(struct rig *r, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, uint64_t stamp,
              unsigned flags);
/* The range reads as that noise; stamp 0: as zeroes. */
bool rig_reads(struct rig *r, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, uint64_t stamp);
/* Power cut, open, volumes adopted. Prints why it cannot. */
bool rig_crash(struct rig *r, enum sim_loss loss, uint64_t seed);
/* Adopts every volume "v0", "v1"... that is listed. */
bool rig_adopt_all(struct rig *r);
bool rig_check(struct rig *r);

struct pool_info rig_info(struct rig *r);

#endif
