/*
 * Compression: off, lz4, zstd, thinly over liblz4 and libzstd.
 *
 * A codec context belongs to one thread and is reused: creating one per record would cost a CPUID instruction each,
 * which traps in a virtual machine. Data that does not shrink is recognised cheaply and left raw: codec_compress then
 * answers 0 and the caller stores the bytes as they are with CODEC_OFF.
 */
#ifndef ASHLAR_CODEC_CODEC_H
#define ASHLAR_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* Numbers are durable: never reuse one. */
enum codec_id {
    CODEC_OFF = 0,
    CODEC_LZ4 = 1,
    CODEC_ZSTD = 2,
};

/* What a volume is set to. level: zstd -5 .. 19 without 0 (negative = "fast"); 0 for off and lz4. */
struct codec_choice {
    uint8_t id;
    int8_t level;
};

/* off, lz4, zstd (level 3), zstd-1 .. zstd-19, zstd-fast-1 .. zstd-fast-5 (also zstd-fast). -EINVAL with the list of
 * names. */
int codec_choice_parse(const char *name, struct codec_choice *ret_choice, struct error *err);
/* The name as codec_choice_parse reads it; buf of 16 bytes is enough. Returns buf. */
char *codec_choice_format(struct codec_choice choice, char *buf, size_t buf_bytes);

struct codec_context;
struct codec_context *
codec_context_new(void); /* NULL: no memory. The libraries' own states are made at first use and kept. */
void codec_context_free(struct codec_context *c);
size_t codec_context_bytes(const struct codec_context *c); /* memory it holds */

/*
 * Compresses n bytes (1 .. 2 MiB) into ret_bytes. Returns the compressed length, at most capacity_bytes and less than
 * n; 0 if the result would not be smaller by at least 1/64 or does not fit: store raw. Never fails otherwise (out of
 * memory stores raw). Deterministic for one library version.
 */
size_t codec_compress(struct codec_context *c, struct codec_choice choice, const void *bytes, size_t n, void *ret_bytes,
                      size_t capacity_bytes);

/*
 * Decompresses into exactly raw_bytes bytes. CODEC_OFF copies. 0, -EBADMSG (malformed, or another length), -EOPNOTSUPP
 * (unknown id), -ENOMEM. Never writes past ret_bytes + raw_bytes whatever the input.
 */
int codec_decompress(struct codec_context *c, uint8_t id, const void *bytes, size_t n, void *ret_bytes,
                     size_t raw_bytes) __attribute__((warn_unused_result));

/* true if all n bytes are zero; fast. */
bool bytes_are_zero(const void *bytes, size_t n);

#endif
