/*
 * An event loop: one thread at a time that waits for file descriptors, timers and tasks. loop.c says in which order,
 * and how a second thread takes its place while the first does something that may block.
 *
 * "Loop thread" below means: only from a callback of the loop, or before nbd_loop_start.
 */
#ifndef ASHLAR_FRONT_NBD_LOOP_H
#define ASHLAR_FRONT_NBD_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/list.h"

struct env;
struct error;
struct nbd_loop;

/* Work for the loop thread. Zero but for run. */
struct nbd_task {
    void (*run)(struct nbd_task *task);
    struct list link;
    bool queued; /* guarded by the inbox lock */
};

/* A file descriptor that is watched. */
struct nbd_watch {
    /* Loop thread. May note what happened and post tasks, nothing else: other watches of the same round may be freed by
     * tasks only. */
    void (*ready)(struct nbd_watch *watch, uint32_t events);
    int fd;
};

/* Fires once. Zero but for fire. */
struct nbd_timer {
    void (*fire)(struct nbd_timer *timer); /* loop thread */
    uint64_t deadline_ns;                  /* 0: not set */
    struct list link;
};

/* Work that may block, done by the loop's thread itself: see nbd_loop_set_aside. */
struct nbd_aside {
    /* Does the work. It is not the loop thread's work: the loop may go on meanwhile, in another thread. */
    void (*work)(struct nbd_aside *aside);
    /* Always after work, in the same thread, and no more in the loop. May free the aside. */
    void (*done)(struct nbd_aside *aside);
    /* Instead of both, in the loop: somebody else has to do it. May free the aside. */
    void (*pass_on)(struct nbd_aside *aside);
};

int nbd_loop_new(struct env *env, struct nbd_loop **ret_loop, struct error *err) __attribute__((warn_unused_result));
int nbd_loop_start(struct nbd_loop *loop, struct error *err) __attribute__((warn_unused_result));
/* Runs the tasks posted before, ends the thread if one was started, frees the loop. */
void nbd_loop_free(struct nbd_loop *loop);

/* Any thread. The task runs once, soon, in the loop thread, after those posted before. false: it was queued already and
 * will run once for both. */
bool nbd_loop_post(struct nbd_loop *loop, struct nbd_task *task);

/* Loop thread. events: EPOLLIN ..., EPOLLET. -EPERM: the descriptor is always ready (a regular file). */
int nbd_loop_watch(struct nbd_loop *loop, struct nbd_watch *watch, uint32_t events) __attribute__((warn_unused_result));
void nbd_loop_change(struct nbd_loop *loop, struct nbd_watch *watch, uint32_t events);
/* No event of it is reported afterwards in a later round; the descriptor stays open. */
void nbd_loop_unwatch(struct nbd_loop *loop, struct nbd_watch *watch);

/* Loop thread. */
void nbd_loop_set_timer(struct nbd_loop *loop, struct nbd_timer *timer, uint64_t deadline_ns);
void nbd_loop_stop_timer(struct nbd_timer *timer);
/* Loop thread. Has the work done by this thread once all tasks of this round have run, if then nothing else waits for
 * the loop; passed on otherwise. false: there is some already in this round; nothing is called. */
bool nbd_loop_set_aside(struct nbd_loop *loop, struct nbd_aside *aside);
/* The time when this round began. */
uint64_t nbd_loop_now_ns(struct nbd_loop *loop);
/* Called before a wait without a time limit begins, i.e. when there is nothing to do; may be NULL. */
void nbd_loop_on_idle(struct nbd_loop *loop, void (*idle)(void *arg), void *arg);

struct nbd_loop_info {
    uint64_t waits;    /* times the thread went to sleep */
    uint64_t wake_ups; /* times another thread had to wake it */
    uint64_t asides;   /* pieces of work done by the loop's thread */
    uint64_t reliefs;  /* of them those during which the other thread took over */
};
/* Any thread. */
void nbd_loop_get_info(struct nbd_loop *loop, struct nbd_loop_info *ret_info);

#endif
