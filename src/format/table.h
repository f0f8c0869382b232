/*
 * The slot table: where segments lie and how much in them is live. doc/format/table.md.
 * A table record holds SLOTS_PER_TABLE_RECORD slots.
 */
#ifndef ASHLAR_FORMAT_TABLE_H
#define ASHLAR_FORMAT_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct error;

#define SLOT_BYTES 32
#define SLOTS_PER_TABLE_RECORD 128
#define TABLE_RECORD_BYTES (SLOT_BYTES * SLOTS_PER_TABLE_RECORD)

enum slot_state {
    SLOT_BARE = 0,        /* free, storage not assured (never used, or punched) */
    SLOT_READY = 1,       /* free, storage assured: can be handed out */
    SLOT_NEXT = 2,        /* chosen for a coming segment of the head */
    SLOT_OPEN = 3,        /* holds the head's present segment */
    SLOT_CLOSED = 4,      /* holds a full segment */
    SLOT_QUARANTINED = 5, /* held nothing live at checkpoint `since`; free once the label after that one is durable */
    SLOT_DAMAGED = 6,     /* reserved for the cleaner: could not be walked to its end, kept */
};

struct slot {
    uint8_t state;       /* enum slot_state */
    uint8_t head;        /* enum chunk_head; 0 where free */
    uint8_t device;      /* device id: 0 in this version */
    uint32_t used_bytes; /* CLOSED: how far the segment was written */
    uint32_t
        live_bytes;   /* stored bytes of records, patches and volume map nodes in it that were live at the checkpoint */
    uint64_t segment; /* number of the segment in it; 0 where free */
    uint64_t since;   /* checkpoint number of the last change of state */
};

/* Encode/decode SLOTS_PER_TABLE_RECORD slots to/from TABLE_RECORD_BYTES. first_slot is part of what is checked. */
void table_record_encode(const struct slot *slots, uint32_t first_slot, uint8_t *buf);
int table_record_decode(const uint8_t *buf, size_t buf_bytes, uint32_t first_slot, uint32_t segment_bytes,
                        struct slot *ret_slots, struct error *err);

#endif
