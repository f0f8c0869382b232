/*
 * A torn chunk at the end of the log is gone once it was shown to be gone. What recovery writes over it may be torn as
 * well, and must not bring the bytes that it lacks: then it would come alive.
 *
 * One sector is written with FUA, the end of it zeroes, to a place that held noise before; that write is torn. Behind
 * it the pool is opened, read, written to, and each step of this is torn too.
 */
#include "tap.h"

#include <stdlib.h>

#include "base/math.h"
#include "crash/points.h"
#include "format/limits.h"
#include "model/driver.h"
#include "model/pattern.h"
#include "model/store_pool.h"
#include "seed.h"

#define FIRST_TEARS 48 /* a quarter of them keeps the header of the chunk and loses the zeroes */
#define SECOND_TEARS 8
#define VICTIM 2 /* sector, in the record of sector 0: so it is stored as a patch */
#define STEPS 6  /* of the recovery: until the bridge is durable */

static const struct store_pool_options options = {.disk_bytes = 12 * MIB, .segment_bytes = 256 * KIB};

/* Before the first write: what it will lie over becomes noise. The picture is taken while the write is in flight. */
struct victim {
    struct sim_image *image;
    uint64_t seed;
};

static void victim_hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct victim *v = arg;
    (void)number;
    if (v->image != NULL || io->kind != DEVICE_WRITE)
        return;
    sim_disk_corrupt(disk, io->offset_bytes, 4 * 4096, NULL, v->seed);
    v->image = sim_disk_image(disk);
}

static bool victim_make(struct victim *v, struct text *why)
{
    uint8_t bytes[SECTOR_BYTES] = {0};
    struct store *s = store_pool_new(&options, why);
    if (s == NULL)
        return false;
    memset(bytes, 0xa5, 32); /* within the first sector of the chunk */
    bool good = s->ops->create(s, 0, "v0", 64 * KIB, 4096, (struct codec_choice){.id = CODEC_OFF}) == 0 &&
                s->ops->write(s, 0, 0, bytes, sizeof bytes, VOLUME_FUA) == 0;
    sim_disk_set_hook(store_pool_disk(s), victim_hook, v);
    good = good && s->ops->write(s, 0, VICTIM * SECTOR_BYTES, bytes, sizeof bytes, VOLUME_FUA) == 0 && v->image != NULL;
    sim_disk_set_hook(store_pool_disk(s), NULL, NULL);
    s->ops->free(s);
    return good;
}

/* The value of the torn sector after one more cut, or ORACLE_LOST. nested, if not NULL: goes on with a write, and what
 * the device does is gathered there. */
static uint64_t value_after(const struct sim_image *image, uint64_t seed, struct points *nested, struct text *why)
{
    uint8_t bytes[SECTOR_BYTES];
    uint64_t value = ORACLE_LOST;
    struct store *s =
        store_pool_from_image(&options, image, SIM_LOSS_TEAR, seed, nested == NULL ? NULL : points_hook, nested, why);
    if (s == NULL)
        return value;
    if (s->ops->adopt(s, 0, "v0") == 0 && s->ops->read(s, 0, VICTIM * SECTOR_BYTES, bytes, sizeof bytes) == 0)
        value = sector_value(bytes);
    if (nested != NULL) {
        EXPECT_EQ(s->ops->read(s, 0, 0, bytes, sizeof bytes), 0);
        EXPECT_EQ(s->ops->write(s, 0, 0, bytes, sizeof bytes, VOLUME_FUA), 0);
        points_stop(nested, store_pool_disk(s));
    }
    s->ops->free(s);
    return value;
}

static void test_torn_chunk_stays_gone(void)
{
    struct victim v = {.seed = seed_choose()};
    struct text why = {0};
    unsigned gone = 0, cuts = 0;
    EXPECT(victim_make(&v, &why));
    uint8_t zeroes[SECTOR_BYTES] = {0};
    for (uint64_t first = 0; v.image != NULL && first < FIRST_TEARS; first++) {
        struct points nested = {.count_max = STEPS};
        uint64_t value = value_after(v.image, v.seed + first, &nested, &why);
        EXPECT(value != ORACLE_LOST);
        gone += value == sector_value(zeroes);
        for (size_t i = 0; i < nested.count; i++)
            for (uint64_t second = 0; second < SECOND_TEARS; second++, cuts++)
                EXPECT_EQ(value_after(nested.list[i].image, v.seed + first * 64 + second, NULL, &why), value);
        points_free(&nested);
    }
    printf("# torn %u times, %u times the chunk was gone, %u cuts after that\n", FIRST_TEARS, gone, cuts);
    EXPECT(gone > 0);
    if (why.length != 0)
        printf("# %s\n", why.bytes);
    sim_image_free(v.image);
    text_free(&why);
}

int main(void)
{
    RUN(test_torn_chunk_stays_gone);
    return tap_done();
}
