/*
 * The node head: where map nodes, catalog objects and slot-table records are written, at checkpoints only, by the one
 * thread that runs the checkpoint. Not chained and never replayed: what it wrote since the last label is forgotten at
 * open (R28).
 *
 * Each chunk is written twice in a row, each copy with its own address, so that no single bad write unit can take a
 * node, or the table that names it, away. A pointer names the first copy.
 *
 * Appended objects collect in one chunk; their addresses are known when it is closed, which fills the pointers the
 * callers left. So children go into an earlier chunk than their parents, and a node's address is above that of every
 * node under it.
 *
 * Locking: none of its own; owned by the checkpoint. Only `numbers` needs the pool lock.
 */
#ifndef ASHLAR_LOG_NODE_HEAD_H
#define ASHLAR_LOG_NODE_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "env/device.h"
#include "format/pointer.h"
#include "log/geometry.h"
#include "log/slots.h"

#define NODE_CHUNK_PAYLOAD_BYTES_MAX (256 * 1024)
#define NODE_CHUNK_ENTRIES_MAX 4096
#define NODE_HEAD_NEXT_MAX 64

struct node_head_entry {
    struct chunk_entry entry;
    struct pointer *pointer; /* to be completed when the chunk is closed; NULL: nobody asks */
    bool physical;           /* the pointer holds slot * segment size + offset instead of a log address */
};

struct node_head {
    struct env_mutex *lock; /* the pool's, for `numbers` */
    struct device *dev;
    struct slots *slots;
    const struct geometry *geometry;
    struct segment_numbers *numbers;

    struct placed_segment at; /* slot SLOT_NONE: none open */
    uint32_t position_bytes;
    struct placed_segment
        next[NODE_HEAD_NEXT_MAX]; /* chosen ahead, so that the table written in a checkpoint knows them */
    uint32_t next_count;
    bool choice_closed; /* the table is being written: only segments chosen before may be used */
    uint64_t sequence;
    uint64_t written_bytes; /* since open */

    struct node_head_entry *entries; /* of the chunk being collected */
    uint32_t entry_count;
    uint8_t *payload;
    uint32_t payload_bytes;
};

int node_head_init(struct node_head *h, struct env_mutex *lock, struct device *dev, struct slots *slots,
                   const struct geometry *geometry, struct segment_numbers *numbers)
    __attribute__((warn_unused_result));
void node_head_fini(struct node_head *h);

/*
 * Makes sure that `bytes` (both copies, headers and padding included) fit into the open segment and those chosen ahead.
 * -ENOSPC: no free slot. Device errors of allocation.
 */
int node_head_reserve(struct node_head *h, uint64_t bytes, uint64_t checkpoint) __attribute__((warn_unused_result));

/*
 * Adds an object. entry: kind, level, branch, index, codec fields filled by the caller; length and checksum are set
 * here from the bytes (copied). *pointer must stay where it is until the chunk is closed; its kind, codec and checksum
 * fields are set at once, its address when the chunk is closed. Closes the chunk by itself when it is full. Device
 * errors, -ENOSPC.
 */
int node_head_append(struct node_head *h, const struct chunk_entry *entry, const uint8_t *bytes, uint32_t length,
                     bool physical, struct pointer *pointer, uint64_t checkpoint) __attribute__((warn_unused_result));

/* Writes what was collected, both copies; completes the pointers. Not yet flushed. */
int node_head_close_chunk(struct node_head *h, uint64_t checkpoint) __attribute__((warn_unused_result));

/* Bytes of the segments it has, the open one and those chosen ahead. */
uint64_t node_head_held_bytes(const struct node_head *h);

/* Forgets what was collected: the checkpoint failed. The pointers that wait are not touched any more. */
void node_head_abandon(struct node_head *h);

/* Bytes that one object of this length takes at most in the end, for node_head_reserve. */
static inline uint64_t node_head_cost_bytes(uint32_t length)
{
    return 2 * ((uint64_t)length + CHUNK_TABLE_ENTRY_BYTES_MAX);
}

/* Log address of the next chunk, for the label. Only with an open segment. */
uint64_t node_head_address(const struct node_head *h);

#endif
