/*
 * One client, one operation at a time: volumes, flushes, opens, power cuts, and the choice of what to do. See
 * driver_impl.h.
 */
#include "model/driver_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"

bool driver_complain(struct driver *d, struct text *why, const char *what, const struct op *op, int result)
{
    d->error = result;
    text_printf(why, "%s (volume %u, result %d)", what, op->volume, result);
    return false;
}

struct driver *driver_new(const struct profile *profile, struct store *s, struct oracle *o, struct history_stats *stats)
{
    struct driver *d = calloc(1, sizeof(*d));
    CHECK(d != NULL);
    *d = (struct driver){.profile = profile, .s = s, .o = o, .stats = stats};
    uint64_t room = profile->length_max_bytes;
    for (unsigned i = 0; i < profile->volume_count; i++)
        room = max_u64(room, 4 * profile->record_bytes[i]);
    d->buffer_bytes = room + 2 * SECTOR_BYTES;
    d->buffer = malloc(d->buffer_bytes);
    d->after = malloc(d->buffer_bytes);
    d->values = calloc(d->buffer_bytes / SECTOR_BYTES + 1, sizeof(*d->values));
    CHECK(d->buffer != NULL && d->after != NULL && d->values != NULL);
    for (unsigned i = 0; i < profile->volume_count; i++) {
        struct model_volume *v = &d->volumes[i];
        v->record_bytes = profile->record_bytes[i];
        v->room_bytes = round_up(profile->size_bytes[i], v->record_bytes);
        v->bytes = calloc(1, v->room_bytes);
        v->state = calloc(v->room_bytes / v->record_bytes, sizeof(*v->state));
        v->state_epoch = calloc(v->room_bytes / v->record_bytes, sizeof(*v->state_epoch));
        CHECK(v->bytes != NULL && v->state != NULL && v->state_epoch != NULL);
    }
    return d;
}

void driver_free(struct driver *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < STORE_VOLUMES; i++) {
        free(d->volumes[i].bytes);
        free(d->volumes[i].state);
        free(d->volumes[i].state_epoch);
    }
    free(d->buffer);
    free(d->after);
    free(d->values);
    free(d);
}

/* ---- volumes ---- */

static struct codec_choice codec_of(uint64_t number)
{
    static const struct codec_choice choices[] = {
        {CODEC_OFF, 0}, {CODEC_LZ4, 0}, {CODEC_ZSTD, 1}, {CODEC_ZSTD, -3}, {CODEC_LZ4, 0}};
    return choices[number % 5];
}

static bool create_step(struct driver *d, const struct op *op, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    uint64_t size = d->profile->size_bytes[op->volume];
    snprintf(v->name, sizeof(v->name), "v%u", op->volume);
    unsigned told = driver_tell_begin(d, &(struct oracle_args){.kind = ORACLE_CREATE,
                                                               .volume = op->volume,
                                                               .name = v->name,
                                                               .size_bytes = size,
                                                               .record_bytes = v->record_bytes});
    int result = d->s->ops->create(d->s, op->volume, v->name, size, v->record_bytes, codec_of(op->stamp));
    driver_tell_end(d, told, result);
    if (result == -ENOSPC)
        return driver_space_is_short(d, 0, 0, v->record_bytes, why);
    if (result != 0)
        return driver_complain(d, why, "create", op, result);
    d->checkpoints++; /* it is durable: a checkpoint was made */
    v->exists = true;
    v->size_bytes = size;
    memset(v->bytes, 0, v->room_bytes);
    memset(v->state, RECORD_ANY, v->room_bytes / v->record_bytes * sizeof(*v->state));
    return true;
}

static bool resize_step(struct driver *d, const struct op *op, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    uint64_t size = (1 + op->a % (d->profile->size_bytes[op->volume] / SECTOR_BYTES)) * SECTOR_BYTES;
    if (op->shape == SHAPE_RECORD) {
        size = round_up(size, v->record_bytes);
        size = min_u64(size, d->profile->size_bytes[op->volume]);
    }
    unsigned told =
        driver_tell_begin(d, &(struct oracle_args){.kind = ORACLE_RESIZE, .volume = op->volume, .size_bytes = size});
    int result = d->s->ops->resize(d->s, op->volume, size);
    driver_tell_end(d, told, result);
    /* Growing from inside a record zeroes the rest of it, which takes room; the size stays as it was. */
    if (result == -ENOSPC && size > v->size_bytes && v->size_bytes % v->record_bytes != 0) {
        v->state[v->size_bytes / v->record_bytes] = RECORD_ANY;
        return driver_space_is_short(d, v->size_bytes, 1, v->record_bytes, why);
    }
    if (result != 0)
        return driver_complain(d, why, "resize", op, result);
    if (size < v->size_bytes)
        memset(v->bytes + size, 0, v->room_bytes - size);
    uint64_t from = min_u64(size, v->size_bytes) / v->record_bytes;
    memset(v->state + from, RECORD_ANY, v->room_bytes / v->record_bytes - from);
    v->size_bytes = size;
    return true;
}

static bool rename_step(struct driver *d, const struct op *op, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    char name[ORACLE_NAME_BYTES];
    snprintf(name, sizeof(name), "v%u.%u", op->volume, v->renames++ % 1000);
    unsigned told =
        driver_tell_begin(d, &(struct oracle_args){.kind = ORACLE_RENAME, .volume = op->volume, .name = name});
    int result = d->s->ops->rename(d->s, op->volume, name);
    driver_tell_end(d, told, result);
    if (result != 0)
        return driver_complain(d, why, "rename", op, result);
    memcpy(v->name, name, sizeof(name));
    return true;
}

static bool destroy_step(struct driver *d, const struct op *op, struct text *why)
{
    unsigned told = driver_tell_begin(d, &(struct oracle_args){.kind = ORACLE_DESTROY, .volume = op->volume});
    int result = d->s->ops->destroy(d->s, op->volume);
    driver_tell_end(d, told, result);
    if (result != 0)
        return driver_complain(d, why, "destroy", op, result);
    d->volumes[op->volume].exists = false;
    return true;
}

/* ---- the pool ---- */

static bool flush_step(struct driver *d, const struct op *op, struct text *why)
{
    bool all = op->kind != OP_FLUSH;
    unsigned told = driver_tell_begin(
        d, &(struct oracle_args){.kind = all ? ORACLE_FLUSH_ALL : ORACLE_FLUSH, .volume = all ? 0 : op->volume});
    int result = op->kind == OP_FLUSH       ? d->s->ops->flush(d->s, op->volume)
                 : op->kind == OP_FLUSH_ALL ? d->s->ops->flush_all(d->s)
                                            : d->s->ops->checkpoint(d->s);
    driver_tell_end(d, told, result);
    if (result != 0)
        return driver_complain(d, why, op->kind == OP_CHECKPOINT ? "checkpoint" : "flush", op, result);
    d->checkpoints += op->kind == OP_CHECKPOINT;
    return true;
}

static bool reopen_step(struct driver *d, const struct op *op, struct text *why)
{
    unsigned told = driver_tell_begin(d, &(struct oracle_args){.kind = ORACLE_FLUSH_ALL});
    int result = d->s->ops->reopen(d->s, why);
    driver_tell_end(d, told, result);
    d->checkpoints++;
    return result == 0 ? true : driver_complain(d, why, ": reopen", op, result);
}

static bool crash_step(struct driver *d, const struct op *op, struct text *why)
{
    CHECK(d->o != NULL);
    unsigned mask = d->profile->loss_mask == 0 ? 1u << SIM_LOSS_RANDOM : d->profile->loss_mask;
    unsigned loss = (unsigned)(op->a % (SIM_LOSS_TEAR + 1));
    while ((mask >> loss & 1) == 0)
        loss = (loss + 1) % (SIM_LOSS_TEAR + 1);
    int result = d->s->ops->crash(d->s, (enum sim_loss)loss, op->b, why);
    if (result != 0)
        return driver_complain(d, why, ": open after a power cut", op, result);
    struct recovered found;
    bool good = recovered_check(d->s, d->o, false, &found, why);
    for (unsigned i = 0; good && i < d->profile->volume_count; i++) {
        struct model_volume *v = &d->volumes[i];
        v->exists = found.exists[i];
        oracle_rebase(d->o, i, found.exists[i] ? &found.found[i] : NULL, found.values[i]);
        memset(v->bytes, 0, v->room_bytes);
        memset(v->state, RECORD_ANY, v->room_bytes / v->record_bytes);
        if (!found.exists[i])
            continue;
        v->size_bytes = found.found[i].size_bytes;
        memcpy(v->name, found.found[i].name, sizeof(v->name));
        memcpy(v->bytes, found.bytes[i], v->size_bytes);
    }
    recovered_free(&found);
    return good;
}

static bool poke_step(struct driver *d, const struct op *op, struct text *why)
{
    static const enum store_poke poke_of[OP_KIND_COUNT] = {
        [OP_WRITE_BACK] = POKE_WRITE_BACK, [OP_SEAL] = POKE_SEAL,
        [OP_EVICT] = POKE_EVICT,           [OP_REAP] = POKE_REAP,
        [OP_SLEEP] = POKE_SLEEP,           [OP_CUT_LATER] = POKE_CUT_LATER,
        [OP_FAIL_FLUSH] = POKE_FAIL_FLUSH};
    const struct model_volume *v = &d->volumes[op->volume];
    uint64_t index = op->kind == OP_CUT_LATER ? 1 + (op->a & 0xffff) % 12 : op->a & 0xffff;
    if (op->kind == OP_WRITE_BACK || op->kind == OP_EVICT)
        index %= div_ceil(v->size_bytes, v->record_bytes);
    int result = d->s->ops->poke(d->s, poke_of[op->kind], op->volume, index);
    return result == 0 ? true : driver_complain(d, why, "poke", op, result);
}

/* Operations that need their volume. */
static bool volume_step(struct driver *d, const struct op *op, struct text *why)
{
    switch (op->kind) {
    case OP_WRITE:
    case OP_READ:
    case OP_TRIM:
    case OP_ZERO:
    case OP_EXTENTS:
        return driver_data_step(d, op, why);
    case OP_RESIZE:
        return resize_step(d, op, why);
    case OP_DESTROY:
        return destroy_step(d, op, why);
    case OP_RENAME:
        return rename_step(d, op, why);
    case OP_CODEC: {
        int result = d->s->ops->set_codec(d->s, op->volume, codec_of(op->a));
        return result == 0 ? true : driver_complain(d, why, "set codec", op, result);
    }
    case OP_FLUSH:
        return flush_step(d, op, why);
    default:
        return poke_step(d, op, why);
    }
}

static bool step(struct driver *d, const struct op *op, struct text *why)
{
    bool exists = d->volumes[op->volume].exists;
    switch (op->kind) {
    case OP_CREATE:
        d->stats->skipped += exists;
        d->stats->done[op->kind] += !exists;
        return exists || create_step(d, op, why);
    case OP_FLUSH_ALL:
    case OP_CHECKPOINT:
        d->stats->done[op->kind]++;
        return flush_step(d, op, why);
    case OP_VERIFY:
        d->stats->done[op->kind]++;
        return driver_verify_all(d, why);
    case OP_REOPEN:
        d->stats->done[op->kind]++;
        return reopen_step(d, op, why);
    case OP_CRASH:
        d->stats->done[op->kind]++;
        return crash_step(d, op, why);
    case OP_SEAL:
    case OP_REAP:
    case OP_SLEEP:
    case OP_CUT_LATER:
    case OP_FAIL_FLUSH:
        d->stats->done[op->kind]++;
        return poke_step(d, op, why);
    default:
        d->stats->skipped += !exists;
        d->stats->done[op->kind] += exists;
        return !exists || volume_step(d, op, why);
    }
}

/* After the power went errors are expected, until the crash; wrong answers are not. */
bool driver_step(struct driver *d, const struct op *op, struct text *why)
{
    struct text reason = {0};
    d->error = 0;
    bool good = step(d, op, &reason);
    if (!good && d->error != 0 && op->kind != OP_CRASH && d->s->ops->is_off(d->s)) {
        d->stats->done[OP_CRASH]++;
        good = crash_step(d, op, why);
    } else if (!good) {
        text_printf(why, "%s", reason.bytes);
    }
    text_free(&reason);
    return good;
}

bool driver_create_all(struct driver *d, struct text *why)
{
    for (uint8_t i = 0; i < d->profile->volume_count; i++)
        if (!d->volumes[i].exists && !create_step(d, &(struct op){.kind = OP_CREATE, .volume = i, .stamp = i}, why))
            return false;
    return true;
}

bool driver_settle(struct driver *d, struct text *why)
{
    for (uint64_t i = 0; i < 4; i++) {
        struct op op = {.kind = i % 2 == 0 ? OP_WRITE : OP_CHECKPOINT, .shape = SHAPE_SECTORS, .stamp = 1 + i};
        if (!driver_step(d, &op, why))
            return false;
    }
    return true;
}

struct run {
    const struct history *h;
    struct store *s;
    struct history_stats *stats;
    struct text *why;
    size_t ran;
    bool good;
};

static void run(void *arg)
{
    struct run *r = arg;
    const struct history *h = r->h;
    struct text *why = r->why;
    bool crashes = h->profile->weights[OP_CRASH] != 0;
    struct oracle *o = crashes ? oracle_new() : NULL;
    struct driver *d = driver_new(h->profile, r->s, o, r->stats);
    bool good = driver_create_all(d, why) && (!crashes || driver_settle(d, why));
    size_t i = 0;
    while (good && i < h->count)
        good = driver_step(d, &h->ops[i++], why);
    if (good)
        good = driver_step(d, &(struct op){.kind = OP_VERIFY}, why);
    r->ran = i;
    r->good = good;
    if (o != NULL) {
        struct oracle_stats seen;
        oracle_get_stats(o, &seen);
        r->stats->undecided += seen.undecided;
    }
    driver_free(d);
    oracle_free(o);
}

bool history_run(const struct history *h, struct store *s, struct history_stats *stats, struct text *why, size_t *ran)
{
    struct run r = {.h = h, .s = s, .stats = stats, .why = why};
    if (s->ops->run != NULL)
        s->ops->run(s, run, &r);
    else
        run(&r);
    if (r.good && s->ops->finish != NULL)
        r.good = s->ops->finish(s, why);
    if (ran != NULL)
        *ran = r.ran;
    return r.good;
}
