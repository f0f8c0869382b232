/*
 * Innards of libashlar that its files share. The library is a thin door onto pool/, volume/ and queue/: it checks
 * arguments, turns errors into what the public header promises, and owns nothing else but handles and completions.
 *
 * Locking: a queue's mutex guards its lists; a pool's mutex guards the lazy start of its engine queue. No lock is held
 * across a call into the engine, except that start. References count what keeps a handle from being closed.
 */
#ifndef ASHLAR_LIBRARY_LIBRARY_H
#define ASHLAR_LIBRARY_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "ashlar.h"
#include "base/error.h"
#include "base/list.h"
#include "env/env.h"
#include "queue/queue.h"

struct pool;
struct volume;

struct ashlar_pool {
    struct pool *pool;
    struct env_mutex mutex;
    struct queue *engine_queue;  /* made by the first submit; under mutex until then, never changed after */
    _Atomic bool engine_started; /* release after engine_queue is set, acquire before it is used without the mutex */
    unsigned queue_thread_count;
    _Atomic unsigned references; /* open volumes and submitted calls */
    void (*notice)(void *user, const char *text);
    void *notice_user;
};

struct ashlar_volume {
    struct ashlar_pool *pool;
    struct volume *volume;
    _Atomic unsigned references; /* submitted calls */
};

/* A submitted call: an I/O request of the engine, or a job for the queue's own thread. */
struct call {
    struct list link; /* in the queue's done, jobs or spare list */
    struct ashlar_queue *queue;
    void *user;
    struct ashlar_volume *volume; /* referenced while in flight; NULL if none */
    struct ashlar_pool *pool;     /* referenced while in flight; NULL if none */
    struct error error;

    struct request request;
    struct iovec inline_iov[4];
    struct iovec *iov; /* inline_iov or allocated */
    struct ashlar_extent *ret_extents;
    size_t *ret_extent_count;

    void (*run)(struct call *call); /* jobs: fills error */
    char *names[2];                 /* allocated copies */
    uint64_t number;
    unsigned flags;
    void *ret_handle;
    union {
        struct ashlar_create_options create;
        struct ashlar_open_options open;
        struct ashlar_volume_options volume;
    } options;
    bool has_options;
};

struct ashlar_queue {
    struct env_mutex mutex;
    struct env_cond finished; /* a completion was added */
    struct env_cond job_added;
    struct list done, jobs, spare;
    unsigned depth_max;
    unsigned pending; /* submitted and not yet reaped */
    unsigned waiters; /* threads in ashlar_queue_wait */
    unsigned spare_count;
    int event_fd;                  /* readable exactly if done is not empty */
    bool stopping;                 /* the job thread ends when it has no job */
    struct env_thread *job_thread; /* NULL until the first job */
};

/* Copies src to error (may be NULL) as the public type; returns the public code: -EBADMSG becomes -EIO. */
int library_error(struct ashlar_error *error, const struct error *src);
/* Fills error and returns code. */
int library_fail(struct ashlar_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* -EINVAL with text if flags has a bit outside allowed. */
int library_check_flags(const char *call, unsigned flags, unsigned allowed, struct error *err);
/* Copies an option struct of the caller (NULL: all zero) into ours of `bytes` bytes; see "Growth" in ashlar.h. */
int library_take_options(const char *call, const void *options, void *ret_options, size_t bytes, struct error *err);
/* Copies our info struct into the caller's, whose struct_bytes says how much room there is. */
int library_give_info(void *ret_info, void *ours, size_t bytes);

/* The calls behind the public ones, in terms of struct error; shared by the synchronous and the submitted forms. */
int library_pool_create(const char *path, uint64_t size_bytes, const struct ashlar_create_options *options,
                        unsigned flags, struct error *err);
int library_pool_open(const char *path, const struct ashlar_open_options *options, unsigned flags,
                      struct ashlar_pool **ret_pool, struct error *err);
int library_pool_close(struct ashlar_pool *pool, struct error *err);
int library_pool_flush(struct ashlar_pool *pool, unsigned flags, struct error *err);
int library_volume_create(struct ashlar_pool *pool, const char *name, const struct ashlar_volume_options *options,
                          unsigned flags, struct error *err);
int library_volume_destroy(struct ashlar_pool *pool, const char *name, unsigned flags, struct error *err);
int library_volume_rename(struct ashlar_pool *pool, const char *from, const char *to, unsigned flags,
                          struct error *err);
int library_volume_resize(struct ashlar_pool *pool, const char *name, uint64_t size_bytes, unsigned flags,
                          struct error *err);
int library_volume_set_compression(struct ashlar_pool *pool, const char *name, const char *compression, unsigned flags,
                                   struct error *err);
int library_volume_open(struct ashlar_pool *pool, const char *name, unsigned flags, struct ashlar_volume **ret_volume,
                        struct error *err);

/* The engine queue of a pool, started if need be. */
int library_engine_queue(struct ashlar_pool *pool, struct queue **ret_queue);

/* Says what an I/O call failed with: range, volume, damaged record where the pool knows it. Returns the public code. */
int library_io_error(struct ashlar_volume *volume, enum request_kind kind, uint64_t offset_bytes, uint64_t length_bytes,
                     int code, struct error *err);
/* Checks the arguments of an I/O call: handle, flags, iovec, and that lengths do not overflow. *ret_length_bytes is the
 * sum of the lengths. */
int library_check_io(struct ashlar_volume *volume, const char *call, unsigned flags, unsigned allowed,
                     struct error *err);
int library_iov_length(const struct iovec *iov, int iov_count, uint64_t *ret_length_bytes, struct error *err);
#define LIBRARY_IOV_MAX 1024
#define LIBRARY_EXTENTS_MAX 65536

/* A call with its place in the queue taken; NULL and *ret_code otherwise. */
struct call *library_call_new(struct ashlar_queue *queue, void *user, int *ret_code);
/* Gives the place back: nothing was submitted. */
void library_call_cancel(struct call *call);
/* Takes references on volume and pool; they are dropped before the completion can be seen. */
void library_call_hold(struct call *call, struct ashlar_volume *volume, struct ashlar_pool *pool);
/* Makes the completion visible; call->error holds the result. */
void library_call_finish(struct call *call);
/* Hands call->run to the queue's thread. -EAGAIN, -ENOMEM: it was not, and the call is still the caller's. */
int library_call_start_job(struct call *call);

#endif
