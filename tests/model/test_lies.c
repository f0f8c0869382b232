/*
 * A check that cannot fail is a defect: random histories on a fake store hold when it is honest, and for each lie it
 * can tell a failing history is found, and shortened to a few operations.
 */
#include "tap.h"

#include "model/history.h"
#include "model/store_fake.h"
#include "seed.h"

#define HISTORIES 400
#define OPERATIONS 120

static const struct profile profile = {
    .weights = {[OP_WRITE] = 30,
                [OP_READ] = 15,
                [OP_FLUSH] = 6,
                [OP_FLUSH_ALL] = 2,
                [OP_TRIM] = 10,
                [OP_ZERO] = 8,
                [OP_EXTENTS] = 8,
                [OP_RESIZE] = 3,
                [OP_CREATE] = 4,
                [OP_DESTROY] = 1,
                [OP_RENAME] = 2,
                [OP_CODEC] = 1,
                [OP_VERIFY] = 2,
                [OP_CHECKPOINT] = 3,
                [OP_REOPEN] = 1,
                [OP_CRASH] = 4,
                [OP_SLEEP] = 1},
    .volume_count = 3,
    .record_bytes = {4096, 8192, 16384},
    .size_bytes = {40960, 65536, 49152},
    .length_max_bytes = 40000,
    .fua_per_mille = 150,
    .unaligned_per_mille = 250,
    .half_record_per_mille = 200,
    .same_data_per_mille = 50,
    .loss_mask = 1 << SIM_LOSS_RANDOM | 1 << SIM_LOSS_ALL | 1 << SIM_LOSS_NONE,
};

static uint64_t seed;

struct liar {
    enum lie lie;
    uint64_t seed;
};

static struct store *liar_make(void *arg)
{
    const struct liar *liar = arg;
    return store_fake_new(liar->lie, liar->seed);
}

/* Returns the number of histories run until one failed; 0 if none did. */
static size_t histories_until_caught(enum lie lie, struct history_stats *stats, struct history *ret_failed)
{
    for (size_t i = 0; i < HISTORIES; i++) {
        struct history h;
        history_make(&h, &profile, seed + i, OPERATIONS);
        struct store *s = store_fake_new(lie, seed + i);
        struct text why = {0};
        bool good = history_run(&h, s, stats, &why, NULL);
        s->ops->free(s);
        text_free(&why);
        if (!good) {
            *ret_failed = h;
            return i + 1;
        }
        history_free(&h);
    }
    return 0;
}

static void test_honest_store_holds(void)
{
    struct history_stats stats = {0};
    struct history failed;
    size_t caught = histories_until_caught(LIE_NONE, &stats, &failed);
    EXPECT_EQ(caught, 0);
    if (caught != 0) {
        struct liar liar = {.lie = LIE_NONE, .seed = failed.seed};
        history_report(&failed, &(struct store_maker){.make = liar_make, .arg = &liar}, "honest store");
        history_free(&failed);
    }
    EXPECT_EQ(stats.undecided, 0);
    EXPECT(stats.done[OP_CRASH] > HISTORIES);
    printf("# %d histories, %llu writes, %llu power cuts\n", HISTORIES, (unsigned long long)stats.done[OP_WRITE],
           (unsigned long long)stats.done[OP_CRASH]);
}

static void test_each_lie_is_caught(void)
{
    for (enum lie lie = LIE_NONE + 1; lie < LIE_COUNT; lie++) {
        struct history_stats stats = {0};
        struct history failed;
        size_t caught = histories_until_caught(lie, &stats, &failed);
        EXPECT(caught != 0);
        if (caught == 0) {
            printf("# not caught: %s\n", lie_name(lie));
            continue;
        }
        struct liar liar = {.lie = lie, .seed = failed.seed};
        size_t before = failed.count;
        history_shrink(&failed, &(struct store_maker){.make = liar_make, .arg = &liar}, 300);
        EXPECT(failed.count < before);
        printf("# %s: caught by history %zu, shortened to %zu operations\n", lie_name(lie), caught, failed.count);
        history_free(&failed);
    }
}

/* One seed, one history. */
static void test_same_seed_same_history(void)
{
    struct history a, b;
    history_make(&a, &profile, seed, OPERATIONS);
    history_make(&b, &profile, seed, OPERATIONS);
    struct text x = {0}, y = {0};
    history_print(&a, &x);
    history_print(&b, &y);
    EXPECT_TEXT(x.bytes, y.bytes);
    text_free(&x);
    text_free(&y);
    history_free(&a);
    history_free(&b);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_honest_store_holds);
    RUN(test_each_lie_is_caught);
    RUN(test_same_seed_same_history);
    return tap_done();
}
