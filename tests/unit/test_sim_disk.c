/*
 * The simulated disk: hooks, images, faults, accounting, the trace. What a power cut takes is in test_sim_loss.c.
 */
#include "base/prng.h"
#include "test_sim_fixture.h"

static void test_read_after_write(void)
{
    struct bench b;
    bench_init(&b, seed);
    EXPECT_EQ(read_page(&b, 5), 0);
    EXPECT_EQ(write_page(&b, 5, 0xa5), 0);
    EXPECT_EQ(read_page(&b, 5), 0xa5);
    EXPECT_EQ(read_page(&b, 4), 0);
    uint8_t bytes[3] = {0};
    sim_disk_peek(b.disk, 5 * PAGE - 1, bytes, 2);
    EXPECT_EQ(bytes[0], 0);
    EXPECT_EQ(bytes[1], 0xa5);
    EXPECT_EQ(sim_disk_step_count(b.disk), 1);
    bench_fini(&b);
}

struct hook_log {
    struct bench *b;
    uint64_t numbers, off_at, image_at;
    struct sim_image *image;
};

static void hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct hook_log *log = arg;
    EXPECT_EQ(number, log->numbers + 1);
    EXPECT(io->kind != DEVICE_READ);
    log->numbers = number;
    if (number == log->image_at)
        log->image = sim_disk_image(disk);
    if (number == log->off_at)
        sim_disk_switch_off(disk);
}

static void test_switched_off(void)
{
    struct bench b;
    bench_init(&b, seed);
    struct hook_log log = {.b = &b, .off_at = 3};
    sim_disk_set_hook(b.disk, hook, &log);
    EXPECT_EQ(write_page(&b, 0, 1), 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    EXPECT_EQ(write_page(&b, 0, 2), -EIO);
    EXPECT_EQ(write_page(&b, 1, 2), -EIO);
    EXPECT_EQ(device_flush(b.dev), -EIO);
    EXPECT_EQ(device_read(b.dev, 0, b.buf, PAGE), -EIO);
    EXPECT_EQ(log.numbers, 3);
    EXPECT_EQ(sim_disk_step_count(b.disk), 3);
    power_cut(&b, SIM_LOSS_ALL, seed);
    EXPECT_EQ(read_page(&b, 0), 1);
    EXPECT_EQ(write_page(&b, 0, 3), 0);
    EXPECT_EQ(read_page(&b, 0), 3);
    bench_fini(&b);
}

static void test_image(void)
{
    struct bench b;
    bench_init(&b, seed);
    struct hook_log log = {.b = &b, .image_at = 3};
    sim_disk_set_hook(b.disk, hook, &log);
    EXPECT_EQ(write_page(&b, 0, 1), 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    EXPECT_EQ(write_page(&b, 0, 2), 0); /* the image is taken before this has an effect */
    EXPECT_EQ(write_page(&b, 0, 3), 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    REQUIRE(log.image != NULL);

    struct bench c = {.buf = b.buf};
    c.sim = sim_new(seed);
    for (int cut = 0; cut < 2; cut++) {
        c.disk = sim_disk_from_image(c.sim, log.image);
        if (cut)
            sim_disk_power_cut(c.disk, SIM_LOSS_ALL, 0);
        c.dev = sim_disk_open(c.disk, false);
        EXPECT_EQ(read_page(&c, 0), 1);
        EXPECT_EQ(write_page(&c, 0, 9), 0);
        device_close(c.dev);
        sim_disk_free(c.disk);
    }
    sim_free(c.sim);
    EXPECT_EQ(read_page(&b, 0), 3);

    /* An image keeps what is unflushed unflushed. */
    EXPECT_EQ(write_page(&b, 0, 4), 0);
    struct sim_image *image = sim_disk_image(b.disk);
    c.sim = sim_new(seed);
    c.disk = sim_disk_from_image(c.sim, image);
    c.dev = sim_disk_open(c.disk, false);
    EXPECT_EQ(read_page(&c, 0), 4);
    power_cut(&c, SIM_LOSS_ALL, 0);
    EXPECT_EQ(read_page(&c, 0), 3);
    device_close(c.dev);
    sim_disk_free(c.disk);
    c.disk = sim_disk_from_image(c.sim, image);
    c.dev = sim_disk_open(c.disk, false);
    EXPECT_EQ(device_flush(c.dev), 0);
    power_cut(&c, SIM_LOSS_ALL, 0);
    EXPECT_EQ(read_page(&c, 0), 4);
    device_close(c.dev);
    sim_disk_free(c.disk);
    sim_free(c.sim);
    sim_image_free(image);
    sim_image_free(log.image);
    bench_fini(&b);
}

static void test_ordered_failures(void)
{
    struct bench b;
    bench_init(&b, seed);
    sim_disk_fail(b.disk, DEVICE_READ, 2, -EIO, false);
    EXPECT_EQ(read_page(&b, 0), 0);
    EXPECT_EQ(read_page(&b, 0), -2);
    EXPECT_EQ(read_page(&b, 0), 0);
    sim_disk_fail(b.disk, DEVICE_WRITE, 3, -ENOSPC, false);
    EXPECT_EQ(write_page(&b, 1, 1), 0);
    EXPECT_EQ(write_page(&b, 1, 2), 0);
    EXPECT_EQ(write_page(&b, 1, 3), -ENOSPC);
    EXPECT_EQ(write_page(&b, 1, 4), -EIO); /* the device is failed */
    int value = read_page(&b, 1);          /* reads go on, and see old, new or a mixture */
    EXPECT(value == 2 || value == 3 || value == -1);
    device_close(b.dev);
    b.dev = sim_disk_open(b.disk, false);
    EXPECT_EQ(write_page(&b, 1, 5), 0);

    sim_disk_fail(b.disk, DEVICE_READ, 1, -EIO, true);
    EXPECT_EQ(read_page(&b, 0), -2);
    EXPECT_EQ(read_page(&b, 0), -2);
    bench_fini(&b);
}

static void test_lost_and_misdirected_writes(void)
{
    struct bench b;
    bench_init(&b, seed);
    sim_disk_lose_write(b.disk, 1);
    sim_disk_misdirect(b.disk, 2, 9 * PAGE);
    EXPECT_EQ(write_page(&b, 1, 1), 0);
    EXPECT_EQ(write_page(&b, 2, 2), 0);
    EXPECT_EQ(write_page(&b, 3, 3), 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    power_cut(&b, SIM_LOSS_ALL, seed);
    EXPECT_EQ(read_page(&b, 1), 0);
    EXPECT_EQ(read_page(&b, 2), 0);
    EXPECT_EQ(read_page(&b, 9), 2);
    EXPECT_EQ(read_page(&b, 3), 3);
    bench_fini(&b);
}

static void test_corruption(void)
{
    struct bench b;
    bench_init(&b, seed);
    const uint8_t bad[] = {1, 2, 3};
    EXPECT_EQ(write_page(&b, 0, 8), 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    EXPECT_EQ(write_page(&b, 1, 8), 0);
    /* Across the border of a durable page and a cached one. */
    sim_disk_corrupt(b.disk, PAGE - 1, 3, bad, 0);
    uint8_t got[5];
    sim_disk_peek(b.disk, PAGE - 2, got, sizeof got);
    EXPECT(memcmp(got, (const uint8_t[]){8, 1, 2, 3, 8}, 5) == 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    power_cut(&b, SIM_LOSS_ALL, seed);
    sim_disk_peek(b.disk, PAGE - 2, got, sizeof got);
    EXPECT(memcmp(got, (const uint8_t[]){8, 1, 2, 3, 8}, 5) == 0);

    EXPECT_EQ(write_page(&b, 2, 8), 0);
    sim_disk_corrupt(b.disk, 2 * PAGE, PAGE, NULL, seed);
    EXPECT_EQ(device_read(b.dev, 2 * PAGE, b.buf, PAGE), 0);
    for (size_t i = 0; i < PAGE; i++)
        if (b.buf[i] == 8)
            tap_fail(__FILE__, __LINE__, "a byte kept its value");
    bench_fini(&b);
}

static int space_io(struct bench *b, enum device_io_kind kind, uint64_t page, uint64_t pages)
{
    struct device_io io = {.kind = kind, .offset_bytes = page * PAGE, .length_bytes = pages * PAGE};
    return device_run(b->dev, &io, 1);
}

static void test_space(void)
{
    struct bench b;
    bench_init(&b, seed);
    EXPECT_EQ(sim_disk_allocated_bytes(b.disk), 0);
    EXPECT_EQ(write_page(&b, 0, 1), 0);
    EXPECT_EQ(write_page(&b, 0, 2), 0);
    EXPECT_EQ(sim_disk_allocated_bytes(b.disk), PAGE);
    EXPECT_EQ(space_io(&b, DEVICE_ALLOCATE, 0, 4), 0);
    EXPECT_EQ(sim_disk_allocated_bytes(b.disk), 4 * PAGE);
    EXPECT_EQ(device_allocated_bytes(b.dev), 4 * PAGE);
    sim_disk_set_capacity(b.disk, 5 * PAGE);
    EXPECT_EQ(space_io(&b, DEVICE_ALLOCATE, 3, 3), -ENOSPC);
    EXPECT_EQ(sim_disk_allocated_bytes(b.disk), 4 * PAGE);
    EXPECT_EQ(write_page(&b, 1, 1), 0); /* what is allocated can be written */
    EXPECT_EQ(write_page(&b, 7, 1), 0);
    EXPECT_EQ(space_io(&b, DEVICE_PUNCH, 0, 2), 0);
    EXPECT_EQ(sim_disk_allocated_bytes(b.disk), 3 * PAGE);
    EXPECT_EQ(space_io(&b, DEVICE_ALLOCATE, 8, 2), 0);
    EXPECT_EQ(write_page(&b, 20, 1), -ENOSPC);
    EXPECT_EQ(write_page(&b, 7, 1), -EIO); /* that was a failed write, and is for good */
    bench_fini(&b);
}

/* A punched range reads as zeroes or as before; both happen. Unflushed, it may be there again after a power cut. */
static void test_punch(void)
{
    unsigned zero = 0, old = 0, back = 0, gone = 0;
    for (uint64_t i = 0; i < 60; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        EXPECT_EQ(write_page(&b, 0, 6), 0);
        EXPECT_EQ(device_flush(b.dev), 0);
        EXPECT_EQ(space_io(&b, DEVICE_PUNCH, 0, 1), 0);
        EXPECT_EQ(sim_disk_allocated_bytes(b.disk), 0);
        int value = read_page(&b, 0);
        EXPECT(value == 0 || value == 6);
        zero += value == 0;
        old += value == 6;
        if (value == 0) {
            power_cut(&b, SIM_LOSS_RANDOM, seed + i);
            back += read_page(&b, 0) == 6;
            gone += read_page(&b, 0) == 0;
        }
        bench_fini(&b);
    }
    EXPECT(zero > 0);
    EXPECT(old > 0);
    EXPECT(back > 0);
    EXPECT(gone > 0);
}

static void write_some(void *arg)
{
    struct bench *b = arg;
    uint8_t *buf = device_buffer_new(PAGE);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t random;
        env_random(sim_env(b->sim), &random, sizeof random);
        memset(buf, (int)(random & 0xff), PAGE);
        EXPECT_EQ(device_write(b->dev, random % DISK_PAGES * PAGE, buf, PAGE), 0);
        if (random % 5 == 0)
            EXPECT_EQ(device_flush(b->dev), 0);
        EXPECT_EQ(device_read(b->dev, random / 7 % DISK_PAGES * PAGE, buf, PAGE), 0);
    }
    device_buffer_free(buf);
}

static void run_writers(void *arg)
{
    struct bench *b = arg;
    struct env_thread *threads[4];
    for (int i = 0; i < 4; i++)
        REQUIRE(env_thread_start(sim_env(b->sim), "writer", write_some, b, &threads[i]) == 0);
    for (int i = 0; i < 4; i++)
        env_thread_join(threads[i]);
}

static uint64_t writers_trace(uint64_t sim_seed, uint8_t first_byte)
{
    struct bench b;
    bench_init(&b, sim_seed);
    EXPECT_EQ(write_page(&b, 0, first_byte), 0);
    sim_run(b.sim, run_writers, &b);
    uint64_t hash = sim_trace_hash(b.sim);
    bench_fini(&b);
    return hash;
}

static void test_trace(void)
{
    uint64_t hash = writers_trace(seed, 1);
    EXPECT_EQ(writers_trace(seed, 1), hash);
    EXPECT(writers_trace(seed + 1, 1) != hash);
    EXPECT(writers_trace(seed, 2) != hash); /* the bytes count */
}

/* In flight together: operations of one call and of many fibers, completed in any order. */
static void test_order_of_completion(void)
{
    unsigned first_wins = 0, second_wins = 0;
    for (uint64_t i = 0; i < 50; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        memset(b.buf, 1, PAGE);
        memset(b.buf + PAGE, 2, PAGE);
        struct iovec iov[2] = {{b.buf, PAGE}, {b.buf + PAGE, PAGE}};
        struct device_io ios[2];
        for (int k = 0; k < 2; k++)
            ios[k] = (struct device_io){.kind = DEVICE_WRITE, .length_bytes = PAGE, .iov = &iov[k], .iov_count = 1};
        EXPECT_EQ(device_run(b.dev, ios, 2), 0);
        int value = read_page(&b, 0);
        first_wins += value == 1;
        second_wins += value == 2;
        bench_fini(&b);
    }
    EXPECT(first_wins > 0);
    EXPECT(second_wins > 0);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_read_after_write);
    RUN(test_switched_off);
    RUN(test_image);
    RUN(test_ordered_failures);
    RUN(test_lost_and_misdirected_writes);
    RUN(test_corruption);
    RUN(test_space);
    RUN(test_punch);
    RUN(test_trace);
    RUN(test_order_of_completion);
    return tap_done();
}
