/*
 * Rounding and checked arithmetic on a small domain against the definitions, and at the top of the range; lists against
 * an array.
 */
#include <string.h>

#include "base/list.h"
#include "base/math.h"
#include "base/prng.h"
#include "base/tree.h"
#include "seed.h"
#include "tap.h"

static void test_rounding(void)
{
    for (uint64_t unit = 1; unit <= 20; unit++) {
        for (uint64_t n = 0; n <= 100; n++) {
            uint64_t down = n;
            while (down % unit != 0)
                down--;
            uint64_t up = n;
            while (up % unit != 0)
                up++;
            EXPECT_EQ(round_down(n, unit), down);
            EXPECT_EQ(round_up(n, unit), up);
            EXPECT_EQ(div_ceil(n, unit), up / unit);
        }
    }
    EXPECT(round_up(UINT64_MAX - 4095, 4096) == UINT64_MAX - 4095);
    EXPECT(div_ceil(UINT64_MAX, 2) == UINT64_C(1) << 63);
    EXPECT(div_ceil(UINT64_MAX, 1) == UINT64_MAX);
}

static void test_powers(void)
{
    EXPECT(!is_power_of_2(0));
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t n = UINT64_C(1) << bit;
        EXPECT(is_power_of_2(n));
        EXPECT(n < 4 || (!is_power_of_2(n - 1) && !is_power_of_2(n + 1)));
    }
    EXPECT_EQ(min_u64(1, UINT64_MAX), 1);
    EXPECT_EQ(min_u64(2, 2), 2);
    EXPECT(max_u64(1, UINT64_MAX) == UINT64_MAX);
}

static void test_fits(void)
{
    uint64_t got = 7;
    EXPECT(!add_fits(UINT64_MAX, 1, &got) && got == 7);
    EXPECT(add_fits(UINT64_MAX, 0, &got) && got == UINT64_MAX);
    EXPECT(add_fits(UINT64_MAX - 5, 5, &got) && got == UINT64_MAX);
    got = 7;
    EXPECT(!mul_fits(UINT64_C(1) << 32, UINT64_C(1) << 32, &got) && got == 7);
    EXPECT(mul_fits(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &got) && got == 0xffffffff00000000);
    EXPECT(mul_fits(0, UINT64_MAX, &got) && got == 0);
}

static void test_range_inside(void)
{
    for (uint64_t size = 0; size < 6; size++)
        for (uint64_t offset = 0; offset < 8; offset++)
            for (uint64_t length = 0; length < 8; length++)
                EXPECT_EQ(range_inside(offset, length, size), offset + length <= size);
    EXPECT(!range_inside(UINT64_MAX, 2, UINT64_MAX));
    EXPECT(!range_inside(2, UINT64_MAX, UINT64_MAX));
    EXPECT(range_inside(1, UINT64_MAX - 1, UINT64_MAX));
}

struct item {
    unsigned number;
    struct list link;
};

#define ITEMS 8

/* Walks both ways and compares with the order in `model`. */
static bool list_agrees(struct list *head, const unsigned *model, size_t count)
{
    struct list *at = head;
    bool agrees = list_empty(head) == (count == 0);
    for (size_t i = 0; i < count && agrees; i++) {
        at = at->next;
        agrees = at != head && CONTAINER_OF(at, struct item, link)->number == model[i] && at->prev->next == at;
    }
    return agrees && at->next == head && head->prev == at;
}

static void test_list(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    struct list head;
    struct item items[ITEMS];
    unsigned model[ITEMS];
    size_t count = 0;
    list_init(&head);
    for (unsigned i = 0; i < ITEMS; i++) {
        items[i].number = i;
        list_init(&items[i].link);
    }
    for (unsigned step = 0; step < 5000; step++) {
        unsigned i = (unsigned)prng_below(&r, ITEMS);
        size_t at = 0;
        while (at < count && model[at] != i)
            at++;
        EXPECT_EQ(list_empty(&items[i].link), at == count);
        list_remove(&items[i].link);
        if (at < count) {
            memmove(&model[at], &model[at + 1], (count - at - 1) * sizeof(model[0]));
            count--;
        } else {
            size_t where = prng_below(&r, count + 1);
            if (where == count)
                list_append(&head, &items[i].link);
            else if (where == 0)
                list_prepend(&head, &items[i].link);
            else
                list_insert_before(&items[model[where]].link, &items[i].link);
            memmove(&model[where + 1], &model[where], (count - where) * sizeof(model[0]));
            model[where] = i;
            count++;
        }
        EXPECT(list_agrees(&head, model, count));
    }
}

int main(void)
{
    RUN(test_rounding);
    RUN(test_powers);
    RUN(test_fits);
    RUN(test_range_inside);
    RUN(test_list);
    return tap_done();
}
