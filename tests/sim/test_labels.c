/*
 * Lost labels (R20, R25, R53). Either copy of the newest label may be lost without a trace. Both may: then the pool
 * opens at the one before and reaches the same state by a longer replay; its slots are all intact.
 */
#include "tap.h"

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "check/check.h"
#include "model/driver.h"
#include "model/labels.h"
#include "model/history.h"
#include "seed.h"
#include "sim/rig.h"

#define HISTORIES 60

static const struct profile profile = {
    .weights = {[OP_WRITE] = 50, [OP_FLUSH] = 8, [OP_TRIM] = 10, [OP_ZERO] = 5, [OP_CHECKPOINT] = 6},
    .volume_count = 2,
    .record_bytes = {4096, 16384},
    .size_bytes = {128 * 1024, 256 * 1024},
    .length_max_bytes = 64 * 1024,
    .fua_per_mille = 300,
    .unaligned_per_mille = 100,
    .half_record_per_mille = 200,
};

static uint64_t seed;

static const struct store_pool_options options = {
    .disk_bytes = 16 * 1024 * 1024, .segment_bytes = 256 * 1024, .lookahead_count = 2};

enum label_damage { FRONT_COPY, BACK_COPY, BOTH_COPIES, WHOLE_FRONT_RING, WHOLE_BACK_RING, LABEL_DAMAGES };

static void labels_damage(struct sim_disk *disk, enum label_damage damage)
{
    struct label newest;
    CHECK(labels_newest(disk, options.disk_bytes, &newest));
    uint32_t place = (uint32_t)(newest.sequence % LABEL_RING_SLOTS);
    for (uint32_t i = 0; i < 2 * LABEL_RING_SLOTS; i++) {
        bool back = i >= LABEL_RING_SLOTS, mine = i % LABEL_RING_SLOTS == place;
        bool hit = (damage == FRONT_COPY && !back && mine) || (damage == BACK_COPY && back && mine) ||
                   (damage == BOTH_COPIES && mine) || (damage == WHOLE_FRONT_RING && !back) ||
                   (damage == WHOLE_BACK_RING && back);
        if (hit)
            sim_disk_corrupt(disk,
                             label_offset_bytes(options.disk_bytes, WRITE_UNIT_BYTES_MIN, back, i % LABEL_RING_SLOTS),
                             WRITE_UNIT_BYTES_MIN, NULL, i);
    }
}

/* The picture with its labels damaged opens and shows what the oracle allows. */
static bool damaged_holds(const struct sim_image *image, struct oracle *o, enum label_damage damage, struct text *why)
{
    struct sim *sim = sim_new(1);
    struct sim_disk *disk = sim_disk_from_image(sim, image);
    sim_disk_power_cut(disk, SIM_LOSS_ALL, 1);
    labels_damage(disk, damage);
    struct sim_image *after = sim_disk_image(disk);
    sim_disk_free(disk);
    sim_free(sim);
    struct store *s = store_pool_from_image(&options, after, SIM_LOSS_NONE, 1, NULL, NULL, why);
    struct recovered found = {0};
    bool good = s != NULL && recovered_check(s, o, false, &found, why);
    recovered_free(&found);
    if (s != NULL)
        s->ops->free(s);
    sim_image_free(after);
    return good;
}

/* The checker finds the label before the newest whole as well: nothing it needs has been used again. */
static bool label_before_is_intact(const struct sim_image *image, struct text *why)
{
    struct sim *sim = sim_new(1);
    struct sim_disk *disk = sim_disk_from_image(sim, image);
    struct label newest;
    CHECK(labels_newest(disk, options.disk_bytes, &newest));
    struct device *dev = sim_disk_open(disk, true);
    struct check_options check = {.label_sequence = newest.sequence - 1};
    struct check_report *report = NULL;
    struct error err = {0};
    int r = check_run(dev, &check, &report, &err);
    bool good = r == 0 && check_report_is_clean(report);
    if (r != 0)
        text_printf(why, "check of the label before: %d %s", r, err.text);
    else if (!good)
        check_report_print(report, why);
    check_report_free(report);
    device_close(dev);
    sim_disk_free(disk);
    sim_free(sim);
    return good;
}

static void test_lost_labels(void)
{
    for (uint64_t i = 0; i < HISTORIES; i++) {
        struct store_pool_options mine = options;
        struct text why = {0};
        struct history h;
        struct history_stats stats = {0};
        mine.seed = seed + i;
        struct store *s = store_pool_new(&mine, &why);
        REQUIRE(s != NULL);
        struct oracle *o = oracle_new();
        struct driver *d = driver_new(&profile, s, o, &stats);
        history_make(&h, &profile, seed + i, 20 + i * 2);
        bool good = driver_create_all(d, &why) && driver_settle(d, &why);
        for (size_t k = 0; k < h.count && good; k++)
            good = driver_step(d, &h.ops[k], &why);
        struct sim_image *image = sim_disk_image(store_pool_disk(s));
        for (unsigned damage = 0; damage < LABEL_DAMAGES && good; damage++) {
            good = damaged_holds(image, o, (enum label_damage)damage, &why);
            if (!good)
                text_printf(&why, " (label damage %u)", damage);
        }
        good = good && label_before_is_intact(image, &why);
        EXPECT(good);
        if (!good)
            printf("# history of seed %" PRIu64 ": %s\n", seed + i, why.bytes);
        sim_image_free(image);
        driver_free(d);
        oracle_free(o);
        history_free(&h);
        s->ops->free(s);
        text_free(&why);
    }
}

/* A pool with no label left is no pool, and says so. */
static void test_no_label_at_all(void)
{
    struct rig r;
    rig_init(&r);
    REQUIRE(rig_start(&r, 1, 4096));
    for (uint32_t i = 0; i < 2 * LABEL_RING_SLOTS; i++)
        sim_disk_corrupt(
            store_pool_disk(r.s),
            label_offset_bytes(r.options.disk_bytes, WRITE_UNIT_BYTES_MIN, i >= LABEL_RING_SLOTS, i % LABEL_RING_SLOTS),
            WRITE_UNIT_BYTES_MIN, NULL, i);
    struct text why = {0};
    EXPECT(r.s->ops->crash(r.s, SIM_LOSS_NONE, 1, &why) < 0);
    EXPECT(why.length > 0);
    text_free(&why);
    rig_end(&r);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_lost_labels);
    RUN(test_no_label_at_all);
    return tap_done();
}
