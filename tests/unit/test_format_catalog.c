/*
 * Catalog objects and volume names: round trip, tags, what is refused.
 */
#include "tap.h"
#include "seed.h"

#include <errno.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format_objects.h"

static uint64_t seed;
static uint8_t buf[CATALOG_OBJECT_BYTES_MAX], back[CATALOG_OBJECT_BYTES_MAX];

static bool volumes_equal(const struct catalog_volume *a, const struct catalog_volume *b)
{
    return a->object_id == b->object_id && a->branch == b->branch && memcmp(a->guid, b->guid, 16) == 0 &&
           strcmp(a->name, b->name) == 0 && a->size_bytes == b->size_bytes && a->record_bytes == b->record_bytes &&
           a->codec.id == b->codec.id && a->codec.level == b->codec.level && a->created_wall_ns == b->created_wall_ns &&
           a->height == b->height && pointer_equal(&a->root, &b->root) && a->mapped_records == b->mapped_records &&
           a->stored_bytes == b->stored_bytes && a->node_bytes == b->node_bytes &&
           a->provisioned_records == b->provisioned_records;
}

static void test_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 5000; i++) {
        const struct catalog_volume v = random_volume(&r);
        struct catalog_volume w;
        memset(buf, 0, sizeof(buf));
        const size_t n = catalog_volume_encode(&v, buf, sizeof(buf));
        REQUIRE(n <= CATALOG_OBJECT_BYTES_MAX);
        REQUIRE(catalog_volume_decode(buf, n, v.object_id, &w, NULL) == 0);
        REQUIRE(volumes_equal(&v, &w));
        /* Zeroes may follow, up to the largest object; nothing else. */
        REQUIRE(catalog_volume_decode(buf, n + 1, v.object_id, &w, NULL) == 0);
        REQUIRE(catalog_volume_decode(buf, n + 2, v.object_id, &w, NULL) == 0);
        REQUIRE(catalog_volume_decode(buf, sizeof(buf), v.object_id, &w, NULL) == 0);
        buf[sizeof(buf) - 1] = 1;
        REQUIRE(catalog_volume_decode(buf, sizeof(buf), v.object_id, &w, NULL) == -EBADMSG);
        REQUIRE(catalog_volume_decode(buf, n, v.object_id + 1, &w, NULL) == -EBADMSG);
        REQUIRE(catalog_volume_decode(buf, sizeof(buf) + 1, v.object_id, &w, NULL) == -EBADMSG);
    }
}

static void test_flips_and_truncation(void)
{
    struct prng r;
    prng_seed(&r, seed);
    const struct catalog_volume v = random_volume(&r);
    struct catalog_volume w;
    const size_t n = catalog_volume_encode(&v, buf, sizeof(buf));
    for (size_t cut = 0; cut < n; cut++)
        EXPECT_EQ(catalog_volume_decode(buf, cut, v.object_id, &w, NULL), -EBADMSG);
    unsigned refused = 0;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (catalog_volume_decode(buf, n, v.object_id, &w, NULL) != 0)
            refused++;
        else
            REQUIRE(catalog_volume_encode(&w, back, sizeof(back)) == n);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    EXPECT(refused > 0);
}

static struct catalog_volume plain_volume(void)
{
    const struct catalog_volume v = {.object_id = 16,
                                     .branch = 17,
                                     .name = "home",
                                     .size_bytes = 1 << 30,
                                     .record_bytes = 16384,
                                     .codec = {CODEC_ZSTD, 3},
                                     .height = 3};
    return v;
}

/* Encodes a plain volume, lets the caller's change be made, decodes. */
static int decode_with_u16(size_t offset, uint16_t value, struct error *err)
{
    const struct catalog_volume v = plain_volume();
    struct catalog_volume w;
    const size_t n = catalog_volume_encode(&v, buf, sizeof(buf));
    struct sink out = sink_of(buf + offset, 2);
    sink_u16(&out, value);
    return catalog_volume_decode(buf, n, v.object_id, &w, err);
}

static int decode_with_extra_tag(uint16_t tag, struct error *err)
{
    const struct catalog_volume v = plain_volume();
    struct catalog_volume w;
    const size_t n = catalog_volume_encode(&v, buf, sizeof(buf));
    struct sink out = sink_of(buf + n, 7);
    sink_u16(&out, tag);
    sink_u16(&out, 3);
    sink_copy(&out, "abc", 3);
    const int r = catalog_volume_decode(buf, n + 7, v.object_id, &w, err);
    if (r == 0)
        EXPECT(volumes_equal(&v, &w));
    return r;
}

static void test_tags(void)
{
    struct error err = {0};
    EXPECT_EQ(decode_with_u16(4, CATALOG_VOLUME, NULL), 0);
    EXPECT_EQ(decode_with_u16(4, CATALOG_SNAPSHOT, &err), -EOPNOTSUPP);
    EXPECT_TEXT(err.text, "catalog object of unknown kind 2: a newer program is needed");
    EXPECT_EQ(decode_with_u16(6, 2, NULL), -EOPNOTSUPP);
    EXPECT_EQ(decode_with_u16(6, 0, NULL), -EBADMSG);
    EXPECT_EQ(decode_with_u16(0, 0x8002, NULL), -EBADMSG); /* the kind is not first */
    EXPECT_EQ(decode_with_u16(0, 1, NULL), 0);             /* a known tag needs no bit */
    EXPECT_EQ(decode_with_extra_tag(12, NULL), 0);
    EXPECT_EQ(decode_with_extra_tag(0x7fff, NULL), 0);
    EXPECT_EQ(decode_with_extra_tag(0x800c, NULL), -EOPNOTSUPP);
    EXPECT_EQ(decode_with_extra_tag(0x800b, NULL), -EBADMSG); /* twice */
    EXPECT_EQ(decode_with_extra_tag(0x8000, NULL), -EBADMSG);
    EXPECT_EQ(decode_with_extra_tag(0, NULL), -EBADMSG);
}

/* Changes one encoded byte of a plain volume. Offsets: doc/format/catalog.md, with a name of 4 bytes. */
static int decode_with_byte(size_t offset, uint8_t value)
{
    const struct catalog_volume v = plain_volume();
    struct catalog_volume w;
    const size_t n = catalog_volume_encode(&v, buf, sizeof(buf));
    buf[offset] = value;
    return catalog_volume_decode(buf, n, v.object_id, &w, NULL);
}

static void test_values(void)
{
    enum { BRANCH = 24, NAME = 56, SIZE = 64, RECORD = 76, CODEC = 84, HEIGHT = 102, ROOT = 103 };
    EXPECT_EQ(decode_with_byte(BRANCH, 16), 0);
    EXPECT_EQ(decode_with_byte(BRANCH, 15), -EBADMSG);
    EXPECT_EQ(decode_with_byte(NAME, 'H'), 0);
    EXPECT_EQ(decode_with_byte(NAME, '/'), -EBADMSG);
    EXPECT_EQ(decode_with_byte(NAME, 0), -EBADMSG);
    EXPECT_EQ(decode_with_byte(NAME + 3, 0), -EBADMSG);
    EXPECT_EQ(decode_with_byte(SIZE, 1), -EBADMSG);
    EXPECT_EQ(decode_with_byte(SIZE + 1, 2), 0);
    EXPECT_EQ(decode_with_byte(SIZE + 1, 1), -EBADMSG);
    EXPECT_EQ(decode_with_byte(SIZE + 3, 0), -EBADMSG); /* empty */
    EXPECT_EQ(decode_with_byte(SIZE + 7, 0x40), -EBADMSG);
    EXPECT_EQ(decode_with_byte(RECORD + 1, 0x20), 0);
    EXPECT_EQ(decode_with_byte(RECORD + 1, 0x08), -EBADMSG); /* 2 KiB */
    EXPECT_EQ(decode_with_byte(RECORD + 1, 0x60), -EBADMSG);
    EXPECT_EQ(decode_with_byte(CODEC, CODEC_LZ4), -EBADMSG); /* lz4 at level 3 */
    EXPECT_EQ(decode_with_byte(CODEC, 3), -EBADMSG);
    EXPECT_EQ(decode_with_byte(CODEC + 1, 19), 0);
    EXPECT_EQ(decode_with_byte(CODEC + 1, 20), -EBADMSG);
    EXPECT_EQ(decode_with_byte(CODEC + 1, 0), -EBADMSG);
    EXPECT_EQ(decode_with_byte(CODEC + 1, 0xfb), 0);
    EXPECT_EQ(decode_with_byte(CODEC + 1, 0xfa), -EBADMSG);
    EXPECT_EQ(decode_with_byte(HEIGHT, 3), 0);
    EXPECT_EQ(decode_with_byte(HEIGHT, 7), 0);
    EXPECT_EQ(decode_with_byte(HEIGHT, 2), -EBADMSG); /* 65536 records need 3 levels */
    EXPECT_EQ(decode_with_byte(HEIGHT, 8), -EBADMSG);
    EXPECT_EQ(decode_with_byte(ROOT, 1), -EBADMSG);
    EXPECT_EQ(decode_with_byte(ROOT + 11, POINTER_HOLE), 0);
    EXPECT_EQ(decode_with_byte(ROOT + 11, POINTER_PROVISIONED), 0);
    EXPECT_EQ(decode_with_byte(ROOT + 11, POINTER_LOST), 0);
    EXPECT_EQ(decode_with_byte(ROOT + 11, POINTER_DATA), -EBADMSG);
}

static void test_heights(void)
{
    EXPECT_EQ(map_height_for(0), 1);
    EXPECT_EQ(map_height_for(1), 1);
    EXPECT_EQ(map_height_for(128), 1);
    EXPECT_EQ(map_height_for(129), 2);
    EXPECT_EQ(map_height_for(128 * 256), 2);
    EXPECT_EQ(map_height_for(128 * 256 + 1), 3);
    EXPECT_EQ(map_height_for(VOLUME_BYTES_MAX / RECORD_BYTES_MIN), 7);
    EXPECT_EQ(map_height_for(UINT64_C(1) << 55), 7);
}

static void test_names(void)
{
    char name[VOLUME_NAME_BYTES_MAX + 2];
    struct error err = {0};
    memset(name, 'a', sizeof(name));
    name[VOLUME_NAME_BYTES_MAX] = '\0';
    EXPECT_EQ(volume_name_check(name, NULL), 0);
    name[VOLUME_NAME_BYTES_MAX] = 'a';
    name[VOLUME_NAME_BYTES_MAX + 1] = '\0';
    EXPECT_EQ(volume_name_check(name, &err), -EINVAL);
    EXPECT_TEXT(err.text, "volume name of 241 bytes: at most 240 are allowed");
    EXPECT_EQ(volume_name_check("", NULL), -EINVAL);
    EXPECT_EQ(volume_name_check(".", NULL), -EINVAL);
    EXPECT_EQ(volume_name_check("..", NULL), -EINVAL);
    EXPECT_EQ(volume_name_check("...", NULL), 0);
    EXPECT_EQ(volume_name_check("-", NULL), 0);
    unsigned allowed = 0;
    for (int c = 1; c < 256; c++) {
        const char text[] = {'x', (char)c, '\0'};
        allowed += volume_name_check(text, NULL) == 0;
    }
    EXPECT_EQ(allowed, 26 + 26 + 10 + 5);
    err = (struct error){0};
    EXPECT_EQ(volume_name_check("a/b", &err), -EINVAL);
    EXPECT_TEXT(err.text, "volume name with '/' at byte 1: allowed are A-Z a-z 0-9 . _ : + -");
    err = (struct error){0};
    EXPECT_EQ(volume_name_check("a\n", &err), -EINVAL);
    EXPECT_TEXT(err.text, "volume name with byte 0x0a at byte 1: allowed are A-Z a-z 0-9 . _ : + -");
}

int main(void)
{
    seed = seed_choose();
    RUN(test_round_trip);
    RUN(test_flips_and_truncation);
    RUN(test_tags);
    RUN(test_values);
    RUN(test_heights);
    RUN(test_names);
    return tap_done();
}
