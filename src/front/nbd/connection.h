/*
 * One connection: its two halves and its life. connection.c tells the story.
 */
#ifndef ASHLAR_FRONT_NBD_CONNECTION_H
#define ASHLAR_FRONT_NBD_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "front/nbd/budget.h"
#include "front/nbd/errand.h"
#include "front/nbd/export.h"
#include "front/nbd/lone.h"
#include "front/nbd/loop.h"
#include "front/nbd/sender.h"
#include "front/nbd/transmission.h"

struct error;
struct nbd_handshake;
struct nbd_server;

enum nbd_phase {
    NBD_PHASE_HANDSHAKE,
    NBD_PHASE_TRANSMISSION,
    NBD_PHASE_ENDING, /* nothing more is read; what is under way is finished and sent */
    NBD_PHASE_CLOSED, /* out of the loop's hands; memory lives until the last reference goes */
};

struct nbd_connection {
    /* Immutable. */
    struct nbd_server *server;
    int in_fd, out_fd;     /* the same for a socket */
    bool socket;           /* recvmsg and sendmsg, from any thread; else readv and writev, in the loop */
    bool owned;            /* descriptors are closed at the end */
    int in_mode, out_mode; /* not sockets: file status flags to put back */
    char peer[64];
    void (*ended)(void *arg); /* called when it is closed and nothing of it is left; may be NULL */
    void *ended_arg;

    atomic_uint references;

    /* Loop. */
    enum nbd_phase phase;
    bool readable, hung_up, gone, always_readable; /* what the descriptor said last */
    bool in_added, out_added, output_watched;      /* what the loop watches */
    bool counted;                                  /* holds a place for negotiated connections */
    struct list link, handshake_link;              /* in the server's lists */
    struct nbd_watch in_watch, out_watch;
    struct nbd_task task;
    struct nbd_timer timer; /* end of handshake; progress while ending */
    uint64_t moved_at_timer;
    uint8_t *stash; /* received but not taken yet, NULL for none */
    size_t stash_bytes, stash_taken;
    struct nbd_handshake *handshake; /* NULL once negotiated */
    struct nbd_transmission transmission;
    struct nbd_lone lone;
    uint64_t received_bytes;
    uint64_t moved_at_tick; /* stall.c */
    unsigned slow_ticks;

    /* Set when negotiated, immutable then. */
    struct export *export;
    struct export_info info;
    uint16_t flags; /* transmission flags */
    bool structured, base_allocation;
    uint64_t connected_ns;

    struct nbd_share share;   /* the budget's */
    struct nbd_sender sender; /* guarded by its own lock */

    struct nbd_errand last_errand; /* closes the export and frees */
};

/* Loop, or before start. Takes the descriptors over if owned (closed on failure too). */
int nbd_connection_new(struct nbd_server *server, int in_fd, int out_fd, bool socket, bool owned,
                       void (*ended)(void *arg), void *ended_arg, struct error *err)
    __attribute__((warn_unused_result));

void nbd_connection_get(struct nbd_connection *c);
/* The last one frees, in the errand thread. Any thread. */
void nbd_connection_put(struct nbd_connection *c);

/* Has the connection looked at by the loop. Any thread that holds a reference, or the budget's lock. */
void nbd_connection_post(struct nbd_connection *c);

/* Loop. Nothing more is read; closed when what is under way is done. */
void nbd_connection_end(struct nbd_connection *c);
/* Loop. Closed at once; what is under way is waited for only by nbd_server_free. */
void nbd_connection_close(struct nbd_connection *c);
/* Loop. Closes because the peer broke the protocol; the text says how. */
void nbd_connection_violation(struct nbd_connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Loop. Takes one of the places for negotiated connections, until it is closed; false: all are taken. */
bool nbd_connection_count_negotiated(struct nbd_connection *c) __attribute__((warn_unused_result));
/* Loop. The handshake is over: frees its state. */
void nbd_connection_negotiated(struct nbd_connection *c);
/* Loop. It waits in the budget's line, which wakes it. */
void nbd_connection_waits_for_memory(struct nbd_connection *c);
/* Bytes moved in either direction so far. Loop. */
uint64_t nbd_connection_moved_bytes(struct nbd_connection *c);

#endif
