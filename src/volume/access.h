/*
 * What the operations of volume/ share: walking a request record by record, finding records, the state a pool must be
 * in.
 */
#ifndef ASHLAR_VOLUME_ACCESS_H
#define ASHLAR_VOLUME_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "pool/pool_impl.h"
#include "volume/volume.h"

/* The part of a request that falls into one record. */
struct piece {
    uint64_t index;        /* of the record */
    uint32_t offset_bytes; /* in it */
    uint32_t length_bytes;
    uint64_t request_offset_bytes; /* from the start of the request */
};

/* The piece of [offset, offset + length) that starts `done` bytes into it. */
static inline struct piece piece_at(const struct volume *v, uint64_t offset_bytes, uint64_t length_bytes, uint64_t done)
{
    uint64_t at = offset_bytes + done;
    struct piece p = {
        .index = at / v->record_bytes, .offset_bytes = (uint32_t)(at % v->record_bytes), .request_offset_bytes = done};
    uint64_t rest = v->record_bytes - p.offset_bytes;
    p.length_bytes = (uint32_t)(length_bytes - done < rest ? length_bytes - done : rest);
    return p;
}

/* Sectors that a piece touches: [*ret_first, *ret_first + *ret_count). */
static inline void piece_sectors(const struct piece *p, uint32_t *ret_first, uint32_t *ret_count)
{
    uint32_t end = (p->offset_bytes + p->length_bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
    *ret_first = p->offset_bytes / SECTOR_BYTES;
    *ret_count = end - *ret_first;
}

/* The length of a request: the sum of its iovecs. */
uint64_t iov_bytes(const struct iovec *iov, int iov_count);

/* Writes one piece into the cache; lock held, may be released. -ENOSPC, -EIO, -ENOMEM. */
int volume_write_piece(struct volume *v, const struct piece *p, const struct iovec *iov, int iov_count, unsigned flags)
    __attribute__((warn_unused_result));

#endif
