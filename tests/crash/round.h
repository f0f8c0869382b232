/*
 * A round: several clients in fibers work on the same few records at once, the background writes back beside them, the
 * power is cut at random device steps. Every read is judged while it runs, every cut afterwards.
 */
#ifndef ASHLAR_TESTS_CRASH_ROUND_H
#define ASHLAR_TESTS_CRASH_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "crash/judge.h"
#include "model/store_pool.h"

/* A fault that breaks the device's word: then every answer may also be EIO, but never other bytes. */
enum round_fault { FAULT_NONE, FAULT_LOSE_WRITE, FAULT_MISDIRECT_WRITE, FAULT_ROT };

struct round {
    uint64_t seed;
    struct store_pool_options options;
    unsigned client_count, operations; /* operations of each client */
    unsigned points_max, point_per_mille;
    unsigned losses_each; /* losses tried at each point; 0: all */
    bool poke;            /* a fiber that writes back, seals, evicts and reaps at random */
    unsigned nested_one_in;
    enum round_fault fault;
    uint64_t fault_nth;          /* the write it meets; for ROT, the device step before which it happens */
    uint64_t fault_offset_bytes; /* where the write lands; for ROT, the dice for what rots */
};

struct round_stats {
    uint64_t rounds, operations, points, openings, nested_points;
    uint64_t device_flushes, durable_requests; /* flushes and FUA requests of clients */
    uint64_t device_writes, device_steps;
    uint64_t intact, lossy, repaired, refused; /* with a fault: what the pool was like when it was opened afterwards */
    uint64_t errors;                           /* answers of EIO to clients */
};

/* The usual choice for a seed. */
void round_make(struct round *r, uint64_t seed);
/* true: everything was right; otherwise the reason is added to why. ret_trace, if not NULL, gets the trace hash of the
 * round and of all openings after its cuts. */
bool round_run(const struct round *r, struct round_stats *stats, uint64_t *ret_trace, struct text *why);

#endif
