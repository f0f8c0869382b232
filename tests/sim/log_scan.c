/*
 * A slot is walked by write units; where a header with a valid table stands at the place its address names, its chunk
 * is noted and stepped over.
 */
#include "sim/log_scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "model/labels.h"

static uint32_t chunk_note(struct log_scan *scan, const uint8_t *bytes, size_t room, uint64_t offset)
{
    struct chunk_header header;
    struct error err = {0};
    if (chunk_header_decode(bytes, room, WRITE_UNIT_BYTES_MIN, &header, &err) != 0 || header.chunk_bytes > room)
        return 0;
    struct chunk_entry *entries = calloc(header.entry_count + 1, sizeof(*entries));
    CHECK(entries != NULL);
    if (chunk_table_decode(bytes, room, &header, entries, &err) != 0) {
        free(entries);
        return 0;
    }
    if (scan->count == scan->room) {
        scan->room = scan->room == 0 ? 64 : scan->room * 2;
        scan->chunks = realloc(scan->chunks, scan->room * sizeof(*scan->chunks));
        CHECK(scan->chunks != NULL);
    }
    scan->chunks[scan->count++] = (struct scanned_chunk){.offset_bytes = offset, .header = header, .entries = entries};
    return header.chunk_bytes;
}

void log_scan_disk(struct log_scan *scan, const struct sim_disk *disk, uint64_t disk_bytes)
{
    struct label label;
    *scan = (struct log_scan){0};
    CHECK(labels_newest(disk, disk_bytes, &label));
    uint8_t *bytes = malloc(label.segment_bytes);
    CHECK(bytes != NULL);
    for (uint64_t slot = 0; slot < label.devices[0].slot_count; slot++) {
        uint64_t start = label.devices[0].data_start_bytes + slot * label.segment_bytes;
        sim_disk_peek(disk, start, bytes, label.segment_bytes);
        for (uint64_t at = 0; at < label.segment_bytes;) {
            uint32_t chunk_bytes = chunk_note(scan, bytes + at, label.segment_bytes - at, start + at);
            at += chunk_bytes == 0 ? WRITE_UNIT_BYTES_MIN : chunk_bytes;
        }
    }
    free(bytes);
}

void log_scan_free(struct log_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++)
        free(scan->chunks[i].entries);
    free(scan->chunks);
    *scan = (struct log_scan){0};
}

bool log_scan_holds(const struct log_scan *scan, uint64_t offset_bytes, uint64_t length_bytes, uint64_t branch,
                    uint64_t index)
{
    for (size_t i = 0; i < scan->count; i++) {
        const struct scanned_chunk *c = &scan->chunks[i];
        if (c->offset_bytes >= offset_bytes + length_bytes || c->offset_bytes + c->header.chunk_bytes <= offset_bytes ||
            c->header.head != CHUNK_HEAD_DATA)
            continue;
        for (uint32_t k = 0; k < c->header.entry_count; k++) {
            const struct chunk_entry *e = &c->entries[k];
            uint64_t at = c->offset_bytes + e->payload_offset;
            if (e->branch == branch && index >= e->index && index < e->index + e->count && e->length != 0 &&
                at < offset_bytes + length_bytes && at + e->length > offset_bytes)
                return true;
        }
    }
    return false;
}

static int by_address(const void *a, const void *b)
{
    const struct scanned_chunk *const *x = a, *const *y = b;
    return (*x)->header.address < (*y)->header.address ? -1 : (*x)->header.address > (*y)->header.address;
}

size_t log_scan_data_chunks(const struct log_scan *scan, uint64_t address, const struct scanned_chunk **ret_list,
                            size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < scan->count && count < room; i++)
        if (scan->chunks[i].header.head == CHUNK_HEAD_DATA && scan->chunks[i].header.address >= address)
            ret_list[count++] = &scan->chunks[i];
    qsort(ret_list, count, sizeof(*ret_list), by_address);
    return count;
}
