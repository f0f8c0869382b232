/*
 * Conformance: the same checks on every implementation of a device. What holds here is what device.h promises to the
 * floors above, whichever device they get.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "env/device.h"
#include "env/device_impl.h"
#include "env/sim.h"
#include "seed.h"
#include "tap.h"

#define PAGE 4096
#define DEVICE_PAGES 2048
#define DEVICE_BYTES (DEVICE_PAGES * PAGE)
#define LONG_VECTOR 1500

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

static bool fixture_init(struct fixture *f)
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

static void fixture_fini(struct fixture *f)
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
static void fixture_reopen(struct fixture *f, bool read_only)
{
    struct error err = {0};
    device_close(f->dev);
    f->dev = NULL;
    if (target == TARGET_SIM)
        f->dev = sim_disk_open(f->disk, read_only);
    else if (device_open(f->env, f->path, read_only ? DEVICE_OPEN_READ_ONLY : 0, 0, &f->dev, &err) != 0)
        printf("# %s\n", err.text);
}

static void pattern(uint8_t *bytes, size_t n, uint64_t salt)
{
    struct prng prng;
    prng_seed(&prng, seed ^ salt);
    prng_fill(&prng, bytes, n);
}

static struct device_io io_of(enum device_io_kind kind, uint64_t page, const struct iovec *iov, int iov_count)
{
    struct device_io io = {.kind = kind, .offset_bytes = page * PAGE, .iov = iov, .iov_count = iov_count};
    for (int i = 0; i < iov_count; i++)
        io.length_bytes += iov[i].iov_len;
    return io;
}

static struct device_io range_io(enum device_io_kind kind, uint64_t page, uint64_t pages)
{
    return (struct device_io){.kind = kind, .offset_bytes = page * PAGE, .length_bytes = pages * PAGE};
}

static void test_info(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    EXPECT_EQ(f.dev->info.size_bytes, DEVICE_BYTES);
    EXPECT_TEXT(f.dev->info.engine, engines[target]);
    EXPECT(f.dev->info.logical_sector_bytes == 512 || f.dev->info.logical_sector_bytes == 4096);
    EXPECT(f.dev->info.physical_sector_bytes >= 512 && f.dev->info.physical_sector_bytes <= 65536);
    EXPECT(!f.dev->info.is_read_only);
    EXPECT(!f.dev->info.is_block_device);
    EXPECT(!f.dev->failed);
    EXPECT(f.dev->name[0] != '\0');
    EXPECT(f.dev->env == f.env);
    if (target == TARGET_BUFFERED)
        EXPECT(!f.dev->info.is_direct);
    fixture_fini(&f);
}

static void test_read_after_write(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    uint8_t *back = device_buffer_new(16 * PAGE);
    EXPECT_EQ(device_read(f.dev, 0, back, 16 * PAGE), 0);
    EXPECT(memcmp(back, f.buf, 16 * PAGE) == 0); /* never written: zeroes */
    pattern(f.buf, 16 * PAGE, 1);
    EXPECT_EQ(device_write(f.dev, 5 * PAGE, f.buf, 16 * PAGE), 0);
    EXPECT_EQ(device_read(f.dev, 5 * PAGE, back, 16 * PAGE), 0);
    EXPECT(memcmp(back, f.buf, 16 * PAGE) == 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    fixture_reopen(&f, false);
    REQUIRE(f.dev != NULL);
    memset(back, 0, 16 * PAGE);
    EXPECT_EQ(device_read(f.dev, 5 * PAGE, back, 16 * PAGE), 0);
    EXPECT(memcmp(back, f.buf, 16 * PAGE) == 0);
    device_buffer_free(back);
    fixture_fini(&f);
}

/* One transfer from many pieces, more than one system call takes, in a scrambled order of memory. */
static void test_vectors(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    static struct iovec iov[LONG_VECTOR];
    pattern(f.buf, DEVICE_BYTES, 2);
    for (size_t i = 0; i < LONG_VECTOR; i++)
        iov[i] = (struct iovec){.iov_base = f.buf + i * 7919 % LONG_VECTOR * PAGE, .iov_len = PAGE};
    struct device_io io = io_of(DEVICE_WRITE, 3, iov, LONG_VECTOR);
    EXPECT_EQ(device_run(f.dev, &io, 1), 0);
    uint8_t *back = device_buffer_new(DEVICE_BYTES);
    EXPECT_EQ(device_read(f.dev, 3 * PAGE, back, LONG_VECTOR * PAGE), 0);
    size_t wrong = 0;
    for (size_t i = 0; i < LONG_VECTOR; i++)
        wrong += memcmp(back + i * PAGE, iov[i].iov_base, PAGE) != 0;
    EXPECT_EQ(wrong, 0);

    struct iovec three[3] = {{back, PAGE}, {back + 8 * PAGE, 4 * PAGE}, {back + 4 * PAGE, 2 * PAGE}};
    io = io_of(DEVICE_READ, 3, three, 3);
    memset(back, 0, 16 * PAGE);
    EXPECT_EQ(device_run(f.dev, &io, 1), 0);
    for (size_t i = 0; i < 7; i++) {
        const uint8_t *got = i < 1 ? back : i < 5 ? back + (7 + i) * PAGE : back + (i - 1) * PAGE;
        wrong += memcmp(got, iov[i].iov_base, PAGE) != 0;
    }
    EXPECT_EQ(wrong, 0);
    device_buffer_free(back);
    fixture_fini(&f);
}

/* More independent elements than a ring holds. */
static void test_many_in_one_call(void)
{
    enum { MANY = 150 };
    struct fixture f;
    if (!fixture_init(&f))
        return;
    struct device_io ios[MANY];
    struct iovec iov[MANY];
    pattern(f.buf, MANY * PAGE, 3);
    for (size_t i = 0; i < MANY; i++) {
        iov[i] = (struct iovec){.iov_base = f.buf + i * PAGE, .iov_len = PAGE};
        ios[i] = io_of(DEVICE_WRITE, i * 11 % DEVICE_PAGES, &iov[i], 1);
        ios[i].result = 77;
    }
    EXPECT_EQ(device_run(f.dev, ios, MANY), 0);
    uint8_t *back = device_buffer_new(MANY * PAGE);
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_EQ(ios[i].result, 0);
        iov[i].iov_base = back + i * PAGE;
        ios[i] = io_of(DEVICE_READ, i * 11 % DEVICE_PAGES, &iov[i], 1);
    }
    EXPECT_EQ(device_run(f.dev, ios, MANY), 0);
    EXPECT(memcmp(back, f.buf, MANY * PAGE) == 0);
    EXPECT_EQ(f.dev->stats.writes, MANY);
    EXPECT_EQ(f.dev->stats.reads, MANY);
    device_buffer_free(back);
    fixture_fini(&f);
}

static void test_counters(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    EXPECT_EQ(device_write(f.dev, 0, f.buf, 3 * PAGE), 0);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, PAGE), 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    EXPECT_EQ(device_read(f.dev, 0, f.buf, 2 * PAGE), 0);
    struct device_io allocate = range_io(DEVICE_ALLOCATE, 8, 4);
    EXPECT_EQ(device_run(f.dev, &allocate, 1), 0);
    EXPECT_EQ(f.dev->stats.writes, 2);
    EXPECT_EQ(f.dev->stats.write_bytes, 4 * PAGE);
    EXPECT_EQ(f.dev->stats.flushes, 2);
    EXPECT_EQ(f.dev->stats.reads, 1);
    EXPECT_EQ(f.dev->stats.read_bytes, 2 * PAGE);
    EXPECT_EQ(f.dev->stats.allocates, 1);
    EXPECT_EQ(f.dev->stats.punches, 0);
    fixture_fini(&f);
}

static void test_after_previous(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    struct iovec iov[3];
    struct device_io ios[5];
    for (size_t i = 0; i < 3; i++) {
        memset(f.buf + i * PAGE, (int)i + 1, PAGE);
        iov[i] = (struct iovec){.iov_base = f.buf + i * PAGE, .iov_len = PAGE};
    }
    uint8_t *back = device_buffer_new(PAGE);
    struct iovec back_iov = {.iov_base = back, .iov_len = PAGE};
    /* The same page three times, each after the one before, a flush in between; the last to run wins. */
    ios[0] = io_of(DEVICE_WRITE, 9, &iov[0], 1);
    ios[1] = io_of(DEVICE_WRITE, 9, &iov[1], 1);
    ios[1].after_previous = true;
    ios[2] = (struct device_io){.kind = DEVICE_FLUSH, .after_previous = true};
    ios[3] = io_of(DEVICE_WRITE, 9, &iov[2], 1);
    ios[3].after_previous = true;
    ios[4] = io_of(DEVICE_READ, 9, &back_iov, 1);
    ios[4].after_previous = true;
    for (int round = 0; round < 20; round++) {
        EXPECT_EQ(device_run(f.dev, ios, 5), 0);
        EXPECT_EQ(back[0], 3);
    }
    EXPECT_EQ(f.dev->stats.flushes, 20);
    device_buffer_free(back);
    fixture_fini(&f);
}

static void test_past_the_end(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    EXPECT_EQ(device_read(f.dev, DEVICE_BYTES, f.buf, PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, DEVICE_BYTES - PAGE, f.buf, 2 * PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, UINT64_MAX - PAGE + 1, f.buf, PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, DEVICE_BYTES - PAGE, f.buf, PAGE), 0);
    EXPECT(!f.dev->failed);

    /* A failed read cancels what comes after it, and that is no failure of the device. */
    struct iovec iov = {.iov_base = f.buf, .iov_len = PAGE};
    struct device_io ios[3] = {io_of(DEVICE_READ, DEVICE_PAGES, &iov, 1),
                               {.kind = DEVICE_FLUSH, .after_previous = true},
                               io_of(DEVICE_READ, 0, &iov, 1)};
    EXPECT_EQ(device_run(f.dev, ios, 3), -EIO);
    EXPECT_EQ(ios[1].result, -ECANCELED);
    EXPECT_EQ(ios[2].result, 0);
    EXPECT_EQ(f.dev->stats.flushes, 0);
    EXPECT(!f.dev->failed);

    EXPECT_EQ(device_write(f.dev, DEVICE_BYTES, f.buf, PAGE), -EIO);
    EXPECT(f.dev->failed);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, PAGE), -EIO);
    fixture_fini(&f);
}

/* The next writes fail, from page 8 on in files (a limit on the file size), any page in the simulation. */
static void writes_begin_to_fail(struct fixture *f)
{
    if (target == TARGET_SIM) {
        sim_disk_fail(f->disk, DEVICE_WRITE, 1, -EFBIG, true);
        return;
    }
    struct rlimit limit;
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 8 * PAGE;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void writes_stop_to_fail(void)
{
    struct rlimit limit;
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void expect_failed_for_good(struct fixture *f)
{
    uint64_t flushes = f->dev->stats.flushes, writes = f->dev->stats.writes;
    struct device_io punch = range_io(DEVICE_PUNCH, 0, 1), allocate = range_io(DEVICE_ALLOCATE, 0, 1);
    EXPECT(f->dev->failed);
    EXPECT_EQ(device_write(f->dev, 0, f->buf, PAGE), -EIO);
    EXPECT_EQ(device_flush(f->dev), -EIO);
    EXPECT_EQ(device_run(f->dev, &punch, 1), -EIO);
    EXPECT_EQ(device_run(f->dev, &allocate, 1), -EIO);
    EXPECT_EQ(device_resize(f->dev, DEVICE_BYTES + PAGE), -EIO);
    EXPECT_EQ(f->dev->stats.writes, writes);
    EXPECT_EQ(f->dev->stats.flushes, flushes);
    struct iovec iov = {.iov_base = f->buf, .iov_len = PAGE};
    struct device_io mixed[3] = {
        io_of(DEVICE_READ, 0, &iov, 1), {.kind = DEVICE_FLUSH, .after_previous = true}, io_of(DEVICE_READ, 1, &iov, 1)};
    EXPECT_EQ(device_run(f->dev, mixed, 3), -EIO);
    EXPECT_EQ(mixed[0].result, 0);
    EXPECT_EQ(mixed[1].result, -EIO);
    EXPECT_EQ(mixed[2].result, 0);
}

/* A write that fails after it was half done: the flush behind it is cancelled, the device is failed. */
static void test_failed_write_is_for_good(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    EXPECT_EQ(device_write(f.dev, 0, f.buf, 16 * PAGE), 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    writes_begin_to_fail(&f);
    memset(f.buf, 1, 16 * PAGE);
    struct iovec iov = {.iov_base = f.buf, .iov_len = 16 * PAGE};
    struct device_io ios[2] = {io_of(DEVICE_WRITE, 0, &iov, 1), {.kind = DEVICE_FLUSH, .after_previous = true}};
    EXPECT_EQ(device_run(f.dev, ios, 2), -EFBIG);
    EXPECT_EQ(ios[0].result, -EFBIG);
    EXPECT_EQ(ios[1].result, -ECANCELED);
    writes_stop_to_fail();
    EXPECT_EQ(f.dev->stats.flushes, 1);
    expect_failed_for_good(&f);
    fixture_fini(&f);
}

/* The same where several writes were on their way at once; some of them succeed. */
static void test_failed_write_among_several(void)
{
    enum { SEVERAL = 12 };
    struct fixture f;
    if (!fixture_init(&f))
        return;
    struct iovec iov[SEVERAL];
    struct device_io ios[SEVERAL + 1];
    if (target == TARGET_SIM)
        sim_disk_fail(f.disk, DEVICE_WRITE, 5, -EFBIG, false);
    else
        writes_begin_to_fail(&f);
    for (size_t i = 0; i < SEVERAL; i++) {
        iov[i] = (struct iovec){.iov_base = f.buf, .iov_len = PAGE};
        ios[i] = io_of(DEVICE_WRITE, i, &iov[i], 1);
    }
    ios[SEVERAL] = (struct device_io){.kind = DEVICE_FLUSH, .after_previous = true};
    EXPECT_EQ(device_run(f.dev, ios, SEVERAL + 1), -EFBIG);
    writes_stop_to_fail();
    size_t failed = 0;
    for (size_t i = 0; i < SEVERAL; i++)
        failed += ios[i].result != 0;
    EXPECT_EQ(failed, target == TARGET_SIM ? 1 : 4);
    EXPECT_EQ(ios[SEVERAL].result, -ECANCELED);
    EXPECT_EQ(f.dev->stats.writes, SEVERAL - failed);
    expect_failed_for_good(&f);
    fixture_fini(&f);
}

static void test_failed_flush_is_for_good(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    int kept = -1, pipe_ends[2] = {-1, -1};
    if (target == TARGET_SIM) {
        sim_disk_fail(f.disk, DEVICE_FLUSH, 1, -EINVAL, false);
    } else {
        /* A pipe cannot be synced. */
        kept = dup(device_file_of(f.dev)->fd);
        REQUIRE(kept >= 0 && pipe(pipe_ends) == 0);
        REQUIRE(dup2(pipe_ends[0], device_file_of(f.dev)->fd) >= 0);
    }
    EXPECT_EQ(device_flush(f.dev), -EINVAL);
    if (kept >= 0) {
        EXPECT(dup2(kept, device_file_of(f.dev)->fd) >= 0);
        (void)close(kept);
        (void)close(pipe_ends[0]);
        (void)close(pipe_ends[1]);
    }
    expect_failed_for_good(&f);
    fixture_fini(&f);
}

static void test_file_that_became_short(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    if (target == TARGET_SIM) {
        tap_skip("a simulated disk does not shrink behind the back of its device");
    } else {
        EXPECT_EQ(truncate(f.path, 8 * PAGE + 512), 0);
        EXPECT_EQ(device_read(f.dev, 7 * PAGE, f.buf, PAGE), 0);
        EXPECT_EQ(device_read(f.dev, 7 * PAGE, f.buf, 4 * PAGE), -EIO);
        struct iovec iov = {.iov_base = f.buf, .iov_len = PAGE};
        struct device_io ios[2] = {io_of(DEVICE_READ, 1, &iov, 1), io_of(DEVICE_READ, 100, &iov, 1)};
        EXPECT_EQ(device_run(f.dev, ios, 2), -EIO);
        EXPECT_EQ(ios[0].result, 0);
        EXPECT(!f.dev->failed);
    }
    fixture_fini(&f);
}

static void test_punch_and_allocate(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    memset(f.buf, 0x5a, 512 * PAGE);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, 512 * PAGE), 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    uint64_t full = device_allocated_bytes(f.dev);
    EXPECT(full >= 512 * PAGE);
    struct device_io punch = range_io(DEVICE_PUNCH, 8, 256);
    int ret = device_run(f.dev, &punch, 1);
    EXPECT(f.dev->info.can_punch ? ret == 0 : ret == -EOPNOTSUPP);
    EXPECT_EQ(f.dev->stats.punch_bytes, ret == 0 ? 256 * PAGE : 0);
    if (ret == 0)
        EXPECT(device_allocated_bytes(f.dev) <= full - 250 * PAGE);
    EXPECT_EQ(device_read(f.dev, 0, f.buf, 512 * PAGE), 0);
    size_t wrong = 0;
    for (size_t page = 0; page < 512; page++) {
        uint8_t first = f.buf[page * PAGE];
        bool punched = page >= 8 && page < 264;
        wrong += first != 0x5a && !(punched && first == 0);
        wrong += memcmp(f.buf + page * PAGE, f.buf + page * PAGE + 1, PAGE - 1) != 0;
    }
    EXPECT_EQ(wrong, 0);

    struct device_io allocate = range_io(DEVICE_ALLOCATE, 0, DEVICE_PAGES);
    EXPECT_EQ(device_run(f.dev, &allocate, 1), 0);
    EXPECT(device_allocated_bytes(f.dev) >= DEVICE_BYTES);
    EXPECT_EQ(f.dev->info.size_bytes, DEVICE_BYTES);
    EXPECT_EQ(device_write(f.dev, DEVICE_BYTES - PAGE, f.buf, PAGE), 0);
    fixture_fini(&f);
}

static void test_read_only(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    memset(f.buf, 4, PAGE);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, PAGE), 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    fixture_reopen(&f, true);
    REQUIRE(f.dev != NULL);
    EXPECT(f.dev->info.is_read_only);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, PAGE), -EROFS);
    EXPECT_EQ(device_flush(f.dev), -EROFS);
    EXPECT_EQ(device_resize(f.dev, PAGE), -EROFS);
    EXPECT(!f.dev->failed);
    memset(f.buf, 0, PAGE);
    EXPECT_EQ(device_read(f.dev, 0, f.buf, PAGE), 0);
    EXPECT_EQ(f.buf[100], 4);
    fixture_fini(&f);
}

static void test_resize(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    const uint64_t grown_bytes = 100 * DEVICE_BYTES;
    memset(f.buf, 8, PAGE);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, PAGE), 0);
    EXPECT_EQ(device_write(f.dev, 9 * PAGE, f.buf, PAGE), 0);
    EXPECT_EQ(device_resize(f.dev, grown_bytes), 0);
    EXPECT_EQ(f.dev->info.size_bytes, grown_bytes);
    EXPECT_EQ(device_write(f.dev, grown_bytes - PAGE, f.buf, PAGE), 0);
    EXPECT_EQ(device_read(f.dev, 0, f.buf, PAGE), 0);
    EXPECT_EQ(f.buf[0], 8);
    EXPECT_EQ(device_resize(f.dev, 2 * PAGE), 0);
    EXPECT_EQ(device_read(f.dev, 2 * PAGE, f.buf, PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, 0, f.buf, PAGE), 0);
    EXPECT_EQ(f.buf[0], 8);
    EXPECT_EQ(device_resize(f.dev, 10 * PAGE), 0);
    EXPECT_EQ(device_read(f.dev, 9 * PAGE, f.buf, PAGE), 0);
    EXPECT_EQ(f.buf[0], 0); /* what was cut off is gone */
    fixture_fini(&f);
}

/* More threads than there are rings, each with its own part of the device, several operations at once. */
enum { WORKERS = 40, WORKER_PAGES = 16 };

struct worker {
    struct fixture *f;
    uint64_t number;
    int failures;
};

static void worker_run(void *arg)
{
    struct worker *w = arg;
    uint8_t *out = device_buffer_new(WORKER_PAGES * PAGE), *in = device_buffer_new(WORKER_PAGES * PAGE);
    struct iovec iov[WORKER_PAGES];
    struct device_io ios[WORKER_PAGES + 1];
    for (uint64_t round = 0; round < 5; round++) {
        pattern(out, WORKER_PAGES * PAGE, w->number * 100 + round);
        for (size_t i = 0; i < WORKER_PAGES; i++) {
            iov[i] = (struct iovec){.iov_base = out + i * PAGE, .iov_len = PAGE};
            ios[i] = io_of(DEVICE_WRITE, w->number * WORKER_PAGES + i, &iov[i], 1);
        }
        ios[WORKER_PAGES] = (struct device_io){.kind = DEVICE_FLUSH, .after_previous = true};
        w->failures += device_run(w->f->dev, ios, WORKER_PAGES + (round % 2)) != 0;
        for (size_t i = 0; i < WORKER_PAGES; i++) {
            iov[i].iov_base = in + i * PAGE;
            ios[i].kind = DEVICE_READ;
        }
        w->failures += device_run(w->f->dev, ios, WORKER_PAGES) != 0;
        w->failures += memcmp(in, out, WORKER_PAGES * PAGE) != 0;
    }
    device_buffer_free(out);
    device_buffer_free(in);
}

static void workers_run(void *arg)
{
    struct fixture *f = arg;
    static struct worker workers[WORKERS];
    struct env_thread *threads[WORKERS];
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.f = f, .number = i};
        REQUIRE(env_thread_start(f->env, "worker", worker_run, &workers[i], &threads[i]) == 0);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        env_thread_join(threads[i]);
        EXPECT_EQ(workers[i].failures, 0);
    }
}

static void test_many_threads(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    if (target == TARGET_SIM)
        sim_run(f.sim, workers_run, &f);
    else
        workers_run(&f);
    EXPECT_EQ(f.dev->stats.writes, WORKERS * WORKER_PAGES * 5);
    EXPECT_EQ(f.dev->stats.flushes, WORKERS * 2);
    fixture_fini(&f);
}

static bool aborts(struct fixture *f, struct device_io io)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(STDOUT_FILENO);
        (void)close(STDERR_FILENO);
        int ignored = device_run(f->dev, &io, 1);
        _exit(ignored == 0 ? 0 : 1);
    }
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_misuse_aborts(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    struct iovec page = {f.buf, PAGE}, odd_buffer = {f.buf + 512, PAGE}, sector = {f.buf, 512};
    struct device_io io = io_of(DEVICE_READ, 0, &page, 1);
    io.offset_bytes = 512;
    EXPECT(aborts(&f, io));
    EXPECT(aborts(&f, io_of(DEVICE_READ, 0, &odd_buffer, 1)));
    EXPECT(aborts(&f, io_of(DEVICE_WRITE, 0, &sector, 1)));
    io = io_of(DEVICE_WRITE, 0, &page, 1);
    io.length_bytes = 2 * PAGE;
    EXPECT(aborts(&f, io));
    EXPECT(aborts(&f, range_io(DEVICE_PUNCH, 0, 0)));
    EXPECT(aborts(&f, (struct device_io){.kind = DEVICE_FLUSH, .length_bytes = PAGE}));
    EXPECT(!aborts(&f, io_of(DEVICE_READ, 0, &page, 1)));
    fixture_fini(&f);
}

static void test_buffers(void)
{
    uint8_t *buffer = device_buffer_new(1);
    REQUIRE(buffer != NULL);
    EXPECT_EQ((uintptr_t)buffer % DEVICE_ALIGN_BYTES, 0);
    EXPECT_EQ(buffer[0], 0);
    device_buffer_free(buffer);
    EXPECT(device_buffer_new(SIZE_MAX) == NULL);
    device_buffer_free(NULL);
    device_close(NULL);
}

int main(void)
{
    static const char *const names[] = {"plain with O_DIRECT", "plain through the page cache", "io_uring",
                                        "simulation"};
    const char *root = getenv("TMPDIR");
    seed = seed_choose();
    (void)signal(SIGXFSZ, SIG_IGN);
    snprintf(directory, sizeof directory, "%s/ashlar-device-XXXXXX", root != NULL ? root : "/var/tmp");
    if (mkdtemp(directory) == NULL) {
        printf("Bail out! %s: %s\n", directory, strerror(errno));
        return 1;
    }
    for (target = TARGET_PLAIN; target < TARGET_COUNT; target++) {
        printf("# %s\n", names[target]);
        RUN(test_info);
        RUN(test_read_after_write);
        RUN(test_vectors);
        RUN(test_many_in_one_call);
        RUN(test_counters);
        RUN(test_after_previous);
        RUN(test_past_the_end);
        RUN(test_failed_write_is_for_good);
        RUN(test_failed_write_among_several);
        RUN(test_failed_flush_is_for_good);
        RUN(test_file_that_became_short);
        RUN(test_punch_and_allocate);
        RUN(test_read_only);
        RUN(test_resize);
        RUN(test_many_threads);
        RUN(test_misuse_aborts);
    }
    RUN(test_buffers);
    (void)rmdir(directory);
    return tap_done();
}
