/*
 * What the implementations of a device share with device.c and with each other. Nobody above env/ includes this.
 */
#ifndef ASHLAR_ENV_DEVICE_IMPL_H
#define ASHLAR_ENV_DEVICE_IMPL_H

#include "env/device.h"

/* From now on writes, flushes, punches and allocates are refused. */
void device_set_failed(struct device *dev);

/*
 * A device with a file descriptor: what device_plain and device_uring have in common. `base` first, so that a pointer
 * to one is a pointer to the other.
 */
struct device_file {
    struct device base;
    int fd;
    /*
     * Where writes go through the page cache, flushes run one at a time, and those that ask meanwhile share the next
     * one. The kernel reports a failed writeback to one fdatasync only: of two that run at once, the one not told would
     * call lost data durable. One after the other, the second begins after the first has set `failed`, and looks. With
     * O_DIRECT each write hears of its own failure, and flushes run side by side.
     */
    struct env_mutex flush_lock;
    struct env_cond flush_ended;
    uint64_t flushes_begun, flushes_ended; /* guarded by flush_lock; begun is ended or one more */
    struct device_rings *rings;            /* io_uring only */
};

struct device_file *device_file_of(struct device *dev);

/* One element in the calling thread, with plain system calls; 0 or negative errno. The transfer starts at `done_bytes`
 * into the element (for the rest of a short transfer). */
int device_file_transfer(struct device_file *file, const struct device_io *io, uint64_t done_bytes);
int device_file_run_one(struct device_file *file, const struct device_io *io);

int device_file_resize(struct device *dev, uint64_t size_bytes);
uint64_t device_file_allocated_bytes(struct device *dev);
/* Unlocks and closes the descriptor; does not free `file`. */
void device_file_fini(struct device_file *file);

extern const struct device_ops device_plain_ops;

/* Turns an open file into an io_uring device; false, and nothing changed, where the kernel gives no ring. */
bool device_uring_begin(struct device_file *file);

#endif
