/*
 * Mutexes and condition variables of the operating system, and the switch to the simulation.
 *
 * Debug builds keep the owner of a mutex, an address that is different in each thread, so that locking twice, foreign
 * unlocking and waiting without the lock abort where they happen. The owner is written only by the holder; others may
 * read it at any time (env_mutex_held), hence the relaxed atomics: whatever a thread reads there, it is its own mark
 * exactly if it holds the mutex.
 */
#include <errno.h>
#include <time.h>

#include "base/check.h"
#include "env/env.h"
#include "env/env_impl.h"

#define NS_PER_S UINT64_C(1000000000)

#ifdef ASHLAR_DEBUG
static void *thread_mark(void)
{
    static _Thread_local char mark;
    return &mark;
}

static void owner_set(struct env_mutex *m, void *owner)
{
    __atomic_store_n(&m->owner, owner, __ATOMIC_RELAXED);
}

static bool owner_is_self(const struct env_mutex *m)
{
    return __atomic_load_n(&m->owner, __ATOMIC_RELAXED) == thread_mark();
}
#else
static void *thread_mark(void)
{
    return NULL;
}

static void owner_set(struct env_mutex *m, void *owner)
{
    (void)m, (void)owner;
}
#endif

void env_mutex_init(struct env_mutex *m, struct env *env)
{
    m->env = env;
    m->owner = NULL;
    m->waiters = NULL;
    if (env->sim == NULL) {
        int ret = pthread_mutex_init(&m->os, NULL);
        CHECK_EQ(ret, 0);
    }
}

void env_mutex_destroy(struct env_mutex *m)
{
    CHECK(m->waiters == NULL);
    if (m->env->sim != NULL) {
        CHECK(m->owner == NULL);
        return;
    }
    int ret = pthread_mutex_destroy(&m->os);
    CHECK_EQ(ret, 0);
}

void env_mutex_lock(struct env_mutex *m)
{
    if (m->env->sim != NULL) {
        sim_mutex_lock(m);
        return;
    }
    DEBUG_CHECK(!owner_is_self(m));
    int ret = pthread_mutex_lock(&m->os);
    CHECK_EQ(ret, 0);
    owner_set(m, thread_mark());
}

void env_mutex_unlock(struct env_mutex *m)
{
    if (m->env->sim != NULL) {
        sim_mutex_unlock(m);
        return;
    }
    DEBUG_CHECK(owner_is_self(m));
    owner_set(m, NULL);
    int ret = pthread_mutex_unlock(&m->os);
    CHECK_EQ(ret, 0);
}

bool env_mutex_held(const struct env_mutex *m)
{
    if (m->env->sim != NULL)
        return sim_mutex_held(m);
#ifdef ASHLAR_DEBUG
    return owner_is_self(m);
#else
    return true;
#endif
}

void env_cond_init(struct env_cond *c, struct env *env)
{
    c->env = env;
    c->waiters = NULL;
    if (env->sim != NULL)
        return;
    pthread_condattr_t attributes;
    int ret = pthread_condattr_init(&attributes);
    CHECK_EQ(ret, 0);
    ret = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    CHECK_EQ(ret, 0);
    ret = pthread_cond_init(&c->os, &attributes);
    CHECK_EQ(ret, 0);
    ret = pthread_condattr_destroy(&attributes);
    CHECK_EQ(ret, 0);
}

void env_cond_destroy(struct env_cond *c)
{
    CHECK(c->waiters == NULL);
    if (c->env->sim != NULL)
        return;
    int ret = pthread_cond_destroy(&c->os);
    CHECK_EQ(ret, 0);
}

void env_cond_wait(struct env_cond *c, struct env_mutex *m)
{
    if (c->env->sim != NULL) {
        sim_cond_wait(c, m);
        return;
    }
    DEBUG_CHECK(owner_is_self(m));
    owner_set(m, NULL);
    int ret = pthread_cond_wait(&c->os, &m->os);
    CHECK_EQ(ret, 0);
    owner_set(m, thread_mark());
}

/* The moment duration_ns from now; one that no clock can show becomes the last that can. */
static struct timespec deadline_after(struct env *env, uint64_t duration_ns)
{
    uint64_t at;
    if (__builtin_add_overflow(env_now_ns(env), duration_ns, &at) || at > INT64_MAX)
        at = INT64_MAX;
    return (struct timespec){.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)};
}

bool env_cond_wait_for(struct env_cond *c, struct env_mutex *m, uint64_t duration_ns)
{
    if (c->env->sim != NULL)
        return sim_cond_wait_for(c, m, duration_ns);
    struct timespec deadline = deadline_after(c->env, duration_ns);
    DEBUG_CHECK(owner_is_self(m));
    owner_set(m, NULL);
    int ret = pthread_cond_timedwait(&c->os, &m->os, &deadline);
    CHECK(ret == 0 || ret == ETIMEDOUT);
    owner_set(m, thread_mark());
    return ret == 0;
}

void env_cond_signal(struct env_cond *c)
{
    if (c->env->sim != NULL) {
        sim_cond_signal(c);
        return;
    }
    int ret = pthread_cond_signal(&c->os);
    CHECK_EQ(ret, 0);
}

void env_cond_broadcast(struct env_cond *c)
{
    if (c->env->sim != NULL) {
        sim_cond_broadcast(c);
        return;
    }
    int ret = pthread_cond_broadcast(&c->os);
    CHECK_EQ(ret, 0);
}
