/*
 * What the files of `serve` share: its options, the running server, and how others are told that it is ready.
 */
#ifndef ASHLAR_CLI_SERVE_H
#define ASHLAR_CLI_SERVE_H

#include <stdbool.h>
#include <stdint.h>

struct control_server;
struct env_thread;
struct error;
struct invocation;
struct nbd_server;
struct pool;
struct pool_exports;
struct queue;

enum { SERVE_LISTENERS_MAX = 16 };

struct serve_listener {
    bool is_tcp;
    char host[256]; /* TCP; "" for all addresses. unix: unused */
    uint16_t port;
    const char *path; /* unix */
};

struct serve_options {
    const char *pool_path;
    struct serve_listener listeners[SERVE_LISTENERS_MAX];
    unsigned listener_count;
    bool use_stdio, read_only, lose_damaged_log;
    uint64_t cache_bytes;
    unsigned thread_count, worker_count, max_connections;
    uint64_t grace_ns;
    int ready_fd; /* -1: none */
};

struct server {
    const struct invocation *in;
    struct serve_options options;
    char path[4096]; /* of the pool, for messages */
    struct pool *pool;
    struct queue *queue;
    struct pool_exports *exports;
    struct nbd_server *nbd;
    struct control_server *control;
    struct env_thread *helper; /* runs the connection of --stdio */
    uint64_t started_ns, started_wall_ns;
    int signal_fd;
    int stop_fd; /* eventfd: somebody asked to stop, or the connection of --stdio ended */
};

/* serve_options.c: -EINVAL with text. */
int serve_options_parse(const struct invocation *in, struct serve_options *ret_options, struct error *err);

/* serve_host.c: what the control server asks of this one. */
struct control_host_ops;
const struct control_host_ops *serve_host_ops(void);

/* serve_ready.c. Tells the service manager (NOTIFY_SOCKET) and ready_fd, which is closed. */
void serve_tell_ready(int ready_fd, const char *status);
void serve_tell_stopping(void);
/* Prints what is served and where, and what to do next. */
void serve_print(struct server *s);

#endif
