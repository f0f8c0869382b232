/*
 * Reading. What memory has is copied under the lock; what it lacks is read for up to RECORDS_AT_ONCE records together.
 * A record that reads as zeroes and is not in memory is not brought into it.
 */
#include "volume/access.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

#define RECORDS_AT_ONCE 64

struct read_state {
    struct volume *v;
    uint64_t offset_bytes, length_bytes;
    const struct iovec *iov;
    int iov_count;
    uint64_t zero_first, zero_end; /* records known to be zero below the cache, as of the last look */
};

/* true if what the record holds may be given out: not on a failed pool unless it was durable. Lock held. */
static bool record_readable(const struct pool *pool, const struct record *r)
{
    return !pool->data.failed || (!record_is_dirty(r) && r->sealed_in <= pool->data.durable_to);
}

/* Memory into the iovecs of a request, from request_offset_bytes on. from NULL: zeroes. */
static void iov_copy_out(const struct iovec *iov, int iov_count, uint64_t request_offset_bytes, const uint8_t *from,
                         uint64_t length_bytes)
{
    for (int i = 0; i < iov_count && length_bytes > 0; i++) {
        if (request_offset_bytes >= iov[i].iov_len) {
            request_offset_bytes -= iov[i].iov_len;
            continue;
        }
        size_t n = min_u64(length_bytes, iov[i].iov_len - request_offset_bytes);
        uint8_t *to = (uint8_t *)iov[i].iov_base + request_offset_bytes;
        if (from != NULL)
            memcpy(to, from, n);
        else
            memset(to, 0, n);
        from = from == NULL ? NULL : from + n;
        length_bytes -= n;
        request_offset_bytes = 0;
    }
    CHECK_EQ(length_bytes, 0);
}

uint64_t iov_bytes(const struct iovec *iov, int iov_count)
{
    uint64_t sum = 0;
    for (int i = 0; i < iov_count; i++)
        sum += iov[i].iov_len;
    return sum;
}

/* Copies a piece out of a record in memory. 0, -EIO (lost sectors, or not durable on a failed pool), -EAGAIN (not all
 * is there). */
static int copy_piece(struct read_state *s, const struct piece *p, struct record *r)
{
    uint32_t first, count;
    piece_sectors(p, &first, &count);
    if (r->filling)
        return -EAGAIN;
    if (!record_readable(s->v->pool, r))
        return -EIO;
    if (bitmap_all_set(r->valid, first, count)) {
        iov_copy_out(s->iov, s->iov_count, p->request_offset_bytes, r->buffer->bytes + p->offset_bytes,
                     p->length_bytes);
        return 0;
    }
    return bitmap_none_set(r->lost, first, count) ? -EAGAIN : -EIO;
}

/* A record that is not in memory: zeroes, if that is what the map says. Lock held, may be released. 0 done, -EAGAIN not
 * so, errors. */
static int try_zero(struct read_state *s, const struct piece *p)
{
    struct volume *v = s->v;
    if (p->index < s->zero_first || p->index >= s->zero_end) {
        uint64_t last = (s->offset_bytes + s->length_bytes - 1) / v->record_bytes, count;
        enum map_class class;
        int result = volume_classify(v, p->index, last - p->index + 1, &class, &count);
        /* Damage on the way is found, and told, by the fill. */
        if (result != 0 || class == MAP_DATA)
            return -EAGAIN;
        s->zero_first = p->index;
        s->zero_end = p->index + count;
        if (cache_find(&v->pool->cache, v->branch, p->index) != NULL)
            return -EAGAIN;
    }
    iov_copy_out(s->iov, s->iov_count, p->request_offset_bytes, NULL, p->length_bytes);
    return 0;
}

/* Waits for records of the window that somebody else is reading. Nothing of ours is marked yet. */
static void wait_for_others(struct read_state *s, const struct piece *pieces, uint32_t count)
{
    struct pool *pool = s->v->pool;
    for (uint32_t i = 0; i < count; i++) {
        struct record *r = cache_find(&pool->cache, s->v->branch, pieces[i].index);
        if (r == NULL || !r->filling)
            continue;
        cache_pin(&pool->cache, r);
        pool_wait_filled(pool, r);
        cache_unpin(&pool->cache, r);
    }
}

struct missing {
    struct record *records[RECORDS_AT_ONCE];
    struct piece pieces[RECORDS_AT_ONCE];
    uint32_t count;
};

/* Copies what is there, collects what is not: those records are pinned and marked. */
static int look(struct read_state *s, struct piece *pieces, uint32_t *count, struct missing *m)
{
    struct volume *v = s->v;
    struct pool *pool = v->pool;
    uint32_t left = 0;
    m->count = 0;
    for (uint32_t i = 0; i < *count; i++) {
        struct record *r = cache_find(&pool->cache, v->branch, pieces[i].index);
        int result = -EAGAIN;
        /* The look for zeroes may let go of the lock, which marked records of ours forbid: only before the first. */
        if (r == NULL && m->count == 0)
            result = try_zero(s, &pieces[i]);
        if (result == -EAGAIN) {
            r = cache_find(&pool->cache, v->branch, pieces[i].index);
            result = r == NULL ? -EAGAIN : copy_piece(s, &pieces[i], r);
        }
        if (result == 0)
            continue;
        if (result != -EAGAIN)
            return result;
        if (r != NULL && r->filling) {
            pieces[left++] = pieces[i]; /* somebody else's by now: next round */
            continue;
        }
        if (r != NULL)
            cache_pin(&pool->cache, r);
        else
            r = cache_create(&pool->cache, v->branch, pieces[i].index, v->record_bytes, v);
        if (r == NULL)
            return -ENOMEM;
        r->filling = true;
        pool->cache.misses++;
        m->records[m->count] = r;
        m->pieces[m->count++] = pieces[i];
    }
    *count = left;
    return 0;
}

/* Reads the missing ones and copies their pieces. Lock held, released meanwhile. */
static int fetch(struct read_state *s, struct missing *m)
{
    struct pool *pool = s->v->pool;
    env_mutex_unlock(&pool->lock);
    int result = pool_fill(pool, m->records, m->count);
    env_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < m->count; i++) {
        struct record *r = m->records[i];
        int copied = result;
        /* Somebody may be filling it again for other sectors; what we need of it is valid or lost all the same. */
        if (copied == 0) {
            uint32_t first, count;
            piece_sectors(&m->pieces[i], &first, &count);
            if (!record_readable(pool, r) || !bitmap_all_set(r->valid, first, count))
                copied = -EIO;
            else
                iov_copy_out(s->iov, s->iov_count, m->pieces[i].request_offset_bytes,
                             r->buffer->bytes + m->pieces[i].offset_bytes, m->pieces[i].length_bytes);
        }
        if (copied != 0 && result == 0)
            result = copied;
        cache_unpin(&pool->cache, r);
    }
    cache_evict(&pool->cache);
    return result;
}

static void unmark(struct pool *pool, struct missing *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        m->records[i]->filling = false;
        cache_unpin(&pool->cache, m->records[i]);
    }
    env_cond_broadcast(&pool->cache_cond);
}

static int read_window(struct read_state *s, struct piece *pieces, uint32_t count)
{
    struct missing m;
    while (count > 0) {
        wait_for_others(s, pieces, count);
        int result = look(s, pieces, &count, &m);
        if (result != 0) {
            unmark(s->v->pool, &m);
            return result;
        }
        if (m.count > 0)
            result = fetch(s, &m);
        if (result != 0)
            return result;
    }
    return 0;
}

int volume_readv(struct volume *v, uint64_t offset_bytes, const struct iovec *iov, int iov_count)
{
    struct pool *pool = v->pool;
    struct read_state s = {.v = v, .offset_bytes = offset_bytes, .iov = iov, .iov_count = iov_count};
    struct piece pieces[RECORDS_AT_ONCE];
    int result = 0;
    s.length_bytes = iov_bytes(iov, iov_count);
    env_mutex_lock(&pool->lock);
    if (!range_inside(offset_bytes, s.length_bytes, v->size_bytes))
        result = -EINVAL;
    for (uint64_t done = 0; done < s.length_bytes && result == 0;) {
        uint32_t count = 0;
        while (count < RECORDS_AT_ONCE && done < s.length_bytes) {
            pieces[count] = piece_at(v, offset_bytes, s.length_bytes, done);
            done += pieces[count++].length_bytes;
        }
        result = read_window(&s, pieces, count);
    }
    if (result == 0) {
        v->read_count++;
        v->read_bytes += s.length_bytes;
    }
    env_mutex_unlock(&pool->lock);
    return result;
}

int volume_read(struct volume *v, uint64_t offset_bytes, void *ret_buf, uint64_t length_bytes)
{
    struct iovec iov = {.iov_base = ret_buf, .iov_len = length_bytes};
    return volume_readv(v, offset_bytes, &iov, 1);
}

int volume_prefetch(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes)
{
    struct pool *pool = v->pool;
    struct missing m = {.count = 0};
    int result = 0;
    env_mutex_lock(&pool->lock);
    if (!range_inside(offset_bytes, length_bytes, v->size_bytes))
        result = -EINVAL;
    /* A hint: one window of it, nothing that is there already or under way. */
    for (uint64_t done = 0; done < length_bytes && result == 0 && m.count < RECORDS_AT_ONCE;) {
        struct piece p = piece_at(v, offset_bytes, length_bytes, done);
        done += p.length_bytes;
        if (cache_find(&pool->cache, v->branch, p.index) != NULL)
            continue;
        struct record *r = cache_create(&pool->cache, v->branch, p.index, v->record_bytes, v);
        if (r == NULL)
            break;
        r->filling = true;
        m.records[m.count++] = r;
    }
    if (m.count > 0) {
        env_mutex_unlock(&pool->lock);
        (void)!pool_fill(pool, m.records, m.count); /* a hint does not fail */
        env_mutex_lock(&pool->lock);
        for (uint32_t i = 0; i < m.count; i++)
            cache_unpin(&pool->cache, m.records[i]);
        cache_evict(&pool->cache);
    }
    env_mutex_unlock(&pool->lock);
    return result;
}
