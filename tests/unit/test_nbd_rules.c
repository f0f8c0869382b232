/*
 * The rules of the protocol that are pure functions: verdicts on requests, error numbers, UTF-8, URIs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "front/nbd/command.h"
#include "front/nbd/errors.h"
#include "front/nbd/protocol.h"
#include "front/nbd/uri.h"
#include "front/nbd/utf8.h"
#include "front/nbd/verdict.h"
#include "front/nbd/wire.h"
#include "tap.h"

#define WRITABLE                                                                                                      \
    (NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | \
     NBD_FLAG_SEND_FAST_ZERO | NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_CACHE)
#define SIZE 1000000

static struct nbd_terms terms(void)
{
    return (struct nbd_terms){
        .transmission_flags = WRITABLE, .structured = true, .base_allocation = true, .size_bytes = SIZE};
}

static uint32_t judge(const struct nbd_terms *t, uint16_t type, uint16_t flags, uint64_t offset, uint32_t length)
{
    struct nbd_request_header h = {.flags = flags, .type = type, .cookie = 1, .offset = offset, .length = length};
    char *text = NULL;
    uint32_t error = nbd_verdict(&h, t, &text);
    /* An error has a text, success has none. */
    EXPECT((error == 0) == (text == NULL));
    EXPECT(text == NULL || strlen(text) < NBD_STRING_BYTES_MAX);
    free(text);
    return error;
}

static void rule_16_error_numbers(void)
{
    static const struct {
        int result;
        uint32_t plain, fast;
    } table[] = {{0, 0, 0},
                 {-EPERM, NBD_EPERM, NBD_EPERM},
                 {-EROFS, NBD_EPERM, NBD_EPERM},
                 {-EACCES, NBD_EPERM, NBD_EPERM},
                 {-EIO, NBD_EIO, NBD_EIO},
                 {-EBADMSG, NBD_EIO, NBD_EIO},
                 {-ENODEV, NBD_EIO, NBD_EIO},
                 {-ENXIO, NBD_EIO, NBD_EIO},
                 {-ECANCELED, NBD_EIO, NBD_EIO},
                 {-ENOENT, NBD_EIO, NBD_EIO},
                 {-ENOMEM, NBD_ENOMEM, NBD_ENOMEM},
                 {-EINVAL, NBD_EINVAL, NBD_EINVAL},
                 {-ERANGE, NBD_EINVAL, NBD_EINVAL},
                 {-ENOSPC, NBD_ENOSPC, NBD_ENOSPC},
                 {-EDQUOT, NBD_ENOSPC, NBD_ENOSPC},
                 {-EFBIG, NBD_ENOSPC, NBD_ENOSPC},
                 {-ESHUTDOWN, NBD_ESHUTDOWN, NBD_ESHUTDOWN},
                 {-EOPNOTSUPP, NBD_EINVAL, NBD_ENOTSUP}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        EXPECT_EQ(nbd_error_of(table[i].result, 0), table[i].plain);
        EXPECT_EQ(nbd_error_of(table[i].result, 1), table[i].fast);
    }
    /* Whatever errno there is, the wire sees one of eight numbers, and EOVERFLOW never from here. */
    for (int e = 1; e < 200; e++) {
        uint32_t n = nbd_error_of(-e, 0);
        EXPECT(n == 1 || n == 5 || n == 12 || n == 22 || n == 28 || n == 108);
        EXPECT(strcmp(nbd_error_name(n), "unknown") != 0);
    }
    EXPECT_TEXT(nbd_error_name(NBD_EOVERFLOW), "EOVERFLOW");
    EXPECT_TEXT(nbd_error_name(NBD_ENOTSUP), "ENOTSUP");
    EXPECT_TEXT(nbd_error_name(0), "success");
    EXPECT_TEXT(nbd_error_name(2), "unknown");
}

static void rule_17_ranges(void)
{
    static const struct {
        uint16_t type;
        uint32_t error;
    } kinds[] = {{NBD_CMD_READ, NBD_EINVAL},         {NBD_CMD_WRITE, NBD_ENOSPC}, {NBD_CMD_TRIM, NBD_EINVAL},
                 {NBD_CMD_WRITE_ZEROES, NBD_ENOSPC}, {NBD_CMD_CACHE, NBD_EINVAL}, {NBD_CMD_BLOCK_STATUS, NBD_EINVAL}};
    struct nbd_terms t = terms();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint16_t type = kinds[i].type;
        EXPECT_EQ(judge(&t, type, 0, 0, SIZE), 0);
        EXPECT_EQ(judge(&t, type, 0, SIZE - 1, 1), 0);
        EXPECT_EQ(judge(&t, type, 0, SIZE, 1), kinds[i].error);
        EXPECT_EQ(judge(&t, type, 0, SIZE - 1, 2), kinds[i].error);
        EXPECT_EQ(judge(&t, type, 0, 0, SIZE + 1), kinds[i].error);
        /* offset + length wraps round */
        EXPECT_EQ(judge(&t, type, 0, UINT64_MAX, 1), kinds[i].error);
        EXPECT_EQ(judge(&t, type, 0, UINT64_MAX - 510, 512), kinds[i].error);
        EXPECT_EQ(judge(&t, type, 0, UINT64_MAX, UINT32_MAX), kinds[i].error);
        EXPECT_EQ(judge(&t, type, 0, UINT64_MAX - UINT32_MAX + 1, UINT32_MAX), kinds[i].error);
    }
}

static void rule_17_read_only_export(void)
{
    struct nbd_terms t = terms();
    t.transmission_flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_READ_ONLY | NBD_FLAG_SEND_FLUSH;
    EXPECT_EQ(judge(&t, NBD_CMD_WRITE, 0, 0, 512), NBD_EPERM);
    EXPECT_EQ(judge(&t, NBD_CMD_TRIM, 0, 0, 512), NBD_EPERM);
    EXPECT_EQ(judge(&t, NBD_CMD_WRITE_ZEROES, 0, 0, 512), NBD_EPERM);
    EXPECT_EQ(judge(&t, NBD_CMD_WRITE, 0, SIZE, 512), NBD_EPERM);
    EXPECT_EQ(judge(&t, NBD_CMD_READ, 0, 0, 512), 0);
    EXPECT_EQ(judge(&t, NBD_CMD_FLUSH, 0, 0, 0), 0);
}

static void rule_18_flags_of_each_command(void)
{
    static const uint16_t allowed[NBD_CMD_COUNT] = {
        [NBD_CMD_READ] = NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_DF,
        [NBD_CMD_WRITE] = NBD_CMD_FLAG_FUA,
        [NBD_CMD_FLUSH] = NBD_CMD_FLAG_FUA,
        [NBD_CMD_TRIM] = NBD_CMD_FLAG_FUA,
        [NBD_CMD_CACHE] = NBD_CMD_FLAG_FUA,
        [NBD_CMD_WRITE_ZEROES] = NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO,
        [NBD_CMD_BLOCK_STATUS] = NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_REQ_ONE,
    };
    struct nbd_terms t = terms();
    for (uint16_t type = 0; type < NBD_CMD_COUNT; type++) {
        if (type == NBD_CMD_DISC)
            continue; /* has no reply */
        uint32_t length = type == NBD_CMD_FLUSH ? 0 : 512;
        for (unsigned bit = 0; bit < 16; bit++) {
            uint16_t flag = (uint16_t)(1u << bit);
            EXPECT_EQ(judge(&t, type, flag, 0, length), (allowed[type] & flag) != 0 ? 0 : NBD_EINVAL);
        }
        EXPECT_EQ(judge(&t, type, allowed[type], 0, length), 0);
    }
    for (unsigned type = NBD_CMD_COUNT; type < 65536; type += type < 32 ? 1 : 997)
        EXPECT_EQ(judge(&t, (uint16_t)type, 0, 0, 0), NBD_EINVAL);
}

static void rule_18_flags_that_were_not_offered(void)
{
    struct nbd_terms t = terms();
    t.structured = false;
    EXPECT_EQ(judge(&t, NBD_CMD_READ, NBD_CMD_FLAG_DF, 0, 512), NBD_EINVAL);
    t.transmission_flags = (uint16_t)(t.transmission_flags & ~NBD_FLAG_SEND_FAST_ZERO);
    EXPECT_EQ(judge(&t, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, 0, 512), NBD_EINVAL);
    EXPECT_EQ(judge(&t, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 0, 512), 0);
    t.transmission_flags = (uint16_t)(t.transmission_flags & ~NBD_FLAG_SEND_FUA);
    EXPECT_EQ(judge(&t, NBD_CMD_WRITE, NBD_CMD_FLAG_FUA, 0, 512), NBD_EINVAL);
    EXPECT_EQ(judge(&t, NBD_CMD_READ, NBD_CMD_FLAG_FUA, 0, 512), NBD_EINVAL);
}

static void rule_25_flush_has_no_range(void)
{
    struct nbd_terms t = terms();
    EXPECT_EQ(judge(&t, NBD_CMD_FLUSH, 0, 0, 0), 0);
    EXPECT_EQ(judge(&t, NBD_CMD_FLUSH, 0, 1, 0), NBD_EINVAL);
    EXPECT_EQ(judge(&t, NBD_CMD_FLUSH, 0, 0, 1), NBD_EINVAL);
}

static void rule_36_df_beyond_one_chunk(void)
{
    struct nbd_terms t = terms();
    t.size_bytes = UINT64_MAX;
    EXPECT_EQ(judge(&t, NBD_CMD_READ, NBD_CMD_FLAG_DF, 0, 65536), 0);
    EXPECT_EQ(judge(&t, NBD_CMD_READ, NBD_CMD_FLAG_DF, 0, 32 << 20), 0);
    EXPECT_EQ(judge(&t, NBD_CMD_READ, NBD_CMD_FLAG_DF, 0, (32 << 20) + 1), NBD_EOVERFLOW);
    EXPECT_EQ(judge(&t, NBD_CMD_READ, 0, 0, UINT32_MAX), 0);
    t.structured = false;
    EXPECT_EQ(judge(&t, NBD_CMD_READ, 0, 0, 32 << 20), 0);
    EXPECT_EQ(judge(&t, NBD_CMD_READ, 0, 0, (32 << 20) + 1), NBD_EINVAL);
}

static void rule_40_block_status_needs_a_context(void)
{
    struct nbd_terms t = terms();
    EXPECT_EQ(judge(&t, NBD_CMD_BLOCK_STATUS, 0, 0, 512), 0);
    EXPECT_EQ(judge(&t, NBD_CMD_BLOCK_STATUS, 0, 0, 0), NBD_EINVAL);
    t.base_allocation = false;
    EXPECT_EQ(judge(&t, NBD_CMD_BLOCK_STATUS, 0, 0, 512), NBD_EINVAL);
}

static void rule_45_everything_is_refused_at_shutdown(void)
{
    struct nbd_terms t = terms();
    t.shutting_down = true;
    for (uint16_t type = 0; type < NBD_CMD_COUNT + 3; type++)
        EXPECT_EQ(judge(&t, type, 0, 0, 512), NBD_ESHUTDOWN);
}

static void rule_5_utf8(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        bool valid;
    } table[] = {{"", 0, true},
                 {"disk", 4, true},
                 {"\0", 1, true}, /* NUL is UTF-8; that names have none is another rule */
                 {"\x7f", 1, true},
                 {"\x80", 1, false},
                 {"\xc2\x80", 2, true},
                 {"\xc1\xbf", 2, false}, /* overlong */
                 {"\xc2", 1, false},
                 {"\xc2\xc0", 2, false},
                 {"\xe0\xa0\x80", 3, true},
                 {"\xe0\x9f\xbf", 3, false}, /* overlong */
                 {"\xed\x9f\xbf", 3, true},
                 {"\xed\xa0\x80", 3, false}, /* surrogate */
                 {"\xef\xbf\xbf", 3, true},
                 {"\xef\xbf", 2, false},
                 {"\xf0\x90\x80\x80", 4, true},
                 {"\xf0\x8f\xbf\xbf", 4, false}, /* overlong */
                 {"\xf4\x8f\xbf\xbf", 4, true},
                 {"\xf4\x90\x80\x80", 4, false}, /* above U+10FFFF */
                 {"\xf5\x80\x80\x80", 4, false},
                 {"\xff", 1, false},
                 {"a\xc3\xa4z", 4, true},
                 {"a\xc3z", 3, false}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        EXPECT_EQ(utf8_valid((const uint8_t *)table[i].bytes, table[i].n), table[i].valid);
}

static void uris(void)
{
    char buf[256], *head, *tail;
    EXPECT_TEXT(nbd_uri_join("nbd://h:1/", "a b/c?d%", "", buf, sizeof buf), "nbd://h:1/a%20b%2Fc%3Fd%25");
    tail = nbd_uri_unix_tail("/run/x y/s&.sock");
    EXPECT_TEXT(tail, "?socket=/run/x%20y/s%26.sock");
    EXPECT_TEXT(nbd_uri_join("nbd+unix:///", "", tail, buf, sizeof buf), "nbd+unix:///?socket=/run/x%20y/s%26.sock");
    free(tail);
    /* cut, not overrun */
    EXPECT_TEXT(nbd_uri_join("nbd://h:1/", "name", "", buf, 8), "nbd://h");
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    nbd_uri_of_socket(pair[0], &head, &tail);
    EXPECT_TEXT(head, "");
    EXPECT_TEXT(tail, "");
    free(head);
    free(tail);
    close(pair[0]);
    close(pair[1]);
}

static void wire_numbers(void)
{
    uint8_t b[8];
    wire_put_u64(b, UINT64_C(0x0102030405060708));
    EXPECT_EQ(memcmp(b, "\1\2\3\4\5\6\7\10", 8), 0);
    EXPECT_EQ(wire_get_u64(b), INT64_C(0x0102030405060708));
    EXPECT_EQ(wire_get_u16(b + 6), 0x0708);
    struct wire_source s = {.bytes = b, .left_bytes = 7};
    EXPECT_EQ(wire_take_u32(&s), 0x01020304);
    EXPECT_EQ(wire_take_u32(&s), 0); /* only three are left */
    EXPECT(s.bad);
    EXPECT_EQ(wire_take_u16(&s), 0); /* bad stays bad */
}

int main(void)
{
    RUN(wire_numbers);
    RUN(rule_5_utf8);
    RUN(rule_16_error_numbers);
    RUN(rule_17_ranges);
    RUN(rule_17_read_only_export);
    RUN(rule_18_flags_of_each_command);
    RUN(rule_18_flags_that_were_not_offered);
    RUN(rule_25_flush_has_no_range);
    RUN(rule_36_df_beyond_one_chunk);
    RUN(rule_40_block_status_needs_a_context);
    RUN(rule_45_everything_is_refused_at_shutdown);
    RUN(uris);
    return tap_done();
}
