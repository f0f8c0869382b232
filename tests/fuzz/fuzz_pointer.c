/*
 * Fuzz target: a pointer of 32 bytes. What is taken must encode to the same bytes.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "format_objects.h"

int fuzz_one(const uint8_t *bytes, size_t n)
{
    struct source in = source_of(bytes, n);
    struct pointer p;
    if (pointer_decode(&in, &p) != 0)
        return 0;
    CHECK(pointer_valid(&p));
    CHECK_EQ(in.position, POINTER_BYTES);
    uint8_t again[POINTER_BYTES];
    struct sink out = sink_of(again, sizeof(again));
    pointer_encode(&out, &p);
    CHECK(!out.bad);
    CHECK(memcmp(again, bytes, POINTER_BYTES) == 0);
    return 1;
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    const struct pointer p = random_pointer(r, random_pointer_kind(r));
    struct sink out = sink_of(buf, POINTER_BYTES);
    pointer_encode(&out, &p);
    return POINTER_BYTES;
}
