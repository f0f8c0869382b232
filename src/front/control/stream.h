/*
 * The other side of import and export: a regular file, a block device, or a stream (pipe, socket, terminal), given as
 * an open descriptor.
 *
 * A stream may keep its reader or writer waiting for ever, so all waiting looks at whether the caller gave up. To be
 * able to do so without touching the flags of a descriptor that others share, a pipe is opened anew
 * through /proc, and a socket is asked not to wait call by call.
 */
#ifndef ASHLAR_FRONT_CONTROL_STREAM_H
#define ASHLAR_FRONT_CONTROL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

enum stream_kind {
    STREAM_FILE,  /* regular, positions are free */
    STREAM_BLOCK, /* block device, positions are free, size is fixed */
    STREAM_PIPE,  /* in order only */
};

struct stream {
    enum stream_kind kind;
    int fd;
    bool owned;                     /* fd is ours to close */
    bool is_socket;                 /* read and written without waiting, whatever its own mode */
    uint64_t start;                 /* position in the file that counts as 0 */
    uint64_t size_bytes;            /* from start to the end; PIPE: 0 */
    int (*keep_waiting)(void *arg); /* nonzero ends waiting with -ECANCELED */
    void *arg;
};

/* fd stays the caller's and must outlive the stream. -EBADF: it is not open for that; others with text. */
int stream_open(struct stream *s, int fd, bool for_writing, int (*keep_waiting)(void *arg), void *arg,
                struct error *err);
void stream_close(struct stream *s);

/* Reads n bytes, fewer only at the end. Returns how many, or negative errno. PIPE ignores offset. */
int64_t stream_read(struct stream *s, uint64_t offset, void *ret_bytes, size_t n);
/* Writes all of n bytes. PIPE ignores offset. */
int stream_write(struct stream *s, uint64_t offset, const void *bytes, size_t n);

/* The data (not hole) that begins at or after offset, as [*ret_start, *ret_end); both size_bytes if there is none. FILE
 * and BLOCK. */
int stream_next_data(struct stream *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_end);
/* Makes a range of a FILE or BLOCK read as zeroes; a FILE beyond its end needs nothing. */
int stream_zero(struct stream *s, uint64_t offset, uint64_t n);
/* FILE: sets the length. */
int stream_set_size(struct stream *s, uint64_t size_bytes);
/* Durable when it returns 0. PIPE: nothing to do. */
int stream_sync(struct stream *s);

#endif
