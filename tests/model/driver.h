/*
 * Runs operations one after the other on a store and compares every answer with a plain array. With an oracle it also
 * tells that one everything, so that power cuts in the middle (by OP_CRASH, or by pictures taken from outside) can be
 * judged.
 */
#ifndef ASHLAR_TESTS_MODEL_DRIVER_H
#define ASHLAR_TESTS_MODEL_DRIVER_H

#include <stdbool.h>

#include "base/text.h"
#include "model/history.h"
#include "model/oracle.h"
#include "model/store.h"

struct driver;

/* The store is empty; the profile's volumes are created by driver_create_all or by the history. o may be NULL if there
 * is no OP_CRASH. Nothing is owned. */
struct driver *driver_new(const struct profile *profile, struct store *s, struct oracle *o,
                          struct history_stats *stats);
void driver_free(struct driver *d);

/* Each returns true if every answer was right; otherwise the reason is added to why. */
bool driver_create_all(struct driver *d, struct text *why);
/* A write and a checkpoint, twice: now the label before the newest one knows all volumes too, and may be the only one
 * left. */
bool driver_settle(struct driver *d, struct text *why);
bool driver_step(struct driver *d, const struct op *op, struct text *why);

/*
 * What a store that was just opened after a power cut shows, judged by the oracle: list of volumes, and all they hold.
 * Shared with the tests that open pictures. Volumes are adopted. With lost_allowed an I/O error of a read is no fault;
 * *ret_lost counts the sectors lost that way. values_of, if not NULL, gets for each volume of the oracle what was read
 * (the caller frees) and found_of what was found.
 */
struct recovered {
    bool exists[ORACLE_VOLUMES];
    struct oracle_found found[ORACLE_VOLUMES];
    uint64_t *values[ORACLE_VOLUMES];
    uint8_t *bytes[ORACLE_VOLUMES];
    uint64_t lost_sectors;
};
bool recovered_check(struct store *s, struct oracle *o, bool lost_allowed, struct recovered *ret_recovered,
                     struct text *why);
void recovered_free(struct recovered *r);

#endif
