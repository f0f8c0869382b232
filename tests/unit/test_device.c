/*
 * Conformance: the same checks on every implementation of a device. What holds here is what device.h promises to the
 * floors above, whichever device they get. What fails, and how, is in test_device_failure.c.
 */
#include "test_device_fixture.h"

#define LONG_VECTOR 1500

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

static void checks(void)
{
    RUN(test_info);
    RUN(test_read_after_write);
    RUN(test_vectors);
    RUN(test_many_in_one_call);
    RUN(test_counters);
    RUN(test_after_previous);
    RUN(test_punch_and_allocate);
    RUN(test_read_only);
    RUN(test_resize);
    RUN(test_many_threads);
    RUN(test_buffers);
}

int main(void)
{
    return conformance_main(checks);
}
