/*
 * Threads, locks and sleeping in the simulation.
 *
 * A mutex is not handed over: unlocking wakes one waiter, chosen by the seed, which then competes like anybody else.
 * Conditions wake waiters in any order and, where the test asked for yields, at times for no reason: POSIX allows both,
 * so the code above env/ has to stand it.
 */
#include <errno.h>
#include <stddef.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "env/sim_impl.h"

static struct sim *mutex_sim(const struct env_mutex *m)
{
    return m->env->sim;
}

static void wait_insert(struct fiber_wait **head, struct fiber_wait *wait)
{
    CHECK(wait->head == NULL);
    wait->head = head;
    if (*head == NULL) {
        wait->next = wait->prev = wait;
        *head = wait;
        return;
    }
    wait->next = *head;
    wait->prev = (*head)->prev;
    wait->prev->next = wait;
    wait->next->prev = wait;
}

static void wait_remove(struct fiber_wait *wait)
{
    struct fiber_wait **head = wait->head;
    wait->head = NULL;
    if (wait->next == wait) {
        *head = NULL;
        return;
    }
    wait->next->prev = wait->prev;
    wait->prev->next = wait->next;
    if (*head == wait)
        *head = wait->next;
}

static void wake_one(struct sim *sim, struct fiber_wait **head)
{
    struct fiber_wait *wait = *head;
    if (wait == NULL)
        return;
    size_t count = 1;
    for (const struct fiber_wait *w = wait->next; w != wait; w = w->next)
        count++;
    for (uint64_t skip = count == 1 ? 0 : prng_below(&sim->prng, count); skip > 0; skip--)
        wait = wait->next;
    wait_remove(wait);
    fiber_wake(CONTAINER_OF(wait, struct fiber, wait));
}

static void wait_in(struct sim *sim, struct fiber_wait **head, const char *waits_for, const void *waits_on)
{
    wait_insert(head, &sim->current->wait);
    sim_wait(sim, waits_for, waits_on);
}

static void mutex_take(struct env_mutex *m)
{
    struct sim *sim = mutex_sim(m);
    while (m->owner != NULL)
        wait_in(sim, &m->waiters, "mutex", m);
    m->owner = sim->current;
}

static void mutex_release(struct env_mutex *m)
{
    m->owner = NULL;
    wake_one(mutex_sim(m), &m->waiters);
}

void sim_mutex_lock(struct env_mutex *m)
{
    struct sim *sim = mutex_sim(m);
    CHECK(m->owner != sim->current);
    sim_yield_maybe(sim);
    mutex_take(m);
}

void sim_mutex_unlock(struct env_mutex *m)
{
    CHECK(sim_mutex_held(m));
    mutex_release(m);
    sim_yield_maybe(mutex_sim(m));
}

bool sim_mutex_held(const struct env_mutex *m)
{
    return m->owner == mutex_sim(m)->current;
}

void sim_cond_wait(struct env_cond *c, struct env_mutex *m)
{
    struct sim *sim = mutex_sim(m);
    CHECK(sim_mutex_held(m));
    mutex_release(m);
    if (!sim_yield_maybe(sim))
        wait_in(sim, &c->waiters, "condition", c);
    mutex_take(m);
}

static void wait_timed_out(struct sim_timer *timer)
{
    struct fiber *fiber = CONTAINER_OF(timer, struct fiber, timer);
    fiber->timed_out = true;
    if (fiber->wait.head != NULL) {
        wait_remove(&fiber->wait);
        fiber_wake(fiber);
    }
}

bool sim_cond_wait_for(struct env_cond *c, struct env_mutex *m, uint64_t duration_ns)
{
    struct sim *sim = mutex_sim(m);
    struct fiber *self = sim->current;
    uint64_t at_ns;
    CHECK(sim_mutex_held(m));
    mutex_release(m);
    self->timed_out = false;
    if (!sim_yield_maybe(sim)) {
        self->timer.fire = wait_timed_out;
        if (add_fits(sim->now_ns, duration_ns, &at_ns))
            sim_timer_set(sim, &self->timer, at_ns);
        wait_in(sim, &c->waiters, "condition", c);
        sim_timer_cancel(sim, &self->timer);
    }
    bool woken = !self->timed_out;
    mutex_take(m);
    return woken;
}

void sim_cond_signal(struct env_cond *c)
{
    wake_one(c->env->sim, &c->waiters);
    sim_yield_maybe(c->env->sim);
}

void sim_cond_broadcast(struct env_cond *c)
{
    while (c->waiters != NULL)
        wake_one(c->env->sim, &c->waiters);
    sim_yield_maybe(c->env->sim);
}

static void sleep_ended(struct sim_timer *timer)
{
    fiber_wake(CONTAINER_OF(timer, struct fiber, timer));
}

void sim_sleep_ns(struct sim *sim, uint64_t duration_ns)
{
    struct fiber *self = sim->current;
    uint64_t at_ns;
    if (!add_fits(sim->now_ns, duration_ns, &at_ns))
        at_ns = UINT64_MAX;
    self->timer.fire = sleep_ended;
    sim_timer_set(sim, &self->timer, at_ns);
    sim_wait(sim, "the end of a sleep", NULL);
}

int sim_thread_start(struct env_thread *thread)
{
    struct sim *sim = thread->env->sim;
    thread->fiber = fiber_start(sim, thread->name, thread->run, thread->arg);
    if (thread->fiber == NULL)
        return -EAGAIN;
    sim_yield_maybe(sim);
    return 0;
}

void sim_thread_join(struct env_thread *thread)
{
    struct fiber *fiber = thread->fiber;
    struct sim *sim = fiber->sim;
    CHECK(fiber != sim->current);
    CHECK(fiber->joiner == NULL);
    if (fiber->state != FIBER_ENDED) {
        fiber->joiner = sim->current;
        sim_wait(sim, "the end of a thread", fiber);
    }
    fiber_free(fiber);
}
