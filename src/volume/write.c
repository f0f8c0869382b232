/*
 * Writing: into the cache, record by record; with FUA the records become urgent and the caller waits until they are
 * durable.
 *
 * The client's bytes are copied once, under the lock; what is compressed and hashed later is that copy. A piece that
 * covers a sector only in part needs the sector's old content, and the record is read for it; whole sectors need
 * nothing.
 */
#include "volume/access.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

/* The iovecs of a request, from request_offset_bytes on, into memory. iov NULL: zeroes. */
static void iov_copy_in(const struct iovec *iov, int iov_count, uint64_t request_offset_bytes, uint8_t *to,
                        uint64_t length_bytes)
{
    if (iov == NULL) {
        memset(to, 0, length_bytes);
        return;
    }
    for (int i = 0; i < iov_count && length_bytes > 0; i++) {
        if (request_offset_bytes >= iov[i].iov_len) {
            request_offset_bytes -= iov[i].iov_len;
            continue;
        }
        size_t n = min_u64(length_bytes, iov[i].iov_len - request_offset_bytes);
        memcpy(to, (const uint8_t *)iov[i].iov_base + request_offset_bytes, n);
        to += n;
        length_bytes -= n;
        request_offset_bytes = 0;
    }
    CHECK_EQ(length_bytes, 0);
}

/* The record, pinned and not filling; created if it is not in memory. NULL: no memory. Lock held, may be released. */
static struct record *get_record(struct volume *v, uint64_t index)
{
    struct pool *pool = v->pool;
    for (;;) {
        struct record *r = cache_find(&pool->cache, v->branch, index);
        if (r == NULL)
            return cache_create(&pool->cache, v->branch, index, v->record_bytes, v);
        cache_pin(&pool->cache, r);
        if (!r->filling)
            return r;
        pool_wait_filled(pool, r);
        if (r->in_table && !r->filling)
            return r;
        cache_unpin(&pool->cache, r);
    }
}

static int fill_one(struct pool *pool, struct record *r)
{
    r->filling = true;
    env_mutex_unlock(&pool->lock);
    int result = pool_fill(pool, &r, 1);
    env_mutex_lock(&pool->lock);
    return result;
}

/* A sector that the piece covers in part and whose old content is not in memory. */
static bool lacks_edge(const struct record *r, const struct piece *p)
{
    uint32_t first, count;
    piece_sectors(p, &first, &count);
    bool head = p->offset_bytes % SECTOR_BYTES != 0;
    bool tail = (p->offset_bytes + p->length_bytes) % SECTOR_BYTES != 0;
    return (head && !bitmap_test(r->valid, first)) || (tail && !bitmap_test(r->valid, first + count - 1));
}

/* Space for a record about to become dirty. A provisioned one has its own, set aside long ago. Lock held, may be
 * released. */
static int reserve_for(struct volume *v, uint64_t index)
{
    struct pool *pool = v->pool;
    uint64_t bytes = record_reserve_bytes(v->record_bytes), count;
    int result = pool_reserve(pool, bytes, false);
    if (result != -ENOSPC)
        return result;
    enum map_class class;
    if (volume_classify(v, index, 1, &class, &count) != 0 || class != MAP_PROVISIONED)
        return -ENOSPC;
    pool->reserved_bytes += bytes;
    return 0;
}

static int copy_piece_in(struct volume *v, struct record *r, const struct piece *p, const struct iovec *iov,
                         int iov_count, unsigned flags)
{
    struct pool *pool = v->pool;
    uint32_t first, count;
    bool was_dirty = record_is_dirty(r);
    piece_sectors(p, &first, &count);
    if (record_write(&pool->cache, r, first, count) == NULL)
        return -ENOMEM;
    iov_copy_in(iov, iov_count, p->request_offset_bytes, r->buffer->bytes + p->offset_bytes, p->length_bytes);
    if (!was_dirty) {
        r->dirty_at = ++pool->clock;
        list_append(&v->dirty, &r->dirty_link);
        pool_kick_keeper(pool);
    }
    if ((flags & VOLUME_PROVISION) != 0)
        r->provision = true;
    else if (iov != NULL)
        r->provision = false;
    if ((flags & VOLUME_FUA) != 0)
        record_make_urgent(pool, r);
    return 0;
}

/* One try. -EAGAIN: the lock was let go of and things may have changed. */
static int try_write_piece(struct volume *v, const struct piece *p, const struct iovec *iov, int iov_count,
                           unsigned flags, uint64_t *reserved)
{
    struct pool *pool = v->pool;
    struct record *r = get_record(v, p->index);
    if (r == NULL)
        return -ENOMEM;
    int result = 0;
    if (lacks_edge(r, p)) {
        result = fill_one(pool, r);
        if (result == 0 && r->in_table && lacks_edge(r, p) && !r->filling)
            result = -EIO; /* the old content of a sector that is to be changed in part is lost */
        else if (result == 0)
            result = -EAGAIN;
    } else if (!record_is_dirty(r) && *reserved == 0) {
        result = reserve_for(v, p->index);
        if (result == 0) {
            *reserved = record_reserve_bytes(v->record_bytes);
            result = -EAGAIN;
        }
    } else {
        bool was_dirty = record_is_dirty(r);
        result = copy_piece_in(v, r, p, iov, iov_count, flags);
        if (result == 0 && !was_dirty) {
            r->reserved_bytes = *reserved;
            *reserved = 0;
        }
    }
    cache_unpin(&pool->cache, r);
    return result;
}

int volume_write_piece(struct volume *v, const struct piece *p, const struct iovec *iov, int iov_count, unsigned flags)
{
    struct pool *pool = v->pool;
    uint64_t reserved = 0;
    int result = pool_throttle(pool);
    while (result == 0) {
        result = pool_writable(pool);
        if (result == 0 && p->index >= volume_record_count(v))
            result = -EINVAL; /* shrunk meanwhile */
        if (result == 0)
            result = try_write_piece(v, p, iov, iov_count, flags, &reserved);
        if (result == 0)
            break;
        if (result == -EAGAIN)
            result = 0;
    }
    pool_unreserve(pool, reserved);
    cache_evict(&pool->cache);
    return result;
}

int volume_writev(struct volume *v, uint64_t offset_bytes, const struct iovec *iov, int iov_count, unsigned flags)
{
    struct pool *pool = v->pool;
    uint64_t length = iov_bytes(iov, iov_count);
    env_mutex_lock(&pool->lock);
    int result = pool_writable(pool);
    if (result == 0 && !range_inside(offset_bytes, length, v->size_bytes))
        result = -EINVAL;
    for (uint64_t done = 0; done < length && result == 0;) {
        struct piece p = piece_at(v, offset_bytes, length, done);
        result = volume_write_piece(v, &p, iov, iov_count, flags & VOLUME_FUA);
        done += p.length_bytes;
    }
    if (result == 0) {
        v->write_count++;
        v->write_bytes += length;
    }
    if (result == 0 && (flags & VOLUME_FUA) != 0)
        result = pool_sync(pool, pool->clock);
    env_mutex_unlock(&pool->lock);
    return result;
}

int volume_write(struct volume *v, uint64_t offset_bytes, const void *buf, uint64_t length_bytes, unsigned flags)
{
    /* The engine only reads what a write's iovec names. */
    union {
        const void *from;
        void *base;
    } u = {.from = buf};
    struct iovec iov = {.iov_base = u.base, .iov_len = length_bytes};
    return volume_writev(v, offset_bytes, &iov, 1, flags);
}

int volume_flush(struct volume *v)
{
    struct pool *pool = v->pool;
    env_mutex_lock(&pool->lock);
    int result = pool->data.failed ? -EIO : 0;
    if (result == 0 && !pool->read_only)
        result = pool_sync_volume(pool, v);
    v->flush_count++;
    env_mutex_unlock(&pool->lock);
    return result;
}
