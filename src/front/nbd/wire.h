/*
 * Big-endian numbers, as NBD sends them. A struct wire_source reads a payload front to back and never past its end: the
 * first read that would makes it `bad`, and from then on every read gives 0.
 */
#ifndef ASHLAR_FRONT_NBD_WIRE_H
#define ASHLAR_FRONT_NBD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint8_t *wire_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
    return p + 2;
}

static inline uint8_t *wire_put_u32(uint8_t *p, uint32_t v)
{
    return wire_put_u16(wire_put_u16(p, (uint16_t)(v >> 16)), (uint16_t)v);
}

static inline uint8_t *wire_put_u64(uint8_t *p, uint64_t v)
{
    return wire_put_u32(wire_put_u32(p, (uint32_t)(v >> 32)), (uint32_t)v);
}

static inline uint16_t wire_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t wire_get_u32(const uint8_t *p)
{
    return (uint32_t)wire_get_u16(p) << 16 | wire_get_u16(p + 2);
}

static inline uint64_t wire_get_u64(const uint8_t *p)
{
    return (uint64_t)wire_get_u32(p) << 32 | wire_get_u32(p + 4);
}

struct wire_source {
    const uint8_t *bytes;
    size_t left_bytes;
    bool bad;
};

/* n bytes of the source, NULL (and bad) if there are not that many. */
static inline const uint8_t *wire_take(struct wire_source *s, size_t n)
{
    if (s->bad || n > s->left_bytes) {
        s->bad = true;
        return NULL;
    }
    const uint8_t *p = s->bytes;
    s->bytes += n;
    s->left_bytes -= n;
    return p;
}

static inline uint16_t wire_take_u16(struct wire_source *s)
{
    const uint8_t *p = wire_take(s, 2);
    return p ? wire_get_u16(p) : 0;
}

static inline uint32_t wire_take_u32(struct wire_source *s)
{
    const uint8_t *p = wire_take(s, 4);
    return p ? wire_get_u32(p) : 0;
}

#endif
