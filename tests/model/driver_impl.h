/*
 * The driver's insides: the model of each volume is an array of its bytes and, for each record, what the extents may
 * say about it. driver_data.c has the operations on data, driver.c the others.
 */
#ifndef ASHLAR_TESTS_MODEL_DRIVER_IMPL_H
#define ASHLAR_TESTS_MODEL_DRIVER_IMPL_H

#include "model/driver.h"

enum record_state { RECORD_ANY, RECORD_TRIMMED, RECORD_PROVISIONED };

struct model_volume {
    bool exists;
    char name[ORACLE_NAME_BYTES];
    unsigned renames;
    uint64_t size_bytes, room_bytes;
    uint32_t record_bytes;
    uint8_t *bytes;
    uint8_t *state;        /* enum record_state of each record: what the last operation that touched it made it */
    uint32_t *state_epoch; /* number of checkpoints done when it became so */
};

struct driver {
    const struct profile *profile;
    struct store *s;
    struct oracle *o;
    struct history_stats *stats;
    struct model_volume volumes[STORE_VOLUMES];
    uint32_t checkpoints;
    uint8_t *buffer;  /* data of the operation */
    uint8_t *after;   /* whole sectors the range touches, as they should be afterwards */
    uint64_t *values; /* of those sectors */
    size_t buffer_bytes;
    int error; /* the last answer that was complained of */
};

/* Adds the reason and returns false. A result other than 0 is also noted in d->error. */
bool driver_complain(struct driver *d, struct text *why, const char *what, const struct op *op, int result);

/* The oracle, if there is one. */
unsigned driver_tell_begin(struct driver *d, const struct oracle_args *args);
void driver_tell_end(struct driver *d, unsigned operation, int result);

/*
 * ENOSPC was answered to a request for that range (length 0: for a volume): was it right? Counts it, or complains.
 */
bool driver_space_is_short(struct driver *d, uint64_t offset, uint64_t length, uint32_t record_bytes, struct text *why);

/* Everything reads as the model says. */
bool driver_verify_all(struct driver *d, struct text *why);

/* WRITE, READ, TRIM, ZERO, EXTENTS on a volume that exists. */
bool driver_data_step(struct driver *d, const struct op *op, struct text *why);

#endif
