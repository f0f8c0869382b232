/*
 * The first write of an open pool.
 *
 * A pool that is only read is not written. Before the first chunk of this open is sealed:
 *
 *     after a clean close  a label without LABEL_CLEAN, under the new incarnation, same roots: if we crash, the next
 *                          open knows that something may have been issued behind the replay start. The log goes on in
 *                          place.
 *     after a crash        a device flush, so that what was replayed is durable; noise over what a torn chunk may have
 *                          left where the log ends, flushed; then a bridge chunk there, in the old chain, under the
 *                          new incarnation, naming a fresh segment whose number skips more than all heads can have
 *                          opened since the checkpoint; flushed.
 *
 * So no address is ever issued twice, and an older label with a longer replay comes to the same state (R15). If the log
 * ends at the start of a segment that a bridge leads to, and nothing was ever written there, that segment serves again:
 * crashing in recovery any number of times takes no more slots than once.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "log/label_ring.h"
#include "log/rules.h"

static int write_opening_label(struct pool *pool)
{
    struct label l = pool->label;
    l.sequence++;
    l.flags &= ~(uint32_t)LABEL_CLEAN;
    l.incarnation = pool->geometry.incarnation;
    l.written_wall_ns = env_wall_ns(pool->env);
    int result = label_ring_write(pool->dev, &l);
    if (result == 0)
        pool->label = l;
    return result;
}

/* The lookahead of the crashed run: whatever its slots hold, nobody refers to it. */
static void return_next(struct pool *pool)
{
    struct data_head *h = &pool->data;
    for (uint32_t i = 0; i < h->next_count; i++)
        slots_return(&pool->slots, h->next[i].slot, false, pool->checkpoint);
    h->next_count = 0;
}

static int write_bridge(struct data_head *h)
{
    struct log_chunk *chunk;
    int result = data_head_seal_bridge(h, h->next[0], &chunk);
    if (result != 0)
        return result;
    result = data_head_write(h, &chunk, 1, true);
    env_mutex_lock(h->lock);
    log_chunk_free(chunk);
    env_mutex_unlock(h->lock);
    return result;
}

/* What lies where the log ends may be a torn chunk that lacks a few bytes, and a torn bridge over it may bring just
 * these: the chunk would come alive although it was shown that it is gone. Noise there, made durable first. */
static int blot_out(struct data_head *h)
{
    uint32_t bytes = 2 * h->geometry->write_unit_bytes;
    uint8_t *noise = device_buffer_new(bytes);
    if (noise == NULL)
        return -ENOMEM;
    env_random(h->dev->env, noise, bytes);
    struct iovec iov = {.iov_base = noise, .iov_len = bytes};
    struct device_io ios[2] = {{.kind = DEVICE_WRITE,
                                .offset_bytes = slots_device_offset(h->slots, h->at.slot, h->position_bytes),
                                .length_bytes = bytes,
                                .iov = &iov,
                                .iov_count = 1},
                               {.kind = DEVICE_FLUSH, .after_previous = true}};
    int result = device_run(h->dev, ios, 2);
    device_buffer_free(noise);
    if (result == 0)
        return 0;
    env_mutex_lock(h->lock);
    data_head_fail(h);
    env_mutex_unlock(h->lock);
    return -EIO;
}

static int cross_over(struct pool *pool)
{
    struct data_head *h = &pool->data;
    env_mutex_lock(&pool->lock);
    return_next(pool);
    env_mutex_unlock(&pool->lock);
    int result = data_head_refill_to(h, 1, pool->checkpoint);
    /* What was replayed is made durable first, so that the bridge says so of the chunk before it. */
    env_mutex_lock(&pool->lock);
    if (result == 0)
        result = data_head_wait_durable(h, h->sealed_to);
    env_mutex_unlock(&pool->lock);
    if (result == 0)
        result = blot_out(h);
    if (result == 0)
        result = write_bridge(h);
    if (result != 0)
        return result;
    env_mutex_lock(&pool->lock);
    result = data_head_advance(h, pool->checkpoint);
    env_mutex_unlock(&pool->lock);
    return result;
}

/* Nothing was ever written where the log ends, and a bridge leads there: it needs no second one. */
static bool at_unused_bridgehead(const struct pool *pool)
{
    return pool->replayed.after_bridge && pool->replayed.position_bytes == 0 && !pool->replayed.traces_beyond;
}

int pool_begin_writing(struct pool *pool)
{
    if (pool->writing)
        return 0;
    int result = 0;
    env_mutex_lock(&pool->lock);
    if (!pool->was_clean)
        pool->numbers.next +=
            4 * (uint64_t)pool->geometry.slot_count; /* past all that the crashed run can have issued */
    env_mutex_unlock(&pool->lock);
    if (pool->was_clean)
        result = write_opening_label(pool);
    else if (!at_unused_bridgehead(pool) && (pool->geometry.rules_off & RULE_OFF_BRIDGE) == 0)
        result = cross_over(pool);
    if (result == 0)
        result = data_head_refill(&pool->data, pool->checkpoint);
    /* A node segment left half full by a crash is not gone on with: what was written behind the label is unknown. */
    pool->writing = result == 0;
    return result;
}
