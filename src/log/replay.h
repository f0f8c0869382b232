/*
 * Replay: walking the data head's chain from a label's replay start to the end of the log. Writes nothing and looks
 * nothing up (R27): each valid chunk's entries are handed to apply() in log order.
 *
 * At each step the chunk that continues the chain lies directly behind the last one, or at the start of the next
 * segment that the last chunk named. It counts if header and table verify (where they are damaged, from their second
 * copy: the trailer, or the echo in the chunk after it), it names this pool, this address and the chain so far.
 *
 *     its payload verifies                            it is applied
 *     it does not, a later chunk says it was flushed  it is applied: its records are damaged, and will be called so
 *                                                     when they are read
 *     it does not, and nobody says so                 this is the end of the log: a torn write nobody was told is
 *                                                     durable
 *
 * Where no chunk continues the chain, and a later one within REPLAY_AHEAD_BYTES says that it had been flushed beyond
 * here, flushed log is damaged (R16). Otherwise this is the end. A read error is neither: it is returned.
 */
#ifndef ASHLAR_LOG_REPLAY_H
#define ASHLAR_LOG_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "env/device.h"
#include "format/chunk.h"
#include "format/label.h"
#include "log/geometry.h"
#include "log/slots.h"

struct error;

#define REPLAY_AHEAD_BYTES (16 * 1024 * 1024) /* as much as may be in flight */

struct replay_end {
    struct placed_segment at; /* where the log ends */
    uint32_t position_bytes;
    struct checksum chain;
    uint32_t echo_bytes; /* header and table of the last chunk, if it is one write unit long; else 0 */
    uint8_t echo[WRITE_UNIT_BYTES_MAX / 2];
    struct placed_segment next[LOOKAHEAD_SLOTS_MAX];
    uint32_t next_count;
    uint64_t chunk_sequence;  /* of the last chunk */
    uint64_t segment_highest; /* highest segment number met, lookahead included */
    uint64_t chunk_count, replayed_bytes;
    uint64_t segment_count;            /* segments the log runs through behind the first */
    uint64_t damaged_entry_count;      /* payloads that did not verify although flushed */
    uint64_t repaired_header_count;    /* chunks taken from the second copy of header and table */
    bool traces_beyond;                /* a chunk of this segment lies behind the end: something was issued there */
    bool after_bridge;                 /* the end is the start of a segment that a bridge leads to */
    bool damaged;                      /* flushed log from here on is lost */
    uint64_t damaged_from, damaged_to; /* data-head addresses */
};

typedef int (*replay_apply)(void *arg, const struct chunk_header *header, const struct chunk_entry *entries,
                            uint32_t count);

/*
 * Walks from the label. The slots it passes are adopted and closed in `slots`, the last one is OPEN. Blocks on the
 * device. 0 (also when `damaged`: the caller decides), -EBADMSG (the label's own places contradict the slot table),
 * -ENOMEM, device errors, or what apply returned.
 */
int replay_run(struct device *dev, struct slots *slots, const struct geometry *geometry, const struct label *label,
               replay_apply apply, void *arg, struct replay_end *ret_end, struct error *err)
    __attribute__((warn_unused_result));

#endif
