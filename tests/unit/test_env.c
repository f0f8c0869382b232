/*
 * The operating system side of env.h: clocks, entropy, threads, mutexes, condition variables. Built with
 * -Db_sanitize=thread it is also the race test of these.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/env.h"
#include "tap.h"

#define MS UINT64_C(1000000)

static void test_clocks(void)
{
    struct env *env = env_os();
    EXPECT(env_sim(env) == NULL);
    uint64_t before = env_now_ns(env);
    env_sleep_ns(env, 5 * MS);
    uint64_t after = env_now_ns(env);
    EXPECT(after - before >= 5 * MS);
    EXPECT(after - before < 5000 * MS);
    /* Later than 2024, earlier than 2100. */
    EXPECT(env_wall_ns(env) > UINT64_C(1704067200000000000));
    EXPECT(env_wall_ns(env) < UINT64_C(4102444800000000000));
}

static void test_random(void)
{
    uint8_t a[300] = {0}, b[300] = {0};
    env_random(env_os(), a, sizeof a);
    env_random(env_os(), b, sizeof b);
    EXPECT(memcmp(a, b, sizeof a) != 0);
    size_t zeroes = 0;
    for (size_t i = 0; i < sizeof a; i++)
        zeroes += a[i] == 0;
    EXPECT(zeroes < 30);
}

struct counter {
    struct env_mutex lock;
    struct env_cond changed;
    uint64_t value, turn;
};

static void counter_init(struct counter *c)
{
    memset(c, 0, sizeof *c);
    env_mutex_init(&c->lock, env_os());
    env_cond_init(&c->changed, env_os());
}

static void counter_fini(struct counter *c)
{
    env_cond_destroy(&c->changed);
    env_mutex_destroy(&c->lock);
}

static void count_to_10000(void *arg)
{
    struct counter *c = arg;
    for (int i = 0; i < 10000; i++) {
        env_mutex_lock(&c->lock);
        c->value++;
        env_mutex_unlock(&c->lock);
    }
}

static void test_mutex_excludes(void)
{
    struct counter c;
    counter_init(&c);
    struct env_thread *threads[4];
    for (int i = 0; i < 4; i++)
        REQUIRE(env_thread_start(env_os(), "counter", count_to_10000, &c, &threads[i]) == 0);
    for (int i = 0; i < 4; i++)
        env_thread_join(threads[i]);
    EXPECT_EQ(c.value, 40000);
    counter_fini(&c);
}

/* Two threads take turns: each waits for its parity. */
static void take_turns(struct counter *c, uint64_t parity)
{
    env_mutex_lock(&c->lock);
    for (int i = 0; i < 500; i++) {
        while (c->turn % 2 != parity)
            env_cond_wait(&c->changed, &c->lock);
        c->turn++;
        env_cond_broadcast(&c->changed);
    }
    env_mutex_unlock(&c->lock);
}

static void take_odd_turns(void *arg)
{
    take_turns(arg, 1);
}

static void test_condition_wakes(void)
{
    struct counter c;
    counter_init(&c);
    struct env_thread *thread;
    REQUIRE(env_thread_start(env_os(), "odd", take_odd_turns, &c, &thread) == 0);
    take_turns(&c, 0);
    env_thread_join(thread);
    EXPECT_EQ(c.turn, 1000);
    counter_fini(&c);
}

static void signal_once(void *arg)
{
    struct counter *c = arg;
    env_mutex_lock(&c->lock);
    c->value = 1;
    env_cond_signal(&c->changed);
    env_mutex_unlock(&c->lock);
}

static void test_wait_for(void)
{
    struct counter c;
    counter_init(&c);
    env_mutex_lock(&c.lock);
    uint64_t before = env_now_ns(env_os());
    /* A wake-up for no reason is allowed, but not time and again. */
    bool woken = true;
    for (int i = 0; i < 100 && woken; i++)
        woken = env_cond_wait_for(&c.changed, &c.lock, 10 * MS);
    EXPECT(!woken);
    EXPECT(env_now_ns(env_os()) - before >= 10 * MS);

    struct env_thread *thread;
    REQUIRE(env_thread_start(env_os(), "signal", signal_once, &c, &thread) == 0);
    woken = true;
    while (c.value == 0 && woken)
        woken = env_cond_wait_for(&c.changed, &c.lock, UINT64_MAX);
    EXPECT(woken);
    EXPECT_EQ(c.value, 1);
    env_mutex_unlock(&c.lock);
    env_thread_join(thread);
    counter_fini(&c);
}

struct thread_facts {
    char name[16];
    bool term_blocked, segv_blocked;
};

static void thread_facts_read(void *arg)
{
    struct thread_facts *facts = arg;
    sigset_t mask;
    (void)pthread_getname_np(pthread_self(), facts->name, sizeof facts->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    facts->term_blocked = sigismember(&mask, SIGTERM) == 1;
    facts->segv_blocked = sigismember(&mask, SIGSEGV) == 1;
}

static void test_thread_name_and_signals(void)
{
    struct thread_facts facts;
    struct env_thread *thread;
    REQUIRE(env_thread_start(env_os(), "a-name-that-is-longer", thread_facts_read, &facts, &thread) == 0);
    env_thread_join(thread);
    EXPECT_TEXT(facts.name, "a-name-that-is-");
    EXPECT(facts.term_blocked);
    EXPECT(!facts.segv_blocked);
    sigset_t mask;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

#ifdef ASHLAR_DEBUG
static struct env_mutex misused;

static void unlock_not_held(void)
{
    env_mutex_unlock(&misused);
}

static void lock_twice(void)
{
    env_mutex_lock(&misused);
    env_mutex_lock(&misused);
}

static bool aborts(void (*function)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int quiet = dup2(STDOUT_FILENO, STDERR_FILENO);
        (void)quiet;
        (void)close(STDOUT_FILENO);
        (void)close(STDERR_FILENO);
        function();
        _exit(0);
    }
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}
#endif

static void test_misuse_aborts(void)
{
#ifdef ASHLAR_DEBUG
    env_mutex_init(&misused, env_os());
    EXPECT(!env_mutex_held(&misused));
    env_mutex_lock(&misused);
    EXPECT(env_mutex_held(&misused));
    env_mutex_unlock(&misused);
    EXPECT(aborts(unlock_not_held));
    EXPECT(aborts(lock_twice));
    env_mutex_destroy(&misused);
#else
    tap_skip("owners are kept in debug builds only");
#endif
}

int main(void)
{
    RUN(test_clocks);
    RUN(test_random);
    RUN(test_mutex_excludes);
    RUN(test_condition_wakes);
    RUN(test_wait_for);
    RUN(test_thread_name_and_signals);
    RUN(test_misuse_aborts);
    return tap_done();
}
