/*
 * The plain device: the elements of a call one after the other in the calling thread. Running in order satisfies
 * after_previous by itself; what is left of it is to cancel behind a failure.
 */
#include <errno.h>
#include <stdlib.h>

#include "env/device_impl.h"

static void plain_run(struct device *dev, struct device_io *ios, size_t count)
{
    struct device_file *file = device_file_of(dev);
    bool failed_before = false;
    for (size_t i = 0; i < count; i++) {
        struct device_io *io = &ios[i];
        io->result = io->after_previous && failed_before ? -ECANCELED : device_file_run_one(file, io);
        failed_before |= io->result != 0;
    }
}

static void plain_close(struct device *dev)
{
    struct device_file *file = device_file_of(dev);
    device_file_fini(file);
    free(file);
}

const struct device_ops device_plain_ops = {
    .run = plain_run,
    .resize = device_file_resize,
    .allocated_bytes = device_file_allocated_bytes,
    .close = plain_close,
};
