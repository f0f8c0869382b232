/*
 * A store as the tests see it: a handful of operations behind a table, so that the same histories and the same checks
 * run on the engine (store_pool.h) and on a small fake that can be told to lie (store_fake.h), which proves that each
 * check can fail.
 *
 * Volumes are numbered by the test (below STORE_VOLUMES) and have names. Results are 0 or negative errno.
 */
#ifndef ASHLAR_TESTS_MODEL_STORE_H
#define ASHLAR_TESTS_MODEL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "codec/codec.h"
#include "env/sim.h"
#include "model/oracle.h"
#include "volume/volume.h"

#define STORE_VOLUMES ORACLE_VOLUMES

struct store;

struct store_space {
    uint64_t usable_bytes, free_bytes, live_bytes, pending_free_bytes, dead_bytes, reserved_bytes;
};

/* What is asked of the pool beside the client operations; those a store cannot do answer -EOPNOTSUPP. */
enum store_poke {
    POKE_WRITE_BACK, /* begin to write out record `index` of the volume, as the background does; the chunk is not sealed
                      */
    POKE_SEAL,       /* seal what was gathered and hand it to the device; do not wait for it */
    POKE_EVICT,      /* drop record `index` from the cache if it is clean */
    POKE_REAP,       /* free slots now, as far as the rules allow */
    POKE_SLEEP,      /* let time pass: what is under way may complete */
    POKE_FAIL_FLUSH, /* the next device flush fails, once; from then on is_off */
    POKE_CUT_LATER,  /* the power goes at the index-th device step from now; from then on is_off */
};

struct store_ops {
    int (*create)(struct store *s, unsigned volume, const char *name, uint64_t size_bytes, uint32_t record_bytes,
                  struct codec_choice codec);
    int (*destroy)(struct store *s, unsigned volume);
    int (*rename)(struct store *s, unsigned volume, const char *name);
    int (*resize)(struct store *s, unsigned volume, uint64_t size_bytes);
    int (*set_codec)(struct store *s, unsigned volume, struct codec_choice codec);
    int (*read)(struct store *s, unsigned volume, uint64_t offset_bytes, void *ret_buf, uint64_t length_bytes);
    int (*write)(struct store *s, unsigned volume, uint64_t offset_bytes, const void *buf, uint64_t length_bytes,
                 unsigned flags);
    int (*trim)(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags);
    int (*zero)(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags);
    int (*extents)(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes,
                   struct extent *ret_extents, size_t room, size_t *ret_count);
    int (*flush)(struct store *s, unsigned volume);
    int (*flush_all)(struct store *s);
    int (*checkpoint)(struct store *s);
    int (*poke)(struct store *s, enum store_poke what, unsigned volume, uint64_t index);
    /* A clean close and an open. */
    int (*reopen)(struct store *s, struct text *why);
    /* Power cut, then an open. The volumes there are then have to be adopted. */
    int (*crash)(struct store *s, enum sim_loss loss, uint64_t seed, struct text *why);
    /* The volumes there are: at most room; returns how many. */
    size_t (*list)(struct store *s, struct oracle_found *ret_list, size_t room);
    /* From now on the volume of that name is this number. */
    int (*adopt)(struct store *s, unsigned volume, const char *name);
    void (*space)(struct store *s, struct store_space *ret_space);
    /* The power went, or a flush failed: errors are to be expected until crash() is called. */
    bool (*is_off)(struct store *s);
    /* Runs the function where the store's operations are allowed (a fiber of its simulation). NULL: anywhere. */
    void (*run)(struct store *s, void (*function)(void *arg), void *arg);
    /* The end of a history: a clean close, unless the power is off, and whatever can be checked then. NULL: nothing. */
    bool (*finish)(struct store *s, struct text *why);
    void (*free)(struct store *s);
};

struct store {
    const struct store_ops *ops;
};

#endif
