/*
 * A device: the file or block device that a pool lives in, seen as a handful of operations.
 *
 * Three implementations of struct device_ops: io_uring, plain pread/pwrite/fdatasync, and the simulation (sim.h); all
 * pass the same conformance test. Rules that hold for each:
 *
 * - Offsets, lengths and buffers are multiples of DEVICE_ALIGN_BYTES, so that O_DIRECT works; device_check enforces it.
 * - A completed write is in the device's volatile cache. It is durable after a DEVICE_FLUSH that was *started* after
 * the write completed has itself completed. Before that any subset of its 512-byte sectors may survive a power cut, in
 * any order with other writes.
 * - Partial transfers and EINTR are dealt with inside; an operation is done whole or failed.
 * - Failure is sticky: after the first failed write, flush, punch or allocate (ENOSPC and EDQUOT of DEVICE_ALLOCATE and
 * EOPNOTSUPP apart) every later write, flush, punch and allocate fails with -EIO without touching the device; nothing
 * is retried. Reads go on.
 * - On a device opened read-only everything but reading fails with -EROFS; a range past the end fails with -EIO.
 * - Any thread may call device_run at any time.
 */
#ifndef ASHLAR_ENV_DEVICE_H
#define ASHLAR_ENV_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "env/env.h"

struct error;

#define DEVICE_ALIGN_BYTES 4096

enum device_io_kind {
    DEVICE_READ,
    DEVICE_WRITE,
    DEVICE_FLUSH,    /* offset and length are 0 */
    DEVICE_PUNCH,    /* give the range back; it reads as zeroes or old bytes afterwards, undefined which. -EOPNOTSUPP:
                        never mind */
    DEVICE_ALLOCATE, /* make sure later writes to the range cannot fail for lack of space; keeps no content. -ENOSPC
                        possible */
};

struct device_io {
    enum device_io_kind kind;
    /* Start only after every earlier element of the same device_run call completed; if one failed, do not start:
     * -ECANCELED. */
    bool after_previous;
    uint64_t offset_bytes;
    uint64_t length_bytes; /* sum of iov lengths for READ and WRITE */
    const struct iovec *iov;
    int iov_count;
    int result; /* out: 0 or negative errno */
};

struct device_info {
    uint64_t size_bytes;
    uint32_t logical_sector_bytes;  /* 512 or 4096 */
    uint32_t physical_sector_bytes; /* what one media write touches: 512 .. 65536 */
    bool is_block_device;
    bool is_read_only;
    bool is_direct; /* O_DIRECT in force */
    bool can_punch;
    const char *engine; /* "io_uring", "plain", "simulation" */
};

/* Operations that succeeded, since open; relaxed atomics, read at any time. */
struct device_stats {
    _Atomic uint64_t reads, writes, flushes, punches, allocates;
    _Atomic uint64_t read_bytes, write_bytes, punch_bytes;
};

struct device;

struct device_ops {
    /* Runs all of ios (count >= 1), blocks until each has its result. Independent elements may run at once. */
    void (*run)(struct device *dev, struct device_io *ios, size_t count);
    /* Changes the size of a regular file. 0, -EOPNOTSUPP for block devices, other -errno. */
    int (*resize)(struct device *dev, uint64_t size_bytes);
    /* Bytes of storage in use by the file (st_blocks), 0 if unknown. */
    uint64_t (*allocated_bytes)(struct device *dev);
    void (*close)(struct device *dev);
};

struct device {
    const struct device_ops *ops;
    struct env *env;
    struct device_info info;
    struct device_stats stats;
    _Atomic bool failed; /* sticky */
    char name[256];      /* path, for messages */
};

/* Runs ios; returns 0, or the error of the first element (in order of the array) that has one. Asserts alignment.
 * Counts. Keeps `failed`. */
int device_run(struct device *dev, struct device_io *ios, size_t count) __attribute__((warn_unused_result));

/* One-element conveniences. */
int device_read(struct device *dev, uint64_t offset_bytes, void *ret_buf, size_t length_bytes)
    __attribute__((warn_unused_result));
int device_write(struct device *dev, uint64_t offset_bytes, const void *buf, size_t length_bytes)
    __attribute__((warn_unused_result));
int device_flush(struct device *dev) __attribute__((warn_unused_result));

/*
 * Changes the size of a regular file, durably, and info.size_bytes. -EOPNOTSUPP for block devices. Operations may run
 * meanwhile; reading info.size_bytes directly may not.
 */
int device_resize(struct device *dev, uint64_t size_bytes) __attribute__((warn_unused_result));
uint64_t device_allocated_bytes(struct device *dev);
void device_close(struct device *dev); /* NULL is fine */

/* Aligned memory for device_run, zeroed; NULL if there is none. */
void *device_buffer_new(size_t length_bytes);
void device_buffer_free(void *buffer);

enum device_open_flags {
    DEVICE_OPEN_READ_ONLY = 1 << 0,
    /* A new regular file of size_bytes, sparse, mode 0600; -EEXIST where one is; file and directory are fsynced. */
    DEVICE_OPEN_CREATE = 1 << 1,
    DEVICE_OPEN_BUFFERED = 1 << 2, /* never O_DIRECT (default: O_DIRECT where the file system takes it) */
    DEVICE_OPEN_PLAIN = 1 << 3,    /* never io_uring (default: io_uring with O_DIRECT, where the kernel allows it) */
    DEVICE_OPEN_NO_LOCK = 1 << 4,  /* no lock: dump and check of a served pool */
};

/*
 * Opens a regular file or block device with an exclusive lock (shared when read-only), which goes with the process. A
 * mounted block device is refused unless opened read-only. size_bytes matters for CREATE only. A file whose size is no
 * multiple of DEVICE_ALIGN_BYTES counts as rounded down.
 *
 * Errors with text: -ENOENT, -EACCES, -EEXIST, -EBUSY (locked by another process: its pid where known), -EFBIG (CREATE:
 * more than the file system can), -EINVAL (neither a regular file nor a block device; says what it is), others of
 * open(2). Where O_DIRECT is not to be had, dirty pages of the file are first written and its page cache dropped, so
 * that what is read at open is what the device holds.
 */
int device_open(struct env *env, const char *path, unsigned flags, uint64_t size_bytes, struct device **ret_dev,
                struct error *err) __attribute__((warn_unused_result));

#endif
