/*
 * Life goes on over a map node that is lost in both copies: whatever a client then asks for has an answer and ends.
 * Each write, trim and zeroing is done and durable when it says so, reads back, and a sector it did not touch is as
 * it was or an error. Tried for each node of a map and each kind of request, with what is asked next as well.
 */
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "check/chunk.h"
#include "check/tree.h"
#include "env/sim.h"
#include "pool/pool.h"
#include "seed.h"
#include "tap.h"
#include "volume/volume.h"

#define POOL_BYTES (24 * MIB)
#define RECORD_BYTES 16384u
#define RECORDS 200u
#define SECTORS (RECORDS * (RECORD_BYTES / SECTOR_BYTES))

struct node_copies {
    uint64_t offset[2];
    uint32_t length;
};

struct nodes {
    struct inspection ins;
    struct node_copies list[64];
    unsigned count;
};

enum request {
    WRITE_SECTOR,
    WRITE_RECORD,
    WRITE_ACROSS,
    TRIM_SECTOR,
    TRIM_RECORD,
    ZERO_SECTOR,
    PROVISION,
    REQUEST_COUNT
};

struct world {
    struct sim *sim;
    struct sim_disk *disk;
    struct pool *pool;
    struct volume *v;
    uint8_t expected[SECTORS]; /* the byte a sector is full of */
};

static bool world_open(struct world *w)
{
    const struct pool_options options = {.cache_bytes = 8 * MIB};
    struct error err = {0};
    const bool good = pool_open(sim_disk_open(w->disk, false), &options, &w->pool, &err) == 0 &&
                      volume_get(w->pool, "v", &w->v, &err) == 0;
    if (!good)
        printf("# %s\n", err.text);
    return good;
}

static bool world_close(struct world *w)
{
    struct error err = {0};
    volume_put(w->v);
    return pool_close(w->pool, &err) == 0;
}

/* What a request makes of the sectors it is for. */
static bool ask(struct world *w, enum request request, uint64_t record, uint8_t value, unsigned flags)
{
    static uint8_t bytes[2 * RECORD_BYTES];
    uint64_t sector = record * (RECORD_BYTES / SECTOR_BYTES), count = 1;
    int result = -EINVAL;
    if (request == WRITE_RECORD || request == TRIM_RECORD || request == PROVISION)
        count = RECORD_BYTES / SECTOR_BYTES;
    else
        sector += 5;
    if (request == WRITE_ACROSS)
        count = record + 1 < RECORDS ? RECORD_BYTES / SECTOR_BYTES + 2 : 7;
    const uint64_t offset = sector * SECTOR_BYTES, length = count * SECTOR_BYTES;
    const bool is_write = request == WRITE_SECTOR || request == WRITE_RECORD || request == WRITE_ACROSS;
    memset(bytes, value, length);
    memset(w->expected + sector, is_write ? value : 0, count);
    if (is_write)
        result = volume_write(w->v, offset, bytes, length, flags);
    else if (request == TRIM_SECTOR || request == TRIM_RECORD)
        result = volume_trim(w->v, offset, length, flags);
    else
        result = volume_zero(w->v, offset, length, flags | (request == PROVISION ? VOLUME_PROVISION : 0));
    if (result != 0)
        printf("# request %d of record %" PRIu64 ": %d\n", (int)request, record, result);
    return result == 0;
}

/* Every sector reads as expected or not at all; those of [from, to) do read. Returns how many do not, or UINT64_MAX. */
static uint64_t look_at_all(struct world *w, uint64_t from, uint64_t to)
{
    uint64_t lost = 0;
    for (uint64_t s = 0; s < SECTORS; s++) {
        uint8_t bytes[SECTOR_BYTES];
        const int result = volume_read(w->v, s * SECTOR_BYTES, bytes, sizeof(bytes));
        lost += result == -EIO;
        if ((result != 0 && (result != -EIO || (s >= from && s < to))) ||
            (result == 0 && (bytes[0] != w->expected[s] || memcmp(bytes, bytes + 1, sizeof(bytes) - 1) != 0))) {
            printf("# sector %" PRIu64 ": %d, %u instead of %u\n", s, result, bytes[0], w->expected[s]);
            return UINT64_MAX;
        }
    }
    return lost;
}

static bool fill(struct world *w)
{
    bool good = true;
    for (uint64_t record = 0; record < RECORDS && good; record++)
        good = ask(w, WRITE_RECORD, record, (uint8_t)(1 + record % 250), 0);
    for (uint64_t record = 0; record < RECORDS && good; record += 3)
        good = ask(w, WRITE_SECTOR, record, 251, VOLUME_FUA);
    return good && ask(w, TRIM_RECORD, 7, 0, 0) && ask(w, PROVISION, 150, 0, 0) && volume_flush(w->v) == 0;
}

static int note_node(void *arg, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct nodes *n = arg;
    struct check_chunk c;
    (void)level;
    (void)number;
    const uint64_t place = check_place(&n->ins, tree, p->address, p->length);
    CHECK_NE(place, CHECK_NOWHERE);
    CHECK_EQ(check_chunk_around(&n->ins, &n->ins.scan, place, &c), 0);
    CHECK_LT(n->count, sizeof(n->list) / sizeof(n->list[0]));
    const uint64_t offset = n->ins.data_start_bytes + place;
    n->list[n->count++] = (struct node_copies){.offset = {offset, offset + c.header.chunk_bytes}, .length = p->length};
    return 0;
}

static bool find_nodes(struct sim_disk *disk, struct nodes *n)
{
    const struct check_options options = {0};
    const struct check_visitor visitor = {.arg = n, .node = note_node};
    struct device *dev = sim_disk_open(disk, true);
    struct check_report *report = check_report_new();
    struct error err = {0};
    const bool good = report != NULL && inspection_open(&n->ins, dev, &options, report, &err) == 0 &&
                      check_load_table(&n->ins, &err) == 0 && check_load_catalog(&n->ins, &err) == 0 &&
                      check_tree_walk(&n->ins, CHECK_TREES_OWN, &visitor) == 0;
    inspection_close(&n->ins);
    check_report_free(report);
    device_close(dev);
    return good;
}

/* The request, the next one on the same sectors, and what a flush, a checkpoint and a new start make of it. */
static bool goes_on(const struct world *whole, const struct sim_image *image, const struct node_copies *node,
                    enum request request, bool read_first)
{
    static const uint64_t records[] = {0, 6, 130, RECORDS - 1};
    struct world w = *whole;
    w.disk = sim_disk_from_image(w.sim, image);
    for (unsigned copy = 0; copy < 2; copy++)
        sim_disk_corrupt(w.disk, node->offset[copy], node->length, NULL, 1 + copy);
    bool good = world_open(&w);
    if (!good)
        return false;
    good = !read_first || look_at_all(&w, 0, 0) != UINT64_MAX;
    for (unsigned i = 0; i < sizeof(records) / sizeof(records[0]) && good; i++) {
        good = ask(&w, request, records[i], (uint8_t)(252 + i % 2), i % 2 == 0 ? VOLUME_FUA : 0) &&
               volume_flush(w.v) == 0 && ask(&w, WRITE_SECTOR, records[i], 254, VOLUME_FUA);
        if (i == 1 && good)
            good = pool_checkpoint(w.pool) == 0 && ask(&w, request, records[i], 255, VOLUME_FUA);
    }
    const uint64_t touched = 5, before = good ? look_at_all(&w, touched, touched + 1) : UINT64_MAX;
    good = world_close(&w) && good && before != UINT64_MAX;
    if (good && world_open(&w)) {
        good = look_at_all(&w, touched, touched + 1) == before;
        good = world_close(&w) && good;
    }
    sim_disk_free(w.disk);
    return good;
}

static bool world_new(struct world *w, uint64_t seed)
{
    const struct pool_create_options create = {.segment_bytes = 256 * KIB};
    const struct volume_settings settings = {
        .size_bytes = RECORDS * RECORD_BYTES, .record_bytes = RECORD_BYTES, .codec = {CODEC_OFF, 0}};
    const struct pool_options options = {.cache_bytes = 8 * MIB};
    struct error err = {0};
    w->sim = sim_new(seed);
    w->disk = sim_disk_new(w->sim, POOL_BYTES, 4096);
    struct device *dev = sim_disk_open(w->disk, false);
    bool good = pool_create(dev, &create, &err) == 0;
    device_close(dev);
    good = good && pool_open(sim_disk_open(w->disk, false), &options, &w->pool, &err) == 0;
    good = good && volume_create(w->pool, "v", &settings, &err) == 0 && volume_get(w->pool, "v", &w->v, &err) == 0;
    return good && fill(w) && look_at_all(w, 0, SECTORS) == 0 && world_close(w);
}

static void test_lost_map(void)
{
    static struct world w;
    static struct nodes nodes;
    REQUIRE(world_new(&w, seed_choose()));
    REQUIRE(find_nodes(w.disk, &nodes));
    struct sim_image *image = sim_disk_image(w.disk);
    for (unsigned i = 0; i < nodes.count; i++)
        for (int request = 0; request < REQUEST_COUNT; request++)
            for (int read_first = 0; read_first < 2; read_first++) {
                const bool good = goes_on(&w, image, &nodes.list[i], (enum request)request, read_first != 0);
                EXPECT(good);
                if (!good)
                    printf("# node %u, request %d, read first %d\n", i, request, read_first);
            }
    EXPECT_EQ(nodes.count, 3); /* two leaves and the root */
    sim_image_free(image);
    sim_disk_free(w.disk);
    sim_free(w.sim);
}

/* ---- what is told of it ---- */

struct notices {
    unsigned count;
    char last[256];
};

static void take_notice(void *arg, const char *text)
{
    struct notices *n = arg;
    n->count++;
    snprintf(n->last, sizeof(n->last), "%s", text);
}

/* A lost root: every record is an error, and told of are the first ones and how many there are. */
static void test_notices(void)
{
    static struct world w;
    static struct nodes nodes;
    struct notices notices = {0};
    struct error err = {0};
    REQUIRE(world_new(&w, seed_choose()));
    REQUIRE(find_nodes(w.disk, &nodes));
    for (unsigned i = 0; i < nodes.count; i++)
        for (unsigned copy = 0; copy < 2; copy++)
            sim_disk_corrupt(w.disk, nodes.list[i].offset[copy], nodes.list[i].length, NULL, 1 + copy);
    const struct pool_options options = {.cache_bytes = 8 * MIB, .notice = take_notice, .notice_arg = &notices};
    REQUIRE(pool_open(sim_disk_open(w.disk, false), &options, &w.pool, &err) == 0);
    REQUIRE(volume_get(w.pool, "v", &w.v, &err) == 0);
    const unsigned before = notices.count;
    EXPECT_EQ(look_at_all(&w, 0, 0), SECTORS);
    EXPECT_EQ(notices.count - before, 32 + 2); /* of 200: at 64 and at 128 */
    EXPECT(strstr(notices.last, " 128 records that cannot be read so far") != NULL);
    printf("# %s\n", notices.last);
    EXPECT(world_close(&w));
    sim_disk_free(w.disk);
    sim_free(w.sim);
}

/*
 * The same with pages of the pool destroyed at random, one before it is opened and one in the middle; and requests at
 * random. If those are the two copies of one object of the pool's own trees, it may not open again.
 */
static uint64_t lead_a_damaged_life(const struct world *whole, const struct sim_image *image, struct prng *prng)
{
    uint64_t lost = 0;
    struct world w = *whole;
    w.disk = sim_disk_from_image(w.sim, image);
    const uint64_t pages = 6 * MIB / 4096, first = prng_below(prng, pages), second = prng_below(prng, pages);
    sim_disk_corrupt(w.disk, first * 4096, 4096, NULL, 1);
    bool good = world_open(&w);
    for (unsigned i = 0; i < 40 && good; i++) {
        const enum request request = (enum request)prng_below(prng, REQUEST_COUNT);
        if (i == 20)
            sim_disk_corrupt(w.disk, second * 4096, 4096, NULL, 2);
        good = ask(&w, request, prng_below(prng, RECORDS), (uint8_t)(1 + prng_below(prng, 255)),
                   prng_chance(prng, 300) ? VOLUME_FUA : 0);
        if (good && prng_chance(prng, 100))
            good = volume_flush(w.v) == 0;
        if (good && prng_chance(prng, 50))
            good = pool_checkpoint(w.pool) == 0;
        if (good && prng_chance(prng, 50))
            good = look_at_all(&w, 0, 0) != UINT64_MAX;
    }
    good = good && volume_flush(w.v) == 0 && (lost = look_at_all(&w, 0, 0)) != UINT64_MAX;
    good = world_close(&w) && good;
    if (good && world_open(&w)) {
        good = look_at_all(&w, 0, 0) != UINT64_MAX;
        good = world_close(&w) && good;
    }
    EXPECT(good);
    if (!good)
        printf("# pages %" PRIu64 " and %" PRIu64 "\n", first, second);
    sim_disk_free(w.disk);
    return lost;
}

static void test_damaged_life(void)
{
    static struct world w;
    struct prng prng;
    const uint64_t seed = seed_choose();
    prng_seed(&prng, seed);
    REQUIRE(world_new(&w, seed));
    struct sim_image *image = sim_disk_image(w.disk);
    uint64_t lost = 0;
    for (unsigned i = 0; i < 150 && tap_failed_here == 0; i++)
        lost += lead_a_damaged_life(&w, image, &prng);
    printf("# %" PRIu64 " sectors lost in 150 lives\n", lost);
    EXPECT(lost > 0);
    sim_image_free(image);
    sim_disk_free(w.disk);
    sim_free(w.sim);
}

int main(void)
{
    RUN(test_notices);
    RUN(test_damaged_life);
    RUN(test_lost_map);
    return tap_done();
}
