/*
 * Lines over a socket, with bounds on length and on silence. Descriptors that come unasked for are closed at once: at
 * most one is kept.
 */
#include "front/control/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/math.h"

enum { FDS_MAX = 4, ROOM_BYTES_MIN = 4096 };

void channel_init(struct channel *c, int fd, int cancel_fd, size_t line_bytes_max)
{
    *c = (struct channel){.fd = fd, .cancel_fd = cancel_fd, .received_fd = -1, .line_bytes_max = line_bytes_max};
}

void channel_close(struct channel *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->received_fd >= 0)
        close(c->received_fd);
    free(c->bytes);
    c->fd = c->received_fd = -1;
    c->bytes = NULL;
    c->start = c->end = c->capacity = 0;
}

/* 0 when fd is ready for events. */
static int channel_wait(struct channel *c, short events, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = c->fd, .events = events}, {.fd = c->cancel_fd, .events = POLLIN}};
    for (;;) {
        int n = poll(fds, 2, timeout_ms);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ETIMEDOUT;
        return (fds[1].revents & POLLIN) != 0 ? -ECANCELED : 0;
    }
}

int channel_send(struct channel *c, const char *bytes, size_t n, int fd_to_send, int timeout_ms)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    union {
        const char *in;
        char *out; /* struct iovec has no const */
    } pointer = {.in = bytes};
    struct iovec iov = {pointer.out, n};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_to_send >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd_to_send, sizeof(int));
    }
    while (iov.iov_len > 0) {
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            iov.iov_base = (char *)iov.iov_base + sent;
            iov.iov_len -= (size_t)sent;
            message.msg_control = NULL; /* it went with the first byte */
            message.msg_controllen = 0;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        int r = timeout_ms == 0 ? -ETIMEDOUT : channel_wait(c, POLLOUT, timeout_ms);
        if (r == -ETIMEDOUT && iov.iov_len == n)
            return -EAGAIN;
        if (r < 0)
            return r;
    }
    return 0;
}

static void fds_take(struct channel *c, struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (c->received_fd < 0) {
                c->received_fd = fd;
            } else {
                c->too_many_fds = true;
                close(fd);
            }
        }
    }
    if ((message->msg_flags & MSG_CTRUNC) != 0)
        c->too_many_fds = true;
}

/* Room for more bytes behind end; false if a line would be too long, or there is no memory. */
static int room_make(struct channel *c)
{
    if (c->start > 0) {
        memmove(c->bytes, c->bytes + c->start, c->end - c->start);
        c->end -= c->start;
        c->start = 0;
    }
    if (c->end > c->line_bytes_max)
        return -EPROTO;
    if (c->capacity - c->end >= ROOM_BYTES_MIN)
        return 0;
    size_t capacity = max_u64(2 * c->capacity, 2 * ROOM_BYTES_MIN);
    char *bytes = realloc(c->bytes, capacity);
    if (bytes == NULL)
        return -ENOMEM;
    c->bytes = bytes;
    c->capacity = capacity;
    return 0;
}

/* Receives what is there; 0 if nothing was. */
static ssize_t receive_some(struct channel *c)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov = {c->bytes + c->end, c->capacity - c->end};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(c->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    fds_take(c, &message);
    if (n == 0)
        return c->end > c->start ? -EPROTO : -ENODATA;
    c->end += (size_t)n;
    return n;
}

int channel_receive(struct channel *c, int timeout_ms, char **ret_line, size_t *ret_bytes)
{
    size_t searched = c->start;
    for (;;) {
        char *newline = c->end > searched ? memchr(c->bytes + searched, '\n', c->end - searched) : NULL;
        if (newline != NULL) {
            *newline = '\0';
            *ret_line = c->bytes + c->start;
            *ret_bytes = (size_t)(newline - *ret_line);
            c->start += *ret_bytes + 1;
            return *ret_bytes <= c->line_bytes_max ? 0 : -EPROTO;
        }
        size_t unsearched = c->end - c->start;
        int r = room_make(c);
        searched = c->start + unsearched;
        if (r == 0)
            r = channel_wait(c, POLLIN, timeout_ms);
        if (r < 0)
            return r;
        ssize_t n = receive_some(c);
        if (n < 0)
            return (int)n;
    }
}

int channel_take_fd(struct channel *c)
{
    int fd = c->received_fd;
    c->received_fd = -1;
    return fd;
}
