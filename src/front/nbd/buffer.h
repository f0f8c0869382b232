/*
 * The memory of a request's data: a list of pieces that readv and the engine take as an iovec.
 *
 * Pieces have sizes of powers of two, NBD_PIECE_BYTES_MIN to NBD_PIECE_BYTES_MAX, and are kept for reuse by a pool, so
 * that a busy server neither maps nor touches fresh pages. A buffer is used by one thread at a time; the pool by any.
 * Accounting is the caller's (budget.h): a buffer's capacity is what it costs.
 */
#ifndef ASHLAR_FRONT_NBD_BUFFER_H
#define ASHLAR_FRONT_NBD_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct env;
struct nbd_buffer_pool;

#define NBD_PIECE_BYTES_MIN 4096u
#define NBD_PIECE_BYTES_MAX (1024u * 1024)

/* All zero is an empty buffer. */
struct nbd_buffer {
    struct iovec inside[4];
    struct iovec *pieces;    /* inside, or allocated */
    unsigned count, room;    /* pieces used, entries there are */
    uint64_t capacity_bytes; /* of all pieces */
    uint64_t filled_bytes;   /* the caller's: [0, filled) holds data */
};

int nbd_buffer_pool_new(struct env *env, struct nbd_buffer_pool **ret_pool) __attribute__((warn_unused_result));
/* Every buffer has been released. */
void nbd_buffer_pool_free(struct nbd_buffer_pool *pool);
/* Gives kept memory back to the system: for when there is nothing to do. Returns the bytes freed. */
uint64_t nbd_buffer_pool_trim(struct nbd_buffer_pool *pool);

/* The size of the piece that n bytes are put into, n <= NBD_PIECE_BYTES_MAX. */
uint32_t nbd_piece_bytes(uint64_t n);
/* The capacity that a buffer for n bytes, got by nbd_buffer_extend from empty, has. */
uint64_t nbd_buffer_cost(uint64_t n);

/* Adds pieces for n more bytes, nbd_buffer_cost(n) of them. -ENOMEM leaves the buffer as it was. */
int nbd_buffer_extend(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer, uint64_t n)
    __attribute__((warn_unused_result));
/* Releases the pieces that hold none of the filled bytes; if the last of the rest is filled to a quarter or less, its
 * bytes move to a smaller one. Returns the bytes of capacity given up. */
uint64_t nbd_buffer_shrink(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer);
/* Releases every piece. Returns the capacity there was. */
uint64_t nbd_buffer_release(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer);

/* The free room as iovecs (at most `room` of them, at most max_bytes). Returns how many; *ret_bytes is their sum. */
int nbd_buffer_tail(const struct nbd_buffer *buffer, uint64_t max_bytes, struct iovec *ret_iov, int room,
                    size_t *ret_bytes);
/* Copies n bytes, for which there is room, behind the filled ones. */
void nbd_buffer_append(struct nbd_buffer *buffer, const void *bytes, size_t n);
/* Cuts the iovec down to n bytes, n <= capacity: then pieces/count is what the engine and sendmsg are given. The
 * capacity stays what it costs. */
void nbd_buffer_trim(struct nbd_buffer *buffer, uint64_t n);

#endif
