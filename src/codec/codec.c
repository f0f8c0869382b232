/*
 * Contexts, compression and decompression.
 *
 * The libraries' states are made at first use and live as long as the context: libzstd's compression state grows to
 * what the highest level and the largest record need (1 MiB records: level 3 about 1 MiB, level 19 about 17 MiB) and
 * shrinks by itself when far less is needed for long. A level is set in it only when it changes.
 *
 * What happens to a record of n bytes:
 *
 *   lz4   liblz4, given n - n/64 bytes of room: it gives up when it runs out of it, and on incompressible data it
 *         skips ahead, so that it is its own probe.
 *   zstd  for the slow combinations of level and size a probe goes first (zstd_is_quick): unless a sample of the
 *         bytes is unevenly distributed (bytes_are_flat), or else lz4 finds 1/64 to save, the record is stored raw.
 * Then libzstd, with n - n/64 bytes of room.
 */
#include "codec/codec.h"

#include <limits.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "codec/probe.h"

#define INPUT_BYTES_MAX (2 * MIB)

struct codec_context {
    ZSTD_CCtx *zstd_compressor; /* NULL until used, as the next two */
    ZSTD_DCtx *zstd_decompressor;
    void *lz4_state;
    int zstd_level; /* what zstd_compressor is set to; 0 before the first */
};

struct codec_context *codec_context_new(void)
{
    return calloc(1, sizeof(struct codec_context));
}

void codec_context_free(struct codec_context *c)
{
    if (c == NULL)
        return;
    ZSTD_freeCCtx(c->zstd_compressor);
    ZSTD_freeDCtx(c->zstd_decompressor);
    free(c->lz4_state);
    free(c);
}

size_t codec_context_bytes(const struct codec_context *c)
{
    size_t lz4_bytes = c->lz4_state != NULL ? (size_t)LZ4_sizeofState() : 0;
    return sizeof(*c) + lz4_bytes + ZSTD_sizeof_CCtx(c->zstd_compressor) + ZSTD_sizeof_DCtx(c->zstd_decompressor);
}

/* The compressed length, 0 if it is over limit (or memory is short). */
static size_t lz4_compress(struct codec_context *c, const void *bytes, size_t n, void *ret_bytes, size_t limit,
                           int acceleration)
{
    if (c->lz4_state == NULL)
        c->lz4_state = malloc((size_t)LZ4_sizeofState());
    if (c->lz4_state == NULL)
        return 0;
    int length = LZ4_compress_fast_extState(c->lz4_state, bytes, ret_bytes, (int)n, (int)limit, acceleration);
    CHECK(length >= 0);
    return (size_t)length;
}

static size_t zstd_compress(struct codec_context *c, int level, const void *bytes, size_t n, void *ret_bytes,
                            size_t limit)
{
    if (c->zstd_compressor == NULL)
        c->zstd_compressor = ZSTD_createCCtx();
    if (c->zstd_compressor == NULL)
        return 0;
    if (c->zstd_level != level) {
        size_t set = ZSTD_CCtx_setParameter(c->zstd_compressor, ZSTD_c_compressionLevel, level);
        CHECK(!ZSTD_isError(set));
        c->zstd_level = level;
    }
    size_t length = ZSTD_compress2(c->zstd_compressor, ret_bytes, limit, bytes, n);
    return ZSTD_isError(length) ? 0 : length; /* no room, or no memory */
}

/*
 * true if libzstd by itself gives up on incompressible data about as fast as the probe would, or if there is too little
 * to probe. Measured on /dev/urandom in MB/s (probe.c has the setting): level -1 3000 at 4 KiB, as the probe, and more
 * above; levels 1 to 4 1500 to 500 at 4 KiB and 2900 at 32 KiB, but 7000 to 9000 at 64 KiB; level 6 and above never
 * over 700.
 */
static bool zstd_is_quick(int level, size_t n)
{
    return level < 0 || (level <= 4 && n >= 64 * KIB) || n < PROBE_BYTES_MIN;
}

/*
 * true if lz4 saves half of what zstd must. ret_bytes is scratch. Asking lz4 for all of the 1/64 left 0.26 % unsaved in
 * 1 MiB records of compressed files, half 0.08 %. On small records it starts with steps of 8 bytes, which takes 0.6 us
 * for 4 KiB in place of 0.95 and costs 0.03 %; on large ones it comes to such steps by itself.
 */
static bool lz4_finds_repetitions(struct codec_context *c, const void *bytes, size_t n, void *ret_bytes,
                                  size_t capacity_bytes)
{
    size_t limit = min_u64(n - n / 128, capacity_bytes);
    int acceleration = n < 32 * KIB ? 8 : 1;
    return lz4_compress(c, bytes, n, ret_bytes, limit, acceleration) != 0;
}

size_t codec_compress(struct codec_context *c, struct codec_choice choice, const void *bytes, size_t n, void *ret_bytes,
                      size_t capacity_bytes)
{
    CHECK(n > 0 && n <= INPUT_BYTES_MAX);
    CHECK(codec_choice_valid(choice));
    size_t limit = min_u64(n - div_ceil(n, 64), capacity_bytes);
    if (choice.id == CODEC_OFF || limit == 0)
        return 0;
    if (choice.id == CODEC_LZ4)
        return lz4_compress(c, bytes, n, ret_bytes, limit, 1);
    if (!zstd_is_quick(choice.level, n) && bytes_are_flat(bytes, n) &&
        !lz4_finds_repetitions(c, bytes, n, ret_bytes, capacity_bytes))
        return 0;
    return zstd_compress(c, choice.level, bytes, n, ret_bytes, limit);
}

static int lz4_decompress(const void *bytes, size_t n, void *ret_bytes, size_t raw_bytes)
{
    if (n > INT_MAX || raw_bytes > INT_MAX)
        return -EBADMSG;
    int length = LZ4_decompress_safe(bytes, ret_bytes, (int)n, (int)raw_bytes);
    return length >= 0 && (size_t)length == raw_bytes ? 0 : -EBADMSG;
}

/* true if bytes are one frame of today's format that says it holds raw_bytes bytes. */
static bool zstd_frame_fits(const void *bytes, size_t n, size_t raw_bytes)
{
    struct source s = source_of(bytes, n);
    return source_u32(&s) == ZSTD_MAGICNUMBER && ZSTD_getFrameContentSize(bytes, n) == raw_bytes &&
           ZSTD_findFrameCompressedSize(bytes, n) == n;
}

static int zstd_decompress(struct codec_context *c, const void *bytes, size_t n, void *ret_bytes, size_t raw_bytes)
{
    if (!zstd_frame_fits(bytes, n, raw_bytes))
        return -EBADMSG;
    if (c->zstd_decompressor == NULL)
        c->zstd_decompressor = ZSTD_createDCtx();
    if (c->zstd_decompressor == NULL)
        return -ENOMEM;
    size_t length = ZSTD_decompressDCtx(c->zstd_decompressor, ret_bytes, raw_bytes, bytes, n);
    if (ZSTD_getErrorCode(length) == ZSTD_error_memory_allocation)
        return -ENOMEM;
    return !ZSTD_isError(length) && length == raw_bytes ? 0 : -EBADMSG;
}

int codec_decompress(struct codec_context *c, uint8_t id, const void *bytes, size_t n, void *ret_bytes,
                     size_t raw_bytes)
{
    if (id == CODEC_LZ4)
        return lz4_decompress(bytes, n, ret_bytes, raw_bytes);
    if (id == CODEC_ZSTD)
        return zstd_decompress(c, bytes, n, ret_bytes, raw_bytes);
    if (id != CODEC_OFF)
        return -EOPNOTSUPP;
    if (n != raw_bytes)
        return -EBADMSG;
    if (n > 0)
        memcpy(ret_bytes, bytes, n);
    return 0;
}
