/*
 * The log behind the last checkpoint, damaged (R16). Flushed data that is damaged is never silently gone: one damaged
 * write unit leaves exactly its records unreadable; where whole chunks in a row are gone the pool refuses to open and
 * says so, opens read-only, and with lose_damaged_log says what was given up. A torn tail that was never known durable
 * is no damage. A read error is never an end of log.
 */
#include "tap.h"

#include <errno.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "check/check.h"
#include "log/rules.h"
#include "model/labels.h"
#include "sim/log_scan.h"
#include "sim/rig.h"

#define RECORD 16384
#define WRITES 10

/* FUA writes 1..WRITES, each a chunk of its own, to records 0..WRITES-1, after a checkpoint. Returns the picture. */
static struct sim_image *story(struct rig *r, uint64_t bytes_each)
{
    rig_init(r);
    if (!rig_start(r, 1, RECORD) || r->s->ops->checkpoint(r->s) != 0)
        return NULL;
    for (uint64_t i = 0; i < WRITES; i++)
        if (rig_write(r, 0, i * RECORD, bytes_each, i + 1, VOLUME_FUA) != 0)
            return NULL;
    return sim_disk_image(store_pool_disk(r->s));
}

/* The chunks of the story, oldest first. */
static size_t story_chunks(struct rig *r, struct log_scan *scan, const struct scanned_chunk **list, size_t room)
{
    struct label label;
    CHECK(labels_newest(store_pool_disk(r->s), r->options.disk_bytes, &label));
    log_scan_disk(scan, store_pool_disk(r->s), r->options.disk_bytes);
    return log_scan_data_chunks(scan, label.replay_address, list, room);
}

static struct sim_image *image_corrupt(const struct sim_image *image, uint64_t offset, uint64_t length)
{
    struct sim *sim = sim_new(1);
    struct sim_disk *disk = sim_disk_from_image(sim, image);
    sim_disk_power_cut(disk, SIM_LOSS_ALL, 1);
    sim_disk_corrupt(disk, offset, length, NULL, offset);
    struct sim_image *after = sim_disk_image(disk);
    sim_disk_free(disk);
    sim_free(sim);
    return after;
}

/* Which of the writes reads back: 1 right, 0 as before it (zeroes), -1 EIO, -2 anything else. */
static int written(struct store *s, uint64_t i, uint64_t bytes_each)
{
    static uint8_t bytes[RECORD], want[RECORD];
    int result = s->ops->read(s, 0, i * RECORD, bytes, bytes_each);
    if (result == -EIO)
        return -1;
    pattern_fill(want, bytes_each, i + 1, PATTERN_NOISE);
    if (result == 0 && memcmp(bytes, want, bytes_each) == 0)
        return 1;
    return result == 0 && bytes_are_zero(bytes, bytes_each) ? 0 : -2;
}

static bool check_names_damage(const struct sim_image *image)
{
    struct sim *sim = sim_new(1);
    struct sim_disk *disk = sim_disk_from_image(sim, image);
    struct text report = {0};
    bool clean = store_pool_check(disk, &report);
    text_free(&report);
    sim_disk_free(disk);
    sim_free(sim);
    return !clean;
}

/* One write unit of the chunk of write `place` is damaged: at most that write is lost, and reads as an error. */
static void damaged_unit_expect(struct rig *r, const struct sim_image *damaged, size_t place, uint64_t bytes_each)
{
    struct store_pool_options options = r->options;
    struct text why = {0};
    EXPECT(check_names_damage(damaged));
    struct store *s = store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why);
    EXPECT(s != NULL);
    if (s != NULL) {
        EXPECT_EQ(s->ops->adopt(s, 0, "v0"), 0);
        for (uint64_t i = 0; i < WRITES; i++) {
            int got = written(s, i, bytes_each);
            EXPECT(got == 1 || (got == -1 && i == place));
        }
        s->ops->free(s);
    }
    if (why.length > 0)
        printf("# place %zu: %s\n", place, why.bytes);
    text_free(&why);
}

/* Nothing is left of the chunks from `place` on, several in a row. */
static void damaged_log_expect(struct rig *r, const struct sim_image *damaged, size_t place, uint64_t bytes_each)
{
    struct store_pool_options options = r->options;
    struct text why = {0};
    EXPECT(check_names_damage(damaged));
    struct store *s = store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why);
    EXPECT(s == NULL);
    EXPECT(why.length > 0 && strstr(why.bytes, "-74") != NULL); /* EBADMSG */
    text_free(&why);
    options.read_only = true;
    s = store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why);
    EXPECT(s != NULL);
    if (s != NULL) {
        EXPECT_EQ(s->ops->adopt(s, 0, "v0"), 0);
        for (uint64_t i = 0; i < place; i++)
            EXPECT_EQ(written(s, i, bytes_each), 1);
        EXPECT(rig_write(&(struct rig){.s = s}, 0, 0, 512, 9, 0) < 0);
        s->ops->free(s);
    }
    options.read_only = false;
    options.lose_damaged_log = true;
    s = store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why);
    EXPECT(s != NULL);
    if (s != NULL) {
        struct pool_info info;
        pool_get_info(store_pool_pool(s), &info);
        EXPECT(info.lost_to > info.lost_from);
        EXPECT_EQ(s->ops->adopt(s, 0, "v0"), 0);
        for (uint64_t i = 0; i < place; i++)
            EXPECT_EQ(written(s, i, bytes_each), 1);
        EXPECT_EQ(rig_write(&(struct rig){.s = s}, 0, 0, 4096, 99, VOLUME_FUA), 0);
        EXPECT_EQ(s->ops->reopen(s, &why), 0);
        EXPECT(rig_reads(&(struct rig){.s = s}, 0, 0, 4096, 99));
        s->ops->free(s);
    }
    if (why.length > 0)
        printf("# place %zu: %s\n", place, why.bytes);
    text_free(&why);
}

static void test_flushed_log_damaged(void)
{
    static const uint64_t sizes[] = {RECORD, 4096, 512};
    for (size_t k = 0; k < 3; k++) {
        struct rig r;
        struct log_scan scan;
        const struct scanned_chunk *chunks[64];
        struct sim_image *image = story(&r, sizes[k]);
        REQUIRE(image != NULL);
        size_t count = story_chunks(&r, &scan, chunks, 64), first = count - WRITES;
        EXPECT(count >= WRITES);
        REQUIRE(count >= WRITES);
        for (size_t i = 0; i + 1 < WRITES; i++) {
            const struct scanned_chunk *c = chunks[first + i];
            for (uint64_t at = 0; at < c->header.chunk_bytes; at += 4096) {
                struct sim_image *damaged = image_corrupt(image, c->offset_bytes + at, 4096);
                damaged_unit_expect(&r, damaged, i, sizes[k]);
                sim_image_free(damaged);
            }
            if (i + 2 >= WRITES)
                continue;
            uint64_t end = chunks[first + i + 1]->offset_bytes + chunks[first + i + 1]->header.chunk_bytes;
            struct sim_image *damaged = image_corrupt(image, c->offset_bytes, end - c->offset_bytes);
            damaged_log_expect(&r, damaged, i, sizes[k]);
            sim_image_free(damaged);
        }
        sim_image_free(image);
        log_scan_free(&scan);
        rig_end(&r);
    }
}

#define SMALL_WRITES 48

/* Each in a chunk of one write unit, over several segments, with a recovery's bridge half way. */
static struct sim_image *small_story(struct rig *r)
{
    rig_init(r);
    r->options.segment_bytes = 64 * KIB;
    r->options.checkpoint_log_bytes = 2 * MIB; /* none meanwhile */
    if (!rig_start(r, 1, 4096) || r->s->ops->checkpoint(r->s) != 0)
        return NULL;
    for (uint64_t i = 0; i < SMALL_WRITES; i++) {
        if (i == SMALL_WRITES / 2 && !rig_crash(r, SIM_LOSS_ALL, 1))
            return NULL;
        if (rig_write(r, 0, i * 4096, SECTOR_BYTES, i + 1, VOLUME_FUA) != 0)
            return NULL;
    }
    return sim_disk_image(store_pool_disk(r->s));
}

/* Returns how many writes are lost with that write unit; the others read. */
static unsigned small_unit_lost(struct rig *r, const struct sim_image *image, uint64_t offset)
{
    struct store_pool_options options = r->options;
    struct text why = {0};
    unsigned lost = 0;
    struct sim_image *damaged = image_corrupt(image, offset, 4096);
    EXPECT(check_names_damage(damaged));
    struct store *s = store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why);
    EXPECT(s != NULL);
    if (s == NULL) {
        printf("# write unit at %" PRIu64 ": %s\n", offset, why.bytes);
    } else {
        struct rig damaged_rig = {.s = s};
        uint8_t bytes[SECTOR_BYTES];
        EXPECT_EQ(s->ops->adopt(s, 0, "v0"), 0);
        for (uint64_t i = 0; i < SMALL_WRITES; i++) {
            bool is_lost = s->ops->read(s, 0, i * 4096, bytes, SECTOR_BYTES) == -EIO;
            lost += is_lost;
            EXPECT(is_lost || rig_reads(&damaged_rig, 0, i * 4096, SECTOR_BYTES, i + 1));
        }
        s->ops->free(s);
    }
    sim_image_free(damaged);
    text_free(&why);
    return lost;
}

static void test_small_chunks_damaged(void)
{
    struct rig r;
    struct log_scan scan;
    const struct scanned_chunk *chunks[2 * SMALL_WRITES];
    struct sim_image *image = small_story(&r);
    REQUIRE(image != NULL);
    size_t count = story_chunks(&r, &scan, chunks, 2 * SMALL_WRITES);
    unsigned small = 0, segments = 0, bridges = 0;
    EXPECT(count > SMALL_WRITES);
    for (size_t i = 0; i + 1 < count; i++) {
        const struct chunk_header *h = &chunks[i]->header;
        bool bridge = (h->flags & CHUNK_FLAG_BRIDGE) != 0;
        EXPECT(bridge ? h->chunk_bytes == 2 * 4096 : h->chunk_bytes == 4096);
        for (uint64_t at = 0; at < h->chunk_bytes; at += 4096)
            EXPECT_EQ(small_unit_lost(&r, image, chunks[i]->offset_bytes + at), bridge ? 0 : 1);
        small += h->chunk_bytes == 4096;
        bridges += bridge;
        segments += h->address % r.options.segment_bytes == 0;
    }
    printf("# %u chunks of one write unit, %u bridges, %u segments begun\n", small, bridges, segments);
    EXPECT(small + 1 >= SMALL_WRITES && bridges > 0 && segments > 3);
    sim_image_free(image);
    log_scan_free(&scan);
    rig_end(&r);
}

/* A chunk that was written and never flushed, torn: the pool opens, and everything flushed is there. */
static void test_torn_tail_is_silent(void)
{
    struct rig r;
    struct sim_image *image = story(&r, RECORD);
    REQUIRE(image != NULL);
    sim_image_free(image);
    for (uint64_t i = 0; i < 12; i++) {
        EXPECT_EQ(rig_write(&r, 0, WRITES * RECORD, RECORD, 100 + i, 0), 0);
        EXPECT_EQ(r.s->ops->poke(r.s, POKE_WRITE_BACK, 0, WRITES), 0);
        EXPECT_EQ(r.s->ops->poke(r.s, POKE_SEAL, 0, 0), 0);
        EXPECT(rig_crash(&r, SIM_LOSS_TEAR, i));
        EXPECT(rig_check(&r));
        for (uint64_t k = 0; k < WRITES; k++)
            EXPECT_EQ(written(r.s, k, RECORD), 1);
        EXPECT(!rig_info(&r).read_only);
    }
    rig_end(&r);
}

/* Each read of the opening fails once: either nothing is missing afterwards, or the open fails; and the next one finds
 * everything. */
static void test_read_errors_at_open(void)
{
    struct rig r;
    struct sim_image *image = story(&r, RECORD);
    REQUIRE(image != NULL);
    uint64_t nth = 1, refused = 0;
    for (bool reached = true; reached && nth < 2000; nth++) {
        struct sim *sim = sim_new(nth);
        struct sim_disk *disk = sim_disk_from_image(sim, image);
        sim_disk_power_cut(disk, SIM_LOSS_ALL, 1);
        for (int attempt = 0; attempt < 2; attempt++) {
            if (attempt == 0)
                sim_disk_fail(disk, DEVICE_READ, nth, -EIO, false);
            struct device *dev = sim_disk_open(disk, false);
            struct pool_options options = {.cache_bytes = 8 * MIB};
            struct pool *pool = NULL;
            struct volume *v = NULL;
            struct error err = {0};
            uint64_t reads_before = atomic_load(&dev->stats.reads);
            int result = pool_open(dev, &options, &pool, &err);
            EXPECT(result == 0 || attempt == 0);
            if (result != 0) {
                EXPECT(result == -EIO);
                refused++;
                continue;
            }
            reached = attempt == 0 && reads_before == 0 ? dev->stats.reads >= nth : reached;
            EXPECT_EQ(volume_get(pool, "v0", &v, &err), 0);
            for (uint64_t i = 0; i < WRITES && v != NULL; i++) {
                static uint8_t bytes[RECORD], want[RECORD];
                int got = volume_read(v, i * RECORD, bytes, RECORD);
                pattern_fill(want, RECORD, i + 1, PATTERN_NOISE);
                EXPECT(got == -EIO || (got == 0 && memcmp(bytes, want, RECORD) == 0));
                EXPECT(got == 0 || (attempt == 0 && !reached));
            }
            if (v != NULL)
                volume_put(v);
            sim_disk_switch_off(disk);
            (void)pool_close(pool, &err);
        }
        sim_disk_free(disk);
        sim_free(sim);
    }
    printf("# %" PRIu64 " reads at open failed in turn, %" PRIu64 " openings refused\n", nth - 1, refused);
    EXPECT(nth > 5);
    EXPECT(refused > 0);
    sim_image_free(image);
    rig_end(&r);
}

/* Without the rule a damaged chunk is the silent end of the log: this test would see it. */
static void test_without_the_rule_the_loss_is_silent(void)
{
    struct rig r;
    struct log_scan scan;
    const struct scanned_chunk *chunks[64];
    struct sim_image *image = story(&r, 4096);
    REQUIRE(image != NULL);
    size_t count = story_chunks(&r, &scan, chunks, 64);
    REQUIRE(count >= WRITES);
    const struct scanned_chunk *c = chunks[count - WRITES + 2];
    struct sim_image *damaged = image_corrupt(image, c->offset_bytes, 2 * c->header.chunk_bytes);
    struct store_pool_options options = r.options;
    struct text why = {0};
    EXPECT(store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why) == NULL);
    text_free(&why);
    options.rules_off = RULE_OFF_DURABLE_TO;
    struct store *s = store_pool_from_image(&options, damaged, SIM_LOSS_NONE, 1, NULL, NULL, &why);
    EXPECT(s != NULL);
    if (s != NULL) {
        EXPECT_EQ(s->ops->adopt(s, 0, "v0"), 0);
        EXPECT_EQ(written(s, WRITES - 1, 4096), 0); /* flushed, and gone without a word */
        s->ops->free(s);
    }
    text_free(&why);
    sim_image_free(damaged);
    sim_image_free(image);
    log_scan_free(&scan);
    rig_end(&r);
}

int main(void)
{
    RUN(test_flushed_log_damaged);
    RUN(test_small_chunks_damaged);
    RUN(test_torn_tail_is_silent);
    RUN(test_read_errors_at_open);
    RUN(test_without_the_rule_the_loss_is_silent);
    return tap_done();
}
