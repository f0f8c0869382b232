/*
 * Cursors over little-endian bytes: the only way durable and network bytes are taken apart or put together.
 *
 * A struct source never reads past its end: the first read that would makes it `bad`, and from then on every read gives
 * 0. A decoder may therefore read a whole object and test `bad` once, as long as no value read before that test is used
 * as a bound. A struct sink counts past its end in the same way (`bad` instead of an overrun).
 */
#ifndef ASHLAR_BASE_BYTES_H
#define ASHLAR_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
    const uint8_t *bytes;
    size_t size_bytes;
    size_t position;
    bool bad;
};

struct sink {
    uint8_t *bytes;
    size_t size_bytes;
    size_t position;
    bool bad;
};

struct source source_of(const void *bytes, size_t size_bytes);
size_t source_left(const struct source *s);
uint8_t source_u8(struct source *s);
uint16_t source_u16(struct source *s);
uint32_t source_u24(struct source *s);
uint32_t source_u32(struct source *s);
uint64_t source_u64(struct source *s);
/* LEB128, at most 10 bytes, must be the shortest form. */
uint64_t source_varint(struct source *s);
/* Copies n bytes out; zeroes them if there are not that many. */
void source_copy(struct source *s, void *ret_bytes, size_t n);
/* A pointer to n bytes inside the source, NULL (and bad) if there are not that many. */
const uint8_t *source_take(struct source *s, size_t n);
/* Skips n bytes, which must all be zero (reserved bytes), else bad. */
void source_zeroes(struct source *s, size_t n);

struct sink sink_of(void *bytes, size_t size_bytes);
size_t sink_left(const struct sink *s);
void sink_u8(struct sink *s, uint8_t v);
void sink_u16(struct sink *s, uint16_t v);
void sink_u24(struct sink *s, uint32_t v);
void sink_u32(struct sink *s, uint32_t v);
void sink_u64(struct sink *s, uint64_t v);
void sink_varint(struct sink *s, uint64_t v);
void sink_copy(struct sink *s, const void *bytes, size_t n);
void sink_zeroes(struct sink *s, size_t n);

/* The bytes sink_varint writes for v: 1 to 10. */
size_t varint_bytes(uint64_t v);
/* Signed differences as unsigned varints, small ones short: 0, -1, 1, -2 ... become 0, 1, 2, 3 ... */
static inline uint64_t zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

#endif
