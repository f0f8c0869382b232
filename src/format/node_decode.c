/*
 * Map nodes from bytes. doc/format/node.md. Bounded by the fan-out of the level and NODE_PATCHES_MAX whatever the
 * bytes say.
 */
#include "format/node_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

static const char *decode_identity(struct source *in, struct node *n, uint64_t branch, uint8_t level, uint64_t number)
{
    const uint8_t *magic = source_take(in, NODE_MAGIC_BYTES);
    if (magic == NULL || memcmp(magic, NODE_MAGIC, NODE_MAGIC_BYTES) != 0)
        return "no map node";
    if (source_u8(in) != NODE_VERSION)
        return "unknown version";
    n->level = source_u8(in);
    n->branch = source_varint(in);
    n->number = source_varint(in);
    if (in->bad)
        return "ends early";
    if (n->level != level || n->branch != branch || n->number != number)
        return "it says that it is another one";
    return NULL;
}

static const char *decode_tag(struct source *in, struct pointer *ret_pointer)
{
    struct pointer p = {0};
    const uint8_t tag = source_u8(in);
    if ((tag & NODE_TAG_RESERVED) != 0)
        return "reserved bits of a tag";
    p.kind = tag & NODE_TAG_KIND_MASK;
    p.codec = (tag & NODE_TAG_CODEC_MASK) >> NODE_TAG_CODEC_SHIFT;
    if ((tag & NODE_TAG_FLAGS_FOLLOW) != 0) {
        p.flags = source_u8(in);
        if (p.flags == 0)
            return "flags that need not follow";
    }
    if (pointer_has_bytes(&p))
        p.checksum_kind = CHECKSUM_KIND_XXH3_128;
    *ret_pointer = p;
    return NULL;
}

static const char *decode_runs(struct source *in, struct node *n)
{
    const uint32_t fanout = map_fanout(n->level);
    CHECK_LE(fanout, MAP_FANOUT_MAX);
    for (uint32_t i = 0; i < fanout;) {
        struct pointer p;
        const char *fault = decode_tag(in, &p);
        const uint32_t count = source_u8(in) + 1u;
        if (fault != NULL)
            return fault;
        if (in->bad)
            return "ends early";
        if (count > fanout - i)
            return "runs longer than the node";
        if (i > 0 && node_run_continues(&n->children[i - 1], &p))
            return "a run that should have gone on";
        for (uint32_t k = 0; k < count; k++)
            n->children[i++] = p;
    }
    return NULL;
}

static const char *decode_length_and_checksum(struct source *in, struct pointer *p)
{
    const uint64_t length = source_varint(in);
    if (length > UINT32_MAX)
        return "length of a pointer";
    p->length = (uint32_t)length;
    p->checksum.low = source_u64(in);
    p->checksum.high = source_u64(in);
    return NULL;
}

/* An offset of width_bytes above base. */
static const char *decode_offset(struct source *in, uint8_t width_bytes, uint64_t base, uint64_t *ret_address)
{
    uint64_t offset = 0;
    CHECK_LE(width_bytes, NODE_ADDRESS_BYTES_MAX);
    for (uint8_t k = 0; k < width_bytes; k++)
        offset |= (uint64_t)source_u8(in) << (8 * k);
    if (offset > UINT64_MAX - base)
        return "address overflows";
    *ret_address = base + offset;
    return NULL;
}

static const char *decode_rows(struct source *in, struct node *n, uint64_t own_address, uint64_t *ret_end)
{
    uint64_t base = 0, predicted = 0;
    const uint8_t width_bytes = source_u8(in);
    if (width_bytes > NODE_ADDRESS_BYTES_MAX)
        return "width of addresses";
    if (width_bytes != NODE_ADDRESS_DELTAS)
        base = source_varint(in);
    const char *fault = decode_runs(in, n);
    for (uint32_t i = 0; i < map_fanout(n->level) && fault == NULL; i++) {
        struct pointer *p = &n->children[i];
        if (p->kind == POINTER_ABSENT)
            continue;
        if (width_bytes == NODE_ADDRESS_DELTAS)
            p->address = predicted + (uint64_t)unzigzag(source_varint(in));
        else
            fault = decode_offset(in, width_bytes, base, &p->address);
        if (fault == NULL && pointer_has_bytes(p))
            fault = decode_length_and_checksum(in, p);
        if (fault == NULL && p->kind == POINTER_NODE && p->address >= own_address)
            fault = "it points to a node that is younger than itself";
        predicted = p->address + p->length;
    }
    *ret_end = predicted;
    if (fault == NULL && in->bad)
        fault = "ends early";
    return fault;
}

static const char *decode_patch(struct source *in, struct node_patch *p, uint8_t previous_child, uint64_t predicted)
{
    const uint64_t step = source_varint(in);
    const uint64_t first_sector = source_varint(in);
    const uint64_t sector_count = source_varint(in);
    if (step > UINT8_MAX - (uint64_t)previous_child || first_sector > UINT16_MAX || sector_count > UINT16_MAX)
        return "place of a patch";
    p->child = (uint8_t)(previous_child + step);
    p->patch.first_sector = (uint16_t)first_sector;
    p->patch.sector_count = (uint16_t)sector_count;
    const char *fault = decode_tag(in, &p->patch.pointer);
    if (fault != NULL)
        return fault;
    p->patch.pointer.address = predicted + (uint64_t)unzigzag(source_varint(in));
    fault = decode_length_and_checksum(in, &p->patch.pointer);
    return fault == NULL && in->bad ? "ends early" : fault;
}

static const char *decode_patches(struct source *in, struct node *n, uint64_t predicted)
{
    const uint64_t count = source_varint(in);
    if (count > (n->level == 0 ? NODE_PATCHES_MAX : 0))
        return "number of patches";
    uint8_t child = 0;
    CHECK(count == 0 || n->patches != NULL);
    for (uint64_t i = 0; i < count; i++) {
        struct node_patch *p = &n->patches[i];
        const char *fault = decode_patch(in, p, child, predicted);
        if (fault != NULL)
            return fault;
        child = p->child;
        predicted = p->patch.pointer.address + p->patch.pointer.length;
    }
    n->patch_count = (uint32_t)count;
    if (in->bad || source_left(in) != 0)
        return "ends early or late";
    return NULL;
}

int node_decode(const uint8_t *buf, size_t buf_bytes, uint64_t branch, uint8_t level, uint64_t number,
                uint64_t own_address, struct node *ret_node, struct error *err)
{
    struct node *n = ret_node;
    struct source in = source_of(buf, buf_bytes);
    uint64_t end = 0;
    n->patch_count = 0;
    const char *fault = decode_identity(&in, n, branch, level, number);
    if (fault == NULL && level >= MAP_LEVELS_MAX)
        fault = "level out of range";
    if (fault == NULL)
        fault = decode_rows(&in, n, own_address, &end);
    if (fault == NULL)
        fault = decode_patches(&in, n, end);
    if (fault == NULL)
        fault = node_fault(n);
    if (fault != NULL)
        return error_set(err, -EBADMSG,
                         "map node %" PRIu64 " of level %u of branch %" PRIu64 " at address %" PRIu64 ": %s", number,
                         level, branch, own_address, fault);
    return 0;
}
