/*
 * Inside of the simulation: fibers, timers, the trace. Shared by sim.c (scheduler and clock), sim_sync.c (locks and
 * threads) and the simulated disks.
 *
 * Everything here belongs to one OS thread; nothing is locked.
 *
 * States of a fiber, and who changes them:
 *   RUNNABLE -> RUNNING   fiber_pick, at the end of each sim_wait and yield
 *   RUNNING  -> RUNNABLE  sim_yield_maybe
 *   RUNNING  -> WAITING   sim_wait
 *   WAITING  -> RUNNABLE  fiber_wake, by another fiber or by a timer
 *   RUNNING  -> ENDED     its function returned
 * The code that created the simulation is a fiber as well, `outside`, on the stack it came with. It never yields of its
 * own accord and its device operations complete at once, so plain test code runs as if it were alone; where it must
 * wait (a join, a condition), the other fibers run.
 */
#ifndef ASHLAR_ENV_SIM_IMPL_H
#define ASHLAR_ENV_SIM_IMPL_H

#include "base/list.h"
#include "base/prng.h"
#include "env/context.h"
#include "env/env_impl.h"
#include "env/sim.h"

enum fiber_state { FIBER_RUNNABLE, FIBER_RUNNING, FIBER_WAITING, FIBER_ENDED };

/* Something that happens at a moment of the simulated clock. */
struct sim_timer {
    uint64_t at_ns;
    uint64_t number;   /* by order of setting: decides between equal moments */
    size_t heap_place; /* 1-based; 0: not set */
    void (*fire)(struct sim_timer *timer);
};

/* A fiber's place among those that wait for the same mutex or condition. */
struct fiber_wait {
    struct fiber_wait *next, *prev; /* a ring */
    struct fiber_wait **head;       /* of the ring it is in; NULL: in none */
};

struct fiber {
    struct sim *sim;
    uint64_t number; /* by order of starting; 0: outside */
    const char *name;
    enum fiber_state state;
    const char *waits_for; /* for the report of a deadlock */
    const void *waits_on;
    struct fiber_wait wait;
    struct sim_timer timer;
    bool timed_out;
    struct list all; /* in sim->fibers while it has not ended */
    struct fiber *joiner;
    void (*run)(void *arg);
    void *arg;
    struct context context;
    struct context_stack *stack; /* NULL: outside */
};

struct sim {
    struct env env;
    struct prng prng;
    uint64_t trace;
    unsigned yield_per_mille;

    uint64_t now_ns;
    struct sim_timer **heap; /* 1-based, earliest first */
    size_t heap_count, heap_capacity;
    uint64_t timers_set;

    struct fiber outside;
    struct fiber *current;
    struct list fibers;
    size_t fibers_alive; /* without outside */
    size_t fibers_unjoined;
    bool outside_waits_for_all;
    uint64_t fibers_started;
    struct fiber **runnable;
    size_t runnable_count, runnable_capacity;
    struct context_stack *stacks; /* of ended fibers, to be used again */
    uint64_t disks;               /* alive */
};

/* Adds a number to the trace hash. */
static inline void sim_trace(struct sim *sim, uint64_t value)
{
    sim->trace = (sim->trace ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    sim->trace ^= sim->trace >> 29;
}

static inline bool sim_is_outside(const struct sim *sim)
{
    return sim->current == &sim->outside;
}

/* Memory of the simulation itself; aborts if there is none. */
void *sim_alloc(size_t n);

void sim_timer_set(struct sim *sim, struct sim_timer *timer, uint64_t at_ns);
void sim_timer_cancel(struct sim *sim, struct sim_timer *timer); /* not set: nothing */

struct fiber *fiber_start(struct sim *sim, const char *name, void (*run)(void *arg), void *arg);
/* A fiber that ended and nobody needs any more. */
void fiber_free(struct fiber *fiber);
void fiber_wake(struct fiber *fiber);
/* The running fiber waits until fiber_wake; what for and on which object: texts for the report of a deadlock. */
void sim_wait(struct sim *sim, const char *waits_for, const void *waits_on);
/* Lets other fibers run, with the probability set by sim_set_yield; true if it did. Outside: never. */
bool sim_yield_maybe(struct sim *sim);

#endif
