/*
 * What the two halves of `create` share: a pool, or a volume in one.
 */
#ifndef ASHLAR_CLI_CREATE_H
#define ASHLAR_CLI_CREATE_H

struct invocation;

/* ashlar create POOL --size SIZE */
int create_pool_run(const struct invocation *in);

#endif
