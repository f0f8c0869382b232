/*
 * A back-end for the NBD server that keeps its exports in memory, for tests: it carries requests out in the submitting
 * thread or in threads of its own, in any order, late, wrongly or not at all, as the test wants it, and counts.
 */
#ifndef ASHLAR_TESTS_INTEROP_MEMORY_EXPORTS_H
#define ASHLAR_TESTS_INTEROP_MEMORY_EXPORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "front/nbd/export.h"
#include "queue/queue.h"

struct env;
struct memory_exports;

#define MEMORY_KINDS (REQUEST_EXTENTS + 1)
#define MEMORY_BLOCK_BYTES 4096 /* holes are made of these */

struct memory_options {
    unsigned thread_count;  /* 0: requests are done in submit */
    uint64_t delay_ns_max;  /* each request waits up to this long, in its thread */
    uint64_t open_delay_ns; /* list and open take so long */
    uint64_t seed;          /* of order and delays */
    bool runs;              /* offers export_ops.run: also carries out in the thread of the caller */
};

struct memory_exports *memory_exports_new(struct env *env, const struct memory_options *options);
/* Everything has completed and is closed. */
void memory_exports_free(struct memory_exports *m);
const struct export_ops *memory_export_ops(void);
/* The ones that the options ask for. */
const struct export_ops *memory_exports_ops_of(const struct memory_exports *m);

/* A further export, all holes; before the server starts. Names in order. */
void memory_exports_add(struct memory_exports *m, const char *name, uint64_t size_bytes, bool read_only);
/* From now on. */
void memory_exports_resize(struct memory_exports *m, const char *name, uint64_t size_bytes);
/* The content of export number i: for when nothing is under way. */
uint8_t *memory_exports_bytes(struct memory_exports *m, unsigned i);

/* The next `count` requests of that kind which touch [offset, offset + length) fail with -error (FLUSH always touches).
 */
void memory_exports_fail(struct memory_exports *m, enum request_kind kind, int error, uint64_t offset, uint64_t length,
                         unsigned count);
/* While held, requests wait (thread_count > 0 only). */
void memory_exports_hold(struct memory_exports *m, bool hold);
/* While held, requests that are run in the caller's thread wait in it. */
void memory_exports_hold_runs(struct memory_exports *m, bool hold);
/* Extents of a lying engine: true: the next EXTENTS answers reach past the request, are empty, and do not merge. */
void memory_exports_lie(struct memory_exports *m, bool lie);

struct memory_counts {
    uint64_t requests[MEMORY_KINDS]; /* submitted */
    uint64_t fua, provision;         /* of them with the flag */
    uint64_t runs;                   /* of them in the thread of the caller */
    unsigned running;                /* now */
    uint64_t opens, closes, lists;
    unsigned waiting; /* submitted, not completed */
    uint64_t length_bytes_max;
    int iov_count_max;
};
void memory_exports_get_counts(struct memory_exports *m, struct memory_counts *ret_counts);

#endif
