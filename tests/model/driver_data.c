/*
 * Operations on data.
 *
 * ENOSPC is a right answer only to a write, a create, a resize that grows from inside a record, a zero that provisions
 * or cuts into records, and only if the pool's own account leaves less room than the worst case of the request
 * (driver_space_is_short). A write into a provisioned record may never get it. After it each record of the range must
 * be as before or as wanted.
 */
#include "model/driver_impl.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"
#include "model/pattern.h"

/* ---- the oracle, if there is one ---- */

unsigned driver_tell_begin(struct driver *d, const struct oracle_args *args)
{
    return d->o == NULL ? 0 : oracle_begin(d->o, args);
}

void driver_tell_end(struct driver *d, unsigned operation, int result)
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
        return driver_complain(d, why, what, op, r);
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

bool driver_verify_all(struct driver *d, struct text *why)
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
bool driver_space_is_short(struct driver *d, uint64_t offset, uint64_t length, uint32_t record_bytes, struct text *why)
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
            return driver_complain(d, why, "read after ENOSPC", op, result);
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
    driver_tell_end(d, told, result);
    if (result == -ENOSPC) {
        if (records_all_provisioned(v, r))
            return driver_complain(d, why, "write into provisioned records", op, result);
        return driver_space_is_short(d, r->offset_bytes, r->length_bytes, v->record_bytes, why) &&
               range_settle(d, op, r, why);
    }
    if (result != 0)
        return driver_complain(d, why, "write", op, result);
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
            return driver_complain(d, why, "read after trim", op, result);
        if (bytes_are_zero(d->buffer, part))
            continue;
        if (!bytes_expect(d->buffer, v->bytes + at, at, part, op, "edge of a trim", why) ||
            !driver_space_is_short(d, at, part, v->record_bytes, why))
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
    driver_tell_end(d, told, result);
    bool provision = !trim && (op->flags & VOLUME_PROVISION) != 0;
    bool cuts = r->offset_bytes % v->record_bytes != 0 || (r->offset_bytes + r->length_bytes) % v->record_bytes != 0;
    if (result == -ENOSPC && !trim && (provision || cuts))
        return driver_space_is_short(d, r->offset_bytes, r->length_bytes, v->record_bytes, why) &&
               range_settle(d, op, r, why);
    if (result != 0)
        return driver_complain(d, why, trim ? "trim" : "zero", op, result);
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
            return driver_complain(d, why, "extents", op, result);
        for (size_t i = 0; i < count; i++) {
            if (list[i].length_bytes == 0 || list[i].length_bytes > end - at ||
                (i > 0 && list[i].kind == list[i - 1].kind))
                return driver_complain(d, why, "extents: an empty one, one beyond the range, or neighbours of one kind",
                                       op, 0);
            if (!extent_check(d, op, at, &list[i], why))
                return false;
            at += list[i].length_bytes;
        }
    }
    return true;
}

bool driver_data_step(struct driver *d, const struct op *op, struct text *why)
{
    struct model_volume *v = &d->volumes[op->volume];
    struct op_range r = op_fit(op, v->record_bytes, v->size_bytes, d->profile->length_max_bytes);
    if (op->kind == OP_WRITE)
        return write_step(d, op, &r, why);
    if (op->kind == OP_READ)
        return range_verify(d, op, r.offset_bytes, r.length_bytes, "read", why);
    if (op->kind == OP_EXTENTS)
        return extents_step(d, op, &r, why);
    return zero_step(d, op, &r, why);
}
