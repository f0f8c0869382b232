/*
 * The executable model of the log (design rules 13-21) told again with the engine: the same histories - write, fua,
 * write-back, seal, flush, trim, checkpoint, crash, evict, read, reap - on two records of two halves, with a second
 * small volume that moves the log on. With every rule on, all histories hold. Each rule can be taken away (enum
 * pool_rule_off), and then a history that breaks a promise is found; one that is not found fails the test: the rule
 * would not be needed, or the test would not see it.
 */
#include "tap.h"

#include <stdlib.h>

#include "base/prng.h"
#include "crash/round.h"
#include "log/rules.h"
#include "model/history.h"
#include "seed.h"

enum where { IN_HISTORIES, IN_ROUNDS, IN_ROUNDS_WITH_A_LOST_WRITE };

struct hunt {
    const char *name;
    unsigned rules_off;
    enum where where;
    unsigned budget; /* histories or rounds */
    unsigned label_loss_per_mille, same_data_per_mille;
    enum op_kind more; /* an operation that comes more often; its weight is added */
    unsigned more_weight;
};

static const struct hunt hunts[] = {
    {"slots are reused at once", RULE_OFF_QUARANTINE, IN_HISTORIES, 3000, 0, 0, OP_REAP, 4},
    {"quarantine of one label", RULE_OFF_QUARANTINE_2, IN_HISTORIES, 3000, 500, 0, OP_CHECKPOINT, 4},
    {"replay range not pinned", RULE_OFF_PIN_REPLAY, IN_HISTORIES, 3000, 0, 0, OP_REAP, 4},
    {"patches overtake write-back", RULE_OFF_PATCH_ORDER, IN_HISTORIES, 3000, 0, 0, OP_WRITE_BACK, 4},
    {"trims overtake write-back", RULE_OFF_TRIM_ORDER, IN_HISTORIES, 3000, 0, 0, OP_WRITE_BACK, 4},
    {"checkpoints forget patches", RULE_OFF_PATCH_CHECKPOINT, IN_HISTORIES, 3000, 0, 0, OP_CHECKPOINT, 2},
    {"a flush waits for its own chunk only", RULE_OFF_FLUSH_ALL, IN_ROUNDS, 400, 0, 0, OP_WRITE, 0},
    {"a flush joins one under way", RULE_OFF_FLUSH_AFTER, IN_ROUNDS, 400, 0, 0, OP_WRITE, 0},
    {"the same incarnation at every open", RULE_OFF_INCARNATION, IN_HISTORIES, 6000, 0, 950, OP_CRASH, 2},
    {"recovery goes on in place", RULE_OFF_BRIDGE, IN_HISTORIES, 3000, 600, 0, OP_CRASH, 2},
    {"damage is an end of log", RULE_OFF_DURABLE_TO, IN_ROUNDS_WITH_A_LOST_WRITE, 200, 0, 0, OP_WRITE, 0},
    {"label before the data's flush", RULE_OFF_LABEL_ORDER, IN_HISTORIES, 3000, 0, 0, OP_CUT_LATER, 4},
    {"a failed flush is tried again", RULE_OFF_STICKY_FAILURE, IN_HISTORIES, 3000, 0, 0, OP_FAIL_FLUSH, 3},
};
#define HUNTS (sizeof(hunts) / sizeof(hunts[0]))

static uint64_t seed;

static struct profile profile_of(const struct hunt *hunt)
{
    struct profile p = {
        .weights = {[OP_WRITE] = 9,
                    [OP_WRITE_BACK] = 4,
                    [OP_SEAL] = 4,
                    [OP_FLUSH] = 2,
                    [OP_TRIM] = 2,
                    [OP_CHECKPOINT] = 2,
                    [OP_CRASH] = 2,
                    [OP_EVICT] = 2,
                    [OP_SLEEP] = 2,
                    [OP_VERIFY] = 1,
                    [OP_REAP] = 1,
                    [OP_CUT_LATER] = 1},
        .volume_count = 2,
        .record_bytes = {4096, 4096},
        .size_bytes = {8192, 48 * 1024},
        .length_max_bytes = 48 * 1024,
        .fua_per_mille = 250,
        .half_record_per_mille = 600,
        .same_data_per_mille = hunt->same_data_per_mille,
        .loss_mask = 1u << SIM_LOSS_RANDOM | 1u << SIM_LOSS_REORDER | 1u << SIM_LOSS_ALL,
    };
    p.weights[hunt->more] += hunt->more_weight;
    return p;
}

static struct store *tiny_make(void *arg)
{
    struct text why = {0};
    struct store *s = store_pool_new(arg, &why);
    if (s == NULL)
        printf("# no pool: %s\n", why.bytes);
    text_free(&why);
    return s;
}

static struct store_pool_options tiny_options(const struct hunt *hunt, unsigned rules_off, uint64_t number)
{
    return (struct store_pool_options){.disk_bytes = 2 * 1024 * 1024,
                                       .segment_bytes = 64 * 1024,
                                       .lookahead_count = 2,
                                       .fibers = true,
                                       .worker_count = (unsigned)(number % 3),
                                       .rules_off = rules_off,
                                       .label_loss_per_mille = hunt->label_loss_per_mille,
                                       .seed = number};
}

/* Runs one history; a failing one is shortened and told if wanted. */
static bool history_holds(const struct hunt *hunt, unsigned rules_off, uint64_t number, bool tell)
{
    struct profile profile = profile_of(hunt);
    struct store_pool_options options = tiny_options(hunt, rules_off, number);
    struct history h;
    struct history_stats stats = {0};
    struct text why = {0};
    history_make(&h, &profile, number, 12 + number % 40);
    struct store *s = tiny_make(&options);
    bool good = s != NULL && history_run(&h, s, &stats, &why, NULL);
    if (s != NULL)
        s->ops->free(s);
    if (!good && tell)
        history_report(&h, &(struct store_maker){.make = tiny_make, .arg = &options}, hunt->name);
    text_free(&why);
    history_free(&h);
    return good;
}

static bool round_holds(const struct hunt *hunt, unsigned rules_off, uint64_t number, bool tell)
{
    struct round r;
    struct round_stats stats = {0};
    struct text why = {0};
    round_make(&r, number);
    r.options.rules_off = rules_off;
    r.nested_one_in = 0;
    if (hunt->where == IN_ROUNDS_WITH_A_LOST_WRITE) {
        struct prng random;
        prng_seed(&random, number);
        r.client_count = 1;
        r.fault = FAULT_LOSE_WRITE;
        r.fault_nth = 1 + prng_below(&random, 20);
    }
    bool good = round_run(&r, &stats, NULL, &why);
    if (!good && tell)
        printf("# %s: %s\n", hunt->name, why.bytes);
    text_free(&why);
    return good;
}

static bool trial_holds(const struct hunt *hunt, unsigned rules_off, uint64_t number, bool tell)
{
    return hunt->where == IN_HISTORIES ? history_holds(hunt, rules_off, number, tell)
                                       : round_holds(hunt, rules_off, number, tell);
}

/* Each hunt's own mix of operations, with every rule on. */
static void test_all_rules_on_holds(void)
{
    for (size_t i = 0; i < HUNTS; i++) {
        unsigned count = hunts[i].where == IN_HISTORIES ? 150 : 8;
        for (unsigned k = 0; k < count; k++) {
            bool good = trial_holds(&hunts[i], 0, seed + k, true);
            EXPECT(good);
            if (!good)
                break;
        }
    }
}

static void test_each_rule_is_necessary(void)
{
    for (size_t i = 0; i < HUNTS; i++) {
        unsigned tries = 0;
        bool held = true;
        while (held && tries < hunts[i].budget)
            held = trial_holds(&hunts[i], hunts[i].rules_off, seed + tries++, false);
        EXPECT(!held);
        if (held)
            printf("# %s: no failing history among %u\n", hunts[i].name, tries);
        else
            (void)trial_holds(&hunts[i], hunts[i].rules_off, seed + tries - 1, true);
    }
}

int main(void)
{
    seed = seed_choose();
    RUN(test_all_rules_on_holds);
    RUN(test_each_rule_is_necessary);
    return tap_done();
}
