/*
 * The whole enumeration that the tests of the suite "crash" sample: the power is cut at every device write, flush and
 * other step of the workload, and again at every step of the recovery that follows. After each, check is clean and
 * every promise holds (judge.h).
 *
 *     lab_crash_again twice|thrice PART PARTS
 *
 * twice: each step with every loss, then each step of that recovery with every loss. thrice: each step with two losses
 * in turn, each step of that recovery with one in turn, and each step of the recovery from the second cut. The steps of
 * the workload are dealt out to the parts, so that each part takes minutes and all of them together miss none; the
 * counts at the end show that nothing was left out. The seed is always the same unless ASHLAR_SEED names another.
 */
#include "tap.h"

#include <malloc.h>
#include <stdlib.h>

#include "crash/judge.h"
#include "crash/workload.h"
#include "seed.h"

#define OPERATIONS 3100 /* a few find no volume and are not done */
#define SEED 20261201
#define THRICE_LOSSES_EACH 2

static uint64_t seed;
static bool thrice;
static unsigned part, parts;

static void test_power_cut_again_at_every_step(void)
{
    struct workload w;
    struct text why = {0};
    workload_make(&w, seed, OPERATIONS);
    bool ran = workload_run(&w, &why);
    printf("# part %u of %u: %" PRIu64 " client operations, %" PRIu64 " device writes, %" PRIu64 " flushes, %" PRIu64
           " other steps, %" PRIu64 " checkpoints, %" PRIu64 " slots used again\n",
           part + 1, parts, workload_operations(&w), w.points.writes, w.points.flushes, w.points.others, w.checkpoints,
           w.points.slots_reused);
    EXPECT(ran);
    EXPECT(workload_operations(&w) >= 2000);
    EXPECT(w.points.writes >= 1000);
    EXPECT(w.points.flushes >= 200);
    EXPECT(w.checkpoints >= 3);
    EXPECT(w.points.slots_reused >= 3);
    EXPECT_EQ(w.points.count, w.points.writes + w.points.flushes + w.points.others);

    struct judge j = {.options = w.options,
                      .check_before = true,
                      .check_after = true,
                      .stay = true,
                      .go_on = true,
                      .nested_one_in = 1,
                      .nested_every_loss = !thrice,
                      .nested_check = true,
                      .nested_deeper = thrice,
                      .part = part,
                      .parts = parts,
                      .loud = true};
    if (ran)
        EXPECT(judge_points(&j, &w.points, w.oracle, thrice ? THRICE_LOSSES_EACH : 0, seed, &why));
    /* Nothing was left out: every step of this part with every loss, every step seen inside a recovery cut again. */
    uint64_t steps = (w.points.count + parts - 1 - part) / parts;
    EXPECT_EQ(j.points, steps * (thrice ? THRICE_LOSSES_EACH : LOSS_COUNT));
    EXPECT_EQ(j.nested_points, j.recovery_steps * (thrice ? 1 : LOSS_COUNT));
    EXPECT(j.checks >= j.points + j.nested_points);
    printf("# %" PRIu64 " steps of the workload, %" PRIu64 " cuts there, %" PRIu64 " steps inside recoveries, %" PRIu64
           " cuts there, %" PRIu64 " openings, %" PRIu64 " checks, trace %016" PRIx64 "\n",
           steps, j.points, j.recovery_steps, j.nested_points, j.openings, j.checks, j.trace);
    if (why.length != 0)
        printf("# %s\n", why.bytes);
    text_free(&why);
    workload_free(&w);
}

/* 1 to max, decimal; 0 if it is no such number. */
static unsigned number_parse(const char *text, unsigned max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    return *text < '0' || *text > '9' || *end != '\0' || value > max ? 0 : (unsigned)value;
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        thrice = strcmp(argv[1], "thrice") == 0;
        parts = number_parse(argv[3], 1000);
        part = number_parse(argv[2], parts);
    }
    if (part == 0 || (!thrice && strcmp(argv[1], "twice") != 0)) {
        fprintf(stderr, "usage: %s twice|thrice PART PARTS, with PART from 1 to PARTS\n", argv[0]);
        return 2;
    }
    part--;
    /* Each opening allocates and frees the same few megabytes: to give them back each time takes half the time. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    /* Meson asks for it. That nothing uninitialised is used is seen elsewhere: in the suites "crash" and "valgrind". */
    mallopt(M_PERTURB, 0);
    seed = seed_choose_or(SEED);
    RUN(test_power_cut_again_at_every_step);
    return tap_done();
}
