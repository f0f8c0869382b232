/*
 * Fuzz target: a chunk's header, table and footer. Input: write unit (as a power), then the chunk from its header on.
 * Given to the decoders as it is, then with header and table's checksum made right. The encoding is canonical: what is
 * taken must encode to the same header and table.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "format_objects.h"

#define CHECKSUM_BYTES 16
#define PAYLOAD_BYTES_MAX (64 * 1024)

static void repair(uint8_t *chunk, const struct chunk_header *h)
{
    const size_t summed_bytes = CHUNK_HEADER_BYTES - CHECKSUM_BYTES;
    const struct checksum c =
        checksum_chain(checksum_of(chunk, summed_bytes), chunk + CHUNK_HEADER_BYTES, h->table_bytes);
    struct sink out = sink_of(chunk + summed_bytes, CHECKSUM_BYTES);
    sink_u64(&out, c.low);
    sink_u64(&out, c.high);
}

static void check_offsets(const struct chunk_header *h, const struct chunk_entry *entries)
{
    uint64_t offset = CHUNK_HEADER_BYTES + (uint64_t)h->table_bytes;
    for (size_t i = 0; i < h->entry_count; i++) {
        CHECK_EQ(entries[i].payload_offset, entries[i].length > 0 ? offset : 0);
        offset += entries[i].length;
    }
    CHECK_LE(offset, h->chunk_bytes);
}

/* Of n bytes, the first of which are a header; 0 if it or its table is refused. */
static int decode(const uint8_t *chunk, size_t n, uint32_t write_unit_bytes, struct chunk_header *h)
{
    static struct chunk_entry entries[CHUNK_ENTRIES_MAX];
    static uint8_t again[CHUNK_BYTES_MAX];
    struct error err = {0};
    int r = chunk_header_decode(chunk, n, write_unit_bytes, h, &err);
    if (r == 0)
        r = chunk_table_decode(chunk, n, h, entries, &err);
    if (r != 0) {
        CHECK_EQ(err.code, r);
        CHECK(err.text[0] != '\0');
        return 0;
    }
    check_offsets(h, entries);
    struct chunk_header same = *h;
    chunk_encode(&same, entries, h->entry_count, again, write_unit_bytes);
    CHECK(memcmp(again, chunk, CHUNK_HEADER_BYTES + h->table_bytes) == 0);
    CHECK_EQ(same.chunk_bytes, h->chunk_bytes);
    return 1;
}

static void look_for_footer(const uint8_t *bytes, size_t n)
{
    if (n < CHUNK_FOOTER_BYTES)
        return;
    uint64_t address = 0;
    uint32_t chunk_bytes = 0, trailer_bytes = 0;
    if (chunk_footer_decode(bytes + n - CHUNK_FOOTER_BYTES, &address, &chunk_bytes, &trailer_bytes) != 0)
        return;
    CHECK_LE(chunk_bytes, CHUNK_BYTES_MAX);
    CHECK_GE(trailer_bytes, CHUNK_HEADER_BYTES);
    CHECK_LE(trailer_bytes + CHUNK_FOOTER_BYTES, chunk_bytes);
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    if (n < 1)
        return 0;
    const uint32_t write_unit_bytes = WRITE_UNIT_BYTES_MIN << bytes[0] % 5;
    const uint8_t *chunk = bytes + 1;
    n--;
    look_for_footer(chunk, n);
    struct chunk_header h;
    if (decode(chunk, n, write_unit_bytes, &h) == 1)
        return 1;
    if (chunk_header_decode(chunk, n, write_unit_bytes, &h, NULL) != 0 || n < CHUNK_HEADER_BYTES + h.table_bytes)
        return 0;
    static uint8_t repaired[CHUNK_HEADER_BYTES + CHUNK_BYTES_MAX];
    memcpy(repaired, chunk, CHUNK_HEADER_BYTES + h.table_bytes);
    repair(repaired, &h);
    return decode(repaired, CHUNK_HEADER_BYTES + h.table_bytes, write_unit_bytes, &h);
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    static struct chunk_entry entries[512];
    const uint32_t write_unit_bytes = random_write_unit(r);
    buf[0] = 0;
    while ((uint32_t)WRITE_UNIT_BYTES_MIN << buf[0] != write_unit_bytes)
        buf[0]++;
    const enum chunk_head head = prng_chance(r, 600) ? CHUNK_HEAD_DATA : CHUNK_HEAD_NODE;
    const uint32_t special = head == CHUNK_HEAD_DATA ? CHUNK_FLAG_BRIDGE : CHUNK_FLAG_COPY;
    const uint32_t flags = prng_chance(r, 100) ? special : 0;
    struct chunk_header h = random_chunk_header(r, head, flags, write_unit_bytes);
    const size_t count =
        random_chunk_entries(r, head, flags, 1 + random_magnitude(r, 8), PAYLOAD_BYTES_MAX / 2, entries);
    /* Payload is not looked at; the whole chunk is within the input's room. */
    static uint8_t chunk[CHUNK_BYTES_MAX];
    chunk_encode(&h, entries, count, chunk, write_unit_bytes);
    size_t n = CHUNK_HEADER_BYTES + h.table_bytes;
    if (prng_chance(r, 300) && h.chunk_bytes < FUZZ_INPUT_BYTES_MAX)
        n = h.chunk_bytes;
    memcpy(buf + 1, chunk, n);
    return 1 + n;
}
