/*
 * Listening sockets of a server: unix, TCP, inherited.
 */
#ifndef ASHLAR_FRONT_NBD_LISTENER_H
#define ASHLAR_FRONT_NBD_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "front/nbd/loop.h"

struct error;
struct nbd_server;

struct nbd_listener {
    struct list link; /* in the server's listeners */
    struct nbd_server *server;
    struct nbd_watch watch;
    struct nbd_task task;
    struct nbd_timer resume_timer; /* set while it is paused for lack of descriptors */
    bool watched, closed;
    char *uri_head, *uri_tail; /* what comes before and after the export name; immutable */
    char *unlink_path;         /* unix socket of our own: removed at the end if it is still this file: */
    uint64_t device, inode;
};

/* Before start. They add to server->listeners. err is not NULL. */
int nbd_listener_unix(struct nbd_server *server, const char *path, struct error *err);
int nbd_listener_tcp(struct nbd_server *server, const char *host, uint16_t port, struct error *err);
int nbd_listener_fd(struct nbd_server *server, int fd, struct error *err);

/* Loop, or before start. */
int nbd_listener_start(struct nbd_listener *l, struct error *err);
/* Tries again if it is paused. */
void nbd_listener_resume(struct nbd_listener *l);
/* Closes the socket and removes its file. */
void nbd_listener_close(struct nbd_listener *l);

/* The loop does not run any more, or has not yet. */
void nbd_listener_free(struct nbd_listener *l);

#endif
