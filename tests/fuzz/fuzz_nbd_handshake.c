/*
 * Fuzz target: a handshake. Input: all that a client sends. Whatever it is, the server's answer begins with the
 * greeting, goes on with well-formed option replies, and the connection ends. Valid: it gets as far as transmission.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_session.h"

static bool is_known_reply(uint32_t type)
{
    return (type >= NBD_REP_ACK && type <= NBD_REP_META_CONTEXT) || (type > 0x80000000 && type < 0x8000000b);
}

/* Checks one option reply and steps over it. false: there is none here. */
static bool take_reply(struct wire_source *s, uint32_t *ret_option, uint32_t *ret_type)
{
    if (s->left_bytes < NBD_OPTION_REPLY_HEADER_BYTES || wire_get_u64(s->bytes) != NBD_OPTION_REPLY_MAGIC)
        return false;
    *ret_option = wire_get_u32(s->bytes + 8);
    *ret_type = wire_get_u32(s->bytes + 12);
    uint32_t length = wire_get_u32(s->bytes + 16);
    CHECK(is_known_reply(*ret_type));
    CHECK_LE(length, NBD_STRING_BYTES_MAX + 64);
    CHECK(*ret_type != NBD_REP_ACK || length == 0);
    CHECK(wire_take(s, NBD_OPTION_REPLY_HEADER_BYTES + (size_t)length) != NULL);
    return true;
}

int fuzz_one(const uint8_t *bytes, size_t n)
{
    size_t length;
    uint8_t *answer = nbd_session(bytes, n, &length);
    struct wire_source s = {.bytes = answer, .left_bytes = length};
    CHECK_GE(length, NBD_GREETING_BYTES);
    CHECK(memcmp(wire_take(&s, NBD_GREETING_BYTES), "NBDMAGICIHAVEOPT\0\3", NBD_GREETING_BYTES) == 0);
    uint32_t option = 0, type = 0;
    while (take_reply(&s, &option, &type) && !(option == NBD_OPT_GO && type == NBD_REP_ACK))
        continue;
    /* After that come EXPORT_NAME's answer or replies of the transmission phase, which another target looks at. */
    int valid = (option == NBD_OPT_GO && type == NBD_REP_ACK) || s.left_bytes >= 10;
    free(answer);
    return valid;
}

static uint8_t *put_option(uint8_t *p, uint32_t option, const uint8_t *payload, size_t n)
{
    p = wire_put_u32(wire_put_u32(wire_put_u64(p, NBD_IHAVEOPT), option), (uint32_t)n);
    memcpy(p, payload, n);
    return p + n;
}

static uint8_t *put_name(uint8_t *p, struct prng *r)
{
    static const char *const names[] = {SESSION_EXPORT, "", "no such export", "\xc3\xa4"};
    const char *name = names[prng_below(r, 4)];
    p = wire_put_u32(p, (uint32_t)strlen(name));
    memcpy(p, name, strlen(name));
    return p + strlen(name);
}

static uint8_t *put_random_option(uint8_t *p, struct prng *r)
{
    static const char *const queries[] = {"base:allocation", "base:", "x-y:z", ""};
    uint8_t payload[512], *end = payload;
    uint32_t option = (uint32_t)prng_below(r, 13);
    if (option == NBD_OPT_EXPORT_NAME || option == NBD_OPT_ABORT || option == NBD_OPT_GO)
        option = NBD_OPT_INFO;
    if (option == NBD_OPT_INFO || option == NBD_OPT_LIST_META_CONTEXT || option == NBD_OPT_SET_META_CONTEXT)
        end = put_name(end, r);
    if (option == NBD_OPT_INFO) {
        unsigned count = (unsigned)prng_below(r, 6);
        end = wire_put_u16(end, (uint16_t)count);
        while (count-- > 0)
            end = wire_put_u16(end, (uint16_t)prng_below(r, 5));
    } else if (option == NBD_OPT_LIST_META_CONTEXT || option == NBD_OPT_SET_META_CONTEXT) {
        unsigned count = (unsigned)prng_below(r, 4);
        end = wire_put_u32(end, count);
        while (count-- > 0) {
            const char *query = queries[prng_below(r, 4)];
            end = wire_put_u32(end, (uint32_t)strlen(query));
            memcpy(end, query, strlen(query));
            end += strlen(query);
        }
    } else if (prng_chance(r, 200)) {
        end += prng_below(r, 100);
        memset(payload, 'x', (size_t)(end - payload));
    }
    return put_option(p, option, payload, (size_t)(end - payload));
}

size_t fuzz_generate(struct prng *r, uint8_t *buf)
{
    uint8_t payload[64];
    uint8_t *p = wire_put_u32(buf, prng_chance(r, 500) ? 3 : 1);
    for (uint64_t left = prng_below(r, 12); left > 0; left--)
        p = put_random_option(p, r);
    if (prng_chance(r, 200)) {
        p = put_option(p, NBD_OPT_EXPORT_NAME, (const uint8_t *)SESSION_EXPORT, strlen(SESSION_EXPORT));
    } else {
        uint8_t *end = wire_put_u32(payload, (uint32_t)strlen(SESSION_EXPORT));
        memcpy(end, SESSION_EXPORT, strlen(SESSION_EXPORT));
        end = wire_put_u16(end + strlen(SESSION_EXPORT), 0);
        p = put_option(p, NBD_OPT_GO, payload, (size_t)(end - payload));
    }
    return (size_t)(p - buf);
}
