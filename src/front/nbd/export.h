/*
 * What the NBD server needs from whatever it serves: a list of exports by name, one of them opened, and requests
 * carried out on it. The server proper knows no pool and no queue; pool_exports.c is the back-end on those, the tests
 * have one in memory.
 *
 * Threads: list, open and close may block and are called from one thread of the server's own (not always the same as
 * submit's); submit and size_bytes must not block and may be called from any thread; run may block and is called from
 * a thread that can afford it.
 */
#ifndef ASHLAR_FRONT_NBD_EXPORT_H
#define ASHLAR_FRONT_NBD_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT_NAME_BYTES 241 /* with the NUL */
#define EXPORT_DESCRIPTION_BYTES 160

struct error;
struct export; /* one opened export; the back-end's */
struct request;

struct export_entry {
    char name[EXPORT_NAME_BYTES];
    char description[EXPORT_DESCRIPTION_BYTES]; /* "" for none */
};

struct export_info {
    struct export_entry entry;      /* the canonical name, also when it was opened as "" */
    uint64_t size_bytes;            /* when it was opened */
    uint32_t block_bytes_preferred; /* power of two >= 512: what costs no read-modify-write */
    bool read_only;
};

struct export_ops {
    /* Fills up to room entries with the exports whose names come after `after` ("" for the first), in name order.
     * 0 of them: that was all. 0 or negative errno. */
    int (*list)(void *backend, const char *after, struct export_entry *ret_entries, size_t room, size_t *ret_count);
    /* Opens by name; "" is the only export if there is exactly one. -ENOENT: no such export, or "" is ambiguous; text
     * for the client's user in err. *ret_export is closed by the caller. */
    int (*open)(void *backend, const char *name, struct export **ret_export, struct export_info *ret_info,
                struct error *err);
    /* Every request submitted has completed. */
    void (*close)(struct export *e);
    /* The size as of now; it may have changed since open. */
    uint64_t (*size_bytes)(struct export *e);
    /* Carries r out: r->volume is the back-end's to fill. The contract of r is queue.h's: complete() is called exactly
     * once, from any thread, possibly before submit returns. */
    void (*submit)(struct export *e, struct request *r);
    /* Carries r out in the calling thread and leaves r->result; does not call complete(). NULL: cannot. */
    void (*run)(struct export *e, struct request *r);
};

#endif
