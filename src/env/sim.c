/*
 * The simulation's scheduler and clock.
 *
 * There is no scheduler context: a fiber that gives up the processor picks the next one itself and switches to it, or
 * just goes on if it picked itself. Timers fire inside that choice, when nobody is runnable, on the stack of whoever
 * chooses; what they fire therefore may wake fibers but not wait.
 */
#include "env/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "env/sim_impl.h"

/* Address space; memory is taken for what is touched. Much for a program, little for one with sanitizers. */
#define FIBER_STACK_BYTES MIB
/* The simulated world begins at an odd hour of 2024, so that no code comes to rely on times near zero. */
#define WALL_START_NS UINT64_C(1709208000123456789)
#define MONOTONIC_START_NS UINT64_C(5000000000)

void *sim_alloc(size_t n)
{
    void *p = calloc(1, n);
    CHECK(p != NULL);
    return p;
}

static void *grow(void *array, size_t *capacity, size_t element_bytes)
{
    size_t larger = *capacity == 0 ? 16 : *capacity * 2;
    void *p = realloc(array, larger * element_bytes);
    CHECK(p != NULL);
    *capacity = larger;
    return p;
}

struct sim *sim_new(uint64_t seed)
{
    struct sim *sim = sim_alloc(sizeof *sim);
    sim->env.sim = sim;
    prng_seed(&sim->prng, seed);
    sim_trace(sim, seed);
    sim->now_ns = MONOTONIC_START_NS;
    list_init(&sim->fibers);
    sim->outside.sim = sim;
    sim->outside.name = "outside";
    sim->outside.state = FIBER_RUNNING;
    list_append(&sim->fibers, &sim->outside.all);
    context_init_self(&sim->outside.context);
    sim->current = &sim->outside;
    return sim;
}

void sim_free(struct sim *sim)
{
    if (sim == NULL)
        return;
    CHECK_EQ(sim->fibers_alive, 0);
    CHECK_EQ(sim->fibers_unjoined, 0);
    CHECK_EQ(sim->disks, 0);
    CHECK_EQ(sim->heap_count, 0);
    while (sim->stacks != NULL) {
        struct context_stack *stack = sim->stacks;
        sim->stacks = stack->next;
        context_stack_free(stack);
    }
    free(sim->heap);
    free(sim->runnable);
    free(sim);
}

struct env *sim_env(struct sim *sim)
{
    return &sim->env;
}

uint64_t sim_trace_hash(const struct sim *sim)
{
    return sim->trace;
}

void sim_set_yield(struct sim *sim, unsigned yield_per_mille)
{
    CHECK_LE(yield_per_mille, 1000);
    sim->yield_per_mille = yield_per_mille;
}

uint64_t sim_now_ns(const struct sim *sim)
{
    return sim->now_ns;
}

uint64_t sim_wall_ns(const struct sim *sim)
{
    return sim->now_ns - MONOTONIC_START_NS + WALL_START_NS;
}

void sim_random(struct sim *sim, void *ret_bytes, size_t n)
{
    prng_fill(&sim->prng, ret_bytes, n);
}

/* Timers: a binary heap, each timer knows its place. */

static bool timer_before(const struct sim_timer *a, const struct sim_timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void heap_put(struct sim *sim, size_t place, struct sim_timer *timer)
{
    sim->heap[place] = timer;
    timer->heap_place = place;
}

static void heap_settle(struct sim *sim, size_t place, struct sim_timer *timer)
{
    while (place > 1 && timer_before(timer, sim->heap[place / 2])) {
        heap_put(sim, place, sim->heap[place / 2]);
        place /= 2;
    }
    for (;;) {
        size_t child = place * 2;
        if (child > sim->heap_count)
            break;
        if (child < sim->heap_count && timer_before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (timer_before(timer, sim->heap[child]))
            break;
        heap_put(sim, place, sim->heap[child]);
        place = child;
    }
    heap_put(sim, place, timer);
}

void sim_timer_set(struct sim *sim, struct sim_timer *timer, uint64_t at_ns)
{
    CHECK_EQ(timer->heap_place, 0);
    timer->at_ns = at_ns;
    timer->number = sim->timers_set++;
    while (sim->heap_count + 1 >= sim->heap_capacity)
        sim->heap = grow(sim->heap, &sim->heap_capacity, sizeof(struct sim_timer *));
    sim->heap_count++;
    heap_settle(sim, sim->heap_count, timer);
}

void sim_timer_cancel(struct sim *sim, struct sim_timer *timer)
{
    size_t place = timer->heap_place;
    if (place == 0)
        return;
    CHECK(sim->heap[place] == timer);
    struct sim_timer *last = sim->heap[sim->heap_count];
    sim->heap_count--;
    timer->heap_place = 0;
    if (last != timer)
        heap_settle(sim, place, last);
}

/* The scheduler. */

static void runnable_add(struct sim *sim, struct fiber *fiber)
{
    if (sim->runnable_count == sim->runnable_capacity)
        sim->runnable = grow(sim->runnable, &sim->runnable_capacity, sizeof(struct fiber *));
    fiber->state = FIBER_RUNNABLE;
    sim->runnable[sim->runnable_count] = fiber;
    sim->runnable_count++;
}

static _Noreturn void deadlock(struct sim *sim)
{
    fprintf(stderr, "deadlock in the simulation at %" PRIu64 " ns: no fiber can run and no timer is set\n",
            sim->now_ns);
    for (struct list *l = sim->fibers.next; l != &sim->fibers; l = l->next) {
        const struct fiber *fiber = CONTAINER_OF(l, struct fiber, all);
        fprintf(stderr, "  fiber %" PRIu64 " \"%s\" waits for %s %p\n", fiber->number, fiber->name,
                fiber->waits_for != NULL ? fiber->waits_for : "nothing", fiber->waits_on);
    }
    check_failed(__FILE__, __LINE__, "deadlock");
}

static void next_timer_fire(struct sim *sim)
{
    if (sim->heap_count == 0)
        deadlock(sim);
    struct sim_timer *timer = sim->heap[1];
    sim_timer_cancel(sim, timer);
    sim->now_ns = max_u64(sim->now_ns, timer->at_ns);
    timer->fire(timer);
}

static struct fiber *fiber_pick(struct sim *sim)
{
    while (sim->runnable_count == 0)
        next_timer_fire(sim);
    size_t i = sim->runnable_count == 1 ? 0 : (size_t)prng_below(&sim->prng, sim->runnable_count);
    struct fiber *next = sim->runnable[i];
    sim->runnable_count--;
    sim->runnable[i] = sim->runnable[sim->runnable_count];
    sim_trace(sim, next->number);
    next->state = FIBER_RUNNING;
    return next;
}

static void fiber_switch(struct sim *sim)
{
    struct fiber *self = sim->current;
    struct fiber *next = fiber_pick(sim);
    if (next == self)
        return;
    sim->current = next;
    context_switch(&self->context, &next->context);
}

void fiber_wake(struct fiber *fiber)
{
    CHECK_EQ(fiber->state, FIBER_WAITING);
    fiber->waits_for = NULL;
    fiber->waits_on = NULL;
    runnable_add(fiber->sim, fiber);
}

void sim_wait(struct sim *sim, const char *waits_for, const void *waits_on)
{
    struct fiber *self = sim->current;
    self->state = FIBER_WAITING;
    self->waits_for = waits_for;
    self->waits_on = waits_on;
    fiber_switch(sim);
}

/* The running fiber lets others run. Outside: does nothing. */
static void yield(struct sim *sim)
{
    if (sim_is_outside(sim))
        return;
    runnable_add(sim, sim->current);
    fiber_switch(sim);
}

bool sim_yield_maybe(struct sim *sim)
{
    if (sim->yield_per_mille == 0 || sim_is_outside(sim) || !prng_chance(&sim->prng, sim->yield_per_mille))
        return false;
    yield(sim);
    return true;
}

static void fiber_main(void *arg)
{
    struct fiber *self = arg;
    struct sim *sim = self->sim;
    self->run(self->arg);

    self->state = FIBER_ENDED;
    list_remove(&self->all);
    sim->fibers_alive--;
    if (self->joiner != NULL)
        fiber_wake(self->joiner);
    if (sim->fibers_alive == 0 && sim->outside_waits_for_all)
        fiber_wake(&sim->outside);
    self->stack->next = sim->stacks;
    sim->stacks = self->stack;
    self->stack = NULL;
    /* Nothing can start on this stack before the next fiber runs. */
    struct fiber *next = fiber_pick(sim);
    sim->current = next;
    context_switch_last(&self->context, &next->context);
}

struct fiber *fiber_start(struct sim *sim, const char *name, void (*run)(void *arg), void *arg)
{
    struct context_stack *stack = sim->stacks;
    if (stack != NULL)
        sim->stacks = stack->next;
    else
        stack = context_stack_new(FIBER_STACK_BYTES);
    if (stack == NULL)
        return NULL;
    struct fiber *fiber = sim_alloc(sizeof *fiber);
    fiber->sim = sim;
    fiber->number = ++sim->fibers_started;
    fiber->name = name;
    fiber->run = run;
    fiber->arg = arg;
    fiber->stack = stack;
    context_init(&fiber->context, stack, fiber_main, fiber);
    list_append(&sim->fibers, &fiber->all);
    sim->fibers_alive++;
    sim->fibers_unjoined++;
    runnable_add(sim, fiber);
    return fiber;
}

void fiber_free(struct fiber *fiber)
{
    CHECK_EQ(fiber->state, FIBER_ENDED);
    fiber->sim->fibers_unjoined--;
    context_fini(&fiber->context);
    free(fiber);
}

void sim_run(struct sim *sim, void (*run)(void *arg), void *arg)
{
    CHECK(sim_is_outside(sim));
    struct fiber *first = fiber_start(sim, "first", run, arg);
    CHECK(first != NULL);
    sim->outside_waits_for_all = true;
    sim_wait(sim, "the end of all fibers", NULL);
    sim->outside_waits_for_all = false;
    CHECK_EQ(sim->fibers_alive, 0);
    fiber_free(first);
}
