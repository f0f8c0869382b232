/*
 * Map nodes to bytes. doc/format/node.md.
 */
#include "format/node_impl.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/math.h"

/* How the addresses of a node's children are written. */
struct address_coding {
    uint8_t width_bytes; /* NODE_ADDRESS_DELTAS or 1 .. NODE_ADDRESS_BYTES_MAX */
    uint64_t base;
};

static uint64_t address_delta(uint64_t predicted, uint64_t address)
{
    return zigzag((int64_t)(address - predicted));
}

/* Whatever is shorter: differences (good for what was written in order), or offsets of one width above the smallest. */
static struct address_coding choose_address_coding(const struct node *n)
{
    uint64_t lowest = UINT64_MAX, highest = 0, predicted = 0;
    size_t count = 0, delta_bytes = 0;
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        const struct pointer *p = &n->children[i];
        if (p->kind == POINTER_ABSENT)
            continue;
        count++;
        lowest = min_u64(lowest, p->address);
        highest = max_u64(highest, p->address);
        delta_bytes += varint_bytes(address_delta(predicted, p->address));
        predicted = p->address + p->length;
    }
    struct address_coding coding = {.width_bytes = NODE_ADDRESS_DELTAS};
    if (count == 0)
        return coding;
    uint8_t width = 1;
    while (width < NODE_ADDRESS_BYTES_MAX && (highest - lowest) >> (8 * width) != 0)
        width++;
    if (varint_bytes(lowest) + width * count < delta_bytes) {
        coding.width_bytes = width;
        coding.base = lowest;
    }
    return coding;
}

static void encode_tag(struct sink *out, const struct pointer *p)
{
    CHECK_LE(p->kind, NODE_TAG_KIND_MASK);
    CHECK_LE(p->codec, NODE_TAG_CODEC_MASK >> NODE_TAG_CODEC_SHIFT);
    CHECK_EQ(p->codec_param, 0);
    const uint8_t follow = p->flags != 0 ? NODE_TAG_FLAGS_FOLLOW : 0;
    sink_u8(out, (uint8_t)(p->kind | p->codec << NODE_TAG_CODEC_SHIFT | follow));
    if (p->flags != 0)
        sink_u8(out, p->flags);
}

static void encode_runs(struct sink *out, const struct node *n)
{
    const uint32_t fanout = map_fanout(n->level);
    for (uint32_t i = 0; i < fanout;) {
        const uint32_t first = i;
        do
            i++;
        while (i < fanout && node_run_continues(&n->children[first], &n->children[i]));
        encode_tag(out, &n->children[first]);
        sink_u8(out, (uint8_t)(i - first - 1));
    }
}

static void encode_length_and_checksum(struct sink *out, const struct pointer *p)
{
    sink_varint(out, p->length);
    sink_u64(out, p->checksum.low);
    sink_u64(out, p->checksum.high);
}

/* Returns the end of the last pointer: what the first patch's address is written against. */
static uint64_t encode_rows(struct sink *out, const struct node *n, struct address_coding coding)
{
    uint64_t predicted = 0;
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        const struct pointer *p = &n->children[i];
        if (p->kind == POINTER_ABSENT)
            continue;
        if (coding.width_bytes == NODE_ADDRESS_DELTAS) {
            sink_varint(out, address_delta(predicted, p->address));
        } else {
            CHECK_GE(p->address, coding.base);
            const uint64_t offset = p->address - coding.base;
            for (uint8_t k = 0; k < coding.width_bytes; k++)
                sink_u8(out, (uint8_t)(offset >> (8 * k)));
        }
        if (pointer_has_bytes(p))
            encode_length_and_checksum(out, p);
        predicted = p->address + p->length;
    }
    return predicted;
}

static void encode_patches(struct sink *out, const struct node *n, uint64_t predicted)
{
    uint8_t child = 0;
    sink_varint(out, n->patch_count);
    for (uint32_t i = 0; i < n->patch_count; i++) {
        const struct node_patch *p = &n->patches[i];
        const struct pointer *pointer = &p->patch.pointer;
        CHECK_GE(p->child, child);
        sink_varint(out, (uint64_t)(p->child - child));
        child = p->child;
        sink_varint(out, p->patch.first_sector);
        sink_varint(out, p->patch.sector_count);
        encode_tag(out, pointer);
        sink_varint(out, address_delta(predicted, pointer->address));
        encode_length_and_checksum(out, pointer);
        predicted = pointer->address + pointer->length;
    }
}

size_t node_encode(const struct node *n, uint8_t *buf, size_t buf_bytes)
{
    const char *fault = node_fault(n);
    if (fault != NULL)
        check_failed(__FILE__, __LINE__, fault);

    struct sink out = sink_of(buf, buf_bytes);
    const struct address_coding coding = choose_address_coding(n);
    sink_copy(&out, NODE_MAGIC, NODE_MAGIC_BYTES);
    sink_u8(&out, NODE_VERSION);
    sink_u8(&out, n->level);
    sink_varint(&out, n->branch);
    sink_varint(&out, n->number);
    sink_u8(&out, coding.width_bytes);
    if (coding.width_bytes != NODE_ADDRESS_DELTAS)
        sink_varint(&out, coding.base);
    encode_runs(&out, n);
    const uint64_t end = encode_rows(&out, n, coding);
    encode_patches(&out, n, end);
    CHECK(!out.bad);
    CHECK_LE(out.position, node_encoded_bytes_max(n->level, n->patch_count));
    return out.position;
}
