/*
 * The sizes: a segment holds at least 16 of the largest record (R33), volumes together at most a third of the disk when
 * full of incompressible data, in some episodes more, so that a pool gets full.
 */
#include "model/episode.h"

#include <stdio.h>

#include "base/math.h"
#include "base/prng.h"
#include "format/limits.h"

static void geometry_choose(struct episode *e, struct prng *random)
{
    uint32_t segment_shift = 16 + (uint32_t)prng_below(random, 3);
    e->options.segment_bytes = 1u << segment_shift;
    e->options.lookahead_count = 2 + (uint32_t)prng_below(random, 3);
    e->options.disk_bytes = (128 + prng_below(random, 128)) * e->options.segment_bytes / 2;
    e->options.seed = prng_u64(random);
    bool crowded = prng_chance(random, 200);
    e->profile.volume_count = 2 + (unsigned)prng_below(random, 3);
    uint64_t share = e->options.disk_bytes / (crowded ? 1 : 4) / e->profile.volume_count;
    for (unsigned i = 0; i < e->profile.volume_count; i++) {
        uint32_t record_shift = 12 + (uint32_t)prng_below(random, segment_shift - 4 - 12 + 1);
        e->profile.record_bytes[i] = 1u << record_shift;
        uint64_t size = share / 8 + prng_below(random, share - share / 8);
        e->profile.size_bytes[i] = round_down(size, SECTOR_BYTES);
    }
    e->profile.length_max_bytes = (4 + prng_below(random, 60)) * KIB;
}

static void weights_choose(struct profile *p, struct prng *random, bool with_crashes)
{
    static const unsigned usual[OP_KIND_COUNT] = {
        [OP_WRITE] = 400, [OP_READ] = 300,   [OP_FLUSH] = 20, [OP_FLUSH_ALL] = 5,  [OP_TRIM] = 60,
        [OP_ZERO] = 40,   [OP_EXTENTS] = 80, [OP_RESIZE] = 3, [OP_CREATE] = 30,    [OP_DESTROY] = 2,
        [OP_RENAME] = 2,  [OP_CODEC] = 3,    [OP_VERIFY] = 1, [OP_CHECKPOINT] = 4, [OP_REOPEN] = 1};
    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        p->weights[i] = usual[i] == 0 ? 0 : 1 + (unsigned)prng_below(random, 2 * usual[i]);
    if (with_crashes) {
        p->weights[OP_CRASH] = 8;
        p->loss_mask = (1u << (SIM_LOSS_TEAR + 1)) - 1;
    }
    p->fua_per_mille = (unsigned)prng_below(random, 150);
    p->unaligned_per_mille = (unsigned)prng_below(random, 400);
    p->half_record_per_mille = (unsigned)prng_below(random, 300);
    p->same_data_per_mille = (unsigned)prng_below(random, 100);
}

void episode_make(struct episode *e, uint64_t seed, bool with_crashes)
{
    *e = (struct episode){.seed = seed};
    struct prng random;
    prng_seed(&random, seed);
    geometry_choose(e, &random);
    weights_choose(&e->profile, &random, with_crashes);
    e->operations = with_crashes ? 400 : 2500;
}

static struct store *episode_store(void *arg)
{
    const struct episode *e = arg;
    struct text why = {0};
    struct store *s = store_pool_new(&e->options, &why);
    if (s == NULL)
        printf("# no pool: %s\n", why.bytes);
    text_free(&why);
    return s;
}

bool episode_run(const struct episode *e, struct history_stats *stats, uint64_t *ret_trace)
{
    struct episode mine = *e;
    struct history h;
    history_make(&h, &mine.profile, e->seed, e->operations);
    struct store *s = episode_store(&mine);
    bool good = s != NULL;
    if (good) {
        struct text why = {0};
        good = history_run(&h, s, stats, &why, NULL);
        if (ret_trace != NULL)
            *ret_trace = sim_trace_hash(store_pool_sim(s));
        s->ops->free(s);
        if (!good)
            printf("# seed %llu: %s\n", (unsigned long long)e->seed, why.bytes);
        text_free(&why);
        if (!good)
            history_report(&h, &(struct store_maker){.make = episode_store, .arg = &mine}, "episode");
    }
    history_free(&h);
    return good;
}
