/*
 * An episode: a small pool, volumes of several record sizes and a mix of operations, all chosen by a seed, and a
 * history on it. The default test runs a fixed number of operations in episodes, the soak test as many as there is time
 * for.
 */
#ifndef ASHLAR_TESTS_MODEL_EPISODE_H
#define ASHLAR_TESTS_MODEL_EPISODE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/history.h"
#include "model/store_pool.h"

struct episode {
    uint64_t seed;
    struct profile profile;
    struct store_pool_options options;
    size_t operations;
};

/* with_crashes: power cuts happen in it, judged by the oracle; otherwise the pool is only closed and opened. */
void episode_make(struct episode *e, uint64_t seed, bool with_crashes);

/* true: every answer was right. Otherwise the shortened history has been printed. ret_trace, if not NULL, gets the
 * simulation's trace hash. */
bool episode_run(const struct episode *e, struct history_stats *stats, uint64_t *ret_trace);

#endif
