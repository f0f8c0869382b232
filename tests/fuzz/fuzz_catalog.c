/*
 * Fuzz target: a catalog object. Input: its id (8 bytes), then the object. Objects carry no checksum of their own
 * (their pointer does). What is taken must encode to something that decodes to the same; names go through their own
 * check as well.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "format_objects.h"

static void check_some_name(const uint8_t *bytes, size_t n)
{
    char name[VOLUME_NAME_BYTES_MAX + 8];
    const size_t length = n < sizeof(name) ? n : sizeof(name) - 1;
    memcpy(name, bytes, length);
    name[length] = '\0';
    struct error err = {0};
    const int r = volume_name_check(name, &err);
    CHECK(r == 0 || r == -EINVAL);
    CHECK_EQ(err.code, r);
    if (r == 0)
        CHECK_LE(strlen(name), VOLUME_NAME_BYTES_MAX);
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    struct source in = source_of(bytes, n);
    const uint64_t object_id = source_u64(&in);
    const size_t object_bytes = source_left(&in);
    if (in.bad)
        return 0;
    const uint8_t *object = bytes + 8;
    check_some_name(object, object_bytes);
    struct error err = {0};
    struct catalog_volume v, again;
    const int r = catalog_volume_decode(object, object_bytes, object_id, &v, &err);
    if (r != 0) {
        CHECK(r == -EBADMSG || r == -EOPNOTSUPP);
        CHECK_EQ(err.code, r);
        return 0;
    }
    uint8_t first[CATALOG_OBJECT_BYTES_MAX], second[CATALOG_OBJECT_BYTES_MAX];
    const size_t first_bytes = catalog_volume_encode(&v, first, sizeof(first));
    CHECK_EQ(catalog_volume_decode(first, first_bytes, object_id, &again, NULL), 0);
    const size_t second_bytes = catalog_volume_encode(&again, second, sizeof(second));
    CHECK_EQ(first_bytes, second_bytes);
    CHECK(memcmp(first, second, first_bytes) == 0);
    return 1;
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    const struct catalog_volume v = random_volume(r);
    struct sink out = sink_of(buf, 8);
    sink_u64(&out, v.object_id);
    size_t n = 8 + catalog_volume_encode(&v, buf + 8, CATALOG_OBJECT_BYTES_MAX);
    /* Objects may be followed by zeroes. */
    if (prng_chance(r, 200)) {
        memset(buf + n, 0, 64);
        n += 64;
    }
    return n;
}
