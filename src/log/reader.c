/*
 * Reading by pointer (reader.h): one object at a time, or many whose places are joined into long reads that run side by
 * side.
 */
#include "log/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/chunk.h"

#define RUN_BYTES_MAX (1024 * 1024)
#define RUNS_AT_ONCE 16

void reader_init(struct reader *r, struct device *dev, struct slots *slots, const struct geometry *geometry)
{
    r->dev = dev;
    r->slots = slots;
    r->geometry = geometry;
    atomic_init(&r->healed, 0);
    atomic_init(&r->bad, 0);
}

static int resolve(struct reader *r, const struct pointer *p, bool physical, uint64_t *ret_offset)
{
    uint64_t within = p->address % r->geometry->segment_bytes;
    if (within + p->length > r->geometry->segment_bytes)
        return -EBADMSG;
    if (!physical)
        return slots_resolve(r->slots, p->address, ret_offset);
    uint64_t slot = p->address / r->geometry->segment_bytes;
    if (slot >= r->geometry->slot_count)
        return -EBADMSG;
    *ret_offset = slots_device_offset(r->slots, (uint32_t)slot, (uint32_t)within);
    return 0;
}

/* Reads [offset, offset + length) of the device through an aligned buffer. */
static int read_bytes(struct reader *r, uint64_t offset, uint32_t length, uint8_t *ret_bytes)
{
    uint64_t first = round_down(offset, DEVICE_ALIGN_BYTES);
    uint64_t end = round_up(offset + length, DEVICE_ALIGN_BYTES);
    uint8_t *buf = device_buffer_new(end - first);
    if (buf == NULL)
        return -ENOMEM;
    int result = device_read(r->dev, first, buf, end - first);
    if (result == 0)
        memcpy(ret_bytes, buf + (offset - first), length);
    device_buffer_free(buf);
    return result;
}

static bool verifies(const struct pointer *p, const uint8_t *bytes)
{
    return checksum_equal(checksum_of(bytes, p->length), p->checksum);
}

/*
 * The second copy of the node-head chunk that holds device offset `offset`: its header, marked as a copy, lies at the
 * end of the first copy, and says how long both are. Found by looking at each write unit from here on.
 */
static int find_copy(struct reader *r, uint64_t offset, uint64_t *ret_offset)
{
    uint32_t unit = r->geometry->write_unit_bytes;
    uint64_t slot_bytes = r->geometry->segment_bytes;
    uint64_t in_data = offset - r->geometry->data_start_bytes;
    uint64_t slot_end = r->geometry->data_start_bytes + round_down(in_data, slot_bytes) + slot_bytes;
    uint64_t end = min_u64(slot_end, round_down(offset, unit) + CHUNK_BYTES_MAX);
    uint8_t *buf = device_buffer_new(unit);
    int result = buf == NULL ? -ENOMEM : -EBADMSG;
    for (uint64_t at = round_down(offset, unit) + unit; buf != NULL && at < end; at += unit) {
        struct chunk_header header;
        if (device_read(r->dev, at, buf, unit) != 0 || chunk_header_decode(buf, unit, unit, &header, NULL) != 0)
            continue;
        if (header.head != CHUNK_HEAD_NODE || (header.flags & CHUNK_FLAG_COPY) == 0)
            continue;
        if (memcmp(header.pool_uuid, r->geometry->pool_uuid, sizeof header.pool_uuid) != 0)
            continue;
        /* The first copy is [at - chunk_bytes, at): what we look for must lie in it. */
        if (header.chunk_bytes <= at - r->geometry->data_start_bytes && at - header.chunk_bytes <= offset) {
            *ret_offset = offset + header.chunk_bytes;
            result = 0;
        }
        break;
    }
    device_buffer_free(buf);
    return result;
}

static int read_copy(struct reader *r, const struct pointer *p, uint64_t offset, uint8_t *ret_bytes)
{
    uint64_t copy_offset;
    int result = find_copy(r, offset, &copy_offset);
    if (result != 0)
        return result;
    result = read_bytes(r, copy_offset, p->length, ret_bytes);
    if (result == 0 && !verifies(p, ret_bytes))
        result = -EBADMSG;
    if (result == 0)
        atomic_fetch_add_explicit(&r->healed, 1, memory_order_relaxed);
    return result;
}

/* Nodes, catalog objects and table records lie in the node head, where everything is there twice. */
static bool in_node_head(struct reader *r, uint64_t offset)
{
    uint64_t slot = (offset - r->geometry->data_start_bytes) / r->geometry->segment_bytes;
    struct slot t = slots_get(r->slots, (uint32_t)slot);
    /* Before the slot table is read every slot looks free: then this is the slot table itself being read. */
    return t.head == CHUNK_HEAD_NODE || t.state == SLOT_BARE;
}

int reader_read(struct reader *r, const struct pointer *p, bool physical, uint8_t *ret_bytes)
{
    CHECK(pointer_has_bytes(p));
    uint64_t offset = 0, again = 0;
    int result = resolve(r, p, physical, &offset);
    if (result == 0)
        result = read_bytes(r, offset, p->length, ret_bytes);
    if (result == 0 && !verifies(p, ret_bytes)) {
        result = resolve(r, p, physical, &again);
        if (result == 0 && again != offset)
            result = read_bytes(r, again, p->length, ret_bytes);
        if (result == 0 && !verifies(p, ret_bytes))
            result = -EBADMSG;
    }
    if ((result == -EBADMSG || result == -EIO) && offset != 0 && in_node_head(r, offset)) {
        int copied = read_copy(r, p, offset, ret_bytes);
        if (copied == 0)
            result = 0;
    }
    if (result != 0)
        atomic_fetch_add_explicit(&r->bad, 1, memory_order_relaxed);
    return result;
}

struct run {
    uint64_t first, end; /* device offsets, aligned */
    uint32_t item_first, item_end;
    uint8_t *buf;
};

/* Joins items [from, ...) whose places follow each other closely into one run. Returns the index after its last item.
 */
static uint32_t gather_run(const uint64_t *offsets, const struct reader_item *items, uint32_t from, uint32_t count,
                           struct run *run)
{
    run->item_first = from;
    run->first = round_down(offsets[from], DEVICE_ALIGN_BYTES);
    run->end = round_up(offsets[from] + items[from].pointer->length, DEVICE_ALIGN_BYTES);
    uint32_t i = from + 1;
    for (; i < count && offsets[i] != UINT64_MAX; i++) {
        uint64_t end = round_up(offsets[i] + items[i].pointer->length, DEVICE_ALIGN_BYTES);
        if (offsets[i] < run->first || offsets[i] > run->end || end - run->first > RUN_BYTES_MAX)
            break;
        run->end = max_u64(run->end, end);
    }
    run->item_end = i;
    return i;
}

static void finish_runs(struct reader *r, struct run *runs, uint32_t run_count, const uint64_t *offsets,
                        struct reader_item *items, const int *results)
{
    for (uint32_t k = 0; k < run_count; k++) {
        for (uint32_t i = runs[k].item_first; i < runs[k].item_end; i++) {
            const struct pointer *p = items[i].pointer;
            items[i].result = results[k];
            if (results[k] == 0)
                memcpy(items[i].bytes, runs[k].buf + (offsets[i] - runs[k].first), p->length);
            /* Anything wrong with one of them: look at it alone, with all that reader_read does about it. */
            if (results[k] != 0 || !verifies(p, items[i].bytes))
                items[i].result = reader_read(r, p, false, items[i].bytes);
        }
        device_buffer_free(runs[k].buf);
    }
}

static void read_runs(struct reader *r, struct run *runs, uint32_t run_count, const uint64_t *offsets,
                      struct reader_item *items)
{
    struct device_io ios[RUNS_AT_ONCE];
    struct iovec iov[RUNS_AT_ONCE];
    int results[RUNS_AT_ONCE];
    uint32_t n = 0;
    memset(ios, 0, sizeof ios);
    for (uint32_t k = 0; k < run_count; k++) {
        runs[k].buf = device_buffer_new(runs[k].end - runs[k].first);
        results[k] = -ENOMEM;
        if (runs[k].buf == NULL)
            continue;
        iov[n] = (struct iovec){.iov_base = runs[k].buf, .iov_len = runs[k].end - runs[k].first};
        ios[n] = (struct device_io){.kind = DEVICE_READ,
                                    .offset_bytes = runs[k].first,
                                    .length_bytes = runs[k].end - runs[k].first,
                                    .iov = &iov[n],
                                    .iov_count = 1};
        n++;
    }
    if (n > 0 && device_run(r->dev, ios, n) != 0) {
        /* Each has its own result below. */
    }
    for (uint32_t k = 0, i = 0; k < run_count; k++) {
        if (runs[k].buf != NULL)
            results[k] = ios[i++].result;
    }
    finish_runs(r, runs, run_count, offsets, items, results);
}

void reader_read_many(struct reader *r, struct reader_item *items, uint32_t count)
{
    uint64_t *offsets = count > 1 ? malloc(count * sizeof *offsets) : NULL;
    if (offsets == NULL) {
        for (uint32_t i = 0; i < count; i++)
            items[i].result = reader_read(r, items[i].pointer, false, items[i].bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        items[i].result = resolve(r, items[i].pointer, false, &offsets[i]);
        if (items[i].result != 0)
            offsets[i] = UINT64_MAX;
    }
    struct run runs[RUNS_AT_ONCE];
    uint32_t run_count = 0;
    for (uint32_t i = 0; i < count;) {
        if (offsets[i] == UINT64_MAX) {
            i++;
            continue;
        }
        i = gather_run(offsets, items, i, count, &runs[run_count++]);
        if (run_count == RUNS_AT_ONCE) {
            read_runs(r, runs, run_count, offsets, items);
            run_count = 0;
        }
    }
    if (run_count > 0)
        read_runs(r, runs, run_count, offsets, items);
    free(offsets);
}
