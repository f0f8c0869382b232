/*
 * Compression: off, lz4, zstd, thinly over liblz4 and libzstd.
 *
 * A codec context belongs to one thread and is reused: creating one per record would cost a CPUID instruction each,
 * which traps in a virtual machine. Data that does not shrink is recognised cheaply (probe.h) and left raw:
 * codec_compress then answers 0 and the caller stores the bytes as they are with CODEC_OFF.
 *
 * The compressed forms are durable:
 *
 *   CODEC_LZ4   one LZ4 block as liblz4 calls it: no frame, no size; both lengths are in the record's pointer.
 *   CODEC_ZSTD  one ordinary zstd frame (RFC 8878) with magic number and content size, without checksum (the pointer
 * has a better one) and dictionary. The content size costs 2 bytes in a record of 256 bytes to 64 KiB, 4 in a larger
 * one, where a frame without it has 1: kept, because the frame is then whole by itself (`zstd -d` reads one that was
 * cut out of a pool) and a wrong length is seen before a byte is decompressed. Readers refuse anything else: no content
 * size, another content size, more than one frame, skippable frames, formats older than RFC 8878.
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

/* true if id and level are ones that codec_choice_parse can give: for what comes from a disk. */
bool codec_choice_valid(struct codec_choice choice);

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
 * Compresses n bytes (1 .. 2 MiB) into ret_bytes. Returns the compressed length, at most capacity_bytes and smaller
 * than n by at least n/64 (rounded up); 0 if that is not reached: store raw. The choice is valid. Never fails otherwise
 * (out of memory stores raw). Deterministic for one library version and one capacity; a capacity of n loses nothing.
 * Where 0 is returned the contents of ret_bytes are undefined.
 */
size_t codec_compress(struct codec_context *c, struct codec_choice choice, const void *bytes, size_t n, void *ret_bytes,
                      size_t capacity_bytes);

/*
 * Decompresses into exactly raw_bytes bytes. CODEC_OFF copies. 0, -EBADMSG (malformed, or another length), -EOPNOTSUPP
 * (unknown id), -ENOMEM. Never writes past ret_bytes + raw_bytes whatever the input; after an error what is there is
 * undefined. Memory does not depend on the input.
 */
int codec_decompress(struct codec_context *c, uint8_t id, const void *bytes, size_t n, void *ret_bytes,
                     size_t raw_bytes) __attribute__((warn_unused_result));

/* true if all n bytes are zero (also if there are none). Fast: what is not zero is mostly seen at its first bytes. */
bool bytes_are_zero(const void *bytes, size_t n);

#endif
