/*
 * Labels from bytes. doc/format/label.md. Order: magic, checksum (with the place it was read from mixed in), version,
 * features, then the values; so a label of a newer version is told from a damaged one, and values are looked at only in
 * a label that is whole.
 */
#include "format/label_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

static struct checksum decode_checksum(struct source *in)
{
    struct checksum c;
    c.low = source_u64(in);
    c.high = source_u64(in);
    return c;
}

/* What follows magic, version and write unit, up to the device table. */
static void decode_fixed(struct source *in, struct label *l)
{
    l->features_incompatible = source_u64(in);
    l->features_read_only_compatible = source_u64(in);
    l->features_compatible = source_u64(in);
    source_copy(in, l->pool_uuid, sizeof(l->pool_uuid));
    l->device_id = source_u32(in);
    l->device_count = source_u32(in);
    l->sequence = source_u64(in);
    l->oldest_intact = source_u64(in);
    l->checkpoint = source_u64(in);
    l->incarnation = source_u64(in);
    l->flags = source_u32(in);
    l->segment_bytes = source_u32(in);
    l->lookahead_count = source_u32(in);
    l->root_count = source_u32(in);
    l->created_wall_ns = source_u64(in);
    l->written_wall_ns = source_u64(in);
    l->next_segment = source_u64(in);
    l->next_branch = source_u64(in);
    l->replay_address = source_u64(in);
    l->replay_chain = decode_checksum(in);
    l->replay_slot = source_u32(in);
    l->node_slot = source_u32(in);
    l->node_address = source_u64(in);
    source_zeroes(in, 8);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        l->replay_next_segments[k] = source_u64(in);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        l->replay_next_slots[k] = source_u32(in);
}

static void decode_device(struct source *in, struct label_device *d)
{
    d->id = source_u32(in);
    d->state = source_u8(in);
    source_zeroes(in, 3);
    d->size_bytes = source_u64(in);
    d->data_start_bytes = source_u64(in);
    d->slot_count = source_u32(in);
    source_zeroes(in, 4);
    source_copy(in, d->uuid, sizeof(d->uuid));
    source_zeroes(in, 16);
}

static void decode_root(struct source *in, struct label_root *r)
{
    r->kind = source_u16(in);
    r->height = source_u8(in);
    source_zeroes(in, 5);
    if (pointer_decode(in, &r->pointer) != 0)
        in->bad = true;
    source_zeroes(in, 8);
}

static int decode_tables(struct source *in, struct label *l, struct error *err)
{
    if (l->device_count > LABEL_DEVICES_MAX || l->root_count > LABEL_ROOTS_MAX)
        return error_set(err, -EBADMSG, "label: %" PRIu32 " devices and %" PRIu32 " roots", l->device_count,
                         l->root_count);
    for (size_t i = 0; i < l->device_count; i++)
        decode_device(in, &l->devices[i]);
    source_zeroes(in, (LABEL_DEVICES_MAX - l->device_count) * LABEL_DEVICE_BYTES);
    for (size_t i = 0; i < l->root_count; i++)
        decode_root(in, &l->roots[i]);
    source_zeroes(in, (LABEL_ROOTS_MAX - l->root_count) * LABEL_ROOT_BYTES);
    CHECK(in->bad || in->position == LABEL_EXTENSION_OFFSET);
    if (in->bad)
        return error_set(err, -EBADMSG, "label: reserved bytes are not zero, or a root is malformed");
    return 0;
}

/* Extensions of later versions: version 1 has none of its own, skips what may be skipped and refuses the rest. */
static int decode_extensions(struct source *in, struct error *err)
{
    const uint32_t area_bytes = source_u32(in);
    source_zeroes(in, LABEL_EXTENSION_HEADER_BYTES - 4);
    if (in->bad || area_bytes > source_left(in))
        return error_set(err, -EBADMSG, "label: extension area of %" PRIu32 " bytes", area_bytes);
    struct source area = source_of(source_take(in, area_bytes), area_bytes);
    uint16_t previous_tag = 0, unknown_tag = 0;
    while (source_left(&area) > 0) {
        const uint16_t tag = source_u16(&area);
        const uint16_t number = tag & (uint16_t)~LABEL_TAG_MUST_UNDERSTAND;
        (void)source_take(&area, source_u16(&area));
        if (area.bad || number <= previous_tag)
            return error_set(err, -EBADMSG, "label: malformed extension, tag %u", number);
        if (unknown_tag == 0 && (tag & LABEL_TAG_MUST_UNDERSTAND) != 0)
            unknown_tag = number;
        previous_tag = number;
    }
    source_zeroes(in, source_left(in));
    if (in->bad)
        return error_set(err, -EBADMSG, "label: bytes behind the extensions are not zero");
    if (unknown_tag != 0)
        return error_set(err, -EOPNOTSUPP, "label: extension %u must be understood: a newer program is needed",
                         unknown_tag);
    return 0;
}

int label_decode(const uint8_t *buf, uint32_t write_unit_bytes, bool back_ring, uint32_t ring_slot,
                 struct label *ret_label, struct error *err)
{
    CHECK_GE(write_unit_bytes, WRITE_UNIT_BYTES_MIN);
    CHECK_LE(write_unit_bytes, WRITE_UNIT_BYTES_MAX);
    CHECK_LT(ring_slot, LABEL_RING_SLOTS);
    if (memcmp(buf, LABEL_MAGIC, LABEL_MAGIC_BYTES) != 0)
        return error_set(err, -ENODATA, "no label here");
    const size_t summed_bytes = write_unit_bytes - LABEL_CHECKSUM_BYTES;
    struct source sum = source_of(buf + summed_bytes, LABEL_CHECKSUM_BYTES);
    if (!checksum_equal(decode_checksum(&sum), label_checksum(buf, write_unit_bytes, back_ring, ring_slot)))
        return error_set(err, -EBADMSG, "label does not match its checksum: it is damaged or belongs elsewhere");

    struct source in = source_of(buf, summed_bytes);
    struct label l = {0};
    (void)source_take(&in, LABEL_MAGIC_BYTES);
    const uint32_t version = source_u32(&in);
    if (version > FORMAT_VERSION)
        return error_set(err, -EOPNOTSUPP,
                         "pool of format version %" PRIu32 ": this program knows versions up to %u, use a newer one",
                         version, FORMAT_VERSION);
    if (version == 0)
        return error_set(err, -EBADMSG, "label: format version 0 does not exist");
    l.write_unit_bytes = source_u32(&in);
    if (l.write_unit_bytes != write_unit_bytes)
        return error_set(err, -EBADMSG, "label: write unit of %" PRIu32 " bytes, read as %" PRIu32, l.write_unit_bytes,
                         write_unit_bytes);
    decode_fixed(&in, &l);
    CHECK(in.bad || in.position == LABEL_DEVICES_OFFSET);
    if ((l.features_incompatible & ~FEATURES_INCOMPATIBLE_KNOWN) != 0)
        return error_set(err, -EOPNOTSUPP,
                         "pool with unknown incompatible features 0x%" PRIx64 ": a newer program is needed",
                         l.features_incompatible & ~FEATURES_INCOMPATIBLE_KNOWN);
    int r = decode_tables(&in, &l, err);
    if (r == 0)
        r = decode_extensions(&in, err);
    if (r == 0)
        r = label_check(&l, err);
    if (r != 0)
        return r;
    if (l.sequence % LABEL_RING_SLOTS != ring_slot)
        return error_set(err, -EBADMSG, "label %" PRIu64 " in ring slot %" PRIu32, l.sequence, ring_slot);
    l.in_back_ring = back_ring;
    *ret_label = l;
    return 0;
}
