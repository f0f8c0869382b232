/*
 * The checker beside a server that writes: whatever it has read when the pool becomes another, it ends with a clean
 * look, and never calls a change damage. Tried with the change behind each single read of a look.
 */
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "check/check.h"
#include "env/sim.h"
#include "pool/pool.h"
#include "seed.h"
#include "tap.h"
#include "volume/volume.h"

#define POOL_BYTES (16 * MIB)
#define VOLUME_BYTES (2 * MIB)

/* A device that reads from one disk, and from another after so many reads. */
struct changing {
    struct device base;
    struct device *before, *after;
    uint64_t reads_before;
};

static void changing_run(struct device *dev, struct device_io *ios, size_t count)
{
    struct changing *c = (struct changing *)dev;
    struct device *now = c->reads_before > 0 ? c->before : c->after;
    c->reads_before -= c->reads_before > 0;
    now->ops->run(now, ios, count);
}

static const struct device_ops changing_ops = {.run = changing_run};

/* Writes at random; or all of the volume over and over, so that segments become free. */
static bool work(struct pool *pool, struct volume *v, struct prng *prng, unsigned writes, bool random)
{
    static uint8_t bytes[16384];
    bool good = true;
    for (unsigned i = 0; i < writes && good; i++) {
        const uint64_t length = random ? (1 + prng_below(prng, 8)) * 2048 : sizeof(bytes);
        const uint64_t offset = random ? prng_below(prng, (VOLUME_BYTES - length) / SECTOR_BYTES) * SECTOR_BYTES
                                       : i * length % VOLUME_BYTES;
        prng_fill(prng, bytes, length);
        good = volume_write(v, offset, bytes, length, i % 8 == 7 ? VOLUME_FUA : 0) == 0;
        if (i % 100 == 99 && good)
            good = pool_checkpoint(pool) == 0;
    }
    return good && volume_flush(v) == 0;
}

/* Looks at a pool that becomes the other behind so many reads; *ret_reads: how many reads that took. */
static int look(const struct changing *template, uint64_t reads_before, bool *ret_clean, uint64_t *ret_reads)
{
    struct changing c = *template;
    const struct check_options options = {0};
    struct check_report *report = NULL;
    struct error err = {0};
    c.reads_before = reads_before;
    *ret_clean = false;
    const int result = check_run_served(&c.base, &options, &report, &err);
    if (result == 0)
        *ret_clean = check_report_is_clean(report);
    if (result != 0 || !*ret_clean) {
        struct text text = {0};
        if (report != NULL)
            check_report_print(report, &text);
        printf("# changed after %" PRIu64 " reads: %d %s\n# %s\n", reads_before, result, err.text,
               text.bytes != NULL ? text.bytes : "");
        text_free(&text);
    }
    check_report_free(report);
    *ret_reads = reads_before - c.reads_before;
    return result;
}

static void test_changes_at_every_read(void)
{
    const struct pool_create_options create = {.segment_bytes = 256 * KIB};
    const struct volume_settings settings = {.size_bytes = VOLUME_BYTES, .record_bytes = 4096};
    const struct pool_options options = {.cache_bytes = 8 * MIB};
    const uint64_t seed = seed_choose();
    struct error err = {0};
    struct pool *pool;
    struct volume *v = NULL;
    struct prng prng;
    struct sim *sim = sim_new(seed);
    prng_seed(&prng, seed);
    struct sim_disk *disk = sim_disk_new(sim, POOL_BYTES, 4096);
    struct device *dev = sim_disk_open(disk, false);
    REQUIRE(pool_create(dev, &create, &err) == 0);
    device_close(dev);
    REQUIRE(pool_open(sim_disk_open(disk, false), &options, &pool, &err) == 0);
    REQUIRE(volume_create(pool, "v", &settings, &err) == 0 && volume_get(pool, "v", &v, &err) == 0);
    REQUIRE(work(pool, v, &prng, 250, true));
    struct sim_image *image = sim_disk_image(disk);
    /* Enough that the segments of the log just seen are written again. */
    REQUIRE(work(pool, v, &prng, 12 * 128, false) && work(pool, v, &prng, 150, true));
    struct sim_image *later = sim_disk_image(disk);
    struct sim_disk *disks[] = {sim_disk_from_image(sim, image), sim_disk_from_image(sim, later)};
    struct changing c = {.before = sim_disk_open(disks[0], true), .after = sim_disk_open(disks[1], true)};
    c.base = (struct device){
        .ops = &changing_ops, .env = c.before->env, .info = c.before->info, .name = "a pool that changes"};
    uint64_t reads, unused;
    bool clean;
    EXPECT(look(&c, UINT64_MAX, &clean, &reads) == 0 && clean);
    EXPECT(look(&c, 0, &clean, &unused) == 0 && clean);
    unsigned bad = 0;
    for (uint64_t n = 1; n <= reads; n++)
        bad += look(&c, n, &clean, &unused) != 0 || !clean;
    EXPECT(bad == 0);
    EXPECT(reads >= 20);
    printf("# seed %" PRIu64 ", %" PRIu64 " reads in a look\n", seed, reads);
    device_close(c.before);
    device_close(c.after);
    volume_put(v);
    EXPECT(pool_close(pool, &err) == 0);
    sim_disk_free(disks[0]);
    sim_disk_free(disks[1]);
    sim_image_free(image);
    sim_image_free(later);
    sim_disk_free(disk);
    sim_free(sim);
}

int main(void)
{
    RUN(test_changes_at_every_read);
    return tap_done();
}
