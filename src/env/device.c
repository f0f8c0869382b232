/*
 * What all devices share: the checks before an operation reaches one, the counters and the sticky failure after it.
 *
 * A call whose elements may all run goes to the implementation as it is. If one is refused (device failed, opened
 * read-only, range past the end), the call goes element by element, so that what follows a refused element by
 * after_previous is cancelled exactly as behind one that failed in the device.
 */
#include "env/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "env/device_impl.h"

static bool aligned(uint64_t n)
{
    return n % DEVICE_ALIGN_BYTES == 0;
}

static void io_check(const struct device_io *io)
{
    CHECK(aligned(io->offset_bytes));
    CHECK(aligned(io->length_bytes));
    if (io->kind == DEVICE_FLUSH) {
        CHECK_EQ(io->offset_bytes, 0);
        CHECK_EQ(io->length_bytes, 0);
        return;
    }
    CHECK_GT(io->length_bytes, 0);
    if (io->kind != DEVICE_READ && io->kind != DEVICE_WRITE)
        return;
    CHECK_GE(io->iov_count, 1);
    uint64_t sum = 0;
    for (int i = 0; i < io->iov_count; i++) {
        CHECK(aligned((uintptr_t)io->iov[i].iov_base));
        CHECK(aligned(io->iov[i].iov_len));
        sum += io->iov[i].iov_len;
    }
    CHECK_EQ(sum, io->length_bytes);
}

/* Safe against a resize in another thread. */
static uint64_t device_size(const struct device *dev)
{
    return __atomic_load_n(&dev->info.size_bytes, __ATOMIC_RELAXED);
}

/* 0, or why this element may not reach the device. */
static int io_refusal(const struct device *dev, const struct device_io *io)
{
    if (io->kind != DEVICE_READ) {
        if (atomic_load_explicit(&dev->failed, memory_order_acquire))
            return -EIO;
        if (dev->info.is_read_only)
            return -EROFS;
    }
    if (io->kind != DEVICE_FLUSH && !range_inside(io->offset_bytes, io->length_bytes, device_size(dev)))
        return -EIO;
    return 0;
}

/*
 * Errors of writes and flushes are the device's for good, whatever their number: nobody knows what reached it.
 * Punching and allocating may be unsupported, allocating may find no space; other errors of these are the device's too.
 * A refused or cancelled element says nothing new.
 */
static bool io_failed_device(const struct device_io *io)
{
    if (io->result == 0 || io->result == -ECANCELED || io->result == -EROFS)
        return false;
    switch (io->kind) {
    case DEVICE_READ:
        return false;
    case DEVICE_PUNCH:
        return io->result != -EOPNOTSUPP;
    case DEVICE_ALLOCATE:
        return io->result != -EOPNOTSUPP && io->result != -ENOSPC && io->result != -EDQUOT;
    case DEVICE_WRITE:
    case DEVICE_FLUSH:
        break;
    }
    return true;
}

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void io_count(struct device_stats *stats, const struct device_io *io)
{
    switch (io->kind) {
    case DEVICE_READ:
        add(&stats->reads, 1);
        add(&stats->read_bytes, io->length_bytes);
        break;
    case DEVICE_WRITE:
        add(&stats->writes, 1);
        add(&stats->write_bytes, io->length_bytes);
        break;
    case DEVICE_FLUSH:
        add(&stats->flushes, 1);
        break;
    case DEVICE_PUNCH:
        add(&stats->punches, 1);
        add(&stats->punch_bytes, io->length_bytes);
        break;
    case DEVICE_ALLOCATE:
        add(&stats->allocates, 1);
        break;
    }
}

static void run_one_by_one(struct device *dev, struct device_io *ios, size_t count)
{
    bool failed_before = false;
    for (size_t i = 0; i < count; i++) {
        struct device_io *io = &ios[i];
        if (io->after_previous && failed_before) {
            io->result = -ECANCELED;
            continue;
        }
        io->result = io_refusal(dev, io);
        if (io->result == 0) {
            struct device_io alone = *io;
            alone.after_previous = false;
            dev->ops->run(dev, &alone, 1);
            io->result = alone.result;
        }
        if (io_failed_device(io))
            device_set_failed(dev);
        failed_before |= io->result != 0;
    }
}

int device_run(struct device *dev, struct device_io *ios, size_t count)
{
    CHECK_GE(count, 1);
    bool refused = false;
    for (size_t i = 0; i < count; i++) {
        io_check(&ios[i]);
        ios[i].result = 0;
        refused |= io_refusal(dev, &ios[i]) != 0;
    }
    if (refused)
        run_one_by_one(dev, ios, count);
    else
        dev->ops->run(dev, ios, count);

    int first_error = 0;
    for (size_t i = 0; i < count; i++) {
        const struct device_io *io = &ios[i];
        if (io->result == 0) {
            io_count(&dev->stats, io);
            continue;
        }
        CHECK_LT((int64_t)io->result, 0);
        if (io_failed_device(io))
            device_set_failed(dev);
        if (first_error == 0)
            first_error = io->result;
    }
    return first_error;
}

void device_set_failed(struct device *dev)
{
    atomic_store_explicit(&dev->failed, true, memory_order_release);
}

int device_read(struct device *dev, uint64_t offset_bytes, void *ret_buf, size_t length_bytes)
{
    struct iovec iov = {.iov_base = ret_buf, .iov_len = length_bytes};
    struct device_io io = {
        .kind = DEVICE_READ, .offset_bytes = offset_bytes, .length_bytes = length_bytes, .iov = &iov, .iov_count = 1};
    return device_run(dev, &io, 1);
}

int device_write(struct device *dev, uint64_t offset_bytes, const void *buf, size_t length_bytes)
{
    /* An iovec has no const; a write does not touch the buffer. */
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = length_bytes};
    struct device_io io = {
        .kind = DEVICE_WRITE, .offset_bytes = offset_bytes, .length_bytes = length_bytes, .iov = &iov, .iov_count = 1};
    return device_run(dev, &io, 1);
}

int device_flush(struct device *dev)
{
    struct device_io io = {.kind = DEVICE_FLUSH};
    return device_run(dev, &io, 1);
}

int device_resize(struct device *dev, uint64_t size_bytes)
{
    CHECK(aligned(size_bytes));
    if (atomic_load_explicit(&dev->failed, memory_order_acquire))
        return -EIO;
    if (dev->info.is_read_only)
        return -EROFS;
    int ret = dev->ops->resize(dev, size_bytes);
    if (ret == 0)
        __atomic_store_n(&dev->info.size_bytes, size_bytes, __ATOMIC_RELAXED);
    return ret;
}

uint64_t device_allocated_bytes(struct device *dev)
{
    return dev->ops->allocated_bytes(dev);
}

void device_close(struct device *dev)
{
    if (dev != NULL)
        dev->ops->close(dev);
}

void *device_buffer_new(size_t length_bytes)
{
    if (length_bytes > SIZE_MAX - DEVICE_ALIGN_BYTES)
        return NULL;
    size_t rounded = (size_t)round_up(max_u64(length_bytes, 1), DEVICE_ALIGN_BYTES);
    void *buffer = aligned_alloc(DEVICE_ALIGN_BYTES, rounded);
    if (buffer != NULL)
        memset(buffer, 0, rounded);
    return buffer;
}

void device_buffer_free(void *buffer)
{
    free(buffer);
}
