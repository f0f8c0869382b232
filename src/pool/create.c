/*
 * Making an empty pool: both label rings are wiped, so that labels of an earlier pool cannot win, then label 1 is
 * written. It is a clean label: segment 1 lies empty in slot 0, both trees are empty, and the first open goes on from
 * there.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/text.h"
#include "log/label_ring.h"

#define FIRST_SEGMENT 1
#define SLOTS_MIN 8 /* heads, lookahead, and room for two checkpoints to free something */

/* Between 64 and 2^18 slots; from 8 GiB on segments are large enough for records of 1 MiB (R33: 16 to a segment). */
static uint32_t segment_bytes_for(uint64_t size_bytes)
{
    if (size_bytes < GIB)
        return size_bytes < 512 * MIB ? MIB : 2 * MIB;
    if (size_bytes < 8 * GIB)
        return 4 * MIB;
    return size_bytes <= 4 * TIB ? 16 * MIB : 64 * MIB;
}

static int check_options(struct device *dev, const struct geometry *g, struct error *err)
{
    char text[16];
    if (!is_power_of_2(g->write_unit_bytes) || g->write_unit_bytes < WRITE_UNIT_BYTES_MIN ||
        g->write_unit_bytes > WRITE_UNIT_BYTES_MAX)
        return error_set(err, -EINVAL, "%s: write unit of %u bytes: must be a power of two from 4K to 64K", dev->name,
                         g->write_unit_bytes);
    if (!is_power_of_2(g->segment_bytes) || g->segment_bytes < SEGMENT_BYTES_MIN ||
        g->segment_bytes > SEGMENT_BYTES_MAX || g->segment_bytes < 4 * g->write_unit_bytes)
        return error_set(err, -EINVAL, "%s: segment size of %u bytes: must be a power of two from 64K to 256M",
                         dev->name, g->segment_bytes);
    if (g->lookahead_count < 1 || g->lookahead_count > LOOKAHEAD_SLOTS_MAX)
        return error_set(err, -EINVAL, "%s: lookahead of %u segments: must be 1 to 8", dev->name, g->lookahead_count);
    if (g->slot_count < SLOTS_MIN || g->slot_count < 2 * g->lookahead_count)
        return error_set(
            err, -EINVAL, "%s: too small: %s; with segments of %" PRIu32 "M a pool needs at least %" PRIu64 "M",
            dev->name, size_format(g->device_bytes, text, sizeof text), (uint32_t)div_ceil(g->segment_bytes, MIB),
            div_ceil((SLOTS_MIN + 1) * (uint64_t)g->segment_bytes, MIB) + 1);
    return 0;
}

static int compute_geometry(struct device *dev, const struct pool_create_options *options, struct geometry *g,
                            struct error *err)
{
    char text[16];
    memset(g, 0, sizeof *g);
    g->device_bytes = dev->info.size_bytes;
    if (options->segment_bytes == 0 && g->device_bytes < POOL_BYTES_MIN)
        return error_set(err, -EINVAL, "%s: too small: %s; a pool needs at least 64M", dev->name,
                         size_format(g->device_bytes, text, sizeof text));
    g->segment_bytes = options->segment_bytes != 0 ? options->segment_bytes : segment_bytes_for(g->device_bytes);
    g->write_unit_bytes = options->write_unit_bytes;
    if (g->write_unit_bytes == 0)
        g->write_unit_bytes = (uint32_t)max_u64(WRITE_UNIT_BYTES_MIN, dev->info.physical_sector_bytes);
    uint64_t ring = label_ring_bytes(g->write_unit_bytes);
    g->data_start_bytes = round_up(ring, min_u64(MIB, g->segment_bytes));
    uint64_t end = label_offset_bytes(g->device_bytes, g->write_unit_bytes, true, 0);
    if (g->device_bytes > 2 * ring + g->data_start_bytes && end > g->data_start_bytes)
        g->slot_count = (uint32_t)min_u64((end - g->data_start_bytes) / g->segment_bytes, SLOT_COUNT_MAX);
    /* What is chosen ahead is taken from the other heads: in a small pool not much. */
    g->lookahead_count = options->lookahead_count;
    if (g->lookahead_count == 0)
        g->lookahead_count = (uint32_t)min_u64(LOOKAHEAD_SLOTS_MAX, max_u64(2, g->slot_count / 32));
    return check_options(dev, g, err);
}

/* Whatever a ring of any write unit may have left at the front and at the end. */
static int wipe_rings(struct device *dev, const struct geometry *g)
{
    uint64_t back = label_offset_bytes(g->device_bytes, g->write_unit_bytes, true, 0);
    uint64_t front_bytes = g->data_start_bytes, back_bytes = round_down(g->device_bytes, DEVICE_ALIGN_BYTES) - back;
    uint8_t *zeroes = device_buffer_new(max_u64(front_bytes, back_bytes));
    if (zeroes == NULL)
        return -ENOMEM;
    int result = device_write(dev, 0, zeroes, front_bytes);
    if (result == 0)
        result = device_write(dev, back, zeroes, back_bytes);
    if (result == 0)
        result = device_flush(dev);
    device_buffer_free(zeroes);
    return result;
}

static void first_label(struct env *env, const struct geometry *g, struct label *l)
{
    memset(l, 0, sizeof *l);
    env_random(env, l->pool_uuid, sizeof l->pool_uuid);
    l->device_count = 1;
    l->devices[0] = (struct label_device){.state = LABEL_DEVICE_ACTIVE,
                                          .size_bytes = g->device_bytes,
                                          .data_start_bytes = g->data_start_bytes,
                                          .slot_count = g->slot_count};
    env_random(env, l->devices[0].uuid, sizeof l->devices[0].uuid);
    env_random(env, &l->incarnation, sizeof l->incarnation);
    l->sequence = l->oldest_intact = 1;
    l->checkpoint = 1;
    l->flags = LABEL_CLEAN;
    l->write_unit_bytes = g->write_unit_bytes;
    l->segment_bytes = g->segment_bytes;
    l->lookahead_count = g->lookahead_count;
    l->created_wall_ns = l->written_wall_ns = env_wall_ns(env);
    l->next_segment = FIRST_SEGMENT + 1;
    l->next_branch = BRANCH_FIRST_USER;
    l->replay_address = (uint64_t)FIRST_SEGMENT * g->segment_bytes;
    l->replay_slot = 0;
    for (uint32_t i = 0; i < LOOKAHEAD_SLOTS_MAX; i++)
        l->replay_next_slots[i] = SLOT_NONE;
    l->node_slot = SLOT_NONE;
    l->root_count = 2;
    l->roots[0] = (struct label_root){.kind = ROOT_CATALOG, .height = 1};
    l->roots[1] = (struct label_root){.kind = ROOT_SLOT_TABLE,
                                      .height = map_height_for(div_ceil(g->slot_count, SLOTS_PER_TABLE_RECORD))};
}

int pool_create(struct device *dev, const struct pool_create_options *options, struct error *err)
{
    struct geometry g;
    struct label label;
    int result = compute_geometry(dev, options, &g, err);
    if (result != 0)
        return result;
    first_label(dev->env, &g, &label);
    struct device_io io = {
        .kind = DEVICE_ALLOCATE, .offset_bytes = g.data_start_bytes, .length_bytes = g.segment_bytes};
    result = device_run(dev, &io, 1);
    if (result == 0)
        result = wipe_rings(dev, &g);
    if (result == 0)
        result = label_ring_write(dev, &label);
    if (result != 0)
        return error_set(err, result, "%s: making a pool failed: %s", dev->name, strerror(-result));
    return 0;
}
