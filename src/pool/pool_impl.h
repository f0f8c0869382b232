/*
 * The inside of a pool, for pool/ and volume/ only.
 *
 * Locks, in the order they are taken:
 *
 *     pool->lock          everything in struct pool, struct volume, cache and pending lists that has no other note;
 *                         never held over device operations, compression or waits for other threads' work (condition
 *                         variables release it)
 *     leaves              slots.lock, node_store.lock, workers: taken inside those, nothing is taken under them
 *
 * Tokens (flags under the lock, waited for on a condition variable; held over device operations):
 *
 *     sealing             one batch at a time is captured and sealed: it alone moves the data head
 *     checkpointing       one checkpoint at a time; takes `sealing` for a moment, to freeze
 *     sync_busy           one batch that somebody waits for is on its way to be durable: others gather meanwhile (group
 *                         commit)
 *
 * Order of tokens: checkpointing before sealing. sync_busy is taken together with sealing.
 *
 * What a record is, from the newest on: cache -> overlay (trims not yet taken by a batch) -> overlay_sealing (taken,
 * not yet sealed) -> active (sealed since the freeze) -> frozen (being merged by a checkpoint) -> tree.
 */
#ifndef ASHLAR_POOL_POOL_IMPL_H
#define ASHLAR_POOL_POOL_IMPL_H

#include "base/error.h"
#include "base/list.h"
#include "cache/cache.h"
#include "format/catalog.h"
#include "format/label.h"
#include "log/data_head.h"
#include "log/node_head.h"
#include "log/reader.h"
#include "log/replay.h"
#include "log/slots.h"
#include "log/workers.h"
#include "map/merge.h"
#include "map/node_store.h"
#include "map/pending.h"
#include "pool/pool.h"

#define POOL_DAMAGE_MAX 256
#define CATALOG_HEIGHT_MAX 3 /* 2^23 objects; it grows with their numbers */
#define READER_EPOCHS 8
#define TRIMS_UNSEALED_MAX 4096 /* then a batch is due */

/* Longest path of a record from acknowledged to the log: entry, its share of header, trailer and padding. */
#define RECORD_OVERHEAD_BYTES 4608

struct volume {
    struct list link; /* pool->volumes, in name order */
    struct pool *pool;
    char name[VOLUME_NAME_BYTES_MAX + 1];
    uint64_t object_id, branch;
    uint8_t guid[16];
    uint64_t size_bytes;      /* what clients see */
    uint64_t next_size_bytes; /* what the next checkpoint writes: larger while the volume is being grown */
    uint32_t record_bytes;
    struct codec_choice codec;
    uint64_t created_wall_ns;
    struct map_tree tree; /* as of the last checkpoint */
    uint64_t mapped_records, stored_bytes, node_bytes, provisioned_records;
    struct pending overlay, overlay_sealing, active, frozen;
    uint64_t provision_active_bytes, provision_frozen_bytes; /* set aside for provisioned zeroes not yet in the tree */
    struct list dirty;                                       /* records, oldest first */
    bool catalog_changed;
    bool live;                    /* can be opened: its creation is durable, its destruction has not begun */
    bool destroyed;               /* gone with the next checkpoint; nobody holds it any more */
    bool orphan;                  /* creating it failed: nobody frees it but the checkpoint it goes with */
    bool dropped, tail_dropped;   /* what memory held of it, or behind its new end, is gone */
    uint64_t shrunk_from_records; /* more than 0: the next freeze trims the tail from the new end up to here */
    unsigned users;
    uint64_t read_count, write_count, flush_count, trim_count, zero_count, read_bytes, write_bytes, corrupt_reads;
};

/* A trim or zeroing of whole records, acknowledged, not yet in the log. */
struct range_op {
    struct list link;
    struct volume *volume;
    uint64_t first, count;
    bool provision;
    uint64_t at; /* pool->clock, or older: see drop_range in volume/zero.c */
};

struct capture; /* batch.c: a picture of a record on its way into the log */

struct pool {
    struct env *env;
    struct device *dev;
    struct pool_options options;
    struct geometry geometry;
    struct label label; /* the newest one written, or read at open */
    struct env_mutex lock;

    struct segment_numbers numbers;
    uint64_t next_branch;
    struct slots slots;
    struct reader reader;
    struct node_store node_store;
    struct workers *workers;
    struct data_head data;
    struct node_head nodes;
    struct cache cache;
    struct env_cond cache_cond; /* a fill ended, a picture was let go, space came back */

    struct list volumes;
    uint64_t volume_count;
    struct map_tree catalog_tree, table_tree;

    /* write-out */
    bool sealing, sync_busy;
    struct env_cond seal_cond; /* a token was given back, a batch was sealed */
    uint64_t batches_started, batches_sealed;
    uint64_t clock;        /* orders what becomes dirty or urgent */
    struct list urgent;    /* records somebody waits for */
    struct list range_ops; /* struct range_op, not yet taken by a batch */
    uint64_t range_op_count;
    uint64_t range_ops_oldest_at; /* the smallest stamp among them; UINT64_MAX: none */
    struct list gathered;         /* struct capture, captured ahead of their batch (pool_test.h) */

    /* checkpoints */
    bool checkpointing;
    uint64_t checkpoint;           /* number of the last one done */
    uint64_t checkpoint_log_bytes; /* data.log_bytes at its cut */
    uint64_t interval_bytes;
    uint64_t active_entries, frozen_entries; /* log entries since the last cut; those of the checkpoint under way */
    bool changed;                            /* something is sealed or changed that no checkpoint holds */
    uint64_t changed_ns;                     /* since when */
    bool writing;                            /* the first write of this open was prepared (bridge or opening label) */
    uint64_t reader_count[READER_EPOCHS];    /* readers by checkpoint % READER_EPOCHS at their start */
    uint64_t previous_label_sequence;        /* the first label of the checkpoint before the last */
    uint64_t checkpoint_label_sequence;      /* the first label of the last checkpoint */

    /* space */
    uint64_t reserved_bytes; /* for what is dirty and not yet in the log */
    uint64_t reserve_slots;
    uint64_t denied_sealed_to,
        denied_checkpoint; /* where we stood when space was last refused: nothing changed, no new try */
    bool evacuating;       /* the last checkpoint gets segments back (evacuate.c) */
    bool denied;

    /* background */
    struct env_thread *keeper;
    struct env_cond keeper_cond;
    bool keeper_idle; /* it waits for something to do, without a clock */
    bool stopping;

    /* recovery */
    struct replay_end replayed;
    bool was_clean, read_only;
    bool checkpointed; /* since this open */
    uint64_t skipped_entries;
    uint64_t lost_from, lost_to;

    struct pool_damage damage[POOL_DAMAGE_MAX];
    uint64_t damage_count;
    uint64_t corrupt_reads;
};

/* ---- state (pool.c) ---- */
/* -EIO on a failed pool, -EROFS on a read-only one, 0. Lock held. */
int pool_writable(struct pool *pool);
void pool_notice(struct pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Something changed that only a checkpoint makes durable. Lock held. */
void pool_mark_changed(struct pool *pool);
/* Frees a pool whose threads have ended, open or half open. */
void pool_free(struct pool *pool);

/* ---- first write (begin_write.c) ---- */
/* Prepares the log for the first write of this open: after a crash a bridge, after a clean close a label that says the
 * pool is in use; then slots for the next segments. `sealing` held, lock not. Does nothing the second time. */
int pool_begin_writing(struct pool *pool) __attribute__((warn_unused_result));

/* ---- tokens (sync.c) ---- */
void pool_take_sealing(struct pool *pool); /* lock held; waits */
void pool_give_sealing(struct pool *pool); /* lock held */

/* ---- write-out (batch.c) ---- */
enum batch_kind { BATCH_SYNC, BATCH_BACKGROUND };
/*
 * Writes out some of what is dirty: urgent records and trims first, with BATCH_BACKGROUND other dirty ones too. Lock
 * held, and held again on return; sealing held, given back as soon as the batch is sealed. With flush, tries to make it
 * durable in the same device call. -EIO and the like: the pool has failed.
 */
int pool_run_batch(struct pool *pool, enum batch_kind kind, bool flush) __attribute__((warn_unused_result));
/* Captures one record and leaves it gathered for the next batch. Lock held; waits for `sealing`. */
int pool_capture_ahead(struct pool *pool, struct record *r) __attribute__((warn_unused_result));
/* Seals what was gathered, whatever the rules say about the order. sealing held, given back; lock held. */
int pool_seal_gathered(struct pool *pool) __attribute__((warn_unused_result));
void pool_forget_gathered(struct pool *pool);

/* ---- making durable (sync.c) ---- */
/* Everything that became urgent, and every range_op, up to `ticket` (a value of clock) is durable on return. Lock held.
 */
int pool_sync(struct pool *pool, uint64_t ticket) __attribute__((warn_unused_result));
/* Everything of the volume (of all: NULL) that was acknowledged before is durable on return. Lock held. */
int pool_sync_volume(struct pool *pool, struct volume *v) __attribute__((warn_unused_result));
void record_make_urgent(struct pool *pool, struct record *r);
/* Writes out in the background until less than the limit is dirty. Lock held. */
int pool_throttle(struct pool *pool) __attribute__((warn_unused_result));

/* ---- space (space.c) ---- */
/* Sets bytes aside, so that what is accepted can be stored. Lock held, may be released. privileged: may use half of the
 * reserve (trims). -ENOSPC. */
/* Free slots that the data head leaves to checkpoints. */
uint64_t pool_node_slots_kept(const struct pool *pool);
/* Storage for the next checkpoint, and how much is there beyond what it needs. Its token and the lock held, the lock
 * released meanwhile. -ENOSPC, -ENOMEM, device errors. */
int pool_prepare_checkpoint(struct pool *pool, uint64_t *ret_spare_bytes) __attribute__((warn_unused_result));
int pool_reserve(struct pool *pool, uint64_t bytes, bool privileged) __attribute__((warn_unused_result));
void pool_unreserve(struct pool *pool, uint64_t bytes);
uint64_t pool_capacity_bytes(struct pool *pool, bool privileged); /* what is free now, reservations not taken off */
uint64_t pool_usable_segment_bytes(const struct pool *pool);
uint64_t pool_provisioned_bytes(const struct pool *pool);
uint64_t record_reserve_bytes(uint32_t record_bytes);
void pool_compute_reserve(struct pool *pool);

/* ---- looking up (resolve.c) ---- */
/*
 * What the sealed map and the trims on top of it say about a record. Lock not held; blocks. 0, -EBADMSG (a node on the
 * way is damaged), device errors.
 */
int volume_resolve(struct volume *v, uint64_t index, struct map_entry *ret_entry) __attribute__((warn_unused_result));
/* The same for a run of records of one class, for extents: at least 1, at most limit. Lock held on entry and return,
 * released between. */
int volume_classify(struct volume *v, uint64_t index, uint64_t limit, enum map_class *ret_class, uint64_t *ret_count)
    __attribute__((warn_unused_result));
/* A reader's pin on all slots (R22). Lock held. */
uint64_t pool_reader_enter(struct pool *pool);
void pool_reader_leave(struct pool *pool, uint64_t epoch);

/* ---- reading records (fill.c) ---- */
/*
 * Reads what is missing of `count` records, pinned and marked filling by the caller (lock not held). Afterwards each
 * has every sector valid or lost, filling is off and waiters are woken. -ENOMEM: nothing was filled.
 */
int pool_fill(struct pool *pool, struct record **records, uint32_t count) __attribute__((warn_unused_result));
/* Only finds out how many patches lie on each record. The same conditions. */
int pool_find_patches(struct pool *pool, struct record **records, uint32_t count) __attribute__((warn_unused_result));
void pool_wait_filled(struct pool *pool, struct record *r); /* lock held */

/* ---- damage (damage.c) ---- */
void pool_note_damage(struct pool *pool, struct volume *v, uint64_t index, uint64_t address, int error);

/* ---- catalog (catalog.c) ---- */
struct volume *pool_find_volume(struct pool *pool, const char *name); /* lock held */
void pool_insert_volume(struct pool *pool, struct volume *v);
struct volume *volume_from_catalog(struct pool *pool, const struct catalog_volume *c);
void volume_to_catalog(const struct volume *v, struct catalog_volume *ret_catalog);
void volume_free(struct volume *v);
/* Drops what the cache holds of records [first, ...) of a volume. sealing held, lock held. Waits for fills. */
void volume_drop_cached(struct volume *v, uint64_t first);
uint64_t volume_record_count(const struct volume *v);
int pool_load_catalog(struct pool *pool, struct error *err) __attribute__((warn_unused_result));

/* ---- checkpoints (checkpoint.c) ---- */
/* A checkpoint of everything sealed. clean: the last one, by close. Lock held; waits for its turn. */
int pool_run_checkpoint(struct pool *pool, bool clean) __attribute__((warn_unused_result));
bool pool_checkpoint_due(struct pool *pool);
/* Frees what the rules let go. Lock held, not during a checkpoint. */
void pool_release_slots(struct pool *pool);

/* ---- background (keeper.c) ---- */
int pool_start_keeper(struct pool *pool) __attribute__((warn_unused_result));
void pool_stop_keeper(struct pool *pool);
void pool_kick_keeper(struct pool *pool); /* lock held */

#endif
