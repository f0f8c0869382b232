/*
 * Files, block devices and pipes behind one set of calls.
 */
#include "front/control/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/math.h"

enum { WAIT_MS = 200, ZERO_CHUNK_BYTES = 65536 };

static int check_mode(int fd, bool for_writing, struct error *err)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return error_set(err, -errno, "the descriptor that came: %s", strerror(errno));
    int mode = flags & O_ACCMODE;
    if (mode != O_RDWR && mode != (for_writing ? O_WRONLY : O_RDONLY))
        return error_set(err, -EBADF, "the file is not open for %s", for_writing ? "writing" : "reading");
    return 0;
}

/* A pipe with an open file description of its own, non-blocking; the one given where that is not to be had. */
static void pipe_reopen(struct stream *s, bool for_writing)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
    int fd = open(path, (for_writing ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0) {
        s->fd = fd;
        s->owned = true;
    }
}

int stream_open(struct stream *s, int fd, bool for_writing, int (*keep_waiting)(void *arg), void *arg,
                struct error *err)
{
    struct stat st;
    *s = (struct stream){.fd = fd, .keep_waiting = keep_waiting, .arg = arg};
    if (fd < 0)
        return error_set(err, -EBADF, "no file came with the request");
    int r = check_mode(fd, for_writing, err);
    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0)
        return error_set(err, -errno, "fstat: %s", strerror(errno));
    bool append = (fcntl(fd, F_GETFL) & O_APPEND) != 0;
    if (S_ISDIR(st.st_mode))
        return error_set(err, -EISDIR, "it is a directory");
    if ((S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) && !(for_writing && append)) {
        off_t start = lseek(fd, 0, SEEK_CUR);
        off_t end = S_ISREG(st.st_mode) ? st.st_size : lseek(fd, 0, SEEK_END);
        if (start < 0 || end < 0)
            return error_set(err, -errno, "lseek: %s", strerror(errno));
        s->kind = S_ISREG(st.st_mode) ? STREAM_FILE : STREAM_BLOCK;
        if (s->kind == STREAM_BLOCK && lseek(fd, start, SEEK_SET) < 0)
            return error_set(err, -errno, "lseek: %s", strerror(errno));
        s->start = (uint64_t)start;
        s->size_bytes = end > start ? (uint64_t)(end - start) : 0;
        return 0;
    }
    s->kind = STREAM_PIPE;
    s->is_socket = S_ISSOCK(st.st_mode);
    if (!S_ISREG(st.st_mode) && !s->is_socket)
        pipe_reopen(s, for_writing);
    return 0;
}

void stream_close(struct stream *s)
{
    if (s->owned)
        close(s->fd);
    s->owned = false;
}

static int pipe_wait(struct stream *s, short events)
{
    for (;;) {
        struct pollfd fd = {.fd = s->fd, .events = events};
        int n = poll(&fd, 1, WAIT_MS);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (s->keep_waiting != NULL && s->keep_waiting(s->arg) != 0)
            return -ECANCELED;
    }
}

static ssize_t read_some(struct stream *s, uint64_t offset, void *ret_bytes, size_t n)
{
    if (s->is_socket)
        return recv(s->fd, ret_bytes, n, MSG_DONTWAIT);
    return s->kind == STREAM_PIPE ? read(s->fd, ret_bytes, n) : pread(s->fd, ret_bytes, n, (off_t)(s->start + offset));
}

static ssize_t write_some(struct stream *s, uint64_t offset, const void *bytes, size_t n)
{
    if (s->is_socket)
        return send(s->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return s->kind == STREAM_PIPE ? write(s->fd, bytes, n) : pwrite(s->fd, bytes, n, (off_t)(s->start + offset));
}

int64_t stream_read(struct stream *s, uint64_t offset, void *ret_bytes, size_t n)
{
    size_t got = 0;
    while (got < n) {
        char *at = (char *)ret_bytes + got;
        int r = s->kind == STREAM_PIPE ? pipe_wait(s, POLLIN) : 0;
        if (r < 0)
            return r;
        ssize_t now = read_some(s, offset + got, at, n - got);
        if (now == 0)
            break;
        if (now > 0)
            got += (size_t)now;
        else if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    return (int64_t)got;
}

int stream_write(struct stream *s, uint64_t offset, const void *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        const char *at = (const char *)bytes + done;
        int r = s->kind == STREAM_PIPE ? pipe_wait(s, POLLOUT) : 0;
        if (r < 0)
            return r;
        ssize_t now = write_some(s, offset + done, at, n - done);
        if (now >= 0)
            done += (size_t)now;
        else if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    return 0;
}

int stream_next_data(struct stream *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_end)
{
    *ret_start = offset;
    *ret_end = s->size_bytes;
    if (s->kind != STREAM_FILE || offset >= s->size_bytes)
        return 0;
    off_t data = lseek(s->fd, (off_t)(s->start + offset), SEEK_DATA);
    if (data < 0 && errno == ENXIO) {
        *ret_start = s->size_bytes;
        return 0;
    }
    if (data < 0) /* a file system without holes: all of it is data */
        return errno == EINVAL || errno == EOPNOTSUPP ? 0 : -errno;
    off_t hole = lseek(s->fd, data, SEEK_HOLE);
    if (hole < 0)
        return -errno;
    *ret_start = min_u64((uint64_t)data - s->start, s->size_bytes);
    *ret_end = min_u64((uint64_t)hole - s->start, s->size_bytes);
    return 0;
}

int stream_zero(struct stream *s, uint64_t offset, uint64_t n)
{
    static const char zeroes[ZERO_CHUNK_BYTES];
    if (s->kind == STREAM_FILE && offset >= s->size_bytes)
        return 0;
    if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(s->start + offset), (off_t)n) == 0)
        return 0;
    for (uint64_t done = 0; done < n;) {
        size_t now = min_u64(n - done, ZERO_CHUNK_BYTES);
        int r = stream_write(s, offset + done, zeroes, now);
        if (r < 0)
            return r;
        if (s->keep_waiting != NULL && s->keep_waiting(s->arg) != 0)
            return -ECANCELED;
        done += now;
    }
    return 0;
}

int stream_set_size(struct stream *s, uint64_t size_bytes)
{
    if (s->kind != STREAM_FILE)
        return 0;
    return ftruncate(s->fd, (off_t)(s->start + size_bytes)) < 0 ? -errno : 0;
}

int stream_sync(struct stream *s)
{
    if (s->kind == STREAM_PIPE)
        return 0;
    return fsync(s->fd) < 0 ? -errno : 0;
}
