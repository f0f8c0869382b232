/*
 * The volumes of a pool as exports of the NBD server: export.h on pool.h and queue.h.
 */
#ifndef ASHLAR_FRONT_NBD_POOL_EXPORTS_H
#define ASHLAR_FRONT_NBD_POOL_EXPORTS_H

#include <stdbool.h>

struct export_ops;
struct pool;
struct pool_exports;
struct queue;

/* pool and queue outlive it. read_only: the pool was opened so. 0 or -ENOMEM. */
int pool_exports_new(struct pool *pool, struct queue *queue, bool read_only, struct pool_exports **ret_exports)
    __attribute__((warn_unused_result));
/* No export is open any more. */
void pool_exports_free(struct pool_exports *exports);

/* For nbd_server_new, with the pool_exports as back-end. */
const struct export_ops *pool_export_ops(void);

#endif
