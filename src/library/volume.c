/*
 * Volumes: handles, information, and synchronous I/O in the caller's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "codec/codec.h"
#include "library/library.h"
#include "pool/pool.h"
#include "volume/volume.h"

_Static_assert(ASHLAR_FUA == VOLUME_FUA && ASHLAR_PROVISION == VOLUME_PROVISION, "I/O flags are passed through");
_Static_assert((int)ASHLAR_EXTENT_DATA == EXTENT_DATA && (int)ASHLAR_EXTENT_HOLE == EXTENT_HOLE &&
                   (int)ASHLAR_EXTENT_PROVISIONED == EXTENT_PROVISIONED,
               "extent kinds are passed through");

int library_volume_open(struct ashlar_pool *pool, const char *name, unsigned flags, struct ashlar_volume **ret_volume,
                        struct error *err)
{
    if (pool == NULL || name == NULL || ret_volume == NULL)
        return error_set(err, -EINVAL, "ashlar_volume_open: pool, name or the place for the volume is NULL");
    int r = library_check_flags("ashlar_volume_open", flags, 0, err);
    if (r < 0)
        return r;
    struct ashlar_volume *v = calloc(1, sizeof(*v));
    if (v == NULL)
        return error_set(err, -ENOMEM, "no memory to open volume '%.240s'", name);
    r = volume_get(pool->pool, name, &v->volume, err);
    if (r < 0) {
        free(v);
        return r;
    }
    v->pool = pool;
    atomic_fetch_add(&pool->references, 1);
    *ret_volume = v;
    return 0;
}

int ashlar_volume_close(struct ashlar_volume *v)
{
    if (v == NULL)
        return 0;
    if (atomic_load(&v->references) > 0)
        return -EBUSY;
    struct ashlar_pool *pool = v->pool;
    volume_put(v->volume);
    free(v);
    atomic_fetch_sub(&pool->references, 1);
    return 0;
}

uint64_t ashlar_volume_size(struct ashlar_volume *v)
{
    return v != NULL ? volume_size_bytes(v->volume) : 0;
}

static struct ashlar_volume_info info_of(const struct volume_info *i)
{
    struct ashlar_volume_info ours = {
        .struct_bytes = sizeof(ours),
        .size_bytes = i->size_bytes,
        .mapped_bytes = i->mapped_bytes,
        .stored_bytes = i->stored_bytes,
        .metadata_bytes = i->metadata_bytes,
        .reserved_bytes = i->reserved_bytes,
        .created_seconds = i->created_wall_ns / 1000000000,
        .record_bytes = i->record_bytes,
        .users = i->users,
    };
    _Static_assert(sizeof(ours.name) >= sizeof(i->name), "a name fits");
    memcpy(ours.name, i->name, sizeof(i->name));
    memcpy(ours.guid, i->guid, sizeof(ours.guid));
    codec_choice_format(i->codec, ours.compression, sizeof(ours.compression));
    return ours;
}

int ashlar_volume_get_info(struct ashlar_volume *v, struct ashlar_volume_info *ret_info)
{
    if (v == NULL)
        return -EINVAL;
    struct volume_info i;
    volume_get_info(v->volume, &i);
    struct ashlar_volume_info ours = info_of(&i);
    return library_give_info(ret_info, &ours, sizeof(ours));
}

/* The engine's each() must not call the pool; the public one may: so the list is gathered first. */
struct gathering {
    struct ashlar_volume_info *infos;
    size_t count, room;
};

static int gather(void *arg, const struct volume_info *info)
{
    struct gathering *g = arg;
    if (g->count == g->room) {
        size_t room = g->room == 0 ? 16 : 2 * g->room;
        struct ashlar_volume_info *infos = realloc(g->infos, room * sizeof(*infos));
        if (infos == NULL)
            return -ENOMEM;
        g->infos = infos;
        g->room = room;
    }
    g->infos[g->count++] = info_of(info);
    return 0;
}

int ashlar_volume_list(struct ashlar_pool *pool, int (*each)(void *user, const struct ashlar_volume_info *info),
                       void *user)
{
    if (pool == NULL || each == NULL)
        return -EINVAL;
    struct gathering g = {0};
    int r = volume_list(pool->pool, gather, &g);
    for (size_t i = 0; r == 0 && i < g.count; i++)
        r = each(user, &g.infos[i]);
    free(g.infos);
    return r;
}

/* ---- I/O ---- */

int library_check_io(struct ashlar_volume *v, const char *call, unsigned flags, unsigned allowed, struct error *err)
{
    if (v == NULL)
        return error_set(err, -EINVAL, "%s: the volume is NULL", call);
    return library_check_flags(call, flags, allowed, err);
}

int library_iov_length(const struct iovec *iov, int iov_count, uint64_t *ret_length_bytes, struct error *err)
{
    if (iov_count < 0 || iov_count > LIBRARY_IOV_MAX || (iov_count > 0 && iov == NULL))
        return error_set(err, -EINVAL, "an iovec of %d elements at %p: there must be 0 to %d", iov_count,
                         (const void *)iov, LIBRARY_IOV_MAX);
    uint64_t length = 0;
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_base == NULL && iov[i].iov_len > 0)
            return error_set(err, -EINVAL, "iovec element %d is NULL and %zu bytes long", i, iov[i].iov_len);
        if (!add_fits(length, iov[i].iov_len, &length) || length > INT64_MAX)
            return error_set(err, -EINVAL, "the iovec lengths add up to more than 2^63 - 1 bytes");
    }
    *ret_length_bytes = length;
    return 0;
}

static const char *kind_name(enum request_kind kind)
{
    switch (kind) {
    case REQUEST_READ:
        return "reading";
    case REQUEST_WRITE:
        return "writing";
    case REQUEST_FLUSH:
        return "flushing";
    case REQUEST_TRIM:
        return "trimming";
    case REQUEST_ZERO:
        return "zeroing";
    case REQUEST_PREFETCH:
        return "prefetching";
    case REQUEST_EXTENTS:
        return "listing extents of";
    }
    return "using";
}

/* Appends where the damage lies, if the pool met it in the range of this call. */
static bool damage_find(struct ashlar_volume *v, const char *name, uint64_t offset_bytes, uint64_t length_bytes,
                        struct pool_damage *ret_damage)
{
    enum { ROOM = 256 };
    struct pool_damage *list = calloc(ROOM, sizeof(*list));
    bool found = false;
    size_t count = list != NULL ? pool_get_damage(v->pool->pool, list, ROOM) : 0;
    for (size_t i = 0; i < count && !found; i++) {
        found = strcmp(list[i].volume, name) == 0 && list[i].offset_bytes < offset_bytes + length_bytes &&
                offset_bytes < list[i].offset_bytes + list[i].length_bytes;
        if (found)
            *ret_damage = list[i];
    }
    free(list);
    return found;
}

int library_io_error(struct ashlar_volume *v, enum request_kind kind, uint64_t offset_bytes, uint64_t length_bytes,
                     int code, struct error *err)
{
    struct volume_info info;
    struct pool_damage damage;
    volume_get_info(v->volume, &info);
    unsigned long long offset = offset_bytes, length = length_bytes;
    const char *doing = kind_name(kind);
    if (code == -EBADMSG)
        code = -EIO;
    if (kind == REQUEST_FLUSH)
        return error_set(err, code, "flushing volume '%s': %s", info.name,
                         code == -EIO ? "the device failed; close the pool and open it again" : strerror(-code));
    if (code == -EINVAL && !range_inside(offset_bytes, length_bytes, info.size_bytes))
        return error_set(err, code, "%s volume '%s': %llu bytes at %llu leave its %llu bytes", doing, info.name, length,
                         offset, (unsigned long long)info.size_bytes);
    if (code == -EIO && kind == REQUEST_READ && damage_find(v, info.name, offset_bytes, length_bytes, &damage))
        return error_set(err, code,
                         "reading volume '%s': the record of %llu bytes at %llu is damaged (log address %llu)",
                         info.name, (unsigned long long)damage.length_bytes, (unsigned long long)damage.offset_bytes,
                         (unsigned long long)damage.address);
    if (code == -ENOSPC)
        return error_set(err, code, "%s volume '%s': %llu bytes at %llu: the pool is full; trim or destroy something",
                         doing, info.name, length, offset);
    return error_set(err, code, "%s volume '%s': %llu bytes at %llu: %s", doing, info.name, length, offset,
                     strerror(-code));
}

static int finish(struct ashlar_volume *v, enum request_kind kind, uint64_t offset_bytes, uint64_t length_bytes, int r,
                  struct ashlar_error *error)
{
    if (r >= 0)
        return 0;
    struct error err = {0};
    library_io_error(v, kind, offset_bytes, length_bytes, r, &err);
    return library_error(error, &err);
}

static int transfer(struct ashlar_volume *v, const char *call, enum request_kind kind, const struct iovec *iov,
                    int iov_count, uint64_t offset_bytes, unsigned flags, struct ashlar_error *error)
{
    struct error err = {0};
    uint64_t length_bytes = 0;
    int r = library_check_io(v, call, flags, kind == REQUEST_WRITE ? ASHLAR_FUA : 0, &err);
    if (r == 0)
        r = library_iov_length(iov, iov_count, &length_bytes, &err);
    if (r < 0)
        return library_error(error, &err);
    r = kind == REQUEST_WRITE ? volume_writev(v->volume, offset_bytes, iov, iov_count, flags)
                              : volume_readv(v->volume, offset_bytes, iov, iov_count);
    return finish(v, kind, offset_bytes, length_bytes, r, error);
}

int ashlar_readv(struct ashlar_volume *v, const struct iovec *iov, int iov_count, uint64_t offset_bytes, unsigned flags,
                 struct ashlar_error *error)
{
    return transfer(v, "ashlar_readv", REQUEST_READ, iov, iov_count, offset_bytes, flags, error);
}

int ashlar_writev(struct ashlar_volume *v, const struct iovec *iov, int iov_count, uint64_t offset_bytes,
                  unsigned flags, struct ashlar_error *error)
{
    return transfer(v, "ashlar_writev", REQUEST_WRITE, iov, iov_count, offset_bytes, flags, error);
}

int ashlar_read(struct ashlar_volume *v, void *ret_buffer, size_t length_bytes, uint64_t offset_bytes, unsigned flags,
                struct ashlar_error *error)
{
    struct iovec iov = {ret_buffer, length_bytes};
    return transfer(v, "ashlar_read", REQUEST_READ, &iov, 1, offset_bytes, flags, error);
}

/* struct iovec has no const; the engine does not write through that of a write. */
static struct iovec iovec_of(const void *buffer, size_t length_bytes)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = buffer};
    return (struct iovec){pointer.out, length_bytes};
}

int ashlar_write(struct ashlar_volume *v, const void *buffer, size_t length_bytes, uint64_t offset_bytes,
                 unsigned flags, struct ashlar_error *error)
{
    struct iovec iov = iovec_of(buffer, length_bytes);
    return transfer(v, "ashlar_write", REQUEST_WRITE, &iov, 1, offset_bytes, flags, error);
}

int ashlar_flush(struct ashlar_volume *v, unsigned flags, struct ashlar_error *error)
{
    struct error err = {0};
    int r = library_check_io(v, "ashlar_flush", flags, 0, &err);
    if (r < 0)
        return library_error(error, &err);
    return finish(v, REQUEST_FLUSH, 0, 0, volume_flush(v->volume), error);
}

int ashlar_trim(struct ashlar_volume *v, uint64_t length_bytes, uint64_t offset_bytes, unsigned flags,
                struct ashlar_error *error)
{
    struct error err = {0};
    int r = library_check_io(v, "ashlar_trim", flags, ASHLAR_FUA, &err);
    if (r < 0)
        return library_error(error, &err);
    return finish(v, REQUEST_TRIM, offset_bytes, length_bytes,
                  volume_trim(v->volume, offset_bytes, length_bytes, flags), error);
}

int ashlar_zero(struct ashlar_volume *v, uint64_t length_bytes, uint64_t offset_bytes, unsigned flags,
                struct ashlar_error *error)
{
    struct error err = {0};
    int r = library_check_io(v, "ashlar_zero", flags, ASHLAR_FUA | ASHLAR_PROVISION, &err);
    if (r < 0)
        return library_error(error, &err);
    return finish(v, REQUEST_ZERO, offset_bytes, length_bytes,
                  volume_zero(v->volume, offset_bytes, length_bytes, flags), error);
}

int ashlar_extents(struct ashlar_volume *v, uint64_t length_bytes, uint64_t offset_bytes, unsigned flags,
                   struct ashlar_extent *ret_extents, size_t room, size_t *ret_count, struct ashlar_error *error)
{
    struct error err = {0};
    int r = library_check_io(v, "ashlar_extents", flags, 0, &err);
    if (r == 0 && (ret_extents == NULL || ret_count == NULL || room == 0 || room > LIBRARY_EXTENTS_MAX))
        r = error_set(&err, -EINVAL, "ashlar_extents: room for %zu extents; there must be 1 to %d", room,
                      LIBRARY_EXTENTS_MAX);
    if (r < 0)
        return library_error(error, &err);
    struct extent *extents = calloc(room, sizeof(*extents));
    if (extents == NULL)
        return library_fail(error, -ENOMEM, "ashlar_extents: no memory for %zu extents", room);
    size_t count = 0;
    r = volume_extents(v->volume, offset_bytes, length_bytes, extents, room, &count);
    for (size_t i = 0; r == 0 && i < count; i++)
        ret_extents[i] = (struct ashlar_extent){.length_bytes = extents[i].length_bytes, .kind = extents[i].kind};
    free(extents);
    if (r == 0)
        *ret_count = count;
    return finish(v, REQUEST_EXTENTS, offset_bytes, length_bytes, r, error);
}
