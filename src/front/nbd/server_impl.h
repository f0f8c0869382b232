/*
 * The server's insides, for the files of this directory.
 *
 * Fields are immutable after nbd_server_new unless a comment says who may touch them. "Loop" = the loop thread only.
 */
#ifndef ASHLAR_FRONT_NBD_SERVER_IMPL_H
#define ASHLAR_FRONT_NBD_SERVER_IMPL_H

#include <stdatomic.h>

#include "base/list.h"
#include "env/env.h"
#include "front/nbd/budget.h"
#include "front/nbd/buffer.h"
#include "front/nbd/errand.h"
#include "front/nbd/export.h"
#include "front/nbd/loop.h"
#include "front/nbd/server.h"

/* What one receive call takes beyond a payload whose place is known. */
#define NBD_SCRATCH_BYTES (32u * 1024)

struct nbd_counters {
    atomic_uint_fast64_t accepted, negotiated, dropped_handshakes, dropped_violations, dropped_stalls, refused_full;
    atomic_uint_fast64_t accept_failures, commands[NBD_CMD_COUNT], commands_unknown, errors, received_bytes, sent_bytes;
    atomic_uint_fast64_t receive_calls, send_calls, direct_sends;
};

static inline void nbd_count(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

struct nbd_server {
    struct env *env;
    struct nbd_server_options options; /* defaults filled in */
    const struct export_ops *ops;
    void *backend;
    struct nbd_loop *loop;
    struct nbd_errands *errands;
    struct nbd_budget *budget;
    struct nbd_buffer_pool *pool;
    struct nbd_counters counters;

    /* Loop. */
    struct list connections; /* all that are open */
    struct list handshakes;  /* those of them that have not negotiated, oldest first */
    bool draining;           /* stop was called */
    unsigned cut_count;
    struct nbd_timer grace_timer, stall_timer;
    struct nbd_task stop_task;
    uint8_t *scratch; /* NBD_SCRATCH_BYTES */

    /* Before start: the caller of listen_*; then loop. */
    struct list listeners;

    /* Guarded by lock: a leaf, but for the notice callback, which is called outside of it. */
    struct env_mutex lock;
    struct env_cond changed;
    bool started, stop_called, stopped;
    uint64_t grace_ns;
    unsigned handshake_count; /* written by the loop only, which may read it without the lock */
    unsigned negotiated_count;
    unsigned alive_count;      /* connections not freed yet */
    uint64_t notices_since_ns; /* start of the second that notice_count counts in */
    unsigned notice_count;
};

/* One line to the log; at most ten a second, then one that says so. Any thread. */
void nbd_server_notice(struct nbd_server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- server.c, loop ---- */

/* A connection begins: makes room if too many have not negotiated yet. */
void nbd_server_admit(struct nbd_server *server);
/* One was closed: a descriptor and maybe a place are free. */
void nbd_server_connection_closed(struct nbd_server *server);

/* ---- stall.c, loop ---- */

/* A connection waits for memory: looks from time to time, while any waits, for one that holds it and does not move. */
void nbd_server_watch_stalls(struct nbd_server *server);
void nbd_server_stall_tick(struct nbd_timer *timer);

#endif
