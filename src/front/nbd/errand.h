/*
 * A thread for calls that may block (opening, listing and closing exports), so that the event loop never does.
 */
#ifndef ASHLAR_FRONT_NBD_ERRAND_H
#define ASHLAR_FRONT_NBD_ERRAND_H

#include "base/list.h"

struct env;
struct error;
struct nbd_errands;

struct nbd_errand {
    void (*run)(struct nbd_errand *errand); /* in the errand thread; may free it */
    struct list link;
};

int nbd_errands_new(struct env *env, struct nbd_errands **ret_errands, struct error *err)
    __attribute__((warn_unused_result));
/* Runs what was posted, ends the thread. */
void nbd_errands_free(struct nbd_errands *errands);
/* Any thread; errands run one after the other in this order. */
void nbd_errands_post(struct nbd_errands *errands, struct nbd_errand *errand);

#endif
