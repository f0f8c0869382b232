/*
 * What the log's parts need to know of a pool: fixed from create on, but for the incarnation, which each open for
 * writing draws anew. Immutable while the pool is open.
 */
#ifndef ASHLAR_LOG_GEOMETRY_H
#define ASHLAR_LOG_GEOMETRY_H

#include <stdint.h>

struct geometry {
    uint8_t pool_uuid[16];
    uint64_t incarnation;
    uint64_t device_bytes;
    uint64_t data_start_bytes;
    uint32_t write_unit_bytes;
    uint32_t segment_bytes;
    uint32_t slot_count;
    uint32_t lookahead_count;
    unsigned rules_off; /* enum pool_rule_off; 0 but in tests that show what a rule is for */
};

/* A segment and where it lies. */
struct placed_segment {
    uint64_t segment;
    uint32_t slot;
};

/* Issues segment numbers to all heads. Guarded by the pool lock. */
struct segment_numbers {
    uint64_t next;
};

#endif
