/*
 * Inside of env/: what a struct env and a thread are, and the doors of the simulation that sync.c and os.c go through
 * when an env belongs to one. Nobody above env/ includes this.
 */
#ifndef ASHLAR_ENV_ENV_IMPL_H
#define ASHLAR_ENV_ENV_IMPL_H

#include "env/env.h"

#define ENV_THREAD_NAME_BYTES 16

struct env {
    struct sim *sim; /* NULL: the operating system */
};

struct fiber;

struct env_thread {
    struct env *env;
    void (*run)(void *arg);
    void *arg;
    char name[ENV_THREAD_NAME_BYTES];
    pthread_t os;
    struct fiber *fiber; /* simulation */
};

/* The simulated halves of the functions of env.h with the same names. */
uint64_t sim_now_ns(const struct sim *sim);
uint64_t sim_wall_ns(const struct sim *sim);
void sim_random(struct sim *sim, void *ret_bytes, size_t n);
void sim_sleep_ns(struct sim *sim, uint64_t duration_ns);
int sim_thread_start(struct env_thread *thread);
void sim_thread_join(struct env_thread *thread);
void sim_mutex_lock(struct env_mutex *m);
void sim_mutex_unlock(struct env_mutex *m);
bool sim_mutex_held(const struct env_mutex *m);
void sim_cond_wait(struct env_cond *c, struct env_mutex *m);
bool sim_cond_wait_for(struct env_cond *c, struct env_mutex *m, uint64_t duration_ns);
void sim_cond_signal(struct env_cond *c);
void sim_cond_broadcast(struct env_cond *c);

#endif
