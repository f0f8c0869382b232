/*
 * Fuzz target: a chunk's header, table, echo and footer. Input: write unit (as a power), then the chunk from its header
 * on. Given to the decoders as it is, then with header and table's checksum made right. The encoding is canonical: what
 * is taken must encode to the same header and table.
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
    uint64_t offset = CHUNK_HEADER_BYTES + (uint64_t)h->table_bytes + h->echo_bytes;
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

/* The echo, as it is and as that of the chunk before whatever it holds: its checksum and the name of it made right. */
static void look_at_echo(const uint8_t *chunk, size_t n, const struct chunk_header *h, uint32_t write_unit_bytes)
{
    static struct chunk_entry entries[CHUNK_ENTRIES_MAX];
    static uint8_t repaired[CHUNK_HEADER_BYTES + CHUNK_BYTES_MAX];
    const size_t at = CHUNK_HEADER_BYTES + (size_t)h->table_bytes;
    struct chunk_header echo, name = *h;
    if (h->echo_bytes == 0 || n < at + h->echo_bytes)
        return;
    (void)chunk_echo_decode(chunk, n, h, write_unit_bytes, &echo, entries);
    memcpy(repaired, chunk, at + h->echo_bytes);
    if (chunk_header_decode(repaired + at, h->echo_bytes, write_unit_bytes, &echo, NULL) != 0 ||
        CHUNK_HEADER_BYTES + echo.table_bytes != h->echo_bytes)
        return;
    repair(repaired + at, &echo);
    CHECK_EQ(chunk_header_decode(repaired + at, h->echo_bytes, write_unit_bytes, &echo, NULL), 0);
    name.previous_chain = echo.chain;
    memcpy(name.pool_uuid, echo.pool_uuid, sizeof(name.pool_uuid));
    if (chunk_echo_decode(repaired, at + h->echo_bytes, &name, write_unit_bytes, &echo, entries) != 0)
        return;
    CHECK_EQ(echo.chunk_bytes, write_unit_bytes);
    check_offsets(&echo, entries);
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
    if (decode(chunk, n, write_unit_bytes, &h) == 1) {
        look_at_echo(chunk, n, &h, write_unit_bytes);
        return 1;
    }
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
    static uint8_t chunk[CHUNK_BYTES_MAX], before[WRITE_UNIT_BYTES_MAX];
    if (h.echo_bytes != 0) {
        struct chunk_header small = random_chunk_header(r, head, 0, write_unit_bytes);
        const struct chunk_entry trim = {.kind = ENTRY_TRIM, .branch = 16, .index = 1, .count = 1};
        small.echo_bytes = 0;
        chunk_encode(&small, &trim, 1, before, write_unit_bytes);
        h.echo_bytes = CHUNK_HEADER_BYTES + small.table_bytes;
        h.previous_chain = small.chain;
        memcpy(h.pool_uuid, small.pool_uuid, sizeof(h.pool_uuid));
        memcpy(chunk + CHUNK_HEADER_BYTES + chunk_table_bytes(entries, count), before, h.echo_bytes);
    }
    chunk_encode(&h, entries, count, chunk, write_unit_bytes);
    size_t n = CHUNK_HEADER_BYTES + h.table_bytes + h.echo_bytes;
    if (prng_chance(r, 300) && h.chunk_bytes < FUZZ_INPUT_BYTES_MAX)
        n = h.chunk_bytes;
    memcpy(buf + 1, chunk, n);
    return 1 + n;
}
