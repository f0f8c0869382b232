/*
 * One thread is enough: what it runs is short, rare, and mostly waits for the same locks of the pool.
 */
#include "front/nbd/errand.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/tree.h"
#include "env/env.h"

struct nbd_errands {
    struct env_thread *thread;
    struct env_mutex lock;
    struct env_cond posted;
    struct list queue; /* guarded by lock */
    bool ended;        /* guarded by lock */
};

static void errands_main(void *arg)
{
    struct nbd_errands *errands = arg;
    env_mutex_lock(&errands->lock);
    for (;;) {
        while (list_empty(&errands->queue) && !errands->ended)
            env_cond_wait(&errands->posted, &errands->lock);
        if (list_empty(&errands->queue))
            break;
        struct nbd_errand *errand = CONTAINER_OF(errands->queue.next, struct nbd_errand, link);
        list_remove(&errand->link);
        env_mutex_unlock(&errands->lock);
        errand->run(errand);
        env_mutex_lock(&errands->lock);
    }
    env_mutex_unlock(&errands->lock);
}

int nbd_errands_new(struct env *env, struct nbd_errands **ret_errands, struct error *err)
{
    struct nbd_errands *errands = calloc(1, sizeof *errands);
    if (errands == NULL)
        return error_set(err, -ENOMEM, "no memory for the NBD server");
    env_mutex_init(&errands->lock, env);
    env_cond_init(&errands->posted, env);
    list_init(&errands->queue);
    int ret = env_thread_start(env, "ashlar-nbd-open", errands_main, errands, &errands->thread);
    if (ret < 0) {
        nbd_errands_free(errands);
        return error_set(err, ret, "NBD server: cannot start a thread: %s", strerror(-ret));
    }
    *ret_errands = errands;
    return 0;
}

void nbd_errands_free(struct nbd_errands *errands)
{
    if (errands == NULL)
        return;
    if (errands->thread != NULL) {
        env_mutex_lock(&errands->lock);
        errands->ended = true;
        env_cond_signal(&errands->posted);
        env_mutex_unlock(&errands->lock);
        env_thread_join(errands->thread);
    }
    env_cond_destroy(&errands->posted);
    env_mutex_destroy(&errands->lock);
    free(errands);
}

void nbd_errands_post(struct nbd_errands *errands, struct nbd_errand *errand)
{
    env_mutex_lock(&errands->lock);
    list_append(&errands->queue, &errand->link);
    env_cond_signal(&errands->posted);
    env_mutex_unlock(&errands->lock);
}
