/*
 * A round of the loop: timers that are due, tasks that were posted, then a wait for descriptors. What descriptors
 * report is only noted (nbd_watch.ready posts a task), so that a task may free any watch without regard to events of
 * the same round that were not delivered yet.
 *
 * Tasks run in the order they were posted, and those posted meanwhile run in the next round: each connection has one
 * task and does a bounded piece of work in it, so connections take turns.
 *
 * Waking: the loop says that it sleeps, under the inbox lock, when it has found the inbox empty; who posts writes to
 * the eventfd only if it says so, and takes the word back. So a wake-up costs a system call only if there was a
 * sleeper, and none is lost.
 *
 * Asides: a request that is alone is carried out fastest by the thread that received it, because a hand-over is a
 * wake-up of tens of microseconds; but it may block, and everybody else must not notice. So there are two threads. One,
 * the holder, runs the loop; the other, the deputy, waits on a second epoll descriptor (relief_fd) that watches the
 * first and is disarmed. Before the holder goes aside it arms that: now whatever would wake the loop wakes the deputy,
 * who takes over and is the holder from then on. A holder that comes back and was not relieved disarms and goes on. So
 * an aside during which nothing happens costs two system calls and wakes nobody. `away` (the holder is aside) is what
 * both decide by, under the inbox lock: the one that clears it holds the loop. A deputy that was woken too late finds
 * it clear and waits again. The holder goes aside only if the deputy is at its post, no task waits and no timer is set,
 * as timers end a wait of the holder only. What "loop thread" guards is handed over with the lock.
 *
 * Idle: when a wait found nothing for IDLE_NS, the idle callback is called once (memory kept for reuse goes back), and
 * the next wait has no limit but the next timer.
 */
#include "front/nbd/loop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/tree.h"
#include "env/env.h"

#define EVENTS_A_ROUND 64
#define NS_PER_MS UINT64_C(1000000)
#define IDLE_NS (1000 * NS_PER_MS)

struct nbd_loop {
    struct env *env;
    struct env_thread *holder, *deputy; /* what they began as */
    int epoll_fd, wake_fd;
    int relief_fd; /* the deputy's; watches epoll_fd, one shot */
    struct nbd_aside *aside;
    uint64_t now_ns;
    struct list timers; /* by deadline */
    void (*idle)(void *arg);
    void *idle_arg;
    bool idle_done; /* since the last event */
    struct env_mutex inbox_lock;
    struct list inbox; /* guarded by inbox_lock, as is: */
    bool asleep, ended;
    bool away;                                             /* the holder is aside, and was not relieved */
    bool deputy_waits;                                     /* a thread waits on relief_fd, or is about to */
    bool over;                                             /* the loop has ended */
    atomic_uint_fast64_t waits, wake_ups, asides, reliefs; /* statistics, relaxed */
};

int nbd_loop_new(struct env *env, struct nbd_loop **ret_loop, struct error *err)
{
    struct nbd_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return error_set(err, -ENOMEM, "no memory for the NBD server");
    loop->env = env;
    list_init(&loop->timers);
    list_init(&loop->inbox);
    env_mutex_init(&loop->inbox_lock, env);
    loop->now_ns = env_now_ns(env);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->relief_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, disarmed = {0};
    if (loop->epoll_fd < 0 || loop->wake_fd < 0 || loop->relief_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0 ||
        epoll_ctl(loop->relief_fd, EPOLL_CTL_ADD, loop->epoll_fd, &disarmed) < 0) {
        int code = error_set(err, -errno, "NBD server: no descriptors for its event loop: %s", strerror(errno));
        nbd_loop_free(loop);
        return code;
    }
    *ret_loop = loop;
    return 0;
}

bool nbd_loop_post(struct nbd_loop *loop, struct nbd_task *task)
{
    bool wake = false;
    env_mutex_lock(&loop->inbox_lock);
    bool queued = !task->queued;
    if (queued) {
        task->queued = true;
        list_append(&loop->inbox, &task->link);
        wake = loop->asleep;
        loop->asleep = false;
    }
    env_mutex_unlock(&loop->inbox_lock);
    if (wake) {
        atomic_fetch_add_explicit(&loop->wake_ups, 1, memory_order_relaxed);
        ssize_t n = write(loop->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
        CHECK_EQ(n, (ssize_t)sizeof(uint64_t));
    }
    return queued;
}

static struct nbd_task *pop(struct list *tasks)
{
    if (list_empty(tasks))
        return NULL;
    struct nbd_task *task = CONTAINER_OF(tasks->next, struct nbd_task, link);
    list_remove(&task->link);
    return task;
}

static void run_tasks(struct nbd_loop *loop)
{
    struct list batch;
    list_init(&batch);
    env_mutex_lock(&loop->inbox_lock);
    if (!list_empty(&loop->inbox)) {
        batch = loop->inbox;
        batch.next->prev = batch.prev->next = &batch;
        list_init(&loop->inbox);
    }
    env_mutex_unlock(&loop->inbox_lock);
    for (;;) {
        env_mutex_lock(&loop->inbox_lock);
        struct nbd_task *task = pop(&batch);
        if (task != NULL)
            task->queued = false;
        env_mutex_unlock(&loop->inbox_lock);
        if (task == NULL)
            return;
        task->run(task);
    }
}

static void run_timers(struct nbd_loop *loop)
{
    while (!list_empty(&loop->timers)) {
        struct nbd_timer *timer = CONTAINER_OF(loop->timers.next, struct nbd_timer, link);
        if (timer->deadline_ns > loop->now_ns)
            return;
        nbd_loop_stop_timer(timer);
        timer->fire(timer);
    }
}

/* How long to wait, in the milliseconds that epoll counts in, rounded up so that a timer is due when it ends. */
static int wait_ms(struct nbd_loop *loop, bool *ret_idle)
{
    *ret_idle = false;
    env_mutex_lock(&loop->inbox_lock);
    bool empty = list_empty(&loop->inbox);
    loop->asleep = empty && !loop->ended;
    bool sleep = loop->asleep;
    env_mutex_unlock(&loop->inbox_lock);
    if (!sleep)
        return 0;
    uint64_t limit_ns = UINT64_MAX;
    if (loop->idle != NULL && !loop->idle_done) {
        *ret_idle = true;
        limit_ns = IDLE_NS;
    }
    if (!list_empty(&loop->timers)) {
        struct nbd_timer *timer = CONTAINER_OF(loop->timers.next, struct nbd_timer, link);
        uint64_t left_ns = timer->deadline_ns > loop->now_ns ? timer->deadline_ns - loop->now_ns : 0;
        if (left_ns < limit_ns) {
            *ret_idle = false;
            limit_ns = left_ns;
        }
    }
    if (limit_ns == UINT64_MAX)
        return -1;
    uint64_t ms = limit_ns / NS_PER_MS + 1;
    return ms > 3600 * 1000 ? 3600 * 1000 : (int)ms;
}

static void wait_for_events(struct nbd_loop *loop)
{
    struct epoll_event events[EVENTS_A_ROUND];
    bool idle;
    int limit_ms = wait_ms(loop, &idle);
    if (limit_ms != 0)
        atomic_fetch_add_explicit(&loop->waits, 1, memory_order_relaxed);
    int n = epoll_wait(loop->epoll_fd, events, EVENTS_A_ROUND, limit_ms);
    CHECK(n >= 0 || errno == EINTR);
    env_mutex_lock(&loop->inbox_lock);
    loop->asleep = false;
    env_mutex_unlock(&loop->inbox_lock);
    loop->now_ns = env_now_ns(loop->env);
    for (int i = 0; i < n; i++) {
        struct nbd_watch *watch = events[i].data.ptr;
        if (watch != NULL) {
            loop->idle_done = false;
            watch->ready(watch, events[i].events);
        } else {
            uint64_t count;
            ssize_t got = read(loop->wake_fd, &count, sizeof count);
            CHECK(got == (ssize_t)sizeof count || errno == EAGAIN);
        }
    }
    if (n == 0 && idle) {
        loop->idle_done = true;
        loop->idle(loop->idle_arg);
    }
}

/* ---- asides ---- */

static void arm_relief(struct nbd_loop *loop, uint32_t events)
{
    struct epoll_event event = {.events = events};
    int ret = epoll_ctl(loop->relief_fd, EPOLL_CTL_MOD, loop->epoll_fd, &event);
    CHECK_EQ(ret, 0);
}

bool nbd_loop_set_aside(struct nbd_loop *loop, struct nbd_aside *aside)
{
    if (loop->aside != NULL)
        return false;
    loop->aside = aside;
    return true;
}

/* Returns whether the caller still holds the loop. */
static bool go_aside(struct nbd_loop *loop)
{
    struct nbd_aside *aside = loop->aside;
    loop->aside = NULL;
    env_mutex_lock(&loop->inbox_lock);
    bool quiet = list_empty(&loop->inbox) && list_empty(&loop->timers) && loop->deputy_waits;
    loop->away = loop->asleep = quiet;
    env_mutex_unlock(&loop->inbox_lock);
    if (!quiet) {
        aside->pass_on(aside);
        return true;
    }
    atomic_fetch_add_explicit(&loop->asides, 1, memory_order_relaxed);
    arm_relief(loop, EPOLLIN | EPOLLONESHOT);
    aside->work(aside);
    env_mutex_lock(&loop->inbox_lock);
    bool holds = loop->away;
    if (holds)
        loop->away = loop->asleep = false;
    env_mutex_unlock(&loop->inbox_lock);
    if (holds)
        arm_relief(loop, 0);
    aside->done(aside);
    return holds;
}

/* The deputy's wait. Returns whether the caller now holds the loop; false: it has ended. */
static bool wait_to_relieve(struct nbd_loop *loop)
{
    for (;;) {
        env_mutex_lock(&loop->inbox_lock);
        bool takes = loop->away, over = loop->over;
        loop->deputy_waits = !takes && !over;
        if (takes)
            loop->away = loop->asleep = false;
        env_mutex_unlock(&loop->inbox_lock);
        if (takes)
            atomic_fetch_add_explicit(&loop->reliefs, 1, memory_order_relaxed);
        if (takes || over)
            return takes;
        struct epoll_event event;
        int n = epoll_wait(loop->relief_fd, &event, 1, -1);
        CHECK(n >= 0 || errno == EINTR);
    }
}

/* Has the deputy look what is to be done, now and from now on. */
static void call_deputy(struct nbd_loop *loop)
{
    ssize_t n = write(loop->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    CHECK_EQ(n, (ssize_t)sizeof(uint64_t));
    arm_relief(loop, EPOLLIN);
}

/* ---- the threads ---- */

/* Runs the loop until it has ended (true) or the caller was relieved. */
static bool hold(struct nbd_loop *loop)
{
    for (;;) {
        run_timers(loop);
        run_tasks(loop);
        if (loop->aside != NULL && !go_aside(loop))
            return false;
        env_mutex_lock(&loop->inbox_lock);
        loop->over = loop->ended && list_empty(&loop->inbox);
        bool over = loop->over;
        env_mutex_unlock(&loop->inbox_lock);
        if (over)
            return true;
        wait_for_events(loop);
    }
}

static void holder_main(void *arg)
{
    struct nbd_loop *loop = arg;
    bool over = false;
    do
        over = hold(loop);
    while (!over && wait_to_relieve(loop));
    if (over)
        call_deputy(loop);
}

static void deputy_main(void *arg)
{
    struct nbd_loop *loop = arg;
    if (wait_to_relieve(loop))
        holder_main(loop);
}

int nbd_loop_start(struct nbd_loop *loop, struct error *err)
{
    CHECK(loop->holder == NULL);
    int ret = env_thread_start(loop->env, "ashlar-nbd-2", deputy_main, loop, &loop->deputy);
    if (ret == 0)
        ret = env_thread_start(loop->env, "ashlar-nbd", holder_main, loop, &loop->holder);
    return ret < 0 ? error_set(err, ret, "NBD server: cannot start its threads: %s", strerror(-ret)) : 0;
}

static void do_nothing(struct nbd_task *task)
{
    (void)task;
}

/* The start failed half way. */
static void end_deputy_alone(struct nbd_loop *loop)
{
    if (loop->deputy == NULL)
        return;
    env_mutex_lock(&loop->inbox_lock);
    loop->over = true;
    env_mutex_unlock(&loop->inbox_lock);
    call_deputy(loop);
    env_thread_join(loop->deputy);
}

void nbd_loop_free(struct nbd_loop *loop)
{
    if (loop == NULL)
        return;
    if (loop->holder != NULL) {
        struct nbd_task last = {.run = do_nothing};
        env_mutex_lock(&loop->inbox_lock);
        loop->ended = true;
        env_mutex_unlock(&loop->inbox_lock);
        nbd_loop_post(loop, &last);
        env_thread_join(loop->holder);
        env_thread_join(loop->deputy);
    } else {
        run_tasks(loop);
        end_deputy_alone(loop);
    }
    CHECK(list_empty(&loop->timers));
    CHECK(loop->aside == NULL);
    if (loop->relief_fd >= 0)
        close(loop->relief_fd);
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    env_mutex_destroy(&loop->inbox_lock);
    free(loop);
}

int nbd_loop_watch(struct nbd_loop *loop, struct nbd_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) < 0 ? -errno : 0;
}

void nbd_loop_change(struct nbd_loop *loop, struct nbd_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    int ret = epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
    CHECK_EQ(ret, 0);
}

void nbd_loop_unwatch(struct nbd_loop *loop, struct nbd_watch *watch)
{
    int ret = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    CHECK_EQ(ret, 0);
}

void nbd_loop_set_timer(struct nbd_loop *loop, struct nbd_timer *timer, uint64_t deadline_ns)
{
    nbd_loop_stop_timer(timer);
    timer->deadline_ns = deadline_ns;
    struct list *at = &loop->timers; /* most are set for later than all others: search from the end */
    while (at->prev != &loop->timers && CONTAINER_OF(at->prev, struct nbd_timer, link)->deadline_ns > deadline_ns)
        at = at->prev;
    list_insert_before(at, &timer->link);
}

void nbd_loop_stop_timer(struct nbd_timer *timer)
{
    if (timer->deadline_ns == 0)
        return;
    timer->deadline_ns = 0;
    list_remove(&timer->link);
}

uint64_t nbd_loop_now_ns(struct nbd_loop *loop)
{
    return loop->now_ns;
}

void nbd_loop_on_idle(struct nbd_loop *loop, void (*idle)(void *arg), void *arg)
{
    loop->idle = idle;
    loop->idle_arg = arg;
}

void nbd_loop_get_info(struct nbd_loop *loop, struct nbd_loop_info *ret_info)
{
    ret_info->waits = atomic_load_explicit(&loop->waits, memory_order_relaxed);
    ret_info->wake_ups = atomic_load_explicit(&loop->wake_ups, memory_order_relaxed);
    ret_info->asides = atomic_load_explicit(&loop->asides, memory_order_relaxed);
    ret_info->reliefs = atomic_load_explicit(&loop->reliefs, memory_order_relaxed);
}
