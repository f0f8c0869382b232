/*
 * The checker on pools that the engine made: clean as they are; and each of their map nodes, both copies gone, comes
 * back from the log bit for bit.
 */
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "check/check.h"
#include "check/chunk.h"
#include "check/tree.h"
#include "env/sim.h"
#include "pool/pool.h"
#include "seed.h"
#include "tap.h"
#include "volume/volume.h"

#define POOL_BYTES (24 * MIB)
#define VOLUME_BYTES (3 * MIB)

struct rig {
    struct sim *sim;
    struct sim_disk *disk;
    struct pool *pool;
    struct volume *volumes[2];
    struct prng prng;
};

static bool rig_open(struct rig *r)
{
    const struct pool_options options = {.cache_bytes = 8 * MIB};
    struct error err = {0};
    bool good = pool_open(sim_disk_open(r->disk, false), &options, &r->pool, &err) == 0;
    for (unsigned i = 0; i < 2 && good; i++)
        good = volume_get(r->pool, i == 0 ? "small" : "large", &r->volumes[i], &err) == 0;
    if (!good)
        printf("# %s\n", err.text);
    return good;
}

static bool rig_new(struct rig *r, uint64_t seed)
{
    const struct pool_create_options options = {.segment_bytes = 256 * KIB};
    const struct volume_settings small = {.size_bytes = VOLUME_BYTES, .record_bytes = 4096, .codec = {CODEC_LZ4, 0}};
    const struct volume_settings large = {.size_bytes = VOLUME_BYTES, .record_bytes = 16384, .codec = {CODEC_ZSTD, 3}};
    const struct pool_options open_options = {.cache_bytes = 8 * MIB};
    struct error err = {0};
    *r = (struct rig){.sim = sim_new(seed)};
    prng_seed(&r->prng, seed);
    r->disk = sim_disk_new(r->sim, POOL_BYTES, 4096);
    struct device *dev = sim_disk_open(r->disk, false);
    bool good = pool_create(dev, &options, &err) == 0;
    device_close(dev);
    good = good && pool_open(sim_disk_open(r->disk, false), &open_options, &r->pool, &err) == 0;
    good = good && volume_create(r->pool, "small", &small, &err) == 0;
    good = good && volume_create(r->pool, "large", &large, &err) == 0;
    for (unsigned i = 0; i < 2 && good; i++)
        good = volume_get(r->pool, i == 0 ? "small" : "large", &r->volumes[i], &err) == 0;
    if (!good)
        printf("# %s\n", err.text);
    return good;
}

static bool rig_close(struct rig *r)
{
    struct error err = {0};
    for (unsigned i = 0; i < 2; i++)
        volume_put(r->volumes[i]);
    const int result = pool_close(r->pool, &err);
    if (result != 0)
        printf("# %s\n", err.text);
    return result == 0;
}

static void rig_free(struct rig *r)
{
    sim_disk_free(r->disk);
    sim_free(r->sim);
}

/* Writes of all lengths, small synchronous ones (patches), trims, zeroes. */
static bool rig_work(struct rig *r, unsigned operations)
{
    static uint8_t bytes[64 * 1024];
    bool good = true;
    for (unsigned i = 0; i < operations && good; i++) {
        struct volume *v = r->volumes[prng_below(&r->prng, 2)];
        const uint64_t sector = prng_below(&r->prng, VOLUME_BYTES / SECTOR_BYTES);
        const uint64_t sectors_max =
            min_u64(VOLUME_BYTES / SECTOR_BYTES - sector, prng_chance(&r->prng, 100) ? 128 : 16);
        const uint64_t offset = sector * SECTOR_BYTES, length = (1 + prng_below(&r->prng, sectors_max)) * SECTOR_BYTES;
        const unsigned fua = prng_chance(&r->prng, 400) ? VOLUME_FUA : 0;
        memset(bytes, (int)prng_below(&r->prng, 256), length);
        prng_fill(&r->prng, bytes, length / (1 + prng_below(&r->prng, 8)));
        switch (prng_below(&r->prng, 10)) {
        case 0:
            good = volume_trim(v, offset / 16384 * 16384, min_u64(VOLUME_BYTES - offset / 16384 * 16384, 20 * length),
                               fua) == 0;
            break;
        case 1:
            good = volume_zero(v, offset, length, fua | (prng_chance(&r->prng, 500) ? VOLUME_PROVISION : 0)) == 0;
            break;
        case 2:
            good = volume_flush(v) == 0;
            break;
        default:
            good = volume_write(v, offset, bytes, length, fua) == 0;
            break;
        }
        if (i % 60 == 59 && good)
            good = pool_checkpoint(r->pool) == 0;
    }
    return good;
}

static struct check_report *check_disk(struct sim_disk *disk, const struct check_options *options)
{
    struct device *dev = sim_disk_open(disk, !options->repair);
    struct check_report *report = NULL;
    struct error err = {0};
    if (check_run(dev, options, &report, &err) != 0)
        printf("# %s\n", err.text);
    device_close(dev);
    return report;
}

static bool is_clean(struct sim_disk *disk, const struct check_options *options)
{
    struct check_report *report = check_disk(disk, options);
    const bool clean = report != NULL && check_report_is_clean(report);
    if (report != NULL && !clean) {
        struct text text = {0};
        check_report_print(report, &text);
        printf("# %s\n", text.bytes);
        text_free(&text);
    }
    check_report_free(report);
    return clean;
}

static void test_clean(void)
{
    const struct check_options all = {.all = true}, quick = {.quick = true};
    struct rig r;
    REQUIRE(rig_new(&r, seed_choose()));
    for (unsigned round = 0; round < 3; round++) {
        EXPECT(rig_work(&r, 200));
        REQUIRE(rig_close(&r));
        EXPECT(is_clean(r.disk, &all));
        EXPECT(is_clean(r.disk, &quick));
        REQUIRE(rig_open(&r));
    }
    REQUIRE(rig_close(&r));
    rig_free(&r);
}

/* The map nodes of a closed pool: where both copies lie. */
struct nodes {
    struct inspection ins;
    struct place {
        uint64_t offset, second_offset;
        uint32_t length, tree;
        uint8_t level;
    } list[256];
    unsigned count;
};

static int note_node(void *arg, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct nodes *n = arg;
    struct check_chunk c;
    (void)number;
    const uint64_t place = check_place(&n->ins, tree, p->address, p->length);
    if (n->count == sizeof(n->list) / sizeof(n->list[0]) || place == CHECK_NOWHERE ||
        check_chunk_around(&n->ins, &n->ins.scan, place, &c) != 0)
        return 0;
    const uint64_t offset = n->ins.data_start_bytes + place;
    n->list[n->count++] = (struct place){.offset = offset,
                                         .second_offset = offset + c.header.chunk_bytes,
                                         .length = p->length,
                                         .tree = tree,
                                         .level = level};
    return 0;
}

static bool find_nodes(struct sim_disk *disk, struct nodes *n)
{
    const struct check_options options = {0};
    const struct check_visitor visitor = {.arg = n, .node = note_node};
    struct device *dev = sim_disk_open(disk, true);
    struct check_report *report = check_report_new();
    struct error err = {0};
    bool good = report != NULL && inspection_open(&n->ins, dev, &options, report, &err) == 0 &&
                check_load_table(&n->ins, &err) == 0 && check_load_catalog(&n->ins, &err) == 0;
    for (uint32_t t = 0; t < n->ins.trees.count && good; t++)
        good = check_tree_walk(&n->ins, t, &visitor) == 0;
    inspection_close(&n->ins);
    check_report_free(report);
    device_close(dev);
    return good;
}

/* Destroys both copies of a node on a copy of the disk and repairs it. */
static bool node_comes_back(const struct rig *r, const struct sim_image *image, const struct place *p)
{
    const struct check_options options = {.repair = true}, none = {0};
    struct sim_disk *disk = sim_disk_from_image(r->sim, image);
    uint8_t *before = malloc(p->length), *after = malloc(p->length);
    sim_disk_peek(disk, p->offset, before, p->length);
    sim_disk_corrupt(disk, p->offset, p->length, NULL, 1);
    sim_disk_corrupt(disk, p->second_offset, p->length, NULL, 2);
    struct check_report *damaged = check_disk(disk, &none), *repaired = check_disk(disk, &options);
    bool good = damaged != NULL && check_report_count_of(damaged, CHECK_PROBLEM_NODE_DAMAGED) > 0 && repaired != NULL &&
                check_report_is_clean(repaired);
    sim_disk_peek(disk, p->offset, after, p->length);
    good = good && memcmp(before, after, p->length) == 0;
    sim_disk_peek(disk, p->second_offset, after, p->length);
    good = good && memcmp(before, after, p->length) == 0;
    free(before);
    free(after);
    check_report_free(damaged);
    check_report_free(repaired);
    sim_disk_free(disk);
    return good;
}

/*
 * Trims whose segments were freed cannot be known any more, so a few leaves may stay lost; but never is anything else
 * written in their place.
 */
static void test_nodes_come_back(void)
{
    static struct nodes nodes;
    struct rig r;
    REQUIRE(rig_new(&r, seed_choose()));
    EXPECT(rig_work(&r, 500));
    REQUIRE(rig_close(&r));
    REQUIRE(find_nodes(r.disk, &nodes));
    struct sim_image *image = sim_disk_image(r.disk);
    unsigned back = 0, by_kind[3] = {0};
    for (unsigned i = 0; i < nodes.count; i++) {
        const bool good = node_comes_back(&r, image, &nodes.list[i]);
        back += good;
        by_kind[min_u64(nodes.list[i].tree, 2)] += good;
        if (!good)
            printf("# node of tree %u, level %u stays lost\n", nodes.list[i].tree, nodes.list[i].level);
    }
    printf("# %u of %u nodes came back\n", back, nodes.count);
    EXPECT(nodes.count > 6);
    EXPECT(back + 2 >= nodes.count);
    EXPECT(by_kind[CHECK_TREE_TABLE] > 0 && by_kind[CHECK_TREE_CATALOG] > 0 && by_kind[2] > 0);
    sim_image_free(image);
    rig_free(&r);
}

/* ---- accounts ---- */

static bool write_all(struct rig *r)
{
    static uint8_t bytes[64 * 1024];
    bool good = true;
    for (uint64_t at = 0; at < VOLUME_BYTES && good; at += sizeof(bytes))
        for (unsigned i = 0; i < 2 && good; i++) {
            prng_fill(&r->prng, bytes, sizeof(bytes) / 2);
            good = volume_write(r->volumes[i], at, bytes, sizeof(bytes), 0) == 0;
        }
    return good;
}

/* A leaf is lost, all of its volume is written, some of it before a checkpoint: nothing lost is left, but the accounts
 * still have what the leaf held. A repair counts them anew, and the pool goes on as if nothing had been. */
static bool accounts_come_right(const struct rig *r, const struct sim_image *image, const struct place *p,
                                uint64_t *mismatches)
{
    const struct check_options repair = {.repair = true}, none = {0};
    struct rig next = {.sim = r->sim, .disk = sim_disk_from_image(r->sim, image), .prng = r->prng};
    sim_disk_corrupt(next.disk, p->offset, p->length, NULL, 1);
    sim_disk_corrupt(next.disk, p->second_offset, p->length, NULL, 2);
    bool good = rig_open(&next) && rig_work(&next, 40) && pool_checkpoint(next.pool) == 0 && write_all(&next);
    good = rig_close(&next) && good;
    struct check_report *before = check_disk(next.disk, &none), *after = check_disk(next.disk, &repair);
    good = good && before != NULL && after != NULL && check_report_is_clean(after);
    if (good)
        *mismatches += check_report_count_of(before, CHECK_PROBLEM_VOLUME_ACCOUNT_MISMATCH) +
                       check_report_count_of(before, CHECK_PROBLEM_SLOT_LIVE_MISMATCH);
    if (after != NULL && !good) {
        struct text text = {0};
        check_report_print(after, &text);
        printf("# %s\n", text.bytes);
        text_free(&text);
    }
    check_report_free(before);
    check_report_free(after);
    good = good && is_clean(next.disk, &none) && rig_open(&next) && rig_work(&next, 60) && write_all(&next);
    good = good && rig_close(&next) && is_clean(next.disk, &none);
    sim_disk_free(next.disk);
    return good;
}

static void test_accounts_come_right(void)
{
    static struct nodes nodes;
    struct rig r;
    uint64_t mismatches = 0;
    unsigned leaves = 0;
    REQUIRE(rig_new(&r, seed_choose()));
    EXPECT(rig_work(&r, 300));
    REQUIRE(rig_close(&r));
    REQUIRE(find_nodes(r.disk, &nodes));
    struct sim_image *image = sim_disk_image(r.disk);
    for (unsigned i = 0; i < nodes.count; i++)
        if (nodes.list[i].tree >= CHECK_TREES_OWN && nodes.list[i].level == 0 && ++leaves <= 6)
            EXPECT(accounts_come_right(&r, image, &nodes.list[i], &mismatches));
    EXPECT(leaves > 0);
    EXPECT(mismatches > 0);
    printf("# %u leaves, %" PRIu64 " accounts were wrong\n", leaves, mismatches);
    sim_image_free(image);
    rig_free(&r);
}

/* ---- power cuts ---- */

struct cuts {
    struct sim_image *list[400];
    unsigned count;
    uint64_t one_in;
};

static void take_image(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct cuts *c = arg;
    (void)io;
    if (number % c->one_in == 0 && c->count < sizeof(c->list) / sizeof(c->list[0]))
        c->list[c->count++] = sim_disk_image(disk);
}

/* Clean by the newest label, and by the one before as if the newest were lost (R20). */
static bool is_clean_twice(struct sim_disk *disk)
{
    const struct check_options none = {0};
    struct check_report *report = check_disk(disk, &none);
    const uint64_t newest = report != NULL ? check_report_summary(report)->label_sequence : 0;
    const struct check_options before = {.label_sequence = newest - 1};
    check_report_free(report);
    return is_clean(disk, &none) && (newest <= 2 || is_clean(disk, &before));
}

/* The pool is clean as the cut left it, in the middle of the life that follows, and after a clean close. */
static bool survives(struct rig *r, const struct sim_image *image, enum sim_loss loss, uint64_t seed)
{
    struct sim_disk *disk = sim_disk_from_image(r->sim, image);
    struct rig next = {.sim = r->sim, .disk = disk};
    prng_seed(&next.prng, seed);
    sim_disk_power_cut(disk, loss, seed);
    bool good = is_clean_twice(disk) && rig_open(&next);
    if (good) {
        good = rig_work(&next, 20);
        struct sim_image *middle = sim_disk_image(disk);
        struct sim_disk *again = sim_disk_from_image(r->sim, middle);
        sim_disk_power_cut(again, (enum sim_loss)((loss + 1) % (SIM_LOSS_TEAR + 1)), seed);
        good = is_clean_twice(again) && good;
        sim_disk_free(again);
        sim_image_free(middle);
        good = rig_close(&next) && good && is_clean_twice(disk);
    }
    sim_disk_free(disk);
    return good;
}

static void test_power_cuts(void)
{
    struct cuts cuts = {.one_in = 7};
    struct rig r;
    const uint64_t seed = seed_choose();
    REQUIRE(rig_new(&r, seed));
    sim_disk_set_hook(r.disk, take_image, &cuts);
    EXPECT(rig_work(&r, 400));
    sim_disk_set_hook(r.disk, NULL, NULL);
    EXPECT(rig_close(&r));
    for (unsigned i = 0; i < cuts.count; i++) {
        const bool good = survives(&r, cuts.list[i], (enum sim_loss)(i % (SIM_LOSS_TEAR + 1)), seed + i);
        EXPECT(good);
        if (!good)
            printf("# cut %u\n", i);
        sim_image_free(cuts.list[i]);
    }
    EXPECT(cuts.count > 30);
    rig_free(&r);
}

int main(void)
{
    RUN(test_clean);
    RUN(test_power_cuts);
    RUN(test_nodes_come_back);
    RUN(test_accounts_come_right);
    return tap_done();
}
