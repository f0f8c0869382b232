/*
 * The checker on whole pools, and on damaged labels (test_check_log.c: on the log). Whatever it is to find is made by
 * hand.
 */
#include "check_expect.h"

#include "base/math.h"
#include "base/prng.h"

/* Two volumes, one with a map of two levels; records, patches, holes, provisioned zeroes; nothing behind the label. */
static struct image *sample(void)
{
    struct image *img = image_new();
    const unsigned a = image_volume(img, "alpha", 1000 * 4096, 4096), b = image_volume(img, "beta", 50 * 16384, 16384);
    for (unsigned i = 0; i < 10; i++)
        image_write(img, a, i * 31, (int)i);
    image_write_codec(img, b, 3, 77, CODEC_OFF);
    image_write_codec(img, b, 4, 78, CODEC_ZSTD);
    image_seal(img);
    image_patch(img, a, 31, 2, 3, 100);
    image_patch(img, a, 31, 0, 1, 101);
    image_trim(img, a, 500, 100);
    image_zero(img, b, 10, 5);
    image_seal(img);
    image_checkpoint(img);
    return img;
}

static void test_empty_pool(void)
{
    struct image *img = image_new();
    image_checkpoint(img);
    EXPECT_PROBLEMS(img);
    image_free(img);
}

static void test_clean_pool(void)
{
    struct image *img = sample();
    const struct check_options quick = {.quick = true}, all = {.all = true}, few = {.objects_max = 3};
    EXPECT_PROBLEMS(img);
    EXPECT_PROBLEMS_WITH(img, &quick);
    EXPECT_PROBLEMS_WITH(img, &all);
    EXPECT_PROBLEMS_WITH(img, &few);
    image_free(img);
}

static void test_counts(void)
{
    struct image *img = sample();
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    const struct check_summary *s = check_report_summary(report);
    EXPECT_EQ(s->volumes, 2);
    EXPECT_EQ(s->records, 12);
    EXPECT_EQ(s->patches, 2);
    EXPECT_EQ(s->label_sequence, 1);
    EXPECT_EQ(s->replay_chunks, 0);
    EXPECT_EQ(s->slots_used, 3);
    EXPECT(check_report_is_clean(report));
    check_report_free(report);
    image_free(img);
}

/* Hundreds of records over many segments and checkpoints, slots through quarantine and back into use. */
static void test_long_life(void)
{
    struct image *img = image_new();
    struct prng r;
    prng_seed(&r, 11);
    const unsigned a = image_volume(img, "alpha", 1000 * 4096, 4096);
    for (unsigned round = 0; round < 60; round++) {
        for (unsigned i = 0; i < 20; i++)
            image_write_codec(img, a, prng_below(&r, 30), (int)prng_below(&r, 1000), CODEC_OFF);
        image_seal(img);
        if (round % 2 == 1)
            image_checkpoint(img);
    }
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_COUNT}));
    EXPECT(check_report_summary(report)->slots_quarantine > 0);
    EXPECT(check_report_summary(report)->label_sequence == 30);
    check_report_free(report);
    /* Also by the label before, and with both rings gone round. */
    const struct check_options before = {.label_sequence = 29};
    EXPECT_PROBLEMS_WITH(img, &before);
    for (unsigned i = 0; i < 10; i++)
        image_checkpoint(img);
    EXPECT_PROBLEMS(img);
    image_free(img);
}

/* ---- labels ---- */

static struct image *many_labels(unsigned count)
{
    struct image *img = sample();
    while (img->sequence < count)
        image_label(img);
    return img;
}

static void test_label_damaged(void)
{
    struct image *img = many_labels(40);
    image_damage(img, img->last_label_front, IMAGE_UNIT_BYTES);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_DAMAGED);
    image_free(img);
    img = many_labels(5);
    image_damage(img, label_offset_bytes(IMAGE_BYTES, IMAGE_UNIT_BYTES, true, 2) + 100, 8);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_DAMAGED);
    image_free(img);
    /* The place of the label to come still holds one. */
    img = many_labels(40);
    image_damage(img, label_offset_bytes(IMAGE_BYTES, IMAGE_UNIT_BYTES, true, 41 % LABEL_RING_SLOTS), 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_DAMAGED);
    image_free(img);
}

static void test_label_torn(void)
{
    struct image *img = many_labels(40);
    image_damage(img, img->last_label_back + 512, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_TORN);
    image_free(img);
    /* The label to come. */
    img = many_labels(40);
    image_damage(img, label_offset_bytes(IMAGE_BYTES, IMAGE_UNIT_BYTES, false, 41 % LABEL_RING_SLOTS), 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_TORN);
    image_free(img);
    img = many_labels(3);
    memcpy(img->bytes + 4 * IMAGE_UNIT_BYTES, img->bytes + 3 * IMAGE_UNIT_BYTES, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_TORN);
    image_free(img);
    /* The last one of an earlier opening. */
    img = many_labels(5);
    const uint64_t torn = img->last_label_back;
    img->incarnation++;
    image_label(img);
    image_damage(img, torn + 512, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_TORN);
    image_free(img);
}

static void test_label_stale(void)
{
    struct image *img = many_labels(40);
    const uint64_t front = label_offset_bytes(IMAGE_BYTES, IMAGE_UNIT_BYTES, false, 38 % LABEL_RING_SLOTS);
    memset(img->bytes + front, 0, IMAGE_UNIT_BYTES);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_STALE);
    image_free(img);
    /* Cut off between the two rings is as it should be. */
    img = many_labels(40);
    img->front_only = true;
    image_label(img);
    EXPECT_PROBLEMS(img);
    img->front_only = false;
    image_label(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_STALE);
    image_free(img);
}

static void tamper_back_label(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    if (object == IMAGE_LABEL && number == 1)
        ((struct label *)value)->written_wall_ns = 5;
}

static void tamper_pool_uuid(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_LABEL)
        ((struct label *)value)->pool_uuid[0] ^= 1;
}

static void test_label_conflict(void)
{
    struct image *img = many_labels(3);
    img->tamper = tamper_back_label;
    image_label(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_CONFLICT);
    image_free(img);
}

static void test_label_foreign(void)
{
    struct image *img = many_labels(3);
    img->tamper = tamper_pool_uuid;
    image_label(img);
    img->tamper = NULL;
    image_label(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_FOREIGN);
    image_free(img);
}

static void expect_refused(struct image *img, const struct check_options *options, int code)
{
    struct check_report *report = NULL;
    struct error err = {0};
    EXPECT_EQ(check_run(image_device(img), options, &report, &err), code);
    EXPECT(report == NULL);
    EXPECT_EQ(err.code, code);
    EXPECT(err.text[0] != '\0');
}

static void tamper_features(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_LABEL)
        ((struct label *)value)->features_incompatible = 1;
}

static void test_no_pool(void)
{
    const struct check_options options = {0}, eighth = {.label_sequence = 8};
    struct image *img = image_new();
    expect_refused(img, &options, -EINVAL);
    image_checkpoint(img);
    expect_refused(img, &eighth, -EINVAL);
    img->tamper = tamper_features;
    image_checkpoint(img);
    expect_refused(img, &options, -EOPNOTSUPP);
    image_free(img);
    /* Labels, but none that verifies: that much can be reported. */
    img = many_labels(1);
    image_damage(img, img->last_label_front + 512, 512);
    image_damage(img, img->last_label_back + 512, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LABEL_DAMAGED);
    image_free(img);
}

static void tamper_device_size(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_LABEL)
        ((struct label *)value)->devices[0].size_bytes += 1 * MIB;
}

static void test_device_short(void)
{
    struct image *img = image_new();
    img->tamper = tamper_device_size;
    image_checkpoint(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_DEVICE_SHORT);
    image_free(img);
}

static void test_read_error(void)
{
    struct image *img = sample();
    struct check_report *report = NULL;
    struct error err = {0};
    const struct check_options options = {0};
    struct device *dev = image_device(img);
    /* The whole of a read fails, then one unit of it. */
    sim_disk_fail(img->disk, DEVICE_READ, 3, -EIO, false);
    sim_disk_fail(img->disk, DEVICE_READ, 4, -EIO, false);
    EXPECT_EQ(check_run(dev, &options, &report, &err), 0);
    REQUIRE(report != NULL);
    EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_READ_ERROR), 1);
    EXPECT(!check_report_is_clean(report));
    check_report_free(report);
    image_free(img);
}

static void test_report_forms(void)
{
    struct image *img = sample();
    image_damage(img, img->last_label_front, IMAGE_UNIT_BYTES);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    struct text text = {0};
    check_report_print(report, &text);
    EXPECT(strstr(text.bytes, "wrong: LABEL-DAMAGED: ") == text.bytes);
    EXPECT(strstr(text.bytes, "damaged: 1 wrong, 0 suspicious, 0 leaks\n") != NULL);
    char *json = check_report_json(report);
    REQUIRE(json != NULL);
    EXPECT(strstr(json, "\"id\": \"LABEL-DAMAGED\"") != NULL);
    EXPECT(strstr(json, "\"clean\": false") != NULL);
    free(json);
    text_free(&text);
    check_report_free(report);
    image_free(img);
}

int main(void)
{
    RUN(test_empty_pool);
    RUN(test_clean_pool);
    RUN(test_counts);
    RUN(test_long_life);
    RUN(test_label_damaged);
    RUN(test_label_torn);
    RUN(test_label_stale);
    RUN(test_label_conflict);
    RUN(test_label_foreign);
    RUN(test_no_pool);
    RUN(test_device_short);
    RUN(test_read_error);
    RUN(test_report_forms);
    return tap_done();
}
