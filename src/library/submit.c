/*
 * Submitted I/O: each call becomes one request of the pool's engine queue and completes from one of its threads, or
 * from the submitting one if nothing has to be waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/tree.h"
#include "library/library.h"
#include "pool/pool.h"

static void io_complete(struct request *request)
{
    struct call *call = CONTAINER_OF(request, struct call, request);
    int r = request->result;
    if (r < 0) {
        library_io_error(call->volume, request->kind, request->offset_bytes, request->length_bytes, r, &call->error);
    } else if (request->kind == REQUEST_EXTENTS) {
        for (size_t i = 0; i < request->extent_count; i++)
            call->ret_extents[i] = (struct ashlar_extent){.length_bytes = request->extents[i].length_bytes,
                                                          .kind = request->extents[i].kind};
        *call->ret_extent_count = request->extent_count;
    }
    library_call_finish(call);
}

/* A call with its request filled but for what the kind needs beside; NULL and *ret_code otherwise. */
static struct call *io_new(struct ashlar_queue *q, struct ashlar_volume *v, enum request_kind kind, unsigned flags,
                           unsigned allowed, uint64_t offset_bytes, uint64_t length_bytes, void *user, int *ret_code)
{
    if (library_check_io(v, "submit", flags, allowed, NULL) < 0) {
        *ret_code = -EINVAL;
        return NULL;
    }
    struct call *call = library_call_new(q, user, ret_code);
    if (call == NULL)
        return NULL;
    call->request.kind = kind;
    call->request.flags = flags;
    call->request.volume = v->volume;
    call->request.offset_bytes = offset_bytes;
    call->request.length_bytes = length_bytes;
    call->request.complete = io_complete;
    call->iov = call->inline_iov;
    library_call_hold(call, v, v->pool);
    return call;
}

static int io_submit(struct call *call)
{
    struct queue *engine_queue;
    int r = library_engine_queue(call->pool, &engine_queue);
    if (r < 0) {
        library_call_cancel(call);
        return r;
    }
    queue_submit(engine_queue, &call->request);
    return 0;
}

static int submit_transfer(struct ashlar_queue *q, struct ashlar_volume *v, enum request_kind kind,
                           const struct iovec *iov, int iov_count, uint64_t offset_bytes, unsigned flags, void *user)
{
    uint64_t length_bytes;
    int r = library_iov_length(iov, iov_count, &length_bytes, NULL);
    if (r < 0)
        return r;
    unsigned allowed = kind == REQUEST_WRITE ? ASHLAR_FUA : 0;
    struct call *call = io_new(q, v, kind, flags, allowed, offset_bytes, length_bytes, user, &r);
    if (call == NULL)
        return r;
    if ((size_t)iov_count > sizeof(call->inline_iov) / sizeof(call->inline_iov[0])) {
        call->iov = calloc((size_t)iov_count, sizeof(*iov));
        if (call->iov == NULL) {
            library_call_cancel(call);
            return -ENOMEM;
        }
    }
    if (iov_count > 0)
        memcpy(call->iov, iov, (size_t)iov_count * sizeof(*iov));
    call->request.iov = call->iov;
    call->request.iov_count = iov_count;
    return io_submit(call);
}

int ashlar_submit_readv(struct ashlar_queue *q, struct ashlar_volume *v, const struct iovec *iov, int iov_count,
                        uint64_t offset_bytes, unsigned flags, void *user)
{
    return submit_transfer(q, v, REQUEST_READ, iov, iov_count, offset_bytes, flags, user);
}

int ashlar_submit_writev(struct ashlar_queue *q, struct ashlar_volume *v, const struct iovec *iov, int iov_count,
                         uint64_t offset_bytes, unsigned flags, void *user)
{
    return submit_transfer(q, v, REQUEST_WRITE, iov, iov_count, offset_bytes, flags, user);
}

int ashlar_submit_read(struct ashlar_queue *q, struct ashlar_volume *v, void *ret_buffer, size_t length_bytes,
                       uint64_t offset_bytes, unsigned flags, void *user)
{
    struct iovec iov = {ret_buffer, length_bytes};
    return submit_transfer(q, v, REQUEST_READ, &iov, 1, offset_bytes, flags, user);
}

int ashlar_submit_write(struct ashlar_queue *q, struct ashlar_volume *v, const void *buffer, size_t length_bytes,
                        uint64_t offset_bytes, unsigned flags, void *user)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = buffer};
    struct iovec iov = {pointer.out, length_bytes};
    return submit_transfer(q, v, REQUEST_WRITE, &iov, 1, offset_bytes, flags, user);
}

static int submit_plain(struct ashlar_queue *q, struct ashlar_volume *v, enum request_kind kind, uint64_t length_bytes,
                        uint64_t offset_bytes, unsigned flags, unsigned allowed, void *user)
{
    int r;
    struct call *call = io_new(q, v, kind, flags, allowed, offset_bytes, length_bytes, user, &r);
    return call != NULL ? io_submit(call) : r;
}

int ashlar_submit_flush(struct ashlar_queue *q, struct ashlar_volume *v, unsigned flags, void *user)
{
    return submit_plain(q, v, REQUEST_FLUSH, 0, 0, flags, 0, user);
}

int ashlar_submit_trim(struct ashlar_queue *q, struct ashlar_volume *v, uint64_t length_bytes, uint64_t offset_bytes,
                       unsigned flags, void *user)
{
    return submit_plain(q, v, REQUEST_TRIM, length_bytes, offset_bytes, flags, ASHLAR_FUA, user);
}

int ashlar_submit_zero(struct ashlar_queue *q, struct ashlar_volume *v, uint64_t length_bytes, uint64_t offset_bytes,
                       unsigned flags, void *user)
{
    return submit_plain(q, v, REQUEST_ZERO, length_bytes, offset_bytes, flags, ASHLAR_FUA | ASHLAR_PROVISION, user);
}

int ashlar_submit_extents(struct ashlar_queue *q, struct ashlar_volume *v, uint64_t length_bytes, uint64_t offset_bytes,
                          unsigned flags, struct ashlar_extent *ret_extents, size_t room, size_t *ret_count, void *user)
{
    int r;
    if (ret_extents == NULL || ret_count == NULL || room == 0 || room > LIBRARY_EXTENTS_MAX)
        return -EINVAL;
    struct call *call = io_new(q, v, REQUEST_EXTENTS, flags, 0, offset_bytes, length_bytes, user, &r);
    if (call == NULL)
        return r;
    call->ret_extents = ret_extents;
    call->ret_extent_count = ret_count;
    call->request.extents = calloc(room, sizeof(struct extent));
    call->request.extent_room = room;
    if (call->request.extents == NULL) {
        library_call_cancel(call);
        return -ENOMEM;
    }
    return io_submit(call);
}
