/*
 * The slots in memory (slots.h): a table by slot, a hash by segment number, counts of what is free, and a mark for each
 * record of the durable table that has changed.
 */
#include "log/slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

/* Being punched or allocated: counted neither as READY nor as BARE. Never written to disk, where it is BARE. */
#define SLOT_OUT_OF_REACH 0xff

static uint32_t bucket_of(const struct slots *s, uint64_t segment)
{
    return (uint32_t)((segment * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & s->bucket_mask;
}

static uint32_t find_segment(const struct slots *s, uint64_t segment)
{
    uint32_t slot = s->bucket[bucket_of(s, segment)];
    while (slot != SLOT_NONE && s->table[slot].segment != segment)
        slot = s->bucket_next[slot];
    return slot;
}

static bool state_is_free(uint8_t state)
{
    return state == SLOT_BARE || state == SLOT_READY || state == SLOT_OUT_OF_REACH;
}

static void place(struct slots *s, uint32_t slot, uint64_t segment)
{
    uint32_t bucket = bucket_of(s, segment);
    CHECK_EQ(find_segment(s, segment), SLOT_NONE);
    s->table[slot].segment = segment;
    s->bucket_next[slot] = s->bucket[bucket];
    s->bucket[bucket] = slot;
}

static void unplace(struct slots *s, uint32_t slot)
{
    uint32_t *link = &s->bucket[bucket_of(s, s->table[slot].segment)];
    while (*link != slot) {
        CHECK_NE(*link, SLOT_NONE);
        link = &s->bucket_next[*link];
    }
    *link = s->bucket_next[slot];
    s->table[slot].segment = 0;
}

static void changed(struct slots *s, uint32_t slot)
{
    s->record_changed[slot / SLOTS_PER_TABLE_RECORD] = 1;
}

static void count_free(struct slots *s, uint8_t state, int step)
{
    if (state == SLOT_READY)
        s->ready_count += (uint32_t)step;
    if (state == SLOT_BARE)
        s->bare_count += (uint32_t)step;
}

static void set_state(struct slots *s, uint32_t slot, enum slot_state state, uint64_t checkpoint)
{
    struct slot *t = &s->table[slot];
    count_free(s, t->state, -1);
    count_free(s, (uint8_t)state, 1);
    t->state = (uint8_t)state;
    t->since = checkpoint;
    changed(s, slot);
}

int slots_init(struct slots *s, struct env *env, const struct geometry *geometry)
{
    uint32_t count = geometry->slot_count, buckets = 64;
    while (buckets < count)
        buckets *= 2;
    memset(s, 0, sizeof *s);
    env_mutex_init(&s->lock, env);
    s->geometry = geometry;
    s->table = calloc(count, sizeof *s->table);
    s->own_bytes = calloc(count, sizeof *s->own_bytes);
    s->record_changed = calloc(div_ceil(count, SLOTS_PER_TABLE_RECORD), 1);
    s->bucket = malloc(buckets * sizeof *s->bucket);
    s->bucket_next = malloc(count * sizeof *s->bucket_next);
    s->bucket_mask = buckets - 1;
    s->bare_count = count;
    if (s->table == NULL || s->own_bytes == NULL || s->record_changed == NULL || s->bucket == NULL ||
        s->bucket_next == NULL) {
        slots_fini(s);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < buckets; i++)
        s->bucket[i] = SLOT_NONE;
    return 0;
}

void slots_fini(struct slots *s)
{
    if (s->geometry == NULL)
        return;
    free(s->table);
    free(s->own_bytes);
    free(s->record_changed);
    free(s->bucket);
    free(s->bucket_next);
    env_mutex_destroy(&s->lock);
    memset(s, 0, sizeof *s);
}

int slots_load(struct slots *s, uint32_t slot, const struct slot *durable)
{
    int result = 0;
    CHECK_LT(slot, s->geometry->slot_count);
    env_mutex_lock(&s->lock);
    CHECK_EQ(s->table[slot].state, SLOT_BARE);
    if (!state_is_free(durable->state) && find_segment(s, durable->segment) != SLOT_NONE) {
        result = -EBADMSG;
    } else {
        uint64_t segment = durable->segment;
        count_free(s, SLOT_BARE, -1);
        s->table[slot] = *durable;
        count_free(s, durable->state, 1);
        if (!state_is_free(durable->state))
            place(s, slot, segment);
    }
    env_mutex_unlock(&s->lock);
    return result;
}

uint64_t slots_device_offset(const struct slots *s, uint32_t slot, uint32_t offset_bytes)
{
    CHECK_LT(slot, s->geometry->slot_count);
    CHECK_LE(offset_bytes, s->geometry->segment_bytes);
    return s->geometry->data_start_bytes + (uint64_t)slot * s->geometry->segment_bytes + offset_bytes;
}

int slots_resolve(struct slots *s, uint64_t address, uint64_t *ret_device_offset_bytes)
{
    uint64_t segment = address / s->geometry->segment_bytes;
    env_mutex_lock(&s->lock);
    uint32_t slot = find_segment(s, segment);
    env_mutex_unlock(&s->lock);
    if (slot == SLOT_NONE)
        return -EBADMSG;
    *ret_device_offset_bytes = slots_device_offset(s, slot, (uint32_t)(address % s->geometry->segment_bytes));
    return 0;
}

/* The next slot in `state`, searched round from search_from so that slots are used evenly. */
static uint32_t find_state(struct slots *s, enum slot_state state)
{
    uint32_t count = s->geometry->slot_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (s->search_from + i) % count;
        if (s->table[slot].state == state)
            return slot;
    }
    return SLOT_NONE;
}

int slots_choose(struct slots *s, uint64_t segment, enum chunk_head head, uint64_t checkpoint, uint32_t ready_kept,
                 uint32_t *ret_slot, bool *ret_bare)
{
    int result = -ENOSPC;
    env_mutex_lock(&s->lock);
    bool bare = s->ready_count <= ready_kept;
    if (bare ? s->bare_count > 0 : s->ready_count > 0) {
        uint32_t slot = find_state(s, bare ? SLOT_BARE : SLOT_READY);
        CHECK_NE(slot, SLOT_NONE);
        CHECK_EQ(s->table[slot].live_bytes, 0);
        CHECK_EQ(s->own_bytes[slot], 0);
        place(s, slot, segment);
        s->table[slot].head = (uint8_t)head;
        s->table[slot].used_bytes = 0;
        set_state(s, slot, SLOT_NEXT, checkpoint);
        s->search_from = (slot + 1) % s->geometry->slot_count;
        *ret_slot = slot;
        *ret_bare = bare;
        result = 0;
    }
    env_mutex_unlock(&s->lock);
    return result;
}

int slots_adopt(struct slots *s, uint32_t slot, uint64_t segment, enum chunk_head head, uint64_t checkpoint)
{
    int result = 0;
    if (slot >= s->geometry->slot_count)
        return -EBADMSG;
    env_mutex_lock(&s->lock);
    struct slot *t = &s->table[slot];
    uint32_t holder = find_segment(s, segment);
    if (holder == slot) {
        set_state(s, slot, SLOT_NEXT, checkpoint);
    } else if (holder != SLOT_NONE || (!state_is_free(t->state) && t->state != SLOT_QUARANTINED)) {
        result = -EBADMSG;
    } else {
        /* A quarantined slot holds nothing of this table's cut; from an older label's view it was used again since. */
        if (t->state == SLOT_QUARANTINED)
            unplace(s, slot);
        place(s, slot, segment);
        t->live_bytes = 0;
        t->used_bytes = 0;
        set_state(s, slot, SLOT_NEXT, checkpoint);
    }
    if (result == 0)
        t->head = (uint8_t)head;
    env_mutex_unlock(&s->lock);
    return result;
}

void slots_open(struct slots *s, uint32_t slot, uint64_t checkpoint)
{
    env_mutex_lock(&s->lock);
    CHECK(s->table[slot].state == SLOT_NEXT || s->table[slot].state == SLOT_OPEN);
    set_state(s, slot, SLOT_OPEN, checkpoint);
    env_mutex_unlock(&s->lock);
}

void slots_close(struct slots *s, uint32_t slot, uint32_t used_bytes, uint64_t checkpoint)
{
    env_mutex_lock(&s->lock);
    CHECK(!state_is_free(s->table[slot].state));
    CHECK_LE(used_bytes, s->geometry->segment_bytes);
    s->table[slot].used_bytes = used_bytes;
    set_state(s, slot, SLOT_CLOSED, checkpoint);
    env_mutex_unlock(&s->lock);
}

static void return_locked(struct slots *s, uint32_t slot, bool ready, uint64_t checkpoint)
{
    struct slot *t = &s->table[slot];
    if (!state_is_free(t->state))
        unplace(s, slot);
    t->head = 0;
    t->used_bytes = 0;
    t->live_bytes = 0;
    s->own_bytes[slot] = 0;
    set_state(s, slot, ready ? SLOT_READY : SLOT_BARE, checkpoint);
}

void slots_return(struct slots *s, uint32_t slot, bool ready, uint64_t checkpoint)
{
    env_mutex_lock(&s->lock);
    return_locked(s, slot, ready, checkpoint);
    env_mutex_unlock(&s->lock);
}

void slots_add_live(struct slots *s, uint64_t address, int64_t bytes)
{
    env_mutex_lock(&s->lock);
    uint32_t slot = find_segment(s, address / s->geometry->segment_bytes);
    if (slot != SLOT_NONE) {
        int64_t live = (int64_t)s->table[slot].live_bytes + bytes;
        /* A count below zero can only come from a damaged table; check reports it, the store goes on. */
        s->table[slot].live_bytes = live < 0 ? 0 : (uint32_t)min_u64((uint64_t)live, s->geometry->segment_bytes);
        changed(s, slot);
    }
    env_mutex_unlock(&s->lock);
}

void slots_add_own(struct slots *s, uint32_t slot, int64_t bytes)
{
    CHECK_LT(slot, s->geometry->slot_count);
    env_mutex_lock(&s->lock);
    int64_t own = (int64_t)s->own_bytes[slot] + bytes;
    CHECK(own >= 0);
    s->own_bytes[slot] = (uint32_t)own;
    env_mutex_unlock(&s->lock);
}

void slots_add_own_at(struct slots *s, uint64_t address, int64_t bytes)
{
    env_mutex_lock(&s->lock);
    uint32_t slot = find_segment(s, address / s->geometry->segment_bytes);
    env_mutex_unlock(&s->lock);
    if (slot != SLOT_NONE)
        slots_add_own(s, slot, bytes);
}

void slots_quarantine(struct slots *s, uint64_t replay_segment, uint64_t checkpoint)
{
    env_mutex_lock(&s->lock);
    for (uint32_t slot = 0; slot < s->geometry->slot_count; slot++) {
        const struct slot *t = &s->table[slot];
        if (t->state != SLOT_CLOSED || t->live_bytes != 0 || s->own_bytes[slot] != 0)
            continue;
        if (t->head == CHUNK_HEAD_DATA && t->segment >= replay_segment)
            continue;
        set_state(s, slot, SLOT_QUARANTINED, checkpoint);
    }
    env_mutex_unlock(&s->lock);
}

uint32_t slots_release(struct slots *s, uint64_t checkpoint, uint64_t now_checkpoint)
{
    uint32_t released = 0;
    env_mutex_lock(&s->lock);
    for (uint32_t slot = 0; slot < s->geometry->slot_count; slot++) {
        if (s->table[slot].state != SLOT_QUARANTINED || s->table[slot].since > checkpoint)
            continue;
        return_locked(s, slot, true, now_checkpoint);
        released++;
    }
    env_mutex_unlock(&s->lock);
    return released;
}

static void take_out_of_reach(struct slots *s, uint32_t slot)
{
    count_free(s, s->table[slot].state, -1);
    s->table[slot].state = SLOT_OUT_OF_REACH;
}

uint32_t slots_take_for_punch(struct slots *s, uint32_t stock_count)
{
    uint32_t slot = SLOT_NONE;
    env_mutex_lock(&s->lock);
    if (s->ready_count > stock_count) {
        slot = find_state(s, SLOT_READY);
        CHECK_NE(slot, SLOT_NONE);
        take_out_of_reach(s, slot);
    }
    env_mutex_unlock(&s->lock);
    return slot;
}

void slots_punched(struct slots *s, uint32_t slot, uint64_t checkpoint)
{
    env_mutex_lock(&s->lock);
    CHECK_EQ(s->table[slot].state, SLOT_OUT_OF_REACH);
    set_state(s, slot, SLOT_BARE, checkpoint);
    env_mutex_unlock(&s->lock);
}

uint32_t slots_own_bytes(struct slots *s, uint32_t slot)
{
    CHECK_LT(slot, s->geometry->slot_count);
    env_mutex_lock(&s->lock);
    uint32_t bytes = s->own_bytes[slot];
    env_mutex_unlock(&s->lock);
    return bytes;
}

struct slot slots_get(struct slots *s, uint32_t slot)
{
    CHECK_LT(slot, s->geometry->slot_count);
    env_mutex_lock(&s->lock);
    struct slot copy = s->table[slot];
    env_mutex_unlock(&s->lock);
    return copy;
}

uint32_t slots_free_count(struct slots *s)
{
    env_mutex_lock(&s->lock);
    uint32_t count = s->ready_count + s->bare_count;
    env_mutex_unlock(&s->lock);
    return count;
}

uint32_t slots_ready_count(struct slots *s)
{
    env_mutex_lock(&s->lock);
    uint32_t count = s->ready_count;
    env_mutex_unlock(&s->lock);
    return count;
}

uint32_t slots_take_bare(struct slots *s)
{
    uint32_t slot = SLOT_NONE;
    env_mutex_lock(&s->lock);
    if (s->bare_count > 0) {
        slot = find_state(s, SLOT_BARE);
        CHECK_NE(slot, SLOT_NONE);
        take_out_of_reach(s, slot);
    }
    env_mutex_unlock(&s->lock);
    return slot;
}

uint32_t slots_record_count(const struct slots *s)
{
    return (uint32_t)div_ceil(s->geometry->slot_count, SLOTS_PER_TABLE_RECORD);
}

bool slots_take_record(struct slots *s, uint32_t record, bool all, struct slot ret_slots[SLOTS_PER_TABLE_RECORD])
{
    CHECK_LT(record, slots_record_count(s));
    env_mutex_lock(&s->lock);
    bool take = all || s->record_changed[record] != 0;
    if (take) {
        uint32_t first = record * SLOTS_PER_TABLE_RECORD;
        uint32_t count = (uint32_t)min_u64(SLOTS_PER_TABLE_RECORD, s->geometry->slot_count - first);
        memset(ret_slots, 0, SLOTS_PER_TABLE_RECORD * sizeof *ret_slots);
        memcpy(ret_slots, s->table + first, count * sizeof *ret_slots);
        for (uint32_t i = 0; i < count; i++) {
            if (ret_slots[i].state == SLOT_OUT_OF_REACH)
                ret_slots[i].state = SLOT_BARE;
        }
        s->record_changed[record] = 0;
    }
    env_mutex_unlock(&s->lock);
    return take;
}

uint32_t slots_changed_records(struct slots *s)
{
    uint32_t count = 0;
    env_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < slots_record_count(s); i++)
        count += s->record_changed[i] != 0;
    env_mutex_unlock(&s->lock);
    return count;
}

void slots_mark_all_changed(struct slots *s)
{
    env_mutex_lock(&s->lock);
    memset(s->record_changed, 1, slots_record_count(s));
    env_mutex_unlock(&s->lock);
}

struct slots_summary slots_summarise(struct slots *s)
{
    struct slots_summary sum = {0};
    env_mutex_lock(&s->lock);
    sum.free_count = s->ready_count + s->bare_count;
    for (uint32_t slot = 0; slot < s->geometry->slot_count; slot++) {
        const struct slot *t = &s->table[slot];
        sum.live_bytes += t->live_bytes;
        sum.own_bytes += s->own_bytes[slot];
        if (t->state == SLOT_CLOSED) {
            uint64_t kept = (uint64_t)t->live_bytes + s->own_bytes[slot];
            sum.closed_count++;
            sum.closed_used_bytes += t->used_bytes;
            sum.dead_bytes += t->used_bytes > kept ? t->used_bytes - kept : 0;
        }
        if (t->state == SLOT_QUARANTINED) {
            sum.quarantined_count++;
            sum.quarantined_bytes += t->used_bytes;
        }
    }
    env_mutex_unlock(&s->lock);
    return sum;
}
