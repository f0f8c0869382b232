/*
 * Submitted calls other than I/O: their arguments are copied into the call, and the queue's thread runs the synchronous
 * twin.
 */
#include <stdlib.h>
#include <string.h>

#include "library/library.h"

/* Copies up to two names and hands the call over. What fails here gives the call back. */
static int start(struct call *call, const char *name, const char *other_name)
{
    int r = 0;
    const char *names[2] = {name, other_name};
    for (int i = 0; i < 2 && r == 0; i++) {
        if (names[i] == NULL)
            continue;
        call->names[i] = strdup(names[i]);
        if (call->names[i] == NULL)
            r = -ENOMEM;
    }
    if (r == 0)
        r = library_call_start_job(call);
    if (r < 0)
        library_call_cancel(call);
    return r;
}

static struct call *job_new(struct ashlar_queue *q, struct ashlar_pool *pool, void (*run)(struct call *call),
                            unsigned flags, void *user, int *ret_code)
{
    struct call *call = library_call_new(q, user, ret_code);
    if (call == NULL)
        return NULL;
    call->run = run;
    call->flags = flags;
    library_call_hold(call, NULL, pool);
    return call;
}

/* Copies an option struct; false and *ret_code if it is malformed. NULL stays NULL. */
static bool copy_options(struct call *call, const void *options, void *ret_copy, size_t bytes, int *ret_code)
{
    call->has_options = options != NULL;
    *ret_code = library_take_options("submit", options, ret_copy, bytes, NULL);
    if (*ret_code == 0)
        memcpy(ret_copy, &bytes, sizeof(bytes)); /* struct_bytes of the copy */
    else
        library_call_cancel(call);
    return *ret_code == 0;
}

static void run_pool_create(struct call *call)
{
    (void)library_pool_create(call->names[0], call->number, call->has_options ? &call->options.create : NULL,
                              call->flags, &call->error);
}

int ashlar_submit_pool_create(struct ashlar_queue *q, const char *path, uint64_t size_bytes,
                              const struct ashlar_create_options *options, unsigned flags, void *user)
{
    int r = -EINVAL;
    if (path == NULL)
        return r;
    struct call *call = job_new(q, NULL, run_pool_create, flags, user, &r);
    if (call == NULL || !copy_options(call, options, &call->options.create, sizeof(call->options.create), &r))
        return r;
    call->number = size_bytes;
    return start(call, path, NULL);
}

static void run_pool_open(struct call *call)
{
    (void)library_pool_open(call->names[0], call->has_options ? &call->options.open : NULL, call->flags,
                            call->ret_handle, &call->error);
}

int ashlar_submit_pool_open(struct ashlar_queue *q, const char *path, const struct ashlar_open_options *options,
                            unsigned flags, struct ashlar_pool **ret_pool, void *user)
{
    int r = -EINVAL;
    if (path == NULL || ret_pool == NULL)
        return r;
    struct call *call = job_new(q, NULL, run_pool_open, flags, user, &r);
    if (call == NULL || !copy_options(call, options, &call->options.open, sizeof(call->options.open), &r))
        return r;
    call->ret_handle = ret_pool;
    return start(call, path, NULL);
}

/* Holds no reference: the close would wait for itself. */
static void run_pool_close(struct call *call)
{
    (void)library_pool_close(call->ret_handle, &call->error);
}

int ashlar_submit_pool_close(struct ashlar_queue *q, struct ashlar_pool *pool, void *user)
{
    int r = -EINVAL;
    if (pool == NULL)
        return r;
    struct call *call = job_new(q, NULL, run_pool_close, 0, user, &r);
    if (call == NULL)
        return r;
    call->ret_handle = pool;
    return start(call, NULL, NULL);
}

static void run_pool_flush(struct call *call)
{
    (void)library_pool_flush(call->pool, call->flags, &call->error);
}

int ashlar_submit_pool_flush(struct ashlar_queue *q, struct ashlar_pool *pool, unsigned flags, void *user)
{
    int r = -EINVAL;
    if (pool == NULL)
        return r;
    struct call *call = job_new(q, pool, run_pool_flush, flags, user, &r);
    return call != NULL ? start(call, NULL, NULL) : r;
}

static void run_volume_create(struct call *call)
{
    struct ashlar_volume_options options = call->options.volume;
    options.compression = call->names[1];
    (void)library_volume_create(call->pool, call->names[0], &options, call->flags, &call->error);
}

int ashlar_submit_volume_create(struct ashlar_queue *q, struct ashlar_pool *pool, const char *name,
                                const struct ashlar_volume_options *options, unsigned flags, void *user)
{
    int r = -EINVAL;
    if (pool == NULL || name == NULL)
        return r;
    struct call *call = job_new(q, pool, run_volume_create, flags, user, &r);
    if (call == NULL || !copy_options(call, options, &call->options.volume, sizeof(call->options.volume), &r))
        return r;
    return start(call, name, call->options.volume.compression);
}

static void run_volume_destroy(struct call *call)
{
    (void)library_volume_destroy(call->pool, call->names[0], call->flags, &call->error);
}

int ashlar_submit_volume_destroy(struct ashlar_queue *q, struct ashlar_pool *pool, const char *name, unsigned flags,
                                 void *user)
{
    int r = -EINVAL;
    if (pool == NULL || name == NULL)
        return r;
    struct call *call = job_new(q, pool, run_volume_destroy, flags, user, &r);
    return call != NULL ? start(call, name, NULL) : r;
}

static void run_volume_rename(struct call *call)
{
    (void)library_volume_rename(call->pool, call->names[0], call->names[1], call->flags, &call->error);
}

int ashlar_submit_volume_rename(struct ashlar_queue *q, struct ashlar_pool *pool, const char *from, const char *to,
                                unsigned flags, void *user)
{
    int r = -EINVAL;
    if (pool == NULL || from == NULL || to == NULL)
        return r;
    struct call *call = job_new(q, pool, run_volume_rename, flags, user, &r);
    return call != NULL ? start(call, from, to) : r;
}

static void run_volume_resize(struct call *call)
{
    (void)library_volume_resize(call->pool, call->names[0], call->number, call->flags, &call->error);
}

int ashlar_submit_volume_resize(struct ashlar_queue *q, struct ashlar_pool *pool, const char *name, uint64_t size_bytes,
                                unsigned flags, void *user)
{
    int r = -EINVAL;
    if (pool == NULL || name == NULL)
        return r;
    struct call *call = job_new(q, pool, run_volume_resize, flags, user, &r);
    if (call == NULL)
        return r;
    call->number = size_bytes;
    return start(call, name, NULL);
}

static void run_volume_set_compression(struct call *call)
{
    (void)library_volume_set_compression(call->pool, call->names[0], call->names[1], call->flags, &call->error);
}

int ashlar_submit_volume_set_compression(struct ashlar_queue *q, struct ashlar_pool *pool, const char *name,
                                         const char *compression, unsigned flags, void *user)
{
    int r = -EINVAL;
    if (pool == NULL || name == NULL || compression == NULL)
        return r;
    struct call *call = job_new(q, pool, run_volume_set_compression, flags, user, &r);
    return call != NULL ? start(call, name, compression) : r;
}

static void run_volume_open(struct call *call)
{
    (void)library_volume_open(call->pool, call->names[0], call->flags, call->ret_handle, &call->error);
}

int ashlar_submit_volume_open(struct ashlar_queue *q, struct ashlar_pool *pool, const char *name, unsigned flags,
                              struct ashlar_volume **ret_volume, void *user)
{
    int r = -EINVAL;
    if (pool == NULL || name == NULL || ret_volume == NULL)
        return r;
    struct call *call = job_new(q, pool, run_volume_open, flags, user, &r);
    if (call == NULL)
        return r;
    call->ret_handle = ret_volume;
    return start(call, name, NULL);
}
