/*
 * One operation of a history sent through the request queue (queue_call.h).
 */
#include "model/queue_call.h"

#include "base/check.h"
#include "env/env.h"

struct waiter {
    struct env_mutex mutex;
    struct env_cond cond;
    unsigned completions;
};

static void complete(struct request *r)
{
    struct waiter *w = r->user;
    env_mutex_lock(&w->mutex);
    CHECK_EQ(w->completions, 0);
    w->completions = 1;
    env_cond_broadcast(&w->cond);
    env_mutex_unlock(&w->mutex);
}

int queue_call(struct env *env, struct queue *q, struct request *r)
{
    struct waiter w = {0};
    env_mutex_init(&w.mutex, env);
    env_cond_init(&w.cond, env);
    r->complete = complete;
    r->user = &w;
    queue_submit(q, r);
    env_mutex_lock(&w.mutex);
    while (w.completions == 0)
        env_cond_wait(&w.cond, &w.mutex);
    env_mutex_unlock(&w.mutex);
    env_cond_destroy(&w.cond);
    env_mutex_destroy(&w.mutex);
    return r->result;
}
