/*
 * Clients that take what they can, and others beside them that must not notice. Numbers in names: the rules that
 * servers get wrong.
 */
#include <poll.h>
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

#define NS_PER_MS UINT64_C(1000000)

static const char *const exports[] = {"disk", NULL};
static uint8_t data[32 << 20], back[32 << 20];

static uint64_t now_ms(void)
{
    return env_now_ns(env_os()) / NS_PER_MS;
}

/* Sends as much as the socket takes within `ms`; returns how much. */
static size_t push(int fd, size_t n, int ms)
{
    size_t sent = 0;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    while (sent < n && poll(&p, 1, ms) == 1) {
        ssize_t now = send(fd, data + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (now <= 0)
            break;
        sent += (size_t)now;
    }
    return sent;
}

/* A client as it should be: 4 KiB reads and 1 MiB writes, all right. Returns the longest that one of them took. */
static uint64_t behave(int fd, unsigned rounds)
{
    uint64_t longest = 0;
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t begin = now_ms();
        EXPECT_EQ(client_read(fd, 0, i * 4096, 4096, back), 0);
        longest = max_u64(longest, now_ms() - begin);
        begin = now_ms();
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, (i % 16) * MIB, 1 << 20, data), 0);
        longest = max_u64(longest, now_ms() - begin);
    }
    return longest;
}

/* A hundred announce 32 MiB each and send a byte now and then. */
static void rule_46_slow_large_writers(void)
{
    enum { COUNT = 100 };
    static int fds[COUNT];
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin(&f);
    int good = client_open(f.server, "disk", 0, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = client_open(f.server, "disk", i % 2, NULL);
        EXPECT(client_request(fds[i], 0, NBD_CMD_WRITE, 1, 0, 32 << 20));
    }
    uint64_t longest = 0;
    for (int round = 0; round < 20; round++) {
        for (unsigned i = 0; i < COUNT; i++)
            EXPECT(client_send(fds[i], "x", 1));
        longest = max_u64(longest, behave(good, 5));
    }
    fixture_get_stats(&f, &stats);
    printf("# longest request %llu ms, memory at most %llu KiB\n", (unsigned long long)longest,
           (unsigned long long)stats.memory_bytes_max / 1024);
    EXPECT(longest < 2000);
    EXPECT(stats.memory_bytes_max < 4 * MIB);
    EXPECT_EQ(stats.dropped_stalls, 0);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    close(good);
    fixture_end(&f);
}

/* They send most of a megabyte first, more in all than there is memory: then the rest of the memory is for others, and
 * when those must wait the stalled ones are dropped. */
static void stalled_writers_that_filled_the_memory(void)
{
    enum { COUNT = 120 };
    static int fds[COUNT];
    struct nbd_server_options options = {.stall_ns = 500 * NS_PER_MS};
    struct fixture f;
    struct nbd_server_stats stats;
    size_t pushed = 0;
    fixture_begin_with(&f, NULL, &options, exports, GIB);
    int good = client_open(f.server, "disk", 0, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = client_open(f.server, "disk", 0, NULL);
        EXPECT(client_request(fds[i], 0, NBD_CMD_WRITE, 1, 0, 32 << 20));
        pushed += push(fds[i], 1000000, 20);
    }
    EXPECT(pushed > 64 * MIB);
    fixture_get_stats(&f, &stats);
    EXPECT(stats.memory_bytes <= 64 * MIB);
    EXPECT(stats.memory_bytes_max > 48 * MIB); /* else there was no danger */
    uint64_t longest = behave(good, 50);
    printf("# longest request %llu ms\n", (unsigned long long)longest);
    EXPECT(longest < 8000);
    fixture_get_stats(&f, &stats);
    EXPECT(stats.dropped_stalls > 0);
    EXPECT(behave(good, 50) < 2000); /* and then it is over */
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    close(good);
    EXPECT(fixture_is_deserted(&f));
    fixture_get_stats(&f, &stats);
    EXPECT_EQ(stats.memory_bytes, 0);
    fixture_end(&f);
}

/* They ask for as much as they may and read nothing of it. */
static void rule_46_clients_that_do_not_read(void)
{
    enum { COUNT = 60 };
    static int fds[COUNT];
    struct nbd_server_options options = {.stall_ns = 500 * NS_PER_MS};
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin_with(&f, NULL, &options, exports, GIB);
    int good = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = client_open(f.server, "disk", i % 2, NULL);
        for (unsigned j = 0; j < 100; j++)
            EXPECT(client_request(fds[i], 0, NBD_CMD_READ, j, 0, 32 << 20));
    }
    uint64_t longest = behave(good, 50);
    fixture_get_stats(&f, &stats);
    printf("# longest request %llu ms, memory at most %llu KiB\n", (unsigned long long)longest,
           (unsigned long long)stats.memory_bytes_max / 1024);
    EXPECT(longest < 4000);
    EXPECT(stats.memory_bytes_max <= 64 * MIB);
    EXPECT_EQ(client_read(good, 0, 0, 32 << 20, back), 0); /* also a large one */
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    close(good);
    EXPECT(fixture_is_deserted(&f));
    fixture_end(&f);
}

/* A client that reads slowly gets all it asked for, and its server holds little meanwhile. */
static void a_slow_reader_is_served_in_full(void)
{
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin(&f);
    memset(data, 5, sizeof data);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 0, 24 << 20, data), 0);
    EXPECT(client_request(fd, 0, NBD_CMD_READ, 1, 0, 24 << 20));
    env_sleep_ns(env_os(), 50 * NS_PER_MS);
    fixture_get_stats(&f, &stats);
    EXPECT(stats.memory_bytes <= 4 * MIB);
    EXPECT_EQ(client_read_answer(fd, 1, 0, 24 << 20, back), 0);
    EXPECT_EQ(memcmp(data, back, 24 << 20), 0);
    close(fd);
    fixture_end(&f);
}

/* Many honest large ones at once want far more than there is: all are served, none is dropped. */
static void too_many_honest_large_requests(void)
{
    enum { COUNT = 24 };
    static int fds[COUNT];
    struct memory_options options = {.thread_count = 2, .seed = 7};
    struct nbd_server_options server = {.stall_ns = 1000 * NS_PER_MS};
    struct fixture f;
    struct nbd_server_stats stats;
    static size_t received[COUNT];
    fixture_begin_with(&f, &options, &server, exports, GIB);
    memset(received, 0, sizeof received);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = client_open(f.server, "disk", 0, NULL);
        /* simple replies cannot be cut: each needs 20 MiB at once */
        for (unsigned j = 0; j < 3; j++)
            EXPECT(client_request(fds[i], 0, NBD_CMD_READ, j, i * MIB, 20 << 20));
    }
    const size_t wanted = 3 * (16 + (20 << 20));
    unsigned left = COUNT;
    uint64_t deadline = now_ms() + 60000;
    while (left > 0 && now_ms() < deadline) {
        struct pollfd p[COUNT];
        for (unsigned i = 0; i < COUNT; i++)
            p[i] = (struct pollfd){.fd = received[i] < wanted ? fds[i] : -1, .events = POLLIN};
        if (poll(p, COUNT, 1000) <= 0)
            continue;
        for (unsigned i = 0; i < COUNT; i++) {
            if (p[i].revents == 0)
                continue;
            ssize_t n = recv(fds[i], back, sizeof back, MSG_DONTWAIT);
            REQUIRE(n > 0);
            received[i] += (size_t)n;
            left -= received[i] >= wanted;
        }
    }
    EXPECT_EQ(left, 0);
    fixture_get_stats(&f, &stats);
    EXPECT_EQ(stats.dropped_stalls, 0);
    EXPECT(stats.memory_bytes_max <= 64 * MIB);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    fixture_end(&f);
}

/* One connection with everything under way that it may have, and one that asks for little at a time. */
static void a_flood_beside_a_trickle(void)
{
    struct memory_options options = {.thread_count = 2, .seed = 9};
    struct fixture f;
    fixture_begin_with(&f, &options, NULL, exports, GIB);
    int flood = client_open(f.server, "disk", 0, NULL), trickle = client_open(f.server, "disk", 0, NULL);
    unsigned sent = 0, answered = 0;
    uint64_t longest = 0, end = now_ms() + 2000;
    unsigned served = 0;
    while (now_ms() < end) {
        /* keep writes of 64 KiB coming without ever waiting for an answer */
        for (unsigned i = 0; i < 20 && sent - answered < 500; i++, sent++) {
            uint8_t header[28] = {0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1};
            wire_put_u32(header + 24, 65536);
            if (push(flood, 0, 0) != 0 || !client_send(flood, header, sizeof header) ||
                !client_send(flood, data, 65536))
                break;
        }
        uint8_t replies[16 * 64];
        ssize_t n = recv(flood, replies, sizeof replies, MSG_DONTWAIT);
        answered += n > 0 ? (unsigned)n / 16 : 0;
        uint64_t begin = now_ms();
        EXPECT_EQ(client_read(trickle, 0, 0, 4096, back), 0);
        longest = max_u64(longest, now_ms() - begin);
        served++;
    }
    printf("# %u small reads beside %u writes, longest %llu ms\n", served, sent, (unsigned long long)longest);
    EXPECT(served > 20);
    EXPECT(longest < 1500);
    close(flood);
    close(trickle);
    fixture_end(&f);
}

/* Commands under way on one connection are limited: a client that never reads cannot pile them up. */
static void commands_without_data_are_bounded(void)
{
    struct memory_options options = {.thread_count = 1, .seed = 1};
    struct fixture f;
    struct memory_counts counts;
    struct nbd_server_stats stats;
    fixture_begin_with(&f, &options, NULL, exports, GIB);
    memory_exports_hold(f.memory, true);
    int fd = client_open(f.server, "disk", 0, NULL);
    unsigned sent = 0;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    while (sent < 100000 && poll(&p, 1, 100) == 1 && client_request(fd, 0, NBD_CMD_TRIM, sent, 0, 4096))
        sent++;
    EXPECT(sent < 100000); /* the socket filled up */
    memory_exports_get_counts(f.memory, &counts);
    EXPECT_EQ(counts.waiting, 128);
    fixture_get_stats(&f, &stats);
    EXPECT(stats.memory_bytes <= 128 * 1024);
    memory_exports_hold(f.memory, false);
    uint64_t sum = 0;
    for (unsigned i = 0; i < sent; i++) {
        uint8_t reply[16];
        REQUIRE(client_receive(fd, reply, sizeof reply));
        sum += wire_get_u64(reply + 8);
    }
    EXPECT_EQ(sum, (uint64_t)sent * (sent - 1) / 2); /* every one answered */
    close(fd);
    fixture_end(&f);
}

int main(void)
{
    RUN(rule_46_slow_large_writers);
    RUN(stalled_writers_that_filled_the_memory);
    RUN(rule_46_clients_that_do_not_read);
    RUN(a_slow_reader_is_served_in_full);
    RUN(too_many_honest_large_requests);
    RUN(a_flood_beside_a_trickle);
    RUN(commands_without_data_are_bounded);
    return tap_done();
}
