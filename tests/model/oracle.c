/*
 * The oracle's state. Every change is an event, kept in a list, so that a second oracle can be brought to any moment of
 * the first one's life by applying the same events (oracle_replay). See oracle_impl.h for the invariants.
 */
#include "model/oracle_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"

/* Grows an array so that one more element fits; running out of memory ends a test. */
static void *array_grown(void *array, size_t count, size_t *room, size_t element_bytes)
{
    if (count < *room)
        return array;
    *room = *room == 0 ? 64 : *room * 2;
    array = realloc(array, *room * element_bytes);
    CHECK(array != NULL);
    return array;
}

static void sector_add(struct sector *s, struct version v)
{
    if (s->count == s->room) {
        s->room = s->room == 0 ? 2 : s->room * 2;
        s->list = realloc(s->list, s->room * sizeof(*s->list));
        CHECK(s->list != NULL);
    }
    s->list[s->count++] = v;
}

/* Only this version is possible. */
static void sector_set(struct sector *s, struct version v)
{
    s->count = 0;
    sector_add(s, v);
}

/* Version `durable` of the sector is durable: what came before it is gone. */
static void sector_prune(const struct oracle *o, struct sector *s, struct version durable)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->list[i].operation == durable.operation || !version_before(o, &s->list[i], &durable)) {
            s->list[kept++] = s->list[i];
        } else {
            uint32_t end = (uint32_t)o->operations[durable.operation].end;
            s->past[s->past_count++ % PAST_VERSIONS] =
                (struct past_version){.value = s->list[i].value, .until = end < o->now ? end : o->now};
        }
    s->count = kept;
}

static void volume_reserve(struct oracle_volume *v, uint64_t size_bytes)
{
    uint64_t count = size_bytes / SECTOR_BYTES;
    if (count <= v->sector_count)
        return;
    v->sectors = realloc(v->sectors, count * sizeof(*v->sectors));
    CHECK(v->sectors != NULL);
    for (uint64_t i = v->sector_count; i < count; i++) {
        v->sectors[i] = (struct sector){0};
        sector_set(&v->sectors[i], (struct version){0});
    }
    v->sector_count = count;
}

struct oracle *oracle_new(void)
{
    struct oracle *o = calloc(1, sizeof(*o));
    CHECK(o != NULL);
    o->operations = array_grown(NULL, 0, &o->operation_room, sizeof(*o->operations));
    o->operations[0] = (struct operation){.kind = ORACLE_CREATE, .durable = true};
    o->operation_count = 1;
    return o;
}

void oracle_free(struct oracle *o)
{
    if (o == NULL)
        return;
    for (size_t v = 0; v < ORACLE_VOLUMES; v++) {
        for (uint64_t i = 0; i < o->volumes[v].sector_count; i++)
            free(o->volumes[v].sectors[i].list);
        free(o->volumes[v].sectors);
    }
    free(o->operations);
    free(o->undurable);
    free(o->events);
    free(o->values);
    free(o);
}

/* The operation's values stay after a power cut from now on. */
static void operation_make_durable(struct oracle *o, uint32_t number)
{
    struct operation *op = &o->operations[number];
    struct oracle_volume *v = &o->volumes[op->volume];
    op->durable = true;
    for (uint64_t i = op->first; i < op->first + op->count; i++)
        for (uint32_t k = 0; k < v->sectors[i].count; k++)
            if (v->sectors[i].list[k].operation == number) {
                sector_prune(o, &v->sectors[i], v->sectors[i].list[k]);
                break;
            }
}

static void flush_apply(struct oracle *o, const struct operation *flush)
{
    size_t kept = 0;
    for (size_t i = 0; i < o->undurable_count; i++) {
        const struct operation *op = &o->operations[o->undurable[i]];
        bool covered = op->end < flush->start && (flush->kind == ORACLE_FLUSH_ALL || flush->volume == op->volume);
        if (covered)
            operation_make_durable(o, o->undurable[i]);
        else
            o->undurable[kept++] = o->undurable[i];
    }
    o->undurable_count = kept;
}

static void versions_add(struct oracle *o, uint32_t number, const uint64_t *values)
{
    const struct operation *op = &o->operations[number];
    struct oracle_volume *v = &o->volumes[op->volume];
    CHECK_LE(op->first + op->count, v->sector_count);
    for (uint64_t i = 0; i < op->count; i++)
        sector_add(&v->sectors[op->first + i],
                   (struct version){.value = values == NULL ? 0 : values[i], .start = op->start, .operation = number});
}

static void name_copy(char *to, const char *from)
{
    CHECK_LT(strlen(from), ORACLE_NAME_BYTES);
    memset(to, 0, ORACLE_NAME_BYTES);
    memcpy(to, from, strlen(from));
}

static void begin_apply(struct oracle *o, const struct event *e, const uint64_t *values)
{
    uint32_t number = (uint32_t)o->operation_count;
    o->operations = array_grown(o->operations, o->operation_count, &o->operation_room, sizeof(*o->operations));
    struct operation *op = &o->operations[o->operation_count++];
    struct oracle_volume *v = &o->volumes[e->args.volume];
    *op = (struct operation){.kind = (uint8_t)e->args.kind,
                             .volume = (uint8_t)e->args.volume,
                             .fua = e->args.durable,
                             .start = o->now,
                             .end = TIME_NEVER};
    switch (e->args.kind) {
    case ORACLE_WRITE:
    case ORACLE_ZERO:
        op->first = e->args.first;
        op->count = e->args.count;
        versions_add(o, number, values);
        break;
    case ORACLE_CREATE:
        CHECK(!v->exists);
        v->pending = PENDING_CREATE;
        v->size_bytes = e->args.size_bytes;
        v->record_bytes = e->args.record_bytes;
        name_copy(v->name, e->name);
        volume_reserve(v, v->size_bytes);
        for (uint64_t i = 0; i < v->sector_count; i++)
            sector_set(&v->sectors[i], (struct version){0});
        break;
    case ORACLE_DESTROY:
        v->pending = PENDING_DESTROY;
        break;
    case ORACLE_RENAME:
        v->pending = PENDING_RENAME;
        name_copy(v->new_name, e->name);
        break;
    case ORACLE_RESIZE:
        v->pending = PENDING_RESIZE;
        v->new_size_bytes = e->args.size_bytes;
        op->fua = true;
        if (v->new_size_bytes < v->size_bytes) {
            op->first = v->new_size_bytes / SECTOR_BYTES;
            op->count = v->size_bytes / SECTOR_BYTES - op->first;
            versions_add(o, number, NULL);
        } else {
            volume_reserve(v, v->new_size_bytes);
        }
        break;
    case ORACLE_FLUSH:
    case ORACLE_FLUSH_ALL:
        break;
    }
}

/* A create, destroy, rename or resize ended. One that was refused cleanly did not happen; after any other error both
 * states stay possible. */
static void catalog_end_apply(struct oracle_volume *v, int result)
{
    if (result == 0) {
        if (v->pending == PENDING_CREATE)
            v->exists = true;
        else if (v->pending == PENDING_DESTROY)
            v->exists = false;
        else if (v->pending == PENDING_RENAME)
            name_copy(v->name, v->new_name);
        else if (v->pending == PENDING_RESIZE)
            v->size_bytes = v->new_size_bytes;
    }
    if (result == 0 || result == -ENOSPC || result == -EBUSY || result == -EEXIST || result == -EINVAL)
        v->pending = PENDING_NONE;
}

static void end_apply(struct oracle *o, const struct event *e)
{
    CHECK_LT(e->operation, o->operation_count);
    struct operation *op = &o->operations[e->operation];
    CHECK_EQ(op->end, TIME_NEVER);
    op->end = o->now;
    op->failed = e->result != 0;
    bool changes_catalog = op->kind == ORACLE_CREATE || op->kind == ORACLE_DESTROY || op->kind == ORACLE_RENAME ||
                           op->kind == ORACLE_RESIZE;
    if (changes_catalog)
        catalog_end_apply(&o->volumes[op->volume], e->result);
    if (op->failed)
        return;
    if (op->kind == ORACLE_FLUSH || op->kind == ORACLE_FLUSH_ALL) {
        flush_apply(o, op);
    } else if (op->fua) {
        operation_make_durable(o, e->operation);
    } else if (op->count != 0) {
        o->undurable = array_grown(o->undurable, o->undurable_count, &o->undurable_room, sizeof(*o->undurable));
        o->undurable[o->undurable_count++] = e->operation;
    }
}

/* A version a read that began at `began` may show: none that ended well before the read comes after it. */
static bool version_readable(const struct oracle *o, const struct sector *s, uint32_t which, uint64_t began)
{
    for (uint32_t k = 0; k < s->count; k++) {
        const struct operation *other = &o->operations[s->list[k].operation];
        if (k != which && !other->failed && other->end < began && version_before(o, &s->list[which], &s->list[k]))
            return false;
    }
    return true;
}

/* A read that began at e->began showed these values: see invariant 3. Where several readable versions have the value,
 * nothing is learned. */
static void seen_apply(struct oracle *o, const struct event *e, const uint64_t *values)
{
    struct oracle_volume *v = &o->volumes[e->args.volume];
    for (uint64_t i = 0; i < e->args.count; i++) {
        struct sector *s = &v->sectors[e->args.first + i];
        uint32_t fitting = 0, last = 0;
        for (uint32_t k = 0; k < s->count; k++)
            if (s->list[k].value == values[i] && version_readable(o, s, k, e->began)) {
                fitting++;
                last = k;
            }
        if (fitting != 1 || s->list[last].start >= e->began)
            continue;
        s->list[last].start = (uint32_t)e->began;
        if (o->operations[s->list[last].operation].durable)
            sector_prune(o, s, s->list[last]);
    }
}

static void rebase_apply(struct oracle *o, const struct event *e, const uint64_t *values)
{
    struct oracle_volume *v = &o->volumes[e->args.volume];
    v->exists = e->found;
    v->pending = PENDING_NONE;
    size_t kept = 0;
    for (size_t i = 0; i < o->undurable_count; i++)
        if (o->operations[o->undurable[i]].volume != e->args.volume)
            o->undurable[kept++] = o->undurable[i];
    o->undurable_count = kept;
    if (!e->found)
        return;
    name_copy(v->name, e->name);
    v->size_bytes = e->args.size_bytes;
    v->record_bytes = e->args.record_bytes;
    volume_reserve(v, v->size_bytes);
    for (uint64_t i = 0; i < v->sector_count; i++)
        sector_set(&v->sectors[i], (struct version){.value = i < e->args.count ? values[i] : 0});
}

static void event_apply(struct oracle *o, const struct event *e, const uint64_t *values)
{
    o->now++;
    CHECK_LT(o->now, TIME_NEVER);
    if (e->kind == EVENT_BEGIN)
        begin_apply(o, e, values);
    else if (e->kind == EVENT_END)
        end_apply(o, e);
    else if (e->kind == EVENT_SEEN)
        seen_apply(o, e, values);
    else
        rebase_apply(o, e, values);
}

/* Keeps the event and applies it. e->args.values are copied; e->name is set from args.name. */
static void event_add(struct oracle *o, struct event e)
{
    uint64_t value_count = e.args.values == NULL ? 0 : e.args.count;
    e.has_values = e.args.values != NULL;
    e.values = o->value_count;
    for (uint64_t i = 0; i < value_count; i++) {
        o->values = array_grown(o->values, o->value_count, &o->value_room, sizeof(*o->values));
        o->values[o->value_count++] = e.args.values[i];
    }
    if (e.args.name != NULL)
        name_copy(e.name, e.args.name);
    e.args.values = NULL;
    e.args.name = NULL;
    o->events = array_grown(o->events, o->event_count, &o->event_room, sizeof(*o->events));
    o->events[o->event_count++] = e;
    event_apply(o, &e, e.has_values ? o->values + e.values : NULL);
}

size_t oracle_position(const struct oracle *o)
{
    return o->event_count;
}

void oracle_replay(struct oracle *to, const struct oracle *from, size_t position)
{
    CHECK_LE(position, from->event_count);
    while (to->event_count < position) {
        struct event e = from->events[to->event_count];
        e.args.values = e.has_values ? from->values + e.values : NULL;
        e.args.name = e.name;
        event_add(to, e);
    }
}

unsigned oracle_begin(struct oracle *o, const struct oracle_args *args)
{
    CHECK_LT(args->volume, ORACLE_VOLUMES);
    event_add(o, (struct event){.kind = EVENT_BEGIN, .args = *args});
    return (unsigned)(o->operation_count - 1);
}

void oracle_end(struct oracle *o, unsigned operation, int result)
{
    event_add(o, (struct event){.kind = EVENT_END, .operation = operation, .result = result});
}

void oracle_rebase(struct oracle *o, unsigned volume, const struct oracle_found *found, const uint64_t *values)
{
    struct event e = {.kind = EVENT_REBASE, .args = {.volume = volume}, .found = found != NULL};
    if (found != NULL) {
        e.args.size_bytes = found->size_bytes;
        e.args.record_bytes = found->record_bytes;
        e.args.count = found->size_bytes / SECTOR_BYTES;
        e.args.values = values;
        e.args.name = found->name;
    }
    event_add(o, e);
}

uint64_t oracle_read_begin(const struct oracle *o)
{
    return (uint64_t)o->now + 1;
}

bool oracle_read_end(struct oracle *o, uint64_t began, unsigned volume, uint64_t first, uint64_t count,
                     const uint64_t *values, struct text *why)
{
    CHECK_LT(volume, ORACLE_VOLUMES);
    const struct oracle_volume *v = &o->volumes[volume];
    CHECK_LE(first + count, v->sector_count);
    for (uint64_t i = first; i < first + count; i++) {
        const struct sector *s = &v->sectors[i];
        bool good = false;
        for (uint32_t k = 0; k < s->count && !good; k++)
            good = s->list[k].value == values[i - first] && version_readable(o, s, k, began);
        for (uint32_t k = 0; k < PAST_VERSIONS && k < s->past_count && !good; k++)
            good = s->past[k].value == values[i - first] && began <= s->past[k].until;
        if (good)
            continue;
        text_printf(why, "read of volume %u sector %llu: value %016llx is not allowed; allowed:", volume,
                    (unsigned long long)i, (unsigned long long)values[i - first]);
        for (uint32_t k = 0; k < s->count; k++)
            if (version_readable(o, s, k, began))
                text_printf(why, " %016llx of operation %u", (unsigned long long)s->list[k].value,
                            s->list[k].operation);
        oracle_tell_sector(o, volume, i, why);
        return false;
    }
    event_add(o, (struct event){.kind = EVENT_SEEN,
                                .began = began,
                                .args = {.volume = volume, .first = first, .count = count, .values = values}});
    return true;
}

void oracle_tell_sector(const struct oracle *o, unsigned volume, uint64_t sector, struct text *out)
{
    uint32_t number = 0;
    text_printf(out, "; its life, at time %u:", o->now);
    for (size_t i = 0; i < o->event_count; i++) {
        const struct event *e = &o->events[i];
        number += e->kind == EVENT_BEGIN;
        if (e->args.volume != volume || sector - e->args.first >= e->args.count)
            continue;
        uint64_t value = e->has_values ? o->values[e->values + (sector - e->args.first)] : 0;
        if (e->kind == EVENT_BEGIN) {
            const struct operation *op = &o->operations[number];
            text_printf(out, " [%u: %s%s%s %u..%d of %016llx]", number, e->args.kind == ORACLE_WRITE ? "write" : "zero",
                        op->fua ? " fua" : "", op->failed ? " failed" : "", op->start, (int)op->end,
                        (unsigned long long)value);
        } else if (e->kind == EVENT_SEEN) {
            text_printf(out, " [read %u..%zu %016llx]", (unsigned)e->began, i + 1, (unsigned long long)value);
        }
    }
    for (uint32_t n = 1; n < o->operation_count; n++) {
        const struct operation *op = &o->operations[n];
        bool mine = op->kind == ORACLE_FLUSH_ALL || (op->kind == ORACLE_FLUSH && op->volume == volume);
        if (mine && !op->failed)
            text_printf(out, " [flush %u..%d]", op->start, (int)op->end);
    }
}

bool oracle_was_ever(const struct oracle *o, unsigned volume, uint64_t sector, uint64_t value)
{
    if (value == 0)
        return true;
    for (size_t i = 0; i < o->event_count; i++) {
        const struct event *e = &o->events[i];
        bool gives = e->kind == EVENT_REBASE ||
                     (e->kind == EVENT_BEGIN && (e->args.kind == ORACLE_WRITE || e->args.kind == ORACLE_ZERO));
        if (gives && e->has_values && e->args.volume == volume && sector - e->args.first < e->args.count &&
            o->values[e->values + (sector - e->args.first)] == value)
            return true;
    }
    return false;
}

void oracle_get_stats(const struct oracle *o, struct oracle_stats *ret_stats)
{
    *ret_stats = (struct oracle_stats){.undecided = o->undecided};
    for (size_t v = 0; v < ORACLE_VOLUMES; v++)
        for (uint64_t i = 0; i < o->volumes[v].sector_count; i++) {
            uint64_t count = o->volumes[v].sectors[i].count;
            ret_stats->open_sectors += count > 1;
            ret_stats->longest_list = max_u64(ret_stats->longest_list, count);
        }
}
