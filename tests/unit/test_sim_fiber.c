/*
 * Fibers of the simulation: scheduling by seed, its clock, locks, and what aborts.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "env/env.h"
#include "env/sim.h"
#include "seed.h"
#include "tap.h"

#define MS UINT64_C(1000000)
#define FIBERS 5

static uint64_t seed;

struct world {
    struct sim *sim;
    struct env *env;
    struct env_mutex lock;
    struct env_cond changed;
    int inside, inside_max, entered, ended;
    uint64_t turn;
    char order[256];
    size_t order_length;
};

static void world_init(struct world *w, uint64_t sim_seed)
{
    memset(w, 0, sizeof *w);
    w->sim = sim_new(sim_seed);
    w->env = sim_env(w->sim);
    env_mutex_init(&w->lock, w->env);
    env_cond_init(&w->changed, w->env);
}

static void world_fini(struct world *w)
{
    env_cond_destroy(&w->changed);
    env_mutex_destroy(&w->lock);
    sim_free(w->sim);
}

static void start_and_join_all(struct world *w, void (*run)(void *))
{
    struct env_thread *threads[FIBERS];
    for (int i = 0; i < FIBERS; i++)
        REQUIRE(env_thread_start(w->env, "worker", run, w, &threads[i]) == 0);
    for (int i = 0; i < FIBERS; i++)
        env_thread_join(threads[i]);
}

static void note(struct world *w, char letter)
{
    if (w->order_length + 1 < sizeof w->order)
        w->order[w->order_length++] = letter;
}

static void enter_and_sleep(void *arg)
{
    struct world *w = arg;
    for (int i = 0; i < 10; i++) {
        env_mutex_lock(&w->lock);
        w->inside++;
        if (w->inside > w->inside_max)
            w->inside_max = w->inside;
        env_sleep_ns(w->env, MS);
        w->inside--;
        w->entered++;
        env_mutex_unlock(&w->lock);
    }
}

static void run_enter_and_sleep(void *arg)
{
    start_and_join_all(arg, enter_and_sleep);
}

static void test_mutex_excludes(void)
{
    struct world w;
    world_init(&w, seed);
    uint64_t before = env_now_ns(w.env);
    sim_run(w.sim, run_enter_and_sleep, &w);
    EXPECT_EQ(w.entered, FIBERS * 10);
    EXPECT_EQ(w.inside_max, 1);
    /* One at a time, a millisecond each, and nothing else takes time. */
    EXPECT_EQ(env_now_ns(w.env) - before, FIBERS * 10 * MS);
    EXPECT(env_wall_ns(w.env) > UINT64_C(1704067200000000000));
    world_fini(&w);
}

static void note_letters(void *arg)
{
    struct world *w = arg;
    char letter = (char)('a' + w->ended++);
    for (int i = 0; i < 8; i++) {
        env_mutex_lock(&w->lock);
        note(w, letter);
        env_mutex_unlock(&w->lock);
    }
}

static void run_note_letters(void *arg)
{
    start_and_join_all(arg, note_letters);
}

static uint64_t letters_of(uint64_t sim_seed, unsigned yield_per_mille, char *ret_order)
{
    struct world w;
    world_init(&w, sim_seed);
    sim_set_yield(w.sim, yield_per_mille);
    sim_run(w.sim, run_note_letters, &w);
    uint64_t hash = sim_trace_hash(w.sim);
    memcpy(ret_order, w.order, sizeof w.order);
    world_fini(&w);
    return hash;
}

static void test_same_seed_same_order(void)
{
    char a[256], b[256], c[256], straight[256];
    uint64_t hash_a = letters_of(seed, 500, a);
    uint64_t hash_b = letters_of(seed, 500, b);
    uint64_t hash_c = letters_of(seed + 1, 500, c);
    EXPECT_EQ(hash_a, hash_b);
    EXPECT_TEXT(a, b);
    EXPECT(hash_a != hash_c);
    EXPECT(strcmp(a, c) != 0);
    EXPECT_EQ(strlen(a), FIBERS * 8);
    /* Without yields a fiber that never waits is never interrupted. */
    letters_of(seed, 0, straight);
    EXPECT(strncmp(straight, "aaaaaaaabbbbbbbb", 16) == 0);
    EXPECT(strcmp(a, straight) != 0);
}

static void take_turns(struct world *w, uint64_t parity)
{
    env_mutex_lock(&w->lock);
    for (int i = 0; i < 100; i++) {
        while (w->turn % 2 != parity)
            env_cond_wait(&w->changed, &w->lock);
        w->turn++;
        env_cond_signal(&w->changed);
    }
    env_mutex_unlock(&w->lock);
}

static void take_odd_turns(void *arg)
{
    take_turns(arg, 1);
}

static void run_turns(void *arg)
{
    struct world *w = arg;
    struct env_thread *thread;
    REQUIRE(env_thread_start(w->env, "odd", take_odd_turns, w, &thread) == 0);
    take_turns(w, 0);
    env_thread_join(thread);
}

static void test_condition_wakes(void)
{
    for (unsigned yield = 0; yield <= 300; yield += 100) {
        struct world w;
        world_init(&w, seed + yield);
        sim_set_yield(w.sim, yield);
        sim_run(w.sim, run_turns, &w);
        EXPECT_EQ(w.turn, 200);
        world_fini(&w);
    }
}

static void wait_and_count(void *arg)
{
    struct world *w = arg;
    env_mutex_lock(&w->lock);
    w->entered++;
    env_cond_wait(&w->changed, &w->lock);
    w->ended++;
    env_mutex_unlock(&w->lock);
}

static void run_signal_then_broadcast(void *arg)
{
    struct world *w = arg;
    struct env_thread *threads[FIBERS];
    for (int i = 0; i < FIBERS; i++)
        REQUIRE(env_thread_start(w->env, "waiter", wait_and_count, w, &threads[i]) == 0);
    while (w->entered < FIBERS)
        env_sleep_ns(w->env, 1);
    env_cond_signal(&w->changed);
    env_sleep_ns(w->env, 1);
    EXPECT_EQ(w->ended, 1);
    env_cond_broadcast(&w->changed);
    env_sleep_ns(w->env, 1);
    EXPECT_EQ(w->ended, FIBERS);
    for (int i = 0; i < FIBERS; i++)
        env_thread_join(threads[i]);
}

static void test_signal_wakes_one_broadcast_all(void)
{
    struct world w;
    world_init(&w, seed);
    sim_run(w.sim, run_signal_then_broadcast, &w);
    world_fini(&w);
}

static void signal_after_3ms(void *arg)
{
    struct world *w = arg;
    env_sleep_ns(w->env, 3 * MS);
    env_cond_signal(&w->changed);
}

static void run_wait_for(void *arg)
{
    struct world *w = arg;
    struct env_thread *thread;
    uint64_t start = env_now_ns(w->env);
    env_mutex_lock(&w->lock);
    EXPECT(!env_cond_wait_for(&w->changed, &w->lock, 2 * MS));
    EXPECT_EQ(env_now_ns(w->env) - start, 2 * MS);
    EXPECT(env_mutex_held(&w->lock));

    REQUIRE(env_thread_start(w->env, "signal", signal_after_3ms, w, &thread) == 0);
    EXPECT(env_cond_wait_for(&w->changed, &w->lock, 10 * MS));
    EXPECT_EQ(env_now_ns(w->env) - start, 5 * MS);
    env_thread_join(thread);

    REQUIRE(env_thread_start(w->env, "signal", signal_after_3ms, w, &thread) == 0);
    EXPECT(env_cond_wait_for(&w->changed, &w->lock, UINT64_MAX));
    EXPECT_EQ(env_now_ns(w->env) - start, 8 * MS);
    env_mutex_unlock(&w->lock);
    env_thread_join(thread);
}

static void test_wait_for(void)
{
    struct world w;
    world_init(&w, seed);
    sim_run(w.sim, run_wait_for, &w);
    world_fini(&w);
}

/* Code outside sim_run may start threads, wait for them, and sleep; the fibers run meanwhile. */
static void test_outside(void)
{
    struct world w;
    world_init(&w, seed);
    uint64_t start = env_now_ns(w.env);
    env_sleep_ns(w.env, 7 * MS);
    EXPECT_EQ(env_now_ns(w.env) - start, 7 * MS);
    env_mutex_lock(&w.lock);
    EXPECT(env_mutex_held(&w.lock));
    env_mutex_unlock(&w.lock);
    EXPECT(!env_mutex_held(&w.lock));
    run_turns(&w);
    EXPECT_EQ(w.turn, 200);
    run_wait_for(&w);
    world_fini(&w);
}

static void nested(void *arg)
{
    struct world *outer = arg;
    char order[256];
    letters_of(seed, 200, order);
    EXPECT_EQ(strlen(order), FIBERS * 8);
    outer->ended++;
}

/* A whole simulation inside a fiber of another: nothing is global. */
static void test_simulation_in_simulation(void)
{
    struct world w;
    world_init(&w, seed);
    sim_run(w.sim, nested, &w);
    EXPECT_EQ(w.ended, 1);
    world_fini(&w);
}

/* Frames of 8 KiB down to most of a fiber's 1 MiB; gives up the processor at the bottom. */
static int dig(struct world *w, int levels)
{
    volatile char room[8192];
    room[0] = 1;
    room[sizeof room - 1] = 1;
    if (levels > 1)
        return dig(w, levels - 1) + room[0];
    env_sleep_ns(w->env, 1);
    return room[sizeof room - 1];
}

static void deep(void *arg)
{
    struct world *w = arg;
    w->ended += dig(w, 90);
}

static void test_stack_is_large_enough(void)
{
    struct world w;
    world_init(&w, seed);
    sim_run(w.sim, deep, &w);
    sim_run(w.sim, deep, &w);
    EXPECT_EQ(w.ended, 180);
    world_fini(&w);
}

static void test_random_is_from_the_seed(void)
{
    uint64_t values[3];
    for (uint64_t i = 0; i < 3; i++) {
        struct sim *sim = sim_new(seed + i / 2);
        env_random(sim_env(sim), &values[i], sizeof values[i]);
        sim_free(sim);
    }
    EXPECT_EQ(values[0], values[1]);
    EXPECT(values[0] != values[2]);
}

/* Runs function(arg) in a child; true if it aborts having printed each of the texts (at most 3) to stderr. */
static bool aborts_saying(void (*function)(struct world *), const char *const *texts)
{
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0)
        return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(pipe_ends[1], STDERR_FILENO);
        (void)close(STDOUT_FILENO);
        struct world w;
        world_init(&w, seed);
        function(&w);
        _exit(0);
    }
    (void)close(pipe_ends[1]);
    char said[4096] = "";
    size_t length = 0;
    ssize_t n;
    while (length + 1 < sizeof said && (n = read(pipe_ends[0], said + length, sizeof said - 1 - length)) > 0)
        length += (size_t)n;
    (void)close(pipe_ends[0]);
    int status = 0;
    bool ok = waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    for (; *texts != NULL; texts++)
        ok = ok && strstr(said, *texts) != NULL;
    if (!ok)
        printf("# child said: %s\n", said);
    return ok;
}

static void wait_for_nobody(void *arg)
{
    struct world *w = arg;
    env_mutex_lock(&w->lock);
    env_cond_wait(&w->changed, &w->lock);
}

static void run_two_waiters(void *arg)
{
    struct world *w = arg;
    struct env_thread *thread;
    if (env_thread_start(w->env, "lonely", wait_for_nobody, w, &thread) == 0)
        env_thread_join(thread);
}

static void deadlock_in_fibers(struct world *w)
{
    sim_run(w->sim, run_two_waiters, w);
}

static void deadlock_outside(struct world *w)
{
    wait_for_nobody(w);
}

static void unlock_not_held(struct world *w)
{
    env_mutex_unlock(&w->lock);
}

static void lock_twice(struct world *w)
{
    env_mutex_lock(&w->lock);
    env_mutex_lock(&w->lock);
}

static void wait_without_lock(struct world *w)
{
    env_cond_wait(&w->changed, &w->lock);
}

static void test_deadlock_and_misuse_abort(void)
{
    EXPECT(aborts_saying(deadlock_in_fibers, (const char *const[]){"deadlock", "\"lonely\" waits for condition",
                                                                   "\"first\" waits for the end of a thread", NULL}));
    EXPECT(aborts_saying(deadlock_outside, (const char *const[]){"deadlock", "\"outside\" waits for condition", NULL}));
    EXPECT(aborts_saying(unlock_not_held, (const char *const[]){"sim_sync.c", NULL}));
    EXPECT(aborts_saying(lock_twice, (const char *const[]){"sim_sync.c", NULL}));
    EXPECT(aborts_saying(wait_without_lock, (const char *const[]){"sim_sync.c", NULL}));
}

int main(void)
{
    seed = seed_choose();
    RUN(test_mutex_excludes);
    RUN(test_same_seed_same_order);
    RUN(test_condition_wakes);
    RUN(test_signal_wakes_one_broadcast_all);
    RUN(test_wait_for);
    RUN(test_outside);
    RUN(test_simulation_in_simulation);
    RUN(test_stack_is_large_enough);
    RUN(test_random_is_from_the_seed);
    RUN(test_deadlock_and_misuse_abort);
    return tap_done();
}
