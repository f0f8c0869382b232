/*
 * The engine on a simulated disk, as a struct store.
 */
#ifndef ASHLAR_TESTS_MODEL_STORE_POOL_H
#define ASHLAR_TESTS_MODEL_STORE_POOL_H

#include "env/sim.h"
#include "model/store.h"
#include "pool/pool.h"

struct store_pool_options {
    uint64_t disk_bytes;
    uint32_t segment_bytes, lookahead_count, physical_sector_bytes; /* 0: 64 KiB, 2, 512 */
    uint64_t cache_bytes;                                           /* 0: the smallest */
    uint64_t checkpoint_log_bytes;                                  /* 0: the engine's own choice */
    unsigned worker_count;
    bool background;
    bool through_queue; /* requests go by the queue, as those of front doors do; with fibers only */
    bool fibers;        /* histories run in a fiber, the pool is opened and closed there */
    bool read_only, lose_damaged_log;
    unsigned rules_off;
    bool unchecked;       /* a history does not end with a check of the disk */
    bool watch_addresses; /* a history fails if a log address of data was issued twice (R15) */
    uint64_t seed;
    /* OP_CRASH: with this chance the newest label is made unreadable in both rings after the cut. */
    unsigned label_loss_per_mille;
};

/*
 * A simulation, a disk in it, a new pool on that, opened. NULL: the reason is added to why.
 */
struct store *store_pool_new(const struct store_pool_options *options, struct text *why);

/*
 * The pool on a picture of a disk, in a simulation of its own, after a power cut; the volumes have to be adopted. hook,
 * if not NULL, sees the device steps of the opening. NULL: it cannot be opened, and the reason is added to why. loss
 * -1: no cut, only a new process.
 */
struct store *store_pool_from_image(const struct store_pool_options *options, const struct sim_image *image, int loss,
                                    uint64_t seed, sim_disk_hook hook, void *hook_arg, struct text *why);

struct sim *store_pool_sim(struct store *s);
struct sim_disk *store_pool_disk(struct store *s);
struct pool *store_pool_pool(struct store *s);
struct volume *store_pool_volume(struct store *s, unsigned volume);
/* Closes the pool, cleanly; the disk stays until the store is freed. Errors are added to why. */
int store_pool_close(struct store *s, struct text *why);
/* Opens it again; the volumes known before are adopted. */
int store_pool_open(struct store *s, struct text *why);

/*
 * Runs check on the disk as it is. true: clean. Otherwise the report is added to why.
 */
bool store_pool_check(struct sim_disk *disk, struct text *why);
/* Runs check --repair on it. Whether the disk is clean afterwards is the caller's question. */
void store_pool_repair(struct sim_disk *disk);

#endif
