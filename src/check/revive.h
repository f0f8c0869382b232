/*
 * Map nodes whose exact bytes cannot be had back: new ones with all that is certain, under a new label.
 */
#ifndef ASHLAR_CHECK_REVIVE_H
#define ASHLAR_CHECK_REVIVE_H

#include "check/rebuild_impl.h"

/*
 * Plans new nodes for the lost ones of which r has the entries, as far as there is proof of what was in them, and all
 * that must be written to name them. Plans nothing where there is none, or where it would not be safe. -ENOMEM.
 */
int check_revive(struct rebuild *r);

#endif
