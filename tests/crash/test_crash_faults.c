/*
 * A device that breaks its word: a write that is lost, that lands elsewhere, bytes that rot. The promise left is the
 * third: wrong bytes are never returned as right. While the pool runs, and after a power cut and an open, every sector
 * has an allowed value or is an error; what is lost, check names; a pool whose flushed log is damaged refuses to open.
 */
#include "tap.h"

#include <stdlib.h>

#include "base/prng.h"
#include "crash/round.h"
#include "seed.h"

#define STORIES 12
#define FAULTS_EACH 12
#define ROTS_EACH 40 /* what rots is mostly superseded, or has a second copy: about 5 in 144 are met */

static uint64_t seed;

static void faults_run(enum round_fault fault, const char *what)
{
    struct round_stats sum = {0};
    struct prng random;
    prng_seed(&random, seed + (uint64_t)fault);
    bool good = true;
    for (unsigned i = 0; i < STORIES && good; i++) {
        struct round r;
        struct round_stats dry = {0};
        struct text why = {0};
        round_make(&r, seed + i);
        r.client_count = 1 + (unsigned)prng_below(&random, 3);
        r.points_max = 1;
        r.poke = true;
        good = round_run(&r, &dry, NULL, &why);
        unsigned each = fault == FAULT_ROT ? ROTS_EACH : FAULTS_EACH;
        for (unsigned k = 0; k < each && good; k++) {
            r.fault = fault;
            uint64_t range = fault == FAULT_ROT ? dry.device_steps : dry.device_writes;
            r.fault_nth = 1 + prng_below(&random, range / 2 + 1);
            r.fault_offset_bytes = prng_below(&random, r.options.disk_bytes / 4096) * 4096;
            good = round_run(&r, &sum, NULL, &why);
        }
        if (!good)
            printf("# %s %" PRIu64 " at %" PRIu64 ": %s\n", what, r.fault_nth, r.fault_offset_bytes, why.bytes);
        text_free(&why);
    }
    EXPECT(good);
    printf("# %s: %" PRIu64 " runs, afterwards %" PRIu64 " intact, %" PRIu64 " with sectors lost, %" PRIu64
           " to be repaired first, %" PRIu64 " refused; %" PRIu64 " errors while running\n",
           what, sum.rounds, sum.intact, sum.lossy, sum.repaired, sum.refused, sum.errors);
    EXPECT(sum.intact + sum.lossy + sum.repaired + sum.refused == sum.rounds);
    EXPECT(sum.lossy + sum.repaired + sum.refused > 0);
}

static void test_lost_writes(void)
{
    faults_run(FAULT_LOSE_WRITE, "lost write");
}

static void test_misdirected_writes(void)
{
    faults_run(FAULT_MISDIRECT_WRITE, "misdirected write");
}

static void test_rot(void)
{
    faults_run(FAULT_ROT, "rot");
}

int main(void)
{
    seed = seed_choose();
    RUN(test_lost_writes);
    RUN(test_misdirected_writes);
    RUN(test_rot);
    return tap_done();
}
