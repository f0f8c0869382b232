/*
 * What a label may say. One set of rules for both sides of the codec; doc/format/label.md lists them.
 */
#include "format/label_impl.h"

#include <errno.h>
#include <inttypes.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

uint64_t label_offset_bytes(uint64_t device_bytes, uint32_t write_unit_bytes, bool back_ring, uint32_t ring_slot)
{
    CHECK_LT(ring_slot, LABEL_RING_SLOTS);
    CHECK_GE(write_unit_bytes, WRITE_UNIT_BYTES_MIN);
    const uint64_t in_ring = (uint64_t)ring_slot * write_unit_bytes;
    if (!back_ring)
        return in_ring;
    const uint64_t ring_bytes = (uint64_t)LABEL_RING_SLOTS * write_unit_bytes;
    const uint64_t end = round_down(device_bytes, write_unit_bytes);
    if (end < 2 * ring_bytes)
        return UINT64_MAX;
    return end - ring_bytes + in_ring;
}

const struct label_root *label_find_root(const struct label *l, enum root_kind kind)
{
    CHECK_LE(l->root_count, LABEL_ROOTS_MAX);
    for (uint32_t i = 0; i < l->root_count; i++)
        if (l->roots[i].kind == kind)
            return &l->roots[i];
    return NULL;
}

struct checksum label_checksum(const uint8_t *buf, uint32_t write_unit_bytes, bool back_ring, uint32_t ring_slot)
{
    CHECK_GT(write_unit_bytes, LABEL_CHECKSUM_BYTES);
    CHECK_LT(ring_slot, LABEL_RING_SLOTS);
    const struct checksum position = {.low = back_ring ? 1 : 0, .high = ring_slot};
    return checksum_chain(position, buf, write_unit_bytes - LABEL_CHECKSUM_BYTES);
}

static int geometry_check(const struct label *l, struct error *err)
{
    if (!is_power_of_2(l->write_unit_bytes) || l->write_unit_bytes < WRITE_UNIT_BYTES_MIN ||
        l->write_unit_bytes > WRITE_UNIT_BYTES_MAX)
        return error_set(err, -EBADMSG, "label: write unit of %" PRIu32 " bytes", l->write_unit_bytes);
    if (l->segment_bytes < SEGMENT_BYTES_MIN || l->segment_bytes > SEGMENT_BYTES_MAX ||
        l->segment_bytes % l->write_unit_bytes != 0)
        return error_set(err, -EBADMSG, "label: segment of %" PRIu32 " bytes", l->segment_bytes);
    if (l->lookahead_count < 1 || l->lookahead_count > LOOKAHEAD_SLOTS_MAX)
        return error_set(err, -EBADMSG, "label: lookahead of %" PRIu32 " slots", l->lookahead_count);
    return 0;
}

static int counters_check(const struct label *l, struct error *err)
{
    if (l->sequence == 0 || l->oldest_intact == 0 || l->oldest_intact > l->sequence)
        return error_set(err, -EBADMSG, "label: sequence %" PRIu64 ", oldest intact label %" PRIu64, l->sequence,
                         l->oldest_intact);
    if ((l->flags & ~(uint32_t)LABEL_CLEAN) != 0)
        return error_set(err, -EBADMSG, "label: unknown flags 0x%" PRIx32, l->flags);
    if (l->next_segment > UINT64_MAX / l->segment_bytes)
        return error_set(err, -EBADMSG, "label: next segment %" PRIu64 " has no log address", l->next_segment);
    if (l->next_branch < BRANCH_FIRST_USER)
        return error_set(err, -EBADMSG, "label: next branch %" PRIu64 " is a number of the pool's own", l->next_branch);
    return 0;
}

static int device_check(const struct label *l, const struct label_device *d, struct error *err)
{
    const uint64_t ring_bytes = (uint64_t)LABEL_RING_SLOTS * l->write_unit_bytes;
    if (d->state != LABEL_DEVICE_ACTIVE)
        return error_set(err, -EBADMSG, "label: device %" PRIu32 " in unknown state %u", d->id, d->state);
    if (d->slot_count == 0 || d->slot_count > SLOT_COUNT_MAX)
        return error_set(err, -EBADMSG, "label: device %" PRIu32 " of %" PRIu32 " slots", d->id, d->slot_count);
    if (d->data_start_bytes < ring_bytes || d->data_start_bytes % l->write_unit_bytes != 0)
        return error_set(err, -EBADMSG, "label: device %" PRIu32 " with slots from offset %" PRIu64, d->id,
                         d->data_start_bytes);
    const uint64_t end = round_down(d->size_bytes, l->write_unit_bytes);
    const uint64_t slots_bytes = (uint64_t)d->slot_count * l->segment_bytes;
    if (end < ring_bytes || !range_inside(d->data_start_bytes, slots_bytes, end - ring_bytes))
        return error_set(err, -EBADMSG,
                         "label: device %" PRIu32 " of %" PRIu64 " bytes cannot hold %" PRIu32 " slots and the back "
                         "label ring",
                         d->id, d->size_bytes, d->slot_count);
    return 0;
}

/* Version 1 knows pools of one device, number 0; the table is there for those of more. */
static int devices_check(const struct label *l, struct error *err)
{
    if (l->device_count != 1 || l->devices[0].id != 0 || l->device_id != 0)
        return error_set(err, -EBADMSG, "label: device %" PRIu32 " of %" PRIu32 ", but version %u has one, number 0",
                         l->device_id, l->device_count, FORMAT_VERSION);
    for (uint32_t i = 0; i < l->device_count; i++) {
        int r = device_check(l, &l->devices[i], err);
        if (r != 0)
            return r;
    }
    return 0;
}

/* [address, address + length) lies in one segment, whose number is below segment_count. */
static bool inside_segment(const struct label *l, uint64_t segment_count, uint64_t address, uint32_t length)
{
    return address / l->segment_bytes < segment_count && length <= l->segment_bytes - address % l->segment_bytes;
}

/* A head position: a write unit of an issued segment that lies in one of the device's slots. */
static int head_check(const struct label *l, const char *name, uint64_t address, uint32_t slot, struct error *err)
{
    if (slot >= l->devices[0].slot_count)
        return error_set(err, -EBADMSG, "label: %s head in slot %" PRIu32 " of %" PRIu32, name, slot,
                         l->devices[0].slot_count);
    if (address % l->write_unit_bytes != 0 || !inside_segment(l, l->next_segment, address, l->write_unit_bytes))
        return error_set(err, -EBADMSG, "label: %s head at address %" PRIu64, name, address);
    return 0;
}

static int next_segments_check(const struct label *l, struct error *err)
{
    uint64_t previous = l->replay_address / l->segment_bytes;
    bool ended = false;
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++) {
        const uint32_t slot = l->replay_next_slots[k];
        const uint64_t segment = l->replay_next_segments[k];
        bool ok;
        if (slot == SLOT_NONE) {
            ended = true;
            ok = segment == 0;
        } else {
            ok = !ended && k < l->lookahead_count && slot < l->devices[0].slot_count && segment > previous &&
                 segment < l->next_segment;
            previous = segment;
        }
        if (!ok)
            return error_set(err, -EBADMSG, "label: next segment %" PRIu64 " in slot %" PRIu32 " at place %" PRIu32,
                             segment, slot, k);
    }
    return 0;
}

static int slots_differ_check(const struct label *l, struct error *err)
{
    uint32_t slots[LOOKAHEAD_SLOTS_MAX + 2];
    size_t count = 0;
    slots[count++] = l->replay_slot;
    slots[count++] = l->node_slot;
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        slots[count++] = l->replay_next_slots[k];
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (slots[i] != SLOT_NONE && slots[i] == slots[k])
                return error_set(err, -EBADMSG, "label: slot %" PRIu32 " is named twice", slots[i]);
    return 0;
}

static int positions_check(const struct label *l, struct error *err)
{
    int r = head_check(l, "data", l->replay_address, l->replay_slot, err);
    if (r == 0 && l->node_slot != SLOT_NONE)
        r = head_check(l, "node", l->node_address, l->node_slot, err);
    if (r == 0 && l->node_slot == SLOT_NONE && l->node_address != 0)
        r = error_set(err, -EBADMSG, "label: node head at address %" PRIu64 " without a slot", l->node_address);
    if (r == 0)
        r = next_segments_check(l, err);
    return r != 0 ? r : slots_differ_check(l, err);
}

static int root_check(const struct label *l, const struct label_root *root, struct error *err)
{
    const struct pointer *p = &root->pointer;
    if (root->kind != ROOT_CATALOG && root->kind != ROOT_SLOT_TABLE)
        return error_set(err, -EBADMSG, "label: root of kind %u, which no feature of this pool allows", root->kind);
    if (!pointer_valid(p) || (p->kind != POINTER_ABSENT && p->kind != POINTER_HOLE && p->kind != POINTER_NODE))
        return error_set(err, -EBADMSG, "label: root of kind %u is no pointer to a node", root->kind);
    if (root->height > MAP_LEVELS_MAX || (root->height == 0 && p->kind != POINTER_ABSENT))
        return error_set(err, -EBADMSG, "label: root of kind %u with a height of %u", root->kind, root->height);
    /* The slot table, which tells where segments lie, cannot need itself: its tree names places, slot by slot. */
    const uint64_t place_count = root->kind == ROOT_SLOT_TABLE ? l->devices[0].slot_count : l->next_segment;
    if (p->kind == POINTER_NODE && !inside_segment(l, place_count, p->address, p->length))
        return error_set(err, -EBADMSG, "label: root of kind %u at address %" PRIu64, root->kind, p->address);
    return 0;
}

static int roots_check(const struct label *l, struct error *err)
{
    if (l->root_count > LABEL_ROOTS_MAX)
        return error_set(err, -EBADMSG, "label: %" PRIu32 " roots", l->root_count);
    for (uint32_t i = 0; i < l->root_count; i++) {
        int r = root_check(l, &l->roots[i], err);
        if (r != 0)
            return r;
        for (uint32_t k = 0; k < i; k++)
            if (l->roots[k].kind == l->roots[i].kind)
                return error_set(err, -EBADMSG, "label: two roots of kind %u", l->roots[i].kind);
    }
    return 0;
}

/* Later checks rely on earlier ones: the segment size divides, the device table is there. */
int label_check(const struct label *l, struct error *err)
{
    static int (*const checks[])(const struct label *l, struct error *err) = {
        geometry_check, counters_check, devices_check, positions_check, roots_check,
    };
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        int r = checks[i](l, err);
        if (r != 0)
            return r;
    }
    return 0;
}
