/*
 * Random histories: model episodes with and without power cuts, rounds of clients at once with cuts at random steps,
 * faults of the device, and at the end a whole crash enumeration. One run is a fixed amount of work, a few minutes
 * under the sanitizers; `make soak` repeats it with ever new seeds. ASHLAR_SOAK_BATCHES=n makes it n times eight
 * histories of each kind long (default 8).
 *
 * Prints its seed, and at the end the trace hash over every simulation it ran: the same seed gives the same hash.
 */
#include "tap.h"

#include <stdlib.h>

#include "base/prng.h"
#include "crash/judge.h"
#include "crash/round.h"
#include "crash/workload.h"
#include "model/episode.h"
#include "seed.h"

static uint64_t seed, trace;
static unsigned batches = 8;

static void trace_add(uint64_t hash)
{
    trace = (trace ^ hash) * UINT64_C(0x9e3779b97f4a7c15);
    trace ^= trace >> 32;
}

static uint64_t operations_of(const struct history_stats *stats)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        sum += stats->done[i];
    return sum;
}

static bool one_episode(uint64_t number, struct history_stats *stats)
{
    struct episode e;
    uint64_t first = 0, second = 0;
    episode_make(&e, number, number % 2 != 0);
    if (!episode_run(&e, stats, &first))
        return false;
    trace_add(first);
    if (number % 16 != 0)
        return true;
    bool good = episode_run(&e, stats, &second) && first == second;
    if (!good)
        printf("# episode of seed %" PRIu64 ": two runs, two traces\n", number);
    return good;
}

static bool one_round(uint64_t number, struct round_stats *stats)
{
    struct round r;
    struct text why = {0};
    round_make(&r, number);
    r.losses_each = 0;
    r.nested_one_in = 4;
    if (number % 4 == 3) {
        /* In the first half, so that what is flushed behind it shows that it was no end of the log. */
        struct round_stats dry = {0};
        r.points_max = 1;
        if (!round_run(&r, &dry, NULL, &why)) {
            printf("# %s\n", why.bytes);
            text_free(&why);
            return false;
        }
        r.fault = (enum round_fault)(FAULT_LOSE_WRITE + number / 4 % 3);
        r.fault_nth = 1 + number / 12 % (dry.device_writes / 2 + 1);
        r.fault_offset_bytes = number * 7919 % (r.options.disk_bytes / 4096) * 4096;
    }
    uint64_t hash = 0;
    bool good = round_run(&r, stats, &hash, &why);
    trace_add(hash);
    if (!good)
        printf("# %s\n", why.bytes);
    text_free(&why);
    return good;
}

/* Every step, every loss, every step of the recovery; or, deeper, every other step of it and of the recovery from that.
 */
static bool one_enumeration(uint64_t number, bool deeper, uint64_t *points, uint64_t *openings)
{
    struct workload w;
    struct text why = {0};
    workload_make(&w, number, deeper ? 2 : 20);
    struct judge j = {.options = w.options,
                      .check_before = true,
                      .check_after = true,
                      .stay = true,
                      .go_on = true,
                      .nested_one_in = deeper ? 4 : 1,
                      .nested_deeper = deeper};
    bool good = workload_run(&w, &why) && judge_points(&j, &w.points, w.oracle, 0, number, &why);
    if (!good)
        printf("# workload of seed %" PRIu64 ": %s\n", number, why.bytes);
    if (w.store != NULL)
        trace_add(sim_trace_hash(store_pool_sim(w.store)) ^ j.trace);
    *points += w.points.count + j.nested_points;
    *openings += j.openings;
    text_free(&why);
    workload_free(&w);
    return good;
}

static void test_soak(void)
{
    struct history_stats history = {0};
    struct round_stats round = {0};
    uint64_t number = seed, points = 0, openings = 0;
    bool good = true;
    for (unsigned batch = 0; batch < batches && good; batch++) {
        for (unsigned i = 0; i < 8 && good; i++)
            good = one_episode(number + i, &history);
        for (unsigned i = 0; i < 8 && good; i++)
            good = one_round(number + i, &round);
        number += 8;
    }
    good = good && one_enumeration(number, seed % 2 != 0, &points, &openings);
    EXPECT(good);
    printf("# seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " operations with %" PRIu64 " cuts; %" PRIu64
           " rounds with %" PRIu64 " operations, %" PRIu64 " crash points, %" PRIu64 " openings; %" PRIu64
           " enumerated points with %" PRIu64 " openings; trace %016" PRIx64 "\n",
           seed, number, operations_of(&history), history.done[OP_CRASH], round.rounds, round.operations, round.points,
           round.openings, points, openings, trace);
}

int main(void)
{
    const char *wanted = getenv("ASHLAR_SOAK_BATCHES");
    if (wanted != NULL)
        batches = (unsigned)strtoul(wanted, NULL, 10);
    seed = seed_choose();
    RUN(test_soak);
    return tap_done();
}
