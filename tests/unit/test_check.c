/*
 * The checker on whole pools, and on damaged labels and logs. Whatever it is to find is made by hand.
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

static void test_replay(void)
{
    struct image *img = sample();
    for (unsigned i = 0; i < 30; i++) {
        image_write_codec(img, 0, i, (int)i + 5, CODEC_OFF);
        image_write_codec(img, 1, 6, (int)i + 9, CODEC_OFF);
        image_seal(img);
    }
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_COUNT}));
    EXPECT_EQ(check_report_summary(report)->replay_chunks, 30);
    EXPECT_EQ(check_report_summary(report)->replay_entries, 60);
    check_report_free(report);
    image_free(img);
}

static void test_bridge(void)
{
    struct image *img = sample();
    image_write(img, 0, 1, 5);
    image_seal(img);
    image_bridge(img);
    EXPECT_PROBLEMS(img);
    image_write(img, 0, 2, 6);
    image_seal(img);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_COUNT}));
    EXPECT_EQ(check_report_summary(report)->replay_chunks, 3);
    check_report_free(report);
    image_checkpoint(img);
    EXPECT_PROBLEMS(img);
    image_free(img);
}

/* Entries of branches the checkpoint does not know are skipped, and counted. */
static void test_unknown_branch(void)
{
    struct image *img = sample();
    image_volume(img, "late", 100 * 4096, 4096);
    image_write(img, 2, 1, 5);
    image_seal(img);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(check_report_is_clean(report));
    EXPECT_EQ(check_report_summary(report)->skipped_entries, 1);
    check_report_free(report);
    image_free(img);
}

/* A tail that was never flushed may be torn in any way. */
static void test_torn_tail(void)
{
    struct image *img = sample();
    image_write(img, 0, 1, 5);
    image_seal(img);
    for (unsigned i = 0; i < 4; i++)
        image_write_codec(img, 1, i, (int)i, CODEC_OFF);
    const uint64_t last = image_seal(img);
    const uint32_t n = img->last_chunk_bytes;
    uint8_t *whole = malloc(IMAGE_BYTES);
    REQUIRE(whole != NULL);
    memcpy(whole, img->bytes, IMAGE_BYTES);
    for (uint64_t at = 0; at < n; at += 512) {
        memcpy(img->bytes, whole, IMAGE_BYTES);
        memset(img->bytes + last + at, 0, 512);
        struct check_report *report = check_image(img, NULL);
        REQUIRE(report != NULL);
        EXPECT(check_report_is_clean(report));
        /* Without its trailer it is whole; without any other sector, payload among it, the log ends before it. */
        const bool half = at + 512 == n, padding = memcmp(whole + last + at, img->bytes + last + at, 512) == 0;
        EXPECT_EQ(check_report_summary(report)->replay_chunks, half || padding ? 2 : 1);
        EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_CHUNK_TORN), half);
        check_report_free(report);
    }
    free(whole);
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

/* ---- the log behind the checkpoint ---- */

static void test_clean_label_log(void)
{
    struct image *img = sample();
    img->label_flags = LABEL_CLEAN;
    image_label(img);
    EXPECT_PROBLEMS(img);
    image_write(img, 0, 1, 5);
    image_seal(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CLEAN_LABEL_LOG);
    image_free(img);
}

/* The second of three chunks; the third says that it was flushed. */
static void test_log_damaged(void)
{
    struct image *img = sample();
    image_write(img, 0, 1, 5);
    image_seal(img);
    image_write(img, 0, 2, 6);
    const uint64_t second = image_seal(img);
    img->durable_to = img->data.segment * IMAGE_SEGMENT_BYTES + img->data.position_bytes;
    image_write(img, 0, 3, 7);
    image_seal(img);
    EXPECT_PROBLEMS(img);
    EXPECT_EQ(img->last_chunk_bytes, IMAGE_UNIT_BYTES);
    image_damage(img, second, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LOG_DAMAGED, CHECK_PROBLEM_LOG_UNREACHED);
    image_free(img);
}

/* The same, but the record in it alone is damaged: the log goes on, one record is lost. */
static void test_log_record_damaged(void)
{
    struct image *img = sample();
    image_write_codec(img, 1, 2, 6, CODEC_OFF);
    const uint64_t first = image_seal(img);
    img->durable_to = img->data.segment * IMAGE_SEGMENT_BYTES + img->data.position_bytes;
    image_write(img, 0, 3, 7);
    image_seal(img);
    image_damage(img, first + 2 * IMAGE_UNIT_BYTES, 512);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_RECORD_DAMAGED, CHECK_PROBLEM_COUNT}));
    size_t count;
    const struct check_problem *p = check_report_problems(report, &count);
    REQUIRE(count == 1);
    EXPECT_TEXT(p->volume, "beta");
    EXPECT_EQ(p->offset_bytes, 2 * 16384);
    EXPECT_EQ(p->length_bytes, 16384);
    EXPECT_EQ(check_report_summary(report)->replay_chunks, 2);
    check_report_free(report);
    /* Written anew behind it: nothing is lost. */
    image_trim(img, 1, 2, 1);
    image_seal(img);
    EXPECT_PROBLEMS(img);
    image_free(img);
}

static void test_log_header_and_trailer_damaged(void)
{
    struct image *img = sample();
    image_write_codec(img, 1, 2, 6, CODEC_OFF);
    const uint64_t first = image_seal(img);
    const uint32_t n = img->last_chunk_bytes;
    img->durable_to = img->data.segment * IMAGE_SEGMENT_BYTES + img->data.position_bytes;
    image_write(img, 0, 3, 7);
    image_seal(img);
    image_damage(img, first, 100);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_HEADER_DAMAGED);
    image_damage(img, first + n - 512, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LOG_DAMAGED, CHECK_PROBLEM_LOG_UNREACHED);
    image_free(img);
}

static void tamper_next_slot(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)number;
    (void)img;
    /* The slot of the first segment: in use. */
    if (object == IMAGE_DATA_CHUNK)
        ((struct image_chunk *)value)->header.next_slots[0] = 0;
}

static void write_big_chunk(struct image *img)
{
    for (unsigned i = 0; i < 5; i++)
        image_write_codec(img, 1, i, (int)i, CODEC_OFF);
    image_seal(img);
}

/* A chunk names a slot that is in use for the next segment, and the next chunk is found there. */
static void test_log_slot_conflict(void)
{
    struct image *img = sample();
    write_big_chunk(img);
    EXPECT_EQ(img->data.slot, 1);
    image_write(img, 0, 900, 5);
    image_seal(img);
    image_checkpoint(img);
    img->tamper = tamper_next_slot;
    image_write(img, 0, 901, 5);
    image_seal(img);
    img->next_slot = 0;
    write_big_chunk(img);
    EXPECT_EQ(img->data.slot, 0);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_LOG_SLOT_CONFLICT), 1);
    check_report_free(report);
    image_free(img);
}

/* Entries past the end of a volume are skipped; sectors past the end of a record cannot be. */
static void test_log_entry_range(void)
{
    struct image *img = sample();
    image_write(img, 1, 50, 5);
    image_trim(img, 1, 49, 3);
    image_seal(img);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(check_report_is_clean(report));
    EXPECT_EQ(check_report_summary(report)->skipped_entries, 1);
    check_report_free(report);
    image_patch(img, 0, 3, 8, 1, 5);
    image_seal(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LOG_ENTRY_RANGE);
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
    RUN(test_replay);
    RUN(test_bridge);
    RUN(test_unknown_branch);
    RUN(test_torn_tail);
    RUN(test_label_damaged);
    RUN(test_label_torn);
    RUN(test_label_stale);
    RUN(test_label_conflict);
    RUN(test_label_foreign);
    RUN(test_no_pool);
    RUN(test_device_short);
    RUN(test_clean_label_log);
    RUN(test_log_damaged);
    RUN(test_log_record_damaged);
    RUN(test_log_header_and_trailer_damaged);
    RUN(test_log_slot_conflict);
    RUN(test_log_entry_range);
    RUN(test_read_error);
    RUN(test_report_forms);
    return tap_done();
}
