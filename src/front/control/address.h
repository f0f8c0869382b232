/*
 * Where the control socket of a pool is, and what is at its other end.
 */
#ifndef ASHLAR_FRONT_CONTROL_ADDRESS_H
#define ASHLAR_FRONT_CONTROL_ADDRESS_H

#include <limits.h>
#include <sys/types.h>

struct error;

struct control_address {
    char pool[PATH_MAX]; /* canonical path of the pool: symbolic links resolved, so that every way to it agrees */
    char path[PATH_MAX]; /* of the socket: pool + ".control" */
};

/* -ENOENT and others of realpath(3), with text. */
int control_address_of(const char *pool_path, struct control_address *ret_address, struct error *err);

/* A socket that listens there, mode 0600, in place of a stale one. -EADDRINUSE: somebody answers there already, or
 * something that is no socket is in the way. */
int control_address_listen(const struct control_address *address, struct error *err);

/* A connected, non-blocking socket; -ENOENT if nobody listens (no socket, or a stale one); no text for that. */
int control_address_connect(const struct control_address *address, struct error *err);

/* Who is at the other end. 0, or -errno. */
int control_peer_of(int fd, pid_t *ret_pid, uid_t *ret_uid);

#endif
