/*
 * Golden vectors of format version 1: what these objects encode to must never change, and these bytes must decode for
 * ever. The bytes were not made by the encoders under test but by tests/golden/format_vectors.py, written from
 * doc/format.
 *
 * Notation: hex digits, a blank after a repetition; "XX*N" is byte XX N times.
 */
#include "tap.h"

#include <errno.h>

#include "base/bytes.h"
#include "base/text.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "format/label.h"
#include "format/node.h"
#include "format/table.h"

#define UNIT 4096
#define SEGMENT UINT64_C(65536)

static const char golden_pointer[] = "8877665544332211debc0a0302000101101112131415161718191a1b1c1d1e1f";
static const char golden_label[] =
    "4153484c4142454c01000000001000*26 202122232425262728292a2b2c2d2e2f00000000010000002100*7 2000*7 0700*7 8"
    "8776655443322110100*5 01000200000002000000e80300*6 d00700*6 0c00*7 1200*8 100500*5 808182838485868788898"
    "a8b8c8d8e8f000000000100*5 0600*13 0700*7 0b00*55 0200000007000000ff*24 000000000100000064000c00*7 0200*5"
    " 0800*7 404142434445464748494a4b4c4d4e4f00*464 01000100*6 100400*5 2d01000400000100707172737475767778797"
    "a7b7c7d7e7f00*8 02000100*5 c8000300*5 2e01000400000100808182838485868788898a8b8c8d8e8f00*3192 10241e45fb"
    "3b3835902af6e4b6016b5e";
static const char golden_chunk_data[] =
    "4153484348554e4b0100000100000000202122232425262728292a2b2c2d2e2f00100500*5 9900*7 808182838485868788898a"
    "8b8c8d8e8f00000500*5 b80b00*14 0700*8 2000005600000031110000060000000200000007000000ff*24 0700*8 0400*22"
    " a413e43e6ed36ed7a308a13458a8bc8c0110e8070202000005abdd299d1b082b20bb599d60221d072bac022e4af5b0e6b730c76"
    "73966b9ed93aa9d0211030100000010088020324ddb2604ea7a1b2dbcd1cb870d6aff031000020a80*5 2004100501*7 02*300 "
    "a5*4096 00*3203 4153484348554e4b0100000100000000202122232425262728292a2b2c2d2e2f00100500*5 9900*7 808182"
    "838485868788898a8b8c8d8e8f00000500*5 b80b00*14 0700*8 2000005600000031110000060000000200000007000000ff*2"
    "4 0700*8 0400*22 a413e43e6ed36ed7a308a13458a8bc8c0110e8070202000005abdd299d1b082b20bb599d60221d072bac022"
    "e4af5b0e6b730c7673966b9ed93aa9d0211030100000010088020324ddb2604ea7a1b2dbcd1cb870d6aff031000020a80*5 2004"
    "10050101415348545241494c00100500*6 20000016010000a413e43e6ed36ed7";
static const char golden_chunk_small[] =
    "4153484348554e4b0100000100000000202122232425262728292a2b2c2d2e2f00200500*5 9900*7 808182838485868788898a"
    "8b8c8d8e8f00000500*5 b80b00*14 0900*8 1000001f000000640000000200000002000000ff*28 0700*31 87bd0d1c75868c"
    "7fdf3f5ec2de97996602100301010000000864b9f090de03b4dd3717d898794c0af0f6031108010104*100 00*3773";
static const char golden_chunk_echo[] =
    "4153484348554e4b0100000100000000202122232425262728292a2b2c2d2e2f00300500*5 9900*7 87bd0d1c75868c7fdf3f5e"
    "c2de97996600000500*5 b80b00*14 0a00*8 10000019000000c80000000100000002000000ff*28 0700*15 df00*15 210073"
    "0d7da783a35b27f926e5f7d48c01100901020000c801def0696136bb624f0aca0122c38d04314153484348554e4b010000010000"
    "0000202122232425262728292a2b2c2d2e2f00200500*5 9900*7 808182838485868788898a8b8c8d8e8f00000500*5 b80b00*"
    "14 0900*8 1000001f000000640000000200000002000000ff*28 0700*31 87bd0d1c75868c7fdf3f5ec2de9799660210030101"
    "0000000864b9f090de03b4dd3717d898794c0af0f6031108010105*200 00*3456";
static const char golden_chunk_node[] =
    "4153484348554e4b0100010101000000202122232425262728292a2b2c2d2e2f00100600*5 9900*31 b80b00*14 0800*8 1000"
    "00190000003c00000001000000ff*32 00*32 3623907afcf7f3e80d7f1efb0816041805100201000000013cc45a07c065088b0d"
    "9575d42fc6103c1203*60 00*3819";
static const char golden_chunk_bridge[] =
    "4153484348554e4b0100000102000000202122232425262728292a2b2c2d2e2f00000500*5 9900*7 808182838485868788898a"
    "8b8c8d8e8f00000500*5 b80b00*14 0900*8 2000000600*7 01000000ff*32 00*32 be6d2de136d0d14c5ee666a726b3c87e0"
    "600ac02010900*7764 4153484348554e4b0100000102000000202122232425262728292a2b2c2d2e2f00000500*5 9900*7 808"
    "182838485868788898a8b8c8d8e8f00000500*5 b80b00*14 0900*8 2000000600*7 01000000ff*32 00*32 be6d2de136d0d1"
    "4c5ee666a726b3c87e0600ac020109415348545241494c00000500*6 200000c6000000be6d2de136d0d14c";
static const char golden_leaf[] =
    "414e4f44010010030013010100430100007bc09a0cf403101112131415161718191a1b1c1d1e1f00807d20212223242526272829"
    "2a2b2c2d2e2f879e03e0b60d8120303132333435363738393a3b3c3d3e3f0301000815beda0b64404142434445464748494a4b4c"
    "4d4e4f00080105008004505152535455565758595a5b5c5d5e5f04010225e7960607606162636465666768696a6b6c6d6e6f";
static const char golden_inner[] =
    "414e4f4401011000058020040300fa02009a68563412e807101112131415161718191a1b1c1d1e1f00*5 e907202122232425262"
    "728292a2b2c2d2e2faa89999999ea07303132333435363738393a3b3c3d3e3f00f0ffff01eb07404142434445464748494a4b4c4"
    "d4e4f554555555500";
static const char golden_volume[] =
    "0180040001000100028008001400*7 038008001500*7 04801000202122232425262728292a2b2c2d2e2f05800800686f6d653a"
    "612b6206800800000000400000000007800400004000000880020002fd09800800a00f00*6 0a8021000300200600*5 bc020004"
    "00000100303132333435363738393a3b3c3d3e3f0b802000e8fd00*9 2000*6 1000*5 0c00*7";
static const char golden_slots[] =
    "0400*5 0100d2040000010000002800*7 0600*7 030100*6 4d000000010000002900*7 0700*7 0100*11 0100*11 0500*7";

static uint8_t expected[3 * UNIT], encoded[3 * UNIT];

static unsigned digit_of(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* Expands the notation; returns the number of bytes. */
static size_t unpack(const char *text, uint8_t *bytes, size_t room)
{
    size_t n = 0;
    while (*text != '\0') {
        if (*text == ' ') {
            text++;
            continue;
        }
        const uint8_t byte = (uint8_t)(digit_of(text[0]) << 4 | digit_of(text[1]));
        unsigned long count = 1;
        text += 2;
        if (*text == '*') {
            char *end;
            count = strtoul(text + 1, &end, 10);
            text = end;
        }
        for (; count > 0 && n < room; count--)
            bytes[n++] = byte;
    }
    return n;
}

static void expect_bytes(const char *golden, const uint8_t *bytes, size_t n)
{
    const size_t expected_bytes = unpack(golden, expected, sizeof(expected));
    EXPECT_EQ(n, expected_bytes);
    for (size_t i = 0; i < n && i < expected_bytes; i++) {
        if (bytes[i] != expected[i]) {
            printf("# first difference at offset %zu\n", i);
            EXPECT_EQ(bytes[i], expected[i]);
            return;
        }
    }
}

/* Bytes first, first + 1, ... */
static void fill(void *bytes, uint8_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(first + i);
}

static struct checksum checksum_from(uint8_t first)
{
    uint8_t bytes[16];
    fill(bytes, first, sizeof(bytes));
    struct source in = source_of(bytes, sizeof(bytes));
    struct checksum c;
    c.low = source_u64(&in);
    c.high = source_u64(&in);
    return c;
}

static struct pointer pointer_from(enum pointer_kind kind, enum codec_id codec, uint64_t address, uint32_t length,
                                   uint8_t checksum)
{
    return (struct pointer){.address = address,
                            .length = length,
                            .kind = (uint8_t)kind,
                            .codec = (uint8_t)codec,
                            .checksum_kind = CHECKSUM_KIND_XXH3_128,
                            .checksum = checksum_from(checksum)};
}

static void test_pointer(void)
{
    struct pointer p = pointer_from(POINTER_DATA, CODEC_ZSTD, 0x1122334455667788, 0xabcde, 0x10), q;
    p.flags = POINTER_LOSSY;
    struct sink out = sink_of(encoded, sizeof(encoded));
    pointer_encode(&out, &p);
    expect_bytes(golden_pointer, encoded, out.position);
    struct source in = source_of(expected, POINTER_BYTES);
    EXPECT_EQ(pointer_decode(&in, &q), 0);
    EXPECT(pointer_equal(&p, &q));
}

static struct label golden_label_object(void)
{
    struct label l = {.device_count = 1,
                      .sequence = 33,
                      .oldest_intact = 32,
                      .checkpoint = 7,
                      .incarnation = 0x1122334455667788,
                      .flags = LABEL_CLEAN,
                      .write_unit_bytes = UNIT,
                      .segment_bytes = SEGMENT,
                      .lookahead_count = 2,
                      .created_wall_ns = 1000,
                      .written_wall_ns = 2000,
                      .next_segment = 12,
                      .next_branch = 18,
                      .replay_address = 5 * SEGMENT + UNIT,
                      .replay_chain = checksum_from(0x80),
                      .replay_slot = 0,
                      .replay_next_segments = {7, 11},
                      .replay_next_slots = {2, 7},
                      .node_address = 6 * SEGMENT,
                      .node_slot = 1,
                      .root_count = 2,
                      .in_back_ring = true};
    for (size_t k = 2; k < LOOKAHEAD_SLOTS_MAX; k++)
        l.replay_next_slots[k] = SLOT_NONE;
    fill(l.pool_uuid, 0x20, sizeof(l.pool_uuid));
    l.devices[0] = (struct label_device){.state = LABEL_DEVICE_ACTIVE,
                                         .size_bytes = 2 * LABEL_RING_SLOTS * UNIT + 8 * SEGMENT + 100,
                                         .data_start_bytes = LABEL_RING_SLOTS * UNIT,
                                         .slot_count = 8};
    fill(l.devices[0].uuid, 0x40, sizeof(l.devices[0].uuid));
    l.roots[0] =
        (struct label_root){ROOT_CATALOG, 1, pointer_from(POINTER_NODE, CODEC_OFF, 4 * SEGMENT + 4096, 301, 0x70)};
    l.roots[1] =
        (struct label_root){ROOT_SLOT_TABLE, 1, pointer_from(POINTER_NODE, CODEC_OFF, 3 * SEGMENT + 200, 302, 0x80)};
    return l;
}

static void test_label(void)
{
    const struct label l = golden_label_object();
    struct label m;
    label_encode(&l, encoded, UNIT);
    expect_bytes(golden_label, encoded, UNIT);
    REQUIRE(label_decode(expected, UNIT, true, 1, &m, NULL) == 0);
    EXPECT_EQ(m.sequence, 33);
    EXPECT_EQ(m.replay_next_segments[1], 11);
    EXPECT_EQ(m.devices[0].slot_count, 8);
    EXPECT(pointer_equal(&m.roots[1].pointer, &l.roots[1].pointer));
}

static struct chunk_header golden_header(enum chunk_head head, uint32_t flags, uint64_t address, uint64_t sequence)
{
    struct chunk_header h = {.head = (uint8_t)head,
                             .flags = flags,
                             .address = address,
                             .incarnation = 0x99,
                             .wall_ns = 3000,
                             .sequence = sequence};
    fill(h.pool_uuid, 0x20, sizeof(h.pool_uuid));
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        h.next_slots[k] = SLOT_NONE;
    if (head == CHUNK_HEAD_DATA) {
        h.previous_chain = checksum_from(0x80);
        h.durable_to = 5 * SEGMENT;
    }
    return h;
}

/* Appends n bytes of payload behind those that are there. */
static void put_payload(struct chunk_entry *e, size_t table_bytes, size_t *payload_bytes, uint8_t byte, uint32_t n)
{
    uint8_t *at = encoded + CHUNK_HEADER_BYTES + table_bytes + *payload_bytes;
    memset(at, byte, n);
    e->length = n;
    e->checksum = checksum_of(at, n);
    *payload_bytes += n;
}

static void expect_chunk(const char *golden, struct chunk_header *h, const struct chunk_entry *entries, size_t count)
{
    struct chunk_header g;
    struct chunk_entry decoded[8];
    chunk_encode(h, entries, count, encoded, UNIT);
    expect_bytes(golden, encoded, h->chunk_bytes);
    REQUIRE(chunk_header_decode(expected, sizeof(expected), UNIT, &g, NULL) == 0);
    REQUIRE(g.entry_count == count && count <= 8);
    REQUIRE(chunk_table_decode(expected, sizeof(expected), &g, decoded, NULL) == 0);
    EXPECT_EQ(g.sequence, h->sequence);
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(decoded[i].kind, entries[i].kind);
        EXPECT_EQ(decoded[i].index, entries[i].index);
        EXPECT_EQ(decoded[i].count, entries[i].count);
        EXPECT_EQ(decoded[i].length, entries[i].length);
        const uint8_t *bytes = expected + decoded[i].payload_offset;
        if (decoded[i].length > 0)
            EXPECT(checksum_equal(checksum_of(bytes, decoded[i].length), entries[i].checksum));
    }
}

static void test_data_chunk(void)
{
    struct chunk_header h = golden_header(CHUNK_HEAD_DATA, 0, 5 * SEGMENT + UNIT, 7);
    h.next_slots[0] = 2;
    h.next_slots[1] = 7;
    h.next_segments_first = 7;
    h.next_segment_deltas[1] = 4;
    struct chunk_entry entries[] = {
        {.kind = ENTRY_DATA, .codec = CODEC_ZSTD, .branch = 16, .index = 1000, .count = 1, .length = 5},
        {.kind = ENTRY_DATA, .codec = CODEC_ZSTD, .branch = 16, .index = 1001, .count = 1, .length = 300},
        {.kind = ENTRY_PATCH,
         .branch = 17,
         .index = 3,
         .count = 1,
         .first_sector = 16,
         .sector_count = 8,
         .length = 4096},
        {.kind = ENTRY_TRIM, .branch = 16, .index = 0, .count = 10},
        {.kind = ENTRY_TRIM, .branch = 16, .index = 10, .count = UINT64_C(1) << 40},
        {.kind = ENTRY_ZERO, .branch = 16, .index = 5, .count = 1},
    };
    const size_t table_bytes = chunk_table_bytes(entries, 6);
    size_t payload_bytes = 0;
    put_payload(&entries[0], table_bytes, &payload_bytes, 1, 5);
    put_payload(&entries[1], table_bytes, &payload_bytes, 2, 300);
    put_payload(&entries[2], table_bytes, &payload_bytes, 0xa5, 4096);
    expect_chunk(golden_chunk_data, &h, entries, 6);
    const uint8_t *footer = expected + h.chunk_bytes - CHUNK_FOOTER_BYTES;
    EXPECT(chunk_footer_matches(footer, &h));
}

/* A chunk of one write unit, and the next one, which holds its header and table. */
static void test_small_chunk_and_echo(void)
{
    struct chunk_header h = golden_header(CHUNK_HEAD_DATA, 0, 5 * SEGMENT + 2 * UNIT, 9), before;
    struct chunk_entry small[] = {
        {.kind = ENTRY_PATCH, .codec = CODEC_LZ4, .branch = 16, .index = 3, .count = 1, .sector_count = 8},
        {.kind = ENTRY_TRIM, .branch = 17, .index = 8, .count = 1},
    };
    size_t payload_bytes = 0;
    h.next_slots[0] = 2;
    h.next_segments_first = 7;
    put_payload(&small[0], chunk_table_bytes(small, 2), &payload_bytes, 4, 100);
    expect_chunk(golden_chunk_small, &h, small, 2);
    EXPECT_EQ(h.chunk_bytes, UNIT);
    uint8_t front[UNIT];
    const uint32_t front_bytes = CHUNK_HEADER_BYTES + h.table_bytes;
    memcpy(front, encoded, front_bytes);

    struct chunk_header g = golden_header(CHUNK_HEAD_DATA, 0, 5 * SEGMENT + 3 * UNIT, 10);
    struct chunk_entry e = {.kind = ENTRY_DATA,
                            .codec = CODEC_ZSTD,
                            .branch = 16,
                            .index = 9,
                            .count = 1,
                            .length = 200},
                       again[2];
    g.next_slots[0] = 2;
    g.next_segments_first = 7;
    g.previous_chain = h.chain;
    g.echo_bytes = front_bytes;
    const size_t table_bytes = chunk_table_bytes(&e, 1), echo_at = CHUNK_HEADER_BYTES + table_bytes;
    payload_bytes = 0;
    memcpy(encoded + echo_at, front, front_bytes);
    put_payload(&e, table_bytes + front_bytes, &payload_bytes, 5, 200);
    expect_chunk(golden_chunk_echo, &g, &e, 1);
    REQUIRE(chunk_echo_decode(expected, UNIT, &g, UNIT, &before, again) == 0);
    EXPECT_EQ(before.address, h.address);
    EXPECT_EQ(before.entry_count, 2);
    EXPECT(again[0].kind == ENTRY_PATCH && again[0].length == 100 && again[1].kind == ENTRY_TRIM);
    /* Every byte of it is verified, and so is whose echo it is. */
    for (size_t i = 0; i < front_bytes; i++) {
        expected[echo_at + i] ^= 0x10;
        EXPECT_EQ(chunk_echo_decode(expected, UNIT, &g, UNIT, &before, again), -EBADMSG);
        expected[echo_at + i] ^= 0x10;
    }
    g.previous_chain.low ^= 1;
    EXPECT_EQ(chunk_echo_decode(expected, UNIT, &g, UNIT, &before, again), -EBADMSG);
    g.echo_bytes = 0;
    EXPECT_EQ(chunk_echo_decode(expected, UNIT, &g, UNIT, &before, again), -ENODATA);
}

static void test_node_chunk(void)
{
    struct chunk_header h = golden_header(CHUNK_HEAD_NODE, CHUNK_FLAG_COPY, 6 * SEGMENT + UNIT, 8);
    struct chunk_entry e = {.kind = ENTRY_NODE, .level = 1, .branch = 16, .index = 2, .count = 1, .length = 60};
    size_t payload_bytes = 0;
    put_payload(&e, chunk_table_bytes(&e, 1), &payload_bytes, 3, 60);
    expect_chunk(golden_chunk_node, &h, &e, 1);
}

static void test_bridge_chunk(void)
{
    struct chunk_header h = golden_header(CHUNK_HEAD_DATA, CHUNK_FLAG_BRIDGE, 5 * SEGMENT, 9);
    const struct chunk_entry e = {.kind = ENTRY_BRIDGE, .index = 300, .count = 9};
    expect_chunk(golden_chunk_bridge, &h, &e, 1);
}

static struct node_patch patch_from(uint8_t child, uint16_t first, uint16_t count, enum codec_id codec,
                                    uint64_t address, uint32_t length, uint8_t checksum)
{
    return (struct node_patch){child, {first, count, pointer_from(POINTER_PATCH, codec, address, length, checksum)}};
}

static void expect_node(const char *golden, const struct node *n)
{
    static struct node decoded;
    static struct node_patch patches[NODE_PATCHES_MAX];
    const size_t length = node_encode(n, encoded, sizeof(encoded));
    expect_bytes(golden, encoded, length);
    decoded.patches = patches;
    REQUIRE(node_decode(expected, length, n->branch, n->level, n->number, UINT64_MAX, &decoded, NULL) == 0);
    for (uint32_t i = 0; i < map_fanout(n->level); i++)
        REQUIRE(pointer_equal(&decoded.children[i], &n->children[i]));
    REQUIRE(decoded.patch_count == n->patch_count);
    for (uint32_t i = 0; i < n->patch_count; i++)
        EXPECT(pointer_equal(&decoded.patches[i].patch.pointer, &n->patches[i].patch.pointer));
}

static void test_leaf(void)
{
    static struct node n;
    struct node_patch patches[] = {
        patch_from(1, 0, 8, CODEC_LZ4, 300000, 100, 0x40),
        patch_from(1, 8, 1, CODEC_OFF, 300100, 512, 0x50),
        patch_from(5, 1, 2, CODEC_ZSTD, 250000, 7, 0x60),
    };
    n.branch = 16;
    n.number = 3;
    n.children[0] = pointer_from(POINTER_DATA, CODEC_LZ4, 100000, 500, 0x10);
    n.children[1] = pointer_from(POINTER_DATA, CODEC_LZ4, 100500, 16000, 0x20);
    n.children[2] = (struct pointer){.kind = POINTER_HOLE, .address = 90000};
    n.children[3] = pointer_from(POINTER_DATA, CODEC_OFF, 200000, 4097, 0x30);
    n.children[3].flags = POINTER_LOSSY;
    n.patch_count = 3;
    n.patches = patches;
    expect_node(golden_leaf, &n);
}

static void test_inner_node(void)
{
    static struct node n;
    n.branch = 16;
    n.level = 1;
    n.children[0] = pointer_from(POINTER_NODE, CODEC_OFF, 0x123456789a, 1000, 0x10);
    n.children[1] = pointer_from(POINTER_NODE, CODEC_OFF, 0x0000001000, 1001, 0x20);
    n.children[2] = pointer_from(POINTER_NODE, CODEC_OFF, 0x99999999aa, 1002, 0x30);
    n.children[3] = pointer_from(POINTER_NODE, CODEC_OFF, 0x0200000000, 1003, 0x40);
    n.children[255] = (struct pointer){.kind = POINTER_PROVISIONED, .address = 0x5555555555};
    expect_node(golden_inner, &n);
}

static void test_volume(void)
{
    struct catalog_volume v = {.object_id = 20,
                               .branch = 21,
                               .name = "home:a+b",
                               .size_bytes = 1 << 30,
                               .record_bytes = 16384,
                               .codec = {CODEC_ZSTD, -3},
                               .created_wall_ns = 4000,
                               .height = 3,
                               .root = pointer_from(POINTER_NODE, CODEC_OFF, 6 * SEGMENT + 8192, 700, 0x30),
                               .mapped_records = 65000,
                               .stored_bytes = 1 << 29,
                               .node_bytes = 1 << 20,
                               .provisioned_records = 12};
    struct catalog_volume w;
    fill(v.guid, 0x20, sizeof(v.guid));
    const size_t n = catalog_volume_encode(&v, encoded, sizeof(encoded));
    expect_bytes(golden_volume, encoded, n);
    REQUIRE(catalog_volume_decode(expected, n, 20, &w, NULL) == 0);
    EXPECT_TEXT(w.name, "home:a+b");
    EXPECT_EQ(w.codec.level, -3);
    EXPECT_EQ(w.provisioned_records, 12);
}

/* Three slots, and 125 bare ones. */
static void test_table_record(void)
{
    struct slot slots[SLOTS_PER_TABLE_RECORD] = {
        {.state = SLOT_CLOSED, .used_bytes = 65536, .live_bytes = 1234, .segment = 40, .since = 6},
        {.state = SLOT_OPEN, .head = CHUNK_HEAD_NODE, .live_bytes = 77, .segment = 41, .since = 7},
        {.state = SLOT_READY, .since = 5},
    };
    struct text golden = {0};
    text_printf(&golden, "%s", golden_slots);
    for (int i = 3; i < SLOTS_PER_TABLE_RECORD; i++)
        text_printf(&golden, " 00*12 01 00*19");
    table_record_encode(slots, SLOTS_PER_TABLE_RECORD, encoded);
    expect_bytes(golden.bytes, encoded, TABLE_RECORD_BYTES);
    text_free(&golden);
    REQUIRE(table_record_decode(expected, TABLE_RECORD_BYTES, SLOTS_PER_TABLE_RECORD, SEGMENT, slots, NULL) == 0);
    EXPECT_EQ(slots[0].live_bytes, 1234);
    EXPECT_EQ(slots[1].segment, 41);
    EXPECT_EQ(slots[2].since, 5);
}

int main(void)
{
    RUN(test_pointer);
    RUN(test_label);
    RUN(test_data_chunk);
    RUN(test_small_chunk_and_echo);
    RUN(test_node_chunk);
    RUN(test_bridge_chunk);
    RUN(test_leaf);
    RUN(test_inner_node);
    RUN(test_volume);
    RUN(test_table_record);
    return tap_done();
}
