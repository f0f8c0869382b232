/*
 * `check --repair` of map nodes that cannot be put together bit for bit: what the accounts prove comes back under a new
 * label, what they do not prove becomes an error, and nothing that was trimmed does.
 */
#include <stdlib.h>

#include "check_expect.h"

/* What a record must be after the repair. */
enum fate { FATE_ZERO, FATE_DATA, FATE_LOST };

static struct check_report *repair(struct image *img)
{
    const struct check_options options = {.repair = true};
    struct check_report *report = check_image(img, &options);
    image_reload(img);
    return report;
}

/* Both copies of a node, with header and table of their chunk if `whole`. */
static void destroy(struct image *img, const struct pointer *p, bool whole)
{
    const uint64_t offset = image_offset(img, p->address), chunk = offset / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
    struct chunk_header h;
    EXPECT_EQ(chunk_header_decode(img->bytes + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
    for (unsigned copy = 0; copy < 2; copy++) {
        const uint64_t from = whole ? chunk : offset;
        image_damage(img, from + copy * (uint64_t)h.chunk_bytes, whole ? h.chunk_bytes : p->length);
    }
}

static bool range_lost(const struct check_report *report, uint64_t offset)
{
    size_t count;
    const struct check_problem *p = check_report_problems(report, &count);
    for (size_t i = 0; i < count; i++)
        if (p[i].id == CHECK_PROBLEM_RANGE_LOST && offset >= p[i].offset_bytes &&
            offset - p[i].offset_bytes < p[i].length_bytes)
            return true;
    return false;
}

static struct image *clean_image(uint64_t records)
{
    struct image *img = image_new();
    img->label_flags = LABEL_CLEAN;
    image_volume(img, "alpha", records * 4096, 4096);
    return img;
}

/* A hole in the map that no entry tells of: its trim's segment is gone. */
static void hole_without_trim(struct image *img, uint64_t index)
{
    struct image_volume *v = &img->volumes[0];
    v->records[index].base = (struct pointer){.kind = POINTER_HOLE, .address = IMAGE_SEGMENT_BYTES};
    v->records[index].patch_count = 0;
    v->leaf_changed[index >> MAP_LEAF_BITS] = true;
}

/* Fills the data head with records [first, end), and goes on to another segment. */
static void fill_segment(struct image *img, uint64_t first, uint64_t end)
{
    const uint64_t segment = img->data.segment;
    for (uint64_t i = first; i < end; i++) {
        image_write(img, 0, i, (int)i);
        if (i % 8 == 7 || i + 1 == end)
            image_seal(img);
    }
    for (int i = 0; img->data.segment == segment; i++) {
        CHECK(i < 1000);
        image_write_codec(img, 0, first, i, CODEC_OFF);
        image_seal(img);
    }
}

static void expect_fates(const struct check_report *report, const enum fate *fates, uint64_t records)
{
    uint64_t data = 0, lost = 0;
    for (uint64_t i = 0; i < records; i++) {
        data += fates[i] == FATE_DATA;
        lost += fates[i] == FATE_LOST;
        EXPECT_EQ(range_lost(report, i * 4096), fates[i] == FATE_LOST);
    }
    EXPECT_EQ(check_report_summary(report)->records, data);
    /* The chunk of the lost node is dead, and stays unreadable until its segment is used again. */
    EXPECT_EQ(check_report_count(report, CHECK_WRONG), check_report_count_of(report, CHECK_PROBLEM_RANGE_LOST) +
                                                           check_report_count_of(report, CHECK_PROBLEM_CHUNK_DAMAGED));
    EXPECT_EQ(check_report_count(report, CHECK_LEAK), 0);
    EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_RANGE_LOST) > 0, lost > 0);
    if (tap_failed_here > 0)
        print_report(report);
}

/* All records of the leaf are proved, though its bytes cannot be told: a hole in it has a date that nobody knows. */
static void test_leaf(void)
{
    for (int whole = 0; whole <= 1; whole++) {
        struct image *img = clean_image(100);
        enum fate fates[100] = {FATE_ZERO};
        for (unsigned i = 10; i < 30; i++) {
            image_write(img, 0, i, (int)i);
            fates[i] = FATE_DATA;
        }
        image_zero(img, 0, 70, 2);
        image_patch(img, 0, 12, 1, 2, 7);
        image_patch(img, 0, 12, 3, 2, 8);
        image_write(img, 0, 13, 99);
        image_seal(img);
        image_checkpoint(img);
        hole_without_trim(img, 50);
        /* Set aside, and no entry tells of it. */
        img->volumes[0].records[60].base =
            (struct pointer){.kind = POINTER_PROVISIONED, .address = IMAGE_SEGMENT_BYTES};
        image_write(img, 0, 14, 98);
        image_seal(img);
        image_checkpoint(img);
        destroy(img, &img->volumes[0].leaves[0], whole != 0);
        struct check_report *report = repair(img);
        REQUIRE(report != NULL);
        expect_fates(report, fates, 100);
        EXPECT_EQ(check_report_summary(report)->patches, 2);
        check_report_free(report);
        /* And it stays so. */
        if (whole != 0)
            EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_DAMAGED);
        else
            EXPECT_PROBLEMS(img);
        image_free(img);
    }
}

/* A record that was trimmed, with no trace of the trim, does not come back; nor do those it cannot be told from. */
static void test_trimmed_stays_gone(void)
{
    struct image *img = clean_image(128);
    enum fate fates[128] = {FATE_ZERO};
    fill_segment(img, 0, 20);
    fill_segment(img, 20, 40);
    image_write(img, 0, 0, 3);
    image_seal(img);
    for (unsigned i = 0; i < 40; i++) {
        const uint64_t segment = img->volumes[0].records[i].base.address / IMAGE_SEGMENT_BYTES;
        fates[i] = segment == img->volumes[0].records[5].base.address / IMAGE_SEGMENT_BYTES ? FATE_LOST : FATE_DATA;
    }
    EXPECT_EQ(fates[30], FATE_DATA);
    hole_without_trim(img, 5);
    image_checkpoint(img);
    destroy(img, &img->volumes[0].leaves[0], true);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    expect_fates(report, fates, 128);
    check_report_free(report);
    image_free(img);
}

/* The same where everything in the segment was trimmed: then it is certain, and reads as zeroes. */
static void test_all_trimmed(void)
{
    struct image *img = clean_image(128);
    image_volume(img, "beta", 20 * 4096, 4096);
    image_write(img, 1, 3, 1);
    fill_segment(img, 0, 20);
    fill_segment(img, 20, 40);
    for (unsigned i = 1; i < 20; i++)
        hole_without_trim(img, i);
    image_checkpoint(img);
    destroy(img, &img->volumes[0].leaves[0], false);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    EXPECT_EQ(check_report_summary(report)->records, 22); /* 0, 20 to 39, and that of beta */
    EXPECT(check_report_is_clean(report));
    check_report_free(report);
    image_free(img);
}

/* An entry table that cannot be read: what may have stood there is an error, not zeroes. */
static void test_unreadable_table(void)
{
    struct image *img = clean_image(128);
    enum fate fates[128];
    fill_segment(img, 0, 20);
    image_write(img, 0, 60, 1);
    const uint64_t chunk = image_seal(img);
    const uint32_t chunk_bytes = img->last_chunk_bytes;
    image_write(img, 0, 61, 1);
    image_seal(img);
    hole_without_trim(img, 100);
    for (unsigned i = 0; i < 128; i++)
        fates[i] = i < 20 && img->volumes[0].records[i].base.address / IMAGE_SEGMENT_BYTES !=
                                 img->volumes[0].records[60].base.address / IMAGE_SEGMENT_BYTES
                       ? FATE_DATA
                       : FATE_LOST;
    EXPECT_EQ(fates[10], FATE_DATA);
    image_checkpoint(img);
    destroy(img, &img->volumes[0].leaves[0], true);
    image_damage(img, chunk, chunk_bytes);
    /* Its echo too. */
    image_damage(img, chunk + chunk_bytes, IMAGE_UNIT_BYTES);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    for (unsigned i = 0; i < 128; i++)
        EXPECT_EQ(range_lost(report, i * 4096), fates[i] == FATE_LOST);
    check_report_free(report);
    image_free(img);
}

/* A pool that was not closed cleanly, or in which something was lost before, is left as it is. */
static void test_not_done(void)
{
    for (int lossy = 0; lossy <= 1; lossy++) {
        struct image *img = clean_image(300);
        image_write(img, 0, 1, 1);
        image_write(img, 0, 200, 1);
        if (lossy != 0)
            img->volumes[0].records[201].base = (struct pointer){.kind = POINTER_LOST, .address = IMAGE_SEGMENT_BYTES};
        else
            img->label_flags = 0;
        hole_without_trim(img, 50);
        image_seal(img);
        image_checkpoint(img);
        destroy(img, &img->volumes[0].leaves[0], false);
        uint8_t *before = malloc(IMAGE_BYTES);
        REQUIRE(before != NULL);
        memcpy(before, img->bytes, IMAGE_BYTES);
        struct check_report *report = repair(img);
        REQUIRE(report != NULL);
        EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_NODE_DAMAGED), 1);
        EXPECT(memcmp(before, img->bytes, IMAGE_BYTES) == 0);
        free(before);
        check_report_free(report);
        image_free(img);
    }
}

/*
 * Two levels, and a hole for the last leaf that no entry tells of. `stale`: there was such a leaf, and its entry still
 * lies about.
 */
static struct image *two_levels(enum fate *fates, bool stale)
{
    struct image *img = clean_image(500);
    for (unsigned i = 0; i < 500; i++)
        fates[i] = FATE_ZERO;
    for (unsigned i = 0; i < (stale ? 500 : 384); i += 20) {
        image_write(img, 0, i, (int)i);
        fates[i] = FATE_DATA;
    }
    image_seal(img);
    image_checkpoint(img);
    image_write(img, 0, 140, 3);
    image_seal(img);
    for (unsigned i = 384; i < 500; i++) {
        img->volumes[0].records[i].base = (struct pointer){0};
        fates[i] = FATE_ZERO;
    }
    img->volumes[0].leaves[3] = (struct pointer){.kind = POINTER_HOLE, .address = IMAGE_SEGMENT_BYTES + 1};
    image_checkpoint(img);
    return img;
}

static void test_inner(void)
{
    enum fate fates[500];
    for (int whole = 0; whole <= 1; whole++)
        for (int both = 0; both <= 1; both++) {
            struct image *img = two_levels(fates, false);
            EXPECT_PROBLEMS(img);
            destroy(img, &img->volumes[0].catalog.root, whole != 0);
            /* The leaf is rebuilt bit for bit, once the root says what it must be. */
            if (both != 0)
                destroy(img, &img->volumes[0].leaves[1], false);
            struct check_report *report = repair(img);
            REQUIRE(report != NULL);
            expect_fates(report, fates, 500);
            check_report_free(report);
            image_free(img);
        }
}

/* The leaf that became a hole could not be told from the others: nothing is proved, and it does not come back. */
static void test_inner_stale(void)
{
    enum fate fates[500];
    struct image *img = two_levels(fates, true);
    destroy(img, &img->volumes[0].catalog.root, false);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_NODE_DAMAGED), 1);
    EXPECT_EQ(check_report_summary(report)->records, 0);
    check_report_free(report);
    image_free(img);
}

/*
 * The same where nothing in the segment of the trimmed records was live, so that it was given back: a node that leads
 * there cannot be live, and the others are.
 */
static void test_inner_stale_told(void)
{
    enum fate fates[500] = {FATE_ZERO};
    struct image *img = clean_image(500);
    fill_segment(img, 400, 420);
    for (unsigned i = 0; i < 384; i += 20) {
        image_write(img, 0, i, (int)i);
        fates[i] = FATE_DATA;
    }
    image_seal(img);
    image_checkpoint(img);
    for (unsigned i = 384; i < 500; i++)
        img->volumes[0].records[i].base = (struct pointer){0};
    img->volumes[0].leaves[3] = (struct pointer){.kind = POINTER_HOLE, .address = IMAGE_SEGMENT_BYTES + 1};
    image_write(img, 0, 140, 3);
    image_seal(img);
    image_checkpoint(img);
    for (int k = 0; k < 3; k++)
        image_checkpoint(img);
    EXPECT(img->slots[0].state != SLOT_CLOSED && img->slots[0].state != SLOT_OPEN);
    EXPECT_PROBLEMS(img);
    destroy(img, &img->volumes[0].catalog.root, false);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    expect_fates(report, fates, 500);
    check_report_free(report);
    image_free(img);
}

/* A volume that the catalog cannot tell of any more may have what seems to be somebody else's: nothing is proved. */
static void test_lost_object(void)
{
    struct image *img = clean_image(100);
    image_volume(img, "beta", 100 * 4096, 4096);
    fill_segment(img, 0, 20);
    image_write(img, 1, 2, 1);
    image_seal(img);
    hole_without_trim(img, 50);
    image_checkpoint(img);
    const uint64_t object = image_offset(img, img->volumes[1].catalog.root.address);
    EXPECT(object != 0);
    destroy(img, &img->volumes[0].leaves[0], false);
    /* The chunk of catalog objects is the next but one behind those of the leaves. */
    uint64_t at = object / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
    struct chunk_header h;
    for (unsigned k = 0; k < 2; k++) {
        EXPECT_EQ(chunk_header_decode(img->bytes + at, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
        at += k == 0 ? 2 * (uint64_t)h.chunk_bytes : 0;
    }
    /* Beta's is the last in it. */
    for (unsigned copy = 0; copy < 2; copy++)
        image_damage(img, at + CHUNK_HEADER_BYTES + h.table_bytes + h.payload_bytes - 60 + copy * h.chunk_bytes, 60);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    EXPECT(check_report_count_of(report, CHECK_PROBLEM_RECORD_DAMAGED) > 0);
    EXPECT_EQ(check_report_summary(report)->label_sequence, 1);
    check_report_free(report);
    image_free(img);
}

/* ---- cuts ---- */

struct cut {
    uint64_t at;
    bool done;
};

static void cut_hook(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct cut *cut = arg;
    (void)io;
    if (number != cut->at)
        return;
    cut->done = true;
    sim_disk_switch_off(disk);
}

/* Power fails at each write and flush of the repair: the pool is as damaged as before, or repaired, and the next repair
 * ends it. */
static void test_cut(void)
{
    const enum check_problem_id torn[] = {CHECK_PROBLEM_LABEL_TORN, CHECK_PROBLEM_NODE_DAMAGED};
    unsigned cuts = 0, repaired = 0;
    for (uint64_t at = 1, done = 1; done != 0; at++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct image *img = clean_image(100);
            for (unsigned i = 10; i < 30; i++)
                image_write(img, 0, i, (int)i);
            image_seal(img);
            hole_without_trim(img, 50);
            image_checkpoint(img);
            destroy(img, &img->volumes[0].leaves[0], false);
            const struct check_options options = {.repair = true};
            struct check_report *report = NULL;
            struct error err = {0};
            (void)image_device(img);
            struct cut cut = {.at = sim_disk_step_count(img->disk) + at};
            sim_disk_set_hook(img->disk, cut_hook, &cut);
            const int result = check_run(img->dev, &options, &report, &err);
            check_report_free(report);
            done = cut.done;
            EXPECT_EQ(result != 0, cut.done);
            sim_disk_power_cut(img->disk, seed % 3 == 0 ? SIM_LOSS_ALL : SIM_LOSS_RANDOM, seed);
            image_reload(img);
            cuts += cut.done;
            struct check_report *then = check_image(img, NULL), *last = repair(img);
            REQUIRE(then != NULL && last != NULL);
            const uint64_t lost = check_report_count_of(then, torn[1]);
            EXPECT(lost == 1 || (lost == 0 && check_report_summary(then)->records == 20));
            repaired += lost == 0;
            EXPECT(check_report_is_clean(last));
            EXPECT_EQ(check_report_summary(last)->records, 20);
            EXPECT_EQ(check_report_count_of(last, torn[0]), 0);
            if (tap_failed_here > 0) {
                print_report(then);
                print_report(last);
                done = 0;
                seed = 99;
            }
            check_report_free(then);
            check_report_free(last);
            image_free(img);
        }
    printf("# %u cuts, after %u of them it was repaired\n", cuts, repaired);
    EXPECT(cuts >= 30);
    EXPECT(repaired > 6 && repaired < cuts);
}

int main(void)
{
    RUN(test_leaf);
    RUN(test_trimmed_stays_gone);
    RUN(test_all_trimmed);
    RUN(test_unreadable_table);
    RUN(test_not_done);
    RUN(test_inner);
    RUN(test_inner_stale);
    RUN(test_inner_stale_told);
    RUN(test_lost_object);
    RUN(test_cut);
    return tap_done();
}
