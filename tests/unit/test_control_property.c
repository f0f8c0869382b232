/*
 * Properties: names and hints, values that are taken and refused, JSON and text of volumes and pools.
 */
#include "base/error.h"
#include "base/math.h"
#include "front/control/property.h"
#include "pool/pool.h"
#include "tap.h"

static void test_find(void)
{
    const struct property *p;
    struct error err = {0};
    EXPECT_EQ(property_find(PROPERTY_OF_VOLUME, "record-size", &p, &err), 0);
    EXPECT_TEXT(p->name, "record-size");
    EXPECT_EQ(property_find(PROPERTY_OF_VOLUME, "recordsize", &p, &err), -EINVAL);
    EXPECT(strstr(err.text, "did you mean 'record-size'?") != NULL);
    err = (struct error){0};
    EXPECT_EQ(property_find(PROPERTY_OF_POOL, "record-size", &p, &err), -EINVAL);
    EXPECT(strstr(err.text, "of a pool") != NULL);
}

static void test_at_create(void)
{
    static const struct {
        const char *name, *value;
        int code;
        const char *says;
    } cases[] = {
        {"compression", "zstd-19", 0, ""},
        {"compression", "zstd-20", -EINVAL, "zstd"},
        {"compression", "gzip", -EINVAL, "zstd"},
        {"record-size", "4K", 0, ""},
        {"record-size", "1M", 0, ""},
        {"record-size", "1048576", 0, ""},
        {"record-size", "2M", -EINVAL, "power of two from 4K to 1M"},
        {"record-size", "2K", -EINVAL, "power of two from 4K to 1M"},
        {"record-size", "12K", -EINVAL, "power of two from 4K to 1M"},
        {"record-size", "0", -EINVAL, "power of two from 4K to 1M"},
        {"record-size", "16KB", -EINVAL, "1024"},
        {"record-size", "-16K", -EINVAL, "record-size"},
        {"size", "10G", -EINVAL, "argument of its own"},
        {"guid", "x", -EINVAL, "read-only"},
        {"compresion", "lz4", -EINVAL, "did you mean 'compression'?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct volume_settings settings = {0};
        struct error err = {0};
        EXPECT_EQ(property_set_at_create(cases[i].name, cases[i].value, &settings, &err), cases[i].code);
        EXPECT_EQ(err.code, cases[i].code);
        if (strstr(err.text, cases[i].says) == NULL)
            tap_fail(__FILE__, __LINE__, err.text);
    }
    struct volume_settings settings = {0};
    EXPECT_EQ(property_set_at_create("compression", "zstd-19", &settings, NULL), 0);
    EXPECT_EQ(settings.codec.id, CODEC_ZSTD);
    EXPECT_EQ(settings.codec.level, 19);
    EXPECT_EQ(property_set_at_create("record-size", "128K", &settings, NULL), 0);
    EXPECT_EQ(settings.record_bytes, 128 * KIB);
}

static void test_change(void)
{
    struct property_changes changes = {0};
    struct error err = {0};
    EXPECT_EQ(property_change_take("compression", "lz4", &changes, &err), 0);
    EXPECT(changes.set_codec);
    EXPECT(!changes.set_size);
    EXPECT_EQ(property_change_take("size", "3G", &changes, &err), 0);
    EXPECT(changes.set_size);
    EXPECT_EQ(changes.size_bytes, 3 * GIB);
    EXPECT_EQ(property_change_take("record-size", "4K", &changes, &err), -EINVAL);
    EXPECT(strstr(err.text, "fixed when") != NULL);
    err = (struct error){0};
    EXPECT_EQ(property_change_take("used", "4K", &changes, &err), -EINVAL);
    EXPECT(strstr(err.text, "read-only") != NULL);
}

static void test_pool_at_create(void)
{
    struct pool_create_options options = {0};
    struct error err = {0};
    EXPECT_EQ(property_set_pool_at_create("segment-size", "1M", &options, &err), 0);
    EXPECT_EQ(options.segment_bytes, MIB);
    EXPECT_EQ(property_set_pool_at_create("write-unit", "8K", &options, &err), 0);
    EXPECT_EQ(options.write_unit_bytes, 8 * KIB);
    EXPECT_EQ(property_set_pool_at_create("write-unit", "512", &options, &err), -EINVAL);
    EXPECT_EQ(property_set_pool_at_create("segment-size", "3M", &options, NULL), -EINVAL);
    EXPECT_EQ(property_set_pool_at_create("compression", "lz4", &options, NULL), -EINVAL);
}

static void test_volume_to_json(void)
{
    struct volume_info info = {.name = "disk",
                               .size_bytes = 10 * GIB,
                               .record_bytes = 16 * KIB,
                               .codec = {CODEC_ZSTD, 3},
                               .created_wall_ns = UINT64_C(1700000000) * 1000000000,
                               .mapped_bytes = 3000,
                               .stored_bytes = 1000,
                               .metadata_bytes = 10,
                               .reserved_bytes = 100};
    json_t *value = property_volume_to_json(&info);
    REQUIRE(value != NULL);
    /* Every property of the table is there, and nothing else. */
    size_t count = 0;
    for (const struct property *p = property_table(PROPERTY_OF_VOLUME); p->name != NULL; p++, count++)
        if (json_object_get(value, p->name) == NULL)
            tap_fail(__FILE__, __LINE__, p->name);
    EXPECT_EQ(json_object_size(value), count);
    EXPECT_EQ(json_integer_value(json_object_get(value, "used")), 1110);
    EXPECT_EQ(json_integer_value(json_object_get(value, "referenced")), 1010);
    EXPECT_TEXT(json_string_value(json_object_get(value, "compression")), "zstd-3");
    EXPECT_TEXT(json_string_value(json_object_get(value, "created")), "2023-11-14T22:13:20Z");
    char buf[64];
    EXPECT_TEXT(property_value_format(PROPERTY_RATIO, json_object_get(value, "compression-ratio"), buf, sizeof(buf)),
                "3.00");
    EXPECT_TEXT(property_value_format(PROPERTY_BYTES, json_object_get(value, "size"), buf, sizeof(buf)), "10G");
    EXPECT_TEXT(property_value_format(PROPERTY_BYTES, NULL, buf, sizeof(buf)), "-");
    json_decref(value);
}

static void test_pool_to_json(void)
{
    struct pool_info info = {.size_bytes = 100, .usable_bytes = 90, .free_bytes = 95};
    json_t *value = property_pool_to_json(&info, "/x/pool", 1);
    REQUIRE(value != NULL);
    size_t count = 0;
    for (const struct property *p = property_table(PROPERTY_OF_POOL); p->name != NULL; p++, count++)
        if (json_object_get(value, p->name) == NULL)
            tap_fail(__FILE__, __LINE__, p->name);
    EXPECT_EQ(json_object_size(value), count);
    EXPECT_EQ(json_integer_value(json_object_get(value, "used")), 0); /* never below 0 */
    json_decref(value);
}

static void test_ratio(void)
{
    EXPECT(property_ratio(0, 0) == 1.0);
    EXPECT(property_ratio(10, 0) == 1.0);
    EXPECT(property_ratio(2500, 1000) == 2.5);
    EXPECT(property_ratio(1, 3) < 0.334);
}

int main(void)
{
    RUN(test_find);
    RUN(test_at_create);
    RUN(test_change);
    RUN(test_pool_at_create);
    RUN(test_volume_to_json);
    RUN(test_pool_to_json);
    RUN(test_ratio);
    return tap_done();
}
