/*
 * Entry points for tests only: they make the steps of the background happen one at a time, so that histories can be
 * told in the words of the executable model (write, fua, write-back, seal, flush, trim, checkpoint, evict, reap,
 * crash). Nothing else may use them. They obey pool_options.rules_off like everything else.
 *
 * They may be called from any fiber or thread, like the functions of pool.h, and never fail because there is nothing to
 * do.
 */
#ifndef ASHLAR_POOL_POOL_TEST_H
#define ASHLAR_POOL_POOL_TEST_H

#include <stdint.h>

struct pool;
struct volume;

/*
 * What the write-back by time or need does with one record, first half: if record `index` is in the cache and dirty, it
 * is captured (its bytes as they are now are compressed and gathered for the next chunk) and is *in write-out* until
 * that chunk is sealed. Returns before the chunk is sealed. 0, or negative errno as a write-back would meet it.
 */
int pool_test_write_back(struct pool *pool, struct volume *v, uint64_t index) __attribute__((warn_unused_result));

/*
 * Seals what was gathered, if anything, and hands the chunk to the device, as the write-back's second half does. Does
 * not wait until the device write completed where the caller is a fiber of sim_run or a thread; outside it may.
 */
int pool_test_seal(struct pool *pool) __attribute__((warn_unused_result));

/* Drops record `index` from every tier of the cache if it is clean and not in write-out; map nodes may go as well. */
void pool_test_evict(struct pool *pool, struct volume *v, uint64_t index);

/* Frees now every slot that the rules let go, as a checkpoint's end or a shortage of slots would. Audits the cache. */
void pool_test_reap(struct pool *pool);

#endif
