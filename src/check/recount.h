/*
 * Accounts that are wrong though all they are of can be read.
 */
#ifndef ASHLAR_CHECK_RECOUNT_H
#define ASHLAR_CHECK_RECOUNT_H

#include "check/inspection.h"

/* Plans a checkpoint with the accounts as they were counted, if one of them is wrong and every map could be read. 0
 * also where nothing is planned; -ENOMEM. */
int check_recount(struct inspection *ins, struct error *err);

#endif
