/*
 * How much memory requests may hold, over all connections. budget.c says how it is shared out and why.
 *
 * A connection has one account (struct nbd_share). Memory is asked for before it is allocated and given back when it is
 * freed; the sizes are the allocator's (buffer.h), not the request's. All functions may be called from any thread.
 */
#ifndef ASHLAR_FRONT_NBD_BUDGET_H
#define ASHLAR_FRONT_NBD_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct env;
struct nbd_budget;

#define NBD_BUDGET_BYTES_DEFAULT (UINT64_C(64) << 20)
/* The reserve holds one request of the largest payload, beside the bookkeeping of one unfinished request for each
 * connection. */
#define NBD_BUDGET_RESERVE_BYTES(connections) ((UINT64_C(32) << 20) + (uint64_t)(connections)*2048)
/* With less to share out, a megabyte at a time would not do. */
#define NBD_BUDGET_BYTES_MIN(connections) (NBD_BUDGET_RESERVE_BYTES(connections) + (UINT64_C(8) << 20))

/* Initialised to zero but for wake; its fields belong to the budget. */
struct nbd_share {
    /* The amount waited for has been set aside, ask again. Called from any thread and under the budget's lock: it may
     * only pass the word on. */
    void (*wake)(struct nbd_share *share);
    uint64_t held_bytes;    /* of the common part */
    uint64_t reserve_bytes; /* of the reserve */
    uint64_t granted_bytes; /* set aside for the amount waited for; part of one of the above */
    uint64_t wanted_bytes;  /* 0: does not wait */
    uint64_t waiting_since_ns;
    struct list link; /* in the line, if it waits */
};

/* total_bytes >= NBD_BUDGET_BYTES_MIN(connections). */
int nbd_budget_new(struct env *env, uint64_t total_bytes, unsigned connections, struct nbd_budget **ret_budget)
    __attribute__((warn_unused_result));
/* Everything has been given back. */
void nbd_budget_free(struct nbd_budget *b);

/* Takes from the common part, or says no. */
bool nbd_budget_try(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes);
/*
 * Takes from the common part or the reserve. If neither has room, false: the share now waits in line, and wake() is
 * called when the amount is set aside for it; the next call takes that. bytes, at most the reserve, must be all that is
 * needed until some of it comes back (but for 2 KiB): a share that waits for a second amount while it cannot give back
 * the first could wait for ever. In the call after wake(), bytes may be less than was waited for.
 */
bool nbd_budget_wait(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes);
/* Gives bytes back; may wake others. */
void nbd_budget_give(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes);
/* The share does not wait any more; an amount set aside for it goes back. */
void nbd_budget_leave(struct nbd_budget *b, struct nbd_share *share);

bool nbd_budget_is_waiting(struct nbd_budget *b, const struct nbd_share *share);
/* When the longest waiting share began to wait; 0 if none waits. */
uint64_t nbd_budget_waiting_since_ns(struct nbd_budget *b);

struct nbd_budget_info {
    uint64_t total_bytes, used_bytes, used_bytes_max;
    unsigned waiting;      /* shares in line */
    uint64_t wanted_bytes; /* what they wait for, together */
};
void nbd_budget_get_info(struct nbd_budget *b, struct nbd_budget_info *ret_info);

#endif
