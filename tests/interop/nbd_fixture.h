/*
 * A server on the memory back-end, for a test function: what nearly all of them begin and end with.
 */
#ifndef ASHLAR_TESTS_INTEROP_NBD_FIXTURE_H
#define ASHLAR_TESTS_INTEROP_NBD_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"
#include "front/nbd/server.h"
#include "memory_exports.h"

struct fixture {
    struct memory_exports *memory;
    struct nbd_server *server;
    struct env_mutex lock;
    unsigned notices; /* lines for the log so far; guarded by lock, as is: */
    char notice[512]; /* the last one */
};

/* One export "disk" of 1 GiB, no threads, defaults; started. */
void fixture_begin(struct fixture *f);
/* memory, server: NULL for defaults. exports: names, NULL at the end, each of size_bytes; one ending in "-ro" is
 * read-only. */
void fixture_begin_with(struct fixture *f, const struct memory_options *memory, const struct nbd_server_options *server,
                        const char *const *exports, uint64_t size_bytes);
/* Stops, frees; checks that all was closed and given back. */
void fixture_end(struct fixture *f);

/* Lines for the log so far; the last one into buf, if it is not NULL. */
unsigned fixture_notices(struct fixture *f, char *buf, size_t buf_bytes);
void fixture_get_stats(struct fixture *f, struct nbd_server_stats *ret_stats);
/* Waits until no connection is left, up to ten seconds. */
bool fixture_is_deserted(struct fixture *f);

#endif
