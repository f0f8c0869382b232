/*
 * A few threads for work that is done side by side: compressing the records of a chunk, decompressing those of a read.
 *
 * workers_run hands out items [0, count) to the threads and to the caller, and returns when all are done. Each
 * participant has a codec context of its own. Without threads (the simulation's default) the caller does all.
 *
 * Locking: one mutex inside, a leaf; work runs without it. Several calls may be under way at once.
 */
#ifndef ASHLAR_LOG_WORKERS_H
#define ASHLAR_LOG_WORKERS_H

#include <stdint.h>

#include "codec/codec.h"
#include "env/env.h"

struct workers;

typedef void (*workers_item)(void *arg, uint32_t item, struct codec_context *codec);

int workers_new(struct env *env, unsigned thread_count, struct workers **ret_workers)
    __attribute__((warn_unused_result));
void workers_free(struct workers *w); /* NULL is fine; nothing may be under way */

void workers_run(struct workers *w, workers_item run, void *arg, uint32_t count);

/* A codec context for the caller alone, until given back. NULL: no memory. */
struct codec_context *workers_borrow_codec(struct workers *w);
void workers_return_codec(struct workers *w, struct codec_context *codec);

#endif
