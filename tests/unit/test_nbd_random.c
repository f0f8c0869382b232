/*
 * Random requests on several connections against a plain array, with an engine that answers out of order and fails now
 * and then: every reply right, every byte right. Each connection has a region of its own, so that what must be there
 * is known. ASHLAR_SEED replays the requests; the order in which threads run is not in its hand.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/prng.h"
#include "env/env.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "seed.h"
#include "tap.h"

#define REGION (5 * MIB)
#define CLIENTS 4
#define ROUNDS 300
#define BATCH 12
#define SLOT (REGION / BATCH) /* requests under way together touch different slots */

struct pending {
    uint16_t type;
    uint64_t cookie, offset; /* offset in the region */
    uint32_t length;
    bool done;
};

struct client {
    struct fixture *f;
    unsigned number;
    uint64_t seed;
    bool structured;
    struct env_thread *thread;
    uint8_t model[REGION], data[REGION], back[REGION];
    struct pending pending[BATCH];
    unsigned wrong, requests;
};

static bool send_one(struct client *c, int fd, struct prng *r, unsigned slot)
{
    static const uint16_t types[] = {NBD_CMD_READ,  NBD_CMD_READ, NBD_CMD_WRITE,        NBD_CMD_WRITE,
                                     NBD_CMD_FLUSH, NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES, NBD_CMD_CACHE};
    struct pending *p = &c->pending[slot];
    /* A batch is sent before its answers are read, so these must not be more than the server keeps for a client. */
    uint64_t most = slot > 1 || prng_chance(r, 500) ? 20000 : SLOT;
    *p = (struct pending){.type = types[prng_below(r, 8)], .cookie = prng_u64(r)};
    uint16_t flags = 0;
    if (p->type != NBD_CMD_FLUSH) {
        p->length = (uint32_t)prng_below(r, most + 1);
        p->offset = slot * SLOT + prng_below(r, SLOT - p->length + 1);
    }
    if (p->type == NBD_CMD_WRITE || p->type == NBD_CMD_TRIM || p->type == NBD_CMD_WRITE_ZEROES)
        flags = prng_chance(r, 100) ? NBD_CMD_FLAG_FUA : 0;
    uint8_t *model = c->model + p->offset;
    if (p->type == NBD_CMD_WRITE)
        prng_fill(r, model, p->length);
    else if (p->type == NBD_CMD_TRIM || p->type == NBD_CMD_WRITE_ZEROES)
        memset(model, 0, p->length);
    c->requests++;
    uint64_t base = p->type == NBD_CMD_FLUSH ? 0 : c->number * REGION;
    return client_request(fd, flags, p->type, p->cookie, base + p->offset, p->length) &&
           (p->type != NBD_CMD_WRITE || client_send(fd, model, p->length));
}

static struct pending *find(struct client *c, uint64_t cookie)
{
    for (unsigned i = 0; i < BATCH; i++)
        if (c->pending[i].cookie == cookie && !c->pending[i].done)
            return &c->pending[i];
    return NULL;
}

/* Reads one message. true if it is right; ended: if it was the last of a reply. */
static bool take_one(struct client *c, int fd, bool *ret_ended)
{
    uint8_t header[20];
    *ret_ended = true;
    if (!client_receive(fd, header, 16))
        return false;
    if (wire_get_u32(header) == 0x67446698) {
        struct pending *p = find(c, wire_get_u64(header + 8));
        if (p == NULL || wire_get_u32(header + 4) != 0 || (p->type == NBD_CMD_READ && c->structured))
            return false;
        p->done = true;
        return p->type != NBD_CMD_READ ||
               (client_receive(fd, c->back, p->length) && memcmp(c->back, c->model + p->offset, p->length) == 0);
    }
    if (wire_get_u32(header) != 0x668e33ef || !client_receive(fd, header + 16, 4))
        return false;
    struct pending *p = find(c, wire_get_u64(header + 8));
    uint32_t length = wire_get_u32(header + 16);
    uint16_t type = wire_get_u16(header + 6);
    if (p == NULL || p->type != NBD_CMD_READ || length > sizeof c->back || !client_receive(fd, c->back, length))
        return false;
    *ret_ended = p->done = (wire_get_u16(header + 4) & NBD_REPLY_FLAG_DONE) != 0;
    if (type == NBD_REPLY_TYPE_NONE)
        return length == 0 && p->length == 0;
    uint64_t at = wire_get_u64(c->back) - c->number * REGION;
    return type == NBD_REPLY_TYPE_OFFSET_DATA && length > 8 && at >= p->offset &&
           at + length - 8 <= p->offset + p->length && memcmp(c->back + 8, c->model + at, length - 8) == 0;
}

static void be_client(void *arg)
{
    struct client *c = arg;
    struct prng r;
    prng_seed(&r, c->seed);
    int fd = client_open(c->f->server, "disk", c->structured ? CLIENT_STRUCTURED : 0, NULL);
    for (unsigned round = 0; round < ROUNDS && c->wrong == 0; round++) {
        unsigned left = 0;
        for (unsigned slot = 0; slot < BATCH; slot++, left++)
            c->wrong += !send_one(c, fd, &r, slot);
        while (left > 0 && c->wrong == 0) {
            bool ended;
            c->wrong += !take_one(c, fd, &ended);
            left -= ended;
        }
    }
    close(fd);
}

static void run_clients(const struct memory_options *options, uint64_t seed)
{
    static const char *const exports[] = {"disk", NULL};
    static struct client clients[CLIENTS];
    struct fixture f;
    fixture_begin_with(&f, options, NULL, exports, CLIENTS * REGION);
    for (unsigned i = 0; i < CLIENTS; i++) {
        memset(&clients[i], 0, sizeof clients[i]);
        clients[i].f = &f;
        clients[i].number = i;
        clients[i].seed = seed + i;
        clients[i].structured = i % 2 == 1;
        REQUIRE(env_thread_start(env_os(), "client", be_client, &clients[i], &clients[i].thread) == 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        env_thread_join(clients[i].thread);
        EXPECT_EQ(clients[i].wrong, 0);
        EXPECT_EQ(clients[i].requests, ROUNDS * BATCH);
    }
    EXPECT(fixture_is_deserted(&f));
    for (unsigned i = 0; i < CLIENTS; i++)
        EXPECT_EQ(memcmp(memory_exports_bytes(f.memory, 0) + i * REGION, clients[i].model, REGION), 0);
    struct nbd_server_stats stats;
    fixture_get_stats(&f, &stats);
    printf("# %llu sends, %llu direct; loop slept %llu times, was woken %llu, went aside %llu, was relieved %llu\n",
           (unsigned long long)stats.send_calls, (unsigned long long)stats.direct_sends,
           (unsigned long long)stats.loop_waits, (unsigned long long)stats.loop_wake_ups,
           (unsigned long long)stats.asides, (unsigned long long)stats.reliefs);
    EXPECT_EQ(stats.memory_bytes, 0);
    EXPECT_EQ(stats.errors, 0);
    fixture_end(&f);
}

static void requests_done_in_the_submitting_thread(void)
{
    struct memory_options options = {0};
    run_clients(&options, seed_choose());
}

static void requests_done_in_threads_out_of_order(void)
{
    uint64_t seed = seed_choose();
    struct memory_options options = {.thread_count = 3, .seed = seed};
    run_clients(&options, seed);
}

static void requests_done_late(void)
{
    uint64_t seed = seed_choose();
    struct memory_options options = {.thread_count = 8, .delay_ns_max = 1000000, .seed = seed};
    run_clients(&options, seed);
}

/* Those that are alone in the loop's thread, which is relieved again and again. */
static void requests_done_where_it_suits(void)
{
    uint64_t seed = seed_choose();
    struct memory_options options = {.thread_count = 3, .delay_ns_max = 100000, .seed = seed, .runs = true};
    run_clients(&options, seed);
}

/* Row B1 again, under load: errors of the engine reach the one that asked, and nobody else. */
static void errors_reach_who_asked(void)
{
    static const char *const exports[] = {"disk", NULL};
    static uint8_t data[9000];
    uint64_t seed = seed_choose();
    struct memory_options options = {.thread_count = 4, .delay_ns_max = 300000, .seed = seed};
    struct fixture f;
    fixture_begin_with(&f, &options, NULL, exports, 2 * REGION);
    int good = client_open(f.server, "disk", CLIENT_STRUCTURED, NULL), bad = client_open(f.server, "disk", 0, NULL);
    for (unsigned i = 0; i < 100; i++) {
        static const enum request_kind kinds[] = {REQUEST_READ, REQUEST_WRITE, REQUEST_TRIM, REQUEST_ZERO};
        static const uint16_t types[] = {NBD_CMD_READ, NBD_CMD_WRITE, NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES};
        memory_exports_fail(f.memory, kinds[i % 4], i % 3 ? EIO : ENOSPC, REGION, REGION, 1);
        EXPECT(client_request(good, 0, NBD_CMD_READ, i, 0, sizeof data));
        int error = types[i % 4] == NBD_CMD_READ ? client_read(bad, 0, REGION + i, sizeof data, data)
                                                 : client_do(bad, 0, types[i % 4], REGION + i, sizeof data, data);
        EXPECT_EQ(error, i % 3 ? NBD_EIO : NBD_ENOSPC);
        EXPECT_EQ(client_read_answer(good, i, 0, sizeof data, data), 0);
    }
    close(good);
    close(bad);
    fixture_end(&f);
}

int main(void)
{
    RUN(requests_done_in_the_submitting_thread);
    RUN(requests_done_in_threads_out_of_order);
    RUN(requests_done_late);
    RUN(requests_done_where_it_suits);
    RUN(errors_reach_who_asked);
    return tap_done();
}
