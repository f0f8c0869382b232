/*
 * How connections and the server end. Numbers in names: the rules that servers get wrong; B: a row of the table of
 * faults that others shipped.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/math.h"
#include "env/env.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "tap.h"

#define NS_PER_MS UINT64_C(1000000)

static const char *const exports[] = {"disk", NULL};
static const struct memory_options two_threads = {.thread_count = 2, .seed = 44};
static uint8_t data[4 << 20];

static uint64_t now_ms(void)
{
    return env_now_ns(env_os()) / NS_PER_MS;
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void wait_for_requests(struct fixture *f, unsigned waiting)
{
    struct memory_counts counts = {0};
    for (int i = 0; i < 1000 && counts.waiting != waiting; i++) {
        memory_exports_get_counts(f->memory, &counts);
        env_sleep_ns(env_os(), 10 * NS_PER_MS);
    }
    EXPECT_EQ(counts.waiting, waiting);
}

static void rule_44_b11_disc_finishes_what_is_under_way(void)
{
    struct fixture f;
    struct memory_counts counts;
    fixture_begin_with(&f, &two_threads, NULL, exports, 16 * MIB);
    int fd = client_open(f.server, "disk", 0, NULL);
    memory_exports_hold(f.memory, true);
    for (unsigned i = 0; i < 20; i++) {
        EXPECT(client_request(fd, 0, NBD_CMD_WRITE, i, i * 4096, 4096));
        EXPECT(client_send(fd, data, 4096));
    }
    EXPECT(client_request(fd, 0, NBD_CMD_DISC, 99, 0, 0));
    EXPECT(client_request(fd, 0, NBD_CMD_TRIM, 100, 0, 4096)); /* behind DISC nothing is read */
    wait_for_requests(&f, 20);
    EXPECT(client_hears_nothing(fd, 50));
    memory_exports_hold(f.memory, false);
    uint64_t sum = 0;
    for (unsigned i = 0; i < 20; i++) {
        uint8_t reply[16];
        EXPECT(client_receive(fd, reply, sizeof reply));
        EXPECT_EQ(wire_get_u32(reply + 4), 0);
        sum += wire_get_u64(reply + 8);
    }
    EXPECT_EQ(sum, 190);
    EXPECT(client_sees_end(fd));
    close(fd);
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.requests[REQUEST_TRIM], 0);
    EXPECT(fixture_is_deserted(&f));
    EXPECT_EQ(fixture_notices(&f, NULL, 0), 0); /* not an error */
    fixture_end(&f);
}

static void rule_44_disc_whatever_its_fields(void)
{
    struct fixture f;
    fixture_begin(&f);
    for (unsigned flags = 0; flags < 0x10000; flags += 0x1111) {
        int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
        EXPECT(client_request(fd, (uint16_t)flags, NBD_CMD_DISC, 1, flags, flags));
        EXPECT(client_sees_end(fd));
        close(fd);
    }
    fixture_end(&f);
}

/* A client that has sent all it will and shut down its side still gets its answers. */
static void rule_46_half_closed_connections_are_answered(void)
{
    struct fixture f;
    fixture_begin_with(&f, &two_threads, NULL, exports, 16 * MIB);
    int fd = client_open(f.server, "disk", 0, NULL);
    for (unsigned i = 0; i < 10; i++) {
        EXPECT(client_request(fd, 0, NBD_CMD_WRITE, 5, i * 4096, 4096));
        EXPECT(client_send(fd, data, 4096));
    }
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 6, 0, sizeof data));
    shutdown(fd, SHUT_WR);
    unsigned answers = 0;
    for (unsigned i = 0; i < 11; i++) {
        uint8_t reply[16];
        EXPECT(client_receive(fd, reply, sizeof reply));
        answers++;
        if (wire_get_u64(reply + 8) == 6)
            EXPECT(client_receive(fd, data, sizeof data));
    }
    EXPECT_EQ(answers, 11);
    EXPECT(client_sees_end(fd));
    close(fd);
    fixture_end(&f);
}

/* B5, B8: places and descriptors come back, however a client leaves. */
static void rule_46_b5_thousands_come_and_go(void)
{
    struct memory_options options = {.thread_count = 2, .delay_ns_max = 100000, .seed = 5};
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin_with(&f, &options, NULL, exports, 16 * MIB);
    int first = client_open(f.server, "disk", 0, NULL);
    close(first);
    EXPECT(fixture_is_deserted(&f));
    unsigned before = open_descriptors();
    for (unsigned i = 0; i < 3000; i++) {
        int fd = client_open(f.server, "disk", i % 4, NULL);
        EXPECT(fd >= 0);
        switch (i % 6) {
        case 0: /* in peace */
            EXPECT(client_request(fd, 0, NBD_CMD_DISC, 1, 0, 0));
            break;
        case 1: /* without a word */
            break;
        case 2: /* with requests under way */
            for (unsigned j = 0; j < 5; j++)
                EXPECT(client_request(fd, 0, NBD_CMD_READ, j, j * 100000, 100000));
            break;
        case 3: /* in the middle of a header */
            EXPECT(client_send(fd, "\x25\x60\x95\x13\0\0\0\1", 8));
            break;
        case 4: /* in the middle of a payload */
            EXPECT(client_request(fd, 0, NBD_CMD_WRITE, 1, 0, 3 << 20));
            EXPECT(client_send(fd, data, 150000));
            break;
        case 5: /* in the middle of a READ in many parts */
            EXPECT(client_request(fd, 0, NBD_CMD_READ, 1, 0, 16 << 20));
            break;
        }
        close(fd);
    }
    EXPECT(fixture_is_deserted(&f));
    EXPECT_EQ(open_descriptors(), before);
    fixture_get_stats(&f, &stats);
    EXPECT_EQ(stats.memory_bytes, 0);
    EXPECT_EQ(stats.negotiated, 3001);
    fixture_end(&f);
}

/* A9b1677fb5a: the client drops in the middle of the payload of a write: the block reads as before. */
static void half_a_payload_changes_nothing(void)
{
    static uint8_t back[1 << 20];
    struct fixture f;
    fixture_begin(&f);
    int fd = client_open(f.server, "disk", 0, NULL);
    memset(data, 7, sizeof data);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 0, 1 << 20, data), 0);
    memset(data, 8, sizeof data);
    for (uint32_t cut = 1; cut < 1 << 20; cut = cut * 3 + 1) {
        int other = client_open(f.server, "disk", 0, NULL);
        EXPECT(client_request(other, 0, NBD_CMD_WRITE, 1, 0, 1 << 20));
        EXPECT(client_send(other, data, cut));
        close(other);
    }
    memset(data, 7, sizeof data);
    EXPECT_EQ(client_read(fd, 0, 0, 1 << 20, back), 0);
    EXPECT_EQ(memcmp(back, data, sizeof back), 0);
    close(fd);
    EXPECT(fixture_is_deserted(&f));
    fixture_end(&f);
}

/* B13: everything goes while 64 requests are under way and the engine is slow. */
static void b13_connection_lost_with_requests_under_way(void)
{
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin_with(&f, &two_threads, NULL, exports, 16 * MIB);
    memory_exports_hold(f.memory, true);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    for (unsigned i = 0; i < 64; i++) {
        EXPECT(client_request(fd, 0, i % 2 ? NBD_CMD_READ : NBD_CMD_WRITE, i, i * 4096, 4096));
        if (i % 2 == 0)
            EXPECT(client_send(fd, data, 4096));
    }
    wait_for_requests(&f, 64);
    close(fd);
    /* The place is free although the engine is not done. */
    for (int i = 0; i < 500; i++) {
        fixture_get_stats(&f, &stats);
        if (stats.connections_now == 0)
            break;
        env_sleep_ns(env_os(), 10 * NS_PER_MS);
    }
    EXPECT_EQ(stats.connections_now, 0);
    EXPECT_EQ(stats.closing_now, 1);
    memory_exports_hold(f.memory, false);
    EXPECT(fixture_is_deserted(&f));
    fixture_get_stats(&f, &stats);
    EXPECT_EQ(stats.memory_bytes, 0);
    fixture_end(&f);
}

struct stopper {
    struct nbd_server *server;
    uint64_t grace_ns;
    unsigned cut;
    struct env_thread *thread;
};

static void stop(void *arg)
{
    struct stopper *s = arg;
    s->cut = nbd_server_stop(s->server, s->grace_ns);
}

static void stop_in_background(struct stopper *s, struct nbd_server *server, uint64_t grace_ns)
{
    *s = (struct stopper){.server = server, .grace_ns = grace_ns};
    EXPECT_EQ(env_thread_start(env_os(), "stop", stop, s, &s->thread), 0);
}

static void rule_45_stop_waits_for_what_is_under_way(void)
{
    struct fixture f;
    struct stopper s;
    fixture_begin_with(&f, &two_threads, NULL, exports, 16 * MIB);
    int busy = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL), idle = client_open(f.server, "disk", 0, NULL);
    int half = client_connect(f.server);
    EXPECT(client_greet(half, 3));
    EXPECT_EQ(client_ask(half, 1234, NULL, 0), NBD_REP_ERR_UNSUP);
    memory_exports_hold(f.memory, true);
    for (unsigned i = 0; i < 5; i++)
        EXPECT(client_request(busy, 0, NBD_CMD_READ, i, 0, 4096));
    wait_for_requests(&f, 5);
    stop_in_background(&s, f.server, 8000 * NS_PER_MS);
    EXPECT(client_sees_end(idle)); /* nothing under way: closed at once */
    EXPECT(client_sees_end(half));
    /* new ones are refused, with their payload */
    EXPECT_EQ(client_do(busy, 0, NBD_CMD_FLUSH, 0, 0, NULL), NBD_ESHUTDOWN);
    EXPECT_EQ(client_do(busy, 0, NBD_CMD_WRITE, 0, 100000, data), NBD_ESHUTDOWN);
    EXPECT_EQ(client_read(busy, 0, 0, 512, data), NBD_ESHUTDOWN);
    EXPECT(nbd_server_adopt(f.server, dup(busy), NULL) < 0);
    memory_exports_hold(f.memory, false);
    for (unsigned i = 0; i < 5; i++) {
        struct client_chunk chunk;
        EXPECT(client_chunk(busy, &chunk));
        EXPECT_EQ(chunk.type, NBD_REPLY_TYPE_OFFSET_DATA);
        client_chunk_free(&chunk);
    }
    EXPECT(client_sees_end(busy));
    env_thread_join(s.thread);
    EXPECT_EQ(s.cut, 0);
    close(busy);
    close(idle);
    close(half);
    fixture_end(&f);
}

static void rule_45_stop_does_not_hang_on_a_stuck_client(void)
{
    struct fixture f;
    fixture_begin(&f);
    int stuck = client_open(f.server, "disk", 0, NULL);
    for (unsigned i = 0; i < 4; i++)
        EXPECT(client_request(stuck, 0, NBD_CMD_READ, i, 0, 4 << 20)); /* and never reads */
    int payload = client_open(f.server, "disk", 0, NULL);
    EXPECT(client_request(payload, 0, NBD_CMD_WRITE, 1, 0, 4 << 20)); /* and never sends it */
    env_sleep_ns(env_os(), 100 * NS_PER_MS);
    uint64_t begin = now_ms();
    EXPECT_EQ(nbd_server_stop(f.server, 300 * NS_PER_MS), 2);
    EXPECT(now_ms() - begin < 3000);
    EXPECT_EQ(nbd_server_stop(f.server, 0), 2); /* again: the same answer */
    close(stuck);
    close(payload);
    fixture_end(&f);
}

struct releaser {
    struct memory_exports *memory;
    struct env_thread *thread;
};

static void release_later(void *arg)
{
    struct releaser *r = arg;
    env_sleep_ns(env_os(), 300 * NS_PER_MS);
    memory_exports_hold(r->memory, false);
}

/* The engine does not come back in time: stop returns, free waits for it. */
static void rule_45_stop_does_not_hang_on_a_stuck_engine(void)
{
    struct fixture f;
    fixture_begin_with(&f, &two_threads, NULL, exports, 16 * MIB);
    int fd = client_open(f.server, "disk", 0, NULL);
    memory_exports_hold(f.memory, true);
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 1, 0, 4096));
    EXPECT(client_request(fd, 0, NBD_CMD_FLUSH, 2, 0, 0));
    wait_for_requests(&f, 2);
    EXPECT_EQ(nbd_server_stop(f.server, 100 * NS_PER_MS), 1);
    EXPECT(client_sees_end(fd));
    struct releaser r = {.memory = f.memory};
    REQUIRE(env_thread_start(env_os(), "release", release_later, &r, &r.thread) == 0);
    fixture_end(&f);
    env_thread_join(r.thread);
    close(fd);
}

static void rule_45_stop_under_load(void)
{
    for (int round = 0; round < 20; round++) {
        struct memory_options options = {.thread_count = 3, .delay_ns_max = 300000, .seed = (uint64_t)round};
        struct fixture f;
        struct stopper s;
        int fds[8];
        fixture_begin_with(&f, &options, NULL, exports, 16 * MIB);
        for (unsigned i = 0; i < 8; i++) {
            fds[i] = client_open(f.server, "disk", i % 4, NULL);
            for (unsigned j = 0; j < 30; j++)
                EXPECT(client_request(fds[i], 0, NBD_CMD_READ, j, j * 4096, 4096));
        }
        stop_in_background(&s, f.server, 8000 * NS_PER_MS);
        for (unsigned i = 0; i < 8; i++) {
            uint8_t byte[4096];
            while (recv(fds[i], byte, sizeof byte, 0) > 0)
                ;
            close(fds[i]);
        }
        env_thread_join(s.thread);
        EXPECT_EQ(s.cut, 0);
        fixture_end(&f);
    }
}

/* B14: endless lines about lost peers filled a disk. */
static void b14_messages_are_bounded(void)
{
    struct fixture f;
    char notice[512];
    fixture_begin(&f);
    for (int i = 0; i < 500; i++) {
        int fd = client_open(f.server, "disk", 0, NULL);
        EXPECT(client_send(fd, "this is no NBD request at all", 28));
        EXPECT(client_sees_end(fd));
        close(fd);
    }
    unsigned notices = fixture_notices(&f, notice, sizeof notice);
    EXPECT(notices >= 10);
    EXPECT(notices <= 11 * 30); /* a second takes eleven at most; this takes no 30 s */
    /* A peer that just leaves is no message at all. */
    env_sleep_ns(env_os(), 1100 * NS_PER_MS);
    notices = fixture_notices(&f, NULL, 0);
    for (int i = 0; i < 100; i++) {
        int fd = client_open(f.server, "disk", 0, NULL);
        EXPECT(client_request(fd, 0, NBD_CMD_READ, 1, 0, 1 << 20));
        close(fd);
    }
    EXPECT(fixture_is_deserted(&f));
    EXPECT_EQ(fixture_notices(&f, NULL, 0), notices);
    fixture_end(&f);
}

static void clients_are_listed(void)
{
    struct fixture f;
    struct nbd_client_info clients[4];
    char expected[64];
    fixture_begin(&f);
    int a = client_open(f.server, "disk", 0, NULL), b = client_open(f.server, "", 0, NULL);
    int silent = client_connect(f.server);
    EXPECT_EQ(nbd_server_get_clients(f.server, clients, 4), 2);
    snprintf(expected, sizeof expected, "pid %d uid %u", (int)getpid(), getuid());
    EXPECT_TEXT(clients[0].peer, expected);
    EXPECT_TEXT(clients[0].export_name, "disk");
    EXPECT_TEXT(clients[1].export_name, "disk"); /* the name behind "" */
    EXPECT(clients[1].connected_ns >= clients[0].connected_ns);
    EXPECT_EQ(nbd_server_get_clients(f.server, clients, 1), 2); /* more than there is room for */
    close(a);
    close(b);
    close(silent);
    fixture_end(&f);
}

int main(void)
{
    RUN(rule_44_b11_disc_finishes_what_is_under_way);
    RUN(rule_44_disc_whatever_its_fields);
    RUN(rule_46_half_closed_connections_are_answered);
    RUN(rule_46_b5_thousands_come_and_go);
    RUN(half_a_payload_changes_nothing);
    RUN(b13_connection_lost_with_requests_under_way);
    RUN(rule_45_stop_waits_for_what_is_under_way);
    RUN(rule_45_stop_does_not_hang_on_a_stuck_client);
    RUN(rule_45_stop_does_not_hang_on_a_stuck_engine);
    RUN(rule_45_stop_under_load);
    RUN(b14_messages_are_bounded);
    RUN(clients_are_listed);
    return tap_done();
}
