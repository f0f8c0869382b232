/*
 * Volumes as things with a name: create, open, list, rename, resize, destroy.
 */
#include "volume/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "volume/access.h"

#define CATALOG_CHANGE_BYTES 8192 /* set aside for a moment, to see that there is room */

uint64_t volume_size_bytes(struct volume *v)
{
    env_mutex_lock(&v->pool->lock);
    uint64_t size = v->size_bytes;
    env_mutex_unlock(&v->pool->lock);
    return size;
}

/* ---- checks ---- */

static int check_size(uint64_t size_bytes, const char *name, struct error *err)
{
    if (size_bytes == 0)
        return error_set(err, -EINVAL, "volume %s: a size of 0 is none; give at least 512 bytes", name);
    if (size_bytes % SECTOR_BYTES != 0)
        return error_set(err, -EINVAL, "volume %s: size %" PRIu64 " is not a multiple of 512 bytes", name, size_bytes);
    if (size_bytes > VOLUME_BYTES_MAX)
        return error_set(err, -EINVAL, "volume %s: size %" PRIu64 " is more than the largest, 2^62 bytes", name,
                         size_bytes);
    return 0;
}

static int check_records(struct pool *pool, const char *name, uint32_t record_bytes, struct error *err)
{
    if (!is_power_of_2(record_bytes) || record_bytes < RECORD_BYTES_MIN || record_bytes > RECORD_BYTES_MAX)
        return error_set(err, -EINVAL, "volume %s: record size %u: must be a power of two from 4K to 1M", name,
                         record_bytes);
    uint32_t largest = pool->geometry.segment_bytes / SEGMENT_RECORDS_MIN;
    if (record_bytes > largest)
        return error_set(err, -EINVAL,
                         "volume %s: record size %u is too large for this pool's segments of %u bytes; at most %u (a "
                         "pool with larger segments takes more)",
                         name, record_bytes, pool->geometry.segment_bytes, largest);
    return 0;
}

static int not_writable(struct pool *pool, int result, struct error *err)
{
    if (result == -EROFS)
        return error_set(err, result, "%s: the pool is open for reading only", pool->dev->name);
    return error_set(err, result, "%s: a write to the pool failed before; it takes no more until it is opened again",
                     pool->dev->name);
}

static int find_live(struct pool *pool, const char *name, struct volume **ret_volume, struct error *err)
{
    struct volume *v = pool_find_volume(pool, name);
    if (v == NULL || !v->live)
        return error_set(err, -ENOENT, "%s: no volume named %s; 'ashlar list' shows what there is", pool->dev->name,
                         name);
    *ret_volume = v;
    return 0;
}

/* Room for a new volume, which is not let at the reserve. Lock held, released meanwhile. */
static int make_room(struct pool *pool, struct error *err)
{
    int result = pool_reserve(pool, CATALOG_CHANGE_BYTES, false);
    if (result == -ENOSPC)
        return error_set(err, result, "%s: the pool is full; trim or destroy something first", pool->dev->name);
    if (result != 0)
        return error_set(err, result, "%s: %s", pool->dev->name, strerror(-result));
    pool_unreserve(pool, CATALOG_CHANGE_BYTES);
    return 0;
}

/* A checkpoint that makes a change of the catalog durable. Lock held. */
static int make_durable(struct pool *pool, const char *what, const char *name, struct error *err)
{
    int result = pool_run_checkpoint(pool, false);
    if (result == 0)
        return 0;
    return error_set(err, result, "%s: volume %s: %s failed: %s", pool->dev->name, name, what, strerror(-result));
}

/* ---- create, get, put, list ---- */

static struct volume *new_volume(struct pool *pool, const char *name, const struct volume_settings *settings,
                                 uint32_t record_bytes)
{
    struct catalog_volume c = {
        .size_bytes = settings->size_bytes, .record_bytes = record_bytes, .codec = settings->codec};
    c.object_id = c.branch = pool->next_branch;
    c.created_wall_ns = env_wall_ns(pool->env);
    c.height = map_height_for(div_ceil(c.size_bytes, record_bytes));
    memcpy(c.name, name, strlen(name) + 1);
    env_random(pool->env, c.guid, sizeof c.guid);
    struct volume *v = volume_from_catalog(pool, &c);
    if (v == NULL)
        return NULL;
    pool->next_branch++;
    v->live = false;
    v->catalog_changed = true;
    pool_insert_volume(pool, v);
    return v;
}

static int create_locked(struct pool *pool, const char *name, const struct volume_settings *settings,
                         uint32_t record_bytes, struct error *err)
{
    int result = pool_writable(pool);
    if (result != 0)
        return not_writable(pool, result, err);
    if (pool_find_volume(pool, name) != NULL)
        return error_set(err, -EEXIST, "%s: there is a volume named %s already", pool->dev->name, name);
    if (pool->next_branch >> map_level_bits(CATALOG_HEIGHT_MAX - 1) != 0)
        return error_set(err, -ENOSPC, "%s: the catalog is full: %" PRIu64 " objects were created", pool->dev->name,
                         pool->next_branch);
    result = make_room(pool, err);
    /* The lock was let go of meanwhile. */
    if (result == 0 && pool_find_volume(pool, name) != NULL)
        result = error_set(err, -EEXIST, "%s: there is a volume named %s already", pool->dev->name, name);
    if (result != 0)
        return result;
    struct volume *v = new_volume(pool, name, settings, record_bytes);
    if (v == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory", pool->dev->name);
    result = make_durable(pool, "creating it", name, err);
    v->live = result == 0;
    /* Not written, or by somebody else's checkpoint: the next one takes it away again. */
    v->destroyed = v->orphan = result != 0;
    return result;
}

int volume_create(struct pool *pool, const char *name, const struct volume_settings *settings, struct error *err)
{
    uint32_t record_bytes = settings->record_bytes == 0 ? RECORD_BYTES_DEFAULT : settings->record_bytes;
    int result = volume_name_check(name, err);
    if (result == 0)
        result = check_size(settings->size_bytes, name, err);
    if (result == 0)
        result = check_records(pool, name, record_bytes, err);
    if (result == 0 && !codec_choice_valid(settings->codec))
        result = error_set(err, -EINVAL, "volume %s: unknown compression", name);
    if (result != 0)
        return result;
    env_mutex_lock(&pool->lock);
    result = create_locked(pool, name, settings, record_bytes, err);
    env_mutex_unlock(&pool->lock);
    return result;
}

int volume_get(struct pool *pool, const char *name, struct volume **ret_volume, struct error *err)
{
    env_mutex_lock(&pool->lock);
    int result = find_live(pool, name, ret_volume, err);
    if (result == 0)
        (*ret_volume)->users++;
    env_mutex_unlock(&pool->lock);
    return result;
}

void volume_put(struct volume *v)
{
    struct pool *pool = v->pool;
    env_mutex_lock(&pool->lock);
    CHECK_GT(v->users, 0);
    v->users--;
    env_mutex_unlock(&pool->lock);
}

static uint64_t list_bytes(struct list *records)
{
    uint64_t bytes = 0;
    for (struct list *l = records->next; l != records; l = l->next)
        bytes += CONTAINER_OF(l, struct record, dirty_link)->buffer->charged_bytes;
    return bytes;
}

static void fill_info(struct volume *v, struct volume_info *info)
{
    memset(info, 0, sizeof *info);
    memcpy(info->name, v->name, sizeof info->name);
    memcpy(info->guid, v->guid, sizeof info->guid);
    info->branch = v->branch;
    info->size_bytes = v->size_bytes;
    info->record_bytes = v->record_bytes;
    info->codec = v->codec;
    info->created_wall_ns = v->created_wall_ns;
    info->mapped_bytes = min_u64(v->mapped_records * v->record_bytes, v->size_bytes);
    info->stored_bytes = v->stored_bytes;
    info->metadata_bytes = v->node_bytes;
    info->reserved_bytes = v->provisioned_records * record_reserve_bytes(v->record_bytes) + v->provision_active_bytes +
                           v->provision_frozen_bytes;
    info->dirty_bytes = list_bytes(&v->dirty);
    info->users = v->users;
    info->read_count = v->read_count;
    info->write_count = v->write_count;
    info->flush_count = v->flush_count;
    info->trim_count = v->trim_count;
    info->zero_count = v->zero_count;
    info->read_bytes = v->read_bytes;
    info->write_bytes = v->write_bytes;
    info->corrupt_reads = v->corrupt_reads;
}

void volume_get_info(struct volume *v, struct volume_info *ret_info)
{
    env_mutex_lock(&v->pool->lock);
    fill_info(v, ret_info);
    env_mutex_unlock(&v->pool->lock);
}

int volume_list(struct pool *pool, int (*each)(void *arg, const struct volume_info *info), void *arg)
{
    int result = 0;
    env_mutex_lock(&pool->lock);
    for (struct list *l = pool->volumes.next; l != &pool->volumes && result == 0; l = l->next) {
        struct volume_info info;
        if (!((struct volume *)l)->live)
            continue;
        fill_info((struct volume *)l, &info);
        result = each(arg, &info);
    }
    env_mutex_unlock(&pool->lock);
    return result;
}

/* ---- changes ---- */

static void set_name(struct volume *v, const char *name)
{
    memset(v->name, 0, sizeof v->name);
    memcpy(v->name, name, strlen(name) + 1);
    list_remove(&v->link);
    v->pool->volume_count--;
    pool_insert_volume(v->pool, v);
    v->catalog_changed = true;
}

static int rename_locked(struct pool *pool, const char *from, const char *to, struct error *err)
{
    struct volume *v = NULL;
    int result = pool_writable(pool);
    if (result != 0)
        return not_writable(pool, result, err);
    result = find_live(pool, from, &v, err);
    if (result != 0)
        return result;
    if (pool_find_volume(pool, to) != NULL)
        return error_set(err, -EEXIST, "%s: there is a volume named %s already", pool->dev->name, to);
    set_name(v, to);
    result = make_durable(pool, "renaming it", to, err);
    if (result != 0)
        set_name(v, from);
    return result;
}

int volume_rename(struct pool *pool, const char *from, const char *to, struct error *err)
{
    int result = volume_name_check(to, err);
    if (result != 0)
        return result;
    env_mutex_lock(&pool->lock);
    result = rename_locked(pool, from, to, err);
    env_mutex_unlock(&pool->lock);
    return result;
}

int volume_set_codec(struct pool *pool, const char *name, struct codec_choice codec, struct error *err)
{
    struct volume *v = NULL;
    if (!codec_choice_valid(codec))
        return error_set(err, -EINVAL, "volume %s: unknown compression", name);
    env_mutex_lock(&pool->lock);
    int result = pool_writable(pool);
    if (result != 0)
        (void)not_writable(pool, result, err);
    else
        result = find_live(pool, name, &v, err);
    if (result == 0) {
        struct codec_choice before = v->codec;
        v->codec = codec;
        v->catalog_changed = true;
        result = make_durable(pool, "setting its compression", name, err);
        if (result != 0)
            v->codec = before;
    }
    env_mutex_unlock(&pool->lock);
    return result;
}

/* Shrinking: the new end holds at once, so nothing can be written behind it; the tail goes with the checkpoint that
 * makes the size durable. Growing: what an earlier, longer life of the last record may have left is zeroed and flushed
 * before the new size is visible to anybody, the next open included. */
static int shrink(struct volume *v, uint64_t size_bytes)
{
    uint64_t records = volume_record_count(v);
    v->size_bytes = v->next_size_bytes = size_bytes;
    v->shrunk_from_records = max_u64(v->shrunk_from_records, records);
    v->tail_dropped = false;
    v->catalog_changed = true;
    /* Trims and zeroings that reach behind the new end are sealed before the tail is cut off, not after. */
    int result = pool_sync(v->pool, v->pool->clock);
    return result == 0 ? pool_run_checkpoint(v->pool, false) : result;
}

static int grow(struct volume *v, uint64_t size_bytes)
{
    uint64_t old = v->size_bytes;
    uint32_t within = (uint32_t)(old % v->record_bytes);
    int result = 0;
    if (within != 0) {
        struct piece tail = {
            .index = old / v->record_bytes, .offset_bytes = within, .length_bytes = v->record_bytes - within};
        result = volume_write_piece(v, &tail, NULL, 0, VOLUME_FUA);
        if (result == 0)
            result = pool_sync(v->pool, v->pool->clock);
    }
    if (result != 0)
        return result;
    v->next_size_bytes = size_bytes;
    v->catalog_changed = true;
    result = pool_run_checkpoint(v->pool, false);
    if (result == 0)
        v->size_bytes = size_bytes;
    return result;
}

int volume_resize(struct pool *pool, const char *name, uint64_t size_bytes, struct error *err)
{
    struct volume *v = NULL;
    int result = check_size(size_bytes, name, err);
    if (result != 0)
        return result;
    env_mutex_lock(&pool->lock);
    result = pool_writable(pool);
    if (result != 0)
        (void)not_writable(pool, result, err);
    else
        result = find_live(pool, name, &v, err);
    if (result == 0 && v->next_size_bytes != v->size_bytes)
        result = error_set(err, -EBUSY, "volume %s: it is being resized already; try again", name);
    if (result == 0 && size_bytes != v->size_bytes) {
        result = size_bytes < v->size_bytes ? shrink(v, size_bytes) : grow(v, size_bytes);
        if (result != 0) {
            v->next_size_bytes = v->size_bytes;
            (void)error_set(err, result, "%s: volume %s: resizing it failed: %s", pool->dev->name, name,
                            strerror(-result));
        }
    }
    env_mutex_unlock(&pool->lock);
    return result;
}

int volume_destroy(struct pool *pool, const char *name, struct error *err)
{
    struct volume *v = NULL;
    env_mutex_lock(&pool->lock);
    int result = pool_writable(pool);
    if (result != 0)
        (void)not_writable(pool, result, err);
    else
        result = find_live(pool, name, &v, err);
    if (result == 0 && v->users > 0)
        result = error_set(err, -EBUSY, "volume %s is in use by %u; disconnect its clients first", name, v->users);
    if (result == 0) {
        v->live = false;
        v->destroyed = true;
        result = make_durable(pool, "destroying it", name, err);
        if (result != 0 && !v->dropped) {
            v->live = true;
            v->destroyed = false;
        }
        /* Out of the list: this checkpoint, or another that took it along, has done it. On a failed pool it stays until
         * close. */
        if (result == 0)
            volume_free(v);
    }
    env_mutex_unlock(&pool->lock);
    return result;
}
