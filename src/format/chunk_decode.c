/*
 * Chunks from bytes. doc/format/chunk.md. A header is decoded before it is verified, because its checksum needs the
 * table whose length it holds; nothing but bounds of reads may be taken from it before chunk_table_decode agreed.
 */
#include "format/chunk_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "format/label.h"

static struct checksum decode_checksum(struct source *in)
{
    struct checksum c;
    c.low = source_u64(in);
    c.high = source_u64(in);
    return c;
}

static void decode_header_fields(struct source *in, struct chunk_header *h)
{
    h->flags = source_u32(in);
    source_copy(in, h->pool_uuid, sizeof(h->pool_uuid));
    h->address = source_u64(in);
    h->incarnation = source_u64(in);
    h->previous_chain = decode_checksum(in);
    h->durable_to = source_u64(in);
    h->wall_ns = source_u64(in);
    h->features = source_u64(in);
    h->sequence = source_u64(in);
    h->chunk_bytes = source_u32(in);
    h->table_bytes = source_u32(in);
    h->payload_bytes = source_u32(in);
    h->entry_count = source_u32(in);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        h->next_slots[k] = source_u32(in);
    h->next_segments_first = source_u64(in);
    source_copy(in, h->next_segment_deltas, sizeof(h->next_segment_deltas));
    h->echo_bytes = source_u32(in);
    source_zeroes(in, CHUNK_HEADER_RESERVED_BYTES);
    h->chain = decode_checksum(in);
}

int chunk_header_decode(const uint8_t *buf, size_t buf_bytes, uint32_t write_unit_bytes,
                        struct chunk_header *ret_header, struct error *err)
{
    if (buf_bytes < CHUNK_HEADER_BYTES || memcmp(buf, CHUNK_MAGIC, CHUNK_MAGIC_BYTES) != 0)
        return error_set(err, -ENODATA, "no chunk header here");
    struct source in = source_of(buf, CHUNK_HEADER_BYTES);
    (void)source_take(&in, CHUNK_MAGIC_BYTES);
    struct chunk_header h = {0};
    const uint16_t version = source_u16(&in);
    h.head = source_u8(&in);
    const uint8_t table_encoding = source_u8(&in);
    if (version > FORMAT_VERSION)
        return error_set(err, -EOPNOTSUPP, "chunk of format version %u: this program knows versions up to %u", version,
                         FORMAT_VERSION);
    if (version == 0)
        return error_set(err, -EBADMSG, "chunk header: format version 0 does not exist");
    if (table_encoding != CHUNK_TABLE_ENCODING)
        return error_set(err, -EBADMSG, "chunk header: table encoding %u does not exist in version %u", table_encoding,
                         version);
    decode_header_fields(&in, &h);
    if (in.bad)
        return error_set(err, -EBADMSG, "chunk header: reserved bytes are not zero");
    if ((h.features & ~FEATURES_INCOMPATIBLE_KNOWN) != 0)
        return error_set(err, -EOPNOTSUPP, "chunk at address %" PRIu64 " makes use of unknown features 0x%" PRIx64,
                         h.address, h.features & ~FEATURES_INCOMPATIBLE_KNOWN);
    const char *fault = chunk_header_fault(&h, write_unit_bytes);
    if (fault != NULL)
        return error_set(err, -EBADMSG, "chunk header of address %" PRIu64 ": %s", h.address, fault);
    CHECK_EQ(in.position, CHUNK_HEADER_BYTES);
    *ret_header = h;
    return 0;
}

/* The table cursor: what was decoded so far. */
struct table_reader {
    const struct chunk_header *header;
    struct source in;
    struct chunk_entry *entries;
    uint32_t entry_count;
    uint32_t payload_bytes; /* of the entries so far */
};

/* Fields that every entry of the run has; index is that of its first entry. */
static const char *read_run_header(struct table_reader *t, struct chunk_entry *ret_run, uint64_t *ret_count)
{
    struct source *in = &t->in;
    struct chunk_entry run = {.count = 1};
    run.kind = source_u8(in);
    run.branch = source_varint(in);
    run.index = source_varint(in);
    const uint64_t count = source_varint(in);
    if (chunk_entry_has_bytes(&run)) {
        run.codec = source_u8(in);
        run.codec_param = source_u8(in);
        run.flags = source_u8(in);
    }
    if (run.kind == ENTRY_NODE)
        run.level = source_u8(in);
    if (in->bad)
        return "a run ends early";
    if (count == 0 || count > t->header->entry_count - t->entry_count)
        return "run length";
    *ret_run = run;
    *ret_count = count;
    return NULL;
}

static const char *read_entry(struct table_reader *t, struct chunk_entry *e)
{
    struct source *in = &t->in;
    uint64_t length = 0;
    if (chunk_entry_has_bytes(e)) {
        uint64_t first_sector = 0, sector_count = 0;
        if (e->kind == ENTRY_PATCH) {
            first_sector = source_varint(in);
            sector_count = source_varint(in);
        }
        length = source_varint(in);
        e->checksum = decode_checksum(in);
        if (first_sector > UINT16_MAX || sector_count > UINT16_MAX)
            return "sectors of a patch";
        e->first_sector = (uint16_t)first_sector;
        e->sector_count = (uint16_t)sector_count;
    } else {
        e->count = source_varint(in);
    }
    if (in->bad)
        return "an entry ends early";
    if (length > t->header->payload_bytes - t->payload_bytes)
        return "entries longer than the payload";
    e->length = (uint32_t)length;
    const char *fault = chunk_entry_fault(e, t->header->head, t->header->flags);
    if (fault != NULL)
        return fault;
    if (length > 0)
        e->payload_offset = CHUNK_HEADER_BYTES + t->header->table_bytes + t->header->echo_bytes + t->payload_bytes;
    t->payload_bytes += e->length;
    return NULL;
}

static const char *read_run(struct table_reader *t)
{
    struct chunk_entry run;
    uint64_t count = 0;
    const char *fault = read_run_header(t, &run, &count);
    for (uint64_t i = 0; i < count && fault == NULL; i++) {
        struct chunk_entry e = run;
        fault = read_entry(t, &e);
        if (fault != NULL)
            break;
        if (i == 0 && t->entry_count > 0 && chunk_run_continues(&t->entries[t->entry_count - 1], &e))
            return "a run that should have gone on";
        t->entries[t->entry_count++] = e;
        run.index = chunk_entry_end(&e);
    }
    CHECK_LE(t->entry_count, t->header->entry_count);
    CHECK_LE(t->payload_bytes, t->header->payload_bytes);
    return fault;
}

int chunk_table_decode(const uint8_t *buf, size_t buf_bytes, const struct chunk_header *header,
                       struct chunk_entry *ret_entries, struct error *err)
{
    const struct chunk_header *h = header;
    CHECK_LE(h->entry_count, CHUNK_ENTRIES_MAX);
    if (buf_bytes < CHUNK_HEADER_BYTES + (uint64_t)h->table_bytes)
        return error_set(err, -EBADMSG, "chunk at address %" PRIu64 ": its table of %" PRIu32 " bytes is cut off",
                         h->address, h->table_bytes);
    const uint8_t *table = buf + CHUNK_HEADER_BYTES;
    if (!checksum_equal(chunk_chain_of(buf, table, h->table_bytes), h->chain))
        return error_set(err, -EBADMSG, "chunk at address %" PRIu64 ": header and table do not match their checksum",
                         h->address);
    struct table_reader t = {.header = h, .in = source_of(table, h->table_bytes), .entries = ret_entries};
    const char *fault = NULL;
    while (fault == NULL && source_left(&t.in) > 0)
        fault = read_run(&t);
    if (fault == NULL && (t.entry_count != h->entry_count || t.payload_bytes != h->payload_bytes))
        fault = "entries do not add up to the header";
    if (fault != NULL)
        return error_set(err, -EBADMSG, "chunk at address %" PRIu64 ", table entry %" PRIu32 ": %s", h->address,
                         t.entry_count, fault);
    CHECK_EQ(t.in.position, h->table_bytes);
    return 0;
}

int chunk_echo_decode(const uint8_t *buf, size_t buf_bytes, const struct chunk_header *header,
                      uint32_t write_unit_bytes, struct chunk_header *ret_header, struct chunk_entry *ret_entries)
{
    const size_t front_bytes = CHUNK_HEADER_BYTES + (size_t)header->table_bytes;
    struct chunk_header echo;
    if (header->echo_bytes == 0)
        return -ENODATA;
    CHECK_GE(buf_bytes, front_bytes + header->echo_bytes);
    if (chunk_header_decode(buf + front_bytes, header->echo_bytes, write_unit_bytes, &echo, NULL) != 0 ||
        CHUNK_HEADER_BYTES + (uint64_t)echo.table_bytes != header->echo_bytes)
        return -EBADMSG;
    if (echo.head != CHUNK_HEAD_DATA || echo.chunk_bytes != write_unit_bytes ||
        memcmp(echo.pool_uuid, header->pool_uuid, sizeof(echo.pool_uuid)) != 0 ||
        !checksum_equal(echo.chain, header->previous_chain))
        return -EBADMSG;
    if (chunk_table_decode(buf + front_bytes, header->echo_bytes, &echo, ret_entries, NULL) != 0)
        return -EBADMSG;
    *ret_header = echo;
    return 0;
}

int chunk_footer_decode(const uint8_t *footer, uint64_t *ret_address, uint32_t *ret_chunk_bytes,
                        uint32_t *ret_trailer_bytes)
{
    struct source in = source_of(footer, CHUNK_FOOTER_BYTES);
    if (memcmp(source_take(&in, CHUNK_MAGIC_BYTES), CHUNK_FOOTER_MAGIC, CHUNK_MAGIC_BYTES) != 0)
        return -ENODATA;
    const uint64_t address = source_u64(&in);
    const uint32_t chunk_bytes = source_u32(&in);
    const uint32_t trailer_bytes = source_u32(&in);
    if (chunk_bytes > CHUNK_BYTES_MAX || chunk_bytes % WRITE_UNIT_BYTES_MIN != 0 ||
        address % WRITE_UNIT_BYTES_MIN != 0 || address > UINT64_MAX - chunk_bytes)
        return -ENODATA;
    /* A chunk with a trailer holds header and table twice. */
    if (trailer_bytes < CHUNK_HEADER_BYTES || 2 * (uint64_t)trailer_bytes + CHUNK_FOOTER_BYTES > chunk_bytes)
        return -ENODATA;
    *ret_address = address;
    *ret_chunk_bytes = chunk_bytes;
    *ret_trailer_bytes = trailer_bytes;
    return 0;
}

bool chunk_footer_matches(const uint8_t *footer, const struct chunk_header *header)
{
    uint64_t address;
    uint32_t chunk_bytes, trailer_bytes;
    if (chunk_footer_decode(footer, &address, &chunk_bytes, &trailer_bytes) != 0)
        return false;
    struct source in = source_of(footer + CHUNK_FOOTER_BYTES - 8, 8);
    return address == header->address && chunk_bytes == header->chunk_bytes &&
           trailer_bytes == CHUNK_HEADER_BYTES + header->table_bytes && source_u64(&in) == header->chain.low;
}
