/*
 * Problems that can only be judged when everything was seen.
 *
 * A data chunk that lacks its header or its trailer was torn by a power cut, or it rotted. It rotted if it was durable
 * before: if a chunk or a label of the same opening of the pool says that the log up to its end was flushed. Otherwise
 * nobody was ever told that it is there, and it may have been torn.
 *
 * A record or patch that does not verify is lost only if the log behind the checkpoint does not replace it.
 */
#include "check/inspection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DURABLES_MAX 4096 /* openings of the pool; what is not listed counts as never flushed */

/* The place of an incarnation in the ordered list. */
static size_t durable_place(const struct inspection *ins, uint64_t incarnation)
{
    size_t low = 0, high = ins->durables.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ins->durables.list[middle].incarnation < incarnation)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int check_note_durable(struct inspection *ins, uint64_t incarnation, uint64_t durable_to)
{
    const size_t place = durable_place(ins, incarnation);
    struct check_durable *list = ins->durables.list;
    if (place < ins->durables.count && list[place].incarnation == incarnation) {
        if (list[place].durable_to < durable_to)
            list[place].durable_to = durable_to;
        return 0;
    }
    if (ins->durables.count >= DURABLES_MAX)
        return 0;
    if (check_array_add(&ins->durables) == NULL)
        return -ENOMEM;
    list = ins->durables.list;
    memmove(&list[place + 1], &list[place], (ins->durables.count - 1 - place) * sizeof(*list));
    list[place] = (struct check_durable){.incarnation = incarnation, .durable_to = durable_to};
    return 0;
}

void check_report_halves(struct inspection *ins)
{
    static const enum check_problem_id ids[] = {[CHECK_HALF_HEADER] = CHECK_PROBLEM_CHUNK_HEADER_DAMAGED,
                                                [CHECK_HALF_TRAILER] = CHECK_PROBLEM_CHUNK_TRAILER_DAMAGED,
                                                [CHECK_HALF_ECHO] = CHECK_PROBLEM_CHUNK_ECHO_DAMAGED};
    static const char *const parts[] = {
        [CHECK_HALF_HEADER] = "header", [CHECK_HALF_TRAILER] = "trailer", [CHECK_HALF_ECHO] = "echo of the one before"};
    for (size_t i = 0; i < ins->halves.count; i++) {
        const struct check_half_chunk *h = &ins->halves.list[i];
        const size_t place = durable_place(ins, h->incarnation);
        const bool durable = place < ins->durables.count && ins->durables.list[place].incarnation == h->incarnation &&
                             ins->durables.list[place].durable_to >= h->address + h->chunk_bytes;
        enum check_problem_id id = CHECK_PROBLEM_CHUNK_TORN;
        if (durable)
            id = ids[h->damaged];
        check_found(ins, id, h->device_offset_bytes, h->address, "%" PRIu32 " bytes, its %s", h->chunk_bytes,
                    parts[h->damaged]);
    }
}

static void report_damage(struct inspection *ins, const struct check_damage *d)
{
    const struct check_tree *t = &ins->trees.list[d->object.tree];
    struct check_problem p = {.id = d->id,
                              .offset_bytes = d->object.index * t->record_bytes,
                              .length_bytes = t->record_bytes,
                              .device_offset_bytes = d->device_offset_bytes,
                              .address = d->object.address};
    memcpy(p.volume, t->volume.name, sizeof(p.volume));
    if (d->object.kind == ENTRY_PATCH) {
        p.offset_bytes += (uint64_t)d->object.first_sector * SECTOR_BYTES;
        p.length_bytes = (uint64_t)d->object.sector_count * SECTOR_BYTES;
    }
    /* The last record of a volume may reach beyond it. */
    if (p.offset_bytes < t->volume.size_bytes && p.length_bytes > t->volume.size_bytes - p.offset_bytes)
        p.length_bytes = t->volume.size_bytes - p.offset_bytes;
    (void)snprintf(p.detail, sizeof(p.detail), "%" PRIu32 " bytes stored", d->object.length);
    check_report_add(ins->report, &p);
}

void check_note_damage(struct inspection *ins, const struct check_object *o, uint64_t device_offset_bytes,
                       enum check_problem_id id)
{
    const struct check_damage damage = {.object = *o, .device_offset_bytes = device_offset_bytes, .id = id};
    struct check_damage *d = ins->damages.count < CHECK_PROBLEMS_LISTED_MAX ? check_array_add(&ins->damages) : NULL;
    if (d != NULL)
        *d = damage;
    else
        report_damage(ins, &damage);
}

void check_report_damages(struct inspection *ins)
{
    for (size_t i = 0; i < ins->damages.count; i++)
        if (!ins->damages.list[i].superseded)
            report_damage(ins, &ins->damages.list[i]);
}
