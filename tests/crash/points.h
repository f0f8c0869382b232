/*
 * Crash points: a picture of the disk at every device step of a running workload, each with the moment of the oracle's
 * life at which it was taken.
 */
#ifndef ASHLAR_TESTS_CRASH_POINTS_H
#define ASHLAR_TESTS_CRASH_POINTS_H

#include <stddef.h>
#include <stdint.h>

#include "env/sim.h"
#include "model/oracle.h"

struct point {
    struct sim_image *image;
    size_t position; /* of the oracle */
    uint64_t number; /* of the device step that was about to happen */
    enum device_io_kind kind;
};

struct points {
    const struct oracle *oracle;
    struct point *list;
    size_t count, room;
    /* 0: one at every step; otherwise by chance. At most count_max, if that is not 0. */
    unsigned chance_per_mille;
    uint64_t state; /* of the dice for that */
    size_t count_max;

    uint64_t writes, flushes, others; /* device steps seen */
    /* Chunks seen at places of the disk where a chunk of another segment had been: slots used again. */
    uint64_t segment_bytes, data_start_bytes;
    uint64_t *segment_of_slot; /* number + 1 */
    size_t slot_count;
    uint64_t slots_reused;
};

/* oracle may be NULL: position is then 0. Takes pictures from now on. */
void points_start(struct points *p, struct sim_disk *disk, const struct oracle *oracle);
/* Where slots lie, from the newest label; needed for slots_reused. */
void points_learn_slots(struct points *p, const struct sim_disk *disk, uint64_t disk_bytes);
void points_stop(struct points *p, struct sim_disk *disk);
void points_free(struct points *p);
/* The hook itself, for disks that are opened elsewhere. */
void points_hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io);

#endif
