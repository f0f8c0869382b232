/*
 * Requests that are alone on their connection are carried out by the loop's own thread; while it is away, a second one
 * serves everybody else and the rest of the same connection.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "front/nbd/protocol.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "tap.h"

#define NS_PER_MS UINT64_C(1000000)

static const char *const exports[] = {"disk", NULL};
static const struct memory_options running = {.thread_count = 2, .seed = 1, .runs = true};
static uint8_t data[256 * KIB], back[256 * KIB];

static uint64_t runs(struct fixture *f)
{
    struct memory_counts counts;
    memory_exports_get_counts(f->memory, &counts);
    return counts.runs;
}

/* Sends requests until one is carried out by the loop's thread: before, the connection is not known to be of that kind,
 * or the second thread has not begun yet, or has not come back. */
static void warm_up(struct fixture *f, int fd)
{
    uint64_t before = runs(f);
    for (int i = 0; i < 10000 && runs(f) == before; i++) {
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
        if (i > 10)
            env_sleep_ns(env_os(), NS_PER_MS);
    }
    EXPECT(runs(f) > before);
}

/* Sends a FLUSH that the loop's thread begins and cannot end. */
static bool send_stuck(struct fixture *f, int fd, uint64_t cookie)
{
    struct memory_counts counts = {0};
    warm_up(f, fd);
    memory_exports_hold_runs(f->memory, true);
    EXPECT(client_request(fd, 0, NBD_CMD_FLUSH, cookie, 0, 0));
    for (int i = 0; i < 10000 && counts.running == 0; i++) {
        memory_exports_get_counts(f->memory, &counts);
        env_sleep_ns(env_os(), NS_PER_MS);
    }
    return counts.running == 1;
}

static void lone_requests_wake_no_other_thread(void)
{
    struct fixture f;
    struct nbd_server_stats before, after;
    memset(data, 0x5a, sizeof data);
    fixture_begin_with(&f, &running, NULL, exports, 16 * MIB);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    warm_up(&f, fd);
    fixture_get_stats(&f, &before);
    uint64_t runs_before = runs(&f);
    for (unsigned i = 0; i < 50; i++) {
        EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, i * 4096, 4096, data), 0);
        EXPECT_EQ(client_read(fd, 0, i * 4096, 4096, back), 0);
        EXPECT_EQ(memcmp(back, data, 4096), 0);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, i * 4096, 4096, NULL), 0);
    }
    fixture_get_stats(&f, &after);
    EXPECT_EQ(runs(&f) - runs_before, 150);
    EXPECT_EQ(after.asides - before.asides, 150);
    EXPECT_EQ(after.reliefs, before.reliefs);
    EXPECT_EQ(after.loop_wake_ups, before.loop_wake_ups);
    /* errors come back from there as from anywhere */
    memory_exports_fail(f.memory, REQUEST_WRITE, ENOSPC, 0, 4096, 1);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 0, 4096, data), NBD_ENOSPC);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 0, 4096, data), 0);
    close(fd);
    fixture_end(&f);
}

/* What is in parts, or comes in company, goes to the queue. */
static void others_go_to_the_queue(void)
{
    struct fixture f;
    fixture_begin_with(&f, &running, NULL, exports, 16 * MIB);
    int fd = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0); /* the first of a connection */
    EXPECT_EQ(runs(&f), 0);
    warm_up(&f, fd);
    uint64_t before = runs(&f);
    EXPECT(before > 0);
    static uint8_t large[3 * MIB];
    EXPECT_EQ(client_read(fd, 0, 1000, sizeof large, large), 0);
    for (unsigned round = 0; round < 20; round++) {
        uint8_t requests[16 * NBD_REQUEST_BYTES];
        memset(requests, 0, sizeof requests);
        for (unsigned i = 0; i < 16; i++) { /* FLUSH each, all in one piece */
            static const uint8_t head[] = {0x25, 0x60, 0x95, 0x13, 0, 0, 0, NBD_CMD_FLUSH};
            memcpy(requests + (size_t)i * NBD_REQUEST_BYTES, head, sizeof head);
        }
        EXPECT(client_send(fd, requests, sizeof requests));
        for (unsigned i = 0; i < 16; i++)
            EXPECT_EQ(client_outcome(fd, 0), 0);
    }
    EXPECT_EQ(runs(&f), before);
    close(fd);
    fixture_end(&f);
}

static void nobody_is_held_up_by_one_that_is_stuck(void)
{
    struct fixture f;
    struct nbd_server_stats stats;
    fixture_begin_with(&f, &running, NULL, exports, 16 * MIB);
    int stuck = client_open(f.server, "disk", 0, NULL), other = client_open(f.server, "disk", 0, NULL);
    warm_up(&f, other);
    for (unsigned round = 0; round < 5; round++) {
        REQUIRE(send_stuck(&f, stuck, 1000));
        EXPECT_EQ(client_do(other, 0, NBD_CMD_WRITE, 0, sizeof data, data), 0);
        int fresh = client_open(f.server, "disk", CLIENT_META, NULL);
        EXPECT_EQ(client_read(fresh, 0, 0, sizeof back, back), 0);
        EXPECT_EQ(memcmp(back, data, sizeof data), 0);
        EXPECT(client_request(stuck, 0, NBD_CMD_TRIM, 1001, 0, 512)); /* the same connection */
        EXPECT_EQ(client_simple(stuck, 1001), 0);
        EXPECT(client_hears_nothing(stuck, 20));
        close(fresh);
        memory_exports_hold_runs(f.memory, false);
        EXPECT_EQ(client_simple(stuck, 1000), 0);
    }
    fixture_get_stats(&f, &stats);
    EXPECT(stats.reliefs >= 5);
    close(stuck);
    close(other);
    EXPECT(fixture_is_deserted(&f));
    fixture_end(&f);
}

struct releaser {
    struct memory_exports *memory;
    struct env_thread *thread;
};

static void release_later(void *arg)
{
    struct releaser *r = arg;
    env_sleep_ns(env_os(), 50 * NS_PER_MS);
    memory_exports_hold_runs(r->memory, false);
}

/* The client goes; the server stops with grace, or without; each while the loop's thread is away. */
static void endings_while_one_is_stuck(void)
{
    for (unsigned way = 0; way < 3; way++) {
        struct fixture f;
        struct releaser r;
        fixture_begin_with(&f, &running, NULL, exports, 16 * MIB);
        int fd = client_open(f.server, "disk", 0, NULL);
        REQUIRE(send_stuck(&f, fd, 7));
        r.memory = f.memory;
        if (way == 0) {
            close(fd);
            env_sleep_ns(env_os(), 20 * NS_PER_MS);
        } else if (way == 1) {
            EXPECT_EQ(nbd_server_stop(f.server, 20 * NS_PER_MS), 1);
            EXPECT(client_sees_end(fd));
        }
        REQUIRE(env_thread_start(env_os(), "release", release_later, &r, &r.thread) == 0);
        if (way == 2) {
            EXPECT_EQ(nbd_server_stop(f.server, 8000 * NS_PER_MS), 0);
            EXPECT_EQ(client_simple(fd, 7), 0);
            EXPECT(client_sees_end(fd));
        }
        fixture_end(&f);
        env_thread_join(r.thread);
        if (way > 0)
            close(fd);
    }
}

/* Two clients that each wait for their replies: one at a time is carried out in the loop, and all are answered. */
struct looper {
    struct fixture *f;
    struct env_thread *thread;
    unsigned right;
};

static void send_alone(void *arg)
{
    struct looper *l = arg;
    int fd = client_open(l->f->server, "disk", 0, NULL);
    for (unsigned i = 0; i < 1000; i++)
        l->right += client_do(fd, 0, i % 2 ? NBD_CMD_TRIM : NBD_CMD_FLUSH, 0, i % 2 ? 4096 : 0, NULL) == 0;
    close(fd);
}

static void several_clients_that_are_each_alone(void)
{
    struct memory_options options = {.thread_count = 2, .seed = 1, .runs = true, .delay_ns_max = 50000};
    struct looper loopers[4];
    struct nbd_server_stats stats;
    struct fixture f;
    fixture_begin_with(&f, &options, NULL, exports, 16 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        loopers[i] = (struct looper){.f = &f};
        REQUIRE(env_thread_start(env_os(), "client", send_alone, &loopers[i], &loopers[i].thread) == 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        env_thread_join(loopers[i].thread);
        EXPECT_EQ(loopers[i].right, 1000);
    }
    EXPECT(fixture_is_deserted(&f));
    fixture_get_stats(&f, &stats);
    printf("# 4000 requests, %llu in the loop's thread, which was relieved at %llu\n", (unsigned long long)stats.asides,
           (unsigned long long)stats.reliefs);
    EXPECT(stats.asides > 0 && stats.reliefs > 0);
    fixture_end(&f);
}

int main(void)
{
    RUN(lone_requests_wake_no_other_thread);
    RUN(others_go_to_the_queue);
    RUN(nobody_is_held_up_by_one_that_is_stuck);
    RUN(endings_while_one_is_stuck);
    RUN(several_clients_that_are_each_alone);
    return tap_done();
}
