/*
 * Fuzz target: the transmission phase, structured replies and base:allocation negotiated. Input: all that a client
 * sends after the handshake. Whatever it is, what comes back is a sequence of well-formed replies, with error numbers
 * that exist, and the connection ends. Valid: no reply is an error.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_session.h"

#define PROLOGUE_BYTES_MAX 256

static uint8_t *put_option(uint8_t *p, uint32_t option, const uint8_t *payload, size_t n)
{
    p = wire_put_u32(wire_put_u32(wire_put_u64(p, NBD_IHAVEOPT), option), (uint32_t)n);
    if (n > 0)
        memcpy(p, payload, n);
    return p + n;
}

static uint8_t *put_string(uint8_t *p, const char *string)
{
    p = wire_put_u32(p, (uint32_t)strlen(string));
    memcpy(p, string, strlen(string));
    return p + strlen(string);
}

static size_t put_prologue(uint8_t *buf)
{
    uint8_t payload[128], *p = put_option(wire_put_u32(buf, 3), NBD_OPT_STRUCTURED_REPLY, NULL, 0);
    uint8_t *end = put_string(wire_put_u32(put_string(payload, SESSION_EXPORT), 1), "base:allocation");
    p = put_option(p, NBD_OPT_SET_META_CONTEXT, payload, (size_t)(end - payload));
    end = wire_put_u16(put_string(payload, SESSION_EXPORT), 0);
    p = put_option(p, NBD_OPT_GO, payload, (size_t)(end - payload));
    return (size_t)(p - buf);
}

static void check_error(uint32_t error)
{
    static const uint32_t known[] = {NBD_EPERM,  NBD_EIO,       NBD_ENOMEM,  NBD_EINVAL,
                                     NBD_ENOSPC, NBD_EOVERFLOW, NBD_ENOTSUP, NBD_ESHUTDOWN};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i] == error)
            return;
    check_failed(__FILE__, __LINE__, "an error number that does not exist");
}

/* Steps over a chunk; returns true if it is an error, or cut off. */
static bool take_chunk(struct wire_source *s)
{
    uint16_t flags = wire_take_u16(s), type = wire_take_u16(s);
    (void)wire_take(s, 8); /* the cookie */
    uint32_t length = wire_take_u32(s);
    const uint8_t *payload = wire_take(s, length);
    if (s->bad)
        return true;
    CHECK_LE(flags, NBD_REPLY_FLAG_DONE);
    switch (type) {
    case NBD_REPLY_TYPE_NONE:
        CHECK_EQ(length, 0);
        CHECK_EQ(flags, NBD_REPLY_FLAG_DONE);
        return false;
    case NBD_REPLY_TYPE_OFFSET_DATA:
        CHECK_GE(length, 9);
        CHECK_LE(wire_get_u64(payload) + length - 8, SESSION_EXPORT_BYTES);
        return false;
    case NBD_REPLY_TYPE_BLOCK_STATUS:
        CHECK_GE(length, 12);
        CHECK_EQ(length % 8, 4);
        for (uint32_t at = 4; at < length; at += 8) {
            CHECK_NE(wire_get_u32(payload + at), 0);
            CHECK_LE(wire_get_u32(payload + at + 4), 3);
        }
        return false;
    case NBD_REPLY_TYPE_ERROR:
    case NBD_REPLY_TYPE_ERROR_OFFSET:
        CHECK_GE(length, type == NBD_REPLY_TYPE_ERROR ? 6 : 14);
        CHECK_EQ(wire_get_u16(payload + 4), length - (type == NBD_REPLY_TYPE_ERROR ? 6 : 14));
        check_error(wire_get_u32(payload));
        return true;
    default:
        check_failed(__FILE__, __LINE__, "a chunk of a type that does not exist");
    }
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    uint8_t *input = malloc(PROLOGUE_BYTES_MAX + n);
    size_t length;
    CHECK(input != NULL);
    size_t prologue = put_prologue(input);
    memcpy(input + prologue, bytes, n);
    uint8_t *answer = nbd_session(input, prologue + n, &length);
    struct wire_source s = {.bytes = answer, .left_bytes = length};
    /* greeting; ACK; context and ACK; size and ACK */
    CHECK(wire_take(&s,
                    NBD_GREETING_BYTES + 6 * NBD_OPTION_REPLY_HEADER_BYTES + 19 + 12 - NBD_OPTION_REPLY_HEADER_BYTES));
    bool errors = false;
    /* The last message is cut off if the client broke the protocol and its socket was full: that is no valid session.
     */
    while (s.left_bytes > 0 && !s.bad) {
        uint32_t magic = wire_take_u32(&s);
        if (magic == NBD_SIMPLE_REPLY_MAGIC) {
            uint32_t error = wire_take_u32(&s);
            CHECK_EQ(error, 0); /* errors are chunks here */
            (void)wire_take(&s, 8);
        } else if (!s.bad) {
            CHECK_EQ(magic, NBD_STRUCTURED_REPLY_MAGIC);
            errors = take_chunk(&s) || errors;
        }
    }
    errors = errors || s.bad;
    free(answer);
    free(input);
    return !errors;
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    static const uint16_t flags[NBD_CMD_COUNT] = {[NBD_CMD_READ] = NBD_CMD_FLAG_DF | NBD_CMD_FLAG_FUA,
                                                  [NBD_CMD_WRITE] = NBD_CMD_FLAG_FUA,
                                                  [NBD_CMD_TRIM] = NBD_CMD_FLAG_FUA,
                                                  [NBD_CMD_WRITE_ZEROES] =
                                                      NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO,
                                                  [NBD_CMD_BLOCK_STATUS] = NBD_CMD_FLAG_REQ_ONE};
    uint8_t *p = buf;
    for (uint64_t left = 1 + prng_below(r, 30); left > 0; left--) {
        uint16_t type = (uint16_t)prng_below(r, NBD_CMD_COUNT);
        if (type == NBD_CMD_DISC)
            type = NBD_CMD_FLUSH;
        uint32_t length = 1 + (uint32_t)prng_below(r, prng_chance(r, 50) ? 2000000 : 4000);
        if (type == NBD_CMD_WRITE)
            length = length % 4000 + 1;
        uint64_t offset = prng_below(r, SESSION_EXPORT_BYTES - length);
        p = wire_put_u32(p, NBD_REQUEST_MAGIC);
        p = wire_put_u16(p, (uint16_t)(flags[type] & prng_u64(r)));
        p = wire_put_u64(wire_put_u16(p, type), prng_u64(r));
        p = wire_put_u64(p, type == NBD_CMD_FLUSH ? 0 : offset);
        p = wire_put_u32(p, type == NBD_CMD_FLUSH ? 0 : length);
        if (type == NBD_CMD_WRITE) {
            prng_fill(r, p, length);
            p += length;
        }
    }
    if (prng_chance(r, 500))
        p = wire_put_u32(
            wire_put_u64(wire_put_u64(wire_put_u32(wire_put_u32(p, NBD_REQUEST_MAGIC), NBD_CMD_DISC), 0), 0), 0);
    return (size_t)(p - buf);
}
