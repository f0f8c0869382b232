/*
 * Writes and reads by turns, as a client must: the server stops reading from one who does not read.
 */
#include "nbd_session.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "env/env.h"
#include "front/nbd/server.h"
#include "memory_exports.h"

#define PATIENCE_MS 10000

/* One for the whole program: a fuzzer calls one function, and making a server takes longer than a session. */
static struct {
    struct nbd_server *server;
    struct memory_exports *memory;
} shared;

static void end_server(void)
{
    nbd_server_free(shared.server);
    memory_exports_free(shared.memory);
}

static struct nbd_server *the_server(void)
{
    if (shared.server == NULL) {
        struct memory_options memory = {0};
        struct nbd_server_options options = {0};
        shared.memory = memory_exports_new(env_os(), &memory);
        memory_exports_add(shared.memory, SESSION_EXPORT, SESSION_EXPORT_BYTES, false);
        int ret = nbd_server_new(env_os(), &options, memory_export_ops(), shared.memory, &shared.server, NULL);
        if (ret == 0)
            ret = nbd_server_start(shared.server, NULL);
        CHECK_EQ(ret, 0);
        ret = atexit(end_server);
        CHECK_EQ(ret, 0);
    }
    return shared.server;
}

/* Reads what is there. false: the connection has ended. */
static bool take_answer(int fd, uint8_t **answer, size_t *length, size_t *room)
{
    for (;;) {
        if (*room - *length < 65536) {
            *room = 2 * *room + 65536;
            *answer = realloc(*answer, *room);
            CHECK(*answer != NULL);
        }
        ssize_t got = recv(fd, *answer + *length, *room - *length, MSG_DONTWAIT);
        if (got > 0)
            *length += (size_t)got;
        else if (got < 0 && errno == EINTR)
            continue;
        else
            return got < 0 && errno == EAGAIN;
    }
}

uint8_t *nbd_session(const uint8_t *bytes, size_t n, size_t *ret_bytes)
{
    int pair[2];
    uint8_t *answer = NULL;
    size_t room = 0, sent = 0;
    *ret_bytes = 0;
    int ret = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    CHECK_EQ(ret, 0);
    ret = nbd_server_adopt(the_server(), pair[1], NULL);
    CHECK_EQ(ret, 0);
    bool open = true, sending = true;
    while (open) {
        if (sending && sent == n) {
            sending = false;
            (void)shutdown(pair[0], SHUT_WR);
        }
        struct pollfd p = {.fd = pair[0], .events = (short)(POLLIN | (sending ? POLLOUT : 0))};
        ret = poll(&p, 1, PATIENCE_MS);
        if (ret < 0 && errno == EINTR) /* libFuzzer has a timer */
            continue;
        CHECK_EQ(ret, 1); /* the server hangs */
        if (sending && (p.revents & POLLOUT) != 0) {
            ssize_t now = send(pair[0], bytes + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (now > 0)
                sent += (size_t)now;
            else if (now < 0 && errno != EAGAIN && errno != EINTR)
                sending = false;
        }
        if ((p.revents & ~POLLOUT) != 0)
            open = take_answer(pair[0], &answer, ret_bytes, &room);
    }
    close(pair[0]);
    return answer;
}
