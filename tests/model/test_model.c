/*
 * Random operations on the engine against plain arrays. The program is run several times, each with its own share of
 * the seeds (first argument: which share); all runs together do at least 10^6 operations. ASHLAR_SEED replays; a
 * failing history is shortened and printed.
 */
#include "tap.h"

#include <stdlib.h>

#include "base/math.h"
#include "model/episode.h"
#include "seed.h"

#define OPERATIONS_DEFAULT 260000 /* in each of four shares */
#define FULL_EPISODES 3

static uint64_t seed;
static uint64_t operations_wanted = OPERATIONS_DEFAULT;

static uint64_t operations_of(const struct history_stats *stats)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        sum += stats->done[i];
    return sum;
}

static void test_random_operations(void)
{
    struct history_stats stats = {0};
    uint64_t episodes = 0;
    while (operations_of(&stats) < operations_wanted) {
        struct episode e;
        episode_make(&e, seed + episodes++, false);
        bool good = episode_run(&e, &stats, NULL);
        EXPECT(good);
        if (!good)
            break;
    }
    printf(
        "# %llu episodes, %llu operations: %llu writes, %llu reads, %llu trims, %llu zeroes, %llu flushes, %llu opens, "
        "%llu answers of ENOSPC\n",
        (unsigned long long)episodes, (unsigned long long)operations_of(&stats),
        (unsigned long long)stats.done[OP_WRITE], (unsigned long long)stats.done[OP_READ],
        (unsigned long long)stats.done[OP_TRIM], (unsigned long long)stats.done[OP_ZERO],
        (unsigned long long)stats.done[OP_FLUSH], (unsigned long long)stats.done[OP_REOPEN],
        (unsigned long long)stats.full);
    EXPECT(operations_of(&stats) >= operations_wanted);
    EXPECT(stats.done[OP_REOPEN] > 0);
    EXPECT(stats.done[OP_RESIZE] > 0);
}

/* Volumes that hold several times what the pool does, written all the time. A trim works in a full pool too; its cut
 * edges may be left as they were (R34). */
static void test_full_pools(void)
{
    struct history_stats stats = {0};
    for (uint64_t i = 0; i < FULL_EPISODES; i++) {
        struct episode e;
        episode_make(&e, seed + 500000 + i, false);
        e.options.disk_bytes = 64 * (uint64_t)e.options.segment_bytes;
        e.operations = 1500;
        e.profile.length_max_bytes = 64 * KIB;
        for (unsigned v = 0; v < e.profile.volume_count; v++)
            e.profile.size_bytes[v] = e.options.disk_bytes;
        e.profile.weights[OP_WRITE] = 2000;
        e.profile.weights[OP_TRIM] = e.profile.weights[OP_ZERO] = 60;
        EXPECT(episode_run(&e, &stats, NULL));
    }
    printf("# %llu operations, %llu answers of ENOSPC\n", (unsigned long long)operations_of(&stats),
           (unsigned long long)stats.full);
    EXPECT(stats.full > 0);
}

/* The same with power cuts in between. */
static void test_random_operations_with_power_cuts(void)
{
    struct history_stats stats = {0};
    uint64_t episodes = 0;
    while (operations_of(&stats) < operations_wanted / 20) {
        struct episode e;
        episode_make(&e, seed + episodes++, true);
        bool good = episode_run(&e, &stats, NULL);
        EXPECT(good);
        if (!good)
            break;
    }
    printf("# %llu episodes, %llu operations, %llu power cuts\n", (unsigned long long)episodes,
           (unsigned long long)operations_of(&stats), (unsigned long long)stats.done[OP_CRASH]);
    EXPECT(stats.done[OP_CRASH] > 0);
    EXPECT_EQ(stats.undecided, 0);
}

static void test_same_seed_same_trace(void)
{
    struct history_stats stats = {0};
    for (uint64_t i = 0; i < 3; i++) {
        struct episode e;
        uint64_t first = 0, second = 1, other = 0;
        episode_make(&e, seed + i, i % 2 != 0);
        e.operations = 300;
        EXPECT(episode_run(&e, &stats, &first));
        EXPECT(episode_run(&e, &stats, &second));
        EXPECT_EQ(first, second);
        episode_make(&e, seed + i + 1000, i % 2 != 0);
        e.operations = 300;
        EXPECT(episode_run(&e, &stats, &other));
        EXPECT(first != other);
    }
}

int main(int argc, char **argv)
{
    uint64_t share = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const char *wanted = getenv("ASHLAR_MODEL_OPERATIONS");
    if (wanted != NULL)
        operations_wanted = strtoull(wanted, NULL, 10);
    seed = seed_choose() + share * 1000000;
    RUN(test_same_seed_same_trace);
    RUN(test_random_operations);
    RUN(test_full_pools);
    RUN(test_random_operations_with_power_cuts);
    return tap_done();
}
