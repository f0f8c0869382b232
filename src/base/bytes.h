/*
 * Cursors over little-endian bytes: the only way durable and network bytes are taken apart or put together.
 *
 * A struct source never reads past its end: the first read that would makes it `bad`, and from then on every read gives
 * 0. A decoder may therefore read a whole object and test `bad` once, as long as no value read before that test is used
 * as a bound. A struct sink has the same rule for writes (`bad` instead of an overrun). The position of a bad one stays
 * where the first failed read or write began, for the error's text.
 */
#ifndef ASHLAR_BASE_BYTES_H
#define ASHLAR_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

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

/* bytes may be NULL if there are none. */
static inline struct source source_of(const void *bytes, size_t size_bytes)
{
    static const uint8_t none[1];
    return (struct source){.bytes = bytes != NULL ? bytes : none, .size_bytes = size_bytes};
}

/* 0 once it is bad. */
static inline size_t source_left(const struct source *s)
{
    return s->bad ? 0 : s->size_bytes - s->position;
}

/* A pointer to n bytes inside the source, NULL (and bad) if there are not that many. */
static inline const uint8_t *source_take(struct source *s, size_t n)
{
    if (__builtin_expect(s->bad || n > s->size_bytes - s->position, 0)) {
        s->bad = true;
        return NULL;
    }
    const uint8_t *bytes = s->bytes + s->position;
    s->position += n;
    return bytes;
}

/* The unsigned little-endian number of the next n bytes, n <= 8. Compilers turn constant n into one load. */
static inline uint64_t source_little_endian(struct source *s, unsigned n)
{
    const uint8_t *bytes = source_take(s, n);
    uint64_t v = 0;
    for (unsigned i = 0; bytes != NULL && i < n; i++)
        v |= (uint64_t)bytes[i] << 8 * i;
    return v;
}

static inline uint8_t source_u8(struct source *s)
{
    return (uint8_t)source_little_endian(s, 1);
}

static inline uint16_t source_u16(struct source *s)
{
    return (uint16_t)source_little_endian(s, 2);
}

static inline uint32_t source_u24(struct source *s)
{
    return (uint32_t)source_little_endian(s, 3);
}

static inline uint32_t source_u32(struct source *s)
{
    return (uint32_t)source_little_endian(s, 4);
}

static inline uint64_t source_u64(struct source *s)
{
    return source_little_endian(s, 8);
}

/* LEB128, at most 10 bytes, must be the shortest form. */
uint64_t source_varint(struct source *s);
/* Copies n bytes out; zeroes them if there are not that many. */
void source_copy(struct source *s, void *ret_bytes, size_t n);
/* Skips n bytes, which must all be zero (reserved bytes), else bad. */
void source_zeroes(struct source *s, size_t n);

static inline struct sink sink_of(void *bytes, size_t size_bytes)
{
    return (struct sink){.bytes = bytes, .size_bytes = size_bytes};
}

/* 0 once it is bad. */
static inline size_t sink_left(const struct sink *s)
{
    return s->bad ? 0 : s->size_bytes - s->position;
}

/* Room for the next n > 0 bytes, which the caller fills; NULL (and bad) if there is not that much. */
static inline uint8_t *sink_take(struct sink *s, size_t n)
{
    if (__builtin_expect(s->bad || n > s->size_bytes - s->position, 0)) {
        s->bad = true;
        return NULL;
    }
    uint8_t *bytes = s->bytes + s->position;
    s->position += n;
    return bytes;
}

static inline void sink_little_endian(struct sink *s, uint64_t v, unsigned n)
{
    uint8_t *bytes = sink_take(s, n);
    for (unsigned i = 0; bytes != NULL && i < n; i++)
        bytes[i] = (uint8_t)(v >> 8 * i);
}

static inline void sink_u8(struct sink *s, uint8_t v)
{
    sink_little_endian(s, v, 1);
}

static inline void sink_u16(struct sink *s, uint16_t v)
{
    sink_little_endian(s, v, 2);
}

/* v is below 2^24. */
static inline void sink_u24(struct sink *s, uint32_t v)
{
    CHECK(v < UINT32_C(1) << 24);
    sink_little_endian(s, v, 3);
}

static inline void sink_u32(struct sink *s, uint32_t v)
{
    sink_little_endian(s, v, 4);
}

static inline void sink_u64(struct sink *s, uint64_t v)
{
    sink_little_endian(s, v, 8);
}

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
