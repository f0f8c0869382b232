/*
 * Fuzz target: a packed map node. Input: own address (8 bytes), then the node. The identity asked for is what the node
 * says of itself, so that the decoder gets past it; nodes carry no checksum of their own (their parent does). What is
 * taken must encode to something that decodes to the same.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "format_objects.h"

#define IDENTITY_OFFSET 5 /* behind magic and version */

static bool nodes_equal(const struct node *a, const struct node *b)
{
    for (uint32_t i = 0; i < map_fanout(a->level); i++)
        if (!pointer_equal(&a->children[i], &b->children[i]))
            return false;
    for (uint32_t i = 0; i < a->patch_count; i++) {
        const struct node_patch *p = &a->patches[i], *q = &b->patches[i];
        if (p->child != q->child || p->patch.first_sector != q->patch.first_sector ||
            p->patch.sector_count != q->patch.sector_count || !pointer_equal(&p->patch.pointer, &q->patch.pointer))
            return false;
    }
    return a->patch_count == b->patch_count && a->branch == b->branch && a->level == b->level && a->number == b->number;
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    static struct node_patch patches[NODE_PATCHES_MAX], patches_again[NODE_PATCHES_MAX];
    static struct node node, node_again;
    static uint8_t buf[64 * 1024];
    struct source in = source_of(bytes, n);
    const uint64_t own_address = source_u64(&in);
    const size_t node_bytes = source_left(&in);
    const uint8_t *packed = source_take(&in, node_bytes);
    if (packed == NULL)
        return 0;
    struct source identity = source_of(packed, node_bytes);
    (void)source_take(&identity, IDENTITY_OFFSET);
    const uint8_t level = source_u8(&identity);
    const uint64_t branch = source_varint(&identity);
    const uint64_t number = source_varint(&identity);

    struct error err = {0};
    node.patches = patches;
    const int r = node_decode(packed, node_bytes, branch, level, number, own_address, &node, &err);
    if (r != 0) {
        CHECK_EQ(r, -EBADMSG);
        CHECK_EQ(err.code, r);
        return 0;
    }
    for (uint32_t i = 0; i < map_fanout(level); i++)
        CHECK(node.children[i].kind != POINTER_NODE || node.children[i].address < own_address);
    const size_t bound = node_encoded_bytes_max(level, node.patch_count);
    CHECK_LE(bound, sizeof(buf));
    const size_t again = node_encode(&node, buf, bound);
    CHECK_LE(again, bound);
    node_again.patches = patches_again;
    CHECK_EQ(node_decode(buf, again, branch, level, number, own_address, &node_again, NULL), 0);
    CHECK(nodes_equal(&node, &node_again));
    return 1;
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    static struct node_patch patches[NODE_PATCHES_MAX];
    static struct node node;
    const uint8_t level = prng_chance(r, 600) ? 0 : (uint8_t)prng_below(r, MAP_LEVELS_MAX);
    const unsigned per_mille = (unsigned)random_between(r, 0, 1000);
    const uint32_t patches_max = prng_chance(r, 100) ? NODE_PATCHES_MAX : (uint32_t)random_magnitude(r, 5);
    random_node(r, (enum node_style)prng_below(r, NODE_STYLE_COUNT), level, per_mille, patches_max, patches, &node);
    struct sink out = sink_of(buf, 8);
    sink_u64(&out, UINT64_MAX);
    return 8 + node_encode(&node, buf + 8, FUZZ_INPUT_BYTES_MAX - 8);
}
