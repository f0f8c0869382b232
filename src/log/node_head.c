/*
 * The node head (node_head.h): collecting objects in a chunk, writing it twice in a row, and filling in the pointers
 * that wait for its address.
 */
#include "log/node_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

int node_head_init(struct node_head *h, struct env_mutex *lock, struct device *dev, struct slots *slots,
                   const struct geometry *geometry, struct segment_numbers *numbers)
{
    memset(h, 0, sizeof *h);
    h->lock = lock;
    h->dev = dev;
    h->slots = slots;
    h->geometry = geometry;
    h->numbers = numbers;
    h->at.slot = SLOT_NONE;
    h->entries = calloc(NODE_CHUNK_ENTRIES_MAX, sizeof *h->entries);
    h->payload = malloc(NODE_CHUNK_PAYLOAD_BYTES_MAX);
    if (h->entries == NULL || h->payload == NULL) {
        node_head_fini(h);
        return -ENOMEM;
    }
    return 0;
}

void node_head_fini(struct node_head *h)
{
    free(h->entries);
    free(h->payload);
    h->entries = NULL;
    h->payload = NULL;
}

uint64_t node_head_address(const struct node_head *h)
{
    CHECK_NE(h->at.slot, SLOT_NONE);
    return h->at.segment * h->geometry->segment_bytes + h->position_bytes;
}

/* The last write unit stays empty: a position at the very end would read as the next segment's start in a label. */
static uint32_t room(const struct node_head *h)
{
    return h->at.slot == SLOT_NONE ? 0 : h->geometry->segment_bytes - h->geometry->write_unit_bytes - h->position_bytes;
}

/* What one chunk may hold: a quarter of a small segment, so that pairs of chunks fill segments well. */
static uint32_t payload_limit(const struct node_head *h)
{
    return (uint32_t)min_u64(NODE_CHUNK_PAYLOAD_BYTES_MAX, h->geometry->segment_bytes / 8);
}

static int choose_next(struct node_head *h, uint64_t checkpoint)
{
    struct placed_segment p;
    bool bare;
    env_mutex_lock(h->lock);
    p.segment = h->numbers->next;
    int result = slots_choose(h->slots, p.segment, CHUNK_HEAD_NODE, checkpoint, 0, &p.slot, &bare);
    if (result == 0)
        h->numbers->next++;
    env_mutex_unlock(h->lock);
    if (result != 0)
        return result;
    if (bare) {
        struct device_io io = {.kind = DEVICE_ALLOCATE,
                               .offset_bytes = slots_device_offset(h->slots, p.slot, 0),
                               .length_bytes = h->geometry->segment_bytes};
        result = device_run(h->dev, &io, 1);
    }
    if (result != 0)
        slots_return(h->slots, p.slot, false, checkpoint);
    else
        h->next[h->next_count++] = p;
    return result;
}

uint64_t node_head_held_bytes(const struct node_head *h)
{
    return room(h) + h->next_count * (uint64_t)h->geometry->segment_bytes;
}

int node_head_reserve(struct node_head *h, uint64_t bytes, uint64_t checkpoint)
{
    /* Segments are not filled to their last byte: what a pair of full chunks takes may be left over at the end of each.
     */
    uint64_t leftover = 2 * (uint64_t)chunk_size_bytes(CHUNK_TABLE_ENTRY_BYTES_MAX, payload_limit(h),
                                                       h->geometry->write_unit_bytes, CHUNK_COPY_NONE);
    uint64_t usable = h->geometry->segment_bytes - min_u64(leftover, h->geometry->segment_bytes / 2);
    uint64_t have = 0;
    have += room(h) > leftover ? room(h) - leftover : 0;
    have += h->next_count * usable;
    while (have < bytes) {
        if (h->next_count == NODE_HEAD_NEXT_MAX)
            return 0; /* as far ahead as the table needs to know; the rest is chosen on the way */
        int result = choose_next(h, checkpoint);
        if (result != 0)
            return result;
        have += usable;
    }
    return 0;
}

static int advance(struct node_head *h, uint64_t checkpoint)
{
    if (h->next_count == 0 && h->choice_closed)
        return -ENOSPC;
    if (h->next_count == 0) {
        int result = choose_next(h, checkpoint);
        if (result != 0)
            return result;
    }
    if (h->at.slot != SLOT_NONE)
        slots_close(h->slots, h->at.slot, h->position_bytes, checkpoint);
    h->at = h->next[0];
    h->position_bytes = 0;
    h->next_count--;
    memmove(h->next, h->next + 1, h->next_count * sizeof h->next[0]);
    slots_open(h->slots, h->at.slot, checkpoint);
    return 0;
}

int node_head_append(struct node_head *h, const struct chunk_entry *entry, const uint8_t *bytes, uint32_t length,
                     bool physical, struct pointer *pointer, uint64_t checkpoint)
{
    CHECK_LE(length, payload_limit(h));
    CHECK_GT(length, 0);
    if (h->entry_count == NODE_CHUNK_ENTRIES_MAX || h->payload_bytes + length > payload_limit(h)) {
        int result = node_head_close_chunk(h, checkpoint);
        if (result != 0)
            return result;
    }
    struct node_head_entry *e = &h->entries[h->entry_count++];
    e->entry = *entry;
    e->entry.length = length;
    e->entry.count = 1;
    e->entry.checksum = checksum_of(bytes, length);
    e->pointer = pointer;
    e->physical = physical;
    memcpy(h->payload + h->payload_bytes, bytes, length);
    h->payload_bytes += length;
    if (pointer != NULL) {
        memset(pointer, 0, sizeof *pointer);
        pointer->kind = entry->kind == ENTRY_NODE ? POINTER_NODE : POINTER_DATA;
        pointer->length = length;
        pointer->codec = entry->codec;
        pointer->checksum_kind = CHECKSUM_KIND_XXH3_128;
        pointer->checksum = e->entry.checksum;
    }
    return 0;
}

static void encode_copy(struct node_head *h, const struct chunk_entry *entries, size_t table_bytes, uint32_t flags,
                        uint32_t offset_in_segment, uint8_t *buf)
{
    struct chunk_header header = {.head = CHUNK_HEAD_NODE,
                                  .flags = flags,
                                  .address = h->at.segment * h->geometry->segment_bytes + offset_in_segment,
                                  .incarnation = h->geometry->incarnation,
                                  .wall_ns = env_wall_ns(h->dev->env),
                                  .sequence = h->sequence};
    memcpy(header.pool_uuid, h->geometry->pool_uuid, sizeof header.pool_uuid);
    for (uint32_t i = 0; i < LOOKAHEAD_SLOTS_MAX; i++)
        header.next_slots[i] = SLOT_NONE;
    memcpy(buf + CHUNK_HEADER_BYTES + table_bytes, h->payload, h->payload_bytes);
    chunk_encode(&header, entries, h->entry_count, buf, h->geometry->write_unit_bytes);
}

static void complete_pointers(struct node_head *h, const struct chunk_entry *entries)
{
    uint64_t segment_bytes = h->geometry->segment_bytes;
    for (uint32_t i = 0; i < h->entry_count; i++) {
        struct node_head_entry *e = &h->entries[i];
        if (e->pointer == NULL)
            continue;
        uint64_t base = (e->physical ? h->at.slot : h->at.segment) * segment_bytes;
        e->pointer->address = base + h->position_bytes + entries[i].payload_offset;
    }
}

static int write_copies(struct node_head *h, const struct chunk_entry *entries, size_t table_bytes,
                        uint32_t chunk_bytes)
{
    uint8_t *buf = device_buffer_new(2 * (size_t)chunk_bytes);
    if (buf == NULL)
        return -ENOMEM;
    h->sequence++;
    encode_copy(h, entries, table_bytes, 0, h->position_bytes, buf);
    encode_copy(h, entries, table_bytes, CHUNK_FLAG_COPY, h->position_bytes + chunk_bytes, buf + chunk_bytes);
    uint64_t offset = slots_device_offset(h->slots, h->at.slot, h->position_bytes);
    /* Two writes, not one: a device that tears or misdirects one of them leaves the other. */
    struct iovec iov[2] = {{.iov_base = buf, .iov_len = chunk_bytes},
                           {.iov_base = buf + chunk_bytes, .iov_len = chunk_bytes}};
    struct device_io ios[2] = {
        {.kind = DEVICE_WRITE, .offset_bytes = offset, .length_bytes = chunk_bytes, .iov = &iov[0], .iov_count = 1},
        {.kind = DEVICE_WRITE,
         .offset_bytes = offset + chunk_bytes,
         .length_bytes = chunk_bytes,
         .iov = &iov[1],
         .iov_count = 1},
    };
    int result = device_run(h->dev, ios, 2);
    device_buffer_free(buf);
    return result;
}

void node_head_abandon(struct node_head *h)
{
    h->entry_count = 0;
    h->payload_bytes = 0;
}

int node_head_close_chunk(struct node_head *h, uint64_t checkpoint)
{
    if (h->entry_count == 0)
        return 0;
    struct chunk_entry *entries = calloc(h->entry_count, sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < h->entry_count; i++)
        entries[i] = h->entries[i].entry;
    size_t table_bytes = chunk_table_bytes(entries, h->entry_count);
    uint32_t chunk_bytes =
        chunk_size_bytes(table_bytes, h->payload_bytes, h->geometry->write_unit_bytes, CHUNK_COPY_NONE);
    uint32_t offset = CHUNK_HEADER_BYTES + (uint32_t)table_bytes;
    for (uint32_t i = 0; i < h->entry_count; i++) {
        entries[i].payload_offset = offset;
        offset += entries[i].length;
    }
    int result = 0;
    if (room(h) < 2 * chunk_bytes)
        result = advance(h, checkpoint);
    if (result == 0)
        result = write_copies(h, entries, table_bytes, chunk_bytes);
    if (result == 0) {
        complete_pointers(h, entries);
        h->position_bytes += 2 * chunk_bytes;
        h->written_bytes += 2 * chunk_bytes;
        h->entry_count = 0;
        h->payload_bytes = 0;
    }
    free(entries);
    return result;
}
