/*
 * Many rounds of clients at once, with power cuts (round.h). Rules 17, 18 and 29: order of effect is log order, a flush
 * covers every chunk, no stale fill of the cache.
 */
#include "tap.h"

#include <stdlib.h>

#include "crash/round.h"
#include "seed.h"

#define ROUNDS_DEFAULT 60

static uint64_t seed;
static unsigned rounds = ROUNDS_DEFAULT;

static void test_clients_at_once(void)
{
    struct round_stats stats = {0};
    for (unsigned i = 0; i < rounds; i++) {
        struct round r;
        struct text why = {0};
        round_make(&r, seed + i);
        bool good = round_run(&r, &stats, NULL, &why);
        EXPECT(good);
        if (!good)
            printf("# %s\n", why.bytes);
        text_free(&why);
        if (!good)
            break;
    }
    printf("# %llu rounds, %llu client operations, %llu crash points, %llu openings, %llu cuts inside recoveries\n",
           (unsigned long long)stats.rounds, (unsigned long long)stats.operations, (unsigned long long)stats.points,
           (unsigned long long)stats.openings, (unsigned long long)stats.nested_points);
    EXPECT(stats.points >= rounds);
}

static void test_same_seed_same_trace(void)
{
    for (unsigned i = 0; i < 3; i++) {
        struct round r;
        struct round_stats stats = {0};
        struct text why = {0};
        uint64_t first = 0, second = 1;
        round_make(&r, seed + i);
        r.points_max = 1;
        EXPECT(round_run(&r, &stats, &first, &why));
        EXPECT(round_run(&r, &stats, &second, &why));
        EXPECT_EQ(first, second);
        text_free(&why);
    }
}

int main(void)
{
    const char *wanted = getenv("ASHLAR_CRASH_ROUNDS");
    if (wanted != NULL)
        rounds = (unsigned)strtoul(wanted, NULL, 10);
    seed = seed_choose();
    RUN(test_same_seed_same_trace);
    RUN(test_clients_at_once);
    return tap_done();
}
