/*
 * A request put onto the queue, as a front door does it, and waited for.
 */
#ifndef ASHLAR_TESTS_MODEL_QUEUE_CALL_H
#define ASHLAR_TESTS_MODEL_QUEUE_CALL_H

#include "queue/queue.h"

struct env;

/* Submits r and returns its result when it is complete. A request that is completed twice ends the program. */
int queue_call(struct env *env, struct queue *q, struct request *r);

#endif
