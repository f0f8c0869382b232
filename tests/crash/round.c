/*
 * Two volumes of very few records, so that clients meet: reads, plain and FUA writes, trims, zeroes, flushes of a
 * volume and of the pool, checkpoints. Ranges are whole sectors; two operations that overlap in time may take effect in
 * either order, which the oracle knows.
 */
#include "crash/round.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"
#include "format/limits.h"
#include "model/pattern.h"

#define CLIENTS_MAX 12
#define VOLUMES 2
#define LENGTH_MAX_BYTES (40 * 1024)

static const uint32_t record_bytes[VOLUMES] = {4096, 16384};
static const uint64_t size_bytes[VOLUMES] = {24 * KIB, 48 * KIB};

struct party;

struct client {
    struct party *party;
    struct prng random;
    struct env_thread *thread;
    uint8_t *bytes;
    uint64_t *values;
};

struct party {
    const struct round *round;
    struct store *s;
    struct oracle *o;
    struct points points;
    struct client clients[CLIENTS_MAX];
    unsigned clients_running;
    struct prng rot_dice;
    uint64_t rot_offset_bytes, rot_choices; /* one of the pages written so far, each as likely */
    struct sim_image *end;                  /* with a fault: the disk when the clients were done */
    struct round_stats *stats;
    uint64_t trace; /* of the openings after the cuts */
    struct text *why;
    bool failed;
};

static void fail(struct party *p, const char *what, int result)
{
    if (p->round->fault != FAULT_NONE && result == -EIO) {
        p->stats->errors++;
        return;
    }
    if (!p->failed)
        text_printf(p->why, "%s: %d", what, result);
    p->failed = true;
}

static void client_write(struct client *c, unsigned volume, uint64_t first, uint64_t count, unsigned flags)
{
    struct party *p = c->party;
    enum pattern_style style = (enum pattern_style)prng_below(&c->random, PATTERN_STYLE_COUNT);
    pattern_fill(c->bytes, count * SECTOR_BYTES, prng_u64(&c->random) >> 16, style);
    for (uint64_t i = 0; i < count; i++)
        c->values[i] = sector_value(c->bytes + i * SECTOR_BYTES);
    unsigned told = oracle_begin(p->o, &(struct oracle_args){.kind = ORACLE_WRITE,
                                                             .volume = volume,
                                                             .first = first,
                                                             .count = count,
                                                             .values = c->values,
                                                             .durable = (flags & VOLUME_FUA) != 0});
    int r = p->s->ops->write(p->s, volume, first * SECTOR_BYTES, c->bytes, count * SECTOR_BYTES, flags);
    oracle_end(p->o, told, r);
    if (r != 0)
        fail(p, "write", r);
}

static void client_zero(struct client *c, unsigned volume, uint64_t first, uint64_t count, unsigned flags)
{
    struct party *p = c->party;
    bool trim = prng_chance(&c->random, 700);
    unsigned told = oracle_begin(p->o, &(struct oracle_args){.kind = ORACLE_ZERO,
                                                             .volume = volume,
                                                             .first = first,
                                                             .count = count,
                                                             .durable = (flags & VOLUME_FUA) != 0});
    int r = trim ? p->s->ops->trim(p->s, volume, first * SECTOR_BYTES, count * SECTOR_BYTES, flags)
                 : p->s->ops->zero(p->s, volume, first * SECTOR_BYTES, count * SECTOR_BYTES, flags);
    oracle_end(p->o, told, r);
    if (r != 0)
        fail(p, trim ? "trim" : "zero", r);
}

static void client_read(struct client *c, unsigned volume, uint64_t first, uint64_t count)
{
    struct party *p = c->party;
    uint64_t began = oracle_read_begin(p->o);
    int r = p->s->ops->read(p->s, volume, first * SECTOR_BYTES, c->bytes, count * SECTOR_BYTES);
    if (r != 0) {
        fail(p, "read", r);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        c->values[i] = sector_value(c->bytes + i * SECTOR_BYTES);
    if (!p->failed && !oracle_read_end(p->o, began, volume, first, count, c->values, p->why))
        p->failed = true;
}

static void client_flush(struct client *c, unsigned volume)
{
    struct party *p = c->party;
    uint64_t dice = prng_below(&c->random, 10);
    unsigned told =
        oracle_begin(p->o, &(struct oracle_args){.kind = dice < 7 ? ORACLE_FLUSH : ORACLE_FLUSH_ALL, .volume = volume});
    int r = dice < 7   ? p->s->ops->flush(p->s, volume)
            : dice < 9 ? p->s->ops->flush_all(p->s)
                       : p->s->ops->checkpoint(p->s);
    oracle_end(p->o, told, r);
    if (r != 0)
        fail(p, dice < 9 ? "flush" : "checkpoint", r);
    p->stats->durable_requests++;
}

/* A range of sectors: any, or half a record, or whole records. */
static void range_choose(struct client *c, unsigned volume, uint64_t *ret_first, uint64_t *ret_count)
{
    uint64_t record = record_bytes[volume] / SECTOR_BYTES, sectors = size_bytes[volume] / SECTOR_BYTES;
    uint64_t unit = prng_chance(&c->random, 300) ? 1 : prng_chance(&c->random, 500) ? record / 2 : record;
    *ret_first = prng_below(&c->random, sectors / unit) * unit;
    *ret_count = (1 + (prng_chance(&c->random, 250) ? prng_below(&c->random, 8) : 0)) * unit;
    *ret_count = min_u64(*ret_count, sectors - *ret_first);
    *ret_count = min_u64(*ret_count, LENGTH_MAX_BYTES / SECTOR_BYTES);
}

static void client_run(void *arg)
{
    struct client *c = arg;
    struct party *p = c->party;
    for (unsigned i = 0; i < p->round->operations && !p->failed; i++) {
        unsigned volume = (unsigned)prng_below(&c->random, VOLUMES);
        unsigned flags = prng_chance(&c->random, 350) ? VOLUME_FUA : 0;
        uint64_t dice = prng_below(&c->random, 100), first, count;
        range_choose(c, volume, &first, &count);
        p->stats->operations++;
        p->stats->durable_requests += flags != 0 && dice < 65;
        if (dice < 45)
            client_write(c, volume, first, count, flags);
        else if (dice < 65)
            client_zero(c, volume, first, count, flags);
        else if (dice < 88)
            client_read(c, volume, first, count);
        else
            client_flush(c, volume);
        if (prng_chance(&c->random, 200))
            env_sleep_ns(sim_env(store_pool_sim(p->s)), prng_below(&c->random, 200000));
    }
    p->clients_running--;
}

static void poker_run(void *arg)
{
    struct client *c = arg;
    struct party *p = c->party;
    while (p->clients_running > 0 && !p->failed) {
        static const enum store_poke pokes[] = {POKE_WRITE_BACK, POKE_WRITE_BACK, POKE_SEAL, POKE_EVICT, POKE_REAP};
        unsigned volume = (unsigned)prng_below(&c->random, VOLUMES);
        uint64_t index = prng_below(&c->random, size_bytes[volume] / record_bytes[volume]);
        int r = p->s->ops->poke(p->s, pokes[prng_below(&c->random, 5)], volume, index);
        if (r != 0)
            fail(p, "poke", r);
        env_sleep_ns(sim_env(store_pool_sim(p->s)), prng_below(&c->random, 100000));
    }
}

static bool volumes_create(struct party *p)
{
    for (unsigned v = 0; v < VOLUMES; v++) {
        char name[ORACLE_NAME_BYTES];
        snprintf(name, sizeof(name), "v%u", v);
        unsigned told = oracle_begin(p->o, &(struct oracle_args){.kind = ORACLE_CREATE,
                                                                 .volume = v,
                                                                 .name = name,
                                                                 .size_bytes = size_bytes[v],
                                                                 .record_bytes = record_bytes[v]});
        int r = p->s->ops->create(p->s, v, name, size_bytes[v], record_bytes[v],
                                  (struct codec_choice){.id = v == 0 ? CODEC_OFF : CODEC_LZ4});
        oracle_end(p->o, told, r);
        if (r != 0)
            fail(p, "create", r);
    }
    return !p->failed;
}

static void client_make(struct party *p, unsigned i)
{
    struct client *c = &p->clients[i];
    c->party = p;
    prng_seed(&c->random, p->round->seed * 16 + i);
    c->bytes = malloc(LENGTH_MAX_BYTES);
    c->values = calloc(LENGTH_MAX_BYTES / SECTOR_BYTES, sizeof(*c->values));
    CHECK(c->bytes != NULL && c->values != NULL);
}

/* The hook of FAULT_ROT: a page that was written before rots. Counts as points_hook does. */
static void rot_hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct party *p = arg;
    if (p->points.writes + p->points.flushes + p->points.others + 1 == p->round->fault_nth && p->rot_choices > 0)
        sim_disk_corrupt(disk, p->rot_offset_bytes, 4096, NULL, p->round->seed);
    for (uint64_t at = 0; io->kind == DEVICE_WRITE && at < io->length_bytes; at += 4096)
        if (prng_below(&p->rot_dice, ++p->rot_choices) == 0)
            p->rot_offset_bytes = io->offset_bytes + at;
    points_hook(&p->points, disk, number, io);
}

static void fault_arm(struct party *p)
{
    struct sim_disk *disk = store_pool_disk(p->s);
    if (p->round->fault == FAULT_LOSE_WRITE)
        sim_disk_lose_write(disk, p->round->fault_nth);
    else if (p->round->fault == FAULT_MISDIRECT_WRITE)
        sim_disk_misdirect(disk, p->round->fault_nth, p->round->fault_offset_bytes);
    else if (p->round->fault == FAULT_ROT)
        sim_disk_set_hook(disk, rot_hook, p);
    prng_seed(&p->rot_dice, p->round->fault_offset_bytes);
}

/* Runs in the first fiber: everybody starts, everybody ends, and all is read once more. */
static void party_run(void *arg)
{
    struct party *p = arg;
    struct env *env = sim_env(store_pool_sim(p->s));
    unsigned count = p->round->client_count;
    if (!volumes_create(p))
        return;
    points_start(&p->points, store_pool_disk(p->s), p->o);
    fault_arm(p);
    p->clients_running = count;
    for (unsigned i = 0; i < count + p->round->poke; i++)
        CHECK_EQ(env_thread_start(env, i < count ? "client" : "poker", i < count ? client_run : poker_run,
                                  &p->clients[i], &p->clients[i].thread),
                 0);
    for (unsigned i = 0; i < count + p->round->poke; i++)
        env_thread_join(p->clients[i].thread);
    if (p->round->fault != FAULT_NONE) {
        /* What is flushed after the fault is the evidence that it was no end of the log. */
        for (unsigned i = 0; i < 3; i++)
            client_write(&p->clients[0], i % VOLUMES, i * 8, 8, VOLUME_FUA);
        client_flush(&p->clients[0], 0);
        p->end = sim_disk_image(store_pool_disk(p->s));
    }
    points_stop(&p->points, store_pool_disk(p->s));
    for (unsigned v = 0; v < VOLUMES; v++)
        for (uint64_t at = 0; at < size_bytes[v] && !p->failed; at += LENGTH_MAX_BYTES)
            client_read(&p->clients[0], v, at / SECTOR_BYTES,
                        min_u64(size_bytes[v] - at, LENGTH_MAX_BYTES) / SECTOR_BYTES);
}

void round_make(struct round *r, uint64_t seed)
{
    struct prng random;
    prng_seed(&random, seed);
    *r = (struct round){.seed = seed,
                        .client_count = 2 + (unsigned)prng_below(&random, 6),
                        .operations = 30,
                        .points_max = 24,
                        .point_per_mille = 100,
                        .losses_each = 2,
                        .poke = prng_chance(&random, 700),
                        .nested_one_in = 16};
    r->options = (struct store_pool_options){.disk_bytes = 12 * MIB,
                                             .segment_bytes = 256 * KIB,
                                             .lookahead_count = 2 + (uint32_t)prng_below(&random, 3),
                                             .worker_count = (unsigned)prng_below(&random, 4),
                                             .background = prng_chance(&random, 500),
                                             .fibers = true,
                                             .through_queue = prng_chance(&random, 500),
                                             .seed = seed};
}

static bool cuts_hold(struct party *p, struct text *why)
{
    struct judge j = {.options = p->round->options,
                      .check_after = p->round->options.rules_off == 0,
                      .nested_one_in = p->round->nested_one_in};
    j.options.fibers = j.options.background = j.options.through_queue = false;
    j.options.worker_count = 0;
    bool good = judge_points(&j, &p->points, p->o, p->round->losses_each, p->round->seed, why);
    p->stats->points += p->points.count;
    p->stats->openings += j.openings;
    p->stats->nested_points += j.nested_points;
    p->trace = j.trace;
    return good;
}

/* Read-only, a pool whose flushed log is damaged shows an older state, and says so: no sector has a value it never had.
 */
static bool refused_pool_shows_its_past(struct party *p, const struct sim_image *image, struct text *why)
{
    struct store_pool_options options = p->round->options;
    options.fibers = options.background = options.through_queue = false;
    options.worker_count = 0;
    options.read_only = true;
    struct text refusal = {0};
    struct store *s = store_pool_from_image(&options, image, SIM_LOSS_NONE, 1, NULL, NULL, &refusal);
    if (s == NULL) {
        /* A write that went astray can take both copies of a map node away: they lie side by side. */
        bool damaged = strstr(refusal.bytes, "-74") != NULL;
        if (!damaged)
            text_printf(why, "%s", refusal.bytes);
        text_free(&refusal);
        return damaged;
    }
    bool good = true;
    struct oracle_found list[ORACLE_VOLUMES];
    size_t count = s->ops->list(s, list, ORACLE_VOLUMES);
    for (size_t i = 0; i < count && good; i++) {
        unsigned volume = (unsigned)(list[i].name[1] - '0');
        uint8_t bytes[SECTOR_BYTES];
        good = s->ops->adopt(s, volume, list[i].name) == 0;
        for (uint64_t k = 0; k < list[i].size_bytes / SECTOR_BYTES && good; k++)
            good = s->ops->read(s, volume, k * SECTOR_BYTES, bytes, SECTOR_BYTES) != 0 ||
                   oracle_was_ever(p->o, volume, k, sector_value(bytes));
    }
    if (!good)
        text_printf(why, "read-only, a sector shows what it never held");
    s->ops->free(s);
    return good;
}

/* The pool does not open. After check --repair it does, and then every loss is an error; or its log is damaged. */
static bool refused_pool_is_survived(struct party *p, struct sim_disk *disk, struct text *why)
{
    struct store_pool_options options = p->round->options;
    options.fibers = options.background = options.through_queue = false;
    options.worker_count = 0;
    struct text refusal = {0};
    store_pool_repair(disk);
    struct sim_image *image = sim_disk_image(disk);
    struct store *s = store_pool_from_image(&options, image, SIM_LOSS_NONE, 1, NULL, NULL, &refusal);
    struct recovered found = {0};
    bool good = s != NULL ? recovered_check(s, p->o, true, &found, why) : refused_pool_shows_its_past(p, image, why);
    p->stats->repaired += s != NULL;
    p->stats->refused += s == NULL;
    recovered_free(&found);
    if (s != NULL)
        s->ops->free(s);
    sim_image_free(image);
    text_free(&refusal);
    return good;
}

/* After a fault: intact, or every loss is an error and check names damage, or the pool refuses to open. */
static bool fault_is_survived(struct party *p, struct text *why)
{
    struct store_pool_options options = p->round->options;
    options.fibers = options.background = options.through_queue = false;
    options.worker_count = 0;
    struct sim *sim = sim_new(p->round->seed);
    struct sim_disk *disk = sim_disk_from_image(sim, p->end);
    sim_disk_power_cut(disk, SIM_LOSS_ALL, p->round->seed);
    struct sim_image *image = sim_disk_image(disk);
    struct text report = {0}, refusal = {0};
    bool clean = store_pool_check(disk, &report);
    struct store *s = store_pool_from_image(&options, image, SIM_LOSS_NONE, 1, NULL, NULL, &refusal);
    struct recovered found = {0};
    bool good = true;
    if (s != NULL) {
        good = recovered_check(s, p->o, true, &found, why);
        p->stats->intact += found.lost_sectors == 0;
        p->stats->lossy += found.lost_sectors != 0;
    } else {
        good = refused_pool_is_survived(p, disk, why);
    }
    if (good && clean && (s == NULL || found.lost_sectors != 0)) {
        text_printf(why, "check names no damage, but %s", s == NULL ? refusal.bytes : "sectors are lost");
        good = false;
    }
    recovered_free(&found);
    if (s != NULL)
        s->ops->free(s);
    text_free(&report);
    text_free(&refusal);
    sim_image_free(image);
    sim_disk_free(disk);
    sim_free(sim);
    return good;
}

bool round_run(const struct round *r, struct round_stats *stats, uint64_t *ret_trace, struct text *why)
{
    CHECK_LT(r->client_count, CLIENTS_MAX);
    struct party p = {.round = r, .stats = stats, .why = why, .o = oracle_new()};
    p.points = (struct points){.chance_per_mille = r->point_per_mille, .state = r->seed, .count_max = r->points_max};
    p.s = store_pool_new(&r->options, why);
    bool good = p.s != NULL;
    if (good) {
        sim_set_yield(store_pool_sim(p.s), (unsigned)(r->seed % 4 * 100));
        for (unsigned i = 0; i <= r->client_count; i++)
            client_make(&p, i);
        p.s->ops->run(p.s, party_run, &p);
        if (r->fault == FAULT_NONE)
            good = !p.failed && store_pool_close(p.s, why) == 0;
        else
            good = !p.failed && p.end != NULL && fault_is_survived(&p, why);
        good = good && (r->fault != FAULT_NONE || cuts_hold(&p, why));
        if (ret_trace != NULL)
            *ret_trace = sim_trace_hash(store_pool_sim(p.s)) ^ p.trace;
        stats->rounds++;
        stats->device_flushes += p.points.flushes;
        stats->device_writes += p.points.writes;
        stats->device_steps += p.points.writes + p.points.flushes + p.points.others;
        p.s->ops->free(p.s);
    }
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        free(p.clients[i].bytes);
        free(p.clients[i].values);
    }
    points_free(&p.points);
    sim_image_free(p.end);
    oracle_free(p.o);
    if (!good)
        text_printf(why, " (round of seed %llu)", (unsigned long long)r->seed);
    return good;
}
