/*
 * Repairs: what an intact copy or the log still knows is written back bit for bit, and nothing else is written.
 */
#include "check_expect.h"

#include "base/math.h"
#include "base/prng.h"
#include "seed.h"

/* Maps of one and two levels with records, patches, trims and provisioned zeroes; several segments and checkpoints. */
static struct image *sample(void)
{
    struct image *img = image_new();
    const unsigned a = image_volume(img, "alpha", 1000 * 4096, 4096), b = image_volume(img, "beta", 50 * 16384, 16384);
    for (unsigned i = 0; i < 20; i++)
        image_write(img, a, i * 40, (int)i);
    image_patch(img, a, 40, 1, 2, 50);
    image_patch(img, a, 40, 4, 1, 51);
    image_seal(img);
    image_checkpoint(img);
    for (unsigned i = 0; i < 10; i++) {
        image_write_codec(img, b, i, (int)i + 20, CODEC_OFF);
        if (i % 5 == 4)
            image_seal(img);
    }
    image_trim(img, a, 700, 10);
    image_trim(img, a, 40, 1);
    image_patch(img, a, 40, 2, 2, 52);
    image_zero(img, b, 20, 7);
    image_seal(img);
    image_checkpoint(img);
    image_write(img, a, 41, 1);
    image_seal(img);
    return img;
}

static uint8_t *copy_of(const struct image *img)
{
    uint8_t *copy = malloc(IMAGE_BYTES);
    if (copy != NULL)
        memcpy(copy, img->bytes, IMAGE_BYTES);
    return copy;
}

/* Repairs the image, and leaves what came of it in img->bytes. The report, NULL if it could not be done. */
static struct check_report *repair_with_room(struct image *img, uint64_t found_max)
{
    const struct check_options options = {.repair = true, .found_max = found_max};
    struct check_report *report = check_image(img, &options);
    image_reload(img);
    return report;
}

static struct check_report *repair(struct image *img)
{
    return repair_with_room(img, 0);
}

/* After a repair the image is clean and the very image it was. */
static void expect_restored_with_room(struct image *img, const uint8_t *sound, const char *what, uint64_t found_max)
{
    struct check_report *report = repair_with_room(img, found_max);
    size_t repairs;
    REQUIRE(report != NULL);
    const bool clean = report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_COUNT});
    EXPECT(clean);
    (void)check_report_repairs(report, &repairs);
    EXPECT(repairs > 0);
    const bool same = memcmp(img->bytes, sound, IMAGE_BYTES) == 0;
    EXPECT(same);
    if (!clean || !same)
        printf("# after the repair of %s\n", what);
    check_report_free(report);
}

static void expect_restored(struct image *img, const uint8_t *sound, const char *what)
{
    expect_restored_with_room(img, sound, what, 0);
}

static void test_nothing_to_do(void)
{
    struct image *img = sample();
    const struct check_options options = {.repair = true};
    struct check_report *report = NULL;
    struct error err = {0};
    struct device *dev = image_device(img);
    const uint64_t steps = sim_disk_step_count(img->disk);
    size_t repairs;
    EXPECT_EQ(check_run(dev, &options, &report, &err), 0);
    REQUIRE(report != NULL);
    EXPECT(check_report_is_clean(report));
    (void)check_report_repairs(report, &repairs);
    EXPECT_EQ(repairs, 0);
    EXPECT_EQ(sim_disk_step_count(img->disk), steps);
    check_report_free(report);
    image_free(img);
}

static void test_labels(void)
{
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    image_damage(img, img->last_label_front, IMAGE_UNIT_BYTES);
    expect_restored(img, sound, "a front label");
    image_damage(img, img->last_label_back + 1000, 10);
    expect_restored(img, sound, "a back label");
    free(sound);
    image_free(img);
}

static void test_node_copies(void)
{
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    const struct pointer *objects[] = {&img->volumes[0].leaves[0], &img->volumes[0].catalog.root, &img->catalog_root};
    for (unsigned i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
        const uint64_t at = image_offset(img, objects[i]->address), chunk = at / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
        struct chunk_header h;
        EXPECT_EQ(chunk_header_decode(sound + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
        for (unsigned copy = 0; copy < 2; copy++) {
            image_damage(img, at + copy * h.chunk_bytes, objects[i]->length);
            expect_restored(img, sound, "a node's payload");
            image_damage(img, chunk + copy * h.chunk_bytes, 20);
            expect_restored(img, sound, "a node chunk's header");
            image_damage(img, chunk + copy * h.chunk_bytes, h.chunk_bytes);
            expect_restored(img, sound, "a whole node chunk");
        }
        /* From the middle of the one to the middle of the other: each half is intact somewhere. */
        image_damage(img, chunk + h.chunk_bytes / 2, h.chunk_bytes);
        expect_restored(img, sound, "the halves of two copies");
    }
    free(sound);
    image_free(img);
}

static void test_data_halves(void)
{
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    const uint64_t chunk =
        image_offset(img, img->volumes[1].records[0].base.address) / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
    struct chunk_header h;
    EXPECT_EQ(chunk_header_decode(sound + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
    image_damage(img, chunk, CHUNK_HEADER_BYTES + h.table_bytes);
    expect_restored(img, sound, "a data chunk's header");
    image_damage(img, chunk + h.chunk_bytes - 200, 200);
    expect_restored(img, sound, "a data chunk's trailer");
    free(sound);
    image_free(img);
}

/* Both copies of each map node: leaves, roots, the nodes of catalog and slot table, by themselves and all at once. */
static void test_rebuild(void)
{
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    const struct image_volume *a = &img->volumes[0], *b = &img->volumes[1];
    const struct {
        const char *what;
        uint64_t offset;
        uint32_t length;
    } nodes[] = {
        {"a leaf with patches", image_offset(img, a->leaves[0].address), a->leaves[0].length},
        {"a leaf with holes", image_offset(img, a->leaves[5].address), a->leaves[5].length},
        {"a root of two levels", image_offset(img, a->catalog.root.address), a->catalog.root.length},
        {"a root that is a leaf", image_offset(img, b->catalog.root.address), b->catalog.root.length},
        {"the catalog's leaf", image_offset(img, img->catalog_root.address), img->catalog_root.length},
        {"the slot table's leaf", IMAGE_RING_BYTES + img->table_root.address, img->table_root.length},
    };
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        const uint64_t chunk = nodes[i].offset / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
        struct chunk_header h;
        EXPECT_EQ(chunk_header_decode(sound + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
        memcpy(img->bytes, sound, IMAGE_BYTES);
        image_damage(img, nodes[i].offset, nodes[i].length);
        image_damage(img, nodes[i].offset + h.chunk_bytes, nodes[i].length);
        struct check_report *report = check_image(img, NULL);
        REQUIRE(report != NULL);
        EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_NODE_DAMAGED), 1);
        check_report_free(report);
        expect_restored(img, sound, nodes[i].what);
    }
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        const uint64_t chunk = nodes[i].offset / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES;
        struct chunk_header h;
        EXPECT_EQ(chunk_header_decode(sound + chunk, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, &h, NULL), 0);
        image_damage(img, nodes[i].offset, nodes[i].length);
        image_damage(img, nodes[i].offset + h.chunk_bytes, nodes[i].length);
    }
    expect_restored(img, sound, "all nodes");
    free(sound);
    image_free(img);
}

/* Both copies of a node of some volume. */
static void damage_node(struct image *img, const uint8_t *sound, const struct pointer *p)
{
    const uint64_t at = image_offset(img, p->address);
    struct chunk_header h;
    EXPECT_EQ(chunk_header_decode(sound + at / IMAGE_UNIT_BYTES * IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES, IMAGE_UNIT_BYTES,
                                  &h, NULL),
              0);
    image_damage(img, at, p->length);
    image_damage(img, at + h.chunk_bytes, p->length);
}

/*
 * There is not room for all entries at a time: of an inner node only the newest below each child are kept, and leaves
 * are dealt with in turn. Room for 12 is less than the root has records below it, and less than all leaves have.
 */
static void test_rebuild_with_little_room(void)
{
    enum { ROOM = 12, LEAVES = 6 };
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    const struct image_volume *a = &img->volumes[0];
    damage_node(img, sound, &a->catalog.root);
    expect_restored_with_room(img, sound, "a root", ROOM);
    unsigned leaves = 0;
    for (unsigned i = 0; i < IMAGE_LEAVES_MAX; i++)
        if (a->leaves[i].kind == POINTER_NODE) {
            damage_node(img, sound, &a->leaves[i]);
            leaves++;
        }
    EXPECT_EQ(leaves, LEAVES);
    expect_restored_with_room(img, sound, "all leaves", ROOM);
    free(sound);
    image_free(img);
}

/* A trim whose segment is gone: the leaf cannot be told any more, and nothing is guessed. */
static void test_rebuild_impossible(void)
{
    struct image *img = image_new();
    image_volume(img, "alpha", 100 * 4096, 4096);
    image_volume(img, "beta", 50 * 16384, 16384);
    image_write(img, 0, 1, 1);
    image_write(img, 0, 2, 2);
    image_write(img, 1, 40, 2);
    image_seal(img);
    image_trim(img, 0, 1, 1);
    const uint64_t trim = image_seal(img);
    image_checkpoint(img);
    memset(img->bytes + trim, 0, IMAGE_UNIT_BYTES);
    image_damage(img, image_offset(img, img->volumes[0].leaves[0].address), img->volumes[0].leaves[0].length);
    image_damage(img, image_offset(img, img->volumes[0].leaves[0].address) + IMAGE_UNIT_BYTES,
                 img->volumes[0].leaves[0].length);
    uint8_t *damaged = copy_of(img);
    REQUIRE(damaged != NULL);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    EXPECT_EQ(check_report_count_of(report, CHECK_PROBLEM_NODE_DAMAGED), 1);
    EXPECT(memcmp(img->bytes, damaged, IMAGE_BYTES) == 0);
    check_report_free(report);
    free(damaged);
    image_free(img);
}

/* The same, but an older version of the leaf remembers the trim. */
static void test_rebuild_from_version(void)
{
    struct image *img = image_new();
    image_volume(img, "alpha", 100 * 4096, 4096);
    image_write(img, 0, 1, 1);
    image_write(img, 0, 2, 2);
    image_patch(img, 0, 2, 1, 1, 3);
    image_seal(img);
    image_trim(img, 0, 1, 1);
    const uint64_t trim = image_seal(img);
    image_checkpoint(img);
    image_write(img, 0, 3, 2);
    image_patch(img, 0, 2, 2, 1, 4);
    image_seal(img);
    image_checkpoint(img);
    memset(img->bytes + trim, 0, IMAGE_UNIT_BYTES);
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    const struct pointer *leaf = &img->volumes[0].leaves[0];
    image_damage(img, image_offset(img, leaf->address), leaf->length);
    image_damage(img, image_offset(img, leaf->address) + IMAGE_UNIT_BYTES, leaf->length);
    struct check_report *report = repair(img);
    REQUIRE(report != NULL);
    EXPECT(report_has_only(report, (const enum check_problem_id[]){CHECK_PROBLEM_CHUNK_DAMAGED, CHECK_PROBLEM_COUNT}));
    EXPECT(memcmp(img->bytes, sound, IMAGE_BYTES) == 0);
    check_report_free(report);
    free(sound);
    image_free(img);
}

/* Records that have bytes in a range of the device. */
static unsigned records_in(const struct image *img, uint64_t from, uint64_t length)
{
    unsigned count = 0;
    for (unsigned v = 0; v < img->volume_count; v++)
        for (unsigned i = 0; i < IMAGE_RECORDS_MAX; i++) {
            const struct image_record *r = &img->volumes[v].records[i];
            const struct pointer *pointers[1 + PATCHES_PER_RECORD_MAX] = {&r->base};
            for (unsigned k = 0; k < r->patch_count; k++)
                pointers[1 + k] = &r->patches[k].pointer;
            for (unsigned k = 0; k < 1 + r->patch_count; k++) {
                if (!pointer_has_bytes(pointers[k]))
                    continue;
                const uint64_t at = image_offset(img, pointers[k]->address);
                count += at < from + length && from < at + pointers[k]->length;
            }
        }
    return count;
}

/*
 * Any 4 KiB of the pool: at most the records stored there are lost, and they are named. (A chunk of one write unit has
 * its only header there: then that is gone, too.)
 */
static void test_every_position(void)
{
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    unsigned positions = 0;
    for (uint64_t at = 0; at < IMAGE_BYTES; at += IMAGE_UNIT_BYTES) {
        if (bytes_are_zero(sound + at, IMAGE_UNIT_BYTES))
            continue;
        memcpy(img->bytes, sound, IMAGE_BYTES);
        image_damage(img, at, IMAGE_UNIT_BYTES);
        positions++;
        struct check_report *found = check_image(img, NULL), *left = repair(img);
        REQUIRE(found != NULL && left != NULL);
        /* The last chunk was not flushed: without it the log just ends. */
        const bool tail = at == img->last_data_chunk;
        EXPECT(!check_report_is_clean(found) || check_report_count(found, CHECK_SUSPICIOUS) > 0 || tail);
        const uint64_t lost = check_report_count_of(left, CHECK_PROBLEM_RECORD_DAMAGED) +
                              check_report_count_of(left, CHECK_PROBLEM_PATCH_DAMAGED);
        EXPECT_EQ(lost, tail ? 0 : records_in(img, at, IMAGE_UNIT_BYTES));
        const uint64_t others = check_report_count(left, CHECK_WRONG) - lost;
        EXPECT_EQ(others, check_report_count_of(left, CHECK_PROBLEM_CHUNK_DAMAGED));
        if (others != check_report_count_of(left, CHECK_PROBLEM_CHUNK_DAMAGED) || tap_failed_here > 0) {
            printf("# device offset %" PRIu64 "\n", at);
            print_report(left);
        }
        check_report_free(found);
        check_report_free(left);
        if (tap_failed_here > 3)
            break;
    }
    EXPECT(positions > 40);
    free(sound);
    image_free(img);
}

static void test_refusals(void)
{
    struct image *img = sample();
    const struct check_options options = {.repair = true};
    struct check_report *report = NULL;
    struct error err = {0};
    image_damage(img, img->last_label_front, IMAGE_UNIT_BYTES);
    (void)image_device(img);
    struct device *dev = sim_disk_open(img->disk, true);
    EXPECT_EQ(check_run(dev, &options, &report, &err), -EROFS);
    EXPECT(report == NULL);
    device_close(dev);
    err = (struct error){0};
    sim_disk_fail(img->disk, DEVICE_WRITE, 1, -EIO, true);
    EXPECT_EQ(check_run(img->dev, &options, &report, &err), -EIO);
    EXPECT(strstr(err.text, "repair at device offset") != NULL);
    image_free(img);
}

/* ---- whatever the bytes ---- */

static void check_any(struct image *img, bool with_repair)
{
    const struct check_options options = {.all = true, .repair = with_repair};
    struct check_report *report = NULL;
    struct error err = {0};
    const int result = check_run(image_device(img), &options, &report, &err);
    EXPECT((result == 0) == (report != NULL));
    check_report_free(report);
}

static void test_random_damage(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    struct image *img = sample();
    uint8_t *sound = copy_of(img);
    REQUIRE(sound != NULL);
    for (unsigned round = 0; round < 60; round++) {
        memcpy(img->bytes, sound, IMAGE_BYTES);
        for (uint64_t n = 1 + prng_below(&r, 30); n > 0; n--) {
            /* Mostly where something is. */
            const uint64_t at = prng_chance(&r, 200) ? prng_below(&r, IMAGE_RING_BYTES)
                                                     : IMAGE_RING_BYTES + prng_below(&r, 8 * IMAGE_SEGMENT_BYTES);
            const uint64_t from = IMAGE_RING_BYTES + prng_below(&r, 8 * IMAGE_SEGMENT_BYTES);
            const uint64_t length = 1 + prng_below(&r, prng_chance(&r, 500) ? 8 : 5000);
            if (prng_chance(&r, 500))
                prng_fill(&r, img->bytes + at, length);
            else
                memmove(img->bytes + at, img->bytes + from / 4096 * 4096, length);
        }
        check_any(img, round % 2 == 1);
    }
    free(sound);
    image_free(img);
}

/* Objects that verify and say anything at all. */
static void tamper_anything(struct image *img, enum image_object object, unsigned number, void *value)
{
    struct prng *r = img->tamper_arg;
    (void)number;
    if (object == IMAGE_LEAF || object == IMAGE_INNER) {
        struct node *n = value;
        for (uint64_t k = prng_below(r, 4); k > 0; k--) {
            struct pointer *p = &n->children[prng_below(r, map_fanout(n->level))];
            if (!pointer_has_bytes(p))
                continue;
            p->address = prng_chance(r, 500) ? prng_u64(r) >> (1 + prng_below(r, 50)) : p->address + prng_below(r, 99);
            if (prng_chance(r, 300))
                *p = n->children[prng_below(r, map_fanout(n->level))];
        }
    }
    if (object == IMAGE_TABLE && prng_chance(r, 500)) {
        struct slot *slots = value, *a = &slots[prng_below(r, 8)], *b = &slots[prng_below(r, 8)];
        const struct slot was = *a;
        *a = *b;
        if (prng_chance(r, 500))
            *b = was;
    }
    if (object == IMAGE_DATA_CHUNK) {
        struct image_chunk *c = value;
        if (prng_chance(r, 100))
            c->header.next_slots[0] = (uint32_t)prng_below(r, 60);
        if (prng_chance(r, 100))
            c->entries[prng_below(r, c->entry_count)].branch += prng_below(r, 3);
    }
}

static void test_hostile(void)
{
    struct prng r;
    prng_seed(&r, seed_choose());
    for (unsigned round = 0; round < 100; round++) {
        struct image *img = image_new();
        img->tamper_arg = &r;
        img->label_flags = round % 4 < 2 ? LABEL_CLEAN : 0;
        image_volume(img, "alpha", 1000 * 4096, 4096);
        image_volume(img, "beta", 50 * 16384, 16384);
        img->tamper = tamper_anything;
        for (unsigned i = 0; i < 8; i++) {
            for (unsigned k = 0; k < 4; k++) {
                image_write(img, 0, prng_below(&r, 1000), (int)k);
                image_write(img, 1, prng_below(&r, 50), (int)k);
            }
            image_seal(img);
            if (i % 3 == 2)
                image_checkpoint(img);
        }
        if (round % 8 < 4)
            image_checkpoint(img);
        /* Both copies of a leaf. */
        const struct pointer *leaf = &img->volumes[round % 2].leaves[0];
        if (leaf->kind == POINTER_NODE && round % 3 > 0) {
            image_damage(img, image_offset(img, leaf->address), leaf->length);
            image_damage(img, image_offset(img, leaf->address) + IMAGE_UNIT_BYTES, leaf->length);
        }
        check_any(img, round % 2 == 1);
        image_free(img);
    }
}

int main(void)
{
    RUN(test_nothing_to_do);
    RUN(test_labels);
    RUN(test_node_copies);
    RUN(test_data_halves);
    RUN(test_rebuild);
    RUN(test_rebuild_with_little_room);
    RUN(test_rebuild_impossible);
    RUN(test_rebuild_from_version);
    RUN(test_every_position);
    RUN(test_refusals);
    RUN(test_random_damage);
    RUN(test_hostile);
    return tap_done();
}
