/*
 * Who sends: the thread that completed the request, directly, when the loop is not at work on the connection and no
 * other thread is sending; so a client with one request under way costs no hand-over on the way back. While the loop
 * works on a connection it is corked, and all replies that arise meanwhile go out in one call at the end. While a
 * thread is sending, others only add to the queue, and it looks again before it leaves.
 *
 * Nobody waits for the peer: calls do not block, and when the socket is full the loop waits for it. A thread sends at
 * most ROUNDS_MAX times in a row and then leaves the rest to the loop, so that one busy connection does not keep a
 * worker. Descriptors that are no sockets (pipes, files) are written by the loop only: there is no flag for one call
 * that keeps a write to them from blocking or raising SIGPIPE, but in the loop's thread signals are blocked, and the
 * descriptor was put into non-blocking mode.
 *
 * Replies are retired (memory freed) without the lock. The reply holds a reference to the connection through its
 * command, so after the last retire the connection may be gone.
 */
#include "front/nbd/sender.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "front/nbd/buffer.h"
#include "front/nbd/connection.h"
#include "front/nbd/server_impl.h"

#define IOVECS_MAX 128
#define CALL_BYTES_MAX (2 * MIB)
#define ROUNDS_MAX 8

struct gathered {
    struct iovec iov[IOVECS_MAX];
    int count;
    uint64_t bytes;
};

void nbd_sender_init(struct nbd_sender *s, struct env *env)
{
    env_mutex_init(&s->lock, env);
    list_init(&s->replies);
}

void nbd_sender_fini(struct nbd_sender *s)
{
    CHECK(list_empty(&s->replies));
    CHECK_EQ(s->command_count, 0);
    env_mutex_destroy(&s->lock);
}

static uint64_t reply_bytes(const struct nbd_reply *reply)
{
    return (uint64_t)reply->head_bytes + reply->text_bytes + reply->tail_bytes + reply->data_bytes;
}

void nbd_sender_put_locked(struct nbd_connection *c, struct nbd_reply *reply)
{
    list_append(&c->sender.replies, &reply->link);
    c->sender.unsent_bytes += reply_bytes(reply);
}

static void gather(struct gathered *g, const void *bytes, size_t n, uint64_t *skip)
{
    if (*skip >= n) {
        *skip -= n;
        return;
    }
    if (g->count == IOVECS_MAX || g->bytes >= CALL_BYTES_MAX)
        return;
    /* iovec has no const; sendmsg and writev only read. */
    g->iov[g->count].iov_base = (uint8_t *)(uintptr_t)bytes + *skip;
    g->iov[g->count].iov_len = n - *skip;
    g->bytes += n - *skip;
    g->count++;
    *skip = 0;
}

static void gather_locked(struct nbd_sender *s, struct gathered *g)
{
    uint64_t skip = s->head_sent;
    g->count = 0;
    g->bytes = 0;
    for (struct list *at = s->replies.next; at != &s->replies; at = at->next) {
        if (g->count == IOVECS_MAX || g->bytes >= CALL_BYTES_MAX)
            return;
        const struct nbd_reply *reply = CONTAINER_OF(at, struct nbd_reply, link);
        gather(g, reply->head, reply->head_bytes, &skip);
        gather(g, reply->text, reply->text_bytes, &skip);
        gather(g, reply->tail, reply->tail_bytes, &skip);
        for (unsigned i = 0; reply->data_bytes > 0 && i < reply->data->count; i++)
            gather(g, reply->data->pieces[i].iov_base, reply->data->pieces[i].iov_len, &skip);
    }
}

static void retire_first_locked(struct nbd_sender *s, struct list *ret_done)
{
    struct nbd_reply *reply = CONTAINER_OF(s->replies.next, struct nbd_reply, link);
    list_remove(&reply->link);
    if (reply->ends_command)
        s->command_count--;
    s->progressed = true;
    list_append(ret_done, &reply->link);
}

static void advance_locked(struct nbd_sender *s, uint64_t n, struct list *ret_done)
{
    CHECK_LE(n, s->unsent_bytes);
    s->unsent_bytes -= n;
    s->sent_bytes += n;
    s->head_sent += n;
    while (!list_empty(&s->replies)) {
        uint64_t bytes = reply_bytes(CONTAINER_OF(s->replies.next, struct nbd_reply, link));
        if (s->head_sent < bytes)
            return;
        s->head_sent -= bytes;
        retire_first_locked(s, ret_done);
    }
    CHECK_EQ(s->head_sent, 0);
}

static void drop_all_locked(struct nbd_sender *s, struct list *ret_done)
{
    while (!list_empty(&s->replies))
        retire_first_locked(s, ret_done);
    s->head_sent = 0;
    s->unsent_bytes = 0;
}

static ssize_t write_out(struct nbd_connection *c, struct gathered *g, bool in_loop)
{
    nbd_count(&c->server->counters.send_calls, 1);
    if (!in_loop)
        nbd_count(&c->server->counters.direct_sends, 1);
    struct msghdr message = {.msg_iov = g->iov, .msg_iovlen = (size_t)g->count};
    ssize_t n =
        c->socket ? sendmsg(c->out_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) : writev(c->out_fd, g->iov, g->count);
    if (n > 0)
        nbd_count(&c->server->counters.sent_bytes, (uint64_t)n);
    return n;
}

/* One send call; the lock is released meanwhile. */
static void send_once_locked(struct nbd_connection *c, bool in_loop, struct list *ret_done)
{
    struct nbd_sender *s = &c->sender;
    struct gathered g;
    gather_locked(s, &g);
    env_mutex_unlock(&s->lock);
    ssize_t n = write_out(c, &g, in_loop);
    int error = n < 0 ? errno : 0;
    env_mutex_lock(&s->lock);
    if (s->broken || error == EINTR)
        return;
    if (n >= 0) {
        advance_locked(s, (uint64_t)n, ret_done);
        s->blocked = (uint64_t)n < g.bytes;
    } else if (error == EAGAIN) {
        s->blocked = true;
    } else {
        s->broken = true;
    }
}

static void retire_all(struct list *done)
{
    while (!list_empty(done)) {
        struct nbd_reply *reply = CONTAINER_OF(done->next, struct nbd_reply, link);
        list_remove(&reply->link);
        free(reply->text);
        reply->text = NULL;
        reply->retire(reply);
    }
}

void nbd_sender_send_and_unlock(struct nbd_connection *c, bool in_loop)
{
    struct nbd_sender *s = &c->sender;
    struct list done;
    list_init(&done);
    bool was_blocked = s->blocked;
    bool turn = !s->sending && !(s->corked && !s->broken) && (in_loop || c->socket || s->broken);
    if (turn) {
        s->sending = true;
        for (int i = 0; i < ROUNDS_MAX && !list_empty(&s->replies) && !s->blocked && !s->broken; i++)
            send_once_locked(c, in_loop, &done);
        if (s->broken)
            drop_all_locked(s, &done);
        s->sending = false;
        if (s->close_after_send) {
            s->close_after_send = false;
            close(c->out_fd);
        }
    }
    /* The loop looks for itself after every call of its own; others tell it what it has to do. */
    bool left = !list_empty(&s->replies) && !s->sending && !s->corked && !(was_blocked && s->blocked);
    bool done_something = s->notify && !list_empty(&done);
    bool post = !in_loop && !s->close_after_send && (left || done_something || (turn && s->broken));
    if (post)
        nbd_connection_get(c); /* whoever holds a reference now may drop it as soon as the lock is free */
    env_mutex_unlock(&s->lock);
    if (post) {
        nbd_connection_post(c);
        nbd_connection_put(c);
    }
    retire_all(&done);
}

void nbd_sender_put(struct nbd_connection *c, struct nbd_reply *reply)
{
    env_mutex_lock(&c->sender.lock);
    nbd_sender_put_locked(c, reply);
    nbd_sender_send_and_unlock(c, false);
}

void nbd_sender_cork(struct nbd_connection *c)
{
    env_mutex_lock(&c->sender.lock);
    c->sender.corked = true;
    env_mutex_unlock(&c->sender.lock);
}

void nbd_sender_uncork(struct nbd_connection *c)
{
    env_mutex_lock(&c->sender.lock);
    c->sender.corked = false;
    nbd_sender_send_and_unlock(c, true);
}

void nbd_sender_unblock(struct nbd_connection *c)
{
    env_mutex_lock(&c->sender.lock);
    c->sender.blocked = false;
    env_mutex_unlock(&c->sender.lock);
}

void nbd_sender_close(struct nbd_connection *c)
{
    struct nbd_sender *s = &c->sender;
    env_mutex_lock(&s->lock);
    s->broken = true;
    s->corked = false;
    s->notify = false;
    if (s->sending) {
        if (c->owned)
            s->close_after_send = true;
    } else if (c->owned) {
        close(c->out_fd);
    }
    nbd_sender_send_and_unlock(c, true);
}
