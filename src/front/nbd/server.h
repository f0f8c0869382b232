/*
 * The NBD server: what a program that serves exports over NBD may do with it.
 *
 * A server has listeners, one event-loop thread that owns all connections, and one thread for calls that may block.
 * Order of calls: new, any number of listen_*, start, then adopt or serve as often as wished, stop, free. Every
 * function may be called from any thread, but not from a callback of export_ops, and free last of all.
 */
#ifndef ASHLAR_FRONT_NBD_SERVER_H
#define ASHLAR_FRONT_NBD_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "front/nbd/protocol.h"

struct env;
struct error;
struct export_ops;
struct nbd_server;

struct nbd_server_options {
    unsigned max_connections;      /* negotiated ones; 0: 1024 */
    unsigned max_handshakes;       /* connections that have not negotiated yet; 0: 100 */
    uint64_t handshake_timeout_ns; /* for the whole of a handshake; 0: 10 s */
    uint64_t stall_ns;             /* how long others wait for memory before one that holds it and does not move is
                                      dropped; 0: 5 s */
    uint64_t request_memory_bytes; /* of all requests together; 0: 64 MiB */
    bool read_only;                /* every export is */
    void (*notice)(void *arg, const char *text); /* one line for the log, no newline; any thread; may be NULL */
    void *notice_arg;
};

/* ops and backend outlive the server. -EINVAL: an option out of range (text says which), -ENOMEM, -EMFILE. */
int nbd_server_new(struct env *env, const struct nbd_server_options *options, const struct export_ops *ops,
                   void *backend, struct nbd_server **ret_server, struct error *err)
    __attribute__((warn_unused_result));

/*
 * Listens on a unix socket at path, mode 0600. A socket left behind by a dead server is replaced; -EADDRINUSE if
 * somebody listens there, -EEXIST if it is no socket. Unlinked again at stop, if it is still ours.
 */
int nbd_server_listen_unix(struct nbd_server *server, const char *path, struct error *err)
    __attribute__((warn_unused_result));
/* host: name or address, without brackets; NULL: all addresses. port 0: any, see nbd_server_uri. */
int nbd_server_listen_tcp(struct nbd_server *server, const char *host, uint16_t port, struct error *err)
    __attribute__((warn_unused_result));
/* Takes over a socket that listens already (unix or TCP); it is not unlinked at the end. -EINVAL: it is none. */
int nbd_server_listen_fd(struct nbd_server *server, int fd, struct error *err) __attribute__((warn_unused_result));
/* Takes over the sockets of the service manager's activation protocol (LISTEN_PID, LISTEN_FDS); *ret_count 0: there are
 * none. Takes both variables out of the environment, so that children do not take them for theirs. */
int nbd_server_listen_activation(struct nbd_server *server, unsigned *ret_count, struct error *err)
    __attribute__((warn_unused_result));

/* The URI of an export ("" for the default) at listener number i, into buf: "" if there is no such listener. Returns
 * buf. 1024 bytes are enough for any name; what does not fit is cut. */
char *nbd_server_uri(struct nbd_server *server, unsigned i, const char *export_name, char *buf, size_t buf_bytes);

int nbd_server_start(struct nbd_server *server, struct error *err) __attribute__((warn_unused_result));

/* Serves a connected stream socket (unix or TCP), which is the server's from now on, in every case. */
int nbd_server_adopt(struct nbd_server *server, int fd, struct error *err) __attribute__((warn_unused_result));
/*
 * Serves one connection that reads from in_fd and writes to out_fd (sockets, pipes, files; they may be the same), and
 * returns when it has ended. The descriptors stay the caller's, in the blocking mode they had.
 */
int nbd_server_serve(struct nbd_server *server, int in_fd, int out_fd, struct error *err)
    __attribute__((warn_unused_result));

/*
 * Ends service: closes the listeners and the connections that have not negotiated, lets requests under way finish,
 * answers new ones with ESHUTDOWN, and closes each connection once it has nothing under way. After grace_ns what is
 * left is cut. Returns the number of connections that had to be cut.
 */
unsigned nbd_server_stop(struct nbd_server *server, uint64_t grace_ns);
/* Stops without grace if not stopped yet; waits until the back-end has completed every request. */
void nbd_server_free(struct nbd_server *server);

struct nbd_server_stats {
    uint64_t connections_now; /* negotiated */
    uint64_t handshakes_now;  /* not yet */
    uint64_t closing_now;     /* closed; the last of their requests are not done, or their export is being closed */
    uint64_t accepted, negotiated;    /* since start */
    uint64_t dropped_handshakes;      /* too slow, or too many */
    uint64_t dropped_violations;      /* broke the protocol */
    uint64_t dropped_stalls;          /* held memory that others waited for */
    uint64_t refused_full;            /* max_connections reached */
    uint64_t accept_failures;         /* no descriptors */
    uint64_t commands[NBD_CMD_COUNT]; /* by type, refused ones included */
    uint64_t commands_unknown;
    uint64_t errors;                         /* replies with an error */
    uint64_t received_bytes, sent_bytes;     /* on the wire */
    uint64_t receive_calls, send_calls;      /* system calls */
    uint64_t direct_sends;                   /* of send_calls: by the thread that completed a request */
    uint64_t loop_waits, loop_wake_ups;      /* sleeps of the event loop; of them ended by another thread */
    uint64_t asides, reliefs;                /* requests done by the loop's thread; of them those it was relieved at */
    uint64_t memory_bytes, memory_bytes_max; /* held by requests: now, and the most so far */
    uint64_t memory_waiting;                 /* connections that wait for memory now */
};
void nbd_server_get_stats(struct nbd_server *server, struct nbd_server_stats *ret_stats);

struct nbd_client_info {
    char peer[64]; /* "pid 17 uid 0", "[::1]:40022" */
    char export_name[241];
    uint64_t connected_ns; /* env_now_ns() when it was negotiated */
};
/* Fills up to room entries with the negotiated connections; returns how many there are. */
size_t nbd_server_get_clients(struct nbd_server *server, struct nbd_client_info *ret_clients, size_t room);

#endif
