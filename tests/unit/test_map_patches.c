/*
 * Patches that a newer one covers: on a small record, for every list of up to four, taking them out changes nothing of
 * what is seen, and what is left covers nothing that is left.
 */
#include <string.h>

#include "map/tree.h"
#include "tap.h"

#define SECTORS 4
#define RANGES (SECTORS * (SECTORS + 1) / 2)

static struct patch range_patch(unsigned which, uint64_t address)
{
    struct patch p = {.pointer = {.kind = POINTER_PATCH, .address = address}};
    for (unsigned first = 0; first < SECTORS; first++) {
        unsigned lengths = SECTORS - first;
        if (which < lengths) {
            p.first_sector = (uint16_t)first;
            p.sector_count = (uint16_t)(which + 1);
            return p;
        }
        which -= lengths;
    }
    return p;
}

/* By sector the address of the patch that is seen there. */
static void see(const struct patch *patches, uint32_t count, uint64_t *ret_seen)
{
    memset(ret_seen, 0, SECTORS * sizeof *ret_seen);
    for (uint32_t i = 0; i < count; i++)
        for (unsigned k = 0; k < patches[i].sector_count; k++)
            ret_seen[patches[i].first_sector + k] = patches[i].pointer.address;
}

static void count_dropped(void *arg, const struct patch *patch)
{
    *(uint32_t *)arg += patch->pointer.address > 0;
}

static bool one_list_holds(unsigned number, uint32_t count)
{
    struct patch patches[4];
    uint64_t before[SECTORS], after[SECTORS];
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < count; i++, number /= RANGES)
        patches[i] = range_patch(number % RANGES, i + 1);
    see(patches, count, before);
    uint32_t kept = patches_prune(patches, count, count_dropped, &dropped);
    see(patches, kept, after);
    bool holds = kept + dropped == count && memcmp(before, after, sizeof before) == 0;
    for (uint32_t i = 0; i < kept; i++) {
        holds = holds && (i == 0 || patches[i].pointer.address > patches[i - 1].pointer.address);
        for (uint32_t k = i + 1; k < kept; k++)
            holds = holds && (patches[k].first_sector > patches[i].first_sector ||
                              patches[k].first_sector + patches[k].sector_count <
                                  patches[i].first_sector + patches[i].sector_count);
    }
    return holds;
}

static void pruning_changes_nothing_that_is_seen(void)
{
    unsigned lists = 1, wrong = 0;
    for (uint32_t count = 0; count <= 4; count++, lists *= RANGES)
        for (unsigned number = 0; number < lists; number++)
            wrong += !one_list_holds(number, count);
    EXPECT_EQ(wrong, 0);
}

int main(void)
{
    RUN(pruning_changes_nothing_that_is_seen);
    return tap_done();
}
