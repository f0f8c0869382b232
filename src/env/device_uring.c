/*
 * The io_uring device: what is independent inside a call goes to the kernel at once; the rest is the plain device.
 *
 * A call is cut into phases, a new one at each after_previous. A phase of a single element is done by plain system
 * calls in the calling thread; one with several reads or writes is submitted to a ring with one system call.
 *
 * Why not everything by the ring: a flush always goes through a kernel worker thread there, and the wake-ups cost more
 * than the system call saved. Measured (2 cores, virtio disk, ext4, O_DIRECT, Linux 6.18, microseconds):
 *
 *     4 KiB write, then flush    two system calls 83-97 | linked pair in one submission 114-146
 *                                | ring write, call flush 88-110
 *     8 reads of 4 KiB           one by one 390-450     | one submission 130-142
 *     8 writes of 128 KiB        one by one 540-600     | one submission 284-339
 *
 * Through the page cache the ring loses everywhere (8 writes 30 against 70), so without O_DIRECT there is no ring.
 *
 * Rings: a thread takes one for the length of a phase, from a list of idle ones, or makes one; at RINGS_MAX it waits
 * for one to come back. The lock is held only for taking and giving back. A ring whose submission failed half-way is
 * thrown away, and what it did not take is done by system calls.
 */
#include <errno.h>
#include <limits.h>
#include <liburing.h>
#include <stdlib.h>

#include "base/check.h"
#include "env/device_impl.h"

#define RINGS_MAX 32
#define RING_ENTRIES 64

struct ring {
    struct ring *next; /* idle: guarded by device_rings.lock */
    struct io_uring uring;
};

struct device_rings {
    struct env_mutex lock;
    struct env_cond returned;
    struct ring *idle; /* guarded by lock */
    unsigned count;    /* idle and taken; guarded by lock */
};

static struct ring *ring_new(void)
{
    struct ring *ring = calloc(1, sizeof *ring);
    if (ring != NULL && io_uring_queue_init(RING_ENTRIES, &ring->uring, 0) < 0) {
        free(ring);
        return NULL;
    }
    return ring;
}

static void ring_free(struct ring *ring)
{
    io_uring_queue_exit(&ring->uring);
    free(ring);
}

/* NULL if there is none and none can be made. */
static struct ring *ring_take(struct device_rings *rings)
{
    struct ring *ring = NULL;
    env_mutex_lock(&rings->lock);
    for (;;) {
        ring = rings->idle;
        if (ring != NULL) {
            rings->idle = ring->next;
            break;
        }
        if (rings->count < RINGS_MAX && (ring = ring_new()) != NULL) {
            rings->count++;
            break;
        }
        if (rings->count == 0)
            break;
        env_cond_wait(&rings->returned, &rings->lock);
    }
    env_mutex_unlock(&rings->lock);
    return ring;
}

static void ring_give_back(struct device_rings *rings, struct ring *ring, bool usable)
{
    if (!usable)
        ring_free(ring);
    env_mutex_lock(&rings->lock);
    if (usable) {
        ring->next = rings->idle;
        rings->idle = ring;
    } else {
        rings->count--;
    }
    env_cond_signal(&rings->returned);
    env_mutex_unlock(&rings->lock);
}

/* What the ring said of a transfer; the rest of a short one is done here. */
static int transfer_finish(struct device_file *file, const struct device_io *io, int said)
{
    if (said == -EINTR || said == -EAGAIN)
        said = 0;
    if (said < 0)
        return said;
    return (uint64_t)said == io->length_bytes ? 0 : device_file_transfer(file, io, (uint64_t)said);
}

static void reap_one(struct device_file *file, struct ring *ring)
{
    struct io_uring_cqe *cqe;
    int ret;
    do {
        ret = io_uring_wait_cqe(&ring->uring, &cqe);
    } while (ret == -EINTR || ret == -EAGAIN);
    /* The kernel may be writing into the caller's buffers: there is no way out of here but through. */
    CHECK_EQ((int64_t)ret, 0);
    struct device_io *io = io_uring_cqe_get_data(cqe);
    int said = cqe->res;
    io_uring_cqe_seen(&ring->uring, cqe);
    io->result = transfer_finish(file, io, said);
}

/* One batch in flight. */
struct batch {
    struct device_io *ios[RING_ENTRIES];
    unsigned count, submitted, reaped;
};

static void batch_prepare(struct device_file *file, struct ring *ring, const struct batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++) {
        struct device_io *io = batch->ios[i];
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
        CHECK(sqe != NULL);
        if (io->kind == DEVICE_READ)
            io_uring_prep_readv(sqe, file->fd, io->iov, (unsigned)io->iov_count, io->offset_bytes);
        else
            io_uring_prep_writev(sqe, file->fd, io->iov, (unsigned)io->iov_count, io->offset_bytes);
        io_uring_sqe_set_data(sqe, io);
    }
}

/* Submits, and waits for all where it can in the same system call. True if the ring took every element. */
static bool batch_submit(struct device_file *file, struct ring *ring, struct batch *batch)
{
    while (batch->submitted < batch->count) {
        int ret = io_uring_submit_and_wait(&ring->uring, batch->count - batch->reaped);
        if (ret > 0) {
            batch->submitted += (unsigned)ret;
        } else if ((ret == -EAGAIN || ret == -EBUSY) && batch->reaped < batch->submitted) {
            reap_one(file, ring);
            batch->reaped++;
        } else if (ret != -EINTR) {
            return false;
        }
    }
    return true;
}

static void batch_run(struct device_file *file, struct batch *batch)
{
    struct ring *ring = batch->count > 1 ? ring_take(file->rings) : NULL;
    if (ring != NULL) {
        batch_prepare(file, ring, batch);
        bool usable = batch_submit(file, ring, batch);
        for (; batch->reaped < batch->submitted; batch->reaped++)
            reap_one(file, ring);
        ring_give_back(file->rings, ring, usable);
    }
    for (unsigned i = batch->submitted; i < batch->count; i++)
        batch->ios[i]->result = device_file_run_one(file, batch->ios[i]);
    *batch = (struct batch){.count = 0};
}

static bool fits_ring(const struct device_io *io)
{
    return (io->kind == DEVICE_READ || io->kind == DEVICE_WRITE) && io->iov_count <= IOV_MAX;
}

static void phase_run(struct device_file *file, struct device_io *ios, size_t count)
{
    struct batch batch = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        if (count > 1 && fits_ring(&ios[i]))
            batch.ios[batch.count++] = &ios[i];
        else
            ios[i].result = device_file_run_one(file, &ios[i]);
        if (batch.count == RING_ENTRIES)
            batch_run(file, &batch);
    }
    if (batch.count > 0)
        batch_run(file, &batch);
}

static void uring_run(struct device *dev, struct device_io *ios, size_t count)
{
    struct device_file *file = device_file_of(dev);
    bool failed_before = false;
    for (size_t start = 0, end; start < count; start = end) {
        end = start + 1;
        while (end < count && !ios[end].after_previous)
            end++;
        size_t run_from = start;
        if (ios[start].after_previous && failed_before) {
            ios[start].result = -ECANCELED;
            run_from++;
        }
        phase_run(file, ios + run_from, end - run_from);
        for (size_t i = start; i < end; i++)
            failed_before |= ios[i].result != 0;
    }
}

static void uring_close(struct device *dev)
{
    struct device_file *file = device_file_of(dev);
    struct device_rings *rings = file->rings;
    while (rings->idle != NULL) {
        struct ring *ring = rings->idle;
        rings->idle = ring->next;
        ring_free(ring);
        rings->count--;
    }
    CHECK_EQ(rings->count, 0);
    env_cond_destroy(&rings->returned);
    env_mutex_destroy(&rings->lock);
    free(rings);
    device_file_fini(file);
    free(file);
}

static const struct device_ops device_uring_ops = {
    .run = uring_run,
    .resize = device_file_resize,
    .allocated_bytes = device_file_allocated_bytes,
    .close = uring_close,
};

bool device_uring_begin(struct device_file *file)
{
    struct device_rings *rings = calloc(1, sizeof *rings);
    if (rings == NULL)
        return false;
    rings->idle = ring_new();
    if (rings->idle == NULL) {
        free(rings);
        return false;
    }
    rings->count = 1;
    env_mutex_init(&rings->lock, file->base.env);
    env_cond_init(&rings->returned, file->base.env);
    file->rings = rings;
    file->base.ops = &device_uring_ops;
    file->base.info.engine = "io_uring";
    return true;
}
