/*
 * The slots of a device in memory: which segment lies in which slot, how many bytes in it are live, and its state.
 *
 * States and who moves a slot along (format/table.h has the durable numbers):
 *   BARE --slots_choose + allocate--> NEXT --slots_open--> OPEN --slots_close--> CLOSED
 *   CLOSED --slots_quarantine at a checkpoint, nothing live--> QUARANTINED --slots_release, two labels on--> READY
 *   READY --slots_choose--> NEXT;  READY beyond the stock --slots_take_for_punch, slots_punched--> BARE
 *   NEXT --slots_return--> READY or BARE
 *
 * Invariants: a slot in NEXT, OPEN, CLOSED, QUARANTINED has a segment number, no two the same; a free one has none.
 * live_bytes counts what the volumes of the last checkpoint refer to; own_bytes what the catalog's and the slot table's
 * own trees do. They change at checkpoints only, by the one thread that runs one.
 *
 * Locking: one mutex inside, a leaf: nothing is called with it held. Every function takes it; no caller needs another.
 */
#ifndef ASHLAR_LOG_SLOTS_H
#define ASHLAR_LOG_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"
#include "format/chunk.h"
#include "format/table.h"
#include "log/geometry.h"

struct slots {
    struct env_mutex lock;
    const struct geometry *geometry;
    struct slot *table;      /* [slot_count] */
    uint32_t *own_bytes;     /* [slot_count] */
    uint8_t *record_changed; /* [table record]: differs from what the last checkpoint wrote */
    uint32_t *bucket;        /* segment number -> first slot of its hash bucket */
    uint32_t *bucket_next;   /* [slot_count] */
    uint32_t bucket_mask;
    uint32_t ready_count, bare_count;
    uint32_t search_from; /* where the search for a free slot begins */
};

/* All slots BARE. 0 or -ENOMEM. */
int slots_init(struct slots *s, struct env *env, const struct geometry *geometry) __attribute__((warn_unused_result));
void slots_fini(struct slots *s);

/* Takes over one durable slot at open. -EBADMSG if its segment is already placed elsewhere. */
int slots_load(struct slots *s, uint32_t slot, const struct slot *durable) __attribute__((warn_unused_result));

/* Device offset of a log address. -EBADMSG: no slot holds that segment (a pointer into nothing). */
int slots_resolve(struct slots *s, uint64_t address, uint64_t *ret_device_offset_bytes)
    __attribute__((warn_unused_result));
uint64_t slots_device_offset(const struct slots *s, uint32_t slot, uint32_t offset_bytes);

/*
 * Chooses a free slot for a coming segment: a READY one if there are more than ready_kept, else a BARE one (*ret_bare:
 * the caller allocates its storage, or gives it back). -ENOSPC: neither.
 */
int slots_choose(struct slots *s, uint64_t segment, enum chunk_head head, uint64_t checkpoint, uint32_t ready_kept,
                 uint32_t *ret_slot, bool *ret_bare) __attribute__((warn_unused_result));
/* A given slot becomes NEXT for a segment (replay follows the log's own choice). -EBADMSG if it holds something else.
 */
int slots_adopt(struct slots *s, uint32_t slot, uint64_t segment, enum chunk_head head, uint64_t checkpoint)
    __attribute__((warn_unused_result));
void slots_open(struct slots *s, uint32_t slot, uint64_t checkpoint);
void slots_close(struct slots *s, uint32_t slot, uint32_t used_bytes, uint64_t checkpoint);
/* Back to the free ones, whatever it was. */
void slots_return(struct slots *s, uint32_t slot, bool ready, uint64_t checkpoint);

/* Adds (or takes away) bytes of a live entry at a log address. An address in no slot is ignored: its segment is lost.
 */
void slots_add_live(struct slots *s, uint64_t address, int64_t bytes);
/* The same for objects of the catalog and slot-table trees: by slot, or by log address. */
void slots_add_own(struct slots *s, uint32_t slot, int64_t bytes);
void slots_add_own_at(struct slots *s, uint64_t address, int64_t bytes);

/* CLOSED slots with nothing live, of heads other than data or of data segments below replay_segment, become
 * QUARANTINED. */
void slots_quarantine(struct slots *s, uint64_t replay_segment, uint64_t checkpoint);
/* QUARANTINED since `checkpoint` or earlier becomes READY. Returns how many. */
uint32_t slots_release(struct slots *s, uint64_t checkpoint, uint64_t now_checkpoint);

/* A READY slot beyond the stock, taken out of reach so that it can be punched; SLOT_NONE when there is none. */
uint32_t slots_take_for_punch(struct slots *s, uint32_t stock_count);
void slots_punched(struct slots *s, uint32_t slot, uint64_t checkpoint);

uint32_t slots_own_bytes(struct slots *s, uint32_t slot);
struct slot slots_get(struct slots *s, uint32_t slot);
uint32_t slots_free_count(struct slots *s);
uint32_t slots_ready_count(struct slots *s);
/* A BARE slot out of reach while its storage is allocated, then slots_return; SLOT_NONE when there is none. */
uint32_t slots_take_bare(struct slots *s);

/* Copies table record `record` out if it changed (always, if all), and marks it unchanged. */
bool slots_take_record(struct slots *s, uint32_t record, bool all, struct slot ret_slots[SLOTS_PER_TABLE_RECORD]);
uint32_t slots_changed_records(struct slots *s);
/* Everything differs from what is on disk: the checkpoint that took records failed. */
void slots_mark_all_changed(struct slots *s);
uint32_t slots_record_count(const struct slots *s);

struct slots_summary {
    uint32_t free_count, closed_count, quarantined_count;
    uint64_t live_bytes, own_bytes, quarantined_bytes, closed_used_bytes, dead_bytes;
};
struct slots_summary slots_summarise(struct slots *s);

#endif
