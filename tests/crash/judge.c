/*
 * See judge.h. A picture is opened in a simulation of its own, outside of fibers and without workers: there a device
 * operation completes at once, so that recoveries are quick and there are as many as needed.
 */
#include "crash/judge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"
#include "format/limits.h"
#include "model/pattern.h"

const int loss_list[LOSS_COUNT] = {SIM_LOSS_RANDOM,  SIM_LOSS_ALL,  SIM_LOSS_NONE, SIM_LOSS_RANDOM,
                                   SIM_LOSS_REORDER, SIM_LOSS_TEAR, LOSS_PROCESS};

const char *loss_name(int loss)
{
    switch (loss) {
    case SIM_LOSS_RANDOM:
        return "random";
    case SIM_LOSS_ALL:
        return "all lost";
    case SIM_LOSS_NONE:
        return "none lost";
    case SIM_LOSS_REORDER:
        return "reordered";
    case SIM_LOSS_TEAR:
        return "torn";
    default:
        return "process only";
    }
}

static void trace_add(struct judge *j, const struct sim *sim)
{
    j->trace = (j->trace ^ sim_trace_hash(sim)) * UINT64_C(0x9e3779b97f4a7c15);
}

static bool cut_disk_is_clean(struct judge *j, const struct sim_image *image, int loss, uint64_t seed, struct text *why)
{
    struct sim *sim = sim_new(seed);
    struct sim_disk *disk = sim_disk_from_image(sim, image);
    if (loss >= 0)
        sim_disk_power_cut(disk, (enum sim_loss)loss, seed);
    j->checks++;
    bool clean = store_pool_check(disk, why);
    trace_add(j, sim);
    sim_disk_free(disk);
    sim_free(sim);
    return clean;
}

static bool recovered_same(const struct recovered *a, const struct recovered *b, struct text *why)
{
    for (size_t v = 0; v < ORACLE_VOLUMES; v++) {
        if (a->exists[v] != b->exists[v]) {
            text_printf(why, "volume %zu: there after one opening and not after the other", v);
            return false;
        }
        if (!a->exists[v])
            continue;
        uint64_t sectors = a->found[v].size_bytes / SECTOR_BYTES;
        if (a->found[v].size_bytes != b->found[v].size_bytes ||
            memcmp(a->values[v], b->values[v], sectors * sizeof(uint64_t)) != 0) {
            text_printf(why, "volume %zu: what was read after one opening is not what is read after the next", v);
            return false;
        }
    }
    return true;
}

/*
 * The disk as it is now, cut again: reads the same. Where only the process had ended, what was read may still be in the
 * disk's cache alone: there a flush comes first, which covers what an earlier process acknowledged.
 */
static bool stays_the_same(struct judge *j, struct store *s, struct oracle *o, const struct recovered *first, int loss,
                           uint64_t seed, struct text *why)
{
    int flushed = loss == LOSS_PROCESS ? s->ops->flush_all(s) : 0;
    if (flushed != 0) {
        text_printf(why, "flush after the opening: %d", flushed);
        return false;
    }
    struct sim_image *image = sim_disk_image(store_pool_disk(s));
    struct recovered again = {0};
    struct store *second = store_pool_from_image(&j->options, image, seed % 2 == 0 ? SIM_LOSS_ALL : SIM_LOSS_RANDOM,
                                                 seed + 1, NULL, NULL, why);
    bool good = second != NULL && recovered_check(second, o, false, &again, why) && recovered_same(first, &again, why);
    j->openings++;
    recovered_free(&again);
    if (second != NULL) {
        trace_add(j, store_pool_sim(second));
        second->ops->free(second);
    }
    sim_image_free(image);
    if (!good)
        text_printf(why, " (cut again right after the opening)");
    return good;
}

/* Writes a record of each volume with FUA and another without, then closes and opens. What is expected is kept in the
 * values that were read. */
static bool writes_go_on(struct store *s, struct recovered *r, uint64_t seed, struct text *why)
{
    struct prng random;
    prng_seed(&random, seed);
    for (unsigned v = 0; v < ORACLE_VOLUMES; v++) {
        if (!r->exists[v])
            continue;
        uint64_t sectors = r->found[v].size_bytes / SECTOR_BYTES;
        for (int i = 0; i < 2; i++) {
            uint64_t first = prng_below(&random, sectors);
            uint64_t count = 1 + prng_below(&random, min_u64(sectors - first, 32));
            uint8_t *bytes = malloc(count * SECTOR_BYTES);
            CHECK(bytes != NULL);
            pattern_fill(bytes, count * SECTOR_BYTES, prng_u64(&random) >> 20, PATTERN_MIXED);
            int result =
                s->ops->write(s, v, first * SECTOR_BYTES, bytes, count * SECTOR_BYTES, i == 0 ? VOLUME_FUA : 0);
            for (uint64_t k = 0; result == 0 && k < count; k++)
                r->values[v][first + k] = sector_value(bytes + k * SECTOR_BYTES);
            free(bytes);
            if (result != 0) {
                text_printf(why, "write after the recovery: %d", result);
                return false;
            }
        }
    }
    return true;
}

static bool goes_on(struct judge *j, struct store *s, struct recovered *r, uint64_t seed, struct text *why)
{
    if (!writes_go_on(s, r, seed, why) || s->ops->reopen(s, why) != 0)
        return false;
    struct recovered again = {0};
    bool good = true;
    for (unsigned v = 0; v < ORACLE_VOLUMES && good; v++) {
        if (!r->exists[v])
            continue;
        uint64_t bytes = r->found[v].size_bytes;
        again.exists[v] = true;
        again.found[v] = r->found[v];
        again.bytes[v] = malloc(bytes);
        again.values[v] = calloc(bytes / SECTOR_BYTES, sizeof(uint64_t));
        CHECK(again.bytes[v] != NULL && again.values[v] != NULL);
        good = s->ops->read(s, v, 0, again.bytes[v], bytes) == 0;
        for (uint64_t i = 0; i < bytes / SECTOR_BYTES && good; i++)
            again.values[v][i] = sector_value(again.bytes[v] + i * SECTOR_BYTES);
    }
    good = good && recovered_same(r, &again, why);
    recovered_free(&again);
    if (good && store_pool_close(s, why) == 0) {
        j->checks++;
        return store_pool_check(store_pool_disk(s), why);
    }
    text_printf(why, " (going on after the recovery)");
    return false;
}

/*
 * An opening itself writes nothing: recovery's device steps come with the first change. So a sector is written with the
 * bytes it has, with FUA, and a checkpoint is made; neither changes what is read. A full pool may refuse the write.
 */
static bool nudge(struct store *s, const struct recovered *r, struct text *why)
{
    int result = 0;
    for (unsigned v = 0; v < ORACLE_VOLUMES; v++)
        if (r->exists[v]) {
            result = s->ops->write(s, v, 0, r->bytes[v], SECTOR_BYTES, VOLUME_FUA);
            break;
        }
    if (result == 0 || result == -ENOSPC)
        result = s->ops->checkpoint(s);
    if (result != 0)
        text_printf(why, "the first write or checkpoint after the opening: %d", result);
    return result == 0;
}

static bool image_holds(struct judge *j, const struct sim_image *image, struct oracle *o, int loss, uint64_t seed,
                        unsigned depth, const struct recovered *expected, struct text *why);

/* Each picture taken while the pool was opened and nudged: cut, in one way or in each, and everything again. */
static bool nested_hold(struct judge *j, const struct points *nested, struct oracle *o, uint64_t seed, unsigned depth,
                        const struct recovered *expected, struct text *why)
{
    unsigned losses = j->nested_every_loss ? LOSS_COUNT : 1;
    for (size_t i = 0; i < nested->count * losses; i++) {
        const struct point *p = &nested->list[i / losses];
        int loss = loss_list[(seed + i) % LOSS_COUNT];
        j->nested_points++;
        if (image_holds(j, p->image, o, loss, seed + 1000 + i, depth, expected, why))
            continue;
        text_printf(why, " (again at device step %llu of the recovery, %s)", (unsigned long long)p->number,
                    loss_name(loss));
        return false;
    }
    return true;
}

/*
 * One picture, one cut. depth: how often the power goes again inside the recovery. expected, if not NULL, is what must
 * be read, all of it.
 */
static bool image_holds(struct judge *j, const struct sim_image *image, struct oracle *o, int loss, uint64_t seed,
                        unsigned depth, const struct recovered *expected, struct text *why)
{
    if (expected == NULL && j->check_before && !cut_disk_is_clean(j, image, loss, seed, why))
        return false;
    struct points nested = {.chance_per_mille = j->nested_one_in <= 1 ? 0 : 1 + 1000 / j->nested_one_in, .state = seed};
    struct store *s =
        store_pool_from_image(&j->options, image, loss, seed, depth == 0 ? NULL : points_hook, &nested, why);
    j->openings++;
    struct recovered r = {0};
    bool good = s != NULL && recovered_check(s, o, false, &r, why);
    if (good && expected != NULL)
        good = recovered_same(expected, &r, why);
    if (good && j->check_after && (expected == NULL || j->nested_check || seed % 4 == 0)) {
        j->checks++;
        good = store_pool_check(store_pool_disk(s), why);
    }
    if (good && expected == NULL && (j->stay || loss == LOSS_PROCESS))
        good = stays_the_same(j, s, o, &r, loss, seed, why);
    if (good && depth > 0) {
        good = nudge(s, &r, why);
        points_stop(&nested, store_pool_disk(s));
        j->recovery_steps += nested.writes + nested.flushes + nested.others;
        good = good && nested_hold(j, &nested, o, seed, depth - 1, loss == LOSS_PROCESS ? NULL : &r, why);
    }
    if (good && expected == NULL && j->go_on)
        good = goes_on(j, s, &r, seed, why);
    points_free(&nested);
    recovered_free(&r);
    if (s != NULL) {
        trace_add(j, store_pool_sim(s));
        s->ops->free(s);
    }
    return good;
}

bool judge_image(struct judge *j, const struct sim_image *image, struct oracle *o, int loss, uint64_t seed,
                 struct text *why)
{
    unsigned depth = j->nested_one_in == 0 ? 0 : j->nested_deeper ? 2 : 1;
    return image_holds(j, image, o, loss, seed, depth, NULL, why);
}

/* The point, with each of its losses. The oracle stands there. */
static bool point_holds(struct judge *j, const struct point *p, struct oracle *o, size_t index, unsigned losses_each,
                        uint64_t seed, struct text *why)
{
    unsigned count = losses_each == 0 ? LOSS_COUNT : losses_each;
    for (unsigned k = 0; k < count; k++) {
        int loss = loss_list[losses_each == 0 ? k : (index * losses_each + k) % LOSS_COUNT];
        uint64_t own = seed + index * LOSS_COUNT + k;
        j->points++;
        if (judge_image(j, p->image, o, loss, own, why))
            continue;
        text_printf(why, " (power cut at device step %llu of the workload, %s, seed %llu)",
                    (unsigned long long)p->number, loss_name(loss), (unsigned long long)own);
        return false;
    }
    return true;
}

bool judge_points(struct judge *j, const struct points *points, const struct oracle *history, unsigned losses_each,
                  uint64_t seed, struct text *why)
{
    struct oracle *o = oracle_new();
    bool good = true;
    unsigned parts = j->parts == 0 ? 1 : j->parts;
    for (size_t i = j->part; i < points->count && good; i += parts) {
        oracle_replay(o, history, points->list[i].position);
        good = point_holds(j, &points->list[i], o, i, losses_each, seed, why);
        if (j->loud && i / parts % 64 == 63) {
            printf("# step %zu of %zu: %llu openings, %llu steps inside recoveries, trace %016llx\n", i + 1,
                   points->count, (unsigned long long)j->openings, (unsigned long long)j->recovery_steps,
                   (unsigned long long)j->trace);
            fflush(stdout);
        }
    }
    struct oracle_stats stats;
    oracle_get_stats(o, &stats);
    if (good && stats.undecided != 0) {
        text_printf(why, "the oracle was undecided %llu times", (unsigned long long)stats.undecided);
        good = false;
    }
    oracle_free(o);
    return good;
}
