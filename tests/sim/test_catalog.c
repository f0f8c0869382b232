/*
 * The catalog: it grows with every volume that was ever created, because object numbers are never used twice (one
 * leaf up to number 127, two levels from there); and it has what was there at the cut of each checkpoint, whatever is
 * created, changed and destroyed while that is under way.
 */
#include "tap.h"

#include <errno.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "sim/rig.h"

#define NAMES 5
#define CREATIONS 300

static void create(struct rig *r, unsigned slot, unsigned number)
{
    char name[32];
    snprintf(name, sizeof(name), "v%u", slot);
    EXPECT_EQ(r->s->ops->create(r->s, slot, name, RIG_SIZE_BYTES, 4096, (struct codec_choice){0}), 0);
    EXPECT_EQ(rig_write(r, slot, 8192, 4096, number + 1, 0), 0);
}

/* Volume 0 stays from the first leaf on; the others come and go. */
static void test_catalog_grows(void)
{
    struct rig r;
    unsigned last[NAMES] = {0};
    rig_init(&r);
    REQUIRE(rig_start(&r, 0, 4096));
    for (unsigned i = 0; i < CREATIONS; i++) {
        unsigned slot = i == 0 ? 0 : 1 + i % (NAMES - 1);
        if (i >= NAMES)
            EXPECT_EQ(r.s->ops->destroy(r.s, slot), 0);
        if (i == 0 || last[slot] == 0 || i >= NAMES)
            create(&r, slot, i);
        last[slot] = i;
        if (i % 37 == 0)
            EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
    }
    EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
    EXPECT(rig_check(&r));
    EXPECT(rig_crash(&r, SIM_LOSS_ALL, 1));
    EXPECT(rig_check(&r));
    for (unsigned v = 0; v < NAMES; v++)
        EXPECT(rig_reads(&r, v, 8192, 4096, last[v] + 1));
    EXPECT_EQ(r.s->ops->reopen(r.s, &r.why), 0);
    EXPECT(rig_adopt_all(&r));
    for (unsigned v = 0; v < NAMES; v++)
        EXPECT(rig_reads(&r, v, 8192, 4096, last[v] + 1));
    rig_end(&r);
}

#define ROUNDS 12

struct race {
    struct rig *r;
    unsigned round;
    bool done;
};

/* Checkpoint after checkpoint, each of which has the volume that comes and goes in it. */
static void changer_run(void *arg)
{
    struct race *race = arg;
    struct error err = {0};
    for (unsigned i = 0; !race->done; i++) {
        int result = volume_set_codec(store_pool_pool(race->r->s), "v1",
                                      (struct codec_choice){.id = i % 2 == 0 ? CODEC_LZ4 : CODEC_OFF}, &err);
        EXPECT(result == 0 || result == -ENOENT);
        env_sleep_ns(sim_env(store_pool_sim(race->r->s)), 1000);
    }
}

static void race_run(void *arg)
{
    struct race *race = arg;
    struct store *s = race->r->s;
    struct env *env = sim_env(store_pool_sim(s));
    struct env_thread *thread;
    EXPECT_EQ(s->ops->create(s, 0, "v0", RIG_SIZE_BYTES, 4096, (struct codec_choice){0}), 0);
    CHECK_EQ(env_thread_start(env, "changer", changer_run, race, &thread), 0);
    for (race->round = 0; race->round < ROUNDS; race->round++) {
        EXPECT_EQ(s->ops->create(s, 1, "v1", RIG_SIZE_BYTES, 4096, (struct codec_choice){0}), 0);
        EXPECT_EQ(rig_write(race->r, 1, 0, 8192, race->round + 1, 0), 0);
        env_sleep_ns(env, 1000 * (race->round * 37 % 101));
        EXPECT_EQ(s->ops->destroy(s, 1), 0);
    }
    race->done = true;
    env_thread_join(thread);
    EXPECT_EQ(s->ops->flush_all(s), 0);
}

/* A volume destroyed while a checkpoint is under way that has it, is not there after a power cut. */
static void test_destroyed_meanwhile(void)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct rig r;
        rig_init(&r);
        r.options.fibers = true;
        r.options.worker_count = 2;
        r.options.seed = seed;
        REQUIRE(rig_start(&r, 0, 4096));
        struct race race = {.r = &r};
        r.s->ops->run(r.s, race_run, &race);
        EXPECT(rig_check(&r));
        EXPECT(rig_crash(&r, SIM_LOSS_ALL, seed));
        EXPECT_EQ(rig_info(&r).volume_count, 1);
        EXPECT(rig_check(&r));
        rig_end(&r);
    }
}

int main(void)
{
    RUN(test_catalog_grows);
    RUN(test_destroyed_meanwhile);
    return tap_done();
}
