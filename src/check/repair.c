/*
 * Planning and making repairs. See repair.h.
 */
#include "check/repair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

#define PLANNED_BYTES_MAX (256 * MIB) /* what does not fit is for the next run */

void check_repair_add(struct inspection *ins, uint64_t device_offset_bytes, const void *bytes, size_t n,
                      const char *format, ...)
{
    if (!ins->options.repair || !range_inside(device_offset_bytes, n, ins->device_bytes) ||
        ins->planned_bytes + n > PLANNED_BYTES_MAX)
        return;
    uint8_t *copy = malloc(n);
    struct check_write *w = copy != NULL ? check_array_add(&ins->writes) : NULL;
    if (w == NULL) {
        free(copy);
        return;
    }
    memcpy(copy, bytes, n);
    w->bytes = copy;
    ins->planned_bytes += n;
    w->repair = (struct check_repair){.device_offset_bytes = device_offset_bytes, .length_bytes = n};
    va_list args;
    va_start(args, format);
    if (vsnprintf(w->repair.what, sizeof(w->repair.what), format, args) < 0)
        w->repair.what[0] = '\0';
    va_end(args);
}

void check_repair_after_flush(struct inspection *ins)
{
    if (ins->writes.count != 0)
        ins->writes.list[ins->writes.count - 1].after_flush = true;
}

bool check_repair_planned(const struct inspection *ins)
{
    return ins->writes.count != 0;
}

/* ---- pairs of the node head ---- */

/* The bytes of an entry that two damaged copies may still make up together: the start of one, the end of the other. */
static bool splice(const struct chunk_entry *e, const uint8_t *one, const uint8_t *other, uint32_t in_chunk,
                   uint8_t *ret_bytes)
{
    for (uint32_t cut = 0; cut < e->length;) {
        /* Damage ends where a sector does. */
        cut += SECTOR_BYTES - (in_chunk + cut) % SECTOR_BYTES;
        const uint32_t n = cut < e->length ? cut : e->length;
        memcpy(ret_bytes, one, n);
        memcpy(ret_bytes + n, other + n, e->length - n);
        if (checksum_equal(checksum_of(ret_bytes, e->length), e->checksum))
            return true;
    }
    return false;
}

/* The right bytes of an entry, wherever they are, into ret_bytes. */
static bool entry_rescue(const struct check_chunk *c, const struct chunk_entry *e, const uint8_t *bytes,
                         uint8_t *ret_bytes)
{
    const uint8_t *first = bytes + e->payload_offset, *second = first + c->header.chunk_bytes;
    const uint8_t *const copies[2] = {first, second};
    for (int i = 0; i < 2; i++)
        if (checksum_equal(checksum_of(copies[i], e->length), e->checksum)) {
            memcpy(ret_bytes, copies[i], e->length);
            return true;
        }
    return splice(e, first, second, e->payload_offset, ret_bytes) ||
           splice(e, second, first, e->payload_offset, ret_bytes);
}

/* Plans writes of the stretches of write units in which `right` differs from what is on the device. */
static void plan_units(struct inspection *ins, uint64_t device_offset, const uint8_t *there, const uint8_t *right,
                       uint32_t n, const char *what, uint64_t address)
{
    const uint32_t unit = ins->write_unit_bytes;
    for (uint32_t at = 0; at < n;) {
        uint32_t end = at;
        while (end < n && memcmp(there + end, right + end, unit) != 0)
            end += unit;
        if (end > at)
            check_repair_add(ins, device_offset + at, right + at, end - at, "%s of the chunk at log address %" PRIu64,
                             what, address);
        at = end + unit;
    }
}

void check_repair_pair(struct inspection *ins, const struct check_chunk *c, const uint8_t *bytes)
{
    const uint32_t n = c->header.chunk_bytes;
    uint8_t *right = ins->options.repair ? calloc(1, n) : NULL;
    if (right == NULL)
        return;
    struct chunk_header h = c->header;
    bool whole = true;
    for (uint32_t i = 0; i < h.entry_count; i++)
        whole &= entry_rescue(c, &ins->entries[i], bytes, right + ins->entries[i].payload_offset);
    for (uint32_t copy = 0; copy < 2; copy++) {
        /* What could not be rescued stays as it is in that copy. */
        for (uint32_t i = 0; i < h.entry_count && !whole; i++) {
            const struct chunk_entry *e = &ins->entries[i];
            uint8_t *to = right + e->payload_offset;
            if (!entry_rescue(c, e, bytes, to))
                memcpy(to, bytes + copy * n + e->payload_offset, e->length);
        }
        h.address = c->address + copy * (uint64_t)n;
        h.flags = c->header.flags | (copy == 1 ? CHUNK_FLAG_COPY : 0);
        chunk_encode(&h, ins->entries, h.entry_count, right, ins->write_unit_bytes);
        plan_units(ins, c->device_offset_bytes + copy * (uint64_t)n, bytes + copy * n, right, n,
                   copy == 0 ? "first copy" : "second copy", c->address);
    }
    free(right);
}

/* ---- halves of data chunks ---- */

/* The bytes of the damaged copy of header and table follow from the intact one. */
static void repair_half(struct inspection *ins, const struct check_chunk *c)
{
    const uint32_t n = c->header.chunk_bytes;
    const size_t front_bytes = CHUNK_HEADER_BYTES + (size_t)c->header.table_bytes;
    uint8_t *chunk = ins->options.repair ? calloc(1, n) : NULL;
    if (chunk == NULL)
        return;
    struct chunk_header h = c->header;
    chunk_encode(&h, ins->entries, h.entry_count, chunk, ins->write_unit_bytes);
    /* The same bytes as the intact copy, or a writer of another mind made them: then they are left alone. */
    if (memcmp(chunk, ins->front, front_bytes) == 0 && !c->first_intact)
        check_repair_add(ins, c->device_offset_bytes, chunk, front_bytes,
                         "header and table of the chunk at log address %" PRIu64 ", from their copy", c->address);
    else if (memcmp(chunk, ins->front, front_bytes) == 0)
        check_repair_add(ins, c->device_offset_bytes + n - CHUNK_FOOTER_BYTES - front_bytes,
                         chunk + n - CHUNK_FOOTER_BYTES - front_bytes, front_bytes + CHUNK_FOOTER_BYTES,
                         "trailer of the chunk at log address %" PRIu64, c->address);
    free(chunk);
}

static int note_half(struct inspection *ins, const struct check_chunk *c, enum check_half_part damaged)
{
    struct check_half_chunk *half = check_array_add(&ins->halves);
    if (half == NULL)
        return -ENOMEM;
    *half = (struct check_half_chunk){.address = c->address,
                                      .device_offset_bytes = c->device_offset_bytes,
                                      .incarnation = c->header.incarnation,
                                      .chunk_bytes = c->header.chunk_bytes,
                                      .damaged = damaged};
    return 0;
}

int check_half(struct inspection *ins, const struct check_chunk *c)
{
    int result = check_note_durable(ins, c->header.incarnation, c->header.durable_to);
    if (result != 0 || (c->first_intact && c->second_intact))
        return result;
    result = note_half(ins, c, c->first_intact ? CHECK_HALF_TRAILER : CHECK_HALF_HEADER);
    if (result == 0)
        repair_half(ins, c);
    return result;
}

int check_echo_damaged(struct inspection *ins, const struct check_chunk *c, const uint8_t *front, size_t front_bytes)
{
    if (front != NULL && front_bytes == c->header.echo_bytes)
        check_repair_add(ins, check_chunk_echo_offset(c), front, front_bytes,
                         "echo in the chunk at log address %" PRIu64, c->address);
    return note_half(ins, c, CHECK_HALF_ECHO);
}

/* ---- writing ---- */

/* Read, change, write: whole aligned units around the bytes. */
static int write_bytes(struct inspection *ins, const struct check_write *w)
{
    const uint64_t from = w->repair.device_offset_bytes, n = w->repair.length_bytes;
    const uint64_t start = round_down(from, DEVICE_ALIGN_BYTES);
    const size_t length = (size_t)(round_up(from + n, DEVICE_ALIGN_BYTES) - start);
    uint8_t *buffer = device_buffer_new(length);
    if (buffer == NULL)
        return -ENOMEM;
    int result = device_read(ins->dev, start, buffer, length);
    /* A unit that cannot be read may be written over, if none of its bytes is needed. */
    if (result != 0 && start == from && length == n)
        result = 0;
    if (result == 0) {
        memcpy(buffer + (from - start), w->bytes, n);
        result = device_write(ins->dev, start, buffer, length);
    }
    device_buffer_free(buffer);
    return result;
}

int check_repair_apply(struct inspection *ins, struct error *err)
{
    if (!check_repair_planned(ins))
        return 0;
    for (size_t i = 0; i < ins->writes.count; i++) {
        const struct check_write *w = &ins->writes.list[i];
        int result = w->after_flush ? device_flush(ins->dev) : 0;
        if (result == 0)
            result = write_bytes(ins, w);
        if (result != 0)
            return error_set(err, result, "%s: repair at device offset %" PRIu64 ": %s", ins->dev->name,
                             w->repair.device_offset_bytes, strerror(-result));
        check_report_add_repair(ins->report, &w->repair);
    }
    const int result = device_flush(ins->dev);
    return result == 0 ? 0 : error_set(err, result, "%s: flush after repair: %s", ins->dev->name, strerror(-result));
}
