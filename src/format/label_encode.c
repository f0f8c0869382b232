/*
 * Labels to bytes. doc/format/label.md.
 */
#include "format/label_impl.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

static void encode_checksum(struct sink *out, struct checksum c)
{
    sink_u64(out, c.low);
    sink_u64(out, c.high);
}

static void encode_fixed(struct sink *out, const struct label *l)
{
    sink_copy(out, LABEL_MAGIC, LABEL_MAGIC_BYTES);
    sink_u32(out, FORMAT_VERSION);
    sink_u32(out, l->write_unit_bytes);
    sink_u64(out, l->features_incompatible);
    sink_u64(out, l->features_read_only_compatible);
    sink_u64(out, l->features_compatible);
    sink_copy(out, l->pool_uuid, sizeof(l->pool_uuid));
    sink_u32(out, l->device_id);
    sink_u32(out, l->device_count);
    sink_u64(out, l->sequence);
    sink_u64(out, l->oldest_intact);
    sink_u64(out, l->checkpoint);
    sink_u64(out, l->incarnation);
    sink_u32(out, l->flags);
    sink_u32(out, l->segment_bytes);
    sink_u32(out, l->lookahead_count);
    sink_u32(out, l->root_count);
    sink_u64(out, l->created_wall_ns);
    sink_u64(out, l->written_wall_ns);
    sink_u64(out, l->next_segment);
    sink_u64(out, l->next_branch);
    sink_u64(out, l->replay_address);
    encode_checksum(out, l->replay_chain);
    sink_u32(out, l->replay_slot);
    sink_u32(out, l->node_slot);
    sink_u64(out, l->node_address);
    sink_zeroes(out, 8);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        sink_u64(out, l->replay_next_segments[k]);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        sink_u32(out, l->replay_next_slots[k]);
    CHECK_EQ(out->position, LABEL_DEVICES_OFFSET);
}

static void encode_device(struct sink *out, const struct label_device *d)
{
    sink_u32(out, d->id);
    sink_u8(out, d->state);
    sink_zeroes(out, 3);
    sink_u64(out, d->size_bytes);
    sink_u64(out, d->data_start_bytes);
    sink_u32(out, d->slot_count);
    sink_zeroes(out, 4);
    sink_copy(out, d->uuid, sizeof(d->uuid));
    sink_zeroes(out, 16);
    CHECK_EQ((out->position - LABEL_DEVICES_OFFSET) % LABEL_DEVICE_BYTES, 0);
}

static void encode_root(struct sink *out, const struct label_root *r)
{
    sink_u16(out, r->kind);
    sink_u8(out, r->height);
    sink_zeroes(out, 5);
    pointer_encode(out, &r->pointer);
    sink_zeroes(out, 8);
    CHECK_EQ((out->position - LABEL_ROOTS_OFFSET) % LABEL_ROOT_BYTES, 0);
}

void label_encode(const struct label *l, uint8_t *buf, uint32_t write_unit_bytes)
{
    struct error err = {0};
    CHECK_EQ(l->write_unit_bytes, write_unit_bytes);
    if (label_check(l, &err) != 0)
        check_failed(__FILE__, __LINE__, err.text);

    struct sink out = sink_of(buf, write_unit_bytes);
    encode_fixed(&out, l);
    for (size_t i = 0; i < l->device_count; i++)
        encode_device(&out, &l->devices[i]);
    CHECK_LE(out.position, LABEL_ROOTS_OFFSET);
    sink_zeroes(&out, LABEL_ROOTS_OFFSET - out.position);
    for (size_t i = 0; i < l->root_count; i++)
        encode_root(&out, &l->roots[i]);
    CHECK_LE(out.position, LABEL_EXTENSION_OFFSET);
    sink_zeroes(&out, LABEL_EXTENSION_OFFSET - out.position);
    /* No extensions yet: their area has length 0 and all up to the checksum is reserved. */
    sink_zeroes(&out, write_unit_bytes - LABEL_CHECKSUM_BYTES - LABEL_EXTENSION_OFFSET);
    CHECK_EQ(out.position, write_unit_bytes - LABEL_CHECKSUM_BYTES);
    const uint32_t ring_slot = (uint32_t)(l->sequence % LABEL_RING_SLOTS);
    encode_checksum(&out, label_checksum(buf, write_unit_bytes, l->in_back_ring, ring_slot));
    CHECK_EQ(out.position, write_unit_bytes);
    CHECK(!out.bad);
}
