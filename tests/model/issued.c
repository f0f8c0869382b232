/*
 * A chunk of which the disk kept nothing, nor anything behind it in its segment, does not count: an empty segment may
 * be begun again. What must not be is that a new chunk takes an address while an older incarnation's chunks still stand
 * there or behind it.
 */
#include "model/issued.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "format/chunk.h"

struct issued_chunk {
    uint64_t start, end; /* log addresses */
    struct checksum chain;
};

static bool header_at(const struct sim_disk *disk, uint64_t offset, struct chunk_header *ret_header)
{
    uint8_t bytes[WRITE_UNIT_BYTES_MIN];
    struct error err = {0};
    sim_disk_peek(disk, offset, bytes, sizeof(bytes));
    return chunk_header_decode(bytes, sizeof(bytes), WRITE_UNIT_BYTES_MIN, ret_header, &err) == 0;
}

/* Does the segment hold, at this place or behind it, a chunk that belongs there? */
static bool traces_follow(const struct sim_disk *disk, uint32_t segment_bytes, uint64_t offset, uint64_t address)
{
    uint64_t end = address - address % segment_bytes + segment_bytes;
    for (uint64_t at = 0; address + at < end; at += WRITE_UNIT_BYTES_MIN) {
        struct chunk_header h;
        if (header_at(disk, offset + at, &h) && h.address == address + at)
            return true;
    }
    return false;
}

void issued_note(struct issued *issued, const struct sim_disk *disk, uint32_t segment_bytes, const struct device_io *io)
{
    struct chunk_header h;
    struct error err = {0};
    if (io->kind != DEVICE_WRITE || io->iov_count == 0 || io->iov[0].iov_len < CHUNK_HEADER_BYTES ||
        chunk_header_decode(io->iov[0].iov_base, io->iov[0].iov_len, WRITE_UNIT_BYTES_MIN, &h, &err) != 0 ||
        h.head != CHUNK_HEAD_DATA || (h.flags & CHUNK_FLAG_BRIDGE) != 0)
        return;
    for (size_t i = 0; i < issued->count && !issued->twice; i++) {
        const struct issued_chunk *c = &issued->list[i];
        if (h.address < c->end && c->start < h.address + h.chunk_bytes && !checksum_equal(c->chain, h.chain))
            issued->twice = traces_follow(disk, segment_bytes, io->offset_bytes, h.address);
    }
    issued->list = realloc(issued->list, (issued->count + 1) * sizeof(*issued->list));
    CHECK(issued->list != NULL);
    issued->list[issued->count++] =
        (struct issued_chunk){.start = h.address, .end = h.address + h.chunk_bytes, .chain = h.chain};
}

void issued_free(struct issued *issued)
{
    free(issued->list);
    *issued = (struct issued){0};
}
