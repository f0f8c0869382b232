/*
 * Chunks: round trip, single-bit flips, canonical tables, sizes, where the trailer lies.
 */
#include "tap.h"
#include "seed.h"

#include <errno.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/math.h"
#include "format_objects.h"

#define UNIT 4096

static uint64_t seed;
static uint8_t buf[CHUNK_BYTES_MAX];
static struct chunk_entry entries[CHUNK_ENTRIES_MAX], again[CHUNK_ENTRIES_MAX];

static bool entries_equal(const struct chunk_entry *a, const struct chunk_entry *b)
{
    return a->kind == b->kind && a->level == b->level && a->codec == b->codec && a->codec_param == b->codec_param &&
           a->flags == b->flags && a->branch == b->branch && a->index == b->index && a->count == b->count &&
           a->first_sector == b->first_sector && a->sector_count == b->sector_count && a->length == b->length &&
           checksum_equal(a->checksum, b->checksum);
}

static struct chunk_header plain_header(enum chunk_head head)
{
    struct chunk_header h = {.head = (uint8_t)head, .address = 9 * UNIT, .incarnation = 5};
    for (int k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        h.next_slots[k] = SLOT_NONE;
    return h;
}

static struct chunk_entry data_entry(uint64_t branch, uint64_t index, uint32_t length)
{
    return (struct chunk_entry){.kind = ENTRY_DATA,
                                .codec = CODEC_LZ4,
                                .branch = branch,
                                .index = index,
                                .count = 1,
                                .length = length,
                                .checksum = {.low = index, .high = ~index}};
}

static int decode(struct chunk_header *h, uint32_t unit)
{
    int r = chunk_header_decode(buf, CHUNK_HEADER_BYTES, unit, h, NULL);
    return r != 0 ? r : chunk_table_decode(buf, CHUNK_HEADER_BYTES + h->table_bytes, h, again, NULL);
}

static bool headers_equal(const struct chunk_header *a, const struct chunk_header *b)
{
    return a->head == b->head && a->flags == b->flags && memcmp(a->pool_uuid, b->pool_uuid, 16) == 0 &&
           a->address == b->address && a->incarnation == b->incarnation &&
           checksum_equal(a->previous_chain, b->previous_chain) && a->durable_to == b->durable_to &&
           a->wall_ns == b->wall_ns && a->features == b->features && a->sequence == b->sequence &&
           a->chunk_bytes == b->chunk_bytes && a->table_bytes == b->table_bytes &&
           a->payload_bytes == b->payload_bytes && a->entry_count == b->entry_count && a->echo_bytes == b->echo_bytes &&
           memcmp(a->next_slots, b->next_slots, sizeof(a->next_slots)) == 0 &&
           a->next_segments_first == b->next_segments_first &&
           memcmp(a->next_segment_deltas, b->next_segment_deltas, sizeof(a->next_segment_deltas)) == 0 &&
           checksum_equal(a->chain, b->chain);
}

/* Trailer and footer say the same as header and table, and are found from the end. */
static void expect_trailer(const struct chunk_header *h, uint32_t unit)
{
    uint64_t address = 0;
    uint32_t chunk_bytes = 0, trailer_bytes = 0;
    uint8_t *footer = buf + h->chunk_bytes - CHUNK_FOOTER_BYTES;
    REQUIRE(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes) == 0);
    REQUIRE(address == h->address && chunk_bytes == h->chunk_bytes);
    REQUIRE(trailer_bytes == CHUNK_HEADER_BYTES + h->table_bytes);
    REQUIRE(memcmp(footer - trailer_bytes, buf, trailer_bytes) == 0);
    struct chunk_header t;
    REQUIRE(chunk_header_decode(footer - trailer_bytes, trailer_bytes, unit, &t, NULL) == 0);
    REQUIRE(chunk_table_decode(footer - trailer_bytes, trailer_bytes, &t, again, NULL) == 0);
    REQUIRE(headers_equal(&t, h));
    REQUIRE(chunk_footer_matches(footer, &t));
    for (unsigned bit = 0; bit < 8 * CHUNK_FOOTER_BYTES; bit++) {
        footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        REQUIRE(!chunk_footer_matches(footer, &t));
        footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void round_trip(struct prng *r, enum chunk_head head, uint32_t flags)
{
    const uint32_t unit = random_write_unit(r);
    struct chunk_header h = random_chunk_header(r, head, flags, unit), g;
    const size_t count =
        random_chunk_entries(r, head, flags, 1 + random_magnitude(r, 10), CHUNK_BYTES_MAX / 2 - 300 * 1024, entries);
    const size_t table_bytes = chunk_table_bytes(entries, count);
    memset(buf + CHUNK_HEADER_BYTES + table_bytes, 0xa5, sizeof(buf) - CHUNK_HEADER_BYTES - table_bytes);
    chunk_encode(&h, entries, count, buf, unit);
    REQUIRE(h.table_bytes == table_bytes && h.entry_count == count);
    REQUIRE(decode(&g, unit) == 0);
    REQUIRE(headers_equal(&h, &g));
    uint32_t offset = CHUNK_HEADER_BYTES + h.table_bytes + h.echo_bytes;
    for (size_t i = 0; i < count; i++) {
        REQUIRE(entries_equal(&entries[i], &again[i]));
        REQUIRE(again[i].payload_offset == (again[i].length > 0 ? offset : 0));
        offset += again[i].length;
    }
    REQUIRE(offset == CHUNK_HEADER_BYTES + h.table_bytes + h.echo_bytes + h.payload_bytes);
    /* Echo and payload were left alone, what follows them is zero. */
    for (uint32_t i = 0; i < h.echo_bytes + h.payload_bytes; i++)
        REQUIRE(buf[CHUNK_HEADER_BYTES + h.table_bytes + i] == 0xa5);
    uint32_t end = h.chunk_bytes;
    if (head == CHUNK_HEAD_DATA && h.chunk_bytes > unit)
        end -= CHUNK_FOOTER_BYTES + CHUNK_HEADER_BYTES + h.table_bytes;
    for (; offset < end; offset++)
        REQUIRE(buf[offset] == 0);
    if (end < h.chunk_bytes)
        expect_trailer(&h, unit);
}

static void test_round_trip(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 300; i++) {
        round_trip(&r, CHUNK_HEAD_DATA, i % 50 == 0 ? CHUNK_FLAG_BRIDGE : 0);
        round_trip(&r, CHUNK_HEAD_NODE, i % 2 == 0 ? CHUNK_FLAG_COPY : 0);
    }
}

static void test_largest_chunk(void)
{
    struct chunk_header h = plain_header(CHUNK_HEAD_DATA), g;
    for (size_t i = 0; i < CHUNK_ENTRIES_MAX; i++)
        entries[i] = (struct chunk_entry){
            .kind = ENTRY_TRIM, .branch = 16 + i % 2, .index = (UINT64_C(1) << 54) + i, .count = UINT64_C(1) << 54};
    for (size_t i = 0; i < CHUNK_ENTRIES_MAX; i++)
        entries[i].count -= i;
    chunk_encode(&h, entries, CHUNK_ENTRIES_MAX, buf, UNIT);
    EXPECT_EQ(decode(&g, UNIT), 0);
    EXPECT_EQ(g.entry_count, CHUNK_ENTRIES_MAX);
    EXPECT(entries_equal(&entries[CHUNK_ENTRIES_MAX - 1], &again[CHUNK_ENTRIES_MAX - 1]));
}

static void test_empty_chunk(void)
{
    struct chunk_header h = plain_header(CHUNK_HEAD_DATA), g;
    chunk_encode(&h, NULL, 0, buf, UNIT);
    EXPECT_EQ(h.chunk_bytes, UNIT);
    EXPECT_EQ(decode(&g, UNIT), 0);
    EXPECT_EQ(g.entry_count, 0);
}

static void expect_every_bit_refused(struct chunk_header *h)
{
    struct chunk_header g;
    const size_t front_bytes = CHUNK_HEADER_BYTES + h->table_bytes;
    REQUIRE(decode(&g, UNIT) == 0);
    for (size_t bit = 0; bit < 8 * front_bytes; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const int r = decode(&g, UNIT);
        REQUIRE(r == -ENODATA || r == -EBADMSG || r == -EOPNOTSUPP);
        REQUIRE(r != -ENODATA || bit / 8 < 8);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void test_every_bit(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (int i = 0; i < 20; i++) {
        const enum chunk_head head = i % 2 == 0 ? CHUNK_HEAD_DATA : CHUNK_HEAD_NODE;
        struct chunk_header h = random_chunk_header(&r, head, 0, UNIT);
        const size_t count = random_chunk_entries(&r, head, 0, 1 + (size_t)i, 65536, entries);
        chunk_encode(&h, entries, count, buf, UNIT);
        expect_every_bit_refused(&h);
    }
}

static void test_truncation(void)
{
    struct prng r;
    prng_seed(&r, seed);
    struct chunk_header h = random_chunk_header(&r, CHUNK_HEAD_DATA, 0, UNIT), g;
    const size_t count = random_chunk_entries(&r, CHUNK_HEAD_DATA, 0, 40, 65536, entries);
    chunk_encode(&h, entries, count, buf, UNIT);
    for (size_t n = 0; n < CHUNK_HEADER_BYTES; n++)
        EXPECT_EQ(chunk_header_decode(buf, n, UNIT, &g, NULL), -ENODATA);
    REQUIRE(chunk_header_decode(buf, CHUNK_HEADER_BYTES, UNIT, &g, NULL) == 0);
    for (size_t n = CHUNK_HEADER_BYTES; n < CHUNK_HEADER_BYTES + g.table_bytes; n++)
        EXPECT_EQ(chunk_table_decode(buf, n, &g, again, NULL), -EBADMSG);
    EXPECT_EQ(chunk_table_decode(buf, CHUNK_HEADER_BYTES + g.table_bytes, &g, again, NULL), 0);
}

/* ---- tables ---- */

/* A chunk of the data head around a hand-made table, checksum right; how its table decodes. */
static int decode_table(const uint8_t *table, size_t table_bytes, uint32_t entry_count, uint32_t payload_bytes,
                        enum chunk_head head, struct error *err)
{
    struct chunk_header h = plain_header(head), g;
    if (head == CHUNK_HEAD_DATA)
        entries[0] = data_entry(16, 0, 4000);
    else
        entries[0] =
            (struct chunk_entry){.kind = ENTRY_NODE, .branch = 1, .count = 1, .length = 4000, .checksum = {.low = 1}};
    chunk_encode(&h, entries, 1, buf, UNIT);
    struct sink out = sink_of(buf + 112 - 16, 16);
    sink_u32(&out, chunk_size_bytes(table_bytes, payload_bytes, UNIT, chunk_copy_of((uint8_t)head, 0)));
    sink_u32(&out, (uint32_t)table_bytes);
    sink_u32(&out, payload_bytes);
    sink_u32(&out, entry_count);
    memcpy(buf + CHUNK_HEADER_BYTES, table, table_bytes);
    const struct checksum chain = checksum_chain(checksum_of(buf, 176), buf + CHUNK_HEADER_BYTES, table_bytes);
    out = sink_of(buf + 176, 16);
    sink_u64(&out, chain.low);
    sink_u64(&out, chain.high);
    int r = chunk_header_decode(buf, CHUNK_HEADER_BYTES, UNIT, &g, err);
    return r != 0 ? r : chunk_table_decode(buf, CHUNK_HEADER_BYTES + table_bytes, &g, again, err);
}

#define SUM 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
#define EXPECT_TABLE(result, head, count, payload, ...)                                    \
    do {                                                                                   \
        static const uint8_t table[] = {__VA_ARGS__};                                      \
        EXPECT_EQ(decode_table(table, sizeof(table), count, payload, head, NULL), result); \
    } while (0)

static void test_hand_made_tables(void)
{
    const enum chunk_head D = CHUNK_HEAD_DATA, N = CHUNK_HEAD_NODE;
    EXPECT_TABLE(0, D, 2, 12, 1, 16, 5, 2, 1, 0, 0, 5, SUM, 7, SUM);
    EXPECT_EQ(again[1].index, 6);
    EXPECT_EQ(again[1].payload_offset, CHUNK_HEADER_BYTES + 7 + 34 + 5);
    EXPECT_TABLE(0, D, 2, 12, 1, 16, 5, 1, 1, 0, 0, 5, SUM, 1, 16, 7, 1, 1, 0, 0, 7, SUM);
    /* two runs where one would do */
    EXPECT_TABLE(-EBADMSG, D, 2, 12, 1, 16, 5, 1, 1, 0, 0, 5, SUM, 1, 16, 6, 1, 1, 0, 0, 7, SUM);
    EXPECT_TABLE(-EBADMSG, D, 1, 12, 1, 16, 5, 2, 1, 0, 0, 5, SUM, 7, SUM); /* more than the header says */
    EXPECT_TABLE(-EBADMSG, D, 3, 12, 1, 16, 5, 2, 1, 0, 0, 5, SUM, 7, SUM); /* fewer */
    EXPECT_TABLE(-EBADMSG, D, 2, 13, 1, 16, 5, 2, 1, 0, 0, 5, SUM, 7, SUM); /* payload */
    EXPECT_TABLE(-EBADMSG, D, 2, 11, 1, 16, 5, 2, 1, 0, 0, 5, SUM, 7, SUM);
    EXPECT_TABLE(-EBADMSG, D, 2, 12, 1, 16, 5, 2, 1, 0, 0, 5, SUM, 7, SUM, 0); /* a byte too many */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 1, 16, 5, 0, 1, 0, 0);                     /* empty run */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 1, 0, 5, 1, 1, 0, 0, 5, SUM);              /* branch 0 */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 1, 16, 5, 1, 3, 0, 0, 5, SUM);             /* codec */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 1, 16, 5, 1, 1, 1, 0, 5, SUM);             /* its parameter */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 1, 16, 5, 1, 1, 0, 4, 5, SUM);             /* flags */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 1, 0x90, 0, 5, 1, 1, 0, 0, 5, SUM);        /* branch in two bytes */
    EXPECT_TABLE(-EBADMSG, D, 1, 0, 0, 16, 5, 1, 1);                           /* kinds */
    EXPECT_TABLE(-EBADMSG, D, 1, 0, 7, 16, 5, 1, 1);
    EXPECT_TABLE(-EBADMSG, D, 1, 0, 6, 0, 5, 1, 1); /* a bridge in a chunk that is none */
    /* patches: first sector, count, length; all of a run on one record */
    EXPECT_TABLE(0, D, 2, 14, 2, 16, 5, 2, 1, 0, 0, 0, 8, 5, SUM, 8, 1, 9, SUM);
    EXPECT_EQ(again[1].index, 5);
    EXPECT_EQ(again[1].first_sector, 8);
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 2, 16, 5, 1, 1, 0, 0, 0, 0, 5, SUM);
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 2, 16, 5, 1, 0, 0, 0, 0, 1, 5, SUM); /* raw, and not 512 bytes */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 2, 16, 5, 1, 1, 0, 0, 0xff, 0x0f, 2, 5, SUM);
    /* trims */
    EXPECT_TABLE(0, D, 2, 0, 3, 16, 5, 2, 10, 1);
    EXPECT_EQ(again[1].index, 15);
    EXPECT_EQ(again[1].payload_offset, 0);
    EXPECT_TABLE(-EBADMSG, D, 1, 0, 3, 16, 5, 1, 0);
    EXPECT_TABLE(-EBADMSG, D, 2, 0, 3, 16, 5, 1, 10, 3, 16, 15, 1, 1); /* two runs where one would do */
    EXPECT_TABLE(0, D, 2, 0, 3, 16, 5, 1, 10, 4, 16, 15, 1, 1);
    EXPECT_TABLE(0, D, 1, 0, 3, 16, 0, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40);
    EXPECT_TABLE(-EBADMSG, D, 1, 0, 3, 16, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40);
    /* nodes belong to the node head, and only they and records */
    EXPECT_TABLE(0, N, 1, 5, 5, 1, 0, 1, 0, 0, 0, 6, 5, SUM);
    EXPECT_TABLE(-EBADMSG, N, 1, 5, 5, 1, 1, 1, 0, 0, 0, 6, 5, SUM); /* node 1 of the topmost level */
    EXPECT_TABLE(-EBADMSG, N, 1, 5, 5, 1, 0, 1, 0, 0, 0, 7, 5, SUM);
    EXPECT_TABLE(-EBADMSG, N, 1, 5, 5, 1, 0, 1, 1, 0, 0, 0, 5, SUM); /* compressed */
    EXPECT_TABLE(-EBADMSG, D, 1, 5, 5, 1, 0, 1, 0, 0, 0, 6, 5, SUM);
    EXPECT_TABLE(-EBADMSG, N, 1, 0, 3, 16, 5, 1, 10);
}

static void test_bridge(void)
{
    struct chunk_header h = plain_header(CHUNK_HEAD_DATA), g;
    h.flags = CHUNK_FLAG_BRIDGE;
    entries[0] = (struct chunk_entry){.kind = ENTRY_BRIDGE, .index = UINT64_MAX, .count = SLOT_COUNT_MAX - 1};
    chunk_encode(&h, entries, 1, buf, UNIT);
    EXPECT_EQ(decode(&g, UNIT), 0);
    EXPECT_EQ(again[0].index, UINT64_MAX);
    EXPECT_EQ(again[0].count, SLOT_COUNT_MAX - 1);
    EXPECT_EQ(h.chunk_bytes, 2 * UNIT);
    expect_trailer(&h, UNIT);
}

/* ---- headers ---- */

static int decode_header_with(size_t offset, uint64_t value, unsigned width)
{
    struct chunk_header h = plain_header(CHUNK_HEAD_DATA), g;
    entries[0] = data_entry(16, 0, 4000);
    h.next_slots[0] = 3;
    h.next_slots[1] = 4;
    h.next_segments_first = 9;
    h.next_segment_deltas[1] = 1;
    chunk_encode(&h, entries, 1, buf, UNIT);
    for (unsigned i = 0; i < width; i++)
        buf[offset + i] = (uint8_t)(value >> 8 * i);
    return chunk_header_decode(buf, CHUNK_HEADER_BYTES, UNIT, &g, NULL);
}

/* Offsets: doc/format/chunk.md. */
static void test_header_ranges(void)
{
    EXPECT_EQ(decode_header_with(8, 1, 2), 0);
    EXPECT_EQ(decode_header_with(8, 2, 2), -EOPNOTSUPP); /* version */
    EXPECT_EQ(decode_header_with(8, 0, 2), -EBADMSG);
    EXPECT_EQ(decode_header_with(10, 1, 1), -EBADMSG); /* the node head, with a chain */
    EXPECT_EQ(decode_header_with(10, 2, 1), -EBADMSG);
    EXPECT_EQ(decode_header_with(11, 2, 1), -EBADMSG);  /* table encoding */
    EXPECT_EQ(decode_header_with(12, 1, 4), -EBADMSG);  /* a copy, in the data head */
    EXPECT_EQ(decode_header_with(12, 2, 4), -EBADMSG);  /* a bridge with payload */
    EXPECT_EQ(decode_header_with(12, 4, 4), -EBADMSG);  /* unknown flags */
    EXPECT_EQ(decode_header_with(32, 10 * UNIT, 8), 0); /* address */
    EXPECT_EQ(decode_header_with(32, 10 * UNIT + 512, 8), -EBADMSG);
    EXPECT_EQ(decode_header_with(32, UINT64_MAX - 4095, 8), -EBADMSG);
    EXPECT_EQ(decode_header_with(64, 9 * UNIT, 8), 0); /* durable_to */
    EXPECT_EQ(decode_header_with(64, 9 * UNIT + 1, 8), -EBADMSG);
    EXPECT_EQ(decode_header_with(80, 1, 8), -EOPNOTSUPP);     /* features */
    EXPECT_EQ(decode_header_with(96, 3 * UNIT, 4), -EBADMSG); /* chunk, table and payload bytes */
    EXPECT_EQ(decode_header_with(100, UINT32_MAX, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(104, UINT32_MAX, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(104, 0, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(108, CHUNK_ENTRIES_MAX, 4), 0);
    EXPECT_EQ(decode_header_with(108, CHUNK_ENTRIES_MAX + 1, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(108, 0, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(112, SLOT_COUNT_MAX, 4), -EBADMSG); /* next slots */
    EXPECT_EQ(decode_header_with(112, SLOT_NONE, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(116, SLOT_NONE, 4), -EBADMSG);
    EXPECT_EQ(decode_header_with(120, 5, 4), -EBADMSG); /* without a delta */
    EXPECT_EQ(decode_header_with(144, UINT64_MAX - 1, 8), 0);
    EXPECT_EQ(decode_header_with(144, UINT64_MAX, 8), -EBADMSG); /* the one after it overflows */
    EXPECT_EQ(decode_header_with(152, 1, 1), -EBADMSG);
    EXPECT_EQ(decode_header_with(153, 0, 1), -EBADMSG);
    EXPECT_EQ(decode_header_with(153, 255, 1), 0);
    EXPECT_EQ(decode_header_with(154, 1, 1), -EBADMSG);
    EXPECT_EQ(decode_header_with(160, 1, 1), -EBADMSG); /* reserved */
    EXPECT_EQ(decode_header_with(175, 1, 1), -EBADMSG);
}

static void test_footer_refusals(void)
{
    uint64_t address;
    uint32_t chunk_bytes, trailer_bytes;
    uint8_t footer[CHUNK_FOOTER_BYTES] = {0};
    EXPECT_EQ(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes), -ENODATA);
    struct sink out = sink_of(footer, sizeof(footer));
    sink_copy(&out, "ASHTRAIL", 8);
    sink_u64(&out, UNIT);
    sink_u32(&out, 2 * UNIT);
    sink_u32(&out, (2 * UNIT - 32) / 2);
    EXPECT_EQ(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes), 0);
    footer[20]++;
    EXPECT_EQ(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes), -ENODATA);
    footer[20] = CHUNK_HEADER_BYTES - 1;
    footer[21] = 0;
    EXPECT_EQ(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes), -ENODATA);
    footer[20]++;
    EXPECT_EQ(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes), 0);
    footer[8] = 1;
    EXPECT_EQ(chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes), -ENODATA);
}

/* ---- sizes ---- */

static void test_size_targets(void)
{
    /* A long run of records of less than 16 KiB stored. */
    for (size_t i = 0; i < 64; i++)
        entries[i] = data_entry(20, 1000000 + i, 16383);
    printf("# run of 64 records: %zu bytes, %.2f an entry\n", chunk_table_bytes(entries, 64),
           (double)chunk_table_bytes(entries, 64) / 64);
    EXPECT(chunk_table_bytes(entries, 64) <= 64 * 19);
    /* One patch of 4 KiB, compressed to 3800 bytes, anywhere in any volume, in one chunk of 4 KiB. */
    struct chunk_header h = plain_header(CHUNK_HEAD_DATA);
    entries[0] = (struct chunk_entry){.kind = ENTRY_PATCH,
                                      .codec = CODEC_ZSTD,
                                      .branch = UINT64_MAX,
                                      .index = (UINT64_C(1) << 55) - 1,
                                      .count = 1,
                                      .first_sector = 2040,
                                      .sector_count = 8,
                                      .length = 3800,
                                      .checksum = {.low = 1}};
    printf("# largest table of one 4 KiB patch: %zu bytes\n", chunk_table_bytes(entries, 1));
    chunk_encode(&h, entries, 1, buf, UNIT);
    EXPECT_EQ(h.chunk_bytes, UNIT);
}

/* One more entry never adds more than the bound. */
static void test_entry_bound(void)
{
    struct prng r;
    prng_seed(&r, seed);
    size_t largest = 0;
    for (int i = 0; i < 200; i++) {
        const enum chunk_head head = i % 2 == 0 ? CHUNK_HEAD_DATA : CHUNK_HEAD_NODE;
        const size_t count = random_chunk_entries(&r, head, 0, 300, CHUNK_BYTES_MAX, entries);
        size_t previous = 0;
        for (size_t n = 1; n <= count; n++) {
            const size_t bytes = chunk_table_bytes(entries, n);
            REQUIRE(bytes > previous && bytes - previous <= CHUNK_TABLE_ENTRY_BYTES_MAX);
            largest = max_u64(largest, bytes - previous);
            previous = bytes;
        }
    }
    printf("# most that one entry added: %zu bytes\n", largest);
    EXPECT(largest > 0);
}

/* What doc/format/chunk.md promises of a chunk's size, without the arithmetic of the code. */
static bool placement_holds(uint64_t table_bytes, uint64_t payload_bytes, uint32_t unit)
{
    const uint64_t front = CHUNK_HEADER_BYTES + table_bytes, body = front + payload_bytes;
    const uint64_t size = chunk_size_bytes(table_bytes, payload_bytes, unit, CHUNK_COPY_ECHO);
    if (size % unit != 0)
        return false;
    if (body <= unit && front <= unit / 2)
        return size == unit; /* no trailer */
    const uint64_t behind = front + CHUNK_FOOTER_BYTES;
    if (size < behind || size - behind < body)
        return false;
    /* In a later write unit than the last of the front copy; and one unit less would not do. */
    if ((size - behind) / unit <= (front - 1) / unit)
        return false;
    const uint64_t less = size - unit;
    return less < behind || less - behind < body || (less - behind) / unit <= (front - 1) / unit;
}

static bool placement_holds_around(uint64_t table_bytes, uint64_t payload_bytes, uint32_t unit)
{
    for (uint64_t d = 0; d < 3; d++)
        if (payload_bytes + 1 >= d && !placement_holds(table_bytes, payload_bytes + 1 - d, unit))
            return false;
    return true;
}

/* All tables up to three write units (and some longer), with payloads around every boundary that matters. */
static void test_trailer_placement(void)
{
    struct prng r;
    prng_seed(&r, seed);
    for (uint64_t table = 0; table <= 3 * UNIT + 8; table++) {
        const uint64_t front = CHUNK_HEADER_BYTES + table;
        for (uint64_t units = 1; units <= 9; units++) {
            const uint64_t boundary = units * UNIT;
            if (boundary >= front) /* the payload ends at a boundary */
                REQUIRE(placement_holds_around(table, boundary - front, UNIT));
            if (boundary >= 2 * front + CHUNK_FOOTER_BYTES) /* the footer does */
                REQUIRE(placement_holds_around(table, boundary - 2 * front - CHUNK_FOOTER_BYTES, UNIT));
        }
        REQUIRE(placement_holds_around(table, 0, UNIT));
    }
    for (int i = 0; i < 100000; i++) {
        const uint32_t unit = random_write_unit(&r);
        REQUIRE(placement_holds(random_magnitude(&r, 20), random_magnitude(&r, 20), unit));
    }
    EXPECT_EQ(chunk_size_bytes(40, 10000, UNIT, CHUNK_COPY_NONE), round_up(192 + 40 + 10000, UNIT));
    EXPECT_EQ(chunk_size_bytes(0, 0, UNIT, CHUNK_COPY_ECHO), UNIT);
    EXPECT_EQ(chunk_size_bytes(20, 0, UNIT, CHUNK_COPY_TRAILER), 2 * UNIT);
    EXPECT_EQ(chunk_size_bytes(20, UNIT / 2, UNIT, CHUNK_COPY_TRAILER), 2 * UNIT);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_round_trip);
    RUN(test_largest_chunk);
    RUN(test_empty_chunk);
    RUN(test_every_bit);
    RUN(test_truncation);
    RUN(test_hand_made_tables);
    RUN(test_bridge);
    RUN(test_header_ranges);
    RUN(test_footer_refusals);
    RUN(test_size_targets);
    RUN(test_entry_bound);
    RUN(test_trailer_placement);
    return tap_done();
}
