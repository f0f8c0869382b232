/*
 * Invariants of a buffer: every piece but the last is as long as it was allocated; the capacity is the sum of what was
 * allocated. So the size of the last piece, whose iovec may have been cut by nbd_buffer_trim, is the capacity less the
 * others, and no piece needs a size of its own. The filled bytes lie in the pieces front to back without gaps.
 *
 * The pool keeps free pieces in one list per size, last in first out, the link in the piece itself. It keeps at most
 * KEPT_BYTES_MAX; what a burst needed beyond that goes back to the system at once, the rest when the server is idle
 * (nbd_buffer_pool_trim). Under AddressSanitizer a kept piece is poisoned, so that use after release is seen.
 */
#include "front/nbd/buffer.h"

#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "env/env.h"

#define CLASS_COUNT 9 /* 4 KiB << 0 .. 8 */
#define KEPT_BYTES_MAX (16 * MIB)
#define PIECE_ALIGNMENT 64

_Static_assert(NBD_PIECE_BYTES_MIN << (CLASS_COUNT - 1) == NBD_PIECE_BYTES_MAX, "classes cover all piece sizes");

struct free_piece {
    struct free_piece *next;
};

struct nbd_buffer_pool {
    struct env_mutex lock;
    struct free_piece *free[CLASS_COUNT];
    uint64_t kept_bytes;
};

/* The link stays readable: LeakSanitizer follows no pointer in poisoned memory. */
static void poison(struct free_piece *piece, uint32_t bytes)
{
    ASAN_POISON_MEMORY_REGION(piece + 1, bytes - sizeof *piece);
}

static void unpoison(struct free_piece *piece, uint32_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(piece + 1, bytes - sizeof *piece);
}

static unsigned class_of(uint64_t n)
{
    unsigned class = 0;
    while (((uint64_t)NBD_PIECE_BYTES_MIN << class) < n)
        class ++;
    CHECK_LT(class, CLASS_COUNT);
    return class;
}

uint32_t nbd_piece_bytes(uint64_t n)
{
    return NBD_PIECE_BYTES_MIN << class_of(n);
}

uint64_t nbd_buffer_cost(uint64_t n)
{
    uint64_t whole = round_down(n, NBD_PIECE_BYTES_MAX);
    return whole + (n > whole ? nbd_piece_bytes(n - whole) : 0);
}

int nbd_buffer_pool_new(struct env *env, struct nbd_buffer_pool **ret_pool)
{
    struct nbd_buffer_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return -ENOMEM;
    env_mutex_init(&pool->lock, env);
    *ret_pool = pool;
    return 0;
}

uint64_t nbd_buffer_pool_trim(struct nbd_buffer_pool *pool)
{
    struct free_piece *lists[CLASS_COUNT];
    env_mutex_lock(&pool->lock);
    memcpy(lists, pool->free, sizeof lists);
    memset(pool->free, 0, sizeof pool->free);
    uint64_t freed = pool->kept_bytes;
    pool->kept_bytes = 0;
    env_mutex_unlock(&pool->lock);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        while (lists[class] != NULL) {
            struct free_piece *piece = lists[class];
            unpoison(piece, NBD_PIECE_BYTES_MIN << class);
            lists[class] = piece->next;
            free(piece);
        }
    }
    return freed;
}

void nbd_buffer_pool_free(struct nbd_buffer_pool *pool)
{
    if (pool == NULL)
        return;
    nbd_buffer_pool_trim(pool);
    env_mutex_destroy(&pool->lock);
    free(pool);
}

static void *piece_get(struct nbd_buffer_pool *pool, unsigned class)
{
    uint32_t bytes = NBD_PIECE_BYTES_MIN << class;
    env_mutex_lock(&pool->lock);
    struct free_piece *piece = pool->free[class];
    if (piece != NULL) {
        unpoison(piece, bytes);
        pool->free[class] = piece->next;
        pool->kept_bytes -= bytes;
    }
    env_mutex_unlock(&pool->lock);
    return piece != NULL ? piece : aligned_alloc(PIECE_ALIGNMENT, bytes);
}

static void piece_put(struct nbd_buffer_pool *pool, void *bytes, unsigned class)
{
    uint32_t size = NBD_PIECE_BYTES_MIN << class;
    env_mutex_lock(&pool->lock);
    bool keep = pool->kept_bytes + size <= KEPT_BYTES_MAX;
    if (keep) {
        struct free_piece *piece = bytes;
        piece->next = pool->free[class];
        pool->free[class] = piece;
        pool->kept_bytes += size;
        poison(piece, size);
    }
    env_mutex_unlock(&pool->lock);
    if (!keep)
        free(bytes);
}

static uint64_t last_piece_bytes(const struct nbd_buffer *buffer)
{
    uint64_t before = 0;
    for (unsigned i = 0; i + 1 < buffer->count; i++)
        before += buffer->pieces[i].iov_len;
    return buffer->capacity_bytes - before;
}

static int reserve_entries(struct nbd_buffer *buffer, unsigned more)
{
    if (buffer->pieces == NULL) {
        buffer->pieces = buffer->inside;
        buffer->room = sizeof buffer->inside / sizeof buffer->inside[0];
    }
    if (more <= buffer->room - buffer->count)
        return 0;
    unsigned room = (unsigned)max_u64(2 * (uint64_t)buffer->room, (uint64_t)buffer->count + more);
    struct iovec *pieces = malloc(room * sizeof *pieces);
    if (pieces == NULL)
        return -ENOMEM;
    memcpy(pieces, buffer->pieces, buffer->count * sizeof *pieces);
    if (buffer->pieces != buffer->inside)
        free(buffer->pieces);
    buffer->pieces = pieces;
    buffer->room = room;
    return 0;
}

static void drop_last_piece(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer)
{
    uint64_t bytes = last_piece_bytes(buffer);
    buffer->count--;
    buffer->capacity_bytes -= bytes;
    piece_put(pool, buffer->pieces[buffer->count].iov_base, class_of(bytes));
}

int nbd_buffer_extend(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer, uint64_t n)
{
    unsigned before = buffer->count;
    int ret = reserve_entries(buffer, (unsigned)div_ceil(n, NBD_PIECE_BYTES_MAX));
    while (ret == 0 && n > 0) {
        unsigned class = class_of(min_u64(n, NBD_PIECE_BYTES_MAX));
        uint64_t bytes = (uint64_t)NBD_PIECE_BYTES_MIN << class;
        void *piece = piece_get(pool, class);
        if (piece == NULL) {
            ret = -ENOMEM;
            break;
        }
        buffer->pieces[buffer->count++] = (struct iovec){piece, bytes};
        buffer->capacity_bytes += bytes;
        n -= min_u64(n, bytes);
    }
    while (ret < 0 && buffer->count > before)
        drop_last_piece(pool, buffer);
    return ret;
}

uint64_t nbd_buffer_shrink(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer)
{
    uint64_t capacity = buffer->capacity_bytes;
    while (buffer->count > 0 && buffer->capacity_bytes - last_piece_bytes(buffer) >= buffer->filled_bytes)
        drop_last_piece(pool, buffer);
    if (buffer->count == 0)
        return capacity;
    struct iovec *last = &buffer->pieces[buffer->count - 1];
    uint64_t filled = buffer->filled_bytes - (buffer->capacity_bytes - last->iov_len);
    uint32_t smaller = nbd_piece_bytes(filled);
    if (smaller <= last->iov_len / 4) {
        void *piece = piece_get(pool, class_of(smaller));
        if (piece != NULL) {
            memcpy(piece, last->iov_base, filled);
            piece_put(pool, last->iov_base, class_of(last->iov_len));
            buffer->capacity_bytes -= last->iov_len - smaller;
            *last = (struct iovec){piece, smaller};
        }
    }
    return capacity - buffer->capacity_bytes;
}

uint64_t nbd_buffer_release(struct nbd_buffer_pool *pool, struct nbd_buffer *buffer)
{
    uint64_t capacity = buffer->capacity_bytes;
    while (buffer->count > 0)
        drop_last_piece(pool, buffer);
    if (buffer->pieces != buffer->inside)
        free(buffer->pieces);
    buffer->pieces = NULL;
    buffer->room = 0;
    buffer->filled_bytes = 0;
    return capacity;
}

/* The piece that the next byte goes into, and where in it. */
static unsigned find_tail(const struct nbd_buffer *buffer, size_t *ret_skip)
{
    uint64_t before = 0;
    unsigned i = 0;
    while (i < buffer->count && before + buffer->pieces[i].iov_len <= buffer->filled_bytes)
        before += buffer->pieces[i++].iov_len;
    *ret_skip = (size_t)(buffer->filled_bytes - before);
    return i;
}

int nbd_buffer_tail(const struct nbd_buffer *buffer, uint64_t max_bytes, struct iovec *ret_iov, int room,
                    size_t *ret_bytes)
{
    size_t skip;
    int count = 0;
    *ret_bytes = 0;
    for (unsigned i = find_tail(buffer, &skip); i < buffer->count && count < room && *ret_bytes < max_bytes; i++) {
        size_t n = (size_t)min_u64(buffer->pieces[i].iov_len - skip, max_bytes - *ret_bytes);
        ret_iov[count++] = (struct iovec){(uint8_t *)buffer->pieces[i].iov_base + skip, n};
        *ret_bytes += n;
        skip = 0;
    }
    return count;
}

void nbd_buffer_append(struct nbd_buffer *buffer, const void *bytes, size_t n)
{
    const uint8_t *from = bytes;
    size_t skip;
    for (unsigned i = find_tail(buffer, &skip); n > 0; i++) {
        CHECK_LT(i, buffer->count);
        size_t part = (size_t)min_u64(n, buffer->pieces[i].iov_len - skip);
        memcpy((uint8_t *)buffer->pieces[i].iov_base + skip, from, part);
        from += part;
        n -= part;
        buffer->filled_bytes += part;
        skip = 0;
    }
}

void nbd_buffer_trim(struct nbd_buffer *buffer, uint64_t n)
{
    CHECK_LE(n, buffer->capacity_bytes);
    if (buffer->count == 0)
        return;
    uint64_t before = buffer->capacity_bytes - last_piece_bytes(buffer);
    CHECK_GE(n, before);
    buffer->pieces[buffer->count - 1].iov_len = (size_t)(n - before);
}
