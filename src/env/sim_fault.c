/*
 * Faults that a test orders from a simulated disk: operations that fail, writes that go astray, bytes that rot.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "env/sim_disk_impl.h"

static struct sim_fault *fault_add(struct sim_disk *disk, enum sim_fault_kind what, enum device_io_kind kind,
                                   uint64_t nth)
{
    CHECK_GE(nth, 1);
    struct sim_fault *fault = sim_alloc(sizeof *fault);
    fault->fault = what;
    fault->kind = kind;
    fault->countdown = nth;
    list_append(&disk->faults, &fault->link);
    return fault;
}

void sim_disk_fail(struct sim_disk *disk, enum device_io_kind kind, uint64_t nth, int error, bool sticky)
{
    CHECK_LT((int64_t)error, 0);
    struct sim_fault *fault = fault_add(disk, SIM_FAULT_FAIL, kind, nth);
    fault->error = error;
    fault->sticky = sticky;
}

void sim_disk_misdirect(struct sim_disk *disk, uint64_t nth, uint64_t wrong_offset_bytes)
{
    CHECK_EQ(wrong_offset_bytes % SIM_PAGE_BYTES, 0);
    fault_add(disk, SIM_FAULT_MISDIRECT, DEVICE_WRITE, nth)->wrong_page = wrong_offset_bytes / SIM_PAGE_BYTES;
}

void sim_disk_lose_write(struct sim_disk *disk, uint64_t nth)
{
    (void)fault_add(disk, SIM_FAULT_LOSE, DEVICE_WRITE, nth);
}

const struct sim_fault *sim_fault_meet(struct sim_disk *disk, enum device_io_kind kind)
{
    const struct sim_fault *met = NULL;
    for (struct list *l = disk->faults.next; l != &disk->faults; l = l->next) {
        struct sim_fault *fault = CONTAINER_OF(l, struct sim_fault, link);
        if (fault->kind != kind || fault->countdown == 0)
            continue;
        if (fault->countdown > 1) {
            fault->countdown--;
            continue;
        }
        if (!fault->sticky)
            fault->countdown = 0;
        if (met == NULL)
            met = fault;
    }
    return met;
}

void sim_fault_forget_all(struct sim_disk *disk)
{
    while (!list_empty(&disk->faults)) {
        struct sim_fault *fault = CONTAINER_OF(disk->faults.next, struct sim_fault, link);
        list_remove(&fault->link);
        free(fault);
    }
}

/* Bytes put over a range of the disk, wherever a copy of the range is kept. */
struct corruption {
    uint64_t offset_bytes, length_bytes;
    const uint8_t *bytes; /* NULL: xor with noise that changes every byte */
    uint64_t seed;
};

static struct sim_page *page_corrupt(const struct corruption *c, uint64_t page, const struct sim_page *before)
{
    uint8_t bytes[SIM_PAGE_BYTES] = {0};
    uint64_t start = page * SIM_PAGE_BYTES;
    uint64_t from = max_u64(start, c->offset_bytes);
    uint64_t end = min_u64(start + SIM_PAGE_BYTES, c->offset_bytes + c->length_bytes);
    struct prng noise;
    prng_seed(&noise, c->seed ^ page);
    if (before != NULL)
        memcpy(bytes, before->bytes, sizeof bytes);
    for (uint64_t at = from; at < end; at++) {
        if (c->bytes != NULL)
            bytes[at - start] = c->bytes[at - c->offset_bytes];
        else
            bytes[at - start] ^= (uint8_t)(1 + prng_below(&noise, 255));
    }
    return sim_page_new(bytes, false);
}

static void picture_corrupt(const struct corruption *c, struct sim_picture *picture)
{
    uint64_t last = (c->offset_bytes + c->length_bytes - 1) / SIM_PAGE_BYTES;
    for (uint64_t page = c->offset_bytes / SIM_PAGE_BYTES; page <= last; page++)
        sim_picture_set(picture, page, page_corrupt(c, page, sim_picture_page(picture, page)));
}

/* Writes that have yet to become durable would undo the damage: their bytes are damaged as well. */
static void changes_corrupt(const struct corruption *c, struct list *changes)
{
    uint64_t first = c->offset_bytes / SIM_PAGE_BYTES;
    uint64_t last = (c->offset_bytes + c->length_bytes - 1) / SIM_PAGE_BYTES;
    for (struct list *l = changes->next; l != changes; l = l->next) {
        struct sim_pending *pending = CONTAINER_OF(l, struct sim_pending, link);
        const struct sim_change *whole = pending->change;
        if (whole->kind != DEVICE_WRITE || whole->first_page > last || whole->first_page + whole->page_count <= first)
            continue;
        struct sim_change *damaged = sim_change_new(DEVICE_WRITE, whole->first_page, whole->page_count);
        for (uint64_t i = 0; i < whole->page_count; i++) {
            uint64_t page = whole->first_page + i;
            damaged->pages[i] =
                page < first || page > last ? sim_page_ref(whole->pages[i]) : page_corrupt(c, page, whole->pages[i]);
        }
        sim_change_unref(pending->change);
        pending->change = damaged;
    }
}

void sim_disk_corrupt(struct sim_disk *disk, uint64_t offset_bytes, uint64_t length_bytes, const void *bytes,
                      uint64_t seed)
{
    CHECK(range_inside(offset_bytes, length_bytes, disk->current.page_count * SIM_PAGE_BYTES));
    if (length_bytes == 0)
        return;
    const struct corruption c = {
        .offset_bytes = offset_bytes, .length_bytes = length_bytes, .bytes = bytes, .seed = seed};
    picture_corrupt(&c, &disk->durable);
    picture_corrupt(&c, &disk->current);
    changes_corrupt(&c, &disk->cached);
    changes_corrupt(&c, &disk->orphaned);
}
