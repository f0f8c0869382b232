/*
 * What a map node may hold, and how long its encoding can get. One set of rules for both sides of the codec.
 */
#include "format/node_impl.h"

#include "base/check.h"

#define RECORD_INDEX_BITS (MAP_LEAF_BITS + (MAP_LEVELS_MAX - 1) * MAP_INNER_BITS)

_Static_assert(MAP_FANOUT_MAX == 1u << MAP_INNER_BITS, "inner nodes are the largest");
_Static_assert(MAP_FANOUT_MAX <= 256, "a run's length fits a byte");

#define CHECKSUM_BYTES 16
#define VARINT_BYTES_MAX 10
#define LENGTH_VARINT_BYTES_MAX 3 /* below 2^21 */
#define HEADER_BYTES_MAX (NODE_MAGIC_BYTES + 1 + 1 + 2 * VARINT_BYTES_MAX + 1 + VARINT_BYTES_MAX)
#define RUN_BYTES_MAX 3
#define ROW_BYTES_MAX (VARINT_BYTES_MAX + LENGTH_VARINT_BYTES_MAX + CHECKSUM_BYTES)
#define PATCH_COUNT_BYTES_MAX 2
#define PATCH_BYTES_MAX (1 + 2 + 2 + 1 + ROW_BYTES_MAX)

_Static_assert(RECORD_BYTES_MAX + RECORD_LOSS_MAP_BYTES(RECORD_BYTES_MAX) < 1 << 21, "LENGTH_VARINT_BYTES_MAX");
_Static_assert(NODE_PATCHES_MAX < 1 << 14, "PATCH_COUNT_BYTES_MAX");

size_t node_encoded_bytes_max(uint32_t level, uint32_t patch_count)
{
    CHECK_LT(level, MAP_LEVELS_MAX);
    CHECK_LE(patch_count, NODE_PATCHES_MAX);
    return HEADER_BYTES_MAX + map_fanout(level) * (size_t)(RUN_BYTES_MAX + ROW_BYTES_MAX) + PATCH_COUNT_BYTES_MAX +
           patch_count * (size_t)PATCH_BYTES_MAX;
}

static const char *children_fault(const struct node *n)
{
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        const struct pointer *p = &n->children[i];
        const bool allowed = p->kind == POINTER_ABSENT || p->kind == POINTER_HOLE || p->kind == POINTER_PROVISIONED ||
                             p->kind == POINTER_LOST || p->kind == (n->level == 0 ? POINTER_DATA : POINTER_NODE);
        if (!allowed)
            return "a pointer of a kind its level does not have";
        if (!pointer_valid(p))
            return "a malformed pointer";
    }
    return NULL;
}

/* Addresses grow with time within the data head, so that patches oldest first are patches by address. */
static const char *patches_fault(const struct node *n)
{
    uint32_t on_child = 0;
    if (n->patch_count > (n->level == 0 ? NODE_PATCHES_MAX : 0))
        return "too many patches";
    for (uint32_t i = 0; i < n->patch_count; i++) {
        const struct node_patch *p = &n->patches[i];
        const struct node_patch *previous = i > 0 ? &n->patches[i - 1] : NULL;
        if (p->child >= map_fanout(0))
            return "a patch behind the last record";
        if (!patch_valid(&p->patch))
            return "a malformed patch";
        if (previous != NULL && previous->child > p->child)
            return "patches out of order";
        on_child = previous != NULL && previous->child == p->child ? on_child + 1 : 1;
        if (on_child > PATCHES_PER_RECORD_MAX)
            return "too many patches on a record";
        if (on_child > 1 && previous->patch.pointer.address >= p->patch.pointer.address)
            return "patches of a record out of order";
    }
    return NULL;
}

const char *node_fault(const struct node *n)
{
    if (n->branch == 0)
        return "branch 0";
    if (n->level >= MAP_LEVELS_MAX)
        return "level out of range";
    if (n->number >> (RECORD_INDEX_BITS - map_level_bits(n->level)) != 0)
        return "number out of range";
    const char *fault = children_fault(n);
    return fault != NULL ? fault : patches_fault(n);
}
