/*
 * The handshake as a conversation: limits, order, ends at every byte. Numbers in names: the rules that servers get
 * wrong; CVE: regression of that class. What the options say is in test_nbd_options.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/math.h"
#include "env/env.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "tap.h"

#define ALLOCATION "base:allocation"
#define NS_PER_MS UINT64_C(1000000)

static struct client_reply reply; /* 64 KiB: too large for the stack of a test */

/* GO or INFO with these requests; reads the answers into reply one by one through `each`. Returns the final type. */
static uint32_t ask_info(int fd, uint32_t option, const char *name, const uint16_t *infos, unsigned count,
                         void (*each)(void *arg), void *arg)
{
    static uint8_t payload[8192];
    if (!client_option(fd, option, payload, client_info_payload(payload, name, infos, count)))
        return 0;
    for (;;) {
        if (!client_option_reply(fd, &reply) || reply.option != option)
            return 0;
        if (reply.type != NBD_REP_INFO)
            return reply.type;
        if (each != NULL)
            each(arg);
    }
}

/* The connection still negotiates: a list comes back. */
static bool usable(int fd)
{
    return client_ask(fd, NBD_OPT_LIST, NULL, 0) == NBD_REP_ACK;
}

static void rule_1_unknown_client_flag_drops(void)
{
    struct fixture f;
    fixture_begin(&f);
    for (unsigned bit = 0; bit < 32; bit++) {
        int fd = client_connect(f.server);
        EXPECT(client_greet(fd, 3u | 1u << bit));
        if (bit < 2)
            EXPECT(usable(fd));
        else
            EXPECT(client_sees_end(fd));
        close(fd);
    }
    fixture_end(&f);
}

static void rule_1_unknown_option_stays_in_step(void)
{
    static const uint32_t options[] = {0, 4, 5, 11, 12, 0x7654321, 0x80000001, UINT32_MAX};
    static uint8_t payload[100000];
    struct fixture f;
    fixture_begin(&f);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        static const size_t sizes[] = {0, 1, 4096, 65536, 65537, sizeof payload};
        int fd = client_connect(f.server);
        EXPECT(client_greet(fd, 3));
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++)
            EXPECT_EQ(client_ask(fd, options[i], payload, sizes[j]), NBD_REP_ERR_UNSUP);
        EXPECT(usable(fd));
        close(fd);
    }
    fixture_end(&f);
}

static void rule_6_abort(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(client_ask(fd, NBD_OPT_ABORT, NULL, 0), NBD_REP_ACK);
    EXPECT(client_sees_end(fd));
    close(fd);
    fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(client_ask(fd, NBD_OPT_ABORT, "data is ignored", 15), NBD_REP_ACK);
    EXPECT(client_sees_end(fd));
    close(fd);
    /* closes without reading the answer */
    fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT(client_option(fd, NBD_OPT_ABORT, NULL, 0));
    close(fd);
    EXPECT(fixture_is_deserted(&f));
    EXPECT_EQ(fixture_notices(&f, NULL, 0), 0);
    fixture_end(&f);
}

static void rule_7_options_are_limited(void)
{
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server), answered = 0;
    EXPECT(client_greet(fd, 3));
    while (answered < 1000 && client_ask(fd, 12345, NULL, 0) == NBD_REP_ERR_UNSUP)
        answered++;
    EXPECT_EQ(answered, 32);
    close(fd);
    /* Listing again and again does not raise the limit each time. */
    fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    for (answered = 0; answered < 1000 && usable(fd); answered++)
        ;
    EXPECT_EQ(answered, 34);
    close(fd);
    fixture_end(&f);
}

static void rule_7_handshake_has_a_time_limit(void)
{
    static const char *const exports[] = {"disk", NULL};
    struct nbd_server_options options = {.handshake_timeout_ns = 300000000};
    struct fixture f;
    char notice[512];
    fixture_begin_with(&f, NULL, &options, exports, MIB);
    int silent = client_connect(f.server), slow = client_connect(f.server),
        good = client_open(f.server, "disk", 0, NULL);
    EXPECT(client_greet(slow, 3));
    /* An option every 50 ms does not extend it. */
    int options_sent = 0;
    while (options_sent < 30 && client_ask(slow, 4711, NULL, 0) == NBD_REP_ERR_UNSUP) {
        options_sent++;
        env_sleep_ns(env_os(), 50 * NS_PER_MS);
    }
    EXPECT(options_sent > 0 && options_sent < 30);
    uint8_t greeting[18];
    EXPECT(client_receive(silent, greeting, 18));
    EXPECT(client_sees_end(silent));
    EXPECT_EQ(client_do(good, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    EXPECT(fixture_notices(&f, notice, sizeof notice) > 0);
    EXPECT(strstr(notice, "handshake") != NULL);
    close(silent);
    close(slow);
    close(good);
    fixture_end(&f);
}

/* CVE-2024-7409: clients that never negotiate exhausted the server, and crashed it when it was stopped. */
static void rule_7_cve_2024_7409_silent_sockets_then_stop(void)
{
    enum { COUNT = 500 };
    static int fds[COUNT];
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin(&f);
    int first = client_open(f.server, "disk", 0, NULL);
    for (int i = 0; i < COUNT; i++) {
        fds[i] = client_connect(f.server);
        EXPECT(fds[i] >= 0);
    }
    fixture_get_stats(&f, &stats);
    EXPECT(stats.handshakes_now <= 100);
    EXPECT(stats.dropped_handshakes >= COUNT - 100);
    /* Those who talk are served meanwhile: a new one, and the one that was there. */
    int late = client_open(f.server, "disk", 0, NULL);
    EXPECT(late >= 0);
    EXPECT_EQ(client_do(first, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    EXPECT_EQ(client_do(late, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    EXPECT_EQ(nbd_server_stop(f.server, 5000000000), 0);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    close(first);
    close(late);
    fixture_end(&f);
}

static void rule_7_the_silent_go_before_those_who_talk(void)
{
    static const char *const exports[] = {"disk", NULL};
    struct nbd_server_options options = {.max_handshakes = 10};
    struct fixture f;
    int fds[30];
    fixture_begin_with(&f, NULL, &options, exports, MIB);
    int talker = client_connect(f.server);
    EXPECT(client_greet(talker, 3));
    EXPECT_EQ(client_ask(talker, 99, NULL, 0), NBD_REP_ERR_UNSUP);
    for (int i = 0; i < 30; i++)
        fds[i] = client_connect(f.server);
    EXPECT_EQ(ask_info(talker, NBD_OPT_GO, "disk", NULL, 0, NULL, NULL), NBD_REP_ACK);
    for (int i = 0; i < 30; i++)
        close(fds[i]);
    close(talker);
    fixture_end(&f);
}

/* CVE-2013-7441, 2005-3534, 2015-0847: a client that closes at any byte of the handshake ends only itself. */
static void rule_8_cve_2013_7441_close_at_every_byte(void)
{
    static const char *const queries[] = {ALLOCATION};
    uint8_t script[512], payload[256];
    struct fixture f;
    fixture_begin(&f);
    int witness = client_open(f.server, "disk", 0, NULL);
    /* flags; structured replies; meta context; list; go; a write with half its payload */
    uint8_t *p = wire_put_u32(script, 3);
    const struct {
        uint32_t option;
        size_t n;
    } options[] = {{NBD_OPT_STRUCTURED_REPLY, 0}, {NBD_OPT_SET_META_CONTEXT, 1}, {NBD_OPT_LIST, 0}, {NBD_OPT_GO, 2}};
    for (int i = 0; i < 4; i++) {
        size_t n = options[i].n == 1   ? client_meta_payload(payload, "disk", queries, 1)
                   : options[i].n == 2 ? client_info_payload(payload, "disk", NULL, 0)
                                       : 0;
        p = wire_put_u32(wire_put_u32(wire_put_u64(p, UINT64_C(0x49484156454f5054)), options[i].option), (uint32_t)n);
        memcpy(p, payload, n);
        p += n;
    }
    p = wire_put_u32(p, 0x25609513);
    p = wire_put_u64(wire_put_u64(wire_put_u32(p, NBD_CMD_WRITE), 7), 0);
    p = wire_put_u32(p, 100);
    memset(p, 'x', 50);
    p += 50;
    size_t total = (size_t)(p - script);
    for (size_t cut = 0; cut <= total; cut++) {
        /* once by closing, once by half closing and reading what comes */
        int fd = client_connect(f.server);
        EXPECT(client_send(fd, script, cut));
        close(fd);
        fd = client_connect(f.server);
        EXPECT(client_send(fd, script, cut));
        shutdown(fd, SHUT_WR);
        uint8_t byte;
        while (client_receive(fd, &byte, 1))
            ;
        EXPECT(client_sees_end(fd));
        close(fd);
    }
    EXPECT_EQ(client_do(witness, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(witness);
    EXPECT(fixture_is_deserted(&f));
    struct memory_counts counts;
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.requests[REQUEST_WRITE], 0); /* half a payload writes nothing */
    fixture_end(&f);
}

static void rule_8_the_handshake_may_come_byte_by_byte(void)
{
    uint8_t script[64], payload[64];
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    size_t n = client_info_payload(payload, "disk", NULL, 0);
    uint8_t *p = wire_put_u64(wire_put_u32(script, 3), UINT64_C(0x49484156454f5054));
    p = wire_put_u32(wire_put_u32(p, NBD_OPT_GO), (uint32_t)n);
    memcpy(p, payload, n);
    for (size_t i = 0; i < 20 + n; i++) {
        EXPECT(client_send(fd, script + i, 1));
        env_sleep_ns(env_os(), NS_PER_MS);
    }
    uint8_t greeting[18];
    EXPECT(client_receive(fd, greeting, 18));
    EXPECT(client_option_reply(fd, &reply) && reply.type == NBD_REP_INFO);
    EXPECT(client_option_reply(fd, &reply) && reply.type == NBD_REP_ACK);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(fd);
    fixture_end(&f);
}

/* CVE-2019-14850: the back-end was opened for anybody who connected. */
static void rule_9_cve_2019_14850_bare_connects_open_nothing(void)
{
    struct fixture f;
    struct memory_counts counts;
    fixture_begin(&f);
    for (int i = 0; i < 1000; i++) {
        int fd = client_connect(f.server);
        EXPECT(fd >= 0);
        if (i % 2 == 0)
            EXPECT(client_greet(fd, 3));
        close(fd);
    }
    EXPECT(fixture_is_deserted(&f));
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.opens, 0);
    EXPECT_EQ(counts.lists, 0);
    fixture_end(&f);
}

/* CVE-2019-14851: an option at an unexpected time hit an assertion. Here: every option after every other, twice. */
static void rule_10_cve_2019_14851_options_in_every_order(void)
{
    static const uint32_t options[] = {NBD_OPT_LIST,
                                       NBD_OPT_STARTTLS,
                                       NBD_OPT_INFO,
                                       NBD_OPT_STRUCTURED_REPLY,
                                       NBD_OPT_LIST_META_CONTEXT,
                                       NBD_OPT_SET_META_CONTEXT,
                                       NBD_OPT_EXTENDED_HEADERS,
                                       NBD_OPT_GO,
                                       NBD_OPT_ABORT,
                                       NBD_OPT_EXPORT_NAME,
                                       4,
                                       1000};
    enum { COUNT = sizeof options / sizeof options[0] };
    static const char *const queries[] = {ALLOCATION};
    uint8_t payload[128];
    struct fixture f;
    fixture_begin(&f);
    for (int sequence = 0; sequence < COUNT * COUNT * COUNT; sequence++) {
        int fd = client_connect(f.server), rest = sequence;
        EXPECT(client_greet(fd, 3));
        for (int i = 0; i < 3; i++, rest /= COUNT) {
            uint32_t option = options[rest % COUNT];
            size_t n = 0;
            if (option == NBD_OPT_INFO || option == NBD_OPT_GO)
                n = client_info_payload(payload, "disk", NULL, 0);
            else if (option == NBD_OPT_LIST_META_CONTEXT || option == NBD_OPT_SET_META_CONTEXT)
                n = client_meta_payload(payload, "disk", queries, 1);
            if (option == NBD_OPT_EXPORT_NAME) {
                (void)client_option(fd, option, "disk", 4);
                break;
            }
            if (client_ask(fd, option, payload, n) == 0)
                break;
            if (option == NBD_OPT_GO || option == NBD_OPT_ABORT)
                break;
        }
        close(fd);
    }
    int fd = client_open(f.server, "disk", CLIENT_META, NULL);
    EXPECT(fd >= 0);
    close(fd);
    fixture_end(&f);
}

static void rule_10_options_may_be_pipelined(void)
{
    uint8_t bytes[2048], *p = bytes, payload[64];
    struct fixture f;
    fixture_begin(&f);
    int fd = client_connect(f.server);
    p = wire_put_u32(p, 3);
    for (int i = 0; i < 20; i++)
        p = wire_put_u32(wire_put_u32(wire_put_u64(p, UINT64_C(0x49484156454f5054)), i % 2 ? NBD_OPT_LIST : 500), 0);
    size_t n = client_info_payload(payload, "disk", NULL, 0);
    p = wire_put_u32(wire_put_u32(wire_put_u64(p, UINT64_C(0x49484156454f5054)), NBD_OPT_GO), (uint32_t)n);
    memcpy(p, payload, n);
    p += n;
    /* and the first request at once */
    p = wire_put_u64(wire_put_u32(wire_put_u32(p, 0x25609513), NBD_CMD_FLUSH), 77);
    p = wire_put_u32(wire_put_u64(p, 0), 0);
    EXPECT(client_send(fd, bytes, (size_t)(p - bytes)));
    uint8_t greeting[18];
    EXPECT(client_receive(fd, greeting, 18));
    for (int i = 0; i < 20; i++) {
        EXPECT(client_option_reply(fd, &reply));
        EXPECT_EQ(reply.type, i % 2 ? NBD_REP_SERVER : NBD_REP_ERR_UNSUP);
        if (i % 2)
            EXPECT(client_option_reply(fd, &reply) && reply.type == NBD_REP_ACK);
    }
    EXPECT(client_option_reply(fd, &reply) && reply.type == NBD_REP_INFO);
    EXPECT(client_option_reply(fd, &reply) && reply.type == NBD_REP_ACK);
    EXPECT_EQ(client_simple(fd, 77), 0);
    close(fd);
    fixture_end(&f);
}

static void rule_11_only_stream_sockets_are_adopted(void)
{
    struct fixture f;
    int pair[2];
    fixture_begin(&f);
    REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    EXPECT(nbd_server_adopt(f.server, pair[1], NULL) < 0);
    EXPECT(write(pair[0], "x", 1) < 0); /* it was closed */
    close(pair[0]);
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    EXPECT(nbd_server_adopt(f.server, pair[1], NULL) < 0);
    close(pair[0]);
    REQUIRE(pipe(pair) == 0);
    EXPECT(nbd_server_adopt(f.server, pair[0], NULL) < 0);
    close(pair[1]);
    fixture_end(&f);
}

static void connections_are_limited(void)
{
    static const char *const exports[] = {"disk", NULL};
    struct nbd_server_options options = {.max_connections = 3};
    struct fixture f;
    struct memory_counts counts;
    int fds[3];
    fixture_begin_with(&f, NULL, &options, exports, MIB);
    for (int i = 0; i < 3; i++)
        fds[i] = client_open(f.server, "disk", 0, NULL);
    int fd = client_connect(f.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(ask_info(fd, NBD_OPT_GO, "disk", NULL, 0, NULL, NULL), NBD_REP_ERR_POLICY);
    EXPECT(memmem(reply.data, reply.length, "3 connections", 13) != NULL);
    EXPECT_EQ(ask_info(fd, NBD_OPT_INFO, "disk", NULL, 0, NULL, NULL), NBD_REP_ACK);
    /* Row B5: a place that becomes free can be taken, also after a hard disconnect. */
    close(fds[1]);
    uint32_t type = 0;
    for (int i = 0; i < 20 && type != NBD_REP_ACK; i++) {
        env_sleep_ns(env_os(), 20 * NS_PER_MS);
        type = ask_info(fd, NBD_OPT_GO, "disk", NULL, 0, NULL, NULL);
    }
    EXPECT_EQ(type, NBD_REP_ACK);
    close(fd);
    close(fds[0]);
    close(fds[2]);
    EXPECT(fixture_is_deserted(&f));
    memory_exports_get_counts(f.memory, &counts);
    EXPECT(counts.opens > 4);
    fixture_end(&f); /* checks that each open was closed */
}

static void a_slow_back_end_delays_only_who_asked(void)
{
    static const char *const exports[] = {"disk", NULL};
    struct memory_options slow = {.open_delay_ns = 200000000};
    struct fixture f;
    fixture_begin_with(&f, &slow, NULL, exports, MIB);
    int first = client_open(f.server, "disk", 0, NULL);
    int waiting[4];
    for (int i = 0; i < 4; i++) {
        waiting[i] = client_connect(f.server);
        EXPECT(client_greet(waiting[i], 3));
        EXPECT(client_option(waiting[i], NBD_OPT_LIST, NULL, 0));
    }
    close(waiting[3]); /* gone before it is answered */
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(client_do(first, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 < 150);
    for (int i = 0; i < 3; i++) {
        do
            EXPECT(client_option_reply(waiting[i], &reply));
        while (reply.type == NBD_REP_SERVER);
        EXPECT_EQ(reply.type, NBD_REP_ACK);
        close(waiting[i]);
    }
    close(first);
    fixture_end(&f);
}

int main(void)
{
    RUN(rule_1_unknown_client_flag_drops);
    RUN(rule_1_unknown_option_stays_in_step);
    RUN(rule_6_abort);
    RUN(rule_7_options_are_limited);
    RUN(rule_7_handshake_has_a_time_limit);
    RUN(rule_7_cve_2024_7409_silent_sockets_then_stop);
    RUN(rule_7_the_silent_go_before_those_who_talk);
    RUN(rule_8_cve_2013_7441_close_at_every_byte);
    RUN(rule_8_the_handshake_may_come_byte_by_byte);
    RUN(rule_9_cve_2019_14850_bare_connects_open_nothing);
    RUN(rule_10_cve_2019_14851_options_in_every_order);
    RUN(rule_10_options_may_be_pipelined);
    RUN(rule_11_only_stream_sockets_are_adopted);
    RUN(connections_are_limited);
    RUN(a_slow_back_end_delays_only_who_asked);
    return tap_done();
}
