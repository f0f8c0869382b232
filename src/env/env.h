/*
 * The environment: clock, entropy, threads, locks. The engine above env/ gets all of these from here, so that a seeded
 * simulation (sim.h) can stand in for the operating system: there, "threads" are fibers on one OS thread, every lock,
 * wait and device operation is a scheduling point decided by the seed, and the clock moves only when everybody waits.
 *
 * One struct env serves any number of pools. It is immutable after creation (simulation apart) and safe from any
 * thread.
 */
#ifndef ASHLAR_ENV_ENV_H
#define ASHLAR_ENV_ENV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct env;
struct sim;
struct fiber_wait; /* private to the simulation */

/* The operating system. One static object; never freed. */
struct env *env_os(void);

/* The simulation behind env, NULL for the operating system. */
struct sim *env_sim(struct env *env);

/* Monotonic nanoseconds from an arbitrary start. */
uint64_t env_now_ns(struct env *env);
/* Nanoseconds since 1970-01-01 UTC, for stamps that people read; never for ordering. */
uint64_t env_wall_ns(struct env *env);
/* Unpredictable bytes (getrandom); from the seed in the simulation. Does not fail: aborts if the OS gives none. */
void env_random(struct env *env, void *ret_bytes, size_t n);
void env_sleep_ns(struct env *env, uint64_t duration_ns);

struct env_thread;

/*
 * Starts a thread named `name` (<= 15 bytes kept). All signals are blocked in it but those that a fault of the
 * thread itself raises. Returns 0 or -EAGAIN/-ENOMEM.
 * Every thread is joined exactly once; joining frees it.
 */
int env_thread_start(struct env *env, const char *name, void (*run)(void *arg), void *arg,
                     struct env_thread **ret_thread) __attribute__((warn_unused_result));
void env_thread_join(struct env_thread *thread);

/*
 * Mutexes and condition variables. Initialised against an env, so that the simulation can take them over; not
 * recursive. env_mutex_unlock and env_cond_wait abort if the caller does not hold the mutex (simulation and debug
 * builds). As with POSIX, a wait may end without a signal: callers test their condition in a loop.
 */
struct env_mutex {
    struct env *env;
    pthread_mutex_t os;
    void *owner;                /* simulation and debug builds: the fiber or thread that holds it */
    struct fiber_wait *waiters; /* simulation */
};

struct env_cond {
    struct env *env;
    pthread_cond_t os;          /* on CLOCK_MONOTONIC */
    struct fiber_wait *waiters; /* simulation */
};

void env_mutex_init(struct env_mutex *m, struct env *env);
void env_mutex_destroy(struct env_mutex *m);
void env_mutex_lock(struct env_mutex *m);
void env_mutex_unlock(struct env_mutex *m);
bool env_mutex_held(const struct env_mutex *m); /* for assertions; true where it is not known */

void env_cond_init(struct env_cond *c, struct env *env);
void env_cond_destroy(struct env_cond *c);
void env_cond_wait(struct env_cond *c, struct env_mutex *m);
/* false if the duration passed without a wake-up. */
bool env_cond_wait_for(struct env_cond *c, struct env_mutex *m, uint64_t duration_ns);
void env_cond_signal(struct env_cond *c);
void env_cond_broadcast(struct env_cond *c);

#endif
