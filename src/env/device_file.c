/*
 * Operations on a device with a file descriptor, one at a time in the calling thread, by plain system calls. The plain
 * device is made of nothing else; the io_uring device falls back to them for whatever is rare: the rest of a short
 * transfer, very long vectors, punching and allocating.
 *
 * EINTR and short transfers end here. Nothing else is ever tried again.
 */
#include "env/device_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/math.h"

/* Pieces of a vector given to one system call once a transfer came back short. */
#define SLICE_PIECES 64

struct device_file *device_file_of(struct device *dev)
{
    return (struct device_file *)dev;
}

/* The part of the vector behind its first skip_bytes bytes, at most SLICE_PIECES pieces of it. */
static int iov_slice(const struct iovec *iov, int iov_count, uint64_t skip_bytes, struct iovec *ret_pieces)
{
    int pieces = 0;
    for (int i = 0; i < iov_count && pieces < SLICE_PIECES; i++) {
        if (skip_bytes >= iov[i].iov_len) {
            skip_bytes -= iov[i].iov_len;
            continue;
        }
        ret_pieces[pieces].iov_base = (uint8_t *)iov[i].iov_base + skip_bytes;
        ret_pieces[pieces].iov_len = iov[i].iov_len - (size_t)skip_bytes;
        skip_bytes = 0;
        pieces++;
    }
    return pieces;
}

int device_file_transfer(struct device_file *file, const struct device_io *io, uint64_t done_bytes)
{
    struct iovec pieces[SLICE_PIECES];
    while (done_bytes < io->length_bytes) {
        const struct iovec *iov = io->iov;
        int iov_count = io->iov_count;
        if (done_bytes > 0 || iov_count > IOV_MAX) {
            iov_count = iov_slice(io->iov, io->iov_count, done_bytes, pieces);
            iov = pieces;
        }
        off_t at = (off_t)(io->offset_bytes + done_bytes);
        ssize_t n =
            io->kind == DEVICE_READ ? preadv(file->fd, iov, iov_count, at) : pwritev(file->fd, iov, iov_count, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO; /* the file ends before the size it had when it was opened */
        done_bytes += (uint64_t)n;
    }
    return 0;
}

static int fdatasync_whole(int fd)
{
    int ret;
    do {
        ret = fdatasync(fd);
    } while (ret < 0 && errno == EINTR);
    return ret < 0 ? -errno : 0;
}

/* Done when a flush that began after the call has ended, whoever ran it. See struct device_file. */
static int flush_shared(struct device_file *file)
{
    struct device *dev = &file->base;
    int ret = 0;
    env_mutex_lock(&file->flush_lock);
    uint64_t mine = file->flushes_begun + 1;
    while (file->flushes_ended < mine && !atomic_load_explicit(&dev->failed, memory_order_acquire)) {
        if (file->flushes_begun > file->flushes_ended) {
            env_cond_wait(&file->flush_ended, &file->flush_lock);
            continue;
        }
        file->flushes_begun++;
        env_mutex_unlock(&file->flush_lock);
        ret = fdatasync_whole(file->fd);
        env_mutex_lock(&file->flush_lock);
        if (ret < 0)
            device_set_failed(dev);
        file->flushes_ended++;
        env_cond_broadcast(&file->flush_ended);
    }
    if (ret == 0 && atomic_load_explicit(&dev->failed, memory_order_acquire))
        ret = -EIO;
    env_mutex_unlock(&file->flush_lock);
    return ret;
}

static int file_flush(struct device_file *file)
{
    return file->base.info.is_direct ? fdatasync_whole(file->fd) : flush_shared(file);
}

static int fallocate_whole(int fd, int mode, uint64_t offset_bytes, uint64_t length_bytes)
{
    int ret;
    do {
        ret = fallocate(fd, mode, (off_t)offset_bytes, (off_t)length_bytes);
    } while (ret < 0 && errno == EINTR);
    if (ret == 0)
        return 0;
    return errno == ENOSYS || errno == ENODEV ? -EOPNOTSUPP : -errno;
}

static int file_punch(struct device_file *file, const struct device_io *io)
{
    if (!file->base.info.can_punch)
        return -EOPNOTSUPP;
    if (!file->base.info.is_block_device)
        return fallocate_whole(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, io->offset_bytes,
                               io->length_bytes);
    uint64_t range[2] = {io->offset_bytes, io->length_bytes};
    int ret;
    do {
        ret = ioctl(file->fd, BLKDISCARD, range);
    } while (ret < 0 && errno == EINTR);
    return ret < 0 ? -errno : 0;
}

/* For file systems that cannot allocate without writing. The same zero page again and again, 1 MiB a call. */
static int zeroes_write(struct device_file *file, uint64_t offset_bytes, uint64_t length_bytes)
{
    enum { PIECES = MIB / DEVICE_ALIGN_BYTES };
    static const uint8_t page[DEVICE_ALIGN_BYTES] __attribute__((aligned(DEVICE_ALIGN_BYTES)));
    struct iovec iov[PIECES];
    for (int i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)page, .iov_len = sizeof page};
    while (length_bytes > 0) {
        uint64_t n = min_u64(length_bytes, MIB);
        struct device_io io = {.kind = DEVICE_WRITE,
                               .offset_bytes = offset_bytes,
                               .length_bytes = n,
                               .iov = iov,
                               .iov_count = (int)(n / DEVICE_ALIGN_BYTES)};
        int ret = device_file_transfer(file, &io, 0);
        if (ret < 0)
            return ret;
        offset_bytes += n;
        length_bytes -= n;
    }
    return 0;
}

static int file_allocate(struct device_file *file, const struct device_io *io)
{
    if (file->base.info.is_block_device)
        return 0;
    int ret = fallocate_whole(file->fd, FALLOC_FL_KEEP_SIZE, io->offset_bytes, io->length_bytes);
    return ret == -EOPNOTSUPP ? zeroes_write(file, io->offset_bytes, io->length_bytes) : ret;
}

int device_file_run_one(struct device_file *file, const struct device_io *io)
{
    switch (io->kind) {
    case DEVICE_READ:
    case DEVICE_WRITE:
        return device_file_transfer(file, io, 0);
    case DEVICE_FLUSH:
        return file_flush(file);
    case DEVICE_PUNCH:
        return file_punch(file, io);
    case DEVICE_ALLOCATE:
        break;
    }
    return file_allocate(file, io);
}

int device_file_resize(struct device *dev, uint64_t size_bytes)
{
    struct device_file *file = device_file_of(dev);
    if (dev->info.is_block_device)
        return -EOPNOTSUPP;
    if (size_bytes > INT64_MAX)
        return -EFBIG;
    int ret;
    do {
        ret = ftruncate(file->fd, (off_t)size_bytes);
    } while (ret < 0 && errno == EINTR);
    if (ret < 0)
        return -errno;
    ret = file_flush(file);
    if (ret < 0)
        device_set_failed(dev);
    return ret;
}

uint64_t device_file_allocated_bytes(struct device *dev)
{
    struct stat st;
    if (dev->info.is_block_device || fstat(device_file_of(dev)->fd, &st) < 0)
        return 0;
    return (uint64_t)st.st_blocks * 512;
}

void device_file_fini(struct device_file *file)
{
    env_cond_destroy(&file->flush_ended);
    env_mutex_destroy(&file->flush_lock);
    /* Explicitly, because the lock would otherwise live as long as a descriptor that a forked child has inherited. */
    (void)flock(file->fd, LOCK_UN);
    /* What was not flushed was never promised; there is nobody to tell of an error here. */
    (void)close(file->fd);
}
