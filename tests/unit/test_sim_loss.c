/*
 * What a flush of a simulated disk promises, and what each way of losing power may take.
 */
#include "base/prng.h"
#include "test_sim_fixture.h"

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

static void switch_off(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    (void)arg, (void)number, (void)io;
    sim_disk_switch_off(disk);
}

/* The write in flight when the machine goes off: kept, lost or torn. */
static void test_in_flight_write_may_survive(void)
{
    unsigned kept = 0, lost = 0, torn = 0;
    for (uint64_t i = 0; i < 100; i++) {
        struct bench b;
        bench_init(&b, seed + i);
        sim_disk_set_hook(b.disk, switch_off, NULL);
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

int main(void)
{
    seed = seed_choose();
    RUN(test_flushed_survives_unflushed_may_not);
    RUN(test_tear_takes_part_of_the_newest_write);
    RUN(test_reorder_keeps_a_suffix);
    RUN(test_cuts_keep_what_they_must);
    RUN(test_flush_covers_only_what_was_completed_when_it_began);
    RUN(test_in_flight_write_may_survive);
    RUN(test_failed_flush_drops_the_writes);
    RUN(test_orphan_is_superseded);
    RUN(test_physical_sector);
    return tap_done();
}
