/*
 * The oracle's insides, shared by oracle.c (events and state) and oracle_judge.c (answers). Nobody else includes this.
 *
 * Time is the number of events applied. An operation that ended at time e is *before* one that began at time b if e <
 * b; two of which neither is before the other overlap. A version is the value an operation gave a sector. Invariants:
 *
 * 1. A sector's list holds exactly the versions that may be there after a power cut now: a version leaves it when
 *    a durable one is known to come after it.
 * 2. Every list holds at least one durable version (at first that of operation 0, the making of the volume).
 * 3. version.start is at least its operation's start; a read that showed the version moves it up to the read's own
 *    beginning, because whatever ended before the read and was not seen took effect earlier.
 */
#ifndef ASHLAR_TESTS_MODEL_ORACLE_IMPL_H
#define ASHLAR_TESTS_MODEL_ORACLE_IMPL_H

#include "model/oracle.h"

#define TIME_NEVER UINT32_MAX

struct operation {
    uint8_t kind; /* enum oracle_kind */
    uint8_t volume;
    bool fua;    /* durable when it ends */
    bool failed; /* it may have happened; never hides or outlives anything */
    bool durable;
    uint32_t start, end; /* end TIME_NEVER: under way */
    uint64_t first, count;
};

struct version {
    uint64_t value;
    uint32_t start;
    uint32_t operation;
};

/* A version that is gone from the list because a later one became durable: a read that began before may have shown it.
 */
struct past_version {
    uint64_t value;
    uint32_t until; /* reads that began by then may show it */
};
#define PAST_VERSIONS 4

struct sector {
    struct past_version past[PAST_VERSIONS]; /* the last few, round and round */
    uint32_t past_count;
    struct version *list;
    uint32_t count, room;
};

enum pending_kind { PENDING_NONE, PENDING_CREATE, PENDING_DESTROY, PENDING_RENAME, PENDING_RESIZE };

struct oracle_volume {
    bool exists;
    enum pending_kind pending; /* a change that may or may not have happened */
    char name[ORACLE_NAME_BYTES], new_name[ORACLE_NAME_BYTES];
    uint64_t size_bytes, new_size_bytes;
    uint32_t record_bytes;
    struct sector *sectors; /* as many as any size so far needed */
    uint64_t sector_count;
};

enum event_kind { EVENT_BEGIN, EVENT_END, EVENT_SEEN, EVENT_REBASE };

struct event {
    enum event_kind kind;
    struct oracle_args args; /* BEGIN; volume, first, count also for SEEN; volume, name, size, record for REBASE */
    bool has_values, found;
    size_t values; /* index into oracle.values of the args' values */
    unsigned operation;
    int result;
    uint64_t began;
    char name[ORACLE_NAME_BYTES];
};

struct oracle {
    struct oracle_volume volumes[ORACLE_VOLUMES];
    struct operation *operations;
    size_t operation_count, operation_room;
    uint32_t *undurable; /* operations that ended well and are not yet durable */
    size_t undurable_count, undurable_room;
    uint32_t now;
    struct event *events;
    size_t event_count, event_room;
    uint64_t *values;
    size_t value_count, value_room;
    uint64_t undecided;
};

static inline bool version_before(const struct oracle *o, const struct version *a, const struct version *b)
{
    return o->operations[a->operation].end < b->start;
}

#endif
