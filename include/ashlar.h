/*
 * libashlar: compressed, checksummed block volumes in a pool, inside your process.
 *
 * What goes wrong, first:
 *
 * - A write that returned 0 is in the pool's cache, like a disk's own write cache. It survives a power cut after a
 * later ashlar_flush (of any handle to the volume) or ashlar_pool_flush returned 0, or if it carried ASHLAR_FUA.
 * - After a failed device write or flush the pool is failed for good: every later write and flush gives -EIO, reads go
 *   on. Nothing is retried. Close the pool and open it again: it recovers from what the device really holds.
 * - A pool is open in one process, once, or by any number of readers (ASHLAR_READ_ONLY). A second open is -EBUSY, in
 * the same process too. `ashlar serve` counts: embed the library or talk NBD to the server, not both.
 * - Do not use a handle in a child after fork(2): its threads stay behind in the parent. exec(2) is fine, every
 *   descriptor is close-on-exec.
 * - A buffer belongs to the library from submit to completion; it may be read or written at any moment in between. What
 *   a read that failed left in its buffer is undefined.
 * - Data that does not verify is -EIO with a text that names volume and offset, never wrong bytes. Other ranges still
 *   read.
 * - A full pool gives -ENOSPC before it takes the data. What was acknowledged can always be stored; flush, trim and
 *   destroy go on working.
 * - ashlar_pool_close is where the last errors show. Test its result.
 *
 * Conventions: calls return 0 or a negative errno value, unless they say otherwise. Most take a struct ashlar_error at
 * their end, which may be NULL: on failure it gets the code and one line of text that says what, where, which value and
 * what to do; on success it is left alone. flags not named by a call must be 0, others are -EINVAL. Outputs named ret_
 * are written on success only. Offsets and lengths are bytes, of any alignment; a range that leaves the volume is
 * -EINVAL. Texts are UTF-8, sizes count bytes.
 *
 * Threads: every call may be made from any thread, on the same handle too, except that nothing may use a handle during
 * or after its close or free. The library keeps no global state, installs no signal handler (its threads block all
 * signals), prints nothing, and never exits the process for anything that a disk or a caller does. Synchronous calls
 * work in the calling thread and may block; submit calls are described at struct ashlar_queue.
 *
 * Growth: option and info structs begin with struct_bytes, which you set to sizeof (the _INIT macros do); fields that
 * an older program does not know count as 0, fields that an older library does not know and that are not 0 are -EINVAL.
 */
#ifndef ASHLAR_H
#define ASHLAR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASHLAR_VERSION_MAJOR 0
#define ASHLAR_VERSION_MINOR 1
#define ASHLAR_VERSION_PATCH 0
#define ASHLAR_VERSION (ASHLAR_VERSION_MAJOR * 1000000 + ASHLAR_VERSION_MINOR * 1000 + ASHLAR_VERSION_PATCH)

#if defined(__GNUC__)
#define ASHLAR_API __attribute__((visibility("default")))
#define ASHLAR_MUST_USE __attribute__((warn_unused_result))
#else
#define ASHLAR_API
#define ASHLAR_MUST_USE
#endif

struct ashlar_pool;   /* an open pool */
struct ashlar_volume; /* an open volume; many handles to one volume are fine */
struct ashlar_queue;  /* completions of submitted calls */

struct ashlar_error {
    int code;       /* negative errno */
    char text[508]; /* one line, no newline at its end */
};

/* The version of the library that runs (ASHLAR_VERSION is that of the header), as a number and as text ("0.1.0"). */
ASHLAR_API unsigned ashlar_version(void);
ASHLAR_API const char *ashlar_version_text(void);

/* ---- flags ---- */

#define ASHLAR_FUA 0x1u       /* write, trim, zero: durable when the call returns or completes */
#define ASHLAR_PROVISION 0x2u /* zero: keep space, so that later writes to the range cannot fail for lack of it */
#define ASHLAR_READ_ONLY 0x4u /* pool open: shared with other readers; every change is -EROFS */
/* pool open: open although flushed log is damaged (without this: -EBADMSG); what lies behind the damage is lost. */
#define ASHLAR_LOSE_DAMAGED_LOG 0x8u

/* ---- pools ---- */

struct ashlar_create_options {
    size_t struct_bytes;
    uint32_t segment_bytes;    /* power of two; 0: by pool size */
    uint32_t write_unit_bytes; /* 0: the larger of 4 KiB and the device's physical sector */
};
#define ASHLAR_CREATE_OPTIONS_INIT                 \
    {                                              \
        sizeof(struct ashlar_create_options), 0, 0 \
    }

struct ashlar_open_options {
    size_t struct_bytes;
    uint64_t cache_bytes;        /* memory for records and map nodes; 0: 256 MiB; at least 8 MiB */
    uint32_t worker_count;       /* compression threads; 0: one a CPU */
    uint32_t queue_thread_count; /* threads for submitted I/O, started by the first submit; 0: 16 */
    /* Called with each line that a person should see ("volume 'x': ... does not verify"). Any thread; must not call
     * the library. NULL: they are dropped. */
    void (*notice)(void *user, const char *text);
    void *notice_user;
};
#define ASHLAR_OPEN_OPTIONS_INIT                          \
    {                                                     \
        sizeof(struct ashlar_open_options), 0, 0, 0, 0, 0 \
    }

/*
 * Makes an empty pool at path: a new regular file of size_bytes (sparse). -EEXIST: something is there already (a block
 * device is never overwritten by this call: `ashlar create` asks the right questions); -EINVAL: too small, or an option
 * out of range. On failure there is no file. options may be NULL.
 */
ASHLAR_API int ashlar_pool_create(const char *path, uint64_t size_bytes, const struct ashlar_create_options *options,
                                  unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;

/*
 * Opens a pool: regular file or block device. Recovers from a crash, so it may take as long as reading the log since
 * the last checkpoint. flags: ASHLAR_READ_ONLY, ASHLAR_LOSE_DAMAGED_LOG. options may be NULL. -ENOENT, -EACCES; -EBUSY:
 * open elsewhere; -EINVAL: no pool; -EOPNOTSUPP: made by a newer version; -EBADMSG: damaged beyond opening.
 */
ASHLAR_API int ashlar_pool_open(const char *path, const struct ashlar_open_options *options, unsigned flags,
                                struct ashlar_pool **ret_pool, struct ashlar_error *error) ASHLAR_MUST_USE;

/*
 * Flushes and closes. -EBUSY: volumes of it are open, and the pool stays open. After any other result the pool is gone;
 * an error then means that something acknowledged may not be durable. NULL is fine.
 */
ASHLAR_API int ashlar_pool_close(struct ashlar_pool *pool, struct ashlar_error *error);

/* Everything acknowledged before the call, on every volume, is durable when this returns 0. */
ASHLAR_API int ashlar_pool_flush(struct ashlar_pool *pool, unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;

struct ashlar_pool_info {
    size_t struct_bytes;
    uint8_t uuid[16];
    uint64_t size_bytes;      /* of the file or device */
    uint64_t usable_bytes;    /* what can hold data */
    uint64_t free_bytes;      /* of usable_bytes: what new data may still take */
    uint64_t stored_bytes;    /* live data and maps, as stored */
    uint64_t allocated_bytes; /* of the pool file in its file system */
    uint64_t volume_count;
    uint64_t corrupt_reads; /* records found damaged since open */
    uint32_t segment_bytes, write_unit_bytes;
    uint32_t read_only; /* 0 or 1 */
    uint32_t failed;    /* 0 or 1: a device write or flush failed */
};
#define ASHLAR_POOL_INFO_INIT                                                 \
    {                                                                         \
        sizeof(struct ashlar_pool_info), {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* Never waits for the device. -EINVAL: struct_bytes. */
ASHLAR_API int ashlar_pool_get_info(struct ashlar_pool *pool, struct ashlar_pool_info *ret_info);

/* ---- volumes ---- */

struct ashlar_volume_options {
    size_t struct_bytes;
    uint64_t size_bytes;     /* multiple of 512 */
    uint32_t record_bytes;   /* power of two from 4 KiB to 1 MiB; 0: 16 KiB */
    uint32_t reserved;       /* 0 */
    const char *compression; /* off, lz4, zstd, zstd-1 .. zstd-19, zstd-fast-1 .. zstd-fast-5; NULL: zstd */
};
#define ASHLAR_VOLUME_OPTIONS_INIT                       \
    {                                                    \
        sizeof(struct ashlar_volume_options), 0, 0, 0, 0 \
    }

struct ashlar_volume_info {
    size_t struct_bytes;
    char name[248]; /* 1 to 240 bytes of [A-Za-z0-9._:+-], not . or .. */
    uint8_t guid[16];
    uint64_t size_bytes;
    uint64_t mapped_bytes;    /* logical bytes that hold data, as of the last checkpoint */
    uint64_t stored_bytes;    /* what these take in the pool */
    uint64_t metadata_bytes;  /* what their map takes */
    uint64_t reserved_bytes;  /* kept for provisioned zeroes */
    uint64_t created_seconds; /* since 1970 */
    uint32_t record_bytes;
    uint32_t users; /* open handles and connections */
    char compression[16];
};
#define ASHLAR_VOLUME_INFO_INIT                                              \
    {                                                                        \
        sizeof(struct ashlar_volume_info), {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, \
        {                                                                    \
            0                                                                \
        }                                                                    \
    }

/* Each of these is durable when it returns 0. -EEXIST, -ENOENT, -EINVAL, -ENOSPC, -EROFS, -EIO. */
ASHLAR_API int ashlar_volume_create(struct ashlar_pool *pool, const char *name,
                                    const struct ashlar_volume_options *options, unsigned flags,
                                    struct ashlar_error *error) ASHLAR_MUST_USE;
/* -EBUSY: it is open. */
ASHLAR_API int ashlar_volume_destroy(struct ashlar_pool *pool, const char *name, unsigned flags,
                                     struct ashlar_error *error) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_volume_rename(struct ashlar_pool *pool, const char *from, const char *to, unsigned flags,
                                    struct ashlar_error *error) ASHLAR_MUST_USE;
/* Shrinking loses the tail for good, growing reads zeroes. Open handles see the new size at once. */
ASHLAR_API int ashlar_volume_resize(struct ashlar_pool *pool, const char *name, uint64_t size_bytes, unsigned flags,
                                    struct ashlar_error *error) ASHLAR_MUST_USE;
/* For what is written from now on. */
ASHLAR_API int ashlar_volume_set_compression(struct ashlar_pool *pool, const char *name, const char *compression,
                                             unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;

/* Calls each() for every volume in name order and stops when it returns nonzero, which is returned. each() works on a
 * copy of the list: it may call the library. Never waits for the device. -ENOMEM. */
ASHLAR_API int ashlar_volume_list(struct ashlar_pool *pool,
                                  int (*each)(void *user, const struct ashlar_volume_info *info), void *user);

/* -ENOENT. Every volume that was opened is closed once. */
ASHLAR_API int ashlar_volume_open(struct ashlar_pool *pool, const char *name, unsigned flags,
                                  struct ashlar_volume **ret_volume, struct ashlar_error *error) ASHLAR_MUST_USE;
/* Does not flush. -EBUSY: submitted calls on it are not complete, and it stays open. NULL is fine. */
ASHLAR_API int ashlar_volume_close(struct ashlar_volume *volume);
ASHLAR_API uint64_t ashlar_volume_size(struct ashlar_volume *volume);
ASHLAR_API int ashlar_volume_get_info(struct ashlar_volume *volume, struct ashlar_volume_info *ret_info);

/* ---- reading and writing ---- */

/* A write inside one record is all or nothing at a crash; a longer one is so record by record. */
ASHLAR_API int ashlar_read(struct ashlar_volume *volume, void *ret_buffer, size_t length_bytes, uint64_t offset_bytes,
                           unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_write(struct ashlar_volume *volume, const void *buffer, size_t length_bytes,
                            uint64_t offset_bytes, unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_readv(struct ashlar_volume *volume, const struct iovec *iov, int iov_count, uint64_t offset_bytes,
                            unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_writev(struct ashlar_volume *volume, const struct iovec *iov, int iov_count,
                             uint64_t offset_bytes, unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;

/* Everything acknowledged on the volume before the call, through any handle, is durable when this returns 0. */
ASHLAR_API int ashlar_flush(struct ashlar_volume *volume, unsigned flags, struct ashlar_error *error) ASHLAR_MUST_USE;

/* The range reads as zeroes afterwards, exact to the byte. trim gives space back where it can; zero with
 * ASHLAR_PROVISION keeps it. */
ASHLAR_API int ashlar_trim(struct ashlar_volume *volume, uint64_t length_bytes, uint64_t offset_bytes, unsigned flags,
                           struct ashlar_error *error) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_zero(struct ashlar_volume *volume, uint64_t length_bytes, uint64_t offset_bytes, unsigned flags,
                           struct ashlar_error *error) ASHLAR_MUST_USE;

enum ashlar_extent_kind {
    ASHLAR_EXTENT_DATA = 0,        /* may hold anything */
    ASHLAR_EXTENT_HOLE = 1,        /* reads as zeroes, holds no space */
    ASHLAR_EXTENT_PROVISIONED = 2, /* reads as zeroes, holds space */
};

struct ashlar_extent {
    uint64_t length_bytes;
    uint32_t kind; /* enum ashlar_extent_kind; take an unknown one as data */
    uint32_t reserved;
};

/*
 * Describes the range as extents in order, the first at offset_bytes, each where the one before ended. Writes at least
 * one and at most room; may stop before the end of the range: go on where it stopped. room is at most 65536.
 */
ASHLAR_API int ashlar_extents(struct ashlar_volume *volume, uint64_t length_bytes, uint64_t offset_bytes,
                              unsigned flags, struct ashlar_extent *ret_extents, size_t room, size_t *ret_count,
                              struct ashlar_error *error) ASHLAR_MUST_USE;

/* ---- submit and complete ---- */

/*
 * A queue gathers completions. One queue may serve any number of pools and volumes, and any number of threads may
 * submit to it and reap from it. Each submit call has the arguments of its synchronous twin and a user pointer. It
 * returns 0, and then exactly one completion with that pointer will come, perhaps before submit returns; or a negative
 * errno, and then none will: -EINVAL, -ENOMEM, -EAGAIN (as many calls in flight as the queue's depth).
 *
 * I/O submits do not wait for the device, but one that hits the cache may do its work in the calling thread. They run
 * on the pool's threads, in any order: what must follow something is submitted after that completed. Submits of other
 * calls (open, create, destroy...) run one after another on a thread of the queue, started by the first of them.
 *
 * Buffers, volumes, pools and ret_ pointers stay valid until the completion was reaped; names, paths, option structs
 * and the iovec array are copied.
 */
struct ashlar_completion {
    void *user;
    int result;     /* 0 or negative errno */
    char text[508]; /* if result is not 0: as in struct ashlar_error; else empty (only its first byte is written) */
};

/* depth_max: calls in flight or not yet reaped; 0: 4096. */
ASHLAR_API int ashlar_queue_new(unsigned depth_max, unsigned flags, struct ashlar_queue **ret_queue,
                                struct ashlar_error *error) ASHLAR_MUST_USE;
/* -EBUSY: calls are in flight or not reaped, and the queue stays. NULL is fine. */
ASHLAR_API int ashlar_queue_free(struct ashlar_queue *queue);

/* An eventfd that polls readable while there is something to reap. Poll it, do not read it. It belongs to the queue. */
ASHLAR_API int ashlar_queue_fd(struct ashlar_queue *queue);
/* Takes up to room completions without waiting. Returns how many. */
ASHLAR_API unsigned ashlar_queue_reap(struct ashlar_queue *queue, struct ashlar_completion *ret_completions,
                                      unsigned room);
/* The same, but waits for the first one: up to timeout_ms milliseconds, without limit if that is negative. Returns at
 * once with 0 if nothing is in flight. */
ASHLAR_API unsigned ashlar_queue_wait(struct ashlar_queue *queue, struct ashlar_completion *ret_completions,
                                      unsigned room, int timeout_ms);
/* Calls submitted and not yet reaped. */
ASHLAR_API unsigned ashlar_queue_pending(struct ashlar_queue *queue);

ASHLAR_API int ashlar_submit_read(struct ashlar_queue *queue, struct ashlar_volume *volume, void *ret_buffer,
                                  size_t length_bytes, uint64_t offset_bytes, unsigned flags,
                                  void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_write(struct ashlar_queue *queue, struct ashlar_volume *volume, const void *buffer,
                                   size_t length_bytes, uint64_t offset_bytes, unsigned flags,
                                   void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_readv(struct ashlar_queue *queue, struct ashlar_volume *volume, const struct iovec *iov,
                                   int iov_count, uint64_t offset_bytes, unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_writev(struct ashlar_queue *queue, struct ashlar_volume *volume, const struct iovec *iov,
                                    int iov_count, uint64_t offset_bytes, unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_flush(struct ashlar_queue *queue, struct ashlar_volume *volume, unsigned flags,
                                   void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_trim(struct ashlar_queue *queue, struct ashlar_volume *volume, uint64_t length_bytes,
                                  uint64_t offset_bytes, unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_zero(struct ashlar_queue *queue, struct ashlar_volume *volume, uint64_t length_bytes,
                                  uint64_t offset_bytes, unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_extents(struct ashlar_queue *queue, struct ashlar_volume *volume, uint64_t length_bytes,
                                     uint64_t offset_bytes, unsigned flags, struct ashlar_extent *ret_extents,
                                     size_t room, size_t *ret_count, void *user) ASHLAR_MUST_USE;

ASHLAR_API int ashlar_submit_pool_create(struct ashlar_queue *queue, const char *path, uint64_t size_bytes,
                                         const struct ashlar_create_options *options, unsigned flags,
                                         void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_pool_open(struct ashlar_queue *queue, const char *path,
                                       const struct ashlar_open_options *options, unsigned flags,
                                       struct ashlar_pool **ret_pool, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_pool_close(struct ashlar_queue *queue, struct ashlar_pool *pool,
                                        void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_pool_flush(struct ashlar_queue *queue, struct ashlar_pool *pool, unsigned flags,
                                        void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_volume_create(struct ashlar_queue *queue, struct ashlar_pool *pool, const char *name,
                                           const struct ashlar_volume_options *options, unsigned flags,
                                           void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_volume_destroy(struct ashlar_queue *queue, struct ashlar_pool *pool, const char *name,
                                            unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_volume_rename(struct ashlar_queue *queue, struct ashlar_pool *pool, const char *from,
                                           const char *to, unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_volume_resize(struct ashlar_queue *queue, struct ashlar_pool *pool, const char *name,
                                           uint64_t size_bytes, unsigned flags, void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_volume_set_compression(struct ashlar_queue *queue, struct ashlar_pool *pool,
                                                    const char *name, const char *compression, unsigned flags,
                                                    void *user) ASHLAR_MUST_USE;
ASHLAR_API int ashlar_submit_volume_open(struct ashlar_queue *queue, struct ashlar_pool *pool, const char *name,
                                         unsigned flags, struct ashlar_volume **ret_volume, void *user) ASHLAR_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
