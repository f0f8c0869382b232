/*
 * The workload whose every device step is a crash point: client operations on a small pool, driven and compared by the
 * driver, watched by an oracle.
 */
#ifndef ASHLAR_TESTS_CRASH_WORKLOAD_H
#define ASHLAR_TESTS_CRASH_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "crash/points.h"
#include "model/history.h"
#include "model/store_pool.h"

struct workload {
    struct store_pool_options options;
    struct profile profile;
    struct history history;
    struct store *store;
    struct oracle *oracle;
    struct points points;
    struct history_stats stats;
    uint64_t checkpoints; /* made by it */
};

void workload_make(struct workload *w, uint64_t seed, size_t operations);
/* Runs it; points are gathered in w->points. false: an answer was wrong; the reason is added to why. */
bool workload_run(struct workload *w, struct text *why);
void workload_free(struct workload *w);
uint64_t workload_operations(const struct workload *w);

#endif
