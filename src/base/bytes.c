/*
 * The longer cursor operations. Fixed-width numbers are in the header: they are the inner loop of every decoder.
 *
 * A varint has 7 bits a byte, least significant first, the top bit set on all but the last byte. Only the shortest form
 * is accepted, so that a value has one encoding and a re-encoded object is the same bytes.
 */
#include "base/bytes.h"

#include <string.h>

#define VARINT_BYTES_MAX 10

size_t varint_bytes(uint64_t v)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(v | 1);
    return (bits + 6) / 7;
}

uint64_t source_varint(struct source *s)
{
    size_t start = s->position;
    size_t left = source_left(s);
    uint64_t v = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX && i < left; i++) {
        uint8_t byte = s->bytes[start + i];
        v |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            bool longer_than_needed = byte == 0 && i > 0;
            bool over_64_bits = i == VARINT_BYTES_MAX - 1 && byte > 1;
            if (longer_than_needed || over_64_bits)
                break;
            s->position = start + i + 1;
            return v;
        }
    }
    s->bad = true;
    return 0;
}

void source_copy(struct source *s, void *ret_bytes, size_t n)
{
    if (n == 0)
        return; /* memcpy and memset may not be given NULL, even for nothing */
    const uint8_t *bytes = source_take(s, n);
    if (bytes != NULL)
        memcpy(ret_bytes, bytes, n);
    else
        memset(ret_bytes, 0, n);
}

void source_zeroes(struct source *s, size_t n)
{
    size_t start = s->position;
    const uint8_t *bytes = source_take(s, n);
    for (size_t i = 0; bytes != NULL && i < n; i++) {
        if (bytes[i] != 0) {
            s->position = start;
            s->bad = true;
            return;
        }
    }
}

void sink_varint(struct sink *s, uint64_t v)
{
    uint8_t *bytes = sink_take(s, varint_bytes(v));
    if (bytes == NULL)
        return;
    for (; v >= 0x80; v >>= 7)
        *bytes++ = (uint8_t)(v | 0x80);
    *bytes = (uint8_t)v;
}

void sink_copy(struct sink *s, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    uint8_t *to = sink_take(s, n);
    if (to != NULL)
        memcpy(to, bytes, n);
}

void sink_zeroes(struct sink *s, size_t n)
{
    if (n == 0)
        return;
    uint8_t *to = sink_take(s, n);
    if (to != NULL)
        memset(to, 0, n);
}
