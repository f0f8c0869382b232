/*
 * Which of a batch's items go into the next chunk.
 *
 * An item is an entry to be sealed. The first ordered_count of a list keep their order in the log; the others are
 * different records, whose order is free: of them those that fit are taken, so that a segment is filled to less than
 * its next-smallest record.
 *
 * Locking: the sealing token.
 */
#ifndef ASHLAR_POOL_SELECTION_H
#define ASHLAR_POOL_SELECTION_H

#include "log/data_head.h"
#include "pool/capture.h"

/* One entry to be sealed: a capture or a trim. */
struct item {
    struct capture *capture;
    struct range_op *op;
    struct chunk_entry entry;
    bool sealed;
};

struct item_list {
    struct item *list;
    uint32_t count, ordered_count;
    uint32_t first_unsealed;
};

/* The items of one chunk, side by side as the chunk's builder wants them. */
struct selection {
    struct chunk_entry *entries;
    struct item **items;
    const uint8_t **bytes;
    uint32_t count;
    uint64_t payload_bytes;
};

/* Room for all items of the list that a chunk can hold: few, as a rule, where somebody waits for them. NULL: no memory.
 * The caller's to free(). */
struct selection *selection_new(const struct item_list *items);

/* Chooses items for a chunk at the head's present place; none if no item fits there any more. */
void selection_fill(struct selection *s, const struct item_list *items, const struct data_head *h);

#endif
