/*
 * A device that fails (R30). The n-th write or flush fails, for every n that the scenario reaches: the pool is failed
 * for good, waiting and later requests get EIO, no flush is tried again, nothing more is written, reads of durable data
 * go on, and an open after a power cut finds every promise kept. No room in the host's file system is not a failure. A
 * failed read harms nobody else.
 */
#include "tap.h"

#include <errno.h>

#include "base/check.h"
#include "base/error.h"
#include "crash/judge.h"
#include "format/limits.h"
#include "model/driver.h"
#include "sim/rig.h"

#define RECORD 16384
#define STEPS 14

struct scene {
    struct rig r;
    struct oracle *o;
    uint64_t values[RIG_SIZE_BYTES / SECTOR_BYTES];
    int results[STEPS];
    int first_error; /* index of the step; STEPS: none */
};

static void scene_tell_create(struct scene *c)
{
    unsigned told = oracle_begin(
        c->o,
        &(struct oracle_args){
            .kind = ORACLE_CREATE, .volume = 0, .name = "v0", .size_bytes = RIG_SIZE_BYTES, .record_bytes = RECORD});
    oracle_end(c->o, told, 0);
}

static int scene_write(struct scene *c, uint64_t record, uint64_t bytes, uint64_t stamp, unsigned flags)
{
    static uint8_t data[4 * RECORD];
    CHECK_LE(bytes, sizeof(data));
    pattern_fill(data, bytes, stamp, PATTERN_NOISE);
    for (uint64_t i = 0; i < bytes / SECTOR_BYTES; i++)
        c->values[i] = sector_value(data + i * SECTOR_BYTES);
    unsigned told = oracle_begin(c->o, &(struct oracle_args){.kind = ORACLE_WRITE,
                                                             .volume = 0,
                                                             .first = record * RECORD / SECTOR_BYTES,
                                                             .count = bytes / SECTOR_BYTES,
                                                             .values = c->values,
                                                             .durable = (flags & VOLUME_FUA) != 0});
    int result = c->r.s->ops->write(c->r.s, 0, record * RECORD, data, bytes, flags);
    oracle_end(c->o, told, result);
    return result;
}

static int scene_flush(struct scene *c, enum oracle_kind kind, bool checkpoint)
{
    unsigned told = oracle_begin(c->o, &(struct oracle_args){.kind = kind});
    int result = checkpoint             ? c->r.s->ops->checkpoint(c->r.s)
                 : kind == ORACLE_FLUSH ? c->r.s->ops->flush(c->r.s, 0)
                                        : c->r.s->ops->flush_all(c->r.s);
    oracle_end(c->o, told, result);
    return result;
}

static int scene_trim(struct scene *c, uint64_t record, unsigned flags)
{
    unsigned told = oracle_begin(c->o, &(struct oracle_args){.kind = ORACLE_ZERO,
                                                             .volume = 0,
                                                             .first = record * RECORD / SECTOR_BYTES,
                                                             .count = RECORD / SECTOR_BYTES,
                                                             .durable = (flags & VOLUME_FUA) != 0});
    int result = c->r.s->ops->trim(c->r.s, 0, record * RECORD, RECORD, flags);
    oracle_end(c->o, told, result);
    return result;
}

static int scene_step(struct scene *c, unsigned step)
{
    switch (step) {
    case 0:
        return scene_write(c, 0, 4 * RECORD, 11, 0);
    case 1:
        return scene_flush(c, ORACLE_FLUSH, false);
    case 2:
        return scene_write(c, 1, RECORD, 12, VOLUME_FUA);
    case 3:
        return scene_write(c, 2, 4096, 13, VOLUME_FUA);
    case 4:
        return scene_write(c, 3, RECORD, 14, 0);
    case 5:
        return scene_trim(c, 0, VOLUME_FUA);
    case 6:
        return scene_flush(c, ORACLE_FLUSH_ALL, true);
    case 7:
        return scene_write(c, 4, 3 * RECORD, 15, 0);
    case 8:
        return scene_flush(c, ORACLE_FLUSH_ALL, false);
    case 9:
        return scene_write(c, 1, RECORD, 16, VOLUME_FUA);
    case 10:
        return scene_trim(c, 5, 0);
    case 11:
        return scene_write(c, 7, 4096, 17, 0);
    case 12:
        return scene_flush(c, ORACLE_FLUSH, false);
    default:
        return scene_write(c, 8, RECORD, 18, VOLUME_FUA);
    }
}

static bool scene_start(struct scene *c, uint64_t seed)
{
    *c = (struct scene){.o = oracle_new(), .first_error = STEPS};
    rig_init(&c->r);
    c->r.options.seed = seed;
    if (!rig_start(&c->r, 1, RECORD))
        return false;
    scene_tell_create(c);
    return true;
}

static void scene_end(struct scene *c)
{
    rig_end(&c->r);
    oracle_free(c->o);
}

static void scene_play(struct scene *c)
{
    for (unsigned i = 0; i < STEPS; i++) {
        c->results[i] = scene_step(c, i);
        if (c->results[i] != 0 && c->first_error == STEPS)
            c->first_error = (int)i;
    }
}

/* After the failure: reads answer right or EIO, and right where the newest version is durable. */
static void scene_expect_reads(struct scene *c)
{
    for (uint64_t record = 0; record < 12; record++) {
        static uint8_t data[RECORD];
        uint64_t began = oracle_read_begin(c->o), first = record * RECORD / SECTOR_BYTES;
        int result = c->r.s->ops->read(c->r.s, 0, record * RECORD, data, RECORD);
        for (uint64_t i = 0; i < RECORD / SECTOR_BYTES; i++)
            c->values[i] = sector_value(data + i * SECTOR_BYTES);
        bool right = result == 0 && oracle_read_end(c->o, began, 0, first, RECORD / SECTOR_BYTES, c->values, &c->r.why);
        EXPECT(right || result == -EIO);
        if (record >= 10)
            EXPECT_EQ(result, 0); /* never written: a hole reads whatever happened */
    }
}

static void scene_expect_recovery(struct scene *c, uint64_t seed)
{
    struct text why = {0};
    int loss = loss_list[seed % (LOSS_COUNT - 1)];
    struct sim_image *image = sim_disk_image(store_pool_disk(c->r.s)); /* without the fault */
    struct store *s = store_pool_from_image(&c->r.options, image, loss, seed, NULL, NULL, &why);
    struct recovered found = {0};
    bool good =
        s != NULL && recovered_check(s, c->o, false, &found, &why) && store_pool_check(store_pool_disk(s), &why);
    EXPECT(good);
    if (!good)
        printf("# %s after a failed device: %s\n", loss_name(loss), why.bytes);
    recovered_free(&found);
    sim_image_free(image);
    if (s != NULL)
        s->ops->free(s);
    text_free(&why);
}

/* The n-th operation of that kind fails. Returns whether it was reached. */
static bool failure_scene(enum device_io_kind kind, uint64_t nth, int error)
{
    struct scene c;
    bool started = scene_start(&c, nth);
    EXPECT(started);
    if (!started)
        return false;
    sim_disk_fail(store_pool_disk(c.r.s), kind, nth, error, false);
    scene_play(&c);
    if (c.first_error < STEPS) {
        for (unsigned i = (unsigned)c.first_error; i < STEPS; i++)
            EXPECT_EQ(c.results[i], -EIO);
        EXPECT(rig_info(&c.r).failed);
        struct pool_info before = rig_info(&c.r);
        scene_expect_reads(&c);
        EXPECT_EQ(c.r.s->ops->flush(c.r.s, 0), -EIO);
        struct error err = {0};
        EXPECT_EQ(volume_rename(store_pool_pool(c.r.s), "v0", "w", &err), -EIO);
        uint64_t steps = sim_disk_step_count(store_pool_disk(c.r.s));
        struct pool_info after = rig_info(&c.r);
        EXPECT_EQ(after.device.flushes, before.device.flushes);
        EXPECT_EQ(after.device.writes, before.device.writes);
        struct text why = {0};
        EXPECT(store_pool_close(c.r.s, &why) != 0);
        text_free(&why);
        EXPECT_EQ(sim_disk_step_count(store_pool_disk(c.r.s)), steps);
    }
    bool reached = c.first_error < STEPS;
    scene_expect_recovery(&c, nth);
    scene_end(&c);
    return reached;
}

static void failures_until_untouched(enum device_io_kind kind, int error, const char *what)
{
    uint64_t nth = 1;
    while (nth < 400 && failure_scene(kind, nth, error))
        nth++;
    printf("# %s: %" PRIu64 " places\n", what, nth - 1);
    EXPECT(nth > 5);
    EXPECT(nth < 400);
}

static void test_each_failed_write(void)
{
    failures_until_untouched(DEVICE_WRITE, -EIO, "failed writes");
}

static void test_each_failed_flush(void)
{
    failures_until_untouched(DEVICE_FLUSH, -EIO, "failed flushes");
}

static void test_write_that_fails_for_space_is_a_failure(void)
{
    EXPECT(failure_scene(DEVICE_WRITE, 3, -ENOSPC));
}

/* ---- waiting requests ---- */

#define WAITERS 10

struct waiting {
    struct rig *r;
    struct env_thread *threads[WAITERS];
    int results[WAITERS][6];
    unsigned next;
};

static void waiter_run(void *arg)
{
    struct waiting *w = arg;
    unsigned me = w->next++;
    for (unsigned i = 0; i < 6; i++)
        w->results[me][i] = rig_write(w->r, 0, (uint64_t)me * RECORD, 4096, me * 8 + i + 1, VOLUME_FUA);
}

static void waiting_run(void *arg)
{
    struct waiting *w = arg;
    struct env *env = sim_env(store_pool_sim(w->r->s));
    EXPECT_EQ(w->r->s->ops->create(w->r->s, 0, "v0", RIG_SIZE_BYTES, RECORD, (struct codec_choice){0}), 0);
    sim_disk_fail(store_pool_disk(w->r->s), DEVICE_FLUSH, 3, -EIO, false);
    for (unsigned i = 0; i < WAITERS; i++)
        CHECK_EQ(env_thread_start(env, "waiter", waiter_run, w, &w->threads[i]), 0);
    for (unsigned i = 0; i < WAITERS; i++)
        env_thread_join(w->threads[i]);
    EXPECT(rig_info(w->r).failed);
    EXPECT_EQ(rig_write(w->r, 0, 0, 4096, 99, 0), -EIO);
}

static void test_waiting_requests_get_the_error(void)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct rig r;
        rig_init(&r);
        r.options.fibers = true;
        r.options.worker_count = 2;
        r.options.seed = seed;
        REQUIRE(rig_start(&r, 0, RECORD));
        struct waiting w = {.r = &r};
        r.s->ops->run(r.s, waiting_run, &w);
        for (unsigned i = 0; i < WAITERS; i++) {
            bool failed = false;
            for (unsigned k = 0; k < 6; k++) {
                EXPECT(w.results[i][k] == 0 || w.results[i][k] == -EIO);
                EXPECT(!(failed && w.results[i][k] == 0));
                failed = failed || w.results[i][k] != 0;
            }
            EXPECT(failed);
        }
        EXPECT(rig_crash(&r, SIM_LOSS_ALL, seed));
        for (unsigned i = 0; i < WAITERS; i++) {
            unsigned good = 0;
            while (good < 6 && w.results[i][good] == 0)
                good++;
            uint8_t bytes[4096], want[4096];
            EXPECT_EQ(r.s->ops->read(r.s, 0, (uint64_t)i * RECORD, bytes, sizeof(bytes)), 0);
            bool found = good == 0 && bytes_are_zero(bytes, sizeof(bytes));
            for (unsigned k = good == 0 ? 0 : good - 1; k < 6 && !found; k++) {
                pattern_fill(want, sizeof(want), i * 8 + k + 1, PATTERN_NOISE);
                found = memcmp(bytes, want, sizeof(want)) == 0;
            }
            EXPECT(found);
        }
        rig_end(&r);
    }
}

/* ---- no room in the host's file system; reads ---- */

static void test_host_without_room(void)
{
    struct rig r;
    rig_init(&r);
    REQUIRE(rig_start(&r, 1, RECORD));
    sim_disk_set_capacity(store_pool_disk(r.s), sim_disk_allocated_bytes(store_pool_disk(r.s)));
    int result = 0;
    uint64_t accepted = 0;
    for (uint64_t i = 0; i < 4096 && result == 0; i++) {
        uint64_t at = i * RECORD % RIG_SIZE_BYTES;
        result = rig_write(&r, 0, at, RECORD, i + 1, VOLUME_FUA);
        accepted += result == 0;
    }
    EXPECT_EQ(result, -ENOSPC);
    EXPECT(!rig_info(&r).failed);
    EXPECT_EQ(r.s->ops->flush(r.s, 0), 0);
    printf("# %" PRIu64 " writes were accepted without further room\n", accepted);
    /* Trims give room back; a change of the catalog is made or refused; neither fails the pool. */
    for (unsigned i = 0; i < 40; i++) {
        EXPECT_EQ(r.s->ops->trim(r.s, 0, i % 32 * RECORD, RECORD, VOLUME_FUA), 0);
        result = r.s->ops->create(r.s, 1, "more", RIG_SIZE_BYTES, RECORD, (struct codec_choice){0});
        EXPECT(result == 0 || result == -ENOSPC);
        if (result == 0)
            EXPECT_EQ(r.s->ops->destroy(r.s, 1), 0);
        if (i % 3 == 0)
            (void)rig_write(&r, 0, i % 32 * RECORD, RECORD, i + 1, 0);
        EXPECT(!rig_info(&r).failed);
    }
    sim_disk_set_capacity(store_pool_disk(r.s), UINT64_MAX);
    EXPECT_EQ(rig_write(&r, 0, 0, RECORD, 7777, VOLUME_FUA), 0);
    EXPECT(rig_crash(&r, SIM_LOSS_ALL, 1));
    EXPECT(rig_reads(&r, 0, 0, RECORD, 7777));
    EXPECT(rig_check(&r));
    rig_end(&r);
}

static void test_failed_read_harms_nobody_else(void)
{
    struct rig r;
    rig_init(&r);
    REQUIRE(rig_start(&r, 1, RECORD));
    EXPECT_EQ(rig_write(&r, 0, 0, 4 * RECORD, 3, VOLUME_FUA), 0);
    EXPECT_EQ(r.s->ops->reopen(r.s, &r.why), 0);
    for (uint64_t i = 1; i <= 1000; i++) /* a read may be tried again, and nodes have a second copy */
        sim_disk_fail(store_pool_disk(r.s), DEVICE_READ, i, -EIO, false);
    uint8_t bytes[512];
    EXPECT_EQ(r.s->ops->read(r.s, 0, 0, bytes, sizeof(bytes)), -EIO);
    EXPECT(!rig_info(&r).failed);
    EXPECT_EQ(rig_write(&r, 0, 8 * RECORD, RECORD, 4, VOLUME_FUA), 0); /* a whole record needs no read */
    EXPECT(rig_reads(&r, 0, 8 * RECORD, RECORD, 4));
    int result = -EIO;
    for (int i = 0; i < 1000 && result == -EIO; i++)
        result = r.s->ops->read(r.s, 0, 0, bytes, sizeof(bytes));
    EXPECT(rig_reads(&r, 0, 0, 4 * RECORD, 3));
    rig_end(&r);
}

int main(void)
{
    RUN(test_each_failed_write);
    RUN(test_each_failed_flush);
    RUN(test_write_that_fails_for_space_is_a_failure);
    RUN(test_waiting_requests_get_the_error);
    RUN(test_host_without_room);
    RUN(test_failed_read_harms_nobody_else);
    return tap_done();
}
