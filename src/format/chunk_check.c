/*
 * What a chunk may be: its size, its header, its entries, its runs. One set of rules for both sides of the codec.
 */
#include "format/chunk_impl.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/math.h"
#include "format/pointer.h"

#define RECORD_INDEX_LIMIT (UINT64_C(1) << (MAP_LEAF_BITS + (MAP_LEVELS_MAX - 1) * MAP_INNER_BITS))

enum chunk_copy chunk_copy_of(uint8_t head, uint32_t flags)
{
    if (head == CHUNK_HEAD_NODE)
        return CHUNK_COPY_NONE;
    return (flags & CHUNK_FLAG_BRIDGE) != 0 ? CHUNK_COPY_TRAILER : CHUNK_COPY_ECHO;
}

uint32_t chunk_size_bytes(size_t table_bytes, size_t echo_and_payload_bytes, uint32_t write_unit_bytes,
                          enum chunk_copy copy)
{
    CHECK(is_power_of_2(write_unit_bytes));
    CHECK_GE(write_unit_bytes, WRITE_UNIT_BYTES_MIN);
    CHECK_LE(write_unit_bytes, WRITE_UNIT_BYTES_MAX);
    CHECK_LE(table_bytes, CHUNK_BYTES_MAX);
    CHECK_LE(echo_and_payload_bytes, CHUNK_BYTES_MAX + WRITE_UNIT_BYTES_MAX);
    const uint64_t front_bytes = CHUNK_HEADER_BYTES + table_bytes;
    const uint64_t body_bytes = front_bytes + echo_and_payload_bytes;
    const bool echoed = copy == CHUNK_COPY_ECHO && body_bytes <= write_unit_bytes &&
                        front_bytes <= chunk_echo_bytes_max(write_unit_bytes);
    if (copy == CHUNK_COPY_NONE || echoed)
        return (uint32_t)round_up(body_bytes, write_unit_bytes);
    /* The trailer ends at the footer, the footer at the chunk's end. The smallest chunk whose trailer then begins
     * behind the payload and in a write unit that holds no byte of the front copy. */
    const uint64_t trailer_offset_min = max_u64(body_bytes, round_up(front_bytes, write_unit_bytes));
    const uint64_t size = round_up(trailer_offset_min + front_bytes + CHUNK_FOOTER_BYTES, write_unit_bytes);
    CHECK_LE(size, UINT32_MAX);
    return (uint32_t)size;
}

static bool checksum_is_zero(struct checksum c)
{
    return c.low == 0 && c.high == 0;
}

/* Used next slots come first; those that are not used are SLOT_NONE with a delta of 0. */
static const char *next_slots_fault(const struct chunk_header *h)
{
    size_t used = 0;
    while (used < LOOKAHEAD_SLOTS_MAX && h->next_slots[used] != SLOT_NONE)
        used++;
    if (used > 0 && h->head != CHUNK_HEAD_DATA)
        return "next slots outside the data head";
    if (used == 0 && h->next_segments_first != 0)
        return "a next segment without a slot";
    uint64_t segment = h->next_segments_first;
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++) {
        if (k < used && h->next_slots[k] >= SLOT_COUNT_MAX)
            return "next slot out of range";
        if (k >= used && h->next_slots[k] != SLOT_NONE)
            return "a gap in the next slots";
        if ((k > 0 && k < used) != (h->next_segment_deltas[k] != 0))
            return "next segment delta";
        if (!add_fits(segment, h->next_segment_deltas[k], &segment))
            return "next segment number overflows";
    }
    return NULL;
}

static const char *sizes_fault(const struct chunk_header *h, uint32_t write_unit_bytes)
{
    if (h->address % write_unit_bytes != 0)
        return "address is not on a write unit";
    if (h->entry_count > CHUNK_ENTRIES_MAX)
        return "too many entries";
    if (h->table_bytes > CHUNK_BYTES_MAX || h->payload_bytes > CHUNK_BYTES_MAX)
        return "table or payload too long";
    if ((h->entry_count == 0) != (h->table_bytes == 0))
        return "table length and entry count disagree";
    if (h->echo_bytes != 0 && (h->head != CHUNK_HEAD_DATA || h->echo_bytes < CHUNK_HEADER_BYTES ||
                               h->echo_bytes > chunk_echo_bytes_max(write_unit_bytes)))
        return "echo length";
    if (h->chunk_bytes > CHUNK_BYTES_MAX)
        return "chunk too long";
    if (h->chunk_bytes != chunk_size_bytes(h->table_bytes, (size_t)h->echo_bytes + h->payload_bytes, write_unit_bytes,
                                           chunk_copy_of(h->head, h->flags)))
        return "chunk length does not follow from table and payload";
    if (h->address > UINT64_MAX - h->chunk_bytes)
        return "address overflows";
    return NULL;
}

const char *chunk_header_fault(const struct chunk_header *h, uint32_t write_unit_bytes)
{
    if (h->head != CHUNK_HEAD_DATA && h->head != CHUNK_HEAD_NODE)
        return "unknown head";
    if ((h->flags & ~(uint32_t)(CHUNK_FLAG_COPY | CHUNK_FLAG_BRIDGE)) != 0)
        return "unknown flags";
    if ((h->flags & CHUNK_FLAG_COPY) != 0 && h->head != CHUNK_HEAD_NODE)
        return "a copy outside the node head";
    if ((h->flags & CHUNK_FLAG_BRIDGE) != 0) {
        if (h->head != CHUNK_HEAD_DATA)
            return "a bridge outside the data head";
        if (h->entry_count != 1 || h->payload_bytes != 0)
            return "a bridge with other entries";
    }
    if (h->head != CHUNK_HEAD_DATA && !checksum_is_zero(h->previous_chain))
        return "a previous chain value outside the data head";
    if (h->head == CHUNK_HEAD_DATA && h->durable_to > h->address)
        return "durable_to lies behind the chunk";
    const char *fault = sizes_fault(h, write_unit_bytes);
    return fault != NULL ? fault : next_slots_fault(h);
}

/* The bytes of an entry obey the rules of the pointer that will name them. */
static const char *stored_bytes_fault(const struct chunk_entry *e)
{
    const struct patch p = {
        .first_sector = e->first_sector,
        .sector_count = e->sector_count,
        .pointer = {.length = e->length,
                    .kind = e->kind == ENTRY_PATCH  ? POINTER_PATCH
                            : e->kind == ENTRY_DATA ? POINTER_DATA
                                                    : POINTER_NODE,
                    .codec = e->codec,
                    .codec_param = e->codec_param,
                    .checksum_kind = CHECKSUM_KIND_XXH3_128,
                    .flags = e->flags},
    };
    if (e->kind == ENTRY_PATCH)
        return patch_valid(&p) ? NULL : "sectors, length, codec or flags of a patch";
    if (e->first_sector != 0 || e->sector_count != 0)
        return "sectors on an entry that is no patch";
    return pointer_valid(&p.pointer) ? NULL : "length, codec or flags";
}

static const char *entry_range_fault(const struct chunk_entry *e)
{
    if (e->kind == ENTRY_BRIDGE)
        return e->count < SLOT_COUNT_MAX ? NULL : "slot of a bridge out of range";
    if (e->kind == ENTRY_NODE) {
        if (e->level >= MAP_LEVELS_MAX)
            return "level of a node out of range";
        if (e->index >= RECORD_INDEX_LIMIT >> map_level_bits(e->level))
            return "number of a node out of range";
    }
    if (e->kind != ENTRY_NODE && e->level != 0)
        return "a level on an entry that is no node";
    if (e->count == 0 || e->count > RECORD_INDEX_LIMIT || e->index > RECORD_INDEX_LIMIT - e->count)
        return "index or count out of range";
    if (chunk_entry_has_bytes(e) && e->count != 1)
        return "count of an entry with bytes is not 1";
    return NULL;
}

const char *chunk_entry_fault(const struct chunk_entry *e, uint8_t head, uint32_t chunk_flags)
{
    if (e->kind < ENTRY_DATA || e->kind > ENTRY_BRIDGE)
        return "unknown entry kind";
    if ((e->kind == ENTRY_BRIDGE) != ((chunk_flags & CHUNK_FLAG_BRIDGE) != 0))
        return "bridge entry and bridge flag disagree";
    if ((e->kind == ENTRY_BRIDGE) != (e->branch == 0))
        return "branch";
    if (head == CHUNK_HEAD_NODE && e->kind != ENTRY_DATA && e->kind != ENTRY_NODE)
        return "entry kind that the node head does not take";
    if (head != CHUNK_HEAD_NODE && e->kind == ENTRY_NODE)
        return "a map node outside the node head";
    const char *fault = entry_range_fault(e);
    if (fault != NULL)
        return fault;
    if (chunk_entry_has_bytes(e))
        return stored_bytes_fault(e);
    if (e->level != 0 || e->codec != 0 || e->codec_param != 0 || e->flags != 0 || e->first_sector != 0 ||
        e->sector_count != 0 || e->length != 0 || !checksum_is_zero(e->checksum))
        return "values for bytes that a trim, zero or bridge does not have";
    return NULL;
}

bool chunk_run_continues(const struct chunk_entry *last, const struct chunk_entry *next)
{
    return last->kind == next->kind && last->kind != ENTRY_BRIDGE && last->level == next->level &&
           last->codec == next->codec && last->codec_param == next->codec_param && last->flags == next->flags &&
           last->branch == next->branch && chunk_entry_end(last) == next->index;
}

/* Bytes that open a run of `count` entries like `first`. */
static size_t run_header_bytes(const struct chunk_entry *first, size_t count)
{
    size_t n = 1 + varint_bytes(first->branch) + varint_bytes(first->index) + varint_bytes(count);
    if (chunk_entry_has_bytes(first))
        n += 3;
    if (first->kind == ENTRY_NODE)
        n += 1;
    return n;
}

/* Bytes of one entry in its run. */
static size_t entry_bytes(const struct chunk_entry *e)
{
    if (!chunk_entry_has_bytes(e))
        return varint_bytes(e->count);
    size_t n = varint_bytes(e->length) + CHUNK_CHECKSUM_BYTES;
    if (e->kind == ENTRY_PATCH)
        n += varint_bytes(e->first_sector) + varint_bytes(e->sector_count);
    return n;
}

size_t chunk_table_bytes(const struct chunk_entry *entries, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count;) {
        const size_t first = i;
        do {
            n += entry_bytes(&entries[i]);
            i++;
        } while (i < count && chunk_run_continues(&entries[i - 1], &entries[i]));
        n += run_header_bytes(&entries[first], i - first);
    }
    return n;
}

struct checksum chunk_chain_of(const uint8_t *header, const uint8_t *table, size_t table_bytes)
{
    return checksum_chain(checksum_of(header, CHUNK_HEADER_SUMMED_BYTES), table, table_bytes);
}
