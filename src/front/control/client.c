/*
 * Asking a server, without trusting it to answer: every wait has an end.
 *
 * Who listens on the socket is checked too: in a directory that others can write to, anybody could have put one there.
 * It must run as this user, as root, or as the owner of the pool.
 */
#include "front/control/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "env/env.h"
#include "front/control/address.h"
#include "front/control/channel.h"
#include "front/control/message.h"

enum { TICK_MS = 200, SEND_MS = 10000 };

struct control_client {
    struct channel channel;
    struct control_address address;
    pid_t server_pid;
};

static int check_peer(struct control_client *client, struct error *err)
{
    struct stat st;
    uid_t uid;
    int r = control_peer_of(client->channel.fd, &client->server_pid, &uid);
    if (r < 0)
        return error_set(err, r, "control socket '%s': %s", client->address.path, strerror(-r));
    if (uid == 0 || uid == geteuid() || (stat(client->address.pool, &st) == 0 && uid == st.st_uid))
        return 0;
    return error_set(err, -EPERM, "control socket '%s' belongs to user %u, who does not own the pool: not used",
                     client->address.path, (unsigned)uid);
}

int control_client_open(const char *pool_path, struct control_client **ret_client, struct error *err)
{
    struct control_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return error_set(err, -ENOMEM, "no memory");
    int r = control_address_of(pool_path, &client->address, err);
    if (r == 0)
        r = control_address_connect(&client->address, err);
    if (r < 0) {
        free(client);
        return r;
    }
    channel_init(&client->channel, r, -1, CONTROL_REPLY_BYTES_MAX);
    r = check_peer(client, err);
    if (r < 0) {
        control_client_close(client);
        return r;
    }
    *ret_client = client;
    return 0;
}

void control_client_close(struct control_client *client)
{
    if (client == NULL)
        return;
    channel_close(&client->channel);
    free(client);
}

pid_t control_client_server_pid(const struct control_client *client)
{
    return client->server_pid;
}

/* What a failed exchange means to the user. */
static int exchange_error(struct control_client *client, int code, unsigned timeout_seconds, struct error *err)
{
    const char *pool = client->address.pool;
    int pid = (int)client->server_pid;
    switch (code) {
    case -ETIMEDOUT:
    case -EAGAIN:
        return error_set(err, -ETIMEDOUT,
                         "the server of '%s' (process %d) has not answered for %u seconds; if it hangs: kill -9 %d",
                         pool, pid, timeout_seconds, pid);
    case -ENODATA:
    case -EPROTO:
    case -EPIPE:
    case -ECONNRESET:
        return error_set(err, -ECONNRESET, "the server of '%s' (process %d) went away without an answer", pool, pid);
    case -ECANCELED:
        return error_set(err, code, "given up");
    default:
        return error_set(err, code, "talking to the server of '%s' (process %d): %s", pool, pid, strerror(-code));
    }
}

struct waiting {
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t done, total;
    uint64_t heard_ns; /* when the server said something last */
    uint64_t patience_ns;
};

static int client_send(struct control_client *client, const char *verb, const json_t *arguments, int fd)
{
    char *message = control_request_encode(verb, arguments);
    int r = message != NULL ? channel_send(&client->channel, message, strlen(message), fd, SEND_MS) : -ENOMEM;
    free(message);
    return r;
}

/* Tells that the user still wants it; or not, and then hanging up says so. */
static int client_confirm(struct control_client *client, struct waiting *w)
{
    if (w->progress != NULL && w->progress(w->arg, w->done, w->total) != 0)
        return -ECANCELED;
    return client_send(client, "go", NULL, -1);
}

/* Waits for one line, in ticks. */
static int receive_line(struct control_client *client, struct waiting *w, char **ret_line, size_t *ret_bytes)
{
    for (;;) {
        int r = channel_receive(&client->channel, TICK_MS, ret_line, ret_bytes);
        uint64_t now_ns = env_now_ns(env_os());
        if (r == 0)
            w->heard_ns = now_ns;
        if (r != -ETIMEDOUT)
            return r;
        if (w->progress != NULL && w->progress(w->arg, w->done, w->total) != 0)
            return -ECANCELED;
        if (now_ns - w->heard_ns > w->patience_ns)
            return -ETIMEDOUT;
    }
}

int control_client_call(struct control_client *client, const char *verb, const json_t *arguments, int fd,
                        unsigned timeout_seconds, int (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                        json_t **ret_result, struct error *err)
{
    struct waiting w = {.progress = progress,
                        .arg = arg,
                        .heard_ns = env_now_ns(env_os()),
                        .patience_ns = UINT64_C(1000000000) * timeout_seconds};
    int r = client_send(client, verb, arguments, fd);
    /* A server that refuses may hang up before it read everything; what it said is still to be read. */
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        return exchange_error(client, r, SEND_MS / 1000, err);
    for (;;) {
        char *line;
        size_t n;
        struct control_reply reply;
        r = receive_line(client, &w, &line, &n);
        if (r < 0)
            return exchange_error(client, r, timeout_seconds, err);
        struct error said = {0};
        r = control_reply_decode(line, n, &reply, &said);
        if (r < 0 || reply.kind == CONTROL_ERROR)
            return error_set(err, said.code, "%s", said.text);
        if (reply.kind == CONTROL_RESULT) {
            *ret_result = reply.result;
            return 0;
        }
        if (reply.kind == CONTROL_PROGRESS) {
            w.done = reply.done;
            w.total = reply.total;
            if (progress != NULL && progress(arg, w.done, w.total) != 0)
                r = -ECANCELED;
        } else if (reply.kind == CONTROL_CONFIRM) {
            r = client_confirm(client, &w);
        }
        if (r < 0)
            return exchange_error(client, r, timeout_seconds, err);
    }
}

int control_client_wait_gone(struct control_client *client, unsigned timeout_seconds)
{
    char *line;
    size_t n;
    int timeout_ms = (int)timeout_seconds * 1000;
    /* Its end of the connection closes with the process. */
    int r = channel_receive(&client->channel, timeout_ms, &line, &n);
    if (r == -ETIMEDOUT)
        return r;
    int pidfd = (int)syscall(SYS_pidfd_open, client->server_pid, 0);
    if (pidfd < 0)
        return 0; /* gone, or a kernel without pidfds: the connection is enough */
    struct pollfd fd = {.fd = pidfd, .events = POLLIN};
    int ready = poll(&fd, 1, timeout_ms);
    close(pidfd);
    return ready > 0 ? 0 : -ETIMEDOUT;
}
