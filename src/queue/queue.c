/*
 * Requests and the threads that carry them out: each request alone, handed to the next free thread, in order of
 * arrival.
 *
 * Locking: one mutex, for the list; requests run, and complete, without it.
 */
#include "queue/queue.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/tree.h"
#include "env/env.h"

#define THREADS_DEFAULT 16

struct queue {
    struct env_mutex lock;
    struct env_cond work;
    struct list requests;
    struct env_thread **threads;
    unsigned thread_count, idle_count;
    bool stopping;
};

static int carry_out(struct request *r)
{
    switch (r->kind) {
    case REQUEST_READ:
        return volume_readv(r->volume, r->offset_bytes, r->iov, r->iov_count);
    case REQUEST_WRITE:
        return volume_writev(r->volume, r->offset_bytes, r->iov, r->iov_count, r->flags);
    case REQUEST_FLUSH:
        return volume_flush(r->volume);
    case REQUEST_TRIM:
        return volume_trim(r->volume, r->offset_bytes, r->length_bytes, r->flags);
    case REQUEST_ZERO:
        return volume_zero(r->volume, r->offset_bytes, r->length_bytes, r->flags);
    case REQUEST_PREFETCH:
        return volume_prefetch(r->volume, r->offset_bytes, r->length_bytes);
    case REQUEST_EXTENTS:
        return volume_extents(r->volume, r->offset_bytes, r->length_bytes, r->extents, r->extent_room,
                              &r->extent_count);
    }
    return -EINVAL;
}

int request_run(struct request *r)
{
    r->result = carry_out(r);
    return r->result;
}

static void thread_main(void *arg)
{
    struct queue *q = arg;
    env_mutex_lock(&q->lock);
    for (;;) {
        while (list_empty(&q->requests) && !q->stopping) {
            q->idle_count++;
            env_cond_wait(&q->work, &q->lock);
            q->idle_count--;
        }
        if (list_empty(&q->requests))
            break;
        struct request *r = CONTAINER_OF(q->requests.next, struct request, link);
        list_remove(&r->link);
        env_mutex_unlock(&q->lock);
        (void)request_run(r);
        r->complete(r);
        env_mutex_lock(&q->lock);
    }
    env_mutex_unlock(&q->lock);
}

int queue_new(struct env *env, unsigned thread_count, struct queue **ret_queue)
{
    struct queue *q = calloc(1, sizeof *q);
    if (q == NULL)
        return -ENOMEM;
    if (thread_count == 0)
        thread_count = THREADS_DEFAULT;
    env_mutex_init(&q->lock, env);
    env_cond_init(&q->work, env);
    list_init(&q->requests);
    q->threads = calloc(thread_count, sizeof(struct env_thread *));
    int result = q->threads == NULL ? -ENOMEM : 0;
    while (result == 0 && q->thread_count < thread_count) {
        result = env_thread_start(env, "ashlar-queue", thread_main, q, &q->threads[q->thread_count]);
        q->thread_count += result == 0;
    }
    if (result != 0) {
        queue_free(q);
        return result;
    }
    *ret_queue = q;
    return 0;
}

void queue_free(struct queue *q)
{
    if (q == NULL)
        return;
    env_mutex_lock(&q->lock);
    q->stopping = true;
    env_cond_broadcast(&q->work);
    env_mutex_unlock(&q->lock);
    for (unsigned i = 0; i < q->thread_count; i++)
        env_thread_join(q->threads[i]);
    CHECK(list_empty(&q->requests));
    env_cond_destroy(&q->work);
    env_mutex_destroy(&q->lock);
    free(q->threads);
    free(q);
}

void queue_submit(struct queue *q, struct request *r)
{
    list_init(&r->link);
    env_mutex_lock(&q->lock);
    CHECK(!q->stopping);
    list_append(&q->requests, &r->link);
    if (q->idle_count > 0)
        env_cond_signal(&q->work);
    env_mutex_unlock(&q->lock);
}
