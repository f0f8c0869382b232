/*
 * Damage met while reading: counted, kept in a ring of the last POOL_DAMAGE_MAX, told as a notice. A record that is
 * read again and again is listed once. A lost map node can make millions of records unreadable: after the first
 * NOTICES_MAX a notice comes only when there are twice as many.
 */
#include "pool/pool_impl.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

#define NOTICES_MAX 32

static bool known(const struct pool *pool, const struct pool_damage *d)
{
    uint64_t kept = min_u64(pool->damage_count, POOL_DAMAGE_MAX);
    for (uint64_t i = 0; i < kept; i++) {
        const struct pool_damage *old = &pool->damage[i];
        if (old->offset_bytes == d->offset_bytes && old->address == d->address && strcmp(old->volume, d->volume) == 0)
            return true;
    }
    return false;
}

void pool_note_damage(struct pool *pool, struct volume *v, uint64_t index, uint64_t address, int error)
{
    struct pool_damage d = {.offset_bytes = index * v->record_bytes,
                            .length_bytes = v->record_bytes,
                            .address = address,
                            .wall_ns = env_wall_ns(pool->env),
                            .error = error};
    env_mutex_lock(&pool->lock);
    memcpy(d.volume, v->name, sizeof d.volume);
    pool->corrupt_reads++;
    v->corrupt_reads++;
    const bool fresh = !known(pool, &d);
    const uint64_t count = pool->damage_count + 1;
    if (fresh)
        pool->damage[pool->damage_count++ % POOL_DAMAGE_MAX] = d;
    env_mutex_unlock(&pool->lock);
    if (fresh && count <= NOTICES_MAX)
        pool_notice(
            pool, "%s: volume %s: %" PRIu64 " bytes at offset %" PRIu64 " cannot be read (log address %" PRIu64 "): %s",
            pool->dev->name, d.volume, d.length_bytes, d.offset_bytes, address,
            error == -EBADMSG ? "does not verify" : strerror(-error));
    else if (fresh && (count & (count - 1)) == 0)
        pool_notice(pool, "%s: %" PRIu64 " records that cannot be read so far: check names them all", pool->dev->name,
                    count);
}

size_t pool_get_damage(struct pool *pool, struct pool_damage *ret_list, size_t room)
{
    env_mutex_lock(&pool->lock);
    size_t count = min_u64(min_u64(pool->damage_count, POOL_DAMAGE_MAX), room);
    uint64_t first = pool->damage_count - count;
    for (size_t i = 0; i < count; i++)
        ret_list[i] = pool->damage[(first + i) % POOL_DAMAGE_MAX];
    env_mutex_unlock(&pool->lock);
    return count;
}
