/*
 * The workers (workers.h): jobs wait in a list; each thread, and the caller, takes items off the first until none are
 * left.
 */
#include "log/workers.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/list.h"

#define IDLE_CODECS_MAX 32

struct job {
    struct list link; /* in workers.jobs while items are left to hand out */
    workers_item run;
    void *arg;
    uint32_t next, count, done;
};

struct workers {
    struct env *env;
    struct env_mutex lock;
    struct env_cond work, finished;
    struct list jobs;
    struct env_thread **threads;
    unsigned thread_count;
    bool stopping;
    struct codec_context *idle[IDLE_CODECS_MAX];
    unsigned idle_count;
};

/* Takes items of the job, one after the other, until none are left. Lock held, released while one runs. */
static void take_items(struct workers *w, struct job *job, struct codec_context *codec)
{
    while (job->next < job->count) {
        uint32_t item = job->next++;
        if (job->next == job->count)
            list_remove(&job->link);
        env_mutex_unlock(&w->lock);
        job->run(job->arg, item, codec);
        env_mutex_lock(&w->lock);
        job->done++;
        if (job->done == job->count)
            env_cond_broadcast(&w->finished);
    }
}

static void thread_main(void *arg)
{
    struct workers *w = arg;
    struct codec_context *codec = workers_borrow_codec(w);
    env_mutex_lock(&w->lock);
    while (!w->stopping) {
        if (list_empty(&w->jobs) || codec == NULL)
            env_cond_wait(&w->work, &w->lock);
        else
            take_items(w, (struct job *)w->jobs.next, codec);
    }
    env_mutex_unlock(&w->lock);
    workers_return_codec(w, codec);
}

int workers_new(struct env *env, unsigned thread_count, struct workers **ret_workers)
{
    struct workers *w = calloc(1, sizeof *w);
    if (w == NULL)
        return -ENOMEM;
    w->env = env;
    env_mutex_init(&w->lock, env);
    env_cond_init(&w->work, env);
    env_cond_init(&w->finished, env);
    list_init(&w->jobs);
    w->threads = calloc(thread_count + 1, sizeof(struct env_thread *));
    int result = w->threads == NULL ? -ENOMEM : 0;
    while (result == 0 && w->thread_count < thread_count) {
        result = env_thread_start(env, "ashlar-worker", thread_main, w, &w->threads[w->thread_count]);
        w->thread_count += result == 0;
    }
    if (result != 0) {
        workers_free(w);
        return result;
    }
    *ret_workers = w;
    return 0;
}

void workers_free(struct workers *w)
{
    if (w == NULL)
        return;
    env_mutex_lock(&w->lock);
    CHECK(list_empty(&w->jobs));
    w->stopping = true;
    env_cond_broadcast(&w->work);
    env_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->thread_count; i++)
        env_thread_join(w->threads[i]);
    for (unsigned i = 0; i < w->idle_count; i++)
        codec_context_free(w->idle[i]);
    env_cond_destroy(&w->work);
    env_cond_destroy(&w->finished);
    env_mutex_destroy(&w->lock);
    free(w->threads);
    free(w);
}

void workers_run(struct workers *w, workers_item run, void *arg, uint32_t count)
{
    struct codec_context *codec = workers_borrow_codec(w);
    struct job job = {.run = run, .arg = arg, .count = count};
    list_init(&job.link);
    if (count == 0) {
        workers_return_codec(w, codec);
        return;
    }
    env_mutex_lock(&w->lock);
    list_append(&w->jobs, &job.link);
    if (w->thread_count > 0 && count > 1)
        env_cond_broadcast(&w->work);
    /* Without memory for a codec context of our own the work gets NULL and stores raw; it is done all the same. */
    take_items(w, &job, codec);
    while (job.done < job.count)
        env_cond_wait(&w->finished, &w->lock);
    env_mutex_unlock(&w->lock);
    workers_return_codec(w, codec);
}

struct codec_context *workers_borrow_codec(struct workers *w)
{
    struct codec_context *codec = NULL;
    env_mutex_lock(&w->lock);
    if (w->idle_count > 0)
        codec = w->idle[--w->idle_count];
    env_mutex_unlock(&w->lock);
    return codec != NULL ? codec : codec_context_new();
}

void workers_return_codec(struct workers *w, struct codec_context *codec)
{
    if (codec == NULL)
        return;
    env_mutex_lock(&w->lock);
    if (w->idle_count < IDLE_CODECS_MAX) {
        w->idle[w->idle_count++] = codec;
        codec = NULL;
    }
    env_mutex_unlock(&w->lock);
    codec_context_free(codec);
}
