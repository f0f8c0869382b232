/*
 * Extents: data, hole, provisioned. What is only in memory counts as data until it is in the map; then the map decides,
 * and a record of zeroes is a hole.
 */
#include "volume/access.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/math.h"

#define STEPS_MAX 65536

/* Indices of records in [first, end) whose newest content is in memory only, sorted; then one past the last. */
struct unsealed {
    uint64_t *indices;
    size_t count, at;
};

static bool is_unsealed(const struct record *r)
{
    return record_is_dirty(r) || r->sealed_in == UINT64_MAX;
}

static int compare_indices(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

static int collect_unsealed(const struct volume *v, uint64_t first, uint64_t end, struct unsealed *u)
{
    const struct cache *c = &v->pool->cache;
    size_t room = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i <= c->bucket_mask; i++) {
            for (const struct record *r = c->buckets[i]; r != NULL; r = r->hash_next) {
                if (r->branch != v->branch || r->index < first || r->index >= end || !is_unsealed(r))
                    continue;
                if (pass == 0)
                    room++;
                else
                    u->indices[u->count++] = r->index;
            }
        }
        if (pass == 0) {
            u->indices = malloc((room + 1) * sizeof *u->indices);
            if (u->indices == NULL)
                return -ENOMEM;
        }
    }
    qsort(u->indices, u->count, sizeof *u->indices, compare_indices);
    return 0;
}

/* One record, or a run of them: its kind and how many. Lock held, may be released. */
static int run_at(struct volume *v, struct unsealed *u, uint64_t index, uint64_t limit, enum extent_kind *ret_kind,
                  uint64_t *ret_count)
{
    enum map_class class;
    while (u->at < u->count && u->indices[u->at] < index)
        u->at++;
    if (u->at < u->count && u->indices[u->at] == index) {
        *ret_kind = EXTENT_DATA;
        *ret_count = 1;
        return 0;
    }
    if (u->at < u->count)
        limit = min_u64(limit, u->indices[u->at] - index);
    int result = volume_classify(v, index, limit, &class, ret_count);
    if (result != 0) {
        /* A map that cannot be read is damage, not a hole: reading it will say so. */
        *ret_kind = EXTENT_DATA;
        *ret_count = 1;
        return result == -EBADMSG ? 0 : result;
    }
    *ret_kind = class == MAP_ZERO ? EXTENT_HOLE : class == MAP_PROVISIONED ? EXTENT_PROVISIONED : EXTENT_DATA;
    return 0;
}

struct extent_list {
    struct extent *extents;
    size_t room, count;
};

/* false: no room for another one. */
static bool add_extent(struct extent_list *list, enum extent_kind kind, uint64_t length_bytes)
{
    if (list->count > 0 && list->extents[list->count - 1].kind == kind) {
        list->extents[list->count - 1].length_bytes += length_bytes;
        return true;
    }
    if (list->count == list->room)
        return false;
    list->extents[list->count++] = (struct extent){.length_bytes = length_bytes, .kind = kind};
    return true;
}

static int walk(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, struct unsealed *u,
                struct extent_list *list)
{
    uint64_t end = offset_bytes + length_bytes, end_index = div_ceil(end, v->record_bytes);
    uint64_t at = offset_bytes;
    for (int step = 0; at < end && step < STEPS_MAX; step++) {
        uint64_t index = at / v->record_bytes, count;
        enum extent_kind kind;
        int result = run_at(v, u, index, end_index - index, &kind, &count);
        if (result != 0)
            return result;
        uint64_t stop = min_u64((index + count) * v->record_bytes, end);
        if (!add_extent(list, kind, stop - at))
            break;
        at = stop;
    }
    return 0;
}

int volume_extents(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, struct extent *ret_extents,
                   size_t room, size_t *ret_count)
{
    struct pool *pool = v->pool;
    struct unsealed u = {0};
    struct extent_list list = {.extents = ret_extents, .room = room};
    int result = -EINVAL;
    env_mutex_lock(&pool->lock);
    if (room > 0 && length_bytes > 0 && range_inside(offset_bytes, length_bytes, v->size_bytes)) {
        uint64_t epoch = pool_reader_enter(pool);
        result = collect_unsealed(v, offset_bytes / v->record_bytes,
                                  div_ceil(offset_bytes + length_bytes, v->record_bytes), &u);
        if (result == 0)
            result = walk(v, offset_bytes, length_bytes, &u, &list);
        pool_reader_leave(pool, epoch);
        env_cond_broadcast(&pool->cache_cond);
    }
    env_mutex_unlock(&pool->lock);
    free(u.indices);
    if (result == 0)
        *ret_count = list.count;
    return result;
}
