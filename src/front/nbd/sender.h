/*
 * The sending half of a connection: a queue of replies, sent by whoever has reason to. sender.c says who.
 */
#ifndef ASHLAR_FRONT_NBD_SENDER_H
#define ASHLAR_FRONT_NBD_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "env/env.h"

struct nbd_buffer;
struct nbd_connection;

#define NBD_REPLY_HEAD_BYTES 32
#define NBD_REPLY_TAIL_BYTES 8

/* One message to the peer: head, text, tail, data, each of which may be empty. Zero but for what is set. */
struct nbd_reply {
    struct list link;
    /* Sent, or dropped because the connection is gone. Any thread, no lock held. Frees what the reply is part of. */
    void (*retire)(struct nbd_reply *reply);
    uint8_t head[NBD_REPLY_HEAD_BYTES], tail[NBD_REPLY_TAIL_BYTES];
    uint8_t head_bytes, tail_bytes;
    bool ends_command; /* the last reply of a command */
    uint32_t text_bytes;
    char *text;                    /* freed with the reply */
    const struct nbd_buffer *data; /* its iovec as it is */
    uint64_t data_bytes;
};

/* Fields are guarded by lock. */
struct nbd_sender {
    struct env_mutex lock;
    struct list replies;    /* to be sent, oldest first */
    uint64_t head_sent;     /* bytes of the first that were sent */
    uint64_t unsent_bytes;  /* of all */
    uint64_t sent_bytes;    /* ever */
    unsigned command_count; /* commands begun whose last reply is not sent */
    bool corked;            /* the loop is at work on this connection and will send when it is done */
    bool sending;           /* some thread is in a send call, and will look at the queue again after it */
    bool blocked;           /* the socket takes no more; the loop waits for it */
    bool broken;            /* nothing can be sent any more; replies are dropped */
    bool notify;            /* the loop waits for replies to be sent: post the connection when one was */
    bool progressed;        /* one was, since the loop last looked */
    bool close_after_send;  /* the connection was closed meanwhile: the sending thread closes the descriptor */
};

void nbd_sender_init(struct nbd_sender *s, struct env *env);
/* The queue is empty. */
void nbd_sender_fini(struct nbd_sender *s);

/* Queues a reply; the lock is held. */
void nbd_sender_put_locked(struct nbd_connection *c, struct nbd_reply *reply);
/* Sends what can be sent now unless somebody else is about to, and unlocks. The connection may be gone afterwards
 * unless the caller holds a reference. */
void nbd_sender_send_and_unlock(struct nbd_connection *c, bool in_loop);
/* Queues and sends. Any thread. */
void nbd_sender_put(struct nbd_connection *c, struct nbd_reply *reply);

/* Loop: replies put between the two go out together. */
void nbd_sender_cork(struct nbd_connection *c);
void nbd_sender_uncork(struct nbd_connection *c);
/* Loop: the socket takes bytes again. */
void nbd_sender_unblock(struct nbd_connection *c);
/* Loop: the connection is closed: drops the queue, closes the descriptor now or after the send under way. */
void nbd_sender_close(struct nbd_connection *c);

#endif
