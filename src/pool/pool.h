/*
 * A pool: one device, a log, a slot table, a catalog of volumes. What the floors above and the front doors may do with
 * it.
 *
 * Threads: every function may be called from any thread unless it says otherwise; all but the pure getters may block.
 * Errors: 0 or negative errno; -EIO for anything on a failed pool and for data that does not verify, -ENOSPC when
 * admission refuses, -EROFS on a pool or volume open for reading only.
 */
#ifndef ASHLAR_POOL_POOL_H
#define ASHLAR_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/codec.h"
#include "env/device.h"
#include "env/env.h"
#include "log/rules.h"

struct error;
struct pool;
struct volume;

struct pool_create_options {
    uint32_t segment_bytes; /* 0: by pool size (1 and 2 MiB below 1 GiB, 4 MiB below 8 GiB, 16 MiB up to 4 TiB, 64 MiB
                               above) */
    uint32_t write_unit_bytes; /* 0: the larger of 4 KiB and the device's physical sector */
    uint32_t lookahead_count;  /* 0: 8 */
};

#define POOL_BYTES_MIN (64 * MIB) /* smaller only with an explicit segment size */

/* Makes an empty pool on dev (open for writing, not owned). What was there is lost: callers ask first. -EINVAL: too
 * small (text says how small), options out of range. */
int pool_create(struct device *dev, const struct pool_create_options *options, struct error *err)
    __attribute__((warn_unused_result));

struct pool_options {
    uint64_t cache_bytes;  /* memory budget of the record and node cache; 0: 256 MiB; minimum 8 MiB */
    unsigned worker_count; /* compression and read workers; 0: number of CPUs; in the simulation 0 means none */
    bool read_only;
    bool lose_damaged_log;         /* open although flushed log is damaged: what lies behind the damage is lost */
    bool background;               /* timers: write-back and checkpoints by time; without it only by need and by call */
    unsigned rules_off;            /* tests only: enum pool_rule_off */
    uint64_t checkpoint_log_bytes; /* 0: min(256 MiB, pool / 256), at least one segment */
    /* Called with each notice a person should see (one line, no newline); may be NULL. Any thread; must not call the
     * pool. */
    void (*notice)(void *arg, const char *text);
    void *notice_arg;
};

/*
 * Opens a pool. Takes dev over in every case (closed on failure and by pool_close). Recovers after a crash.
 * -EINVAL: no pool there (says what was found); -EOPNOTSUPP: newer version or features; -EBADMSG: damaged beyond
 * opening, or flushed log damaged (says which range, and that lose_damaged_log or read_only opens it); -ENOSPC,
 * -ENOMEM, device errors.
 */
int pool_open(struct device *dev, const struct pool_options *options, struct pool **ret_pool, struct error *err)
    __attribute__((warn_unused_result));

/* Flushes, checkpoints, closes. All volumes must have been put. The pool is gone whatever is returned; an error means
 * that something acknowledged may not be durable. */
int pool_close(struct pool *pool, struct error *err);

/* Everything acknowledged so far, on every volume, is durable when this returns 0. */
int pool_flush(struct pool *pool) __attribute__((warn_unused_result));
/* A flush, then a checkpoint: replay after a crash starts here. */
int pool_checkpoint(struct pool *pool) __attribute__((warn_unused_result));

struct pool_info {
    uint8_t uuid[16];
    char path[256];
    uint64_t size_bytes;         /* of the device */
    uint64_t usable_bytes;       /* slots without the reserve, times usable bytes a segment */
    uint64_t free_bytes;         /* of usable_bytes: what new data may still take */
    uint64_t live_bytes;         /* stored bytes of live records, patches and map nodes */
    uint64_t pending_free_bytes; /* in slots that are wholly dead but still in quarantine */
    uint64_t dead_bytes;         /* in slots that hold live data too: the cleaner's work */
    uint64_t reserved_bytes;     /* provisioned zeroes and acknowledged writes not yet in the log */
    uint64_t log_bytes; /* bytes of slots that hold segments, as far as those were written, and of all labels written */
    uint64_t allocated_bytes; /* of the pool file in its file system */
    uint32_t segment_bytes, write_unit_bytes, slot_count, free_slots;
    uint64_t created_wall_ns;
    uint64_t incarnation, label_sequence, checkpoint;
    uint64_t replay_bytes; /* log behind the last checkpoint */
    uint64_t volume_count;
    uint64_t cache_bytes, cache_used_bytes, dirty_bytes;
    uint64_t corrupt_reads;      /* records found damaged since open */
    uint64_t skipped_entries;    /* entries of unknown branches met in replay (R26) */
    uint64_t lost_from, lost_to; /* with lose_damaged_log: data-head addresses given up */
    bool read_only, failed, was_clean;
    const char *device_engine;
    struct {
        uint64_t reads, writes, flushes, punches, read_bytes, write_bytes;
    } device;
};
void pool_get_info(struct pool *pool, struct pool_info *ret_info);

/* A damaged record that was met: kept in a ring of the last 256. */
struct pool_damage {
    char volume[241];
    uint64_t offset_bytes, length_bytes; /* in the volume */
    uint64_t address;                    /* in the log */
    uint64_t wall_ns;
    int error; /* -EBADMSG, -EIO */
};
size_t pool_get_damage(struct pool *pool, struct pool_damage *ret_list, size_t room);

/* ---- volumes ---- */

struct volume_settings {
    uint64_t size_bytes;   /* multiple of 512, 512 .. VOLUME_BYTES_MAX */
    uint32_t record_bytes; /* power of two, 4 KiB .. 1 MiB; 0: 16 KiB */
    struct codec_choice codec;
};

/* -EEXIST, -EINVAL (name, sizes: text says), -ENOSPC, -EROFS. Durable when it returns. */
int volume_create(struct pool *pool, const char *name, const struct volume_settings *settings, struct error *err)
    __attribute__((warn_unused_result));
/* A reference to an open volume; -ENOENT with text. Every reference is put. */
int volume_get(struct pool *pool, const char *name, struct volume **ret_volume, struct error *err)
    __attribute__((warn_unused_result));
void volume_put(struct volume *v);

struct volume_info {
    char name[241];
    uint8_t guid[16];
    uint64_t branch;
    uint64_t size_bytes;
    uint32_t record_bytes;
    struct codec_choice codec;
    uint64_t created_wall_ns;
    uint64_t mapped_bytes;   /* logical bytes of records with data, as of the last checkpoint */
    uint64_t stored_bytes;   /* stored bytes of them (records and patches), as of the last checkpoint */
    uint64_t metadata_bytes; /* of its map */
    uint64_t reserved_bytes; /* provisioned zeroes */
    uint64_t dirty_bytes;
    unsigned users; /* references beside the pool's own */
    uint64_t read_count, write_count, flush_count, trim_count, zero_count, read_bytes, write_bytes;
    uint64_t corrupt_reads;
};
void volume_get_info(struct volume *v, struct volume_info *ret_info);
/* Calls each() for every volume in name order; stops when it returns nonzero, and returns that. each() must not call
 * the pool. */
int volume_list(struct pool *pool, int (*each)(void *arg, const struct volume_info *info), void *arg);

/* All durable when they return. -EBUSY with the number of users where it matters. */
int volume_rename(struct pool *pool, const char *from, const char *to, struct error *err)
    __attribute__((warn_unused_result));
/* Shrinking loses the tail; growing reads zeroes. Open references see the new size at once. */
int volume_resize(struct pool *pool, const char *name, uint64_t size_bytes, struct error *err)
    __attribute__((warn_unused_result));
int volume_destroy(struct pool *pool, const char *name, struct error *err) __attribute__((warn_unused_result));
int volume_set_codec(struct pool *pool, const char *name, struct codec_choice codec, struct error *err)
    __attribute__((warn_unused_result));

#endif
