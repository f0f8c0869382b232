/*
 * The simulated disk: what a flush promises, what each way of losing power may take, faults, images, accounting.
 */
#include <errno.h>
#include <string.h>

#include "base/math.h"
#include "base/prng.h"
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

static void bench_init(struct bench *b, uint64_t sim_seed)
{
    b->sim = sim_new(sim_seed);
    b->disk = sim_disk_new(b->sim, DISK_PAGES * PAGE, 4096);
    b->dev = sim_disk_open(b->disk, false);
    b->buf = device_buffer_new(DISK_PAGES * PAGE);
}

static void bench_fini(struct bench *b)
{
    device_buffer_free(b->buf);
    device_close(b->dev);
    sim_disk_free(b->disk);
    sim_free(b->sim);
}

static int write_page(struct bench *b, uint64_t page, uint8_t value)
{
    memset(b->buf, value, PAGE);
    return device_write(b->dev, page * PAGE, b->buf, PAGE);
}

/* The value of all bytes of a page, -1 if they differ, -2 if it cannot be read. */
static int read_page(struct bench *b, uint64_t page)
{
    if (device_read(b->dev, page * PAGE, b->buf, PAGE) != 0)
        return -2;
    for (size_t i = 1; i < PAGE; i++)
        if (b->buf[i] != b->buf[0])
            return -1;
    return b->buf[0];
}

static void power_cut(struct bench *b, enum sim_loss loss, uint64_t cut_seed)
{
    sim_disk_power_cut(b->disk, loss, cut_seed);
    device_close(b->dev);
    b->dev = sim_disk_open(b->disk, false);
}

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

static void test_flushed_survives_unflushed_may_not(void)
{
    struct bench b;
    bench_init(&b, seed);
    EXPECT_EQ(write_page(&b, 1, 11), 0);
    EXPECT_EQ(device_flush(b.dev), 0);
    EXPECT_EQ(write_page(&b, 1, 12), 0);
    EXPECT_EQ(write_page(&b, 2, 22), 0);
    power_cut(&b, SIM_LOSS_ALL, seed);
    EXPECT_EQ(read_page(&b, 1), 11);
    EXPECT_EQ(read_page(&b, 2), 0);

    EXPECT_EQ(write_page(&b, 1, 13), 0);
    EXPECT_EQ(write_page(&b, 2, 23), 0);
    power_cut(&b, SIM_LOSS_NONE, seed);
    EXPECT_EQ(read_page(&b, 1), 13);
    EXPECT_EQ(read_page(&b, 2), 23);
    /* What survived a cut is durable. */
    power_cut(&b, SIM_LOSS_ALL, seed);
    EXPECT_EQ(read_page(&b, 2), 23);
    bench_fini(&b);
}

static void test_tear_takes_part_of_the_newest_write(void)
{
    for (uint64_t i = 0; i < 50; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        EXPECT_EQ(write_page(&b, 3, 1), 0);
        EXPECT_EQ(write_page(&b, 4, 2), 0);
        EXPECT_EQ(write_page(&b, 3, 3), 0);
        power_cut(&b, SIM_LOSS_TEAR, seed + i);
        EXPECT_EQ(read_page(&b, 4), 2);
        EXPECT_EQ(read_page(&b, 3), -1);
        for (size_t at = 0; at < PAGE; at++)
            if (b.buf[at] != b.buf[at / SECTOR * SECTOR] || (b.buf[at] != 1 && b.buf[at] != 3))
                tap_fail(__FILE__, __LINE__, "torn inside a sector, or bytes nobody wrote");
        bench_fini(&b);
    }
}

static void test_reorder_keeps_a_suffix(void)
{
    unsigned seen_all = 0, seen_none = 0, seen_suffix = 0;
    for (uint64_t i = 0; i < 100; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        for (uint8_t page = 0; page < 4; page++)
            EXPECT_EQ(write_page(&b, page, 9), 0);
        power_cut(&b, SIM_LOSS_REORDER, seed + i);
        unsigned kept = 0;
        for (uint8_t page = 0; page < 4; page++)
            kept = kept << 1 | (read_page(&b, page) == 9);
        /* Bits from the first write to the last: once one is kept, all later ones are. */
        EXPECT((kept & (kept + 1)) == 0);
        seen_all += kept == 15;
        seen_none += kept == 0;
        seen_suffix += kept == 3;
        bench_fini(&b);
    }
    EXPECT(seen_all > 0);
    EXPECT(seen_none > 0);
    EXPECT(seen_suffix > 0);
}

/*
 * Random writes and flushes; every sector's history since the last flush is known; after a cut of each kind each sector
 * holds one of the values it may hold, never another.
 */
struct history {
    uint16_t durable;
    uint16_t later[40];
    size_t count;
};

struct tally {
    unsigned old, newest, between, torn_pages;
};

static void stamp(uint8_t *sector, uint16_t value)
{
    for (size_t i = 0; i < SECTOR; i += 2)
        memcpy(sector + i, &value, 2);
}

static void check_cut(struct bench *b, const struct history *histories, struct tally *tally)
{
    REQUIRE(device_read(b->dev, 0, b->buf, DISK_PAGES * PAGE) == 0);
    for (size_t s = 0; s < DISK_PAGES * PAGE / SECTOR; s++) {
        uint16_t value;
        uint8_t whole[SECTOR];
        const struct history *h = &histories[s];
        memcpy(&value, b->buf + s * SECTOR, 2);
        stamp(whole, value);
        bool allowed = value == h->durable && memcmp(whole, b->buf + s * SECTOR, SECTOR) == 0;
        tally->old += h->count > 0 && value == h->durable;
        for (size_t i = 0; i < h->count; i++) {
            allowed |= value == h->later[i] && memcmp(whole, b->buf + s * SECTOR, SECTOR) == 0;
            tally->newest += value == h->later[i] && i + 1 == h->count;
            tally->between += value == h->later[i] && i + 1 < h->count;
        }
        tally->torn_pages += s % 8 != 0 && memcmp(b->buf + s * SECTOR, b->buf + (s - 1) * SECTOR, 2) != 0;
        EXPECT(allowed);
    }
}

static void random_steps(struct bench *b, struct prng *prng, struct history *histories, uint16_t *stamp_next)
{
    for (uint64_t steps = 1 + prng_below(prng, 40); steps > 0; steps--) {
        if (prng_chance(prng, 100)) {
            EXPECT_EQ(device_flush(b->dev), 0);
            for (size_t s = 0; s < DISK_PAGES * PAGE / SECTOR; s++) {
                struct history *h = &histories[s];
                if (h->count > 0)
                    h->durable = h->later[h->count - 1];
                h->count = 0;
            }
            continue;
        }
        uint64_t pages = 1 + prng_below(prng, 4), page = prng_below(prng, DISK_PAGES - pages + 1);
        uint16_t value = ++*stamp_next;
        for (size_t s = 0; s < pages * PAGE / SECTOR; s++) {
            struct history *h = &histories[page * PAGE / SECTOR + s];
            stamp(b->buf + s * SECTOR, value);
            h->later[h->count++] = value;
        }
        EXPECT_EQ(device_write(b->dev, page * PAGE, b->buf, pages * PAGE), 0);
    }
}

static void test_cuts_keep_what_they_must(void)
{
    struct prng prng;
    struct tally tallies[SIM_LOSS_TEAR + 1] = {{0}};
    prng_seed(&prng, seed);
    for (int round = 0; round < 300; round++) {
        struct bench b;
        static struct history histories[DISK_PAGES * PAGE / SECTOR];
        uint16_t stamp_next = 0;
        memset(histories, 0, sizeof histories);
        bench_init(&b, prng_u64(&prng));
        random_steps(&b, &prng, histories, &stamp_next);
        enum sim_loss loss = (enum sim_loss)(round % (SIM_LOSS_TEAR + 1));
        power_cut(&b, loss, prng_u64(&prng));
        check_cut(&b, histories, &tallies[loss]);
        bench_fini(&b);
    }
    const struct tally *t = tallies;
    EXPECT(t[SIM_LOSS_RANDOM].old > 100 && t[SIM_LOSS_RANDOM].newest > 100);
    EXPECT(t[SIM_LOSS_RANDOM].between > 10 && t[SIM_LOSS_RANDOM].torn_pages > 100);
    EXPECT(t[SIM_LOSS_ALL].old > 100);
    EXPECT_EQ(t[SIM_LOSS_ALL].newest + t[SIM_LOSS_ALL].between + t[SIM_LOSS_ALL].torn_pages, 0);
    EXPECT(t[SIM_LOSS_NONE].newest > 100);
    EXPECT_EQ(t[SIM_LOSS_NONE].old + t[SIM_LOSS_NONE].between + t[SIM_LOSS_NONE].torn_pages, 0);
    EXPECT(t[SIM_LOSS_REORDER].old > 100 && t[SIM_LOSS_REORDER].newest > 100);
    EXPECT_EQ(t[SIM_LOSS_REORDER].between + t[SIM_LOSS_REORDER].torn_pages, 0);
    EXPECT(t[SIM_LOSS_TEAR].newest > 100 && t[SIM_LOSS_TEAR].torn_pages > 10);
}

/* A writer that begins at time 0 and a flusher that begins at a given time; operations take 100 microseconds. */
struct race {
    struct bench *b;
    uint64_t flush_at_ns;
};

static void race_writer(void *arg)
{
    struct race *race = arg;
    uint8_t *buf = device_buffer_new(PAGE);
    memset(buf, 7, PAGE);
    EXPECT_EQ(device_write(race->b->dev, PAGE, buf, PAGE), 0);
    device_buffer_free(buf);
}

static void race_run(void *arg)
{
    struct race *race = arg;
    struct env *env = sim_env(race->b->sim);
    struct env_thread *thread;
    REQUIRE(env_thread_start(env, "writer", race_writer, race, &thread) == 0);
    env_sleep_ns(env, race->flush_at_ns);
    EXPECT_EQ(device_flush(race->b->dev), 0);
    env_thread_join(thread);
}

static int race_outcome(uint64_t flush_at_ns)
{
    struct bench b;
    bench_init(&b, seed);
    sim_disk_set_latency(b.disk, 100000, 100000);
    struct race race = {.b = &b, .flush_at_ns = flush_at_ns};
    sim_run(b.sim, race_run, &race);
    power_cut(&b, SIM_LOSS_ALL, seed);
    int value = read_page(&b, 1);
    bench_fini(&b);
    return value;
}

static void test_flush_covers_only_what_was_completed_when_it_began(void)
{
    EXPECT_EQ(race_outcome(50000), 0);
    EXPECT_EQ(race_outcome(99999), 0);
    EXPECT_EQ(race_outcome(100001), 7);
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

/* The write in flight when the machine goes off: kept, lost or torn. */
static void test_in_flight_write_may_survive(void)
{
    unsigned kept = 0, lost = 0, torn = 0;
    for (uint64_t i = 0; i < 100; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        struct hook_log log = {.b = &b, .off_at = 1};
        sim_disk_set_hook(b.disk, hook, &log);
        EXPECT_EQ(write_page(&b, 0, 1), -EIO);
        power_cut(&b, SIM_LOSS_RANDOM, seed + i);
        int value = read_page(&b, 0);
        kept += value == 1;
        lost += value == 0;
        torn += value == -1;
        bench_fini(&b);
    }
    EXPECT(kept > 0);
    EXPECT(lost > 0);
    EXPECT(torn > 0);
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

/* As Linux does it: after a failed fsync the pages are clean, and the next fsync says nothing. */
static void test_failed_flush_drops_the_writes(void)
{
    unsigned kept = 0, not_kept = 0;
    for (uint64_t i = 0; i < 60; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        sim_disk_fail(b.disk, DEVICE_FLUSH, 1, -EIO, false);
        EXPECT_EQ(write_page(&b, 0, 1), 0);
        EXPECT_EQ(device_flush(b.dev), -EIO);
        EXPECT_EQ(read_page(&b, 0), 1);
        EXPECT_EQ(device_flush(b.dev), -EIO); /* sticky: not asked again */
        struct device *other = sim_disk_open(b.disk, false);
        EXPECT_EQ(device_flush(other), 0);
        EXPECT_EQ(device_write(other, PAGE, b.buf, PAGE), 0);
        EXPECT_EQ(device_flush(other), 0);
        device_close(other);
        power_cut(&b, i % 2 ? SIM_LOSS_NONE : SIM_LOSS_RANDOM, seed + i);
        int value = read_page(&b, 0);
        kept += value == 1;
        not_kept += value != 1;
        EXPECT_EQ(read_page(&b, 1), 1);
        bench_fini(&b);
    }
    EXPECT(kept > 0);
    EXPECT(not_kept > 0);
}

/* What was written again and flushed is not undone by what an older, failed flush left behind. */
static void test_orphan_is_superseded(void)
{
    for (uint64_t i = 0; i < 40; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        sim_disk_fail(b.disk, DEVICE_FLUSH, 1, -EIO, false);
        EXPECT_EQ(write_page(&b, 0, 1), 0);
        EXPECT_EQ(device_flush(b.dev), -EIO);
        device_close(b.dev);
        b.dev = sim_disk_open(b.disk, false);
        EXPECT_EQ(write_page(&b, 0, 2), 0);
        EXPECT_EQ(device_flush(b.dev), 0);
        power_cut(&b, SIM_LOSS_RANDOM, seed + i);
        EXPECT_EQ(read_page(&b, 0), 2);
        bench_fini(&b);
    }
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

/* Tearing a write that is smaller than the physical sector damages its neighbours; losing it whole does not. */
static void test_physical_sector(void)
{
    unsigned damaged = 0;
    for (uint64_t i = 0; i < 40; i++) {
        struct sim *sim = sim_new(seed + i);
        struct bench b = {.sim = sim, .disk = sim_disk_new(sim, DISK_PAGES * PAGE, 16384)};
        b.dev = sim_disk_open(b.disk, false);
        b.buf = device_buffer_new(DISK_PAGES * PAGE);
        EXPECT_EQ(b.dev->info.physical_sector_bytes, 16384);
        for (uint8_t page = 0; page < 12; page++)
            EXPECT_EQ(write_page(&b, page, 1), 0);
        EXPECT_EQ(device_flush(b.dev), 0);
        EXPECT_EQ(write_page(&b, 5, 2), 0);
        power_cut(&b, SIM_LOSS_TEAR, seed + i);
        damaged += read_page(&b, 4) != 1 && read_page(&b, 6) != 1 && read_page(&b, 7) != 1;
        EXPECT_EQ(read_page(&b, 3), 1);
        EXPECT_EQ(read_page(&b, 8), 1);
        bench_fini(&b);
    }
    EXPECT_EQ(damaged, 40);
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
    RUN(test_flushed_survives_unflushed_may_not);
    RUN(test_tear_takes_part_of_the_newest_write);
    RUN(test_reorder_keeps_a_suffix);
    RUN(test_cuts_keep_what_they_must);
    RUN(test_flush_covers_only_what_was_completed_when_it_began);
    RUN(test_switched_off);
    RUN(test_in_flight_write_may_survive);
    RUN(test_image);
    RUN(test_ordered_failures);
    RUN(test_failed_flush_drops_the_writes);
    RUN(test_orphan_is_superseded);
    RUN(test_lost_and_misdirected_writes);
    RUN(test_corruption);
    RUN(test_space);
    RUN(test_punch);
    RUN(test_physical_sector);
    RUN(test_trace);
    RUN(test_order_of_completion);
    return tap_done();
}
