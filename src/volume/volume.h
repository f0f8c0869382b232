/*
 * Reading and writing a volume: the engine's data path, blocking. queue/ puts requests onto it; nothing else does but
 * tests.
 *
 * Offsets and lengths are bytes of any alignment inside [0, size); a range outside is -EINVAL (front doors map it). A
 * write is acknowledged when it is in the cache; with VOLUME_FUA it is durable when the call returns. A write inside
 * one record is all or nothing at a crash; a longer one is so record by record. Concurrent calls on overlapping ranges
 * take effect in some order, record by record.
 */
#ifndef ASHLAR_VOLUME_VOLUME_H
#define ASHLAR_VOLUME_VOLUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct volume;

#define VOLUME_FUA 0x1       /* durable when it returns: write, trim, zero */
#define VOLUME_PROVISION 0x2 /* zero: later writes there cannot fail for lack of space */

uint64_t volume_size_bytes(struct volume *v);

/* -EIO: a record does not verify or cannot be read; what was read of the others is undefined. */
int volume_read(struct volume *v, uint64_t offset_bytes, void *ret_buf, uint64_t length_bytes)
    __attribute__((warn_unused_result));
int volume_write(struct volume *v, uint64_t offset_bytes, const void *buf, uint64_t length_bytes, unsigned flags)
    __attribute__((warn_unused_result));
int volume_readv(struct volume *v, uint64_t offset_bytes, const struct iovec *iov, int iov_count)
    __attribute__((warn_unused_result));
int volume_writev(struct volume *v, uint64_t offset_bytes, const struct iovec *iov, int iov_count, unsigned flags)
    __attribute__((warn_unused_result));
/* Everything acknowledged before the call, on this volume, by anyone, is durable when it returns 0. */
int volume_flush(struct volume *v) __attribute__((warn_unused_result));
/* The range reads as zeroes afterwards, exact to the byte; whole records give their space back. */
int volume_trim(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
    __attribute__((warn_unused_result));
int volume_zero(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
    __attribute__((warn_unused_result));

/* Brings a range into the cache; a hint: never fails for data that does not verify. */
int volume_prefetch(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes);

enum extent_kind {
    EXTENT_DATA,        /* may hold anything but zeroes only */
    EXTENT_HOLE,        /* reads as zeroes, no space held */
    EXTENT_PROVISIONED, /* reads as zeroes, space held */
};

/*
 * Describes [offset, offset + length) as extents, in order, neighbours of one kind joined, dirty data never a hole.
 * Stops after room extents, or after a bounded amount of work; at least one extent comes back, of at least one byte,
 * inside the range. Each extent starts where the one before ended. *ret_count extents were written.
 */
struct extent {
    uint64_t length_bytes;
    enum extent_kind kind;
};
int volume_extents(struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, struct extent *ret_extents,
                   size_t room, size_t *ret_count) __attribute__((warn_unused_result));

#endif
