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
    unsigned label_loss_per_mille, same_data_per_mille, fua_per_mille;
    unsigned half_record_per_mille;  /* 0: 600 */
    unsigned loss_mask;              /* 0: random, reordered, all lost */
    uint64_t disk_bytes;             /* 0: 2 MiB */
    unsigned volume_count;           /* 0: 2 */
    unsigned weights[OP_KIND_COUNT]; /* instead of the usual ones, if there are any */
    enum op_kind more;               /* an operation that comes more often; its weight is added */
    unsigned more_weight;
    enum op_kind less;             /* one that does not come at all; OP_WRITE: none */
    unsigned length;               /* of a history; 0: 12 to 51 operations */
    enum op_kind script[16];       /* if its first is not OP_WRITE: the kinds of the operations, in order */
    uint64_t checkpoint_log_bytes; /* 0: the engine's own choice */
    bool outside_fibers;           /* the clock stands still, a device operation completes at once */
    bool watch_addresses;
};

static const struct hunt hunts[] = {
    {.name = "slots are reused at once",
     .rules_off = RULE_OFF_QUARANTINE,
     .budget = 3000,
     .fua_per_mille = 250,
     .more = OP_REAP,
     .more_weight = 4},
    {.name = "quarantine of one label",
     .rules_off = RULE_OFF_QUARANTINE_2,
     .budget = 3000,
     .fua_per_mille = 250,
     .label_loss_per_mille = 500,
     .more = OP_CHECKPOINT,
     .more_weight = 4},
    {.name = "replay range not pinned",
     .rules_off = RULE_OFF_PIN_REPLAY | RULE_OFF_QUARANTINE,
     .budget = 1500,
     .fua_per_mille = 800,
     .weights = {[OP_WRITE] = 12, [OP_FLUSH] = 1, [OP_REAP] = 6, [OP_EVICT] = 1, [OP_CRASH] = 1},
     .length = 60,
     .disk_bytes = 1536 * 1024,
     .checkpoint_log_bytes = 256 * 1024},
    {.name = "patches overtake write-back",
     .rules_off = RULE_OFF_PATCH_ORDER,
     .budget = 3000,
     .fua_per_mille = 400,
     .more = OP_WRITE_BACK,
     .more_weight = 4,
     .less = OP_TRIM},
    {.name = "trims overtake write-back",
     .rules_off = RULE_OFF_TRIM_ORDER,
     .budget = 3000,
     .half_record_per_mille = 100,
     .weights = {[OP_WRITE] = 6,
                 [OP_WRITE_BACK] = 6,
                 [OP_TRIM] = 6,
                 [OP_FLUSH] = 3,
                 [OP_SEAL] = 4,
                 [OP_CRASH] = 1,
                 [OP_VERIFY] = 1}},
    {.name = "checkpoints forget patches",
     .rules_off = RULE_OFF_PATCH_CHECKPOINT,
     .budget = 3000,
     .fua_per_mille = 250,
     .more = OP_CHECKPOINT,
     .more_weight = 2},
    {.name = "a flush waits for its own chunk only",
     .rules_off = RULE_OFF_FLUSH_ALL,
     .where = IN_ROUNDS,
     .budget = 400},
    {.name = "a flush joins one under way", .rules_off = RULE_OFF_FLUSH_AFTER, .where = IN_ROUNDS, .budget = 400},
    /* In place, as in the model: behind a bridge an engine may be safe by other means too. In place alone, with
     * incarnations, breaks nothing that a client sees; that it issues addresses twice is the next one's. */
    {.name = "the same incarnation at every open",
     .rules_off = RULE_OFF_INCARNATION | RULE_OFF_BRIDGE,
     .budget = 6000,
     .same_data_per_mille = 1000,
     .half_record_per_mille = 1000,
     .volume_count = 1,
     .script = {OP_CRASH, OP_WRITE, OP_WRITE_BACK, OP_SEAL, OP_WRITE, OP_WRITE_BACK, OP_SEAL, OP_CRASH, OP_WRITE,
                OP_WRITE_BACK, OP_SEAL, OP_FLUSH, OP_CRASH},
     .length = 13,
     .loss_mask = 1u << SIM_LOSS_REORDER,
     .outside_fibers = true},
    {.name = "recovery goes on in place",
     .rules_off = RULE_OFF_BRIDGE,
     .budget = 3000,
     .fua_per_mille = 250,
     .more = OP_CRASH,
     .more_weight = 2,
     .watch_addresses = true},
    {.name = "damage is an end of log",
     .rules_off = RULE_OFF_DURABLE_TO,
     .where = IN_ROUNDS_WITH_A_LOST_WRITE,
     .budget = 200},
    {.name = "label before the data's flush",
     .rules_off = RULE_OFF_LABEL_ORDER,
     .budget = 3000,
     .fua_per_mille = 250,
     .more = OP_CUT_LATER,
     .more_weight = 4},
    {.name = "a failed flush is tried again",
     .rules_off = RULE_OFF_STICKY_FAILURE,
     .budget = 3000,
     .fua_per_mille = 250,
     .more = OP_FAIL_FLUSH,
     .more_weight = 3},
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
        .volume_count = hunt->volume_count == 0 ? 2 : hunt->volume_count,
        .record_bytes = {4096, 4096},
        .size_bytes = {8192, 48 * 1024},
        .length_max_bytes = 48 * 1024,
        .fua_per_mille = hunt->fua_per_mille,
        .half_record_per_mille = hunt->half_record_per_mille == 0 ? 600 : hunt->half_record_per_mille,
        .same_data_per_mille = hunt->same_data_per_mille,
        .loss_mask = 1u << SIM_LOSS_RANDOM | 1u << SIM_LOSS_REORDER | 1u << SIM_LOSS_ALL,
    };
    if (hunt->weights[OP_WRITE] != 0)
        memcpy(p.weights, hunt->weights, sizeof(p.weights));
    if (hunt->loss_mask != 0)
        p.loss_mask = hunt->loss_mask;
    p.weights[hunt->more] += hunt->more_weight;
    if (hunt->less != OP_WRITE)
        p.weights[hunt->less] = 0;
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
    return (struct store_pool_options){.disk_bytes = hunt->disk_bytes == 0 ? 2 * 1024 * 1024 : hunt->disk_bytes,
                                       .segment_bytes = 64 * 1024,
                                       .lookahead_count = 2,
                                       .fibers = !hunt->outside_fibers,
                                       .watch_addresses = hunt->watch_addresses,
                                       .checkpoint_log_bytes = hunt->checkpoint_log_bytes,
                                       .worker_count = hunt->outside_fibers ? 0 : (unsigned)(number % 3),
                                       .rules_off = rules_off,
                                       .unchecked = rules_off != 0, /* what a client sees has to break */
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
    history_make(&h, &profile, number, hunt->length != 0 ? hunt->length : 12 + number % 40);
    for (size_t i = 0; hunt->script[0] != OP_WRITE && i < h.count; i++)
        h.ops[i].kind = hunt->script[i];
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
        r.points_max = 1;
        (void)round_run(&r, &stats, NULL, &why); /* counts the writes */
        r.fault = FAULT_LOSE_WRITE;
        r.fault_nth = 1 + prng_below(&random, stats.device_writes / 2 + 1);
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

/* It fails without the rule, and holds with it. */
static bool needs_the_rule(const struct hunt *hunt, uint64_t number)
{
    return !trial_holds(hunt, hunt->rules_off, number, false) && trial_holds(hunt, 0, number, false);
}

static void test_each_rule_is_necessary(void)
{
    for (size_t i = 0; i < HUNTS; i++) {
        unsigned tries = 0;
        bool held = true;
        while (held && tries < hunts[i].budget)
            held = !needs_the_rule(&hunts[i], seed + tries++);
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
