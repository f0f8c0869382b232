/*
 * The checker on chunks, maps and payload that are damaged or lie: one test for each problem id that these can have.
 */
#include "check_sample.h"

#include "base/math.h"

static void test_clean(void)
{
    EXPECT_TAMPERED(NULL);
}

/* ---- chunks ---- */

static void test_chunk_halves(void)
{
    struct image *img = sample_with(NULL);
    const uint64_t chunk =
        image_offset(img, img->volumes[1].records[0].base.address) / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
    uint8_t *sound = malloc(IMAGE_BYTES);
    REQUIRE(sound != NULL);
    memcpy(sound, img->bytes, IMAGE_BYTES);
    struct chunk_header h;
    EXPECT_EQ(chunk_header_decode(img->bytes + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
    image_damage(img, chunk, CHUNK_HEADER_BYTES);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_HEADER_DAMAGED);
    image_damage(img, chunk + h.chunk_bytes - 100, 100);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_DAMAGED);
    memcpy(img->bytes, sound, IMAGE_BYTES);
    image_damage(img, chunk + h.chunk_bytes - 100, 100);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_TRAILER_DAMAGED);
    free(sound);
    image_free(img);
}

/* Torn when nobody had said that it was flushed; the recovery after it kept it. */
static void test_chunk_torn(void)
{
    struct image *img = image_new();
    image_volume(img, "alpha", 1000 * 4096, 4096);
    image_write_codec(img, 0, 1, 1, CODEC_OFF);
    const uint64_t chunk = image_seal(img);
    const uint32_t n = img->last_chunk_bytes;
    image_bridge(img);
    image_checkpoint(img);
    image_damage(img, chunk + n - 50, 50);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_CHUNK_TORN);
    image_free(img);
}

static void tamper_chain(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)number;
    if (object == IMAGE_DATA_CHUNK && img->data.sequence == 4)
        ((struct image_chunk *)value)->header.previous_chain.low ^= 1;
}

static void test_chain(void)
{
    EXPECT_TAMPERED(tamper_chain, CHECK_PROBLEM_CHAIN_MISMATCH);
}

/* ---- nodes ---- */

static void test_node_copies(void)
{
    struct image *img = sample_with(NULL);
    const struct pointer *leaf = &img->volumes[0].leaves[0];
    const uint64_t at = image_offset(img, leaf->address), chunk = at / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
    struct chunk_header h;
    uint8_t *sound = malloc(IMAGE_BYTES);
    REQUIRE(sound != NULL);
    memcpy(sound, img->bytes, IMAGE_BYTES);
    EXPECT_EQ(chunk_header_decode(img->bytes + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
    /* Payload, header, everything; of the first copy and of the second. */
    for (unsigned copy = 0; copy < 2; copy++) {
        memcpy(img->bytes, sound, IMAGE_BYTES);
        image_damage(img, at + copy * h.chunk_bytes, 8);
        EXPECT_PROBLEMS(img, CHECK_PROBLEM_NODE_COPY_DAMAGED);
        memcpy(img->bytes, sound, IMAGE_BYTES);
        image_damage(img, chunk + copy * h.chunk_bytes, 64);
        EXPECT_PROBLEMS(img, CHECK_PROBLEM_NODE_COPY_DAMAGED);
        image_damage(img, chunk + copy * h.chunk_bytes, h.chunk_bytes);
        EXPECT_PROBLEMS(img, CHECK_PROBLEM_NODE_COPY_DAMAGED);
    }
    memcpy(img->bytes, sound, IMAGE_BYTES);
    image_damage(img, at, 8);
    image_damage(img, at + h.chunk_bytes, 8);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_NODE_DAMAGED, CHECK_PROBLEM_COUNT}));
    size_t count;
    const struct check_problem *p = check_report_problems(report, &count);
    REQUIRE(count == 1);
    EXPECT_TEXT(p->volume, "alpha");
    EXPECT_EQ(p->offset_bytes, 0);
    EXPECT_EQ(p->length_bytes, 128 * 4096);
    EXPECT_EQ(p->device_offset_bytes, at);
    check_report_free(report);
    free(sound);
    image_free(img);
}

static void tamper_identity(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    if (object == IMAGE_LEAF && number == 0)
        ((struct node *)value)->number = 1;
}

static void test_node_invalid(void)
{
    struct image *img = sample_with(tamper_identity);
    expect_found(img, CHECK_PROBLEM_NODE_INVALID);
    image_free(img);
}

/* ---- pointers ---- */

static struct pointer *child_of(struct image *img, enum image_object object, void *value, unsigned volume, unsigned i)
{
    struct node *n = value;
    if (object != IMAGE_LEAF || n->branch != img->volumes[volume].catalog.branch || n->number != i >> MAP_LEAF_BITS)
        return NULL;
    return &n->children[i % map_fanout(0)];
}

static void tamper_future(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3);
    (void)number;
    if (p != NULL)
        p->address = img->data.segment * IMAGE_SEGMENT_BYTES + img->data.position_bytes;
}

static void tamper_hole_date(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 0, 705);
    (void)number;
    if (p != NULL)
        p->address += IMAGE_SEGMENT_BYTES;
}

static void tamper_second_copy(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)number;
    if (object == IMAGE_INNER && img->checkpoint == 1) {
        struct node *n = value;
        n->children[0].address += img->last_chunk_bytes;
    }
}

static void test_map_address(void)
{
    struct image *img = sample_with(tamper_future);
    expect_found(img, CHECK_PROBLEM_MAP_ADDRESS);
    image_free(img);
    EXPECT_TAMPERED(tamper_hole_date, CHECK_PROBLEM_MAP_ADDRESS);
    EXPECT_TAMPERED(tamper_second_copy, CHECK_PROBLEM_MAP_ADDRESS);
}

static void tamper_size(struct image *img, enum image_object object, unsigned number, void *value)
{
    (void)img;
    if (object == IMAGE_CATALOG && number == 1)
        ((struct catalog_volume *)value)->size_bytes = 8 * 16384;
}

static void test_beyond_end(void)
{
    EXPECT_TAMPERED(tamper_size, CHECK_PROBLEM_MAP_BEYOND_END);
}

static void tamper_segment(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3);
    (void)number;
    if (p != NULL)
        p->address = 4 * IMAGE_SEGMENT_BYTES;
}

static void test_segment_lost(void)
{
    struct image *img = image_new();
    image_volume(img, "alpha", 1000 * 4096, 4096);
    image_volume(img, "beta", 50 * 16384, 16384);
    img->next_segment = 9; /* 3 to 8 were issued and lie nowhere */
    for (unsigned i = 0; i < 20; i++) {
        image_write_codec(img, 1, i, (int)i, CODEC_OFF);
        if (i % 5 == 4)
            image_seal(img);
    }
    img->tamper = tamper_segment;
    image_checkpoint(img);
    expect_found(img, CHECK_PROBLEM_SEGMENT_LOST);
    image_free(img);
}

static void tamper_offset(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3);
    (void)number;
    if (p != NULL)
        p->address -= 16;
}

static void test_entry_missing(void)
{
    EXPECT_TAMPERED(tamper_offset, CHECK_PROBLEM_ENTRY_MISSING, CHECK_PROBLEM_OVERLAP, CHECK_PROBLEM_RECORD_DAMAGED);
}

static void tamper_swap(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3), *q = child_of(img, object, value, 1, 4);
    (void)number;
    if (p == NULL || q == NULL)
        return;
    const struct pointer was = *p;
    *p = *q;
    *q = was;
}

static void tamper_checksum(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3);
    (void)number;
    if (p != NULL)
        p->checksum.high ^= 1;
}

static void test_entry_mismatch(void)
{
    EXPECT_TAMPERED(tamper_swap, CHECK_PROBLEM_ENTRY_MISMATCH);
    EXPECT_TAMPERED(tamper_checksum, CHECK_PROBLEM_ENTRY_MISMATCH, CHECK_PROBLEM_RECORD_DAMAGED);
}

static void tamper_twice(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3), *q = child_of(img, object, value, 1, 4);
    (void)number;
    if (p != NULL && q != NULL)
        *p = *q;
}

static void test_overlap(void)
{
    struct image *img = sample_with(tamper_twice);
    expect_found(img, CHECK_PROBLEM_OVERLAP);
    image_free(img);
}

/* ---- payload ---- */

static void test_record_damaged(void)
{
    const struct check_options quick = {.quick = true};
    struct image *img = sample_with(NULL);
    image_damage(img, image_offset(img, img->volumes[1].records[7].base.address) + 9000, 1);
    EXPECT_PROBLEMS_WITH(img, &quick);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_RECORD_DAMAGED, CHECK_PROBLEM_COUNT}));
    size_t count;
    const struct check_problem *p = check_report_problems(report, &count);
    REQUIRE(count == 1);
    EXPECT_TEXT(p->volume, "beta");
    EXPECT_EQ(p->offset_bytes, 7 * 16384);
    EXPECT_EQ(p->length_bytes, 16384);
    EXPECT_EQ(p->address, img->volumes[1].records[7].base.address);
    check_report_free(report);
    /* The log behind the checkpoint replaces it. */
    image_write(img, 1, 7, 3);
    image_seal(img);
    EXPECT_PROBLEMS(img);
    image_free(img);
}

static void test_patch_damaged(void)
{
    struct image *img = sample_with(NULL);
    image_damage(img, image_offset(img, img->volumes[0].records[3].patches[0].pointer.address) + 600, 1);
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_PATCH_DAMAGED, CHECK_PROBLEM_COUNT}));
    size_t count;
    const struct check_problem *p = check_report_problems(report, &count);
    REQUIRE(count == 1);
    EXPECT_EQ(p->offset_bytes, 3 * 4096 + 512);
    EXPECT_EQ(p->length_bytes, 1024);
    check_report_free(report);
    image_free(img);
}

static void tamper_codec(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 0, 5);
    (void)number;
    if (p != NULL)
        p->codec = CODEC_ZSTD;
    if (object == IMAGE_DATA_CHUNK && img->data.sequence == 1)
        ((struct image_chunk *)value)->entries[5].codec = CODEC_ZSTD;
}

static void test_unpackable(void)
{
    struct image *img = sample_with(tamper_codec);
    /* The table of the chunk has another length than its place in the image was made for: only what it leads to is
     * looked at. */
    expect_found(img, CHECK_PROBLEM_RECORD_UNPACKABLE);
    image_free(img);
}

static void test_lossy(void)
{
    struct image *img = sample_with(NULL);
    image_write_lossy(img, 1, 2, 3);
    image_seal(img);
    image_checkpoint(img);
    EXPECT_PROBLEMS(img, CHECK_PROBLEM_RECORD_LOSSY);
    image_free(img);
}

static void tamper_lost(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct pointer *p = child_of(img, object, value, 1, 3);
    (void)number;
    if (p != NULL)
        *p = (struct pointer){.kind = POINTER_LOST, .address = 1};
}

static void test_range_lost(void)
{
    EXPECT_TAMPERED(tamper_lost, CHECK_PROBLEM_RANGE_LOST);
}

static void test_dead_damaged(void)
{
    const struct check_options all = {.all = true};
    struct image *img = sample_with(NULL);
    const uint64_t dead = image_offset(img, img->volumes[1].records[3].base.address);
    image_write(img, 1, 3, 4);
    image_seal(img);
    image_checkpoint(img);
    image_damage(img, dead + 5000, 10);
    EXPECT_PROBLEMS(img);
    EXPECT_PROBLEMS_WITH(img, &all, CHECK_PROBLEM_DEAD_DAMAGED);
    image_free(img);
}

int main(void)
{
    RUN(test_clean);
    RUN(test_chunk_halves);
    RUN(test_chunk_torn);
    RUN(test_chain);
    RUN(test_node_copies);
    RUN(test_node_invalid);
    RUN(test_map_address);
    RUN(test_beyond_end);
    RUN(test_segment_lost);
    RUN(test_entry_missing);
    RUN(test_entry_mismatch);
    RUN(test_overlap);
    RUN(test_record_damaged);
    RUN(test_patch_damaged);
    RUN(test_unpackable);
    RUN(test_lossy);
    RUN(test_range_lost);
    RUN(test_dead_damaged);
    return tap_done();
}
