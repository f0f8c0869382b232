/*
 * Switching stacks. See context.h.
 *
 * AddressSanitizer: the side that leaves says where it goes (start_switch_fiber), the side that arrives says it is
 * there (finish_switch_fiber) and is told the bounds of the stack just left, from which the thread's own context learns
 * its bounds. ThreadSanitizer has a fiber object for each context, and a record of calls in each: both halves of a
 * switch must lie in one function, hence the always_inline.
 */
#include "env/context.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/math.h"

#if defined __has_feature
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define WITH_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define WITH_TSAN 1
#endif

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

struct context_stack *context_stack_new(size_t size_bytes)
{
    struct context_stack *stack = calloc(1, sizeof *stack);
    if (stack == NULL)
        return NULL;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    stack->size_bytes = (size_t)round_up(size_bytes, page_bytes);
    stack->mapping_bytes = stack->size_bytes + page_bytes;
    stack->mapping = mmap(NULL, stack->mapping_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (stack->mapping == MAP_FAILED) {
        free(stack);
        return NULL;
    }
    int ret = mprotect(stack->mapping, page_bytes, PROT_NONE);
    CHECK_EQ(ret, 0);
    stack->bottom = (uint8_t *)stack->mapping + page_bytes;
    return stack;
}

/* Frames that were left and not returned from are still marked as in use. */
static void stack_unpoison(const struct context_stack *stack)
{
#ifdef WITH_ASAN
    ASAN_UNPOISON_MEMORY_REGION(stack->bottom, stack->size_bytes);
#else
    (void)stack;
#endif
}

void context_stack_free(struct context_stack *stack)
{
    stack_unpoison(stack);
    int ret = munmap(stack->mapping, stack->mapping_bytes);
    CHECK_EQ(ret, 0);
    free(stack);
}

static inline __attribute__((always_inline)) void leave(struct context *from, struct context *to, int last)
{
    to->came_from = from;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->stack_bottom, to->stack_bytes);
#else
    (void)last;
#endif
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
}

static inline __attribute__((always_inline)) void arrive(struct context *here)
{
#ifdef WITH_ASAN
    const void *bottom;
    size_t size_bytes;
    __sanitizer_finish_switch_fiber(here->fake_stack, &bottom, &size_bytes);
    here->fake_stack = NULL;
    here->came_from->stack_bottom = bottom;
    here->came_from->stack_bytes = size_bytes;
#endif
    here->came_from = NULL;
}

/* makecontext passes ints only: the pointer goes in two halves. */
static void context_main(unsigned high, unsigned low)
{
    struct context *c = (struct context *)(uintptr_t)((uint64_t)high << 32 | low);
    arrive(c);
    c->run(c->arg);
    check_failed(__FILE__, __LINE__, "a context returned");
}

void context_init_self(struct context *c)
{
    *c = (struct context){0};
#ifdef WITH_TSAN
    c->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void context_init(struct context *c, struct context_stack *stack, void (*run)(void *arg), void *arg)
{
    *c = (struct context){.run = run, .arg = arg, .stack_bottom = stack->bottom, .stack_bytes = stack->size_bytes};
    stack_unpoison(stack);
    int ret = getcontext(&c->machine);
    CHECK_EQ(ret, 0);
    c->machine.uc_stack.ss_sp = stack->bottom;
    c->machine.uc_stack.ss_size = stack->size_bytes;
    c->machine.uc_link = NULL;
    uint64_t address = (uintptr_t)c;
    makecontext(&c->machine, (void (*)(void))context_main, 2, (unsigned)(address >> 32), (unsigned)address);
    /* Only makecontext needs these; AddressSanitizer's swapcontext would wipe its record of the whole stack each time.
     */
    c->machine.uc_stack.ss_sp = NULL;
    c->machine.uc_stack.ss_size = 0;
#ifdef WITH_TSAN
    c->tsan_fiber = __tsan_create_fiber(0);
#endif
}

void context_fini(struct context *c)
{
#ifdef WITH_TSAN
    __tsan_destroy_fiber(c->tsan_fiber);
    c->tsan_fiber = NULL;
#else
    (void)c;
#endif
}

void context_switch(struct context *from, struct context *to)
{
    leave(from, to, 0);
    int ret = swapcontext(&from->machine, &to->machine);
    CHECK_EQ(ret, 0);
    arrive(from);
}

void context_switch_last(struct context *from, struct context *to)
{
    leave(from, to, 1);
    (void)setcontext(&to->machine);
    check_failed(__FILE__, __LINE__, "setcontext");
}
