/*
 * The checker on the log behind the checkpoint: followed as a recovery follows it, torn, damaged, and running where it
 * cannot be.
 */

#include "check_expect.h"

#include <string.h>

#include "base/math.h"

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

/* ---- damage ---- */

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

/* The first two of three chunks; the third says that they were flushed. */
static void test_log_damaged(void)
{
    struct image *img = sample();
    image_write(img, 0, 1, 5);
    const uint64_t first = image_seal(img);
    image_write(img, 0, 2, 6);
    const uint64_t second = image_seal(img);
    img->durable_to = img->data.segment * IMAGE_SEGMENT_BYTES + img->data.position_bytes;
    image_write(img, 0, 3, 7);
    image_seal(img);
    EXPECT_PROBLEMS(img);
    EXPECT_EQ(img->last_chunk_bytes, IMAGE_UNIT_BYTES);
    image_damage(img, first, IMAGE_UNIT_BYTES);
    image_damage(img, second, 512);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_LOG_DAMAGED, CHECK_PROBLEM_LOG_UNREACHED);
    image_free(img);
}

/* Two chunks, each of one write unit, and a third that says that the first two were flushed. */
static struct image *small_chunks(uint64_t place[3])
{
    struct image *img = sample();
    for (unsigned i = 0; i < 3; i++) {
        if (i == 2)
            img->durable_to = img->data.segment * IMAGE_SEGMENT_BYTES + img->data.position_bytes;
        image_write(img, 0, i, (int)i + 5);
        place[i] = image_seal(img);
        CHECK_EQ(img->last_chunk_bytes, IMAGE_UNIT_BYTES);
    }
    return img;
}

/* A chunk of one write unit is lost: the log goes on, by the echo in the next one; only its record is lost. */
static void test_chunk_from_echo(void)
{
    static const struct check_options repair = {.repair = true};
    uint64_t place[3];
    struct image *img = small_chunks(place);
    EXPECT_PROBLEMS(img);
    image_damage(img, place[0], IMAGE_UNIT_BYTES);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_HEADER_DAMAGED, CHECK_PROBLEM_RECORD_DAMAGED);
    struct check_report *report = check_image(img, &repair);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_RECORD_DAMAGED, CHECK_PROBLEM_COUNT}));
    EXPECT_EQ(check_report_summary(report)->replay_chunks, 3);
    check_report_free(report);
    image_free(img);
    /* The second, with the echo of the first in it. */
    img = small_chunks(place);
    image_damage(img, place[1], IMAGE_UNIT_BYTES);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_HEADER_DAMAGED, CHECK_PROBLEM_CHUNK_ECHO_DAMAGED,
                    CHECK_PROBLEM_RECORD_DAMAGED);
    image_free(img);
}

/* The newest chunk but one, which nobody knows durable: then it is the end of the log, whatever its echo says. */
static void test_echo_of_torn_chunk(void)
{
    uint64_t place[3];
    struct image *img = small_chunks(place);
    image_write(img, 0, 3, 9);
    image_seal(img);
    image_damage(img, place[2], IMAGE_UNIT_BYTES);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(check_report_is_clean(report));
    EXPECT_EQ(check_report_summary(report)->replay_chunks, 2);
    check_report_free(report);
    image_free(img);
}

static void test_echo_damaged(void)
{
    static const struct check_options repair = {.repair = true};
    uint64_t place[3];
    struct image *img = small_chunks(place);
    struct chunk_header h;
    REQUIRE(chunk_header_decode(img->bytes + place[1], IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL) == 0);
    EXPECT(h.echo_bytes > CHUNK_HEADER_BYTES);
    image_damage(img, place[1] + CHUNK_HEADER_BYTES + h.table_bytes + 30, 8);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_ECHO_DAMAGED);
    struct check_report *report = check_image(img, &repair);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_COUNT}));
    check_report_free(report);
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

int main(void)
{
    RUN(test_replay);
    RUN(test_bridge);
    RUN(test_unknown_branch);
    RUN(test_torn_tail);
    RUN(test_clean_label_log);
    RUN(test_log_damaged);
    RUN(test_chunk_from_echo);
    RUN(test_echo_of_torn_chunk);
    RUN(test_echo_damaged);
    RUN(test_log_record_damaged);
    RUN(test_log_header_and_trailer_damaged);
    RUN(test_log_slot_conflict);
    RUN(test_log_entry_range);
    return tap_done();
}
