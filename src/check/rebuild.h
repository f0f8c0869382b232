/*
 * Rebuilding map nodes, both copies of which are damaged, from the entry tables of the log.
 */
#ifndef ASHLAR_CHECK_REBUILD_H
#define ASHLAR_CHECK_REBUILD_H

#include "check/inspection.h"

/*
 * Plans repairs for the nodes in ins->lost that can be rebuilt bit for bit: a rebuilt node is written back only if its
 * bytes are what the pointer to it promises. -ENOMEM.
 */
int check_rebuild(struct inspection *ins, struct error *err);

#endif
