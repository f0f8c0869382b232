/*
 * The server as a whole: making, starting, stopping.
 *
 * Stop: the loop closes the listeners and marks itself draining; every connection is given a turn, answers what is
 * already there with ESHUTDOWN, and closes when nothing of it is under way. When the last is closed, or the grace is
 * over and the rest was cut, stop returns. A connection that was cut while the engine still works on its requests lives
 * on, without descriptor and place, until the last of them completes: that is what free waits for.
 */
#include "front/nbd/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/tree.h"
#include "front/nbd/connection.h"
#include "front/nbd/handshake.h"
#include "front/nbd/listener.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/uri.h"

#define NS_PER_S UINT64_C(1000000000)
#define NOTICES_A_SECOND 10
#define ACTIVATION_FD_FIRST 3

/* ---- notices ---- */

void nbd_server_notice(struct nbd_server *server, const char *format, ...)
{
    if (server->options.notice == NULL)
        return;
    env_mutex_lock(&server->lock);
    uint64_t now = env_now_ns(server->env);
    if (now - server->notices_since_ns >= NS_PER_S) {
        server->notices_since_ns = now;
        server->notice_count = 0;
    }
    unsigned count = ++server->notice_count;
    env_mutex_unlock(&server->lock);
    if (count > NOTICES_A_SECOND + 1)
        return;
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (count > NOTICES_A_SECOND)
        (void)snprintf(text, sizeof text, "NBD: more messages than %d a second, the others are left out",
                       NOTICES_A_SECOND);
    server->options.notice(server->options.notice_arg, text);
}

/* ---- making ---- */

static int check_options(struct nbd_server_options *o, struct error *err)
{
    if (o->max_connections == 0)
        o->max_connections = 1024;
    if (o->max_handshakes == 0)
        o->max_handshakes = 100;
    if (o->handshake_timeout_ns == 0)
        o->handshake_timeout_ns = 10 * NS_PER_S;
    if (o->stall_ns == 0)
        o->stall_ns = 5 * NS_PER_S;
    if (o->request_memory_bytes == 0)
        o->request_memory_bytes = NBD_BUDGET_BYTES_DEFAULT;
    if (o->max_connections > 65536)
        return error_set(err, -EINVAL, "NBD: %u connections, at most 65536", o->max_connections);
    if (o->request_memory_bytes < NBD_BUDGET_BYTES_MIN(o->max_connections))
        return error_set(err, -EINVAL, "NBD: %llu bytes for requests, at least %llu with %u connections",
                         (unsigned long long)o->request_memory_bytes,
                         (unsigned long long)NBD_BUDGET_BYTES_MIN(o->max_connections), o->max_connections);
    return 0;
}

static void grace_over(struct nbd_timer *timer);
static void begin_stop(struct nbd_task *task);

static void trim_memory(void *arg)
{
    struct nbd_server *server = arg;
    (void)nbd_buffer_pool_trim(server->pool);
}

static int set_up(struct nbd_server *server, struct error *err)
{
    const struct nbd_server_options *o = &server->options;
    server->scratch = malloc(NBD_SCRATCH_BYTES);
    if (server->scratch == NULL || nbd_buffer_pool_new(server->env, &server->pool) < 0 ||
        nbd_budget_new(server->env, o->request_memory_bytes, o->max_connections, &server->budget) < 0)
        return error_set(err, -ENOMEM, "no memory for the NBD server");
    int ret = nbd_loop_new(server->env, &server->loop, err);
    if (ret == 0)
        ret = nbd_errands_new(server->env, &server->errands, err);
    if (ret == 0)
        nbd_loop_on_idle(server->loop, trim_memory, server);
    return ret;
}

static void tear_down(struct nbd_server *server)
{
    nbd_loop_free(server->loop);
    nbd_errands_free(server->errands);
    while (!list_empty(&server->listeners))
        nbd_listener_free(CONTAINER_OF(server->listeners.next, struct nbd_listener, link));
    nbd_budget_free(server->budget);
    nbd_buffer_pool_free(server->pool);
    free(server->scratch);
    env_cond_destroy(&server->changed);
    env_mutex_destroy(&server->lock);
    free(server);
}

int nbd_server_new(struct env *env, const struct nbd_server_options *options, const struct export_ops *ops,
                   void *backend, struct nbd_server **ret_server, struct error *err)
{
    struct nbd_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return error_set(err, -ENOMEM, "no memory for the NBD server");
    server->env = env;
    server->options = *options;
    server->ops = ops;
    server->backend = backend;
    list_init(&server->connections);
    list_init(&server->handshakes);
    list_init(&server->listeners);
    env_mutex_init(&server->lock, env);
    env_cond_init(&server->changed, env);
    server->grace_timer.fire = grace_over;
    server->stall_timer.fire = nbd_server_stall_tick;
    server->stop_task.run = begin_stop;
    int ret = check_options(&server->options, err);
    if (ret == 0)
        ret = set_up(server, err);
    if (ret < 0) {
        tear_down(server);
        return ret;
    }
    *ret_server = server;
    return 0;
}

/* ---- listening ---- */

int nbd_server_listen_unix(struct nbd_server *server, const char *path, struct error *err)
{
    struct error unread = {0};
    return nbd_listener_unix(server, path, err != NULL ? err : &unread);
}

int nbd_server_listen_tcp(struct nbd_server *server, const char *host, uint16_t port, struct error *err)
{
    struct error unread = {0};
    return nbd_listener_tcp(server, host, port, err != NULL ? err : &unread);
}

int nbd_server_listen_fd(struct nbd_server *server, int fd, struct error *err)
{
    struct error unread = {0};
    return nbd_listener_fd(server, fd, err != NULL ? err : &unread);
}

/* A positive decimal number, 0 if it is none. */
static unsigned number_in(const char *name)
{
    const char *text = getenv(name);
    if (text == NULL || text[0] < '1' || text[0] > '9')
        return 0;
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *end == '\0' && n <= INT32_MAX ? (unsigned)n : 0;
}

int nbd_server_listen_activation(struct nbd_server *server, unsigned *ret_count, struct error *err)
{
    unsigned pid = number_in("LISTEN_PID"), count = number_in("LISTEN_FDS");
    *ret_count = 0;
    if (pid != (unsigned)getpid())
        return 0;
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    for (unsigned i = 0; i < count; i++) {
        int ret = nbd_server_listen_fd(server, ACTIVATION_FD_FIRST + (int)i, err);
        if (ret < 0)
            return ret;
        (*ret_count)++;
    }
    return 0;
}

char *nbd_server_uri(struct nbd_server *server, unsigned i, const char *export_name, char *buf, size_t buf_bytes)
{
    struct list *at = server->listeners.next;
    for (; i > 0 && at != &server->listeners; i--)
        at = at->next;
    buf[0] = '\0';
    if (at == &server->listeners)
        return buf;
    const struct nbd_listener *l = CONTAINER_OF(at, struct nbd_listener, link);
    return nbd_uri_join(l->uri_head, export_name, l->uri_tail, buf, buf_bytes);
}

int nbd_server_start(struct nbd_server *server, struct error *err)
{
    CHECK(!server->started);
    for (struct list *at = server->listeners.next; at != &server->listeners; at = at->next) {
        int ret = nbd_listener_start(CONTAINER_OF(at, struct nbd_listener, link), err);
        if (ret < 0)
            return ret;
    }
    int ret = nbd_loop_start(server->loop, err);
    if (ret < 0)
        return ret;
    env_mutex_lock(&server->lock);
    server->started = true;
    env_mutex_unlock(&server->lock);
    return 0;
}

/* ---- the loop's part in the life of connections ---- */

void nbd_server_admit(struct nbd_server *server)
{
    if (server->handshake_count < server->options.max_handshakes)
        return;
    struct nbd_connection *victim = NULL;
    for (struct list *at = server->handshakes.next; at != &server->handshakes && victim == NULL; at = at->next) {
        struct nbd_connection *c = CONTAINER_OF(at, struct nbd_connection, handshake_link);
        if (!c->handshake->heard)
            victim = c;
    }
    if (victim == NULL)
        victim = CONTAINER_OF(server->handshakes.next, struct nbd_connection, handshake_link);
    nbd_count(&server->counters.dropped_handshakes, 1);
    nbd_server_notice(server, "NBD %s: more than %u connections in their handshake, the oldest is closed", victim->peer,
                      server->options.max_handshakes);
    nbd_connection_close(victim);
}

static void end_stop(struct nbd_server *server)
{
    nbd_loop_stop_timer(&server->grace_timer);
    nbd_loop_stop_timer(&server->stall_timer);
    env_mutex_lock(&server->lock);
    server->stopped = true;
    env_cond_broadcast(&server->changed);
    env_mutex_unlock(&server->lock);
}

void nbd_server_connection_closed(struct nbd_server *server)
{
    if (server->draining) {
        if (list_empty(&server->connections))
            end_stop(server);
        return;
    }
    for (struct list *at = server->listeners.next; at != &server->listeners; at = at->next)
        nbd_listener_resume(CONTAINER_OF(at, struct nbd_listener, link));
}

static void grace_over(struct nbd_timer *timer)
{
    struct nbd_server *server = CONTAINER_OF(timer, struct nbd_server, grace_timer);
    while (!list_empty(&server->connections)) {
        server->cut_count++;
        nbd_connection_close(CONTAINER_OF(server->connections.next, struct nbd_connection, link));
    }
}

static void begin_stop(struct nbd_task *task)
{
    struct nbd_server *server = CONTAINER_OF(task, struct nbd_server, stop_task);
    server->draining = true;
    for (struct list *at = server->listeners.next; at != &server->listeners; at = at->next)
        nbd_listener_close(CONTAINER_OF(at, struct nbd_listener, link));
    if (list_empty(&server->connections)) {
        end_stop(server);
        return;
    }
    for (struct list *at = server->connections.next; at != &server->connections; at = at->next)
        nbd_connection_post(CONTAINER_OF(at, struct nbd_connection, link));
    env_mutex_lock(&server->lock);
    uint64_t grace_ns = server->grace_ns;
    env_mutex_unlock(&server->lock);
    nbd_loop_set_timer(server->loop, &server->grace_timer, nbd_loop_now_ns(server->loop) + grace_ns);
}

unsigned nbd_server_stop(struct nbd_server *server, uint64_t grace_ns)
{
    env_mutex_lock(&server->lock);
    bool first = server->started && !server->stop_called;
    if (first) {
        server->stop_called = true;
        server->grace_ns = grace_ns;
    }
    env_mutex_unlock(&server->lock);
    if (first)
        (void)nbd_loop_post(server->loop, &server->stop_task);
    env_mutex_lock(&server->lock);
    while (server->started && !server->stopped)
        env_cond_wait(&server->changed, &server->lock);
    env_mutex_unlock(&server->lock);
    return server->cut_count;
}

void nbd_server_free(struct nbd_server *server)
{
    if (server == NULL)
        return;
    (void)nbd_server_stop(server, 0);
    env_mutex_lock(&server->lock);
    while (server->alive_count > 0)
        env_cond_wait(&server->changed, &server->lock);
    env_mutex_unlock(&server->lock);
    tear_down(server);
}

/* ---- calls into the loop ---- */

struct loop_call {
    struct nbd_task task;
    struct nbd_server *server;
    void (*make)(struct loop_call *call);
    bool made, ended; /* guarded by the server's lock */
    int in_fd, out_fd;
    bool socket, owned;
    int result;
    struct error error;
    struct nbd_client_info *clients;
    size_t room, count;
};

static void make_call(struct nbd_task *task)
{
    struct loop_call *call = CONTAINER_OF(task, struct loop_call, task);
    struct nbd_server *server = call->server;
    call->make(call);
    env_mutex_lock(&server->lock);
    call->made = true;
    env_cond_broadcast(&server->changed);
    env_mutex_unlock(&server->lock);
}

/* Has call->make run in the loop and waits for it. */
static void call_loop(struct nbd_server *server, struct loop_call *call, void (*make)(struct loop_call *call))
{
    call->task.run = make_call;
    call->server = server;
    call->make = make;
    env_mutex_lock(&server->lock);
    CHECK(server->started);
    env_mutex_unlock(&server->lock);
    (void)nbd_loop_post(server->loop, &call->task);
    env_mutex_lock(&server->lock);
    while (!call->made)
        env_cond_wait(&server->changed, &server->lock);
    env_mutex_unlock(&server->lock);
}

static void connection_ended(void *arg)
{
    struct loop_call *call = arg;
    env_mutex_lock(&call->server->lock);
    call->ended = true;
    env_cond_broadcast(&call->server->changed);
    env_mutex_unlock(&call->server->lock);
}

static void make_connection(struct loop_call *call)
{
    struct nbd_server *server = call->server;
    if (server->draining) {
        call->result = error_set(&call->error, -ESHUTDOWN, "the NBD server is shutting down");
        if (call->owned)
            close(call->in_fd);
        return;
    }
    nbd_server_admit(server);
    call->result = nbd_connection_new(server, call->in_fd, call->out_fd, call->socket, call->owned,
                                      call->owned ? NULL : connection_ended, call, &call->error);
}

static bool is_stream_socket(int fd)
{
    int type = 0, domain = 0;
    socklen_t n = sizeof type, m = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &m) == 0 &&
           (domain == AF_UNIX || domain == AF_INET || domain == AF_INET6);
}

int nbd_server_adopt(struct nbd_server *server, int fd, struct error *err)
{
    if (!is_stream_socket(fd)) {
        close(fd);
        return error_set(err, -EINVAL, "descriptor %d is no unix or TCP stream socket", fd);
    }
    struct loop_call call = {.in_fd = fd, .out_fd = fd, .socket = true, .owned = true};
    call_loop(server, &call, make_connection);
    return call.result < 0 ? error_set(err, call.result, "%s", call.error.text) : 0;
}

int nbd_server_serve(struct nbd_server *server, int in_fd, int out_fd, struct error *err)
{
    if (fcntl(in_fd, F_GETFD) < 0 || fcntl(out_fd, F_GETFD) < 0)
        return error_set(err, -EBADF, "descriptors %d and %d are not both open", in_fd, out_fd);
    struct loop_call call = {
        .in_fd = in_fd, .out_fd = out_fd, .socket = is_stream_socket(in_fd) && is_stream_socket(out_fd)};
    call_loop(server, &call, make_connection);
    if (call.result < 0)
        return error_set(err, call.result, "%s", call.error.text);
    env_mutex_lock(&server->lock);
    while (!call.ended)
        env_cond_wait(&server->changed, &server->lock);
    env_mutex_unlock(&server->lock);
    return 0;
}

static void make_client_list(struct loop_call *call)
{
    struct nbd_server *server = call->server;
    for (struct list *at = server->connections.next; at != &server->connections; at = at->next) {
        const struct nbd_connection *c = CONTAINER_OF(at, struct nbd_connection, link);
        if (!c->counted || c->export == NULL)
            continue;
        if (call->count < call->room) {
            struct nbd_client_info *info = &call->clients[call->count];
            *info = (struct nbd_client_info){.connected_ns = c->connected_ns};
            memcpy(info->peer, c->peer, sizeof info->peer);
            memcpy(info->export_name, c->info.entry.name, sizeof info->export_name);
        }
        call->count++;
    }
}

size_t nbd_server_get_clients(struct nbd_server *server, struct nbd_client_info *ret_clients, size_t room)
{
    struct loop_call call = {.clients = ret_clients, .room = room};
    call_loop(server, &call, make_client_list);
    return call.count;
}
