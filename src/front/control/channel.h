/*
 * A connected unix socket that carries lines and, now and then, file descriptors. Both ends use it.
 */
#ifndef ASHLAR_FRONT_CONTROL_CHANNEL_H
#define ASHLAR_FRONT_CONTROL_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct channel {
    int fd;          /* non-blocking; owned */
    int cancel_fd;   /* when this polls readable, waiting ends with -ECANCELED; -1: none. Not owned. */
    int received_fd; /* a descriptor that came with the lines read so far, -1: none. Owned until taken. */
    bool too_many_fds;
    char *bytes; /* received, not yet taken */
    size_t start, end, capacity;
    size_t line_bytes_max;
};

void channel_init(struct channel *c, int fd, int cancel_fd, size_t line_bytes_max);
void channel_close(struct channel *c);

/* Sends n bytes, with descriptor fd_to_send (-1: none; stays the caller's) attached to the first. -ETIMEDOUT if the
 * peer takes nothing for timeout_ms; -EPIPE and others. */
int channel_send(struct channel *c, const char *bytes, size_t n, int fd_to_send, int timeout_ms);

/*
 * Waits for a line. *ret_line points into the channel until the next call; the newline is replaced by NUL and not
 * counted. -ETIMEDOUT: no byte for timeout_ms; -ENODATA: the peer closed between lines; -EPROTO: it closed inside one,
 * or the line is longer than line_bytes_max; -ECANCELED; others of recvmsg.
 */
int channel_receive(struct channel *c, int timeout_ms, char **ret_line, size_t *ret_bytes);

/* The descriptor that came, -1 if none did; the caller's from now on. */
int channel_take_fd(struct channel *c);

#endif
