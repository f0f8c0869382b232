/*
 * A history: a list of operations on a store, made from a seed, run against a plain array, and made shorter when it
 * fails.
 *
 * Operations carry raw random numbers and are fitted to what is there when they run (an offset modulo the size of the
 * volume, a volume that does not exist skips its operation), so any part of a history is a history too.
 */
#ifndef ASHLAR_TESTS_MODEL_HISTORY_H
#define ASHLAR_TESTS_MODEL_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "model/store.h"

enum op_kind {
    OP_WRITE,
    OP_READ,
    OP_FLUSH,
    OP_FLUSH_ALL,
    OP_TRIM,
    OP_ZERO,
    OP_EXTENTS,
    OP_RESIZE,
    OP_CREATE,
    OP_DESTROY,
    OP_RENAME,
    OP_CODEC,
    OP_CHECKPOINT,
    OP_VERIFY, /* read everything and compare */
    OP_REOPEN,
    OP_CRASH,
    OP_WRITE_BACK,
    OP_SEAL,
    OP_EVICT,
    OP_REAP,
    OP_SLEEP,
    OP_FAIL_FLUSH,
    OP_CUT_LATER, /* the power goes in the middle of one of the next operations */
    OP_KIND_COUNT,
};

/* How an operation's range is fitted. */
enum op_shape { SHAPE_BYTES, SHAPE_HALF, SHAPE_SECTORS, SHAPE_PAGES, SHAPE_RECORD };

/* Which operations, on what. */
struct profile {
    unsigned weights[OP_KIND_COUNT];
    unsigned volume_count;
    uint32_t record_bytes[STORE_VOLUMES];
    uint64_t size_bytes[STORE_VOLUMES]; /* the largest; volumes are created with it and resized below it */
    uint64_t length_max_bytes;          /* of one read, write, trim, zero */
    unsigned fua_per_mille;
    unsigned unaligned_per_mille;   /* offsets and lengths of any byte; otherwise sectors, half records, records */
    unsigned half_record_per_mille; /* exactly half a record, or a whole one for trims */
    unsigned same_data_per_mille;   /* PATTERN_CONSTANT beyond its share */
    unsigned loss_mask;             /* bit per enum sim_loss that OP_CRASH may use; 0: random only */
};

struct op {
    enum op_kind kind;
    uint8_t volume, style;
    unsigned flags; /* VOLUME_FUA, VOLUME_PROVISION */
    uint8_t shape;  /* enum op_shape */
    uint64_t a, b;  /* offset and length, or whatever the kind wants */
    uint64_t stamp;
};

struct history {
    const struct profile *profile;
    uint64_t seed;
    size_t count;
    struct op *ops;
};

struct op_range {
    uint64_t offset_bytes, length_bytes;
};
/* The range of an operation on a volume of that size; never empty. */
struct op_range op_fit(const struct op *op, uint32_t record_bytes, uint64_t size_bytes, uint64_t length_max_bytes);
/* Without a newline; the range is that on a volume of the profile's size. */
void op_print(const struct op *op, const struct profile *profile, struct text *out);

void history_make(struct history *h, const struct profile *profile, uint64_t seed, size_t count);
void history_free(struct history *h);
/* One line an operation. */
void history_print(const struct history *h, struct text *out);

struct history_stats {
    uint64_t done[OP_KIND_COUNT];
    uint64_t skipped, full; /* operations without their volume; answers of ENOSPC */
    uint64_t undecided;     /* of the oracle */
};

/*
 * Runs it on a fresh store. true: every answer was right. false: the reason is added to why. What was done is added to
 * stats. `ran`, if not NULL, gets the number of operations begun. The store is not freed.
 */
bool history_run(const struct history *h, struct store *s, struct history_stats *stats, struct text *why, size_t *ran);

/*
 * Makes a failing history shorter by leaving operations out while it still fails; bounded by `tries` runs. make() gives
 * a fresh store for each run, the same each time.
 */
struct store_maker {
    struct store *(*make)(void *arg);
    void *arg;
};
void history_shrink(struct history *h, const struct store_maker *maker, size_t tries);

/* Shrinks, runs the short history again and prints all of it as TAP diagnostics: seed, operations, reason. */
void history_report(struct history *h, const struct store_maker *maker, const char *title);

#endif
