/*
 * Contexts of execution with stacks of their own, for the fibers of the simulation: ucontext, with the annotations that
 * AddressSanitizer and ThreadSanitizer need to follow a change of stacks.
 *
 * ucontext and not a switch in assembly: a switch costs 0.2 microseconds here (a system call for the signal mask), and
 * a fiber that is picked again at once, the usual case, does not switch. That is little beside the 4 KiB copy and hash
 * of an operation, and it is the same code on every processor.
 */
#ifndef ASHLAR_ENV_CONTEXT_H
#define ASHLAR_ENV_CONTEXT_H

#include <stddef.h>
#include <ucontext.h>

/* A stack with an inaccessible page below it, so that an overflow faults at once. `next` is for the owner's lists. */
struct context_stack {
    struct context_stack *next;
    void *mapping;
    size_t mapping_bytes;
    void *bottom;
    size_t size_bytes;
};

struct context {
    ucontext_t machine;
    void (*run)(void *arg);
    void *arg;
    const void *stack_bottom; /* for the sanitizers; of the thread's own context: learned when it is left */
    size_t stack_bytes;
    struct context *came_from; /* the context left by the switch that resumed this one */
    void *fake_stack;          /* AddressSanitizer's, while not running */
    void *tsan_fiber;
};

/* NULL if there is no memory. */
struct context_stack *context_stack_new(size_t size_bytes);
void context_stack_free(struct context_stack *stack);

/* The context that is running now, on a stack not of ours. */
void context_init_self(struct context *c);
/* A context that calls run(arg) when first switched to; run never returns, it ends with context_switch_last. */
void context_init(struct context *c, struct context_stack *stack, void (*run)(void *arg), void *arg);
/* Not of the running context. */
void context_fini(struct context *c);

/* Leaves `from`, the running context; returns when something switches back to it. */
void context_switch(struct context *from, struct context *to);
/* Leaves the running context for good: its stack may be used again once `to` runs. */
_Noreturn void context_switch_last(struct context *from, struct context *to);

#endif
