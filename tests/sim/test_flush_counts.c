/*
 * Reading data back proves nothing about durability, so device flushes are counted and their place among the writes is
 * looked at: FLUSH, and FUA on write, trim and zero, each end with a device flush that began after the last chunk was
 * written and before the call returned. Plain requests cause none. Waiters share flushes, but none joins one that was
 * already under way.
 */
#include "tap.h"

#include "base/check.h"
#include "sim/rig.h"

#define RECORD 16384

/* What the device saw. */
struct watch {
    uint64_t writes, flushes;
    uint64_t last_write, last_flush; /* numbers of steps */
};

static void watch_hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct watch *w = arg;
    (void)disk;
    if (io->kind == DEVICE_WRITE) {
        w->writes++;
        w->last_write = number;
    } else if (io->kind == DEVICE_FLUSH) {
        w->flushes++;
        w->last_flush = number;
    }
}

static void watch_start(struct watch *w, struct rig *r)
{
    *w = (struct watch){0};
    sim_disk_set_hook(store_pool_disk(r->s), watch_hook, w);
}

static void test_plain_requests_do_not_flush(void)
{
    struct rig r;
    struct watch w;
    rig_init(&r);
    REQUIRE(rig_start(&r, 1, RECORD));
    watch_start(&w, &r);
    for (uint64_t i = 0; i < 24; i++) {
        EXPECT_EQ(rig_write(&r, 0, i * 5000, 4096 + i, i + 1, 0), 0);
        EXPECT(rig_reads(&r, 0, i * 5000, 100, i + 1));
        EXPECT_EQ(r.s->ops->trim(r.s, 0, i * 3000, 2000, 0), 0);
        EXPECT_EQ(r.s->ops->zero(r.s, 0, i * 3000, 1000, 0), 0);
    }
    EXPECT_EQ(w.flushes, 0);
    rig_end(&r);
}

enum request {
    FLUSH,
    FLUSH_ALL,
    WRITE_SMALL,
    WRITE_RECORD,
    WRITE_MANY,
    WRITE_BYTES,
    TRIM,
    TRIM_PART,
    ZERO,
    ZERO_PART,
    ZERO_PROVISION,
    REQUESTS
};

static int request_send(struct rig *r, enum request kind, uint64_t stamp)
{
    const struct store_ops *ops = r->s->ops;
    switch (kind) {
    case FLUSH:
        return ops->flush(r->s, 0);
    case FLUSH_ALL:
        return ops->flush_all(r->s);
    case WRITE_SMALL:
        return rig_write(r, 0, RECORD + 4096, 4096, stamp, VOLUME_FUA);
    case WRITE_RECORD:
        return rig_write(r, 0, RECORD, RECORD, stamp, VOLUME_FUA);
    case WRITE_MANY:
        return rig_write(r, 0, 1000, 5 * RECORD, stamp, VOLUME_FUA);
    case WRITE_BYTES:
        return rig_write(r, 0, RECORD + 77, 9, stamp, VOLUME_FUA);
    case TRIM:
        return ops->trim(r->s, 0, RECORD, RECORD, VOLUME_FUA);
    case TRIM_PART:
        return ops->trim(r->s, 0, RECORD + 700, 3000, VOLUME_FUA);
    case ZERO:
        return ops->zero(r->s, 0, RECORD, RECORD, VOLUME_FUA);
    case ZERO_PART:
        return ops->zero(r->s, 0, RECORD + 700, 3000, VOLUME_FUA);
    case ZERO_PROVISION:
        return ops->zero(r->s, 0, RECORD, RECORD, VOLUME_FUA | VOLUME_PROVISION);
    case REQUESTS:
        break;
    }
    return -1;
}

/* What the range of the request reads as afterwards. */
static bool request_held(struct rig *r, enum request kind, uint64_t stamp)
{
    switch (kind) {
    case FLUSH:
    case FLUSH_ALL:
        return rig_reads(r, 0, RECORD, RECORD, 1);
    case WRITE_SMALL:
        return rig_reads(r, 0, RECORD + 4096, 4096, stamp);
    case WRITE_RECORD:
        return rig_reads(r, 0, RECORD, RECORD, stamp);
    case WRITE_MANY:
        return rig_reads(r, 0, 1000, 5 * RECORD, stamp);
    case WRITE_BYTES:
        return rig_reads(r, 0, RECORD + 77, 9, stamp);
    case TRIM_PART:
    case ZERO_PART:
        return rig_reads(r, 0, RECORD + 700, 3000, 0);
    default:
        return rig_reads(r, 0, RECORD, RECORD, 0);
    }
}

/* Each kind: data was written before, the request is sent, the power goes at once and takes all that was not flushed.
 */
static void test_each_durable_request_flushes(void)
{
    for (unsigned kind = 0; kind < REQUESTS; kind++) {
        struct rig r;
        struct watch w;
        rig_init(&r);
        REQUIRE(rig_start(&r, 2, RECORD));
        EXPECT_EQ(rig_write(&r, 0, RECORD, RECORD, 1, 0), 0);
        if (kind > FLUSH_ALL)
            EXPECT_EQ(r.s->ops->flush(r.s, 0), 0);
        watch_start(&w, &r);
        EXPECT_EQ(request_send(&r, (enum request)kind, 2), 0);
        EXPECT(w.flushes >= 1);
        EXPECT(w.writes >= 1);
        EXPECT(w.last_flush > w.last_write);
        EXPECT(rig_crash(&r, SIM_LOSS_ALL, 1));
        bool held = request_held(&r, (enum request)kind, 2);
        EXPECT(held);
        if (!held || w.flushes == 0)
            printf("# request kind %u\n", kind);
        rig_end(&r);
    }
}

/* The data is in the log already, but not flushed: a flush must still reach the device. */
static void test_flush_of_what_was_written_back(void)
{
    struct rig r;
    struct watch w;
    rig_init(&r);
    REQUIRE(rig_start(&r, 2, RECORD));
    EXPECT_EQ(rig_write(&r, 0, 0, RECORD, 5, 0), 0);
    EXPECT_EQ(r.s->ops->poke(r.s, POKE_WRITE_BACK, 0, 0), 0);
    EXPECT_EQ(r.s->ops->poke(r.s, POKE_SEAL, 0, 0), 0);
    watch_start(&w, &r);
    EXPECT_EQ(r.s->ops->flush(r.s, 0), 0);
    EXPECT(w.flushes >= 1);
    EXPECT(rig_crash(&r, SIM_LOSS_ALL, 1));
    EXPECT(rig_reads(&r, 0, 0, RECORD, 5));
    rig_end(&r);
}

/* A FUA of one volume flushes the device, but does not cover the dirty record of another. */
static void test_flush_after_fua_of_another_volume(void)
{
    struct rig r;
    struct watch w;
    rig_init(&r);
    REQUIRE(rig_start(&r, 2, RECORD));
    EXPECT_EQ(rig_write(&r, 0, 0, RECORD, 5, 0), 0);
    EXPECT_EQ(rig_write(&r, 1, 0, RECORD, 6, VOLUME_FUA), 0);
    watch_start(&w, &r);
    EXPECT_EQ(r.s->ops->flush(r.s, 0), 0);
    EXPECT(w.writes >= 1);
    EXPECT(w.last_flush > w.last_write);
    EXPECT(rig_crash(&r, SIM_LOSS_ALL, 1));
    EXPECT(rig_reads(&r, 0, 0, RECORD, 5));
    EXPECT(rig_reads(&r, 1, 0, RECORD, 6));
    rig_end(&r);
}

/* ---- several at once ---- */

#define WRITERS 16
#define WRITES_EACH 12

struct crowd {
    struct rig *r;
    struct watch w;
    struct env_thread *threads[WRITERS];
    unsigned flushless, failures;
};

struct member {
    struct crowd *crowd;
    unsigned number;
};

static void writer_run(void *arg)
{
    struct member *m = arg;
    struct crowd *c = m->crowd;
    for (uint64_t i = 0; i < WRITES_EACH; i++) {
        uint64_t before = c->w.flushes;
        int result =
            rig_write(c->r, m->number % 2, (uint64_t)m->number * RECORD, 4096, m->number * 100 + i + 1, VOLUME_FUA);
        c->failures += result != 0;
        c->flushless += c->w.flushes == before; /* no device flush began while it ran */
    }
}

static void crowd_run(void *arg)
{
    struct crowd *c = arg;
    struct member members[WRITERS];
    for (unsigned v = 0; v < 2; v++) {
        char name[16];
        snprintf(name, sizeof(name), "v%u", v);
        EXPECT_EQ(c->r->s->ops->create(c->r->s, v, name, RIG_SIZE_BYTES, RECORD, (struct codec_choice){0}), 0);
    }
    watch_start(&c->w, c->r);
    for (unsigned i = 0; i < WRITERS; i++) {
        members[i] = (struct member){.crowd = c, .number = i};
        CHECK_EQ(env_thread_start(sim_env(store_pool_sim(c->r->s)), "writer", writer_run, &members[i], &c->threads[i]),
                 0);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        env_thread_join(c->threads[i]);
    sim_disk_set_hook(store_pool_disk(c->r->s), NULL, NULL);
}

static void test_group_commit(void)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct rig r;
        rig_init(&r);
        r.options.fibers = true;
        r.options.seed = seed;
        r.options.worker_count = 2;
        r.options.background = seed % 2 == 0;
        REQUIRE(rig_start(&r, 0, RECORD));
        struct crowd c = {.r = &r};
        r.s->ops->run(r.s, crowd_run, &c);
        EXPECT_EQ(c.failures, 0);
        EXPECT_EQ(c.flushless, 0);
        EXPECT(c.w.flushes >= 1);
        EXPECT(c.w.flushes * 4 < WRITERS * WRITES_EACH);
        printf("# %u FUA writes of %u fibers, accepted with %" PRIu64 " device flushes\n", WRITERS * WRITES_EACH,
               WRITERS, c.w.flushes);
        rig_end(&r);
    }
}

int main(void)
{
    RUN(test_plain_requests_do_not_flush);
    RUN(test_each_durable_request_flushes);
    RUN(test_flush_of_what_was_written_back);
    RUN(test_flush_after_fua_of_another_volume);
    RUN(test_group_commit);
    return tap_done();
}
