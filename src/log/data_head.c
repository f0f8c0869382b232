/*
 * The data head (data_head.h): building chunks, placing them in the chain, writing them, and the device flushes that
 * make them durable.
 */
#include "log/data_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "log/rules.h"

/* A bridge with its trailer: header, table and the longest echo fill less than one write unit. */
#define BRIDGE_UNITS 2
#define SMALL_CHUNKS_MIN 128 /* in a segment, and the next ones are zeroed before */
#define ZERO_BYTES (1024 * 1024)

void data_head_init(struct data_head *h, struct env *env, struct env_mutex *lock, struct device *dev,
                    struct slots *slots, const struct geometry *geometry, struct segment_numbers *numbers)
{
    memset(h, 0, sizeof *h);
    h->lock = lock;
    h->dev = dev;
    h->slots = slots;
    h->geometry = geometry;
    h->numbers = numbers;
    h->at.slot = SLOT_NONE;
    env_cond_init(&h->progress, env);
    list_init(&h->in_flight);
}

void data_head_fini(struct data_head *h)
{
    /* On a failed head nothing moves any more: chunks that were written behind one that was not are still here. */
    while (!list_empty(&h->in_flight)) {
        struct log_chunk *chunk = (struct log_chunk *)h->in_flight.next;
        CHECK(h->failed);
        CHECK(chunk->released);
        list_remove(&chunk->link);
        free(chunk);
    }
    env_cond_destroy(&h->progress);
}

uint32_t data_head_room(const struct data_head *h)
{
    if (h->at.slot == SLOT_NONE)
        return 0;
    /* Kept for a bridge, so that recovery can always go on from where the log ends. */
    uint32_t usable = h->geometry->segment_bytes - BRIDGE_UNITS * h->geometry->write_unit_bytes;
    return h->position_bytes < usable ? usable - h->position_bytes : 0;
}

uint64_t data_head_address(const struct data_head *h)
{
    CHECK_NE(h->at.slot, SLOT_NONE);
    return h->at.segment * h->geometry->segment_bytes + h->position_bytes;
}

int data_head_advance(struct data_head *h, uint64_t checkpoint)
{
    CHECK(env_mutex_held(h->lock));
    if (h->next_count == 0)
        return -ENOSPC;
    if (h->at.slot != SLOT_NONE) {
        CHECK_LT(h->at.segment, h->next[0].segment);
        slots_close(h->slots, h->at.slot, h->position_bytes, checkpoint);
        h->small_chunks = h->sealed_to - h->sealed_before > SMALL_CHUNKS_MIN;
    }
    h->sealed_before = h->sealed_to;
    h->at = h->next[0];
    h->position_bytes = 0;
    h->next_count--;
    memmove(h->next, h->next + 1, h->next_count * sizeof h->next[0]);
    slots_open(h->slots, h->at.slot, checkpoint);
    return 0;
}

/*
 * Writes zeroes over a slot whose storage was only allocated. The first write to such storage makes the file system
 * convert the extent and the flush commit its journal, each time: where chunks are small that is paid a thousand times
 * a segment, and costs more than writing the segment once more. A failure is one like that of any write (R30).
 */
static int zero_slot(struct data_head *h, uint32_t slot)
{
    uint8_t *zeroes = device_buffer_new(ZERO_BYTES);
    uint32_t bytes = h->geometry->segment_bytes;
    int result = 0;
    if (zeroes == NULL)
        return 0; /* it is only slower */
    memset(zeroes, 0, ZERO_BYTES);
    for (uint32_t at = 0; at < bytes && result == 0; at += ZERO_BYTES) {
        struct iovec iov = {.iov_base = zeroes, .iov_len = min_u64(ZERO_BYTES, bytes - at)};
        struct device_io io = {.kind = DEVICE_WRITE,
                               .offset_bytes = slots_device_offset(h->slots, slot, at),
                               .length_bytes = iov.iov_len,
                               .iov = &iov,
                               .iov_count = 1};
        result = device_run(h->dev, &io, 1);
    }
    device_buffer_free(zeroes);
    return result == 0 ? 0 : -EIO;
}

/* Storage for a slot that never had any, or gave it back. */
static int allocate_slot(struct data_head *h, uint32_t slot)
{
    struct device_io io = {.kind = DEVICE_ALLOCATE,
                           .offset_bytes = slots_device_offset(h->slots, slot, 0),
                           .length_bytes = h->geometry->segment_bytes};
    return device_run(h->dev, &io, 1);
}

int data_head_refill(struct data_head *h, uint64_t checkpoint)
{
    return data_head_refill_to(h, h->geometry->lookahead_count, checkpoint);
}

int data_head_refill_to(struct data_head *h, uint32_t count, uint64_t checkpoint)
{
    int result = 0;
    CHECK_LE(count, LOOKAHEAD_SLOTS_MAX);
    env_mutex_lock(h->lock);
    while (result == 0 && h->next_count < count) {
        struct placed_segment p = {.segment = h->numbers->next};
        bool bare, ahead = h->next_count > 0;
        if (ahead && slots_free_count(h->slots) <= h->slots_kept)
            break;
        result =
            slots_choose(h->slots, p.segment, CHUNK_HEAD_DATA, checkpoint, ahead ? h->ready_kept : 0, &p.slot, &bare);
        if (result != 0)
            break;
        h->numbers->next++;
        if (bare) {
            env_mutex_unlock(h->lock);
            bool small = h->small_chunks;
            result = allocate_slot(h, p.slot);
            if (result == 0 && small)
                result = zero_slot(h, p.slot);
            env_mutex_lock(h->lock);
        }
        if (result != 0)
            slots_return(h->slots, p.slot, false, checkpoint);
        else
            h->next[h->next_count++] = p;
    }
    if (result == -ENOSPC && h->next_count > 0)
        result = 0;
    if (result != 0 && result != -ENOSPC)
        data_head_fail(h);
    env_mutex_unlock(h->lock);
    return result;
}

static void name_next_segments(const struct data_head *h, struct chunk_header *header)
{
    uint64_t previous = 0;
    for (uint32_t i = 0; i < LOOKAHEAD_SLOTS_MAX; i++)
        header->next_slots[i] = SLOT_NONE;
    for (uint32_t i = 0; i < h->next_count; i++) {
        uint64_t step = h->next[i].segment - previous;
        if (i == 0) {
            header->next_segments_first = h->next[i].segment;
        } else {
            if (step > UINT8_MAX)
                break; /* the header has room for near ones only; it names the others once they are near */
            header->next_segment_deltas[i] = (uint8_t)step;
        }
        header->next_slots[i] = h->next[i].slot;
        previous = h->next[i].segment;
    }
}

static void fill_header(struct data_head *h, uint32_t flags, struct chunk_header *header)
{
    memset(header, 0, sizeof *header);
    env_mutex_lock(h->lock);
    header->durable_to = h->durable_address;
    header->sequence = h->sealed_to + 1;
    env_mutex_unlock(h->lock);
    header->head = CHUNK_HEAD_DATA;
    header->flags = flags;
    memcpy(header->pool_uuid, h->geometry->pool_uuid, sizeof header->pool_uuid);
    header->address = data_head_address(h);
    header->incarnation = h->geometry->incarnation;
    header->previous_chain = h->chain;
    header->wall_ns = env_wall_ns(h->dev->env);
    header->echo_bytes = h->echo_bytes;
    name_next_segments(h, header);
}

uint32_t data_head_chunk_bytes(const struct data_head *h, size_t table_bytes, uint64_t payload_bytes)
{
    return chunk_size_bytes(table_bytes, h->echo_bytes + payload_bytes, h->geometry->write_unit_bytes, CHUNK_COPY_ECHO);
}

int data_head_build(struct data_head *h, struct chunk_content *content, struct log_chunk **ret_chunk)
{
    uint32_t unit = h->geometry->write_unit_bytes;
    size_t table_bytes = chunk_table_bytes(content->entries, content->count);
    bool bridge = (content->flags & CHUNK_FLAG_BRIDGE) != 0;
    uint32_t chunk_bytes = chunk_size_bytes(table_bytes, h->echo_bytes + content->payload_bytes, unit,
                                            chunk_copy_of(CHUNK_HEAD_DATA, content->flags));
    CHECK_LE(chunk_bytes, data_head_room(h) + (bridge ? BRIDGE_UNITS * unit : 0));
    CHECK_LE(chunk_bytes, CHUNK_BYTES_MAX);
    struct log_chunk *chunk = calloc(1, sizeof *chunk);
    uint8_t *buffer = device_buffer_new(chunk_bytes);
    if (chunk == NULL || buffer == NULL) {
        free(chunk);
        device_buffer_free(buffer);
        return -ENOMEM;
    }
    struct chunk_header header;
    fill_header(h, content->flags, &header);
    size_t at = CHUNK_HEADER_BYTES + table_bytes;
    memcpy(buffer + at, h->echo, h->echo_bytes);
    at += h->echo_bytes;
    for (uint32_t i = 0; i < content->count; i++) {
        struct chunk_entry *e = &content->entries[i];
        e->payload_offset = e->length == 0 ? 0 : (uint32_t)at;
        if (e->length > 0)
            memcpy(buffer + at, content->bytes[i], e->length);
        at += e->length;
    }
    chunk_encode(&header, content->entries, content->count, buffer, unit);
    CHECK_EQ(header.chunk_bytes, chunk_bytes);
    list_init(&chunk->link);
    chunk->address = header.address;
    chunk->end_address = header.address + chunk_bytes;
    chunk->device_offset_bytes = slots_device_offset(h->slots, h->at.slot, h->position_bytes);
    chunk->chain = header.chain;
    chunk->next_segment = header.next_segments_first;
    chunk->buffer = buffer;
    chunk->chunk_bytes = chunk_bytes;
    chunk->front_bytes = CHUNK_HEADER_BYTES + header.table_bytes;
    *ret_chunk = chunk;
    return 0;
}

int data_head_seal_bridge(struct data_head *h, struct placed_segment to, struct log_chunk **ret_chunk)
{
    struct chunk_entry entry = {.kind = ENTRY_BRIDGE, .index = to.segment, .count = to.slot};
    const uint8_t *none = NULL;
    struct chunk_content content = {.entries = &entry, .bytes = &none, .count = 1, .flags = CHUNK_FLAG_BRIDGE};
    struct log_chunk *chunk;
    int result = data_head_build(h, &content, &chunk);
    if (result != 0)
        return result;
    env_mutex_lock(h->lock);
    bool failed = h->failed;
    if (!failed)
        data_head_append(h, chunk);
    env_mutex_unlock(h->lock);
    if (failed)
        log_chunk_free(chunk);
    else
        *ret_chunk = chunk;
    return failed ? -EIO : 0;
}

void data_head_append(struct data_head *h, struct log_chunk *chunk)
{
    CHECK(env_mutex_held(h->lock));
    CHECK(!h->failed);
    CHECK_EQ(chunk->address, data_head_address(h));
    chunk->number = ++h->sealed_to;
    h->chain = chunk->chain;
    bool with_trailer = chunk->chunk_bytes > h->geometry->write_unit_bytes;
    h->echo_bytes = with_trailer ? 0 : chunk->front_bytes;
    memcpy(h->echo, chunk->buffer, h->echo_bytes);
    h->assured_segment = with_trailer || h->named_segment == chunk->next_segment ? chunk->next_segment : 0;
    h->named_segment = chunk->next_segment;
    h->position_bytes += chunk->chunk_bytes;
    h->log_bytes += chunk->chunk_bytes;
    h->in_flight_bytes += chunk->chunk_bytes;
    list_append(&h->in_flight, &chunk->link);
}

void log_chunk_free(struct log_chunk *chunk)
{
    if (chunk == NULL)
        return;
    device_buffer_free(chunk->buffer);
    chunk->buffer = NULL;
    if (list_empty(&chunk->link))
        free(chunk);
    else
        chunk->released = true;
}

void data_head_fail(struct data_head *h)
{
    CHECK(env_mutex_held(h->lock));
    h->failed = true;
    env_cond_broadcast(&h->progress);
}

/* Takes the written ones off the front of the in-flight list: in log order, not in order of completion. */
static void move_written_to(struct data_head *h)
{
    while (!list_empty(&h->in_flight)) {
        struct log_chunk *first = (struct log_chunk *)h->in_flight.next;
        if (!first->written)
            break;
        CHECK_EQ(first->number, h->written_to + 1);
        list_remove(&first->link);
        h->in_flight_bytes -= first->chunk_bytes;
        h->written_to = first->number;
        h->written_address = first->end_address;
        if (first->released)
            free(first);
    }
}

static void set_durable(struct data_head *h, uint64_t number, uint64_t address)
{
    if (number <= h->durable_to)
        return;
    CHECK_LE(number, h->sealed_to);
    h->durable_to = number;
    h->durable_address = address;
}

static int run_writes(struct data_head *h, struct log_chunk **chunks, uint32_t count, bool flush)
{
    struct iovec iov[16];
    struct device_io ios[17];
    int result = 0;
    for (uint32_t done = 0; done < count && result == 0;) {
        uint32_t n = (uint32_t)min_u64(16, count - done);
        memset(ios, 0, sizeof ios);
        for (uint32_t i = 0; i < n; i++) {
            struct log_chunk *c = chunks[done + i];
            iov[i] = (struct iovec){.iov_base = c->buffer, .iov_len = c->chunk_bytes};
            ios[i] = (struct device_io){.kind = DEVICE_WRITE,
                                        .offset_bytes = c->device_offset_bytes,
                                        .length_bytes = c->chunk_bytes,
                                        .iov = &iov[i],
                                        .iov_count = 1};
        }
        done += n;
        bool with_flush = flush && done == count;
        if (with_flush)
            ios[n] = (struct device_io){.kind = DEVICE_FLUSH, .after_previous = true};
        result = device_run(h->dev, ios, n + with_flush);
    }
    return result;
}

/* true if these chunks are all that is in flight, so that one linked flush covers the whole log. */
static bool alone_in_flight(const struct data_head *h, struct log_chunk **chunks, uint32_t count)
{
    return !h->flushing && !h->failed && h->written_to + 1 == chunks[0]->number &&
           h->sealed_to == chunks[count - 1]->number;
}

int data_head_write(struct data_head *h, struct log_chunk **chunks, uint32_t count, bool flush)
{
    CHECK_GT(count, 0);
    env_mutex_lock(h->lock);
    bool failed = h->failed;
    flush = flush && !failed && alone_in_flight(h, chunks, count);
    if (flush)
        h->flushing = true;
    env_mutex_unlock(h->lock);

    /* Nothing is written on a failed head (R30). */
    int result = failed ? -EIO : run_writes(h, chunks, count, flush);

    env_mutex_lock(h->lock);
    if (flush)
        h->flushing = false;
    for (uint32_t i = 0; i < count; i++)
        chunks[i]->written = result == 0;
    if (result != 0) {
        data_head_fail(h);
        for (uint32_t i = 0; i < count; i++)
            list_remove(&chunks[i]->link);
    } else if (!h->failed) {
        move_written_to(h);
        if (flush)
            set_durable(h, chunks[count - 1]->number, chunks[count - 1]->end_address);
    }
    /* On a failed head nothing moves any more, but the list lets go of chunks whose owner frees them. */
    for (uint32_t i = 0; i < count && h->failed; i++)
        list_remove(&chunks[i]->link);
    env_cond_broadcast(&h->progress);
    env_mutex_unlock(h->lock);
    /* Whatever the device said: for who waits, the write failed. A write that found no space is no full pool (R23). */
    return result == 0 ? 0 : -EIO;
}

int data_head_wait_written(struct data_head *h, uint64_t number)
{
    CHECK(env_mutex_held(h->lock));
    while (!h->failed && h->written_to < number)
        env_cond_wait(&h->progress, h->lock);
    return h->failed ? -EIO : 0;
}

/* RULE_OFF_FLUSH_ALL: the chunk itself is written, whatever lies before it. */
static bool itself_written(const struct data_head *h, uint64_t number)
{
    if (h->written_to >= number)
        return true;
    for (const struct list *l = h->in_flight.next; l != &h->in_flight; l = l->next) {
        const struct log_chunk *c = (const struct log_chunk *)l;
        if (c->number == number)
            return c->written;
    }
    return false;
}

/* One device flush by the caller; lock held, released meanwhile. */
static void flush_device(struct data_head *h, uint64_t wanted)
{
    unsigned off = h->geometry->rules_off;
    uint64_t number = h->written_to, address = h->written_address;
    h->flushing = true;
    env_mutex_unlock(h->lock);
    int result = device_flush(h->dev);
    if (result != 0 && (off & RULE_OFF_STICKY_FAILURE) != 0) {
        atomic_store(&h->dev->failed, false);
        result = device_flush(h->dev);
    }
    env_mutex_lock(h->lock);
    h->flushing = false;
    if (result != 0) {
        data_head_fail(h);
        return;
    }
    if ((off & RULE_OFF_FLUSH_AFTER) != 0) {
        number = h->written_to;
        address = h->written_address;
    }
    if ((off & RULE_OFF_FLUSH_ALL) != 0 && number < wanted)
        number = wanted;
    set_durable(h, number, address);
    env_cond_broadcast(&h->progress);
}

int data_head_wait_durable(struct data_head *h, uint64_t number)
{
    CHECK(env_mutex_held(h->lock));
    CHECK_LE(number, h->sealed_to);
    bool flush_all = (h->geometry->rules_off & RULE_OFF_FLUSH_ALL) == 0;
    while (!h->failed && h->durable_to < number) {
        bool written = flush_all ? h->written_to >= number : itself_written(h, number);
        if (h->flushing || !written)
            env_cond_wait(&h->progress, h->lock);
        else
            flush_device(h, number);
    }
    return h->failed ? -EIO : 0;
}
