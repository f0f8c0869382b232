/*
 * The form of replies, and block status. Numbers in names: the rules that servers get wrong; CVE: regression of that
 * class.
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

static const char *const exports[] = {"disk", "other", NULL};

static void rule_34_reads_are_always_structured(void)
{
    struct fixture f;
    struct client_chunk chunk;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    /* beyond the end, an unknown flag, an error of the engine: error chunks, each with DONE and a text */
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 1, 2 * GIB, 512));
    EXPECT_EQ(client_error(fd, 1), NBD_EINVAL);
    EXPECT(client_request(fd, 1 << 9, NBD_CMD_READ, 2, 0, 512));
    EXPECT_EQ(client_error(fd, 2), NBD_EINVAL);
    memory_exports_fail(f.memory, REQUEST_READ, EBADMSG, 0, GIB, 1);
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 3, 4096, 512));
    EXPECT(client_chunk(fd, &chunk));
    EXPECT_EQ(chunk.flags, NBD_REPLY_FLAG_DONE);
    EXPECT_EQ(chunk.type, NBD_REPLY_TYPE_ERROR_OFFSET);
    EXPECT_EQ(wire_get_u32(chunk.data), NBD_EIO);
    uint16_t text = wire_get_u16(chunk.data + 4);
    EXPECT_EQ(chunk.length, 6 + text + 8);
    EXPECT(text > 0 && text < 4096);                         /* rule 38 */
    EXPECT_EQ(wire_get_u64(chunk.data + 6 + text), 4096);    /* where */
    EXPECT(memmem(chunk.data + 6, text, "4096", 4) != NULL); /* the same for people */
    client_chunk_free(&chunk);
    /* and no bytes: a NONE chunk */
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 4, 0, 0));
    EXPECT(client_chunk(fd, &chunk));
    EXPECT_EQ(chunk.type, NBD_REPLY_TYPE_NONE);
    EXPECT_EQ(chunk.length, 0);
    EXPECT_EQ(chunk.flags, NBD_REPLY_FLAG_DONE);
    client_chunk_free(&chunk);
    close(fd);
    fixture_end(&f);
}

static void rule_35_a_short_read_is_one_chunk(void)
{
    struct fixture f;
    struct client_chunk chunk;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 9, 3, 1 << 20));
    EXPECT(client_chunk(fd, &chunk));
    EXPECT_EQ(chunk.flags, NBD_REPLY_FLAG_DONE);
    EXPECT_EQ(chunk.type, NBD_REPLY_TYPE_OFFSET_DATA);
    EXPECT_EQ(chunk.length, 8 + (1 << 20));
    EXPECT_EQ(wire_get_u64(chunk.data), 3);
    client_chunk_free(&chunk);
    close(fd);
    fixture_end(&f);
}

/* A long one comes in several; client_read checks that they lie inside and add up; here: that none overlaps, and that
 * DONE is on the last. */
static void rule_35_a_long_read_in_chunks(void)
{
    struct memory_options options = {.thread_count = 6, .delay_ns_max = 1000000, .seed = 35};
    struct fixture f;
    static uint8_t seen[40 << 20];
    fixture_begin_with(&f, &options, NULL, exports, GIB);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 9, 777, sizeof seen));
    uint64_t sum = 0, chunks = 0, before = 0;
    bool done = false, in_order = true, overlap = false;
    while (!done) {
        struct client_chunk chunk;
        REQUIRE(client_chunk(fd, &chunk));
        REQUIRE(chunk.type == NBD_REPLY_TYPE_OFFSET_DATA);
        uint64_t at = wire_get_u64(chunk.data) - 777;
        REQUIRE(at < sizeof seen && chunk.length - 8 <= sizeof seen - at);
        for (uint64_t i = at; i < at + chunk.length - 8; i++)
            overlap = overlap || seen[i]++ != 0;
        sum += chunk.length - 8;
        chunks++;
        in_order = in_order && at >= before;
        before = at;
        done = (chunk.flags & NBD_REPLY_FLAG_DONE) != 0;
        client_chunk_free(&chunk);
    }
    EXPECT(!overlap);
    EXPECT(!in_order); /* else the test shows less than it says */
    EXPECT_EQ(sum, sizeof seen);
    EXPECT_EQ(chunks, 41);
    EXPECT(client_hears_nothing(fd, 20));
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(fd);
    fixture_end(&f);
}

/* One part fails: its place is told, the others arrive. */
static void rule_35_part_of_a_read_fails(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    memory_exports_fail(f.memory, REQUEST_READ, EIO, 5 << 20, 1, 1);
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 1, 0, 8 << 20));
    unsigned data = 0, errors = 0;
    bool done = false;
    while (!done) {
        struct client_chunk chunk;
        REQUIRE(client_chunk(fd, &chunk));
        data += chunk.type == NBD_REPLY_TYPE_OFFSET_DATA;
        if (chunk.type == NBD_REPLY_TYPE_ERROR_OFFSET) {
            errors++;
            EXPECT_EQ(wire_get_u64(chunk.data + chunk.length - 8), 5 << 20);
        }
        done = (chunk.flags & NBD_REPLY_FLAG_DONE) != 0;
        client_chunk_free(&chunk);
    }
    EXPECT_EQ(data, 7);
    EXPECT_EQ(errors, 1);
    close(fd);
    fixture_end(&f);
}

/* B1: an I/O error must not end the connection, nor put bytes where a client expects none. */
static void rule_35_b1_simple_read_errors(void)
{
    static uint8_t data[2 << 20];
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", 0, NULL);
    for (int i = 0; i < 10; i++) {
        memory_exports_fail(f.memory, REQUEST_READ, EIO, 0, GIB, 1);
        EXPECT_EQ(client_read(fd, 0, 0, sizeof data, data), NBD_EIO);
        EXPECT_EQ(client_read(fd, 0, 0, sizeof data, data), 0);
    }
    close(fd);
    fixture_end(&f);
}

static void rule_36_df_is_one_chunk(void)
{
    static const uint32_t lengths[] = {1, 65536, 1 << 20, (1 << 20) + 1, 5 << 20};
    struct fixture f;
    struct client_chunk chunk;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        EXPECT(client_request(fd, NBD_CMD_FLAG_DF, NBD_CMD_READ, i, 100, lengths[i]));
        EXPECT(client_chunk(fd, &chunk));
        EXPECT_EQ(chunk.flags, NBD_REPLY_FLAG_DONE);
        EXPECT_EQ(chunk.length, 8 + lengths[i]);
        client_chunk_free(&chunk);
    }
    EXPECT(client_request(fd, NBD_CMD_FLAG_DF, NBD_CMD_READ, 99, 0, 40 << 20));
    EXPECT_EQ(client_error(fd, 99), NBD_EOVERFLOW);
    close(fd);
    fixture_end(&f);
}

/* ---- metadata contexts ---- */

static struct client_reply reply;

static uint32_t ask_meta(int fd, uint32_t option, const char *name, const char *const *queries, unsigned count,
                         unsigned *ret_contexts)
{
    uint8_t payload[1024];
    *ret_contexts = 0;
    if (!client_option(fd, option, payload, client_meta_payload(payload, name, queries, count)))
        return 0;
    for (;;) {
        if (!client_option_reply(fd, &reply))
            return 0;
        if (reply.type != NBD_REP_META_CONTEXT)
            return reply.type;
        EXPECT_EQ(reply.length, 4 + 15);
        EXPECT_EQ(memcmp(reply.data + 4, "base:allocation", 15), 0);
        (*ret_contexts)++;
    }
}

static void rule_39_queries(void)
{
    static const struct {
        const char *queries[3];
        unsigned count, listed, set;
    } table[] = {
        {{NULL}, 0, 1, 0},
        {{"base:allocation"}, 1, 1, 1},
        {{"base:"}, 1, 1, 0}, /* a wildcard for LIST only */
        {{"base:alloc"}, 1, 0, 0},
        {{"base:allocation2"}, 1, 0, 0},
        {{""}, 1, 0, 0},
        {{"base"}, 1, 0, 0},
        {{"qemu:dirty-bitmap:x"}, 1, 0, 0}, /* unknown namespaces are no error */
        {{"x-y:", "base:allocation", "nonsense"}, 3, 1, 1},
        {{"base:allocation", "base:allocation", "base:"}, 3, 1, 1},
    };
    struct fixture f;
    unsigned n;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        EXPECT_EQ(ask_meta(fd, NBD_OPT_LIST_META_CONTEXT, "disk", table[i].queries, table[i].count, &n), NBD_REP_ACK);
        EXPECT_EQ(n, table[i].listed);
        EXPECT_EQ(ask_meta(fd, NBD_OPT_SET_META_CONTEXT, "disk", table[i].queries, table[i].count, &n), NBD_REP_ACK);
        EXPECT_EQ(n, table[i].set);
    }
    EXPECT_EQ(ask_meta(fd, NBD_OPT_LIST_META_CONTEXT, "none", table[1].queries, 1, &n), NBD_REP_ERR_UNKNOWN);
    EXPECT_EQ(ask_meta(fd, NBD_OPT_SET_META_CONTEXT, "none", table[1].queries, 1, &n), NBD_REP_ERR_UNKNOWN);
    close(fd);
    fixture_end(&f);
}

static void rule_39_before_structured_replies(void)
{
    static const char *const queries[] = {"base:allocation"};
    struct fixture f;
    unsigned n;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(ask_meta(fd, NBD_OPT_SET_META_CONTEXT, "disk", queries, 1, &n), NBD_REP_ERR_INVALID);
    EXPECT_EQ(ask_meta(fd, NBD_OPT_LIST_META_CONTEXT, "disk", queries, 1, &n), NBD_REP_ERR_INVALID);
    close(fd);
    fixture_end(&f);
}

static void rule_39_lengths_that_do_not_add_up(void)
{
    static const char *const queries[] = {"base:allocation", "x:y"};
    uint8_t payload[256];
    struct fixture f;
    fixture_begin(&f);
    size_t n = client_meta_payload(payload, "disk", queries, 2);
    /* positions of the lengths: name, count, first query, second query */
    const size_t at[] = {0, 8, 12, 31};
    static const uint32_t values[] = {0, 1, 5, 200, 4097, 0x7fffffff, UINT32_C(0x80000000), UINT32_MAX, UINT32_MAX - 3};
    for (int o = NBD_OPT_LIST_META_CONTEXT; o <= NBD_OPT_SET_META_CONTEXT; o++) {
        for (size_t a = 0; a < 4; a++) {
            for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
                uint8_t wrong[256];
                int fd = client_connect(f.server);
                EXPECT(client_greet(fd, 3));
                EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
                memcpy(wrong, payload, sizeof wrong);
                wire_put_u32(wrong + at[a], values[i]);
                EXPECT_EQ(client_ask(fd, (uint32_t)o, wrong, n), NBD_REP_ERR_INVALID);
                EXPECT_EQ(client_ask(fd, (uint32_t)o, payload, n), NBD_REP_ACK);
                close(fd);
            }
        }
        /* cut short at every byte, and with bytes behind it */
        for (size_t cut = 0; cut <= n; cut++) {
            int fd = client_connect(f.server);
            EXPECT(client_greet(fd, 3));
            EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
            EXPECT_EQ(client_ask(fd, (uint32_t)o, payload, cut == n ? n + 1 : cut), NBD_REP_ERR_INVALID);
            close(fd);
        }
    }
    fixture_end(&f);
}

/* SET replaces, also when it fails, and is bound to its export name. Whether it holds is seen by BLOCK_STATUS. */
static void rule_39_what_voids_a_selection(void)
{
    static const char *const query[] = {"base:allocation"};
    for (int how = 0; how < 6; how++) {
        uint8_t payload[64];
        struct fixture f;
        unsigned n;
        fixture_begin_with(&f, NULL, NULL, exports, MIB);
        int fd = client_connect(f.server);
        EXPECT(client_greet(fd, 3));
        EXPECT_EQ(client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
        EXPECT_EQ(ask_meta(fd, NBD_OPT_SET_META_CONTEXT, how == 1 ? "other" : "disk", query, 1, &n), NBD_REP_ACK);
        if (how == 2)
            EXPECT_EQ(ask_meta(fd, NBD_OPT_SET_META_CONTEXT, "disk", query, 0, &n), NBD_REP_ACK);
        if (how == 3)
            EXPECT_EQ(client_ask(fd, NBD_OPT_SET_META_CONTEXT, "x", 1), NBD_REP_ERR_INVALID);
        if (how == 4)
            EXPECT_EQ(ask_meta(fd, NBD_OPT_SET_META_CONTEXT, "none", query, 1, &n), NBD_REP_ERR_UNKNOWN);
        if (how == 5) { /* these two do not touch it */
            EXPECT_EQ(ask_meta(fd, NBD_OPT_LIST_META_CONTEXT, "disk", query, 0, &n), NBD_REP_ACK);
            EXPECT_EQ(client_ask(fd, NBD_OPT_INFO, payload, client_info_payload(payload, "other", NULL, 0)),
                      NBD_REP_ACK);
        }
        EXPECT_EQ(client_ask(fd, NBD_OPT_GO, payload, client_info_payload(payload, "disk", NULL, 0)), NBD_REP_ACK);
        EXPECT(client_request(fd, 0, NBD_CMD_BLOCK_STATUS, 1, 0, 4096));
        struct client_chunk chunk;
        EXPECT(client_chunk(fd, &chunk));
        EXPECT_EQ(chunk.type, how == 0 || how == 5 ? NBD_REPLY_TYPE_BLOCK_STATUS : NBD_REPLY_TYPE_ERROR);
        client_chunk_free(&chunk);
        close(fd);
        fixture_end(&f);
    }
}

/* ---- block status ---- */

struct status {
    unsigned count;
    struct {
        uint32_t length, flags;
    } extents[2048];
};

static bool ask_status(int fd, uint16_t flags, uint64_t offset, uint32_t length, struct status *ret)
{
    struct client_chunk chunk = {0};
    bool ok = client_request(fd, flags, NBD_CMD_BLOCK_STATUS, offset, offset, length) && client_chunk(fd, &chunk) &&
              chunk.type == NBD_REPLY_TYPE_BLOCK_STATUS && chunk.flags == NBD_REPLY_FLAG_DONE &&
              chunk.cookie == offset && chunk.length >= 12 && chunk.length % 8 == 4 &&
              wire_get_u32(chunk.data) == 1; /* the id that SET gave */
    ret->count = ok ? (chunk.length - 4) / 8 : 0;
    ok = ok && ret->count <= 2048;
    for (unsigned i = 0; ok && i < ret->count; i++) {
        ret->extents[i].length = wire_get_u32(chunk.data + 4 + 8 * i);
        ret->extents[i].flags = wire_get_u32(chunk.data + 8 + 8 * i);
    }
    client_chunk_free(&chunk);
    return ok;
}

/* Rule 41: the sum of all but the last is less than the request, none is empty, neighbours differ, none ends beyond. */
static bool well_formed(const struct status *s, uint32_t length, bool one)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < s->count; i++) {
        if (s->extents[i].length == 0 || sum >= length || (i > 0 && s->extents[i].flags == s->extents[i - 1].flags))
            return false;
        sum += s->extents[i].length;
    }
    return s->count > 0 && sum <= length && (!one || s->count == 1);
}

static void rule_41_and_42_extents(void)
{
    static uint8_t data[16384];
    static struct status s;
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_META, NULL);
    memset(data, 1, sizeof data);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 8192, 8192, data), 0);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_NO_HOLE, NBD_CMD_WRITE_ZEROES, 16384, 4096, NULL), 0);
    EXPECT(ask_status(fd, 0, 0, 65536, &s));
    REQUIRE(s.count == 4);
    EXPECT_EQ(s.extents[0].length, 8192);
    EXPECT_EQ(s.extents[0].flags, NBD_STATE_HOLE | NBD_STATE_ZERO);
    EXPECT_EQ(s.extents[1].length, 8192);
    EXPECT_EQ(s.extents[1].flags, 0);
    EXPECT_EQ(s.extents[2].length, 4096);
    EXPECT_EQ(s.extents[2].flags, NBD_STATE_ZERO); /* provisioned */
    EXPECT_EQ(s.extents[3].length, 65536 - 20480);
    EXPECT_EQ(s.extents[3].flags, NBD_STATE_HOLE | NBD_STATE_ZERO);
    EXPECT(ask_status(fd, NBD_CMD_FLAG_REQ_ONE, 8192, 65536, &s));
    EXPECT(well_formed(&s, 65536, true));
    EXPECT_EQ(s.extents[0].length, 8192);
    EXPECT(ask_status(fd, NBD_CMD_FLAG_REQ_ONE, 8193, 5, &s));
    EXPECT_EQ(s.extents[0].length, 5); /* REQ_ONE: never more than was asked for */
    close(fd);
    fixture_end(&f);
}

/* Work and answer are bounded; asking on from where the answer ended always gets on. */
static void rule_41_more_extents_than_fit(void)
{
    static uint8_t data[4096];
    static struct status s;
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_META, NULL);
    for (unsigned i = 0; i < 3000; i++)
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, i * UINT64_C(8192), 4096, data), 0);
    uint64_t at = 0;
    unsigned answers = 0, extents = 0;
    while (at < 3000 * 8192) {
        REQUIRE(ask_status(fd, 0, at, (uint32_t)(3000 * 8192 - at), &s));
        EXPECT(well_formed(&s, (uint32_t)(3000 * 8192 - at), false));
        EXPECT(s.count <= 1024);
        for (unsigned i = 0; i < s.count; i++)
            at += s.extents[i].length;
        extents += s.count;
        answers++;
    }
    EXPECT_EQ(at, 3000 * 8192);
    EXPECT_EQ(extents, 6000);
    EXPECT_EQ(answers, 6);
    close(fd);
    fixture_end(&f);
}

/* CVE-2025-47711, 47712: an engine whose extents were larger than the request, and lengths near 4 GiB. */
static void rule_41_cve_2025_47711_the_edge_of_4_gib(void)
{
    static const char *const big[] = {"disk", NULL};
    static struct status s;
    struct fixture f;
    fixture_begin_with(&f, NULL, NULL, big, 5 * GIB);
    int fd = client_open(f.server, "disk", CLIENT_META, NULL);
    static const uint32_t lengths[] = {UINT32_MAX, UINT32_MAX - 511, UINT32_MAX - 4095};
    for (uint64_t offset = 0; offset < 3; offset++) {
        for (size_t i = 0; i < 3; i++) {
            EXPECT(ask_status(fd, 0, offset, lengths[i], &s));
            EXPECT(well_formed(&s, lengths[i], false));
            EXPECT_EQ(s.extents[0].length, lengths[i]); /* rule 43: all of a hole in one answer */
        }
    }
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_BLOCK_STATUS, 2 * GIB, UINT32_MAX, NULL), NBD_EINVAL);
    memory_exports_lie(f.memory, true);
    for (uint32_t length = 1; length < 3000; length += 250) {
        for (uint16_t flags = 0; flags <= NBD_CMD_FLAG_REQ_ONE; flags = (uint16_t)(flags + NBD_CMD_FLAG_REQ_ONE)) {
            if (flags == NBD_CMD_FLAG_REQ_ONE) { /* one, empty: an error rather than a lie passed on */
                EXPECT_EQ(client_do(fd, flags, NBD_CMD_BLOCK_STATUS, 0, length, NULL), NBD_EIO);
                continue;
            }
            EXPECT(ask_status(fd, flags, 0, length, &s));
            EXPECT(well_formed(&s, length, false));
        }
    }
    close(fd);
    fixture_end(&f);
}

static void block_status_errors(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", CLIENT_META, NULL);
    memory_exports_fail(f.memory, REQUEST_EXTENTS, EBADMSG, 0, GIB, 1);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_BLOCK_STATUS, 0, 4096, NULL), NBD_EIO);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_BLOCK_STATUS, GIB, 1, NULL), NBD_EINVAL);
    close(fd);
    /* rule 40 */
    fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_BLOCK_STATUS, 0, 4096, NULL), NBD_EINVAL);
    close(fd);
    fixture_end(&f);
}

int main(void)
{
    RUN(rule_34_reads_are_always_structured);
    RUN(rule_35_a_short_read_is_one_chunk);
    RUN(rule_35_a_long_read_in_chunks);
    RUN(rule_35_part_of_a_read_fails);
    RUN(rule_35_b1_simple_read_errors);
    RUN(rule_36_df_is_one_chunk);
    RUN(rule_39_queries);
    RUN(rule_39_before_structured_replies);
    RUN(rule_39_lengths_that_do_not_add_up);
    RUN(rule_39_what_voids_a_selection);
    RUN(rule_41_and_42_extents);
    RUN(rule_41_more_extents_than_fit);
    RUN(rule_41_cve_2025_47711_the_edge_of_4_gib);
    RUN(block_status_errors);
    return tap_done();
}
