/*
 * Clock, entropy and threads of the operating system, and the switch to the simulation where an env belongs to one.
 *
 * Signals are for the program's main thread: threads started here block all of them except those that a fault of our
 * own raises in the thread itself, so that a crash is reported by whoever handles it (sanitizers, a core dump).
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/check.h"
#include "env/env.h"
#include "env/env_impl.h"

#define NS_PER_S UINT64_C(1000000000)

struct env *env_os(void)
{
    static struct env os;
    return &os;
}

struct sim *env_sim(struct env *env)
{
    return env->sim;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    int ret = clock_gettime(clock, &t);
    CHECK_EQ(ret, 0);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t env_now_ns(struct env *env)
{
    return env->sim != NULL ? sim_now_ns(env->sim) : clock_ns(CLOCK_MONOTONIC);
}

uint64_t env_wall_ns(struct env *env)
{
    return env->sim != NULL ? sim_wall_ns(env->sim) : clock_ns(CLOCK_REALTIME);
}

void env_random(struct env *env, void *ret_bytes, size_t n)
{
    if (env->sim != NULL) {
        sim_random(env->sim, ret_bytes, n);
        return;
    }
    uint8_t *at = ret_bytes;
    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            check_failed(__FILE__, __LINE__, "getrandom gives no bytes");
        at += got;
        n -= (size_t)got;
    }
}

void env_sleep_ns(struct env *env, uint64_t duration_ns)
{
    if (env->sim != NULL) {
        sim_sleep_ns(env->sim, duration_ns);
        return;
    }
    struct timespec left = {.tv_sec = (time_t)(duration_ns / NS_PER_S), .tv_nsec = (long)(duration_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}

static void *thread_main(void *arg)
{
    struct env_thread *thread = arg;
    /* Only a name for people; the kernel refuses none of this length. */
    (void)pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread->arg);
    return NULL;
}

static void signals_of_threads(sigset_t *ret_blocked)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigfillset(ret_blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(ret_blocked, faults[i]);
}

static int os_thread_start(struct env_thread *thread)
{
    sigset_t blocked, before;
    signals_of_threads(&blocked);
    int ret = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    CHECK_EQ(ret, 0);
    int started = pthread_create(&thread->os, NULL, thread_main, thread);
    ret = pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK_EQ(ret, 0);
    return -started;
}

int env_thread_start(struct env *env, const char *name, void (*run)(void *arg), void *arg,
                     struct env_thread **ret_thread)
{
    struct env_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return -ENOMEM;
    thread->env = env;
    thread->run = run;
    thread->arg = arg;
    memcpy(thread->name, name, strnlen(name, sizeof thread->name - 1));
    int ret = env->sim != NULL ? sim_thread_start(thread) : os_thread_start(thread);
    if (ret < 0) {
        free(thread);
        return ret;
    }
    *ret_thread = thread;
    return 0;
}

void env_thread_join(struct env_thread *thread)
{
    if (thread->env->sim != NULL) {
        sim_thread_join(thread);
    } else {
        int ret = pthread_join(thread->os, NULL);
        CHECK_EQ(ret, 0);
    }
    free(thread);
}
