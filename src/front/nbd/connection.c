/*
 * The life of a connection.
 *
 * Two halves. The receiving half (phase, handshake, transmission, stash) belongs to the loop thread. The sending half
 * (sender.c) has a lock, because replies come from any thread. What ties them: commands under way, counted by the
 * sender, each of which holds a reference.
 *
 * Turns. Whatever happens to a connection (bytes, room to send, memory, an errand done, a reply sent that was waited
 * for) only posts its task; the task does one bounded step: what waited is tried again, then one receive call is made
 * and its bytes are consumed, then all replies that arose are sent in one call. If there is more to do it posts itself
 * again, behind everybody else's.
 *
 * A request that is alone may be carried out by the loop's thread after the turn: lone.c.
 *
 * Descriptors are watched edge-triggered for input; `readable` remembers. Output is watched only while the socket is
 * full: otherwise each byte that the peer takes would wake the loop. A short read means that the socket is drained, but
 * not if the peer has hung up, because that is told once, maybe before the data were read.
 *
 * End of input: the peer may have closed its half only, as a script at a pipe does, and still wants its answers; so
 * what is under way is finished. Only if the socket says that both halves are closed is nobody there to answer.
 *
 * Phases: handshake -> transmission -> ending -> closed, or closed from any. References: one of the loop until closed,
 * one a command, one an errand, one a posted task. The last one sends the connection to the errand thread, which closes
 * the export (that may block) and frees.
 */
#include "front/nbd/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/tree.h"
#include "front/nbd/handshake.h"
#include "front/nbd/peer.h"
#include "front/nbd/server_impl.h"

#define ENDING_NS UINT64_C(10000000000) /* without any progress while ending: closed */
#define DIRECT_IOVECS 8

/* ---- references ---- */

static void destroy(struct nbd_errand *errand)
{
    struct nbd_connection *c = CONTAINER_OF(errand, struct nbd_connection, last_errand);
    struct nbd_server *server = c->server;
    if (c->export != NULL)
        server->ops->close(c->export);
    nbd_handshake_free(c->handshake);
    nbd_sender_fini(&c->sender);
    free(c->stash);
    if (c->ended != NULL)
        c->ended(c->ended_arg);
    free(c);
    env_mutex_lock(&server->lock);
    server->alive_count--;
    env_cond_broadcast(&server->changed);
    env_mutex_unlock(&server->lock);
}

void nbd_connection_get(struct nbd_connection *c)
{
    atomic_fetch_add_explicit(&c->references, 1, memory_order_relaxed);
}

void nbd_connection_put(struct nbd_connection *c)
{
    /* Release: what this thread did to the connection is seen by the one that destroys it (acquire). */
    if (atomic_fetch_sub_explicit(&c->references, 1, memory_order_acq_rel) == 1)
        nbd_errands_post(c->server->errands, &c->last_errand);
}

void nbd_connection_post(struct nbd_connection *c)
{
    nbd_connection_get(c);
    if (!nbd_loop_post(c->server->loop, &c->task))
        nbd_connection_put(c);
}

/* ---- receiving ---- */

static size_t consume(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    size_t at = 0;
    for (;;) {
        enum nbd_phase phase = c->phase;
        if (phase == NBD_PHASE_HANDSHAKE)
            at += nbd_handshake_consume(c, bytes + at, n - at);
        else if (phase == NBD_PHASE_TRANSMISSION)
            at += nbd_transmission_consume(c, bytes + at, n - at);
        else
            return n;
        if (c->phase == phase)
            return at;
    }
}

static bool wants_bytes(struct nbd_connection *c)
{
    if (c->phase == NBD_PHASE_HANDSHAKE)
        return nbd_handshake_wants_bytes(c);
    return c->phase == NBD_PHASE_TRANSMISSION && nbd_transmission_wants_bytes(c);
}

/* Keeps what was received but not taken. */
static void keep(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    c->stash = malloc(n);
    if (c->stash == NULL) {
        nbd_connection_close(c);
        return;
    }
    memcpy(c->stash, bytes, n);
    c->stash_bytes = n;
    c->stash_taken = 0;
}

/* Goes on with what waited. */
static void resume(struct nbd_connection *c)
{
    static const uint8_t none;
    if (c->stash == NULL) {
        (void)consume(c, &none, 0);
        return;
    }
    c->stash_taken += consume(c, c->stash + c->stash_taken, c->stash_bytes - c->stash_taken);
    if (c->stash_taken == c->stash_bytes) {
        free(c->stash);
        c->stash = NULL;
    }
}

static ssize_t read_in(struct nbd_connection *c, struct iovec *iov, int count)
{
    nbd_count(&c->server->counters.receive_calls, 1);
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    ssize_t n = c->socket ? recvmsg(c->in_fd, &message, MSG_DONTWAIT) : readv(c->in_fd, iov, count);
    return n < 0 ? -errno : n;
}

static void end_of_input(struct nbd_connection *c, ssize_t result)
{
    c->readable = false;
    if (result == -EAGAIN)
        return;
    if (result == -EINTR) {
        c->readable = true;
        return;
    }
    c->always_readable = false;
    if (result == 0 && c->phase == NBD_PHASE_TRANSMISSION && !c->gone)
        nbd_connection_end(c);
    else
        nbd_connection_close(c);
}

/* One receive call. */
static void receive(struct nbd_connection *c)
{
    struct iovec iov[DIRECT_IOVECS + 1];
    size_t direct = 0, beyond = NBD_SCRATCH_BYTES;
    int count = 0;
    if (c->phase == NBD_PHASE_TRANSMISSION) {
        count = nbd_transmission_room(c, iov, DIRECT_IOVECS, &direct, &beyond);
        if (!wants_bytes(c))
            return;
    }
    uint8_t *scratch = c->server->scratch;
    if (beyond > 0)
        iov[count++] = (struct iovec){scratch, beyond};
    ssize_t result = read_in(c, iov, count);
    if (result <= 0) {
        end_of_input(c, result);
        return;
    }
    size_t n = (size_t)result;
    c->received_bytes += n;
    nbd_count(&c->server->counters.received_bytes, n);
    c->readable = c->always_readable || c->hung_up || n == direct + beyond;
    size_t directly = n < direct ? n : direct;
    if (directly > 0)
        nbd_transmission_received(c, directly);
    size_t taken = consume(c, scratch, n - directly);
    if (taken < n - directly)
        keep(c, scratch + taken, n - directly - taken);
}

/* ---- the turn ---- */

static void watch_output(struct nbd_connection *c, bool watch)
{
    if (watch == c->output_watched)
        return;
    c->output_watched = watch;
    if (c->in_fd == c->out_fd && c->in_added) {
        uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLET;
        nbd_loop_change(c->server->loop, &c->in_watch, watch ? events | EPOLLOUT : events);
    } else if (!c->out_added) {
        int ret = nbd_loop_watch(c->server->loop, &c->out_watch, EPOLLOUT | EPOLLET);
        c->out_added = ret == 0;
        if (ret < 0)
            nbd_connection_close(c);
    } else {
        nbd_loop_change(c->server->loop, &c->out_watch, watch ? EPOLLOUT | EPOLLET : 0);
    }
}

/* After replies were sent: what the state of the sender asks for. Returns whether to take another turn. */
static bool settle(struct nbd_connection *c)
{
    struct nbd_sender *s = &c->sender;
    env_mutex_lock(&s->lock);
    bool broken = s->broken, blocked = s->blocked;
    bool left = !list_empty(&s->replies) && !blocked && !s->sending;
    bool again = left || (s->notify && s->progressed);
    bool idle = s->command_count == 0 && list_empty(&s->replies);
    s->progressed = false;
    bool draining = c->server->draining && c->phase == NBD_PHASE_TRANSMISSION;
    if (c->phase == NBD_PHASE_ENDING || draining)
        s->notify = true;
    env_mutex_unlock(&s->lock);
    bool quiet = !c->readable && c->stash == NULL && c->transmission.command == NULL && c->transmission.failed == NULL;
    if (broken || (idle && (c->phase == NBD_PHASE_ENDING || (draining && quiet)))) {
        nbd_connection_close(c);
        return false;
    }
    if (c->server->draining && c->phase == NBD_PHASE_HANDSHAKE && idle && quiet && nbd_handshake_wants_bytes(c)) {
        nbd_connection_close(c);
        return false;
    }
    watch_output(c, blocked);
    return again || (c->readable && c->stash == NULL && wants_bytes(c));
}

static void take_turn(struct nbd_connection *c)
{
    nbd_sender_cork(c);
    resume(c);
    if (c->stash == NULL && c->readable && wants_bytes(c))
        receive(c);
    bool again = false;
    if (c->phase != NBD_PHASE_CLOSED) {
        nbd_sender_uncork(c);
        again = settle(c) && c->phase != NBD_PHASE_CLOSED;
        if (again)
            nbd_connection_post(c);
    }
    bool quiet = c->phase == NBD_PHASE_TRANSMISSION && !again && !c->readable && c->stash == NULL;
    nbd_lone_settle(c, quiet);
}

static void run(struct nbd_task *task)
{
    struct nbd_connection *c = CONTAINER_OF(task, struct nbd_connection, task);
    if (c->phase != NBD_PHASE_CLOSED)
        take_turn(c);
    nbd_connection_put(c);
}

static void in_ready(struct nbd_watch *watch, uint32_t events)
{
    struct nbd_connection *c = CONTAINER_OF(watch, struct nbd_connection, in_watch);
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
        c->readable = true;
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
        c->hung_up = true;
    if (c->socket && (events & EPOLLHUP) != 0)
        c->gone = true;
    if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0)
        nbd_sender_unblock(c);
    nbd_connection_post(c);
}

static void out_ready(struct nbd_watch *watch, uint32_t events)
{
    struct nbd_connection *c = CONTAINER_OF(watch, struct nbd_connection, out_watch);
    (void)events;
    nbd_sender_unblock(c);
    nbd_connection_post(c);
}

static void share_granted(struct nbd_share *share)
{
    nbd_connection_post(CONTAINER_OF(share, struct nbd_connection, share));
}

static void timer_fired(struct nbd_timer *timer)
{
    struct nbd_connection *c = CONTAINER_OF(timer, struct nbd_connection, timer);
    struct nbd_server *server = c->server;
    if (c->phase == NBD_PHASE_HANDSHAKE) {
        nbd_count(&server->counters.dropped_handshakes, 1);
        nbd_server_notice(server, "NBD %s: no handshake within %llu s, connection closed", c->peer,
                          (unsigned long long)(server->options.handshake_timeout_ns / 1000000000));
        nbd_connection_close(c);
        return;
    }
    uint64_t moved = nbd_connection_moved_bytes(c);
    env_mutex_lock(&c->sender.lock);
    bool stuck = !list_empty(&c->sender.replies) && moved == c->moved_at_timer;
    env_mutex_unlock(&c->sender.lock);
    c->moved_at_timer = moved;
    if (stuck)
        nbd_connection_close(c);
    else
        nbd_loop_set_timer(server->loop, &c->timer, nbd_loop_now_ns(server->loop) + ENDING_NS);
}

/* ---- beginning and end ---- */

/* No delays, and a dead peer is noticed within two minutes, whether it owes us bytes or we it. Unix sockets refuse all
 * of this and need none of it. */
static void set_up_tcp(int fd)
{
    static const struct {
        int level, option, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 10},
                   {IPPROTO_TCP, TCP_KEEPCNT, 6},   {IPPROTO_TCP, TCP_USER_TIMEOUT, 120000}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        (void)setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof options[i].value);
}

static int set_up_descriptors(struct nbd_connection *c, struct error *err)
{
    if (c->socket) {
        set_up_tcp(c->in_fd);
    } else {
        c->in_mode = fcntl(c->in_fd, F_GETFL);
        c->out_mode = fcntl(c->out_fd, F_GETFL);
        if (c->in_mode < 0 || c->out_mode < 0 || fcntl(c->in_fd, F_SETFL, c->in_mode | O_NONBLOCK) < 0 ||
            fcntl(c->out_fd, F_SETFL, c->out_mode | O_NONBLOCK) < 0)
            return error_set(err, -errno, "NBD: cannot use the descriptors %d and %d: %s", c->in_fd, c->out_fd,
                             strerror(errno));
    }
    int ret = nbd_loop_watch(c->server->loop, &c->in_watch, EPOLLIN | EPOLLRDHUP | EPOLLET);
    if (ret == -EPERM) /* a regular file is always ready */
        c->always_readable = c->readable = true;
    else if (ret < 0)
        return error_set(err, ret, "NBD: cannot wait for descriptor %d: %s", c->in_fd, strerror(-ret));
    else
        c->in_added = true;
    return 0;
}

static struct nbd_connection *allocate(struct nbd_server *server, int in_fd, int out_fd, bool socket, bool owned)
{
    struct nbd_connection *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->server = server;
    c->in_fd = in_fd;
    c->out_fd = out_fd;
    c->socket = socket;
    c->owned = owned;
    atomic_init(&c->references, 1);
    nbd_sender_init(&c->sender, server->env);
    nbd_lone_init(&c->lone);
    c->task.run = run;
    c->timer.fire = timer_fired;
    c->in_watch = (struct nbd_watch){.ready = in_ready, .fd = in_fd};
    c->out_watch = (struct nbd_watch){.ready = out_ready, .fd = out_fd};
    c->share.wake = share_granted;
    c->last_errand.run = destroy;
    c->handshake = nbd_handshake_new(c);
    if (c->handshake == NULL) {
        nbd_sender_fini(&c->sender);
        free(c);
        return NULL;
    }
    return c;
}

int nbd_connection_new(struct nbd_server *server, int in_fd, int out_fd, bool socket, bool owned,
                       void (*ended)(void *arg), void *ended_arg, struct error *err)
{
    struct nbd_connection *c = allocate(server, in_fd, out_fd, socket, owned);
    int ret = c == NULL ? error_set(err, -ENOMEM, "no memory for an NBD connection") : set_up_descriptors(c, err);
    if (ret < 0) {
        if (c != NULL) {
            nbd_handshake_free(c->handshake);
            nbd_sender_fini(&c->sender);
            free(c);
        }
        if (owned)
            close(in_fd);
        return ret;
    }
    peer_name(in_fd, socket, c->peer, sizeof c->peer);
    c->ended = ended;
    c->ended_arg = ended_arg;
    list_append(&server->connections, &c->link);
    list_append(&server->handshakes, &c->handshake_link);
    env_mutex_lock(&server->lock);
    server->handshake_count++;
    server->alive_count++;
    env_mutex_unlock(&server->lock);
    nbd_count(&server->counters.accepted, 1);
    nbd_loop_set_timer(server->loop, &c->timer, nbd_loop_now_ns(server->loop) + server->options.handshake_timeout_ns);
    nbd_connection_post(c);
    nbd_handshake_begin(c);
    return 0;
}

static void leave_handshakes(struct nbd_connection *c)
{
    list_remove(&c->handshake_link);
    env_mutex_lock(&c->server->lock);
    c->server->handshake_count--;
    env_mutex_unlock(&c->server->lock);
}

bool nbd_connection_count_negotiated(struct nbd_connection *c)
{
    struct nbd_server *server = c->server;
    env_mutex_lock(&server->lock);
    c->counted = server->negotiated_count < server->options.max_connections;
    if (c->counted)
        server->negotiated_count++;
    env_mutex_unlock(&server->lock);
    if (!c->counted)
        nbd_count(&server->counters.refused_full, 1);
    return c->counted;
}

void nbd_connection_negotiated(struct nbd_connection *c)
{
    if (c->phase != NBD_PHASE_HANDSHAKE)
        return;
    nbd_count(&c->server->counters.negotiated, 1);
    leave_handshakes(c);
    nbd_loop_stop_timer(&c->timer);
    c->phase = NBD_PHASE_TRANSMISSION;
    c->connected_ns = nbd_loop_now_ns(c->server->loop);
    nbd_handshake_free(c->handshake);
    c->handshake = NULL;
}

void nbd_connection_end(struct nbd_connection *c)
{
    if (c->phase >= NBD_PHASE_ENDING)
        return;
    if (c->phase == NBD_PHASE_HANDSHAKE)
        leave_handshakes(c);
    c->phase = NBD_PHASE_ENDING;
    c->readable = false;
    nbd_transmission_abandon(c);
    env_mutex_lock(&c->sender.lock);
    c->sender.notify = true;
    env_mutex_unlock(&c->sender.lock);
    c->moved_at_timer = UINT64_MAX;
    nbd_loop_set_timer(c->server->loop, &c->timer, nbd_loop_now_ns(c->server->loop) + ENDING_NS);
}

static void restore_modes(struct nbd_connection *c)
{
    if (c->socket)
        return;
    /* Nothing can be done about a failure; the mode was only the caller's convenience. */
    (void)fcntl(c->in_fd, F_SETFL, c->in_mode);
    (void)fcntl(c->out_fd, F_SETFL, c->out_mode);
}

void nbd_connection_close(struct nbd_connection *c)
{
    if (c->phase == NBD_PHASE_CLOSED)
        return;
    struct nbd_server *server = c->server;
    if (c->phase == NBD_PHASE_HANDSHAKE)
        leave_handshakes(c);
    c->phase = NBD_PHASE_CLOSED;
    nbd_loop_stop_timer(&c->timer);
    nbd_transmission_abandon(c);
    if (c->in_added)
        nbd_loop_unwatch(server->loop, &c->in_watch);
    if (c->out_added)
        nbd_loop_unwatch(server->loop, &c->out_watch);
    list_remove(&c->link);
    if (c->counted) {
        env_mutex_lock(&server->lock);
        server->negotiated_count--;
        env_mutex_unlock(&server->lock);
    }
    restore_modes(c);
    nbd_sender_close(c);
    nbd_server_connection_closed(server);
    nbd_connection_put(c);
}

void nbd_connection_violation(struct nbd_connection *c, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    nbd_count(&c->server->counters.dropped_violations, 1);
    nbd_server_notice(c->server, "NBD %s: %s, connection closed", c->peer, text);
    nbd_sender_uncork(c); /* what was answered before is sent, if it can be sent at once */
    nbd_connection_close(c);
}

void nbd_connection_waits_for_memory(struct nbd_connection *c)
{
    nbd_server_watch_stalls(c->server);
}

uint64_t nbd_connection_moved_bytes(struct nbd_connection *c)
{
    env_mutex_lock(&c->sender.lock);
    uint64_t sent = c->sender.sent_bytes;
    env_mutex_unlock(&c->sender.lock);
    return sent + c->received_bytes;
}
