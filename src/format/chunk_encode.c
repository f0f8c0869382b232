/*
 * Chunks to bytes. doc/format/chunk.md.
 */
#include "format/chunk_impl.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

static void encode_run_header(struct sink *out, const struct chunk_entry *first, size_t count)
{
    sink_u8(out, first->kind);
    sink_varint(out, first->branch);
    sink_varint(out, first->index);
    sink_varint(out, count);
    if (chunk_entry_has_bytes(first)) {
        sink_u8(out, first->codec);
        sink_u8(out, first->codec_param);
        sink_u8(out, first->flags);
    }
    if (first->kind == ENTRY_NODE)
        sink_u8(out, first->level);
}

static void encode_entry(struct sink *out, const struct chunk_entry *e)
{
    if (!chunk_entry_has_bytes(e)) {
        sink_varint(out, e->count);
        return;
    }
    if (e->kind == ENTRY_PATCH) {
        sink_varint(out, e->first_sector);
        sink_varint(out, e->sector_count);
    }
    sink_varint(out, e->length);
    sink_u64(out, e->checksum.low);
    sink_u64(out, e->checksum.high);
}

static void encode_table(struct sink *out, const struct chunk_entry *entries, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && chunk_run_continues(&entries[end - 1], &entries[end]))
            end++;
        encode_run_header(out, &entries[i], end - i);
        for (; i < end; i++)
            encode_entry(out, &entries[i]);
    }
    CHECK(!out->bad);
}

/* All of the header but the chain value at its end. */
static void encode_header(struct sink *out, const struct chunk_header *h)
{
    sink_copy(out, CHUNK_MAGIC, CHUNK_MAGIC_BYTES);
    sink_u16(out, FORMAT_VERSION);
    sink_u8(out, h->head);
    sink_u8(out, CHUNK_TABLE_ENCODING);
    sink_u32(out, h->flags);
    sink_copy(out, h->pool_uuid, sizeof(h->pool_uuid));
    sink_u64(out, h->address);
    sink_u64(out, h->incarnation);
    sink_u64(out, h->previous_chain.low);
    sink_u64(out, h->previous_chain.high);
    sink_u64(out, h->durable_to);
    sink_u64(out, h->wall_ns);
    sink_u64(out, h->features);
    sink_u64(out, h->sequence);
    sink_u32(out, h->chunk_bytes);
    sink_u32(out, h->table_bytes);
    sink_u32(out, h->payload_bytes);
    sink_u32(out, h->entry_count);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        sink_u32(out, h->next_slots[k]);
    sink_u64(out, h->next_segments_first);
    sink_copy(out, h->next_segment_deltas, sizeof(h->next_segment_deltas));
    sink_u32(out, h->echo_bytes);
    sink_zeroes(out, CHUNK_HEADER_RESERVED_BYTES);
    CHECK_EQ(out->position, CHUNK_HEADER_SUMMED_BYTES);
}

static void check_entries(const struct chunk_header *h, const struct chunk_entry *entries, size_t count)
{
    CHECK_LE(count, CHUNK_ENTRIES_MAX);
    for (size_t i = 0; i < count; i++) {
        const char *fault = chunk_entry_fault(&entries[i], h->head, h->flags);
        if (fault != NULL)
            check_failed(__FILE__, __LINE__, fault);
    }
}

static void encode_footer(struct sink *out, const struct chunk_header *h)
{
    sink_copy(out, CHUNK_FOOTER_MAGIC, CHUNK_MAGIC_BYTES);
    sink_u64(out, h->address);
    sink_u32(out, h->chunk_bytes);
    sink_u32(out, CHUNK_HEADER_BYTES + h->table_bytes);
    sink_u64(out, h->chain.low);
}

void chunk_encode(struct chunk_header *header, const struct chunk_entry *entries, size_t count, uint8_t *buf,
                  uint32_t write_unit_bytes)
{
    struct chunk_header *h = header;
    check_entries(h, entries, count);
    size_t payload_bytes = 0;
    for (size_t i = 0; i < count; i++)
        payload_bytes += entries[i].length;
    CHECK_LE(payload_bytes, CHUNK_BYTES_MAX);
    CHECK_LE(write_unit_bytes, WRITE_UNIT_BYTES_MAX);
    const size_t table_bytes = chunk_table_bytes(entries, count);
    h->entry_count = (uint32_t)count;
    h->table_bytes = (uint32_t)table_bytes;
    h->payload_bytes = (uint32_t)payload_bytes;
    h->chunk_bytes = chunk_size_bytes(table_bytes, h->echo_bytes + payload_bytes, write_unit_bytes,
                                      chunk_copy_of(h->head, h->flags));
    const char *fault = chunk_header_fault(h, write_unit_bytes);
    if (fault != NULL)
        check_failed(__FILE__, __LINE__, fault);

    const size_t front_bytes = CHUNK_HEADER_BYTES + table_bytes;
    struct sink front = sink_of(buf, front_bytes);
    encode_header(&front, h);
    struct sink table = sink_of(buf + CHUNK_HEADER_BYTES, table_bytes);
    encode_table(&table, entries, count);
    CHECK_EQ(table.position, table_bytes);
    h->chain = chunk_chain_of(buf, buf + CHUNK_HEADER_BYTES, table_bytes);
    sink_u64(&front, h->chain.low);
    sink_u64(&front, h->chain.high);
    CHECK_EQ(front.position, CHUNK_HEADER_BYTES);

    const size_t body_bytes = front_bytes + h->echo_bytes + payload_bytes;
    CHECK_LE(body_bytes, h->chunk_bytes);
    memset(buf + body_bytes, 0, h->chunk_bytes - body_bytes);
    if (!chunk_has_trailer(h, write_unit_bytes))
        return;
    const size_t footer_offset = h->chunk_bytes - CHUNK_FOOTER_BYTES;
    const size_t trailer_offset = footer_offset - front_bytes;
    CHECK_GE(trailer_offset, body_bytes);
    CHECK_GT(trailer_offset / write_unit_bytes, (front_bytes - 1) / write_unit_bytes);
    memcpy(buf + trailer_offset, buf, front_bytes);
    struct sink footer = sink_of(buf + footer_offset, CHUNK_FOOTER_BYTES);
    encode_footer(&footer, h);
    CHECK_EQ(footer.position, CHUNK_FOOTER_BYTES);
}
