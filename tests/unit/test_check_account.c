/*
 * The checker on a catalog and a slot table that lie: one test for each problem id that these can have.
 */
#include "check_sample.h"

/* ---- catalog ---- */

static void tamper_object_id(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    if (object == IMAGE_CATALOG && number == 1)
        ((struct catalog_volume *)value)->object_id++;
}

static void test_catalog_invalid(void)
{
    EXPECT_TAMPERED(tamper_object_id, CHECK_PROBLEM_CATALOG_INVALID);
}

static void tamper_name(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    if (object == IMAGE_CATALOG && number == 1)
        memcpy(((struct catalog_volume *)value)->name, "alpha", 6);
}

static void tamper_guid(struct image *img, enum image_object object, unsigned number, void *value)
{
    if (object == IMAGE_CATALOG && number == 1)
        memcpy(((struct catalog_volume *)value)->guid, img->volumes[0].catalog.guid, 16);
}

static void tamper_branch(struct image *img, enum image_object object, unsigned number, void *value)
{
    if (object == IMAGE_CATALOG && number == 1)
        ((struct catalog_volume *)value)->branch = img->volumes[0].catalog.branch;
}

static void test_duplicates(void)
{
    EXPECT_TAMPERED(tamper_name, CHECK_PROBLEM_NAME_DUPLICATE);
    EXPECT_TAMPERED(tamper_guid, CHECK_PROBLEM_GUID_DUPLICATE);
    EXPECT_TAMPERED(tamper_branch, CHECK_PROBLEM_BRANCH_DUPLICATE);
}

static void tamper_counters(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_LABEL)
        ((struct label *)value)->next_branch--;
}

static void test_counter_behind(void)
{
    EXPECT_TAMPERED(tamper_counters, CHECK_PROBLEM_COUNTER_BEHIND);
}

static void tamper_account(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    if (object == IMAGE_CATALOG && number == 0)
        ((struct catalog_volume *)value)->stored_bytes--;
}

static void test_volume_account(void)
{
    EXPECT_TAMPERED(tamper_account, CHECK_PROBLEM_VOLUME_ACCOUNT_MISMATCH);
}

/* ---- slot table ---- */

static void tamper_outside(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_TABLE)
        ((struct slot *)value)[IMAGE_SLOTS + 3] = (struct slot){.state = SLOT_NEXT, .segment = 1};
}

static void tamper_next_free(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)number;
    if (object == IMAGE_TABLE)
        ((struct slot *)value)[img->next_slot] = (struct slot){.state = SLOT_READY};
}

static void tamper_live(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_TABLE)
        ((struct slot *)value)[0].live_bytes--;
}

static void tamper_used_more(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_TABLE)
        ((struct slot *)value)[0].used_bytes -= IMAGE_UNIT_BYTES;
}

/* The first chunk of the segment only. */
static void tamper_used_less(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct chunk_header h;
    (void)number;
    if (object == IMAGE_TABLE &&
        chunk_header_decode(img->bytes + IMAGE_RING_BYTES, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL) == 0)
        ((struct slot *)value)[0].used_bytes = h.chunk_bytes;
}

static void tamper_free(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_TABLE)
        ((struct slot *)value)[0] = (struct slot){.state = SLOT_READY};
}

static void tamper_duplicate(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    (void)number;
    if (object == IMAGE_TABLE)
        ((struct slot *)value)[IMAGE_SLOTS - 1] = (struct slot){.state = SLOT_QUARANTINED, .segment = 1, .since = 1};
}

static void test_slot_table(void)
{
    EXPECT_TAMPERED(tamper_outside, CHECK_PROBLEM_TABLE_INVALID);
    EXPECT_TAMPERED(tamper_next_free, CHECK_PROBLEM_SLOT_STATE_MISMATCH);
    EXPECT_TAMPERED(tamper_live, CHECK_PROBLEM_SLOT_LIVE_MISMATCH);
    EXPECT_TAMPERED(tamper_used_more, CHECK_PROBLEM_SLOT_USED_MISMATCH);
    struct image *img = sample_with(tamper_used_less);
    expect_found(img, CHECK_PROBLEM_SLOT_USED_MISMATCH);
    image_free(img);
    EXPECT_TAMPERED(tamper_free, CHECK_PROBLEM_SLOT_FREE_LIVE, CHECK_PROBLEM_SLOT_LIVE_MISMATCH);
    EXPECT_TAMPERED(tamper_duplicate, CHECK_PROBLEM_SLOT_SEGMENT_DUPLICATE);
}

/* A write that went elsewhere: the slot still holds an older segment. */
static void test_slot_segment(void)
{
    struct image *img = sample_with(NULL);
    memcpy(img->bytes + IMAGE_RING_BYTES, img->bytes + IMAGE_RING_BYTES + IMAGE_SEGMENT_BYTES, IMAGE_SEGMENT_BYTES);
    expect_found(img, CHECK_PROBLEM_SLOT_SEGMENT_MISMATCH);
    image_free(img);
}

static void tamper_keep_closed(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct slot *slots = value;
    (void)number;
    for (unsigned i = 0; i < IMAGE_SLOTS && object == IMAGE_TABLE; i++)
        if (slots[i].state == SLOT_QUARANTINED) {
            slots[i].state = SLOT_CLOSED;
            slots[i].since = img->checkpoint - 1;
        }
}

static void tamper_keep_quarantine(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct slot *slots = value;
    (void)number;
    (void)img;
    for (unsigned i = 0; i < IMAGE_SLOTS && object == IMAGE_TABLE; i++)
        if (slots[i].state == SLOT_QUARANTINED)
            slots[i].since = 1;
}

static void test_leaks(void)
{
    struct image *img = sample_with(NULL);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 5; i++)
            image_write_codec(img, 1, i, (int)(i + round), CODEC_OFF);
        image_seal(img);
    }
    img->tamper = tamper_keep_closed;
    image_checkpoint(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_SLOT_LEAKED);
    image_free(img);

    img = sample_with(NULL);
    for (unsigned round = 0; round < 20; round++) {
        image_write(img, 1, 11, (int)round);
        image_seal(img);
        image_checkpoint(img);
    }
    EXPECT_PROBLEMS(img);
    img->tamper = tamper_keep_quarantine;
    image_checkpoint(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_QUARANTINE_STUCK);
    image_free(img);
}

int main(void)
{
    RUN(test_catalog_invalid);
    RUN(test_duplicates);
    RUN(test_counter_behind);
    RUN(test_volume_account);
    RUN(test_slot_table);
    RUN(test_slot_segment);
    RUN(test_leaks);
    return tap_done();
}
