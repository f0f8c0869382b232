/*
 * Pictures share their pages, so one at every step of thousands costs little. A write is also looked at: if it begins
 * with a chunk's header, its segment is noted for the slot it falls into.
 */
#include "crash/points.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "format/chunk.h"
#include "model/labels.h"

static void slot_note(struct points *p, const struct device_io *io)
{
    if (p->segment_of_slot == NULL || io->offset_bytes < p->data_start_bytes || io->iov_count == 0 ||
        io->iov[0].iov_len < CHUNK_HEADER_BYTES)
        return;
    struct chunk_header header;
    struct error err = {0};
    if (chunk_header_decode(io->iov[0].iov_base, io->iov[0].iov_len, WRITE_UNIT_BYTES_MIN, &header, &err) != 0)
        return;
    uint64_t slot = (io->offset_bytes - p->data_start_bytes) / p->segment_bytes;
    uint64_t segment = header.address / p->segment_bytes + 1;
    if (slot >= p->slot_count)
        return;
    p->slots_reused += p->segment_of_slot[slot] != 0 && p->segment_of_slot[slot] != segment;
    p->segment_of_slot[slot] = segment;
}

static bool point_wanted(struct points *p)
{
    if (p->count_max != 0 && p->count >= p->count_max)
        return false;
    if (p->chance_per_mille == 0)
        return true;
    p->state = p->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (p->state >> 33) % 1000 < p->chance_per_mille;
}

void points_hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct points *p = arg;
    p->writes += io->kind == DEVICE_WRITE;
    p->flushes += io->kind == DEVICE_FLUSH;
    p->others += io->kind != DEVICE_WRITE && io->kind != DEVICE_FLUSH;
    if (io->kind == DEVICE_WRITE)
        slot_note(p, io);
    if (!point_wanted(p))
        return;
    if (p->count == p->room) {
        p->room = p->room == 0 ? 64 : p->room * 2;
        p->list = realloc(p->list, p->room * sizeof(*p->list));
        CHECK(p->list != NULL);
    }
    p->list[p->count++] = (struct point){.image = sim_disk_image(disk),
                                         .position = p->oracle == NULL ? 0 : oracle_position(p->oracle),
                                         .number = number,
                                         .kind = io->kind};
}

void points_start(struct points *p, struct sim_disk *disk, const struct oracle *oracle)
{
    p->oracle = oracle;
    sim_disk_set_hook(disk, points_hook, p);
}

void points_learn_slots(struct points *p, const struct sim_disk *disk, uint64_t disk_bytes)
{
    struct label label;
    CHECK(labels_newest(disk, disk_bytes, &label));
    p->segment_bytes = label.segment_bytes;
    p->data_start_bytes = label.devices[0].data_start_bytes;
    p->slot_count = label.devices[0].slot_count;
    p->segment_of_slot = calloc(p->slot_count, sizeof(*p->segment_of_slot));
    CHECK(p->segment_of_slot != NULL);
}

void points_stop(struct points *p, struct sim_disk *disk)
{
    (void)p;
    sim_disk_set_hook(disk, NULL, NULL);
}

void points_free(struct points *p)
{
    for (size_t i = 0; i < p->count; i++)
        sim_image_free(p->list[i].image);
    free(p->list);
    free(p->segment_of_slot);
    *p = (struct points){0};
}
