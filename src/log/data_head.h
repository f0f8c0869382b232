/*
 * The data head: the chained end of the log where records, patches, trims and bridges are written.
 *
 * Life of a chunk: sealed (it has its place in the chain, its entries are in effect in memory) -> written (the device
 * has completed it) -> durable (a device flush that started after that has completed). Chunks are numbered 1, 2, 3 ...
 * as they are sealed; "written to n" and "durable to n" mean that all chunks up to n are.
 *
 * Invariants
 *   1. durable_to <= written_to <= sealed_to.
 *   2. A chunk never crosses the end of its segment; the next one follows it directly or begins the next segment.
 *   3. The segment numbers of this head grow; so its addresses do.
 *   4. A device flush makes durable only what was written when it started (R18); no waiter joins one under way.
 *   5. Two chunks name the next segment before it is opened, or one that has a trailer: so no damaged write unit hides
 *      where the log goes on.
 *   6. After a failed write or flush nothing is sealed any more and no wait succeeds (R30).
 *
 * Locking: `lock` is the pool's mutex, and guards every field that moves. Whoever seals holds the pool's sealing token
 * as well, so that between placing a chunk and appending it nobody else moves the head. No device operation runs under
 * the lock.
 */
#ifndef ASHLAR_LOG_DATA_HEAD_H
#define ASHLAR_LOG_DATA_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "env/device.h"
#include "log/geometry.h"
#include "log/slots.h"

struct data_head {
    struct env_mutex *lock;
    struct env_cond progress; /* written_to, durable_to or failed changed */
    struct device *dev;
    struct slots *slots;
    const struct geometry *geometry;
    struct segment_numbers *numbers;

    struct placed_segment at; /* the open segment; slot SLOT_NONE: none, the next chunk opens next[0] */
    uint64_t sealed_before;   /* sealed_to when this segment was begun */
    bool small_chunks;        /* the last segment held many */
    uint32_t position_bytes;  /* in it */
    struct placed_segment next[LOOKAHEAD_SLOTS_MAX];
    uint32_t next_count;
    uint32_t
        slots_kept; /* free slots, and allocated ones, left to the node head when choosing further ahead than one */
    uint32_t ready_kept;
    uint64_t named_segment;   /* the next segment that the newest chunk of this open names; 0: none */
    uint64_t assured_segment; /* the same where no single damaged write unit hides it (invariant 5) */
    struct checksum chain;
    uint32_t echo_bytes; /* of header and table of the newest chunk, if it is one write unit long; else 0 */
    uint8_t echo[WRITE_UNIT_BYTES_MAX / 2];

    uint64_t sealed_to, written_to, durable_to; /* chunk numbers */
    uint64_t durable_address;                   /* all data-head addresses below are durable */
    uint64_t written_address;                   /* end of chunk written_to */
    struct list in_flight; /* struct log_chunk, in order, sealed and not yet contiguously written */
    uint64_t in_flight_bytes;
    uint64_t log_bytes; /* sealed since open, padding included */
    bool flushing;
    bool failed;
};

/* A chunk under way. Owned by who built it until data_head_write has returned, then free with log_chunk_free. */
struct log_chunk {
    struct list link;
    uint64_t number;
    uint64_t address, end_address;
    uint64_t device_offset_bytes;
    struct checksum chain;
    uint64_t next_segment; /* the first that its header names; 0: none */
    uint8_t *buffer;
    uint32_t chunk_bytes, front_bytes;
    bool written;
    bool released; /* its owner let go while earlier chunks were still being written: the head frees it */
};

/* Entries and their bytes, as the builder collects them. bytes[i] has entries[i].length bytes. */
struct chunk_content {
    struct chunk_entry *entries; /* log order; payload_offset is filled by data_head_build */
    const uint8_t **bytes;
    uint32_t count;
    uint64_t payload_bytes;
    uint32_t flags; /* CHUNK_FLAG_BRIDGE */
};

void data_head_init(struct data_head *h, struct env *env, struct env_mutex *lock, struct device *dev,
                    struct slots *slots, const struct geometry *geometry, struct segment_numbers *numbers);
void data_head_fini(struct data_head *h);

/* Bytes left for a chunk in the open segment (the place of a bridge at its end is kept). Sealing token or lock held. */
uint32_t data_head_room(const struct data_head *h);

/* Leaves the open segment, opens the next. Lock and token held. -ENOSPC: no next segment. */
int data_head_advance(struct data_head *h, uint64_t checkpoint) __attribute__((warn_unused_result));

/*
 * Chooses slots until lookahead_count next segments are known. Token held, lock not (it may allocate on the device).
 * Fewer is not an error as long as one is there: 0, or -ENOSPC when there is none. Other errors are the device's.
 */
int data_head_refill(struct data_head *h, uint64_t checkpoint) __attribute__((warn_unused_result));
/* The same up to `count` next segments. */
int data_head_refill_to(struct data_head *h, uint32_t count, uint64_t checkpoint) __attribute__((warn_unused_result));

/* Size of the chunk that a table and a payload of these sizes make at the head's present place. Token or lock held. */
uint32_t data_head_chunk_bytes(const struct data_head *h, size_t table_bytes, uint64_t payload_bytes);

/*
 * Lays a chunk out at the head's present place (token held, lock not): copies the content, computes the chain. It must
 * fit (data_head_room). -ENOMEM.
 */
int data_head_build(struct data_head *h, struct chunk_content *content, struct log_chunk **ret_chunk)
    __attribute__((warn_unused_result));
/* Puts it into the chain: from here its entries are in effect. Lock and token held. */
void data_head_append(struct data_head *h, struct log_chunk *chunk);

/*
 * Seals a chunk that does nothing but name `to`, the segment that follows, in the place kept for that; the caller
 * writes it and advances. For recovery, and where the next segment was chosen after the newest chunk was sealed: replay
 * must find it named (R13). Token held, lock not. -ENOMEM, -EIO.
 */
int data_head_seal_bridge(struct data_head *h, struct placed_segment to, struct log_chunk **ret_chunk)
    __attribute__((warn_unused_result));

/*
 * Writes sealed chunks to the device and marks them written. Lock not held. With `flush`, a device flush is linked
 * behind the writes if these chunks are all that is in flight: then they are durable on return as well. On error the
 * head has failed.
 */
int data_head_write(struct data_head *h, struct log_chunk **chunks, uint32_t count, bool flush)
    __attribute__((warn_unused_result));
/* NULL is fine. A chunk that may still be waiting for earlier ones to be written: under the lock. */
void log_chunk_free(struct log_chunk *chunk);

/* Waits until chunk `number` is durable, flushing the device if nobody else is at it. Lock held (released meanwhile).
 * -EIO. */
int data_head_wait_durable(struct data_head *h, uint64_t number) __attribute__((warn_unused_result));
/* Waits until chunk `number` is written. Lock held (released meanwhile). -EIO. */
int data_head_wait_written(struct data_head *h, uint64_t number) __attribute__((warn_unused_result));

/* Marks the head failed and wakes everybody. Lock held. */
void data_head_fail(struct data_head *h);

/* Address at which the next chunk would be placed. */
uint64_t data_head_address(const struct data_head *h);

#endif
