/*
 * Slot table records. doc/format/table.md. Each slot carries the number of the record it belongs to, the same in all
 * slots of a record (so that it costs nothing once compressed), so that a record in the wrong place is refused.
 */
#include "format/table.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "format/chunk.h"
#include "format/limits.h"

_Static_assert(SLOT_BYTES == 1 + 1 + 1 + 1 + 4 + 4 + 4 + 8 + 8, "fields fill a slot");
_Static_assert(TABLE_RECORD_BYTES == 4096, "a table record is one small record");
_Static_assert(SLOT_COUNT_MAX % SLOTS_PER_TABLE_RECORD == 0, "slots fill whole records");

/*
 * NULL if the slot's values fit together, else which do not. Counts are bounded, not judged: a damaged pool may hold a
 * count that is wrong, and the store must be able to write its table all the same. Judging them is check's work.
 */
static const char *slot_fault(const struct slot *s, uint32_t segment_bytes)
{
    if (s->device != 0)
        return "device";
    if (s->head != CHUNK_HEAD_DATA && s->head != CHUNK_HEAD_NODE)
        return "head";
    if (s->used_bytes > segment_bytes || s->live_bytes > segment_bytes)
        return "used or live bytes beyond the segment";
    switch (s->state) {
    case SLOT_BARE:
    case SLOT_READY:
        if (s->head != 0 || s->segment != 0 || s->used_bytes != 0)
            return "a free slot with a segment";
        return s->live_bytes == 0 ? NULL : "a free slot with live bytes";
    case SLOT_NEXT:
    case SLOT_OPEN:
    case SLOT_CLOSED:
        return NULL;
    case SLOT_QUARANTINED:
        return s->live_bytes == 0 ? NULL : "live bytes in quarantine";
    default:
        return "state"; /* SLOT_DAMAGED included: reserved */
    }
}

void table_record_encode(const struct slot *slots, uint32_t first_slot, uint8_t *buf)
{
    CHECK_EQ(first_slot % SLOTS_PER_TABLE_RECORD, 0);
    CHECK_LT(first_slot, SLOT_COUNT_MAX);
    struct sink out = sink_of(buf, TABLE_RECORD_BYTES);
    for (uint32_t i = 0; i < SLOTS_PER_TABLE_RECORD; i++) {
        const struct slot *s = &slots[i];
        const char *fault = slot_fault(s, SEGMENT_BYTES_MAX);
        if (fault != NULL)
            check_failed(__FILE__, __LINE__, fault);
        sink_u8(&out, s->state);
        sink_u8(&out, s->head);
        sink_u8(&out, s->device);
        sink_u8(&out, 0);
        sink_u32(&out, s->used_bytes);
        sink_u32(&out, s->live_bytes);
        sink_u32(&out, first_slot / SLOTS_PER_TABLE_RECORD);
        sink_u64(&out, s->segment);
        sink_u64(&out, s->since);
    }
    CHECK_EQ(out.position, TABLE_RECORD_BYTES);
}

int table_record_decode(const uint8_t *buf, size_t buf_bytes, uint32_t first_slot, uint32_t segment_bytes,
                        struct slot *ret_slots, struct error *err)
{
    CHECK_EQ(first_slot % SLOTS_PER_TABLE_RECORD, 0);
    CHECK_LE(segment_bytes, SEGMENT_BYTES_MAX);
    if (first_slot >= SLOT_COUNT_MAX)
        return error_set(err, -EBADMSG, "slot table record of slot %" PRIu32 ": there are at most %u slots", first_slot,
                         SLOT_COUNT_MAX);
    if (buf_bytes != TABLE_RECORD_BYTES)
        return error_set(err, -EBADMSG, "slot table record of slot %" PRIu32 ": %zu bytes instead of %d", first_slot,
                         buf_bytes, TABLE_RECORD_BYTES);
    struct source in = source_of(buf, buf_bytes);
    for (uint32_t i = 0; i < SLOTS_PER_TABLE_RECORD; i++) {
        struct slot s = {0};
        s.state = source_u8(&in);
        s.head = source_u8(&in);
        s.device = source_u8(&in);
        source_zeroes(&in, 1);
        s.used_bytes = source_u32(&in);
        s.live_bytes = source_u32(&in);
        const uint32_t record = source_u32(&in);
        s.segment = source_u64(&in);
        s.since = source_u64(&in);
        const char *fault = slot_fault(&s, segment_bytes);
        if (in.bad)
            fault = "reserved byte is not zero";
        else if (record != first_slot / SLOTS_PER_TABLE_RECORD)
            fault = "belongs to another table record";
        if (fault != NULL)
            return error_set(err, -EBADMSG, "slot table, slot %" PRIu32 ": %s", first_slot + i, fault);
        ret_slots[i] = s;
    }
    CHECK_EQ(source_left(&in), 0);
    return 0;
}
