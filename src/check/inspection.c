/*
 * The ground of a run: windows onto the device, where segments lie, and the wording of problems.
 *
 * A segment is found by the slot table; before the table is read (its own nodes lie in segments too) and where it is
 * damaged, by looking at the start of every slot. The two must agree: slots.c sees to that for every slot in use.
 */
#include "check/inspection.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/chunk.h"

#define READAHEAD_FULL_BYTES (4 * MIB)
#define READAHEAD_QUICK_BYTES (16 * KIB)
#define READAHEAD_POINT_BYTES (64 * KIB)
#define UNREADABLE_LISTED_MAX 4096
/* Deep looks for a first chunk whose header is damaged: as far as the first chunk can reach. */
#define DEEP_LOOK_BYTES CHUNK_BYTES_MAX

void *check_array_room(void *list, size_t count, size_t *capacity, size_t element_bytes)
{
    if (count == *capacity) {
        const size_t grown = *capacity == 0 ? 64 : *capacity * 2;
        void *bigger = reallocarray(list, grown, element_bytes);
        if (bigger == NULL)
            return NULL;
        list = bigger;
        *capacity = grown;
    }
    memset((uint8_t *)list + count * element_bytes, 0, element_bytes);
    return list;
}

/* ---- windows ---- */

static void note_unreadable(struct inspection *ins, uint64_t offset)
{
    for (size_t i = 0; i < ins->unreadable.count; i++)
        if (ins->unreadable.list[i] == offset)
            return;
    if (ins->unreadable.count >= UNREADABLE_LISTED_MAX)
        return;
    uint64_t *noted = check_array_add(&ins->unreadable);
    if (noted != NULL)
        *noted = offset;
    check_found(ins, CHECK_PROBLEM_READ_ERROR, offset, CHECK_NOWHERE, "%d bytes", DEVICE_ALIGN_BYTES);
}

/* A range that could not be read whole, unit by unit. */
static void read_by_unit(struct inspection *ins, uint64_t offset, uint8_t *buffer, size_t n)
{
    for (size_t done = 0; done < n; done += DEVICE_ALIGN_BYTES) {
        if (device_read(ins->dev, offset + done, buffer + done, DEVICE_ALIGN_BYTES) == 0)
            continue;
        memset(buffer + done, 0, DEVICE_ALIGN_BYTES);
        note_unreadable(ins, offset + done);
    }
}

static bool window_grow(struct check_window *w, size_t n)
{
    if (n <= w->capacity_bytes)
        return true;
    device_buffer_free(w->buffer);
    w->length_bytes = w->capacity_bytes = 0;
    w->buffer = device_buffer_new(n);
    if (w->buffer == NULL)
        return false;
    w->capacity_bytes = n;
    return true;
}

const uint8_t *check_window_bytes(struct check_window *w, uint64_t offset_bytes, size_t n, uint64_t until)
{
    struct inspection *ins = w->ins;
    if (!range_inside(offset_bytes, n, ins->device_bytes))
        return NULL;
    if (offset_bytes >= w->offset_bytes && range_inside(offset_bytes - w->offset_bytes, n, w->length_bytes))
        return w->buffer + (offset_bytes - w->offset_bytes);
    const uint64_t start = round_down(offset_bytes, DEVICE_ALIGN_BYTES);
    uint64_t end = max_u64(offset_bytes + n, min_u64(until, start + w->readahead_bytes));
    end = min_u64(round_up(end, DEVICE_ALIGN_BYTES), ins->device_bytes);
    const size_t length = (size_t)(end - start);
    if (!window_grow(w, length))
        return NULL;
    w->length_bytes = 0;
    if (device_read(ins->dev, start, w->buffer, length) != 0)
        read_by_unit(ins, start, w->buffer, length);
    ins->report->summary.read_bytes += length;
    /* Labels, table, replay and maps: how much there is to read nobody knows. */
    if (ins->options.progress != NULL && ins->progress_done == 0)
        ins->options.progress(ins->options.progress_arg, ins->report->summary.read_bytes, 0);
    w->offset_bytes = start;
    w->length_bytes = length;
    return w->buffer + (offset_bytes - start);
}

/* ---- places ---- */

uint64_t check_slot_offset(const struct inspection *ins, uint32_t slot)
{
    CHECK_LT(slot, ins->slot_count);
    return ins->data_start_bytes + (uint64_t)slot * ins->segment_bytes;
}

static int segment_compare(const void *a, const void *b)
{
    const struct check_segment *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static const struct check_segment *find_segment(const struct check_segments *segments, uint64_t number)
{
    size_t low = 0, high = segments->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (segments->list[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < segments->count && segments->list[low].number == number ? &segments->list[low] : NULL;
}

static bool holds_segment(const struct slot *t)
{
    return t->state == SLOT_NEXT || t->state == SLOT_OPEN || t->state == SLOT_CLOSED || t->state == SLOT_QUARANTINED ||
           t->state == SLOT_DAMAGED;
}

int check_place_segments(struct inspection *ins, struct error *err)
{
    struct check_segments *s = &ins->table_segments;
    s->list = calloc(ins->slot_count, sizeof(*s->list));
    if (s->list == NULL)
        return error_set(err, -ENOMEM, "out of memory for %" PRIu32 " slots", ins->slot_count);
    for (uint32_t i = 0; i < ins->slot_count; i++)
        if (holds_segment(&ins->slots[i].table))
            s->list[s->count++] = (struct check_segment){.number = ins->slots[i].table.segment, .slot = i};
    qsort(s->list, s->count, sizeof(*s->list), segment_compare);
    for (size_t i = 1; i < s->count; i++)
        if (s->list[i].number == s->list[i - 1].number)
            check_found(ins, CHECK_PROBLEM_SLOT_SEGMENT_DUPLICATE, check_slot_offset(ins, s->list[i].slot),
                        s->list[i].number * ins->segment_bytes, "segment %" PRIu64 " in slots %" PRIu32 " and %" PRIu32,
                        s->list[i].number, s->list[i - 1].slot, s->list[i].slot);
    return 0;
}

/* The segment whose chunk lies `at` bytes into the slot, going by a header that may not be verified any more. */
static uint64_t segment_at(struct inspection *ins, uint32_t slot, uint32_t at, uint32_t until)
{
    const uint64_t start = check_slot_offset(ins, slot);
    const uint8_t *bytes = check_window_bytes(&ins->scan, start + at, ins->write_unit_bytes, start + until);
    struct chunk_header h;
    if (bytes == NULL || chunk_header_decode(bytes, ins->write_unit_bytes, ins->write_unit_bytes, &h, NULL) != 0)
        return CHECK_NOWHERE;
    if (memcmp(h.pool_uuid, ins->label.pool_uuid, sizeof(h.pool_uuid)) != 0 || h.address % ins->segment_bytes != at)
        return CHECK_NOWHERE;
    return h.address / ins->segment_bytes;
}

/* First pass: the first write unit of each slot. Second, only if a segment was not found: deeper into the others. */
static int look_for_segments(struct inspection *ins)
{
    struct check_segments *s = &ins->seen_segments;
    if (s->list == NULL)
        s->list = calloc(ins->slot_count, sizeof(*s->list));
    if (s->list == NULL)
        return -ENOMEM;
    uint32_t until = ins->write_unit_bytes;
    if (ins->looked++ > 0)
        until = (uint32_t)min_u64(DEEP_LOOK_BYTES, ins->segment_bytes);
    for (uint32_t i = 0; i < ins->slot_count; i++) {
        uint64_t *segment = &ins->slots[i].segment_seen;
        if (*segment != CHECK_NOWHERE)
            continue;
        for (uint32_t at = 0; at < until && *segment == CHECK_NOWHERE; at += ins->write_unit_bytes)
            *segment = segment_at(ins, i, at, until);
        if (*segment != CHECK_NOWHERE)
            s->list[s->count++] = (struct check_segment){.number = *segment, .slot = i};
    }
    qsort(s->list, s->count, sizeof(*s->list), segment_compare);
    return 0;
}

/* The slot of a segment: as the table has it, else by looking; SLOT_NONE. */
static uint32_t find_slot(struct inspection *ins, uint64_t segment)
{
    const struct label *l = &ins->label;
    const struct check_segment *found = find_segment(&ins->table_segments, segment);
    if (found != NULL)
        return found->slot;
    if (segment == l->replay_address / ins->segment_bytes)
        return l->replay_slot;
    if (l->node_slot != SLOT_NONE && segment == l->node_address / ins->segment_bytes)
        return l->node_slot;
    if (ins->looked == 0 && look_for_segments(ins) != 0)
        return SLOT_NONE;
    found = find_segment(&ins->seen_segments, segment);
    if (found == NULL && ins->looked == 1 && look_for_segments(ins) == 0)
        found = find_segment(&ins->seen_segments, segment);
    return found != NULL ? found->slot : SLOT_NONE;
}

uint64_t check_slot_segment(struct inspection *ins, uint32_t slot)
{
    const struct label *l = &ins->label;
    if (holds_segment(&ins->slots[slot].table))
        return ins->slots[slot].table.segment;
    if (slot == l->replay_slot)
        return l->replay_address / ins->segment_bytes;
    if (slot == l->node_slot)
        return l->node_address / ins->segment_bytes;
    if (ins->looked == 0)
        (void)look_for_segments(ins);
    if (ins->looked == 1 && ins->slots[slot].segment_seen == CHECK_NOWHERE)
        (void)look_for_segments(ins);
    return ins->slots[slot].segment_seen;
}

uint64_t check_place(struct inspection *ins, uint32_t tree, uint64_t address, uint64_t length)
{
    const uint64_t number = address / ins->segment_bytes, offset = address % ins->segment_bytes;
    if (!range_inside(offset, length, ins->segment_bytes))
        return CHECK_NOWHERE;
    if (tree == CHECK_TREE_TABLE)
        return number < ins->slot_count ? address : CHECK_NOWHERE;
    const uint32_t slot = find_slot(ins, number);
    return slot == SLOT_NONE ? CHECK_NOWHERE : (uint64_t)slot * ins->segment_bytes + offset;
}

uint64_t check_locate(struct inspection *ins, uint32_t tree, uint64_t address, uint64_t length)
{
    const uint64_t place = check_place(ins, tree, address, length);
    return place == CHECK_NOWHERE ? CHECK_NOWHERE : ins->data_start_bytes + place;
}

uint64_t check_address_of_place(struct inspection *ins, uint64_t place)
{
    const uint64_t segment = check_slot_segment(ins, (uint32_t)(place / ins->segment_bytes));
    if (segment > UINT64_MAX / ins->segment_bytes - 1)
        return CHECK_NOWHERE;
    return segment * ins->segment_bytes + place % ins->segment_bytes;
}

/* ---- problems ---- */

static void __attribute__((format(printf, 2, 0)))
add_problem(struct inspection *ins, const char *format, va_list args, struct check_problem *p)
{
    if (vsnprintf(p->detail, sizeof(p->detail), format, args) < 0)
        p->detail[0] = '\0';
    check_report_add(ins->report, p);
}

void check_found(struct inspection *ins, enum check_problem_id id, uint64_t device_offset_bytes, uint64_t address,
                 const char *format, ...)
{
    struct check_problem p = {.id = id, .device_offset_bytes = device_offset_bytes, .address = address};
    va_list args;
    va_start(args, format);
    add_problem(ins, format, args, &p);
    va_end(args);
}

void check_found_in(struct inspection *ins, enum check_problem_id id, const struct check_tree *tree, uint64_t first,
                    uint64_t count, uint64_t device_offset_bytes, uint64_t address, const char *format, ...)
{
    struct check_problem p = {.id = id, .device_offset_bytes = device_offset_bytes, .address = address};
    memcpy(p.volume, tree->volume.name, sizeof(p.volume));
    if (tree->volume.branch >= BRANCH_FIRST_USER) {
        const uint64_t size = tree->volume.size_bytes;
        if (mul_fits(first, tree->record_bytes, &p.offset_bytes) &&
            mul_fits(count, tree->record_bytes, &p.length_bytes) && p.offset_bytes < size)
            p.length_bytes = min_u64(p.length_bytes, size - p.offset_bytes);
        else if (p.offset_bytes < size)
            p.length_bytes = size - p.offset_bytes;
        else
            p.length_bytes = 0;
    }
    va_list args;
    va_start(args, format);
    add_problem(ins, format, args, &p);
    va_end(args);
}

void check_progress(struct inspection *ins, uint64_t done_bytes)
{
    ins->progress_done += done_bytes;
    if (ins->options.progress == NULL || ins->progress_total == 0)
        return;
    const uint64_t share = min_u64(ins->progress_done, ins->progress_total);
    ins->options.progress(ins->options.progress_arg, share, ins->progress_total);
}

/* ---- life ---- */

static int allocate(struct inspection *ins)
{
    ins->codec = codec_context_new();
    ins->entries = calloc(CHUNK_ENTRIES_MAX, sizeof(*ins->entries));
    ins->raw = malloc(RECORD_BYTES_MAX + RECORD_LOSS_MAP_BYTES(RECORD_BYTES_MAX));
    ins->slots = calloc(ins->slot_count, sizeof(*ins->slots));
    if (ins->codec == NULL || ins->entries == NULL || ins->raw == NULL || ins->slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < ins->slot_count; i++)
        ins->slots[i].segment_seen = ins->slots[i].replay_segment = CHECK_NOWHERE;
    return 0;
}

static void take_geometry(struct inspection *ins)
{
    const struct label *l = &ins->label;
    ins->pool_bytes = l->devices[0].size_bytes;
    ins->data_start_bytes = l->devices[0].data_start_bytes;
    ins->slot_count = l->devices[0].slot_count;
    ins->write_unit_bytes = l->write_unit_bytes;
    ins->segment_bytes = l->segment_bytes;
    ins->node_bytes_max = max_u64(node_encoded_bytes_max(0, NODE_PATCHES_MAX), node_encoded_bytes_max(1, 0));
    struct check_summary *s = &ins->report->summary;
    memcpy(s->pool_uuid, l->pool_uuid, sizeof(s->pool_uuid));
    s->label_sequence = l->sequence;
    s->checkpoint = l->checkpoint;
    s->clean = (l->flags & LABEL_CLEAN) != 0;
}

int inspection_open(struct inspection *ins, struct device *dev, const struct check_options *options,
                    struct check_report *report, struct error *err)
{
    *ins = (struct inspection){.dev = dev, .options = *options, .report = report};
    if (ins->options.objects_max == 0)
        ins->options.objects_max = CHECK_OBJECTS_MAX;
    if (ins->options.found_max == 0)
        ins->options.found_max = CHECK_FOUND_MAX;
    ins->device_bytes = round_down(dev->info.size_bytes, DEVICE_ALIGN_BYTES);
    ins->scan = (struct check_window){.ins = ins,
                                      .readahead_bytes = options->quick ? READAHEAD_QUICK_BYTES : READAHEAD_FULL_BYTES};
    ins->point = (struct check_window){.ins = ins, .readahead_bytes = READAHEAD_POINT_BYTES};
    int result = check_labels(ins, err);
    if (result != 0 || ins->label.sequence == 0)
        return result;
    take_geometry(ins);
    if (allocate(ins) != 0)
        return error_set(err, -ENOMEM, "%s: out of memory", dev->name);
    return 0;
}

void inspection_close(struct inspection *ins)
{
    device_buffer_free(ins->scan.buffer);
    device_buffer_free(ins->point.buffer);
    codec_context_free(ins->codec);
    free(ins->front);
    free(ins->entries);
    free(ins->raw);
    free(ins->slots);
    free(ins->table_segments.list);
    free(ins->seen_segments.list);
    free(ins->trees.list);
    free(ins->by_branch);
    free(ins->objects.list);
    free(ins->damages.list);
    free(ins->halves.list);
    free(ins->durables.list);
    free(ins->replay.list);
    free(ins->unreadable.list);
    free(ins->lost.list);
    for (size_t i = 0; i < ins->writes.count; i++)
        free(ins->writes.list[i].bytes);
    free(ins->writes.list);
}
