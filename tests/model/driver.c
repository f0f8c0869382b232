/*
 * One client, one operation at a time. The model of each volume is an array of its bytes and, for each record, what the
 * extents may say about it.
 *
 * ENOSPC is a right answer only to a write, a create, a zero that provisions or cuts into records, and only if the
 * pool's own account leaves less room than the worst case of the request (space_is_short). A write into a provisioned
 * record may never get it. After it each record of the range must be as before or as wanted.
 */
#include "model/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"
#include "model/pattern.h"

enum record_state { RECORD_ANY, RECORD_TRIMMED, RECORD_PROVISIONED };

struct model_volume {
    bool exists;
    char name[ORACLE_NAME_BYTES];
    unsigned renames;
    uint64_t size_bytes, room_bytes;
    uint32_t record_bytes;
    uint8_t *bytes;
    uint8_t *state;        /* enum record_state of each record: what the last operation that touched it made it */
    uint32_t *state_epoch; /* number of checkpoints done when it became so */
};

struct driver {
    const struct profile *profile;
    struct store *s;
    struct oracle *o;
    struct history_stats *stats;
    struct model_volume volumes[STORE_VOLUMES];
    uint32_t checkpoints;
    uint8_t *buffer;  /* data of the operation */
    uint8_t *after;   /* whole sectors the range touches, as they should be afterwards */
    uint64_t *values; /* of those sectors */
    size_t buffer_bytes;
};

static bool complain(struct text *why, const char *what, const struct op *op, int result)
{
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

/* ---- the oracle, if there is one ---- */

static unsigned told_begin(struct driver *d, const struct oracle_args *args)
{
    return d->o == NULL ? 0 : oracle_begin(d->o, args);
}

static void told_end(struct driver *d, unsigned operation, int result)
{
    if (d->o != NULL)
        oracle_end(d->o, operation, result);
}

/* Tells of a write or zero of the range; d->after holds the sectors as they should become. */
static unsigned told_range(struct driver *d, const struct op *op, const struct op_range *r, enum oracle_kind kind)
{
    if (d->o == NULL)
        return 0;
    uint64_t first = r->offset_bytes / SECTOR_BYTES;
    uint64_t count = div_ceil(r->offset_bytes + r->length_bytes, SECTOR_BYTES) - first;
    for (uint64_t i = 0; i < count; i++)
        d->values[i] = sector_value(d->after + i * SECTOR_BYTES);
    return oracle_begin(d->o, &(struct oracle_args){.kind = kind,
                                                    .volume = op->volume,
                                                    .durable = (op->flags & VOLUME_FUA) != 0,
                                                    .first = first,
                                                    .count = count,
                                                    .values = d->values});
}

/* ---- reading ---- */

static bool bytes_expect(const uint8_t *got, const uint8_t *want, uint64_t offset, uint64_t length, const struct op *op,
                         const char *what, struct text *why)
{
    if (memcmp(got, want, length) == 0)
        return true;
    uint64_t at = 0;
    while (got[at] == want[at])
        at++;
    text_printf(why, "%s: volume %u byte %llu reads 0x%02x instead of 0x%02x", what, op->volume,
                (unsigned long long)(offset + at), got[at], want[at]);
    return false;
}

static bool range_verify(struct driver *d, const struct op *op, uint64_t offset, uint64_t length, const char *what,
                         struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    memset(d->buffer, 0xa5, length);
    int r = d->s->ops->read(d->s, op->volume, offset, d->buffer, length);
    if (r != 0)
        return complain(why, what, op, r);
    return bytes_expect(d->buffer, v->bytes + offset, offset, length, op, what, why);
}

static bool volume_verify(struct driver *d, const struct op *op, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    uint64_t part = d->buffer_bytes - 2 * SECTOR_BYTES;
    for (uint64_t at = 0; at < v->size_bytes; at += part)
        if (!range_verify(d, op, at, min_u64(part, v->size_bytes - at), "verify", why))
            return false;
    return true;
}

static bool all_verify(struct driver *d, struct text *why)
{
    for (uint8_t i = 0; i < d->profile->volume_count; i++)
        if (d->volumes[i].exists && !volume_verify(d, &(struct op){.volume = i}, why))
            return false;
    return true;
}

/* ---- writing ---- */

static void records_set_state(struct driver *d, const struct op *op, const struct op_range *r,
                              enum record_state whole_state)
{
    struct model_volume *v = &d->volumes[op->volume];
    uint64_t end = r->offset_bytes + r->length_bytes;
    for (uint64_t i = r->offset_bytes / v->record_bytes; i * v->record_bytes < end; i++) {
        bool whole = i * v->record_bytes >= r->offset_bytes && (i + 1) * v->record_bytes <= end;
        v->state[i] = (uint8_t)(whole ? whole_state : RECORD_ANY);
        v->state_epoch[i] = d->checkpoints;
    }
}

static bool records_all_provisioned(const struct model_volume *v, const struct op_range *r)
{
    for (uint64_t i = r->offset_bytes / v->record_bytes; i * v->record_bytes < r->offset_bytes + r->length_bytes; i++)
        if (v->state[i] != RECORD_PROVISIONED)
            return false;
    return true;
}

/* Puts the sectors the range touches, changed as the operation wants (data NULL: zeroes), into d->after. */
static void after_make(struct driver *d, const struct model_volume *v, const struct op_range *r, const uint8_t *data)
{
    uint64_t start = round_down(r->offset_bytes, SECTOR_BYTES);
    uint64_t end = round_up(r->offset_bytes + r->length_bytes, SECTOR_BYTES);
    CHECK_LE(end - start, d->buffer_bytes);
    memcpy(d->after, v->bytes + start, end - start);
    uint8_t *to = d->after + (r->offset_bytes - start);
    if (data != NULL)
        memcpy(to, data, r->length_bytes);
    else
        memset(to, 0, r->length_bytes);
}

/*
 * The bound on ENOSPC: the free room the pool shows is less than twice the request's raw records and their leaves, plus
 * one segment's worth of rounding; and what it says is used it can explain: live + dead + pending + reserved make up
 * what is not free, short of an eighth of the pool.
 */
static bool space_is_short(struct driver *d, uint64_t offset, uint64_t length, uint32_t record_bytes, struct text *why)
{
    struct store_space space;
    d->s->ops->space(d->s, &space);
    uint64_t records = length == 0 ? 1 : (offset + length - 1) / record_bytes - offset / record_bytes + 1;
    uint64_t need = records * (2 * (uint64_t)record_bytes + 16 * KIB) + 256 * KIB;
    uint64_t explained = space.live_bytes + space.dead_bytes + space.pending_free_bytes + space.reserved_bytes;
    if (space.free_bytes >= need) {
        text_printf(why, "ENOSPC although %llu bytes are free and %llu are enough",
                    (unsigned long long)space.free_bytes, (unsigned long long)need);
        return false;
    }
    if (explained + space.free_bytes + space.usable_bytes / 8 + need < space.usable_bytes) {
        text_printf(why, "ENOSPC although only %llu of %llu usable bytes are explained", (unsigned long long)explained,
                    (unsigned long long)space.usable_bytes);
        return false;
    }
    d->stats->full++;
    return true;
}

/* After an error each record of the range is as before or as wanted: takes over which. */
static bool range_settle(struct driver *d, const struct op *op, const struct op_range *r, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    uint64_t start = round_down(r->offset_bytes, SECTOR_BYTES), end = r->offset_bytes + r->length_bytes;
    for (uint64_t at = r->offset_bytes; at < end;) {
        uint64_t part = min_u64(end, round_down(at, v->record_bytes) + v->record_bytes) - at;
        int result = d->s->ops->read(d->s, op->volume, at, d->buffer, part);
        if (result != 0)
            return complain(why, "read after ENOSPC", op, result);
        const uint8_t *wanted = d->after + (at - start);
        if (memcmp(d->buffer, wanted, part) == 0)
            memcpy(v->bytes + at, wanted, part);
        else if (!bytes_expect(d->buffer, v->bytes + at, at, part, op, "neither old nor new after ENOSPC", why))
            return false;
        at += part;
    }
    records_set_state(d, op, r, RECORD_ANY);
    return true;
}

static void range_take(struct driver *d, const struct op *op, const struct op_range *r)
{
    uint64_t start = round_down(r->offset_bytes, SECTOR_BYTES);
    memcpy(d->volumes[op->volume].bytes + r->offset_bytes, d->after + (r->offset_bytes - start), r->length_bytes);
}

static bool write_step(struct driver *d, const struct op *op, const struct op_range *r, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    pattern_fill(d->buffer, r->length_bytes, op->stamp, (enum pattern_style)op->style);
    after_make(d, v, r, d->buffer);
    unsigned told = told_range(d, op, r, ORACLE_WRITE);
    int result = d->s->ops->write(d->s, op->volume, r->offset_bytes, d->buffer, r->length_bytes, op->flags);
    told_end(d, told, result);
    if (result == -ENOSPC) {
        if (records_all_provisioned(v, r))
            return complain(why, "write into provisioned records", op, result);
        return space_is_short(d, r->offset_bytes, r->length_bytes, v->record_bytes, why) && range_settle(d, op, r, why);
    }
    if (result != 0)
        return complain(why, "write", op, result);
    range_take(d, op, r);
    records_set_state(d, op, r, RECORD_ANY);
    return true;
}

/* A trim in a full pool may leave its cut edges as they were (R34): takes over what is there. */
static bool trim_edges_settle(struct driver *d, const struct op *op, const struct op_range *r, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    uint64_t start = round_down(r->offset_bytes, SECTOR_BYTES), end = r->offset_bytes + r->length_bytes;
    uint64_t edges[2] = {r->offset_bytes, round_down(end, v->record_bytes)};
    for (int i = 0; i < 2; i++) {
        uint64_t at = max_u64(edges[i], r->offset_bytes);
        uint64_t part = min_u64(end, round_down(at, v->record_bytes) + v->record_bytes) - at;
        if (part == 0 || part == v->record_bytes)
            continue;
        int result = d->s->ops->read(d->s, op->volume, at, d->buffer, part);
        if (result != 0)
            return complain(why, "read after trim", op, result);
        if (bytes_are_zero(d->buffer, part))
            continue;
        if (!bytes_expect(d->buffer, v->bytes + at, at, part, op, "edge of a trim", why) ||
            !space_is_short(d, at, part, v->record_bytes, why))
            return false;
        memcpy(d->after + (at - start), v->bytes + at, part);
    }
    return true;
}

static bool zero_step(struct driver *d, const struct op *op, const struct op_range *r, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    bool trim = op->kind == OP_TRIM;
    after_make(d, v, r, NULL);
    unsigned told = told_range(d, op, r, ORACLE_ZERO);
    int result = trim ? d->s->ops->trim(d->s, op->volume, r->offset_bytes, r->length_bytes, op->flags)
                      : d->s->ops->zero(d->s, op->volume, r->offset_bytes, r->length_bytes, op->flags);
    told_end(d, told, result);
    bool provision = !trim && (op->flags & VOLUME_PROVISION) != 0;
    bool cuts = r->offset_bytes % v->record_bytes != 0 || (r->offset_bytes + r->length_bytes) % v->record_bytes != 0;
    if (result == -ENOSPC && !trim && (provision || cuts))
        return space_is_short(d, r->offset_bytes, r->length_bytes, v->record_bytes, why) && range_settle(d, op, r, why);
    if (result != 0)
        return complain(why, trim ? "trim" : "zero", op, result);
    if (trim && !trim_edges_settle(d, op, r, why))
        return false;
    range_take(d, op, r);
    records_set_state(d, op, r, trim ? RECORD_TRIMMED : provision ? RECORD_PROVISIONED : RECORD_ANY);
    return true;
}

/* ---- extents ---- */

static bool extent_check(struct driver *d, const struct op *op, uint64_t at, const struct extent *e, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    if (e->kind != EXTENT_DATA && !bytes_are_zero(v->bytes + at, e->length_bytes)) {
        text_printf(why, "extents of volume %u call [%llu, +%llu) %s, but there is data", op->volume,
                    (unsigned long long)at, (unsigned long long)e->length_bytes,
                    e->kind == EXTENT_HOLE ? "a hole" : "provisioned");
        return false;
    }
    for (uint64_t i = at / v->record_bytes; i * v->record_bytes < at + e->length_bytes; i++) {
        bool settled = v->state_epoch[i] < d->checkpoints;
        if ((v->state[i] == RECORD_TRIMMED && settled && e->kind != EXTENT_HOLE) ||
            (v->state[i] == RECORD_PROVISIONED && e->kind == EXTENT_HOLE)) {
            text_printf(why, "extents of volume %u: record %llu, %s, is called %s", op->volume, (unsigned long long)i,
                        v->state[i] == RECORD_TRIMMED ? "trimmed before a checkpoint" : "provisioned",
                        e->kind == EXTENT_HOLE   ? "a hole"
                        : e->kind == EXTENT_DATA ? "data"
                                                 : "provisioned");
            return false;
        }
    }
    return true;
}

static bool extents_step(struct driver *d, const struct op *op, const struct op_range *r, struct text *why)
{
    struct extent list[4];
    uint64_t at = r->offset_bytes, end = at + r->length_bytes;
    size_t room = 1 + op->stamp % 4;
    for (unsigned rounds = 0; at < end; rounds++) {
        size_t count = 0;
        int result = d->s->ops->extents(d->s, op->volume, at, end - at, list, room, &count);
        if (result != 0 || count == 0 || count > room || rounds > r->length_bytes)
            return complain(why, "extents", op, result);
        for (size_t i = 0; i < count; i++) {
            if (list[i].length_bytes == 0 || list[i].length_bytes > end - at ||
                (i > 0 && list[i].kind == list[i - 1].kind))
                return complain(why, "extents: an empty one, one beyond the range, or neighbours of one kind", op, 0);
            if (!extent_check(d, op, at, &list[i], why))
                return false;
            at += list[i].length_bytes;
        }
    }
    return true;
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
    unsigned told = told_begin(d, &(struct oracle_args){.kind = ORACLE_CREATE,
                                                        .volume = op->volume,
                                                        .name = v->name,
                                                        .size_bytes = size,
                                                        .record_bytes = v->record_bytes});
    int result = d->s->ops->create(d->s, op->volume, v->name, size, v->record_bytes, codec_of(op->stamp));
    told_end(d, told, result);
    if (result == -ENOSPC)
        return space_is_short(d, 0, 0, v->record_bytes, why);
    if (result != 0)
        return complain(why, "create", op, result);
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
        told_begin(d, &(struct oracle_args){.kind = ORACLE_RESIZE, .volume = op->volume, .size_bytes = size});
    int result = d->s->ops->resize(d->s, op->volume, size);
    told_end(d, told, result);
    if (result != 0)
        return complain(why, "resize", op, result);
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
    unsigned told = told_begin(d, &(struct oracle_args){.kind = ORACLE_RENAME, .volume = op->volume, .name = name});
    int result = d->s->ops->rename(d->s, op->volume, name);
    told_end(d, told, result);
    if (result != 0)
        return complain(why, "rename", op, result);
    memcpy(v->name, name, sizeof(name));
    return true;
}

static bool destroy_step(struct driver *d, const struct op *op, struct text *why)
{
    unsigned told = told_begin(d, &(struct oracle_args){.kind = ORACLE_DESTROY, .volume = op->volume});
    int result = d->s->ops->destroy(d->s, op->volume);
    told_end(d, told, result);
    if (result != 0)
        return complain(why, "destroy", op, result);
    d->volumes[op->volume].exists = false;
    return true;
}

/* ---- the pool ---- */

static bool flush_step(struct driver *d, const struct op *op, struct text *why)
{
    bool all = op->kind != OP_FLUSH;
    unsigned told = told_begin(
        d, &(struct oracle_args){.kind = all ? ORACLE_FLUSH_ALL : ORACLE_FLUSH, .volume = all ? 0 : op->volume});
    int result = op->kind == OP_FLUSH       ? d->s->ops->flush(d->s, op->volume)
                 : op->kind == OP_FLUSH_ALL ? d->s->ops->flush_all(d->s)
                                            : d->s->ops->checkpoint(d->s);
    told_end(d, told, result);
    if (result != 0)
        return complain(why, op->kind == OP_CHECKPOINT ? "checkpoint" : "flush", op, result);
    d->checkpoints += op->kind == OP_CHECKPOINT;
    return true;
}

static bool reopen_step(struct driver *d, const struct op *op, struct text *why)
{
    unsigned told = told_begin(d, &(struct oracle_args){.kind = ORACLE_FLUSH_ALL});
    int result = d->s->ops->reopen(d->s, why);
    told_end(d, told, result);
    d->checkpoints++;
    return result == 0 ? true : complain(why, ": reopen", op, result);
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
        return complain(why, ": open after a power cut", op, result);
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
    static const enum store_poke poke_of[OP_KIND_COUNT] = {[OP_WRITE_BACK] = POKE_WRITE_BACK,
                                                           [OP_SEAL] = POKE_SEAL,
                                                           [OP_EVICT] = POKE_EVICT,
                                                           [OP_REAP] = POKE_REAP,
                                                           [OP_SLEEP] = POKE_SLEEP};
    const struct model_volume *v = &d->volumes[op->volume];
    uint64_t index = op->a % div_ceil(v->size_bytes == 0 ? 1 : v->size_bytes, v->record_bytes);
    int result = d->s->ops->poke(d->s, poke_of[op->kind], op->volume, index);
    return result == 0 ? true : complain(why, "poke", op, result);
}

/* Operations that need their volume. */
static bool volume_step(struct driver *d, const struct op *op, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    struct op_range r = op_fit(op, v->record_bytes, v->size_bytes, d->profile->length_max_bytes);
    switch (op->kind) {
    case OP_WRITE:
        return write_step(d, op, &r, why);
    case OP_READ:
        return range_verify(d, op, r.offset_bytes, r.length_bytes, "read", why);
    case OP_TRIM:
    case OP_ZERO:
        return zero_step(d, op, &r, why);
    case OP_EXTENTS:
        return extents_step(d, op, &r, why);
    case OP_RESIZE:
        return resize_step(d, op, why);
    case OP_DESTROY:
        return destroy_step(d, op, why);
    case OP_RENAME:
        return rename_step(d, op, why);
    case OP_CODEC: {
        int result = d->s->ops->set_codec(d->s, op->volume, codec_of(op->a));
        return result == 0 ? true : complain(why, "set codec", op, result);
    }
    case OP_FLUSH:
        return flush_step(d, op, why);
    default:
        return poke_step(d, op, why);
    }
}

bool driver_step(struct driver *d, const struct op *op, struct text *why)
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
        return all_verify(d, why);
    case OP_REOPEN:
        d->stats->done[op->kind]++;
        return reopen_step(d, op, why);
    case OP_CRASH:
        d->stats->done[op->kind]++;
        return crash_step(d, op, why);
    case OP_SEAL:
    case OP_REAP:
    case OP_SLEEP:
        d->stats->done[op->kind]++;
        return poke_step(d, op, why);
    default:
        d->stats->skipped += !exists;
        d->stats->done[op->kind] += exists;
        return !exists || volume_step(d, op, why);
    }
}

bool driver_create_all(struct driver *d, struct text *why)
{
    for (uint8_t i = 0; i < d->profile->volume_count; i++)
        if (!d->volumes[i].exists && !create_step(d, &(struct op){.kind = OP_CREATE, .volume = i, .stamp = i}, why))
            return false;
    return true;
}

bool history_run(const struct history *h, struct store *s, struct history_stats *stats, struct text *why, size_t *ran)
{
    bool crashes = h->profile->weights[OP_CRASH] != 0;
    struct oracle *o = crashes ? oracle_new() : NULL;
    struct driver *d = driver_new(h->profile, s, o, stats);
    bool good = driver_create_all(d, why);
    size_t i = 0;
    while (good && i < h->count)
        good = driver_step(d, &h->ops[i++], why);
    if (good)
        good = all_verify(d, why);
    if (ran != NULL)
        *ran = i;
    if (o != NULL) {
        struct oracle_stats seen;
        oracle_get_stats(o, &seen);
        stats->undecided += seen.undecided;
    }
    driver_free(d);
    oracle_free(o);
    return good;
}
