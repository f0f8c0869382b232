/*
 * A request that is alone on its connection, carried out by the loop's own thread. lone.c says when.
 */
#ifndef ASHLAR_FRONT_NBD_LONE_H
#define ASHLAR_FRONT_NBD_LONE_H

#include <stdbool.h>

#include "front/nbd/loop.h"

struct nbd_connection;
struct request;

/* Zero at first. Loop thread, but for what work and done of the aside use. */
struct nbd_lone {
    struct nbd_aside aside;
    struct request *request; /* held back until the end of the turn, or being carried out */
    bool held;               /* the former */
    unsigned streak;         /* commands in a row that came alone */
};

void nbd_lone_init(struct nbd_lone *lone);
/* Submits a request of the connection's, or holds it back as the lone one. `whole`: it is all of its command. */
void nbd_lone_submit(struct nbd_connection *c, struct request *r, bool whole);
/* At the end of a turn, whatever became of the connection: what was held back goes its way. `quiet`: no more input is
 * known of. The connection may be gone afterwards unless the caller holds a reference. */
void nbd_lone_settle(struct nbd_connection *c, bool quiet);

#endif
