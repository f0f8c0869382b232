/*
 * A simulated disk with a device open on it, and pages that hold one value in all their bytes.
 */
#ifndef ASHLAR_TESTS_UNIT_TEST_SIM_FIXTURE_H
#define ASHLAR_TESTS_UNIT_TEST_SIM_FIXTURE_H

#include <errno.h>
#include <string.h>

#include "env/device.h"
#include "env/sim.h"
#include "seed.h"
#include "tap.h"

#define PAGE 4096
#define SECTOR 512
#define DISK_PAGES 64

static uint64_t seed;

struct bench {
    struct sim *sim;
    struct sim_disk *disk;
    struct device *dev;
    uint8_t *buf; /* DISK_PAGES pages */
};

static inline void bench_init(struct bench *b, uint64_t sim_seed)
{
    b->sim = sim_new(sim_seed);
    b->disk = sim_disk_new(b->sim, DISK_PAGES * PAGE, 4096);
    b->dev = sim_disk_open(b->disk, false);
    b->buf = device_buffer_new(DISK_PAGES * PAGE);
}

static inline void bench_fini(struct bench *b)
{
    device_buffer_free(b->buf);
    device_close(b->dev);
    sim_disk_free(b->disk);
    sim_free(b->sim);
}

static inline int write_page(struct bench *b, uint64_t page, uint8_t value)
{
    memset(b->buf, value, PAGE);
    return device_write(b->dev, page * PAGE, b->buf, PAGE);
}

/* The value of all bytes of a page, -1 if they differ, -2 if it cannot be read. */
static inline int read_page(struct bench *b, uint64_t page)
{
    if (device_read(b->dev, page * PAGE, b->buf, PAGE) != 0)
        return -2;
    for (size_t i = 1; i < PAGE; i++)
        if (b->buf[i] != b->buf[0])
            return -1;
    return b->buf[0];
}

static inline void power_cut(struct bench *b, enum sim_loss loss, uint64_t cut_seed)
{
    sim_disk_power_cut(b->disk, loss, cut_seed);
    device_close(b->dev);
    b->dev = sim_disk_open(b->disk, false);
}

#endif
