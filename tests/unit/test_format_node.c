/*
 * Packed map nodes: round trip, size, what is refused.
 */
#include "tap.h"
#include "seed.h"

#include <errno.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format_objects.h"

static uint64_t seed;
static struct node node, back;
static struct node_patch patches[NODE_PATCHES_MAX], patches_back[NODE_PATCHES_MAX];
static uint8_t buf[64 * 1024], buf_again[64 * 1024];

static bool nodes_equal(const struct node *a, const struct node *b)
{
    if (a->patch_count != b->patch_count || a->level != b->level || a->branch != b->branch || a->number != b->number)
        return false;
    for (uint32_t i = 0; i < map_fanout(a->level); i++)
        if (!pointer_equal(&a->children[i], &b->children[i]))
            return false;
    for (uint32_t i = 0; i < a->patch_count; i++) {
        const struct node_patch *p = &a->patches[i], *q = &b->patches[i];
        if (p->child != q->child || p->patch.first_sector != q->patch.first_sector ||
            p->patch.sector_count != q->patch.sector_count || !pointer_equal(&p->patch.pointer, &q->patch.pointer))
            return false;
    }
    return true;
}

static int decode(const uint8_t *bytes, size_t n, const struct node *as)
{
    memset(&back, 0xee, sizeof(back)); /* the decoder sets all it returns */
    back.patches = patches_back;
    return node_decode(bytes, n, as->branch, as->level, as->number, UINT64_MAX, &back, NULL);
}

static void make(struct prng *r, enum node_style style, uint8_t level, unsigned per_mille, uint32_t patches_max)
{
    random_node(r, style, level, per_mille, patches_max, patches, &node);
}

static void test_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 1500; i++) {
        const uint8_t level = (uint8_t)(i % 3 == 0 ? prng_below(&r, MAP_LEVELS_MAX) : 0);
        make(&r, (enum node_style)(i % NODE_STYLE_COUNT), level, (unsigned)prng_below(&r, 1001),
             i % 10 == 0 ? NODE_PATCHES_MAX : (uint32_t)random_magnitude(&r, 5));
        const size_t bound = node_encoded_bytes_max(level, node.patch_count);
        REQUIRE(bound <= sizeof(buf));
        const size_t n = node_encode(&node, buf, bound);
        REQUIRE(n <= bound);
        REQUIRE(decode(buf, n, &node) == 0);
        REQUIRE(nodes_equal(&node, &back));
    }
}

static void test_identity(void)
{
    struct prng r;
    prng_seed(&r, seed);
    struct error err = {0};
    make(&r, NODE_STYLE_ORDERED, 0, 1000, 0);
    const size_t n = node_encode(&node, buf, sizeof(buf));
    back.patches = patches_back;
    EXPECT_EQ(node_decode(buf, n, node.branch + 1, 0, node.number, UINT64_MAX, &back, NULL), -EBADMSG);
    EXPECT_EQ(node_decode(buf, n, node.branch, 1, node.number, UINT64_MAX, &back, NULL), -EBADMSG);
    EXPECT_EQ(node_decode(buf, n, node.branch, 0, node.number + 1, UINT64_MAX, &back, NULL), -EBADMSG);
    EXPECT_EQ(node_decode(buf, n, node.branch, 0, node.number, UINT64_MAX, &back, NULL), 0);
    EXPECT_EQ(node_decode(buf, n, 16, 200, 5, 77, &back, &err), -EBADMSG);
    EXPECT_TEXT(err.text, "map node 5 of level 200 of branch 16 at address 77: it says that it is another one");
}

/* R12a: a tree of nodes cannot contain itself. */
static void test_addresses_below_own(void)
{
    struct prng r;
    prng_seed(&r, seed);
    memset(&node, 0, sizeof(node));
    node.branch = 16;
    node.level = 1;
    node.patches = patches;
    node.children[3] = random_pointer(&r, POINTER_NODE);
    node.children[3].address = 5000;
    node.children[4] = random_pointer(&r, POINTER_HOLE);
    node.children[4].address = 9000; /* a date, not a place */
    const size_t n = node_encode(&node, buf, sizeof(buf));
    back.patches = patches_back;
    EXPECT_EQ(node_decode(buf, n, 16, 1, 0, 5001, &back, NULL), 0);
    EXPECT_EQ(node_decode(buf, n, 16, 1, 0, 5000, &back, NULL), -EBADMSG);
    EXPECT_EQ(node_decode(buf, n, 16, 1, 0, 0, &back, NULL), -EBADMSG);
}

/* Every flip of a bit is refused or is a valid node, different from the first. */
static void test_every_bit(void)
{
    struct prng r;
    prng_seed(&r, seed);
    unsigned refused = 0, taken = 0;
    for (int i = 0; i < 6; i++) {
        make(&r, (enum node_style)(i % NODE_STYLE_COUNT), i % 2 == 0 ? 0 : 2, 200, 5);
        const size_t n = node_encode(&node, buf, sizeof(buf));
        for (size_t bit = 0; bit < 8 * n; bit++) {
            buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (decode(buf, n, &node) != 0) {
                refused++;
            } else {
                taken++;
                REQUIRE(!nodes_equal(&node, &back));
                REQUIRE(node_encode(&back, buf_again, sizeof(buf_again)) > 0);
            }
            buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    EXPECT(refused > 0);
    EXPECT(taken > 0);
}

static void test_truncation(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 6; i++) {
        make(&r, (enum node_style)(i % NODE_STYLE_COUNT), i % 2 == 0 ? 0 : 1, 300, 5);
        const size_t n = node_encode(&node, buf, sizeof(buf));
        for (size_t cut = 0; cut < n; cut++)
            EXPECT_EQ(decode(buf, cut, &node), -EBADMSG);
        buf[n] = 0;
        EXPECT_EQ(decode(buf, n + 1, &node), -EBADMSG);
    }
}

/* ---- sizes ---- */

static void expect_size(const char *what, size_t bytes, size_t pointers, double target)
{
    printf("# %s: %zu bytes, %.2f a pointer (at most %.1f)\n", what, bytes, (double)bytes / (double)pointers, target);
    EXPECT((double)bytes <= target * (double)pointers);
}

static void test_size_targets(void)
{
    struct prng r;
    prng_seed(&r, seed);
    make(&r, NODE_STYLE_ORDERED, 0, 1000, 0);
    expect_size("leaf of 128 in order", node_encode(&node, buf, sizeof(buf)), 128, 20);
    make(&r, NODE_STYLE_RANDOM, 0, 1000, 0);
    expect_size("leaf of 128 at random in 1 TiB", node_encode(&node, buf, sizeof(buf)), 128, 24.5);
    for (int i = 0; i < 128; i += 1 + (int)prng_below(&r, 4)) { /* every other record did not compress */
        node.children[i].codec = CODEC_OFF;
        node.children[i].length = 16384;
    }
    expect_size("the same, half of it incompressible", node_encode(&node, buf, sizeof(buf)), 128, 25.5);
    make(&r, NODE_STYLE_RANDOM, 1, 1000, 0);
    expect_size("inner node of 256 at random", node_encode(&node, buf, sizeof(buf)), 256, 24.5);
    make(&r, NODE_STYLE_ORDERED, 1, 1000, 0);
    expect_size("inner node of 256 in order", node_encode(&node, buf, sizeof(buf)), 256, 20);
    size_t worst = 0;
    for (int i = 0; i < 300; i++) {
        make(&r, NODE_STYLE_WILD, 0, 0, 0);
        node.branch = UINT64_MAX;
        node.number = (UINT64_C(1) << 48) - 1;
        node.children[prng_below(&r, 128)] = random_pointer(&r, POINTER_DATA);
        const size_t n = node_encode(&node, buf, sizeof(buf));
        worst = n > worst ? n : worst;
    }
    expect_size("leaf of one pointer, at worst", worst, 1, 70);
}

/* ---- what is refused ---- */

/* The start of leaf 3 of branch 16, up to and with the width of addresses. */
static struct sink begin_leaf(uint8_t width)
{
    struct sink out = sink_of(buf, sizeof(buf));
    sink_copy(&out, "ANOD", 4);
    sink_u8(&out, 1);
    sink_u8(&out, 0);
    sink_varint(&out, 16);
    sink_varint(&out, 3);
    sink_u8(&out, width);
    return out;
}

static void put_run(struct sink *out, uint8_t tag, unsigned count)
{
    sink_u8(out, tag);
    sink_u8(out, (uint8_t)(count - 1));
}

static void put_bytes_of_pointer(struct sink *out, uint64_t length)
{
    sink_varint(out, length);
    sink_u64(out, 1);
    sink_u64(out, 2);
}

static int end_leaf(const struct sink *out)
{
    back.patches = patches_back;
    return node_decode(buf, out->position, 16, 0, 3, UINT64_MAX, &back, NULL);
}

#define TAG_DATA_LZ4 (POINTER_DATA | CODEC_LZ4 << 4)

static void test_hand_made_leaves(void)
{
    struct sink out = begin_leaf(0);
    put_run(&out, TAG_DATA_LZ4, 2);
    put_run(&out, POINTER_ABSENT, 126);
    sink_varint(&out, zigzag(1000)); /* at 1000 */
    put_bytes_of_pointer(&out, 50);
    sink_varint(&out, 0); /* behind it */
    put_bytes_of_pointer(&out, 60);
    sink_varint(&out, 0);
    EXPECT_EQ(end_leaf(&out), 0);
    EXPECT_EQ(back.children[1].address, 1050);
    EXPECT_EQ(back.children[1].length, 60);
    EXPECT_EQ(back.children[2].kind, POINTER_ABSENT);

    out = begin_leaf(2); /* two bytes above a base */
    sink_varint(&out, 1000);
    put_run(&out, POINTER_HOLE, 1);
    put_run(&out, POINTER_ABSENT, 127);
    sink_u16(&out, 0x0102);
    sink_varint(&out, 0);
    EXPECT_EQ(end_leaf(&out), 0);
    EXPECT_EQ(back.children[0].address, 1000 + 0x0102);

    out = begin_leaf(8); /* over the end of addresses */
    sink_varint(&out, 1000);
    put_run(&out, POINTER_HOLE, 1);
    put_run(&out, POINTER_ABSENT, 127);
    sink_u64(&out, UINT64_MAX - 999);
    sink_varint(&out, 0);
    EXPECT_EQ(end_leaf(&out), -EBADMSG);

    out = begin_leaf(9);
    sink_varint(&out, 0);
    put_run(&out, POINTER_ABSENT, 128);
    sink_varint(&out, 0);
    EXPECT_EQ(end_leaf(&out), -EBADMSG);
}

static int leaf_of_runs(uint8_t tag_a, unsigned count_a, uint8_t tag_b, unsigned count_b)
{
    struct sink out = begin_leaf(0);
    put_run(&out, tag_a, count_a);
    put_run(&out, tag_b, count_b);
    for (unsigned i = 0; i < 256; i++)
        sink_varint(&out, 0); /* enough dates for any number of holes */
    out.position = out.position - 256 + (tag_a == POINTER_HOLE ? count_a : 0) + (tag_b == POINTER_HOLE ? count_b : 0);
    sink_varint(&out, 0);
    return end_leaf(&out);
}

static void test_runs(void)
{
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, POINTER_ABSENT, 28), 0);
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, POINTER_ABSENT, 29), -EBADMSG); /* longer than the leaf */
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, POINTER_HOLE, 28), -EBADMSG);   /* one run in two */
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, 0x80, 28), -EBADMSG);           /* reserved bit */
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, 0x10, 28), -EBADMSG);           /* absent, with a codec */
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, POINTER_NODE, 28), -EBADMSG);
    EXPECT_EQ(leaf_of_runs(POINTER_HOLE, 100, 8, 28), -EBADMSG);
    struct sink out = begin_leaf(0);
    sink_u8(&out, POINTER_ABSENT | 0x40); /* flags that are none */
    sink_u8(&out, 0);
    sink_u8(&out, 127);
    sink_varint(&out, 0);
    EXPECT_EQ(end_leaf(&out), -EBADMSG);
}

/* Two patches on an empty leaf: children, addresses, counts as given. */
static int leaf_of_patches(uint64_t step, uint64_t second_delta, uint64_t sectors, uint64_t length)
{
    struct sink out = begin_leaf(0);
    put_run(&out, POINTER_ABSENT, 128);
    sink_varint(&out, 2);
    for (int i = 0; i < 2; i++) {
        sink_varint(&out, i == 0 ? 5 : step);
        sink_varint(&out, 0);
        sink_varint(&out, sectors);
        sink_u8(&out, POINTER_PATCH | CODEC_LZ4 << 4);
        sink_varint(&out, i == 0 ? zigzag(10000) : second_delta);
        put_bytes_of_pointer(&out, length);
    }
    return end_leaf(&out);
}

static void test_patches(void)
{
    EXPECT_EQ(leaf_of_patches(0, zigzag(0), 8, 100), 0);
    EXPECT_EQ(back.patch_count, 2);
    EXPECT_EQ(back.patches[1].patch.pointer.address, 10100);
    EXPECT_EQ(leaf_of_patches(0, zigzag(-99), 8, 100), 0);
    EXPECT_EQ(leaf_of_patches(0, zigzag(-100), 8, 100), -EBADMSG); /* not younger than the first */
    EXPECT_EQ(leaf_of_patches(1, zigzag(-100), 8, 100), 0);        /* another record */
    EXPECT_EQ(leaf_of_patches(122, zigzag(0), 8, 100), 0);
    EXPECT_EQ(leaf_of_patches(123, zigzag(0), 8, 100), -EBADMSG); /* record 128 */
    EXPECT_EQ(leaf_of_patches(251, zigzag(0), 8, 100), -EBADMSG);
    EXPECT_EQ(leaf_of_patches(0, zigzag(0), 0, 100), -EBADMSG);
    EXPECT_EQ(leaf_of_patches(0, zigzag(0), 8, 4096), -EBADMSG);
    EXPECT_EQ(leaf_of_patches(0, zigzag(0), 8, 0), -EBADMSG);
    EXPECT_EQ(leaf_of_patches(0, zigzag(0), 2049, 100), -EBADMSG);

    struct prng r;
    prng_seed(&r, seed);
    make(&r, NODE_STYLE_ORDERED, 0, 0, 0); /* nine on one record */
    uint64_t address = 1;
    for (uint32_t i = 0; i < 8; i++) {
        node.patches[i] = (struct node_patch){.child = 9, .patch = random_patch(&r)};
        node.patches[i].patch.pointer.address = address++;
    }
    node.patch_count = 8;
    size_t n = node_encode(&node, buf, sizeof(buf));
    EXPECT_EQ(decode(buf, n, &node), 0);
    buf[n] = 0; /* the same record */
    memcpy(buf_again, buf, n);
    struct sink out = sink_of(buf_again, sizeof(buf_again));
    out.position = n;
    sink_varint(&out, 0);
    sink_varint(&out, 0);
    sink_varint(&out, 1);
    sink_u8(&out, POINTER_PATCH | CODEC_LZ4 << 4);
    sink_varint(&out, zigzag(100));
    put_bytes_of_pointer(&out, 10);
    const size_t count_offset = 4 + 1 + 1 + varint_bytes(node.branch) + varint_bytes(node.number) + 1 + 2;
    EXPECT_EQ(buf_again[count_offset], 8);
    buf_again[count_offset] = 9;
    EXPECT_EQ(decode(buf_again, out.position, &node), -EBADMSG);
}

/* Inner nodes have no patches, holes only as whole subtrees, no records. */
static void test_inner_nodes(void)
{
    static const enum pointer_kind refused[] = {POINTER_DATA, POINTER_PATCH, POINTER_INLINE};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct sink out = sink_of(buf, sizeof(buf));
        sink_copy(&out, "ANOD", 4);
        sink_u8(&out, 1);
        sink_u8(&out, 1);
        sink_varint(&out, 16);
        sink_varint(&out, 0);
        sink_u8(&out, 0);
        put_run(&out, POINTER_ABSENT, 255);
        put_run(&out, (uint8_t)refused[i], 1);
        sink_varint(&out, zigzag(4096));
        if (refused[i] != POINTER_INLINE)
            put_bytes_of_pointer(&out, 512);
        sink_varint(&out, 0);
        back.patches = NULL;
        EXPECT_EQ(node_decode(buf, out.position, 16, 1, 0, UINT64_MAX, &back, NULL), -EBADMSG);
    }
}

int main(void)
{
    seed = seed_choose();
    RUN(test_round_trip);
    RUN(test_identity);
    RUN(test_addresses_below_own);
    RUN(test_every_bit);
    RUN(test_truncation);
    RUN(test_size_targets);
    RUN(test_hand_made_leaves);
    RUN(test_runs);
    RUN(test_patches);
    RUN(test_inner_nodes);
    return tap_done();
}
