/*
 * A checkpoint of the checker's own: new map nodes, or accounts counted anew, and what must be written to name them.
 */
#ifndef ASHLAR_CHECK_REWRITE_H
#define ASHLAR_CHECK_REWRITE_H

#include "check/inspection.h"

struct rewrite;

/* true if what was found of the pool can be built on: closed cleanly, its own trees whole, no range lost in any tree,
 * nothing that contradicts itself. Accounts may be wrong. */
bool rewrite_allowed(const struct inspection *ins);
/* -ENOSPC: no free slot, or the label allows no other after it; -ENOMEM. Only on 0 there is something to free. */
int rewrite_begin(struct inspection *ins, struct rewrite **ret_rewrite);
/* Puts a node in the place of a lost one. It must be valid. 0 also where there is no room left: then the node stays
 * lost, for the next look. -ENOMEM. */
int rewrite_node(struct rewrite *w, const struct check_lost_node *lost, const struct node *node);
/* All accounts as they were counted, which must have been possible everywhere. Not together with rewrite_node. */
void rewrite_accounts(struct rewrite *w);
/* All that names those nodes or accounts, and the writes planned. -ENODATA: there are none; -ENOSPC, -ENOMEM,
 * -EBADMSG: nothing is planned. */
int rewrite_finish(struct rewrite *w);
void rewrite_free(struct rewrite *w); /* NULL is allowed */

#endif
