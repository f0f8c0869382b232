/*
 * The treap against a table of which keys are in it: all insertion and removal orders of five keys, then long random
 * histories over small key spaces (much collision), dense, sparse and extreme keys. After each step the tree's own
 * invariants are walked: search order, heap order (as "same set, same shape"), count.
 */
#include <string.h>

#include "base/prng.h"
#include "base/tree.h"
#include "seed.h"
#include "tap.h"

#define KEYS 64

struct thing {
    uint32_t before; /* so that the node is not the struct's first member */
    struct tree_node node;
};

struct fixture {
    struct tree tree;
    struct thing things[KEYS]; /* things[i] has keys[i] */
    uint64_t keys[KEYS];       /* ascending */
    bool inside[KEYS];
    size_t key_count;
};

static void fixture_init(struct fixture *f, const uint64_t *keys, size_t key_count)
{
    memset(f, 0, sizeof(*f));
    f->key_count = key_count;
    for (size_t i = 0; i < key_count; i++)
        f->things[i].node.key = f->keys[i] = keys[i];
}

static void fixture_insert(struct fixture *f, size_t i)
{
    /* What a node held before does not matter. */
    f->things[i].node.left = f->things[i].node.right = &f->things[i].node;
    tree_insert(&f->tree, &f->things[i].node);
    f->inside[i] = true;
}

static void fixture_remove(struct fixture *f, size_t i)
{
    tree_remove(&f->tree, &f->things[i].node);
    f->inside[i] = false;
}

static struct tree_node *model_ge(struct fixture *f, uint64_t key)
{
    for (size_t i = 0; i < f->key_count; i++)
        if (f->inside[i] && f->keys[i] >= key)
            return &f->things[i].node;
    return NULL;
}

static struct tree_node *model_le(struct fixture *f, uint64_t key)
{
    for (size_t i = f->key_count; i-- > 0;)
        if (f->inside[i] && f->keys[i] <= key)
            return &f->things[i].node;
    return NULL;
}

static bool finds_agree(struct fixture *f, uint64_t key)
{
    struct tree_node *ge = model_ge(f, key);
    return tree_find_ge(&f->tree, key) == ge && tree_find_le(&f->tree, key) == model_le(f, key) &&
           tree_find(&f->tree, key) == (ge != NULL && ge->key == key ? ge : NULL);
}

static void expect_agrees(struct fixture *f)
{
    size_t count = 0;
    struct tree_node *node = tree_first(&f->tree);
    bool order = true, finds = finds_agree(f, 0) && finds_agree(f, UINT64_MAX);
    for (size_t i = 0; i < f->key_count; i++) {
        finds = finds && finds_agree(f, f->keys[i]) && finds_agree(f, f->keys[i] + 1) && finds_agree(f, f->keys[i] - 1);
        if (!f->inside[i])
            continue;
        count++;
        order = order && node == &f->things[i].node;
        node = node != NULL ? tree_next(&f->tree, node) : NULL;
    }
    EXPECT(order);
    EXPECT(finds);
    EXPECT(node == NULL);
    EXPECT_EQ(f->tree.count, count);
    EXPECT_EQ(f->tree.root == NULL, count == 0);
}

/* The shape of a subtree as a number. */
static uint64_t shape_of(const struct tree_node *node)
{
    if (node == NULL)
        return 1;
    return (shape_of(node->left) * 31 + node->key) * 1000003 + shape_of(node->right);
}

static unsigned depth_of(const struct tree_node *node)
{
    if (node == NULL)
        return 0;
    unsigned left = depth_of(node->left), right = depth_of(node->right);
    return 1 + (left > right ? left : right);
}

/* Inserts in the order of one permutation and removes in that of another; `digits` are factorial-base numbers. */
static void permutation_of(unsigned number, size_t n, size_t *ret_order)
{
    size_t left[KEYS];
    for (size_t i = 0; i < n; i++)
        left[i] = i;
    for (size_t i = n; i > 0; i--) {
        size_t at = number % i;
        number /= (unsigned)i;
        ret_order[n - i] = left[at];
        memmove(&left[at], &left[at + 1], (i - 1 - at) * sizeof(left[0]));
    }
}

static void test_every_order_of_five(void)
{
    static const uint64_t keys[5] = {0, 1, 2, 1000, UINT64_MAX};
    uint64_t shape = 0;
    for (unsigned a = 0; a < 120; a++) {
        for (unsigned b = 0; b < 120; b++) {
            struct fixture f;
            size_t in[5], out[5];
            fixture_init(&f, keys, 5);
            permutation_of(a, 5, in);
            permutation_of(b, 5, out);
            for (size_t i = 0; i < 5; i++)
                fixture_insert(&f, in[i]);
            expect_agrees(&f);
            if (shape == 0)
                shape = shape_of(f.tree.root);
            EXPECT_EQ(shape_of(f.tree.root), shape);
            for (size_t i = 0; i < 5; i++) {
                fixture_remove(&f, out[i]);
                expect_agrees(&f);
            }
        }
    }
}

static void random_history(struct prng *r, const uint64_t *keys, size_t key_count, unsigned steps)
{
    struct fixture f;
    fixture_init(&f, keys, key_count);
    for (unsigned step = 0; step < steps; step++) {
        size_t i = prng_below(r, key_count);
        if (f.inside[i])
            fixture_remove(&f, i);
        else
            fixture_insert(&f, i);
        expect_agrees(&f);
    }
    /* The same set put in afresh has the same shape: no trace of the history. */
    uint64_t shape = shape_of(f.tree.root);
    struct fixture again;
    fixture_init(&again, keys, key_count);
    for (size_t i = 0; i < key_count; i++)
        if (f.inside[i])
            fixture_insert(&again, i);
    EXPECT_EQ(shape_of(again.tree.root), shape);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_random_histories(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    uint64_t keys[KEYS];
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = i * 2;
    random_history(&r, keys, KEYS, 1500);
    random_history(&r, keys, 7, 1500);
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = i < KEYS / 2 ? i : UINT64_MAX - KEYS + 1 + i;
    random_history(&r, keys, KEYS, 1500);
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = prng_u64(&r);
    qsort(keys, KEYS, sizeof(keys[0]), compare_keys);
    random_history(&r, keys, KEYS, 1500);
}

/* Depth: keys as the engine has them, in steps of 1, 8 and 4096, ascending. 3 log2(n) is far over the expectation and
 * far under a list. */
static void test_depth(void)
{
    enum { COUNT = 1 << 16 };
    struct tree_node *nodes = calloc(COUNT, sizeof(*nodes));
    REQUIRE(nodes != NULL);
    for (uint64_t unit = 1; unit <= 4096; unit = unit == 1 ? 8 : unit * 512) {
        struct tree t = {0};
        for (size_t i = 0; i < COUNT; i++) {
            nodes[i].key = i * unit;
            tree_insert(&t, &nodes[i]);
        }
        unsigned depth = depth_of(t.root);
        printf("# unit %" PRIu64 ": depth %u of %d nodes\n", unit, depth, COUNT);
        EXPECT(depth <= 48);
        EXPECT_EQ(t.count, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            tree_remove(&t, &nodes[i]);
        EXPECT(t.root == NULL && t.count == 0);
    }
    free(nodes);
}

static void test_container(void)
{
    struct thing thing = {.before = 7};
    struct tree_node *node = &thing.node;
    EXPECT(CONTAINER_OF(node, struct thing, node) == &thing);
    EXPECT_EQ(CONTAINER_OF(node, struct thing, node)->before, 7);
}

int main(void)
{
    RUN(test_every_order_of_five);
    RUN(test_random_histories);
    RUN(test_depth);
    RUN(test_container);
    return tap_done();
}
