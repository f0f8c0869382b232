/*
 * One thread listens and watches, one thread a connection works.
 *
 * The watch accepts, once a second tells clients whose request is being worked on that it still is ("alive"), notices
 * clients that went away (their import or export is given up through `cancelled`), and joins threads that ended. A
 * connection's thread receives a request, runs it, sends the reply, and so on. The verb `stop` is answered last of all:
 * its connection is handed over to `stoppers` and closes with the process, which is how a client sees it gone.
 *
 * States: SERVING -> ENDING (control_server_end: no new connections, what runs is finished or given up; the watch goes
 * on telling stoppers that the process lives) -> DONE (control_server_free: the watch ends).
 *
 * Peers: same user or root, by SO_PEERCRED. They may still be broken or slow: requests are bounded (message.h), silence
 * between and inside requests is bounded (IDLE_MS), replies that nobody takes are given up (SEND_MS), the number of
 * connections is bounded.
 *
 * Locking: server->mutex guards the lists, counts and state; conn->send_mutex the sending side of a channel, and is
 * the inner one.
 */
#include "front/control/server.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/list.h"
#include "base/tree.h"
#include "env/env.h"
#include "front/control/address.h"
#include "front/control/channel.h"

enum {
    CONNECTIONS_MAX = 32,
    WATCH_MS = 1000,
    ENDING_MS = 10, /* how soon the end of the last connection is seen */
    IDLE_MS = 60000,
    SEND_MS = 10000,
};

enum server_state { SERVING, ENDING, DONE };

struct connection {
    struct list link; /* in connections or stoppers */
    struct control_server *server;
    struct env_thread *thread;
    struct channel channel;
    struct env_mutex send_mutex;
    bool broken;     /* under send_mutex: a line was sent in part, or sending failed */
    bool working;    /* under server->mutex: between request and reply */
    bool ended;      /* under server->mutex: the thread is about to return */
    bool is_stopper; /* under server->mutex: waits for the end of the process */
    _Atomic bool cancelled;
};

struct control_server {
    const struct control_host *host;
    struct control_address address;
    int listen_fd;
    dev_t socket_device; /* of the socket file: it is removed only if it is still ours */
    ino_t socket_inode;
    int end_fd;  /* eventfd, readable from control_server_end on: ends all waiting for requests */
    int wake_fd; /* eventfd, read by the watch: look at the state */
    struct env_thread *watch;
    struct env_mutex mutex;
    struct env_cond none_left; /* connections became empty */
    enum server_state state;
    struct list connections, stoppers;
    unsigned connection_count;
};

static struct connection *connection_of(struct list *link)
{
    return CONTAINER_OF(link, struct connection, link);
}

/* ---- sending ---- */

/* Sends a message and frees it. timeout_ms 0: what cannot go at once is dropped, which is fine for all but the reply.
 */
static void connection_send(struct connection *c, char *message, int timeout_ms)
{
    if (message == NULL)
        return;
    env_mutex_lock(&c->send_mutex);
    if (!c->broken) {
        int r = channel_send(&c->channel, message, strlen(message), -1, timeout_ms);
        c->broken = r < 0 && r != -EAGAIN;
    }
    env_mutex_unlock(&c->send_mutex);
    free(message);
}

static int connection_progress(void *arg, uint64_t done, uint64_t total)
{
    struct connection *c = arg;
    connection_send(c, control_reply_progress(done, total), 0);
    return atomic_load(&c->cancelled);
}

/* Asks the client whether it is still there and wants to go on. */
static int connection_confirm(void *arg)
{
    struct connection *c = arg;
    struct control_request request;
    char *line;
    size_t n;
    connection_send(c, control_reply_confirm(), SEND_MS);
    if (channel_receive(&c->channel, IDLE_MS, &line, &n) < 0 || control_request_decode(line, n, &request, NULL) < 0)
        return 1;
    bool go = strcmp(request.verb, "go") == 0;
    control_request_clear(&request);
    return !go;
}

/* ---- requests ---- */

/* True if the connection is to stay with this thread. */
static bool stop_begin(struct connection *c)
{
    struct control_server *s = c->server;
    if (s->host->ops == NULL || s->host->ops->stop == NULL) {
        struct error err = {0};
        error_set(&err, -ENOSYS, "this server cannot be stopped from outside");
        connection_send(c, control_reply_error(&err), SEND_MS);
        return true;
    }
    env_mutex_lock(&s->mutex);
    c->is_stopper = true;
    env_mutex_unlock(&s->mutex);
    s->host->ops->stop(s->host->arg);
    return false;
}

static void connection_set_working(struct connection *c, bool working)
{
    env_mutex_lock(&c->server->mutex);
    c->working = working;
    env_mutex_unlock(&c->server->mutex);
}

/* Runs one line. False: the connection ends. */
static bool connection_serve(struct connection *c, const char *line, size_t n)
{
    struct error err = {0};
    struct control_call call = {.progress = connection_progress, .confirm = connection_confirm, .arg = c};
    json_t *result = NULL;
    bool go_on = true;
    int r = control_request_decode(line, n, &call.request, &err);
    call.fd = channel_take_fd(&c->channel);
    if (r == 0) {
        if (strcmp(call.request.verb, "stop") == 0) {
            go_on = stop_begin(c);
        } else {
            r = control_execute(c->server->host, &call, &result, &err);
            connection_set_working(c, false); /* the watch sends nothing from here on, so it cannot wait for this */
            if (r == 0)
                connection_send(c, control_reply_result(result), SEND_MS);
        }
        control_request_clear(&call.request);
    }
    if (r < 0)
        connection_send(c, control_reply_error(&err), SEND_MS);
    json_decref(result);
    if (call.fd >= 0)
        close(call.fd);
    return go_on;
}

static void connection_run(void *arg)
{
    struct connection *c = arg;
    for (bool go_on = true; go_on;) {
        char *line;
        size_t n;
        int r = channel_receive(&c->channel, IDLE_MS, &line, &n);
        if (r == -EPROTO) {
            struct error err = {0};
            error_set(&err, -EPROTO, "control message: cut short, or longer than %d bytes", CONTROL_REQUEST_BYTES_MAX);
            connection_send(c, control_reply_error(&err), 0);
        }
        if (r < 0)
            break;
        connection_set_working(c, true);
        go_on = connection_serve(c, line, n);
        connection_set_working(c, false);
    }
    env_mutex_lock(&c->server->mutex);
    c->ended = true;
    env_mutex_unlock(&c->server->mutex);
}

/* ---- the watch ---- */

static void connection_free(struct connection *c)
{
    channel_close(&c->channel);
    env_mutex_destroy(&c->send_mutex);
    free(c);
}

/* Joins threads that ended. Stoppers move to their list; the others are gone. */
static void connections_collect(struct control_server *s)
{
    env_mutex_lock(&s->mutex);
    for (struct list *at = s->connections.next; at != &s->connections;) {
        struct connection *c = connection_of(at);
        at = at->next;
        if (!c->ended)
            continue;
        list_remove(&c->link);
        env_thread_join(c->thread); /* it returns without the mutex */
        if (c->is_stopper) {
            list_append(&s->stoppers, &c->link);
            continue;
        }
        s->connection_count--;
        connection_free(c);
    }
    if (list_empty(&s->connections))
        env_cond_broadcast(&s->none_left);
    env_mutex_unlock(&s->mutex);
}

/* Tells a client that is not served why, as far as it can be told. */
static void refuse(int fd, int code, const char *why)
{
    struct channel channel;
    struct error err = {0};
    channel_init(&channel, fd, -1, CONTROL_REQUEST_BYTES_MAX);
    error_set(&err, code, "%s", why);
    char *message = control_reply_error(&err);
    if (message != NULL) {
        int r = channel_send(&channel, message, strlen(message), -1, 0);
        (void)r; /* it goes away in any case */
    }
    free(message);
    channel_close(&channel);
}

static bool peer_allowed(int fd)
{
    pid_t pid;
    uid_t uid;
    return control_peer_of(fd, &pid, &uid) == 0 && (uid == 0 || uid == geteuid());
}

/* Adds a connection and its thread, unless the server is ending: who waits for the last connection then must not be
 * overtaken by a new one. */
static int connection_add(struct control_server *s, struct connection *c)
{
    int r = 0;
    env_mutex_lock(&s->mutex);
    if (s->state != SERVING)
        r = -ESHUTDOWN;
    else if (s->connection_count >= CONNECTIONS_MAX)
        r = -EAGAIN;
    else
        r = env_thread_start(s->host->env, "control", connection_run, c, &c->thread);
    if (r == 0) {
        list_append(&s->connections, &c->link);
        s->connection_count++;
    }
    env_mutex_unlock(&s->mutex);
    return r;
}

static void connection_start(struct control_server *s, int fd)
{
    if (!peer_allowed(fd)) {
        refuse(fd, -EPERM, "this pool is served by another user");
        return;
    }
    struct connection *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        refuse(fd, -ENOMEM, "the server has no memory for another command");
        return;
    }
    c->server = s;
    list_init(&c->link);
    channel_init(&c->channel, fd, s->end_fd, CONTROL_REQUEST_BYTES_MAX);
    env_mutex_init(&c->send_mutex, s->host->env);
    int r = connection_add(s, c);
    if (r == 0)
        return;
    c->channel.fd = -1;
    connection_free(c);
    refuse(fd, r,
           r == -EAGAIN ? "the server is busy with as many commands as it takes; try again"
                        : "the server is stopping, or has no thread for another command");
}

/* Fills the poll set: the wake-up, the listening socket, connections that work. Returns its length; 0: it is over. */
static nfds_t watch_list(struct control_server *s, struct pollfd *fds, struct connection **of, int *ret_timeout_ms)
{
    nfds_t n = 2;
    env_mutex_lock(&s->mutex);
    fds[0] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = s->state == SERVING ? s->listen_fd : -1, .events = POLLIN};
    for (struct list *at = s->connections.next; at != &s->connections && n < CONNECTIONS_MAX + 2; at = at->next) {
        struct connection *c = connection_of(at);
        if (!c->working || atomic_load(&c->cancelled))
            continue;
        of[n] = c;
        fds[n++] = (struct pollfd){.fd = c->channel.fd}; /* POLLHUP and POLLERR come unasked */
    }
    *ret_timeout_ms = s->state == ENDING && !list_empty(&s->connections) ? ENDING_MS : WATCH_MS;
    if (s->state == DONE)
        n = 0;
    env_mutex_unlock(&s->mutex);
    return n;
}

static void alive_all(struct control_server *s)
{
    env_mutex_lock(&s->mutex);
    for (struct list *at = s->connections.next; at != &s->connections; at = at->next)
        if (connection_of(at)->working || connection_of(at)->is_stopper)
            connection_send(connection_of(at), control_reply_alive(), 0);
    for (struct list *at = s->stoppers.next; at != &s->stoppers; at = at->next)
        connection_send(connection_of(at), control_reply_alive(), 0);
    env_mutex_unlock(&s->mutex);
}

static void accept_one(struct control_server *s)
{
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        connection_start(s, fd);
    else if (errno == EMFILE || errno == ENFILE)
        env_sleep_ns(s->host->env, 100000000); /* it stays readable: do not spin */
}

static void watch_run(void *arg)
{
    struct control_server *s = arg;
    struct pollfd fds[CONNECTIONS_MAX + 2];
    struct connection *of[CONNECTIONS_MAX + 2];
    uint64_t told_ns = env_now_ns(s->host->env);
    int timeout_ms;
    nfds_t n;
    while ((n = watch_list(s, fds, of, &timeout_ms)) > 0) {
        int ready = poll(fds, n, timeout_ms);
        uint64_t count;
        if (ready > 0 && (fds[0].revents & POLLIN) != 0 && read(s->wake_fd, &count, sizeof(count)) < 0)
            count = 0;
        for (nfds_t i = 2; ready > 0 && i < n; i++)
            if ((fds[i].revents & (POLLHUP | POLLERR)) != 0)
                atomic_store(&of[i]->cancelled, true);
        connections_collect(s);
        if (ready > 0 && (fds[1].revents & POLLIN) != 0)
            accept_one(s);
        uint64_t now_ns = env_now_ns(s->host->env);
        if (now_ns - told_ns >= UINT64_C(1000000) * WATCH_MS) {
            told_ns = now_ns;
            alive_all(s);
        }
    }
}

/* ---- the server ---- */

static int server_open(struct control_server *s, const char *pool_path, struct error *err)
{
    struct stat st;
    int r = control_address_of(pool_path, &s->address, err);
    if (r < 0)
        return r;
    s->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->end_fd < 0 || s->wake_fd < 0)
        return error_set(err, -errno, "eventfd: %s", strerror(errno));
    s->listen_fd = control_address_listen(&s->address, err);
    if (s->listen_fd < 0)
        return s->listen_fd;
    if (lstat(s->address.path, &st) == 0) {
        s->socket_device = st.st_dev;
        s->socket_inode = st.st_ino;
    }
    return 0;
}

static void server_release(struct control_server *s)
{
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    if (s->end_fd >= 0)
        close(s->end_fd);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    env_cond_destroy(&s->none_left);
    env_mutex_destroy(&s->mutex);
    free(s);
}

static void socket_remove(struct control_server *s)
{
    struct stat st;
    if (lstat(s->address.path, &st) == 0 && st.st_dev == s->socket_device && st.st_ino == s->socket_inode)
        (void)unlink(s->address.path);
}

int control_server_start(const struct control_host *host, const char *pool_path, struct control_server **ret_server,
                         struct error *err)
{
    struct control_server *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(err, -ENOMEM, "no memory for the control server");
    s->host = host;
    s->listen_fd = s->end_fd = s->wake_fd = -1;
    list_init(&s->connections);
    list_init(&s->stoppers);
    env_mutex_init(&s->mutex, host->env);
    env_cond_init(&s->none_left, host->env);
    int r = server_open(s, pool_path, err);
    if (r == 0) {
        r = env_thread_start(host->env, "control-watch", watch_run, s, &s->watch);
        if (r < 0) {
            socket_remove(s);
            error_set(err, r, "no thread for the control server: %s", strerror(-r));
        }
    }
    if (r < 0) {
        server_release(s);
        return r;
    }
    *ret_server = s;
    return 0;
}

const char *control_server_path(const struct control_server *s)
{
    return s->address.path;
}

static void event_post(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n; /* the counter cannot be full */
}

static void server_set_state(struct control_server *s, enum server_state state)
{
    env_mutex_lock(&s->mutex);
    s->state = state;
    for (struct list *at = s->connections.next; at != &s->connections; at = at->next)
        atomic_store(&connection_of(at)->cancelled, true);
    env_mutex_unlock(&s->mutex);
    event_post(s->wake_fd);
}

void control_server_end(struct control_server *s)
{
    server_set_state(s, ENDING);
    event_post(s->end_fd);
    socket_remove(s);
    env_mutex_lock(&s->mutex);
    while (!list_empty(&s->connections))
        env_cond_wait(&s->none_left, &s->mutex);
    env_mutex_unlock(&s->mutex);
}

void control_server_free(struct control_server *s, const struct error *err)
{
    if (s == NULL)
        return;
    server_set_state(s, DONE);
    env_thread_join(s->watch);
    while (!list_empty(&s->stoppers)) {
        struct connection *c = connection_of(s->stoppers.next);
        json_t *result = json_pack("{s:b, s:s}", "stopped", 1, "pool", s->host->path);
        connection_send(c, err != NULL && err->code < 0 ? control_reply_error(err) : control_reply_result(result),
                        SEND_MS);
        json_decref(result);
        list_remove(&c->link);
        c->channel.fd = -1; /* stays open until the process ends: the client waits for that */
        connection_free(c);
    }
    server_release(s);
}
