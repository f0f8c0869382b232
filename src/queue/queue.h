/*
 * The one request type of all front doors, and the threads that carry requests out.
 *
 * A front door fills a struct request and submits it; the queue calls complete() exactly once, from any thread,
 * possibly before queue_submit returns (requests that need no waiting may be done in the submitting thread). The
 * request and its buffers belong to the queue from submit to complete. In complete(), submitting further requests is
 * allowed; blocking is not.
 */
#ifndef ASHLAR_QUEUE_QUEUE_H
#define ASHLAR_QUEUE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "volume/volume.h"

struct env;
struct queue;

enum request_kind {
    REQUEST_READ,
    REQUEST_WRITE,
    REQUEST_FLUSH, /* offset and length 0 */
    REQUEST_TRIM,
    REQUEST_ZERO,
    REQUEST_PREFETCH,
    REQUEST_EXTENTS, /* fills extents[] */
};

struct request {
    enum request_kind kind;
    unsigned flags; /* VOLUME_FUA, VOLUME_PROVISION */
    struct volume *volume;
    uint64_t offset_bytes, length_bytes;
    const struct iovec *iov; /* READ, WRITE: lengths add up to length_bytes; must outlive the request */
    int iov_count;
    struct extent *extents; /* EXTENTS */
    size_t extent_room, extent_count;
    int result; /* out: 0 or negative errno */
    void (*complete)(struct request *r);
    void *user;
    struct list link; /* the queue's */
};

/* thread_count 0: 16. */
int queue_new(struct env *env, unsigned thread_count, struct queue **ret_queue) __attribute__((warn_unused_result));
/* Waits for everything submitted, then ends the threads. */
void queue_free(struct queue *q);
void queue_submit(struct queue *q, struct request *r);
/* Carries r out in the calling thread, past any queue, for who has a thread that may block. Leaves r->result, which it
 * returns too; complete() is not called. */
int request_run(struct request *r);

#endif
