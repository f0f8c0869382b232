/*
 * Completions: a list of finished calls, an eventfd that is readable exactly while the list is not empty, and a thread
 * for the calls that the engine's queue does not take.
 *
 * States of a call: spare or new -> pending (its place in depth_max taken) -> in the engine, or in jobs -> done ->
 * reaped (spare again). The references that a call holds on its volume and pool are dropped before it is put in done,
 * so that who reaped the last completion may close them.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/tree.h"
#include "library/library.h"

enum { DEPTH_DEFAULT = 4096, SPARE_MAX = 64 };

static struct call *call_of(struct list *link)
{
    return CONTAINER_OF(link, struct call, link);
}

int ashlar_queue_new(unsigned depth_max, unsigned flags, struct ashlar_queue **ret_queue, struct ashlar_error *error)
{
    struct error err = {0};
    if (library_check_flags("ashlar_queue_new", flags, 0, &err) < 0)
        return library_error(error, &err);
    if (ret_queue == NULL)
        return library_fail(error, -EINVAL, "ashlar_queue_new: no place for the queue given");
    struct ashlar_queue *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return library_fail(error, -ENOMEM, "ashlar_queue_new: no memory");
    q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->event_fd < 0) {
        int code = -errno;
        free(q);
        return library_fail(error, code, "ashlar_queue_new: eventfd: %s", strerror(-code));
    }
    env_mutex_init(&q->mutex, env_os());
    env_cond_init(&q->finished, env_os());
    env_cond_init(&q->job_added, env_os());
    list_init(&q->done);
    list_init(&q->jobs);
    list_init(&q->spare);
    q->depth_max = depth_max != 0 ? depth_max : DEPTH_DEFAULT;
    *ret_queue = q;
    return 0;
}

int ashlar_queue_free(struct ashlar_queue *q)
{
    if (q == NULL)
        return 0;
    env_mutex_lock(&q->mutex);
    bool busy = q->pending > 0 || q->waiters > 0;
    if (!busy) {
        q->stopping = true;
        env_cond_broadcast(&q->job_added);
    }
    env_mutex_unlock(&q->mutex);
    if (busy)
        return -EBUSY;
    if (q->job_thread != NULL)
        env_thread_join(q->job_thread);
    while (!list_empty(&q->spare)) {
        struct call *call = call_of(q->spare.next);
        list_remove(&call->link);
        free(call);
    }
    env_cond_destroy(&q->job_added);
    env_cond_destroy(&q->finished);
    env_mutex_destroy(&q->mutex);
    close(q->event_fd);
    free(q);
    return 0;
}

int ashlar_queue_fd(struct ashlar_queue *q)
{
    return q != NULL ? q->event_fd : -EINVAL;
}

unsigned ashlar_queue_pending(struct ashlar_queue *q)
{
    if (q == NULL)
        return 0;
    env_mutex_lock(&q->mutex);
    unsigned pending = q->pending;
    env_mutex_unlock(&q->mutex);
    return pending;
}

static void event_set(struct ashlar_queue *q)
{
    uint64_t one = 1;
    ssize_t n = write(q->event_fd, &one, sizeof(one));
    CHECK_EQ(n, (ssize_t)sizeof(one)); /* the counter is 0 before: it cannot be full */
}

static void event_clear(struct ashlar_queue *q)
{
    uint64_t count;
    ssize_t n = read(q->event_fd, &count, sizeof(count));
    (void)n; /* -EAGAIN: the caller read it, against the rule; nothing is lost */
}

/* Gives what a call holds back; the call itself goes to the spare list or away. Caller holds the mutex. */
static void call_recycle_locked(struct ashlar_queue *q, struct call *call)
{
    q->pending--;
    if (q->spare_count < SPARE_MAX) {
        list_append(&q->spare, &call->link);
        q->spare_count++;
    } else {
        free(call);
    }
}

static void call_clear(struct call *call)
{
    if (call->iov != call->inline_iov)
        free(call->iov);
    call->iov = NULL;
    free(call->request.extents);
    call->request.extents = NULL;
    free(call->names[0]);
    free(call->names[1]);
    call->names[0] = call->names[1] = NULL;
    if (call->volume != NULL)
        atomic_fetch_sub(&call->volume->references, 1);
    if (call->pool != NULL)
        atomic_fetch_sub(&call->pool->references, 1);
    call->volume = NULL;
    call->pool = NULL;
}

struct call *library_call_new(struct ashlar_queue *q, void *user, int *ret_code)
{
    if (q == NULL) {
        *ret_code = -EINVAL;
        return NULL;
    }
    struct call *call = NULL;
    env_mutex_lock(&q->mutex);
    bool room = q->pending < q->depth_max;
    if (room) {
        q->pending++;
        if (!list_empty(&q->spare)) {
            call = call_of(q->spare.next);
            list_remove(&call->link);
            q->spare_count--;
        }
    }
    env_mutex_unlock(&q->mutex);
    if (!room) {
        *ret_code = -EAGAIN;
        return NULL;
    }
    if (call == NULL)
        call = malloc(sizeof(*call));
    if (call == NULL) {
        env_mutex_lock(&q->mutex);
        q->pending--;
        env_mutex_unlock(&q->mutex);
        *ret_code = -ENOMEM;
        return NULL;
    }
    memset(call, 0, offsetof(struct call, error.text) + 1);
    memset(&call->request, 0, sizeof(*call) - offsetof(struct call, request));
    list_init(&call->link);
    list_init(&call->request.link);
    call->queue = q;
    call->user = user;
    return call;
}

void library_call_cancel(struct call *call)
{
    struct ashlar_queue *q = call->queue;
    call_clear(call);
    env_mutex_lock(&q->mutex);
    call_recycle_locked(q, call);
    env_mutex_unlock(&q->mutex);
}

void library_call_hold(struct call *call, struct ashlar_volume *volume, struct ashlar_pool *pool)
{
    call->volume = volume;
    call->pool = pool;
    if (volume != NULL)
        atomic_fetch_add(&volume->references, 1);
    if (pool != NULL)
        atomic_fetch_add(&pool->references, 1);
}

void library_call_finish(struct call *call)
{
    struct ashlar_queue *q = call->queue;
    call_clear(call);
    env_mutex_lock(&q->mutex);
    bool was_empty = list_empty(&q->done);
    list_append(&q->done, &call->link);
    if (was_empty)
        event_set(q);
    if (q->waiters > 0)
        env_cond_signal(&q->finished);
    env_mutex_unlock(&q->mutex);
}

static unsigned reap_locked(struct ashlar_queue *q, struct ashlar_completion *ret_completions, unsigned room)
{
    unsigned count = 0;
    while (count < room && !list_empty(&q->done)) {
        struct call *call = call_of(q->done.next);
        struct ashlar_completion *completion = &ret_completions[count++];
        list_remove(&call->link);
        completion->user = call->user;
        completion->result = call->error.code;
        completion->text[0] = '\0';
        if (call->error.code != 0) {
            size_t length = strnlen(call->error.text, sizeof(completion->text) - 1);
            memcpy(completion->text, call->error.text, length);
            completion->text[length] = '\0';
        }
        call_recycle_locked(q, call);
    }
    if (count > 0 && list_empty(&q->done))
        event_clear(q);
    else if (q->waiters > 0 && !list_empty(&q->done))
        env_cond_signal(&q->finished); /* one wake-up may stand for several completions */
    return count;
}

unsigned ashlar_queue_reap(struct ashlar_queue *q, struct ashlar_completion *ret_completions, unsigned room)
{
    if (q == NULL || ret_completions == NULL)
        return 0;
    env_mutex_lock(&q->mutex);
    unsigned count = reap_locked(q, ret_completions, room);
    env_mutex_unlock(&q->mutex);
    return count;
}

unsigned ashlar_queue_wait(struct ashlar_queue *q, struct ashlar_completion *ret_completions, unsigned room,
                           int timeout_ms)
{
    if (q == NULL || ret_completions == NULL || room == 0)
        return 0;
    uint64_t now_ns = env_now_ns(env_os());
    uint64_t deadline_ns = timeout_ms < 0 ? UINT64_MAX : now_ns + (uint64_t)timeout_ms * 1000000;
    env_mutex_lock(&q->mutex);
    q->waiters++;
    while (list_empty(&q->done) && q->pending > 0 && now_ns < deadline_ns) {
        if (deadline_ns == UINT64_MAX)
            env_cond_wait(&q->finished, &q->mutex);
        else
            (void)env_cond_wait_for(&q->finished, &q->mutex, deadline_ns - now_ns);
        now_ns = env_now_ns(env_os());
    }
    q->waiters--;
    unsigned count = reap_locked(q, ret_completions, room);
    if (q->waiters > 0 && q->pending == 0)
        env_cond_broadcast(&q->finished); /* nothing more will come */
    env_mutex_unlock(&q->mutex);
    return count;
}

/* ---- jobs ---- */

static void run_jobs(void *arg)
{
    struct ashlar_queue *q = arg;
    env_mutex_lock(&q->mutex);
    for (;;) {
        while (list_empty(&q->jobs) && !q->stopping)
            env_cond_wait(&q->job_added, &q->mutex);
        if (list_empty(&q->jobs))
            break;
        struct call *call = call_of(q->jobs.next);
        list_remove(&call->link);
        env_mutex_unlock(&q->mutex);
        call->run(call);
        library_call_finish(call);
        env_mutex_lock(&q->mutex);
    }
    env_mutex_unlock(&q->mutex);
}

int library_call_start_job(struct call *call)
{
    struct ashlar_queue *q = call->queue;
    int r = 0;
    env_mutex_lock(&q->mutex);
    if (q->job_thread == NULL)
        r = env_thread_start(env_os(), "ashlar-calls", run_jobs, q, &q->job_thread);
    if (r == 0) {
        list_append(&q->jobs, &call->link);
        env_cond_signal(&q->job_added);
    }
    env_mutex_unlock(&q->mutex);
    return r;
}
