/*
 * Requests and replies. Numbers in names: the rules that servers get wrong; B: a row of the table of faults that others
 * shipped; CVE: regression of that class.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/prng.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "tap.h"

static const char *const exports[] = {"disk", "locked-ro", NULL};

static void fill(uint8_t *bytes, size_t n, uint64_t seed)
{
    struct prng r;
    prng_seed(&r, seed);
    prng_fill(&r, bytes, n);
}

static void rule_17_and_18_errors_keep_the_connection(void)
{
    for (unsigned how = 0; how <= CLIENT_STRUCTURED; how++) {
        static uint8_t data[4096];
        struct fixture f;
        fixture_begin_with(&f, NULL, NULL, exports, MIB);
        int fd = client_open(f.server, "disk", how, NULL), ro = client_open(f.server, "locked-ro", how, NULL);
        /* rule 17: the error of each command beyond the end; the payload of the refused WRITE is taken */
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, MIB, 4096, data), NBD_ENOSPC);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, MIB - 1, 2, data), NBD_ENOSPC);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE_ZEROES, MIB, 1, NULL), NBD_ENOSPC);
        EXPECT_EQ(client_read(fd, 0, MIB, 1, data), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, UINT64_MAX, 1, NULL), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_CACHE, 0, UINT32_MAX, NULL), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_BLOCK_STATUS, 0, 1, NULL), NBD_EINVAL);
        EXPECT_EQ(client_do(ro, 0, NBD_CMD_WRITE, 0, 4096, data), NBD_EPERM);
        EXPECT_EQ(client_do(ro, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, 4096, data), NBD_EPERM);
        EXPECT_EQ(client_do(ro, 0, NBD_CMD_TRIM, 0, 4096, NULL), NBD_EPERM);
        EXPECT_EQ(client_do(ro, 0, NBD_CMD_WRITE_ZEROES, 0, 4096, NULL), NBD_EPERM);
        /* rule 18, B11: unknown commands (RESIZE is one) and flags */
        EXPECT_EQ(client_do(fd, 0, 8, 0, 4096, NULL), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, 0, 0xffff, 0, 0, NULL), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, 1 << 5, NBD_CMD_WRITE, 0, 4096, data), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_DF, NBD_CMD_WRITE, 0, 4096, data), NBD_EINVAL);
        EXPECT_EQ(client_read(fd, NBD_CMD_FLAG_REQ_ONE, 0, 512, data), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_NO_HOLE, NBD_CMD_TRIM, 0, 4096, NULL), NBD_EINVAL);
        /* rule 25 */
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 512, NULL), NBD_EINVAL);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 512, 0, NULL), NBD_EINVAL);
        /* both live */
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
        EXPECT_EQ(client_do(ro, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
        struct memory_counts counts;
        memory_exports_get_counts(f.memory, &counts);
        EXPECT_EQ(counts.requests[REQUEST_WRITE] + counts.requests[REQUEST_TRIM] + counts.requests[REQUEST_ZERO], 0);
        close(fd);
        close(ro);
        fixture_end(&f);
    }
}

static void rule_17_the_size_is_that_of_now(void)
{
    static uint8_t data[4096];
    struct fixture f;
    fixture_begin_with(&f, NULL, NULL, exports, MIB);
    int fd = client_open(f.server, "disk", 0, NULL);
    memory_exports_resize(f.memory, "disk", 64 * KIB);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 64 * KIB, 4096, data), NBD_ENOSPC);
    EXPECT_EQ(client_read(fd, 0, 64 * KIB, 4096, data), NBD_EINVAL);
    memory_exports_resize(f.memory, "disk", MIB);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 64 * KIB, 4096, data), 0);
    close(fd);
    fixture_end(&f);
}

static void rule_18_too_large_payload_disconnects(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", 0, NULL);
    EXPECT(client_request(fd, 0, NBD_CMD_WRITE, 1, 0, (32 << 20) + 1));
    EXPECT(client_sees_end(fd));
    close(fd);
    fd = client_open(f.server, "disk", 0, NULL);
    EXPECT(client_request(fd, 0, NBD_CMD_WRITE, 1, 0, UINT32_MAX));
    EXPECT(client_sees_end(fd));
    close(fd);
    fixture_end(&f);
}

static void rule_19_requests_of_no_bytes(void)
{
    uint8_t nothing[1];
    for (unsigned how = 0; how <= CLIENT_STRUCTURED; how++) {
        struct fixture f;
        fixture_begin_with(&f, NULL, NULL, exports, MIB);
        int fd = client_open(f.server, "disk", how, NULL);
        for (uint64_t offset = 0; offset <= MIB; offset += MIB / 2) {
            EXPECT_EQ(client_read(fd, 0, offset, 0, nothing), 0);
            EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, offset, 0, NULL), 0);
            EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, offset, 0, NULL), 0);
            EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE_ZEROES, offset, 0, NULL), 0);
            EXPECT_EQ(client_do(fd, 0, NBD_CMD_CACHE, offset, 0, NULL), 0);
        }
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, MIB + 1, 0, NULL), NBD_ENOSPC);
        close(fd);
        fixture_end(&f);
    }
}

/* B40: trim, zero and flush on an empty export. */
static void rule_19_b40_an_export_of_no_bytes(void)
{
    uint8_t nothing[1];
    struct fixture f;
    struct client_export e;
    fixture_begin_with(&f, NULL, NULL, exports, 0);
    int fd = client_open(f.server, "disk", CLIENT_META, &e);
    EXPECT_EQ(e.size, 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, 0, 0, NULL), 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE_ZEROES, 0, 0, NULL), 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    EXPECT_EQ(client_read(fd, 0, 0, 0, nothing), 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE_ZEROES, 0, 1, NULL), NBD_ENOSPC);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_BLOCK_STATUS, 0, 0, NULL), NBD_EINVAL);
    close(fd);
    fixture_end(&f);
}

static void rule_20_replies_in_any_order_and_cookies_are_opaque(void)
{
    enum { COUNT = 64 };
    struct memory_options options = {.thread_count = 8, .delay_ns_max = 2000000, .seed = 1};
    static uint8_t data[COUNT][4096], back[4096];
    struct fixture f;
    fixture_begin_with(&f, &options, NULL, exports, MIB);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    int twin = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        memset(data[i], (int)(i + 1), 4096);
        EXPECT(client_request(fd, 0, NBD_CMD_WRITE, UINT64_MAX - i, i * 4096, 4096));
        EXPECT(client_send(fd, data[i], 4096));
    }
    bool seen[COUNT] = {false}, in_order = true;
    for (unsigned i = 0; i < COUNT; i++) {
        uint8_t reply[16];
        EXPECT(client_receive(fd, reply, 16));
        EXPECT_EQ(wire_get_u32(reply + 4), 0);
        uint64_t n = UINT64_MAX - wire_get_u64(reply + 8);
        REQUIRE(n < COUNT && !seen[n]);
        seen[n] = true;
        in_order = in_order && n == i;
    }
    EXPECT(!in_order); /* else this test shows nothing */
    /* The same cookies on two connections at once, all equal. */
    for (unsigned i = 0; i < 10; i++) {
        EXPECT(client_request(fd, 0, NBD_CMD_READ, 0, i * 4096, 4096));
        EXPECT(client_request(twin, 0, NBD_CMD_READ, 0, (i + 20) * 4096, 4096));
        EXPECT_EQ(client_read_answer(fd, 0, i * 4096, 4096, back), 0);
        EXPECT_EQ(memcmp(back, data[i], 4096), 0);
        EXPECT_EQ(client_read_answer(twin, 0, (i + 20) * 4096, 4096, back), 0);
        EXPECT_EQ(memcmp(back, data[i + 20], 4096), 0);
    }
    close(fd);
    close(twin);
    fixture_end(&f);
}

static void rule_21_bad_magic_disconnects(void)
{
    /* oldstyle, byte-swapped, extended header's, and the reply's own */
    static const uint32_t magics[] = {0, 0x12560953, 0x13956025, 0x21e41c71, 0x67446698, 0x25609514};
    struct fixture f;
    char notice[512];
    fixture_begin(&f);
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
        uint8_t request[28] = {0};
        int fd = client_open(f.server, "disk", 0, NULL);
        wire_put_u32(request, magics[i]);
        EXPECT(client_send(fd, request, sizeof request));
        EXPECT(client_sees_end(fd));
        close(fd);
    }
    EXPECT(fixture_notices(&f, notice, sizeof notice) >= 6);
    EXPECT(strstr(notice, "magic number 0x25609514") != NULL);
    fixture_end(&f);
}

static void rule_23_only_payload_is_bounded(void)
{
    static const char *const big[] = {"disk", NULL};
    struct fixture f;
    struct memory_counts counts;
    fixture_begin_with(&f, NULL, NULL, big, 6 * GIB);
    int fd = client_open(f.server, "disk", 0, NULL);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, 1, UINT32_MAX, NULL), 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_CACHE, GIB, UINT32_MAX, NULL), 0);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.length_bytes_max, UINT32_MAX);
    close(fd);
    fixture_end(&f);
}

static void rule_23_the_largest_payload(void)
{
    for (unsigned how = 0; how <= CLIENT_STRUCTURED; how++) {
        uint32_t n = 32 << 20;
        uint8_t *data = malloc(n), *back = malloc(n);
        struct fixture f;
        REQUIRE(data != NULL && back != NULL);
        fill(data, n, 23);
        fixture_begin(&f);
        int fd = client_open(f.server, "disk", how, NULL);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 12345, n, data), 0);
        EXPECT_EQ(client_read(fd, 0, 12345, n, back), 0);
        EXPECT_EQ(memcmp(data, back, n), 0);
        if (how == CLIENT_STRUCTURED) {
            memset(back, 0, n);
            EXPECT_EQ(client_read(fd, NBD_CMD_FLAG_DF, 12345, n, back), 0);
            EXPECT_EQ(memcmp(data, back, n), 0);
        } else {
            EXPECT_EQ(client_read(fd, 0, 0, n + 1, back), NBD_EINVAL);
        }
        close(fd);
        fixture_end(&f);
        free(data);
        free(back);
    }
}

/* Requests of 1 MiB and 1 MiB + 14 at offset 1, and of 512 bytes and less: taken as they are. */
static void rule_24_unaligned_requests(void)
{
    static const uint32_t lengths[] = {1, 511, 512, 513, 4095, 4097, 65537, 1 << 20, (1 << 20) + 14, 3000001};
    static uint8_t data[3000001 + 16], back[3000001];
    fill(data, sizeof data, 24);
    for (unsigned how = 0; how <= CLIENT_STRUCTURED; how++) {
        struct fixture f;
        fixture_begin(&f);
        int fd = client_open(f.server, "disk", how, NULL);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            for (uint64_t offset = 1; offset < 4 * GIB; offset = offset * 37 + 1) {
                if (offset + lengths[i] > GIB)
                    break;
                EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, offset, lengths[i], data + i), 0);
                EXPECT_EQ(client_read(fd, 0, offset, lengths[i], back), 0);
                EXPECT_EQ(memcmp(data + i, back, lengths[i]), 0);
            }
        }
        struct memory_counts counts;
        memory_exports_get_counts(f.memory, &counts);
        EXPECT(counts.length_bytes_max <= (how == 0 ? 3000001 : 1 << 20)); /* parts */
        close(fd);
        fixture_end(&f);
    }
}

static void rule_25_flush_and_fua_reach_the_back_end(void)
{
    static uint8_t data[3 << 20];
    struct fixture f;
    struct memory_counts counts;
    fixture_begin(&f);
    int fd[2] = {client_open(f.server, "disk", 0, NULL), client_open(f.server, "disk", CLIENT_STRUCTURED, NULL)};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t flushes = 1 + 2 * i, fua = 3 * (i + 1);
        EXPECT_EQ(client_do(fd[i], 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
        EXPECT_EQ(client_do(fd[i], NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, 4096, data), 0);
        EXPECT_EQ(client_do(fd[i], NBD_CMD_FLAG_FUA, NBD_CMD_TRIM, 0, 4096, NULL), 0);
        EXPECT_EQ(client_do(fd[i], NBD_CMD_FLAG_FUA, NBD_CMD_WRITE_ZEROES, 0, 4096, NULL), 0);
        memory_exports_get_counts(f.memory, &counts);
        EXPECT_EQ(counts.requests[REQUEST_FLUSH], flushes);
        EXPECT_EQ(counts.fua, fua);
        /* a long WRITE in parts: one flush for all of them, before the reply */
        EXPECT_EQ(client_do(fd[i], NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 4096, sizeof data, data), 0);
        memory_exports_get_counts(f.memory, &counts);
        EXPECT_EQ(counts.requests[REQUEST_FLUSH], flushes + 1);
        EXPECT_EQ(counts.fua, fua);
    }
    /* no FUA, no flush */
    EXPECT_EQ(client_do(fd[0], 0, NBD_CMD_WRITE, 0, sizeof data, data), 0);
    EXPECT_EQ(client_do(fd[0], 0, NBD_CMD_WRITE, 0, 4096, data), 0);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.requests[REQUEST_FLUSH], 4);
    EXPECT_EQ(counts.fua, 6);
    close(fd[0]);
    close(fd[1]);
    fixture_end(&f);
}

/* A failed flush is a failed command; a WRITE that failed is not flushed. */
static void rule_25_failed_flushes_are_told(void)
{
    static uint8_t data[3 << 20];
    struct fixture f;
    struct memory_counts counts;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    memory_exports_fail(f.memory, REQUEST_FLUSH, EIO, 0, 0, 2);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), NBD_EIO);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, sizeof data, data), NBD_EIO);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.requests[REQUEST_FLUSH], 2);
    memory_exports_fail(f.memory, REQUEST_WRITE, ENOSPC, 2 << 20, 1, 1);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, sizeof data, data), NBD_ENOSPC);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.requests[REQUEST_FLUSH], 2);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, sizeof data, data), 0);
    close(fd);
    fixture_end(&f);
}

static void rule_27_fua_is_valid_on_every_command(void)
{
    static uint8_t data[4096];
    struct fixture f;
    struct memory_counts counts;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_META, NULL);
    EXPECT_EQ(client_read(fd, NBD_CMD_FLAG_FUA, 0, 4096, data), 0);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_CACHE, 0, 4096, NULL), 0);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.fua, 0); /* means nothing there */
    EXPECT(client_request(fd, NBD_CMD_FLAG_FUA, NBD_CMD_BLOCK_STATUS, 1, 0, 4096));
    struct client_chunk chunk;
    EXPECT(client_chunk(fd, &chunk));
    EXPECT_EQ(chunk.type, NBD_REPLY_TYPE_BLOCK_STATUS);
    client_chunk_free(&chunk);
    close(fd);
    /* not advertised: not valid */
    int ro[2];
    struct fixture g;
    fixture_begin_with(&g, NULL, NULL, exports, MIB);
    ro[0] = client_open(g.server, "locked-ro", 0, NULL);
    EXPECT_EQ(client_read(ro[0], NBD_CMD_FLAG_FUA, 0, 4096, data), NBD_EINVAL);
    close(ro[0]);
    fixture_end(&g);
    fixture_end(&f);
}

/* The FLUSH of one connection covers what was replied to on another: here, that it is passed on as one of the same
 * export, whose engine promises that. */
static void rule_26_b28_connections_share_the_export(void)
{
    static uint8_t data[4096], back[4096];
    struct fixture f;
    fixture_begin(&f);
    int a = client_open(f.server, "disk", 0, NULL), b = client_open(f.server, "", CLIENT_STRUCTURED, NULL);
    fill(data, sizeof data, 26);
    EXPECT_EQ(client_do(a, 0, NBD_CMD_WRITE, 8192, 4096, data), 0);
    EXPECT_EQ(client_read(b, 0, 8192, 4096, back), 0); /* no cache of a connection's own */
    EXPECT_EQ(memcmp(data, back, 4096), 0);
    EXPECT_EQ(client_do(b, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(a);
    close(b);
    fixture_end(&f);
}

static void rule_30_and_31_trim_and_zeroes_read_as_zero(void)
{
    static uint8_t data[65536], back[65536], expected[65536];
    struct fixture f;
    struct memory_counts counts;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    fill(data, sizeof data, 30);
    memcpy(expected, data, sizeof data);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 0, sizeof data, data), 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, 4096, 8192, NULL), 0);
    memset(expected + 4096, 0, 8192);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE_ZEROES, 20001, 333, NULL), 0);
    memset(expected + 20001, 0, 333);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 32768, 4096, NULL), 0);
    memset(expected + 32768, 0, 4096);
    EXPECT_EQ(client_read(fd, 0, 0, sizeof data, back), 0);
    EXPECT_EQ(memcmp(expected, back, sizeof back), 0);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.provision, 1); /* NO_HOLE, and only that, provisions */
    close(fd);
    fixture_end(&f);
}

static void rule_32_enotsup_only_with_fast_zero(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", 0, NULL);
    memory_exports_fail(f.memory, REQUEST_ZERO, EOPNOTSUPP, 0, GIB, 2);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE_ZEROES, 0, 4096, NULL), NBD_EINVAL);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 0, 4096, NULL), NBD_ENOTSUP);
    close(fd);
    fixture_end(&f);
}

static void rule_33_cache_refuses_unknown_flags(void)
{
    struct fixture f;
    struct memory_counts counts;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", 0, NULL);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_CACHE, 5, GIB - 5, NULL), 0);
    for (unsigned bit = 1; bit < 16; bit++)
        EXPECT_EQ(client_do(fd, (uint16_t)(1u << bit), NBD_CMD_CACHE, 0, 4096, NULL), NBD_EINVAL);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.requests[REQUEST_PREFETCH], 1);
    close(fd);
    fixture_end(&f);
}

int main(void)
{
    RUN(rule_17_and_18_errors_keep_the_connection);
    RUN(rule_17_the_size_is_that_of_now);
    RUN(rule_18_too_large_payload_disconnects);
    RUN(rule_19_requests_of_no_bytes);
    RUN(rule_19_b40_an_export_of_no_bytes);
    RUN(rule_20_replies_in_any_order_and_cookies_are_opaque);
    RUN(rule_21_bad_magic_disconnects);
    RUN(rule_23_only_payload_is_bounded);
    RUN(rule_23_the_largest_payload);
    RUN(rule_24_unaligned_requests);
    RUN(rule_25_flush_and_fua_reach_the_back_end);
    RUN(rule_25_failed_flushes_are_told);
    RUN(rule_27_fua_is_valid_on_every_command);
    RUN(rule_26_b28_connections_share_the_export);
    RUN(rule_30_and_31_trim_and_zeroes_read_as_zero);
    RUN(rule_32_enotsup_only_with_fast_zero);
    RUN(rule_33_cache_refuses_unknown_flags);
    return tap_done();
}
