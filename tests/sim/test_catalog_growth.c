/*
 * Object numbers are never used twice, so the catalog's tree grows with every volume that was ever created: from one
 * leaf to two levels at number 128. Volumes of both halves are there after a close and after a power cut.
 */
#include "tap.h"

#include "base/math.h"
#include "sim/rig.h"

#define NAMES 5
#define CREATIONS 300

static void create(struct rig *r, unsigned slot, unsigned number)
{
    char name[32];
    snprintf(name, sizeof(name), "v%u", slot);
    EXPECT_EQ(r->s->ops->create(r->s, slot, name, RIG_SIZE_BYTES, 4096, (struct codec_choice){0}), 0);
    EXPECT_EQ(rig_write(r, slot, 8192, 4096, number + 1, 0), 0);
}

/* Volume 0 stays from the first leaf on; the others come and go. */
static void test_catalog_grows(void)
{
    struct rig r;
    unsigned last[NAMES] = {0};
    rig_init(&r);
    REQUIRE(rig_start(&r, 0, 4096));
    for (unsigned i = 0; i < CREATIONS; i++) {
        unsigned slot = i == 0 ? 0 : 1 + i % (NAMES - 1);
        if (i >= NAMES)
            EXPECT_EQ(r.s->ops->destroy(r.s, slot), 0);
        if (i == 0 || last[slot] == 0 || i >= NAMES)
            create(&r, slot, i);
        last[slot] = i;
        if (i % 37 == 0)
            EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
    }
    EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
    EXPECT(rig_check(&r));
    EXPECT(rig_crash(&r, SIM_LOSS_ALL, 1));
    EXPECT(rig_check(&r));
    for (unsigned v = 0; v < NAMES; v++)
        EXPECT(rig_reads(&r, v, 8192, 4096, last[v] + 1));
    EXPECT_EQ(r.s->ops->reopen(r.s, &r.why), 0);
    EXPECT(rig_adopt_all(&r));
    for (unsigned v = 0; v < NAMES; v++)
        EXPECT(rig_reads(&r, v, 8192, 4096, last[v] + 1));
    rig_end(&r);
}

int main(void)
{
    RUN(test_catalog_grows);
    return tap_done();
}
