/*
 * The power is cut at every device step of a workload, with several ideas of what the disk's cache loses, and again at
 * steps inside the recovery that follows. After each cut every promise holds (judge.h).
 *
 * Here every step is tried with two losses in turn and about one in 32 steps of each recovery; `make lab` tries every
 * loss at every step and every step of every recovery (lab_crash_again.c).
 */
#include "tap.h"

#include <stdlib.h>

#include "crash/judge.h"
#include "crash/workload.h"
#include "seed.h"

#define OPERATIONS 3100 /* a few find no volume and are not done */

static uint64_t seed;

static void print_summary(const struct workload *w, const struct judge *j)
{
    printf("# %llu client operations, %llu device writes, %llu flushes, %llu other steps, %llu checkpoints, %llu slots "
           "used again\n",
           (unsigned long long)workload_operations(w), (unsigned long long)w->points.writes,
           (unsigned long long)w->points.flushes, (unsigned long long)w->points.others,
           (unsigned long long)w->checkpoints, (unsigned long long)w->points.slots_reused);
    printf(
        "# %zu crash points, %llu openings, %llu steps seen inside recoveries, %llu of them cut again, %llu checks\n",
        w->points.count, (unsigned long long)j->openings, (unsigned long long)j->recovery_steps,
        (unsigned long long)j->nested_points, (unsigned long long)j->checks);
}

static void test_power_cut_at_every_step(void)
{
    struct workload w;
    struct text why = {0};
    workload_make(&w, seed, OPERATIONS);
    bool ran = workload_run(&w, &why);
    struct judge j = {.options = w.options, .check_after = true, .nested_one_in = 32};
    EXPECT(ran);
    EXPECT(workload_operations(&w) >= 2000);
    EXPECT(w.points.writes >= 1000);
    EXPECT(w.points.flushes >= 200);
    EXPECT(w.checkpoints >= 3);
    EXPECT(w.points.slots_reused >= 3);
    EXPECT_EQ(w.points.count, w.points.writes + w.points.flushes + w.points.others);
    if (ran)
        EXPECT(judge_points(&j, &w.points, w.oracle, 2, seed, &why));
    print_summary(&w, &j);
    if (why.length != 0)
        printf("# %s\n", why.bytes);
    text_free(&why);
    workload_free(&w);
}

/* A short workload, nearly everything: each loss at each step, one in four steps of each recovery; check before and
 * after; cut again right after the opening; going on afterwards. */
static void test_everything_on_a_short_workload(void)
{
    struct workload w;
    struct text why = {0};
    workload_make(&w, seed + 1, 16);
    bool ran = workload_run(&w, &why);
    struct judge j = {.options = w.options,
                      .check_before = true,
                      .check_after = true,
                      .stay = true,
                      .go_on = true,
                      .nested_one_in = 4};
    EXPECT(ran);
    EXPECT(w.points.count > 30);
    if (ran)
        EXPECT(judge_points(&j, &w.points, w.oracle, 0, seed, &why));
    EXPECT(j.nested_points > 0);
    print_summary(&w, &j);
    if (why.length != 0)
        printf("# %s\n", why.bytes);
    text_free(&why);
    workload_free(&w);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_everything_on_a_short_workload);
    RUN(test_power_cut_at_every_step);
    return tap_done();
}
