/*
 * Reads both rings with the format's own decoder; disks of the tests have a write unit of 4 KiB.
 */
#include "model/labels.h"

#include <stddef.h>

#include "base/error.h"

static bool label_at(const struct sim_disk *disk, uint64_t disk_bytes, bool back, uint32_t place,
                     struct label *ret_label)
{
    uint8_t bytes[WRITE_UNIT_BYTES_MIN];
    struct error err = {0};
    sim_disk_peek(disk, label_offset_bytes(disk_bytes, WRITE_UNIT_BYTES_MIN, back, place), bytes, sizeof(bytes));
    return label_decode(bytes, WRITE_UNIT_BYTES_MIN, back, place, ret_label, &err) == 0;
}

bool labels_newest(const struct sim_disk *disk, uint64_t disk_bytes, struct label *ret_label)
{
    bool found = false;
    for (unsigned i = 0; i < 2 * LABEL_RING_SLOTS; i++) {
        struct label l;
        if (!label_at(disk, disk_bytes, i % 2 != 0, i / 2, &l) || (found && l.sequence <= ret_label->sequence))
            continue;
        *ret_label = l;
        found = true;
    }
    return found;
}

uint64_t labels_spoil_newest(struct sim_disk *disk, uint64_t disk_bytes, uint64_t not_below, uint64_t seed)
{
    struct label newest, other;
    if (!labels_newest(disk, disk_bytes, &newest) || newest.sequence < not_below ||
        newest.oldest_intact >= newest.sequence)
        return 0;
    bool older = false;
    for (unsigned i = 0; i < 2 * LABEL_RING_SLOTS && !older; i++)
        older = label_at(disk, disk_bytes, i % 2 != 0, i / 2, &other) && other.sequence + 1 == newest.sequence;
    if (!older)
        return 0;
    uint32_t place = (uint32_t)(newest.sequence % LABEL_RING_SLOTS);
    for (int back = 0; back < 2; back++)
        sim_disk_corrupt(disk, label_offset_bytes(disk_bytes, WRITE_UNIT_BYTES_MIN, back != 0, place),
                         WRITE_UNIT_BYTES_MIN, NULL, seed + (uint64_t)back);
    return newest.sequence;
}
