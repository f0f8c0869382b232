/*
 * Pools: open, close, create, and the calls on volumes by name.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "codec/codec.h"
#include "env/device.h"
#include "library/library.h"
#include "pool/pool.h"

int library_pool_create(const char *path, uint64_t size_bytes, const struct ashlar_create_options *options,
                        unsigned flags, struct error *err)
{
    struct ashlar_create_options o;
    int r = library_check_flags("ashlar_pool_create", flags, 0, err);
    if (r == 0)
        r = library_take_options("ashlar_pool_create", options, &o, sizeof(o), err);
    if (r < 0)
        return r;
    if (path == NULL || path[0] == '\0')
        return error_set(err, -EINVAL, "ashlar_pool_create: no path given");
    if (size_bytes > INT64_MAX - DEVICE_ALIGN_BYTES)
        return error_set(err, -EINVAL, "ashlar_pool_create: a size of %llu bytes is too large",
                         (unsigned long long)size_bytes);

    struct device *dev;
    r = device_open(env_os(), path, DEVICE_OPEN_CREATE, round_up(size_bytes, DEVICE_ALIGN_BYTES), &dev, err);
    if (r < 0)
        return r;
    struct pool_create_options create = {.segment_bytes = o.segment_bytes, .write_unit_bytes = o.write_unit_bytes};
    r = pool_create(dev, &create, err);
    if (r < 0)
        (void)unlink(path); /* ours: CREATE fails where something was, and the lock is still held */
    device_close(dev);
    return r;
}

static void pass_notice(void *arg, const char *text)
{
    struct ashlar_pool *pool = arg;
    pool->notice(pool->notice_user, text);
}

int library_pool_open(const char *path, const struct ashlar_open_options *options, unsigned flags,
                      struct ashlar_pool **ret_pool, struct error *err)
{
    struct ashlar_open_options o;
    int r = library_check_flags("ashlar_pool_open", flags, ASHLAR_READ_ONLY | ASHLAR_LOSE_DAMAGED_LOG, err);
    if (r == 0)
        r = library_take_options("ashlar_pool_open", options, &o, sizeof(o), err);
    if (r < 0)
        return r;
    if (path == NULL || path[0] == '\0' || ret_pool == NULL)
        return error_set(err, -EINVAL, "ashlar_pool_open: no path or no place for the pool given");

    struct ashlar_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return error_set(err, -ENOMEM, "no memory to open '%s'", path);
    env_mutex_init(&pool->mutex, env_os());
    pool->queue_thread_count = o.queue_thread_count;
    pool->notice = o.notice;
    pool->notice_user = o.notice_user;

    struct pool_options pool_options = {
        .cache_bytes = o.cache_bytes,
        .worker_count = o.worker_count,
        .read_only = (flags & ASHLAR_READ_ONLY) != 0,
        .lose_damaged_log = (flags & ASHLAR_LOSE_DAMAGED_LOG) != 0,
        .background = true,
        .notice = o.notice != NULL ? pass_notice : NULL,
        .notice_arg = pool,
    };
    struct device *dev;
    r = device_open(env_os(), path, pool_options.read_only ? DEVICE_OPEN_READ_ONLY : 0, 0, &dev, err);
    if (r == 0)
        r = pool_open(dev, &pool_options, &pool->pool, err);
    if (r < 0) {
        env_mutex_destroy(&pool->mutex);
        free(pool);
        return r;
    }
    *ret_pool = pool;
    return 0;
}

int library_pool_close(struct ashlar_pool *pool, struct error *err)
{
    if (pool == NULL)
        return 0;
    unsigned references = atomic_load(&pool->references);
    if (references > 0)
        return error_set(err, -EBUSY, "the pool has %u open volumes and calls in flight; close and reap them first",
                         references);
    if (pool->engine_queue != NULL)
        queue_free(pool->engine_queue);
    int r = pool_close(pool->pool, err);
    env_mutex_destroy(&pool->mutex);
    free(pool);
    return r;
}

static int check_pool(struct ashlar_pool *pool, const char *call, unsigned flags, struct error *err)
{
    if (pool == NULL)
        return error_set(err, -EINVAL, "%s: the pool is NULL", call);
    return library_check_flags(call, flags, 0, err);
}

static int check_name(const char *name, const char *call, struct error *err)
{
    return name != NULL ? 0 : error_set(err, -EINVAL, "%s: the name is NULL", call);
}

int library_pool_flush(struct ashlar_pool *pool, unsigned flags, struct error *err)
{
    int r = check_pool(pool, "ashlar_pool_flush", flags, err);
    if (r < 0)
        return r;
    r = pool_flush(pool->pool);
    return r < 0 ? error_set(err, r, "flushing the pool: %s", strerror(-r)) : 0;
}

int library_volume_create(struct ashlar_pool *pool, const char *name, const struct ashlar_volume_options *options,
                          unsigned flags, struct error *err)
{
    struct ashlar_volume_options o;
    int r = check_pool(pool, "ashlar_volume_create", flags, err);
    if (r == 0)
        r = check_name(name, "ashlar_volume_create", err);
    if (r == 0)
        r = library_take_options("ashlar_volume_create", options, &o, sizeof(o), err);
    if (r < 0)
        return r;
    if (o.reserved != 0)
        return error_set(err, -EINVAL, "ashlar_volume_create: options: reserved is not 0");
    struct volume_settings settings = {.size_bytes = o.size_bytes, .record_bytes = o.record_bytes};
    r = codec_choice_parse(o.compression != NULL ? o.compression : "zstd", &settings.codec, err);
    if (r < 0)
        return r;
    return volume_create(pool->pool, name, &settings, err);
}

int library_volume_destroy(struct ashlar_pool *pool, const char *name, unsigned flags, struct error *err)
{
    int r = check_pool(pool, "ashlar_volume_destroy", flags, err);
    if (r == 0)
        r = check_name(name, "ashlar_volume_destroy", err);
    return r < 0 ? r : volume_destroy(pool->pool, name, err);
}

int library_volume_rename(struct ashlar_pool *pool, const char *from, const char *to, unsigned flags, struct error *err)
{
    int r = check_pool(pool, "ashlar_volume_rename", flags, err);
    if (r == 0)
        r = check_name(from, "ashlar_volume_rename", err);
    if (r == 0)
        r = check_name(to, "ashlar_volume_rename", err);
    return r < 0 ? r : volume_rename(pool->pool, from, to, err);
}

int library_volume_resize(struct ashlar_pool *pool, const char *name, uint64_t size_bytes, unsigned flags,
                          struct error *err)
{
    int r = check_pool(pool, "ashlar_volume_resize", flags, err);
    if (r == 0)
        r = check_name(name, "ashlar_volume_resize", err);
    return r < 0 ? r : volume_resize(pool->pool, name, size_bytes, err);
}

int library_volume_set_compression(struct ashlar_pool *pool, const char *name, const char *compression, unsigned flags,
                                   struct error *err)
{
    int r = check_pool(pool, "ashlar_volume_set_compression", flags, err);
    if (r == 0)
        r = check_name(name, "ashlar_volume_set_compression", err);
    if (r == 0 && compression == NULL)
        r = error_set(err, -EINVAL, "ashlar_volume_set_compression: the compression is NULL");
    if (r < 0)
        return r;
    struct codec_choice choice;
    r = codec_choice_parse(compression, &choice, err);
    return r < 0 ? r : volume_set_codec(pool->pool, name, choice, err);
}

int library_engine_queue(struct ashlar_pool *pool, struct queue **ret_queue)
{
    int r = 0;
    if (!atomic_load_explicit(&pool->engine_started, memory_order_acquire)) {
        env_mutex_lock(&pool->mutex);
        if (pool->engine_queue == NULL)
            r = queue_new(env_os(), pool->queue_thread_count, &pool->engine_queue);
        if (r == 0)
            atomic_store_explicit(&pool->engine_started, true, memory_order_release);
        env_mutex_unlock(&pool->mutex);
    }
    if (r == 0)
        *ret_queue = pool->engine_queue;
    return r;
}

/* ---- the public calls ---- */

/* Each runs its twin with an error of the engine's type and turns that into the public one. */
#define PUBLIC(error, call_with_err) \
    struct error err = {0};          \
    int r = (call_with_err);         \
    return r < 0 ? library_error(error, &err) : r

int ashlar_pool_create(const char *path, uint64_t size_bytes, const struct ashlar_create_options *options,
                       unsigned flags, struct ashlar_error *error)
{
    PUBLIC(error, library_pool_create(path, size_bytes, options, flags, &err));
}

int ashlar_pool_open(const char *path, const struct ashlar_open_options *options, unsigned flags,
                     struct ashlar_pool **ret_pool, struct ashlar_error *error)
{
    PUBLIC(error, library_pool_open(path, options, flags, ret_pool, &err));
}

int ashlar_pool_close(struct ashlar_pool *pool, struct ashlar_error *error)
{
    PUBLIC(error, library_pool_close(pool, &err));
}

int ashlar_pool_flush(struct ashlar_pool *pool, unsigned flags, struct ashlar_error *error)
{
    PUBLIC(error, library_pool_flush(pool, flags, &err));
}

int ashlar_volume_create(struct ashlar_pool *pool, const char *name, const struct ashlar_volume_options *options,
                         unsigned flags, struct ashlar_error *error)
{
    PUBLIC(error, library_volume_create(pool, name, options, flags, &err));
}

int ashlar_volume_destroy(struct ashlar_pool *pool, const char *name, unsigned flags, struct ashlar_error *error)
{
    PUBLIC(error, library_volume_destroy(pool, name, flags, &err));
}

int ashlar_volume_rename(struct ashlar_pool *pool, const char *from, const char *to, unsigned flags,
                         struct ashlar_error *error)
{
    PUBLIC(error, library_volume_rename(pool, from, to, flags, &err));
}

int ashlar_volume_resize(struct ashlar_pool *pool, const char *name, uint64_t size_bytes, unsigned flags,
                         struct ashlar_error *error)
{
    PUBLIC(error, library_volume_resize(pool, name, size_bytes, flags, &err));
}

int ashlar_volume_set_compression(struct ashlar_pool *pool, const char *name, const char *compression, unsigned flags,
                                  struct ashlar_error *error)
{
    PUBLIC(error, library_volume_set_compression(pool, name, compression, flags, &err));
}

int ashlar_volume_open(struct ashlar_pool *pool, const char *name, unsigned flags, struct ashlar_volume **ret_volume,
                       struct ashlar_error *error)
{
    PUBLIC(error, library_volume_open(pool, name, flags, ret_volume, &err));
}

int ashlar_pool_get_info(struct ashlar_pool *pool, struct ashlar_pool_info *ret_info)
{
    if (pool == NULL)
        return -EINVAL;
    struct pool_info i;
    pool_get_info(pool->pool, &i);
    struct ashlar_pool_info ours = {
        .size_bytes = i.size_bytes,
        .usable_bytes = i.usable_bytes,
        .free_bytes = i.free_bytes,
        .stored_bytes = i.live_bytes,
        .allocated_bytes = i.allocated_bytes,
        .volume_count = i.volume_count,
        .corrupt_reads = i.corrupt_reads,
        .segment_bytes = i.segment_bytes,
        .write_unit_bytes = i.write_unit_bytes,
        .read_only = i.read_only,
        .failed = i.failed,
    };
    memcpy(ours.uuid, i.uuid, sizeof(ours.uuid));
    return library_give_info(ret_info, &ours, sizeof(ours));
}
