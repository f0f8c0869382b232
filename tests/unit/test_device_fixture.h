/*
 * The device under test, for the conformance tests: each implementation in turn, fresh and empty for every check.
 */
#ifndef ASHLAR_TESTS_UNIT_TEST_DEVICE_FIXTURE_H
#define ASHLAR_TESTS_UNIT_TEST_DEVICE_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/prng.h"
#include "env/device.h"
#include "env/sim.h"
#include "seed.h"
#include "tap.h"

#define PAGE 4096
#define DEVICE_PAGES 2048
#define DEVICE_BYTES (DEVICE_PAGES * PAGE)

enum target { TARGET_PLAIN, TARGET_BUFFERED, TARGET_URING, TARGET_SIM, TARGET_COUNT };

static const char *const engines[] = {"plain", "plain", "io_uring", "simulation"};

static enum target target;
static uint64_t seed;
static char directory[200];

struct fixture {
    struct device *dev;
    struct env *env;
    struct sim *sim;
    struct sim_disk *disk;
    char path[256];
    uint8_t *buf; /* DEVICE_BYTES */
};

static inline bool fixture_init(struct fixture *f)
{
    static const unsigned flags[] = {DEVICE_OPEN_PLAIN, DEVICE_OPEN_BUFFERED, 0};
    memset(f, 0, sizeof *f);
    f->buf = device_buffer_new(DEVICE_BYTES);
    if (target == TARGET_SIM) {
        f->sim = sim_new(seed);
        f->env = sim_env(f->sim);
        f->disk = sim_disk_new(f->sim, DEVICE_BYTES, 4096);
        f->dev = sim_disk_open(f->disk, false);
    } else {
        struct error err = {0};
        f->env = env_os();
        snprintf(f->path, sizeof f->path, "%s/device", directory);
        if (device_open(f->env, f->path, DEVICE_OPEN_CREATE | flags[target], DEVICE_BYTES, &f->dev, &err) != 0)
            printf("# %s\n", err.text);
    }
    if (f->dev != NULL && target != TARGET_SIM && strcmp(f->dev->info.engine, engines[target]) != 0) {
        tap_skip("neither O_DIRECT nor io_uring here");
        device_close(f->dev);
        f->dev = NULL;
        (void)unlink(f->path);
        device_buffer_free(f->buf);
        return false;
    }
    EXPECT(f->dev != NULL);
    return f->dev != NULL;
}

static inline void fixture_fini(struct fixture *f)
{
    device_close(f->dev);
    if (f->sim != NULL) {
        sim_disk_free(f->disk);
        sim_free(f->sim);
    } else {
        EXPECT_EQ(unlink(f->path), 0);
    }
    device_buffer_free(f->buf);
}

/* Opens the same device again. */
static inline void fixture_reopen(struct fixture *f, bool read_only)
{
    struct error err = {0};
    device_close(f->dev);
    f->dev = NULL;
    if (target == TARGET_SIM)
        f->dev = sim_disk_open(f->disk, read_only);
    else if (device_open(f->env, f->path, read_only ? DEVICE_OPEN_READ_ONLY : 0, 0, &f->dev, &err) != 0)
        printf("# %s\n", err.text);
}

static inline void pattern(uint8_t *bytes, size_t n, uint64_t salt)
{
    struct prng prng;
    prng_seed(&prng, seed ^ salt);
    prng_fill(&prng, bytes, n);
}

static inline struct device_io io_of(enum device_io_kind kind, uint64_t page, const struct iovec *iov, int iov_count)
{
    struct device_io io = {.kind = kind, .offset_bytes = page * PAGE, .iov = iov, .iov_count = iov_count};
    for (int i = 0; i < iov_count; i++)
        io.length_bytes += iov[i].iov_len;
    return io;
}

static inline struct device_io range_io(enum device_io_kind kind, uint64_t page, uint64_t pages)
{
    return (struct device_io){.kind = kind, .offset_bytes = page * PAGE, .length_bytes = pages * PAGE};
}

/* Runs the checks of one program on every implementation. */
static inline int conformance_main(void (*checks)(void))
{
    static const char *const names[] = {"plain with O_DIRECT", "plain through the page cache", "io_uring",
                                        "simulation"};
    const char *root = getenv("TMPDIR");
    seed = seed_choose();
    snprintf(directory, sizeof directory, "%s/ashlar-device-XXXXXX", root != NULL ? root : "/var/tmp");
    if (mkdtemp(directory) == NULL) {
        printf("Bail out! %s: %s\n", directory, strerror(errno));
        return 1;
    }
    for (target = TARGET_PLAIN; target < TARGET_COUNT; target++) {
        printf("# %s\n", names[target]);
        checks();
    }
    (void)rmdir(directory);
    return tap_done();
}

#endif
