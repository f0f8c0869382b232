/*
 * The NBD server on a real pool: the names, what is negotiated, and above all the flushes: each FLUSH, and each FUA on
 * WRITE, TRIM and WRITE_ZEROES, from each connection, reaches the device before the reply. A device in between counts
 * them, holds them up, or fails them. Numbers in names: the rules that servers get wrong; A, B: rows of the table of
 * faults that others shipped.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "base/tree.h"
#include "env/device.h"
#include "front/nbd/export.h"
#include "front/nbd/pool_exports.h"
#include "front/nbd/protocol.h"
#include "front/nbd/server.h"
#include "front/nbd/wire.h"
#include "pool/pool.h"
#include "queue/queue.h"
#include "raw_client.h"
#include "tap.h"

#define NS_PER_MS UINT64_C(1000000)
#define VOLUME_BYTES (16 * MIB)

/* ---- a device in between ---- */

struct gate {
    struct device base;
    struct device *inner;
    struct env_mutex lock;
    struct env_cond changed;
    bool held;                   /* flushes wait; guarded by lock */
    atomic_uint flushes, writes; /* that reached the device below and are done */
    atomic_bool fails;           /* flushes and writes fail */
};

static void gate_run(struct device *dev, struct device_io *ios, size_t count)
{
    struct gate *g = CONTAINER_OF(dev, struct gate, base);
    for (size_t i = 0; i < count; i++) {
        if (ios[i].kind == DEVICE_FLUSH) {
            env_mutex_lock(&g->lock);
            while (g->held)
                env_cond_wait(&g->changed, &g->lock);
            env_mutex_unlock(&g->lock);
        }
        bool changes = ios[i].kind == DEVICE_FLUSH || ios[i].kind == DEVICE_WRITE;
        if (changes && atomic_load(&g->fails)) {
            ios[i].result = -EIO;
        } else {
            ios[i].after_previous = false;
            int ret = device_run(g->inner, &ios[i], 1);
            CHECK_EQ(ret, ios[i].result);
        }
        if (ios[i].result == 0 && ios[i].kind == DEVICE_FLUSH)
            atomic_fetch_add(&g->flushes, 1);
        if (ios[i].result == 0 && ios[i].kind == DEVICE_WRITE)
            atomic_fetch_add(&g->writes, 1);
    }
}

static int gate_resize(struct device *dev, uint64_t size_bytes)
{
    return device_resize(CONTAINER_OF(dev, struct gate, base)->inner, size_bytes);
}

static uint64_t gate_allocated_bytes(struct device *dev)
{
    return device_allocated_bytes(CONTAINER_OF(dev, struct gate, base)->inner);
}

/* The gate itself is the test's. */
static void gate_close(struct device *dev)
{
    device_close(CONTAINER_OF(dev, struct gate, base)->inner);
}

static const struct device_ops gate_ops = {
    .run = gate_run, .resize = gate_resize, .allocated_bytes = gate_allocated_bytes, .close = gate_close};

static void gate_hold(struct gate *g, bool hold)
{
    env_mutex_lock(&g->lock);
    g->held = hold;
    env_cond_broadcast(&g->changed);
    env_mutex_unlock(&g->lock);
}

/* ---- a server on a pool ---- */

struct stack {
    char path[64];
    struct gate gate;
    struct pool *pool;
    struct queue *queue;
    struct pool_exports *exports;
    struct nbd_server *server;
};

static void open_pool(struct stack *s, unsigned flags, bool read_only)
{
    struct error err = {0};
    struct pool_options options = {.cache_bytes = 16 * MIB, .worker_count = 2, .read_only = read_only};
    int ret =
        device_open(env_os(), s->path, flags | (read_only ? DEVICE_OPEN_READ_ONLY : 0), 72 * MIB, &s->gate.inner, &err);
    if (ret == 0 && (flags & DEVICE_OPEN_CREATE) != 0)
        ret = pool_create(s->gate.inner, &(struct pool_create_options){0}, &err);
    if (ret == 0) {
        s->gate.base.ops = &gate_ops;
        s->gate.base.env = env_os();
        s->gate.base.info = s->gate.inner->info;
        atomic_store(&s->gate.base.failed, false);
        atomic_store(&s->gate.fails, false);
        ret = pool_open(&s->gate.base, &options, &s->pool, &err);
    }
    if (ret < 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_EQ(ret, 0);
}

static void serve_pool(struct stack *s, bool read_only)
{
    struct nbd_server_options options = {.read_only = read_only};
    CHECK_EQ(queue_new(env_os(), 4, &s->queue), 0);
    CHECK_EQ(pool_exports_new(s->pool, s->queue, read_only, &s->exports), 0);
    CHECK_EQ(nbd_server_new(env_os(), &options, pool_export_ops(), s->exports, &s->server, NULL), 0);
    CHECK_EQ(nbd_server_start(s->server, NULL), 0);
}

static void stack_begin(struct stack *s, const char *const *volumes)
{
    memset(s, 0, sizeof *s);
    snprintf(s->path, sizeof s->path, "/tmp/ashlar-nbd-pool-%d", (int)getpid());
    (void)unlink(s->path);
    env_mutex_init(&s->gate.lock, env_os());
    env_cond_init(&s->gate.changed, env_os());
    open_pool(s, DEVICE_OPEN_CREATE, false);
    for (; *volumes != NULL; volumes++) {
        struct volume_settings settings = {.size_bytes = VOLUME_BYTES, .record_bytes = 64 * KIB};
        CHECK_EQ(volume_create(s->pool, *volumes, &settings, NULL), 0);
    }
    serve_pool(s, false);
}

/* Returns what closing the pool says. */
static int stop_serving(struct stack *s)
{
    nbd_server_free(s->server);
    pool_exports_free(s->exports);
    queue_free(s->queue);
    return pool_close(s->pool, NULL);
}

static void stack_end(struct stack *s)
{
    (void)stop_serving(s);
    env_cond_destroy(&s->gate.changed);
    env_mutex_destroy(&s->gate.lock);
    (void)unlink(s->path);
}

static const char *const one_volume[] = {"disk", NULL};
static uint8_t data[3 << 20];

static void fill(uint64_t seed)
{
    struct prng r;
    prng_seed(&r, seed);
    prng_fill(&r, data, sizeof data);
}

/* ---- names ---- */

static void names_of_volumes(void)
{
    enum { COUNT = 150 }; /* more than two pages of a list */
    static char texts[COUNT][8];
    static const char *names[COUNT + 1];
    static struct client_reply reply;
    uint8_t payload[64];
    struct stack s;
    for (int i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof texts[i], "v%03d", (i * 7) % COUNT); /* made in another order than that of names */
        names[i] = texts[i];
    }
    stack_begin(&s, names);
    int fd = client_connect(s.server), right = 0;
    EXPECT(client_greet(fd, 3));
    EXPECT(client_option(fd, NBD_OPT_LIST, NULL, 0));
    for (int i = 0; i < COUNT && client_option_reply(fd, &reply) && reply.type == NBD_REP_SERVER; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "v%03d", i);
        right += reply.length > 8 && memcmp(reply.data + 4, expected, 4) == 0;
    }
    EXPECT_EQ(right, COUNT);
    EXPECT(memmem(reply.data, reply.length, "64K records", 11) != NULL); /* the description */
    EXPECT(client_option_reply(fd, &reply) && reply.type == NBD_REP_ACK);
    /* several volumes: the empty name stands for none of them, and the text says so */
    EXPECT(client_option(fd, NBD_OPT_GO, payload, client_info_payload(payload, "", NULL, 0)));
    EXPECT(client_option_reply(fd, &reply));
    EXPECT_EQ(reply.type, NBD_REP_ERR_UNKNOWN);
    EXPECT(memmem(reply.data, reply.length, "several", 7) != NULL);
    close(fd);
    /* one more, made while it is served, is served at once */
    struct volume_settings settings = {.size_bytes = MIB};
    EXPECT_EQ(volume_create(s.pool, "later", &settings, NULL), 0);
    fd = client_open(s.server, "later", 0, NULL);
    EXPECT(fd >= 0);
    close(fd);
    stack_end(&s);
}

static void no_volume_and_one_volume(void)
{
    static const char *const none[] = {NULL};
    static struct client_reply reply;
    static const uint16_t infos[] = {NBD_INFO_BLOCK_SIZE};
    uint8_t payload[64];
    struct stack s;
    stack_begin(&s, none);
    int fd = client_connect(s.server);
    EXPECT(client_greet(fd, 3));
    EXPECT_EQ(client_ask(fd, NBD_OPT_LIST, NULL, 0), NBD_REP_ACK);
    EXPECT_EQ(client_ask(fd, NBD_OPT_GO, payload, client_info_payload(payload, "", NULL, 0)), NBD_REP_ERR_UNKNOWN);
    struct volume_settings settings = {.size_bytes = VOLUME_BYTES, .record_bytes = 32 * KIB};
    EXPECT_EQ(volume_create(s.pool, "only", &settings, NULL), 0);
    EXPECT(client_option(fd, NBD_OPT_GO, payload, client_info_payload(payload, "", infos, 1)));
    bool told = false;
    while (client_option_reply(fd, &reply) && reply.type == NBD_REP_INFO)
        if (wire_get_u16(reply.data) == NBD_INFO_BLOCK_SIZE)
            told = wire_get_u32(reply.data + 6) == 32 * KIB; /* preferred: the record */
    EXPECT_EQ(reply.type, NBD_REP_ACK);
    EXPECT(told);
    /* a volume in use cannot be destroyed; when the client has left it can */
    EXPECT_EQ(volume_destroy(s.pool, "only", NULL), -EBUSY);
    close(fd);
    int ret = -EBUSY;
    for (int i = 0; i < 500 && ret == -EBUSY; i++) {
        env_sleep_ns(env_os(), 10 * NS_PER_MS);
        ret = volume_destroy(s.pool, "only", NULL);
    }
    EXPECT_EQ(ret, 0);
    stack_end(&s);
}

static void read_only_pools(void)
{
    struct stack s;
    struct client_export e;
    static uint8_t back[4096];
    fill(1);
    stack_begin(&s, one_volume);
    int fd = client_open(s.server, "disk", 0, NULL);
    EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 8192, 4096, data), 0);
    close(fd);
    EXPECT_EQ(stop_serving(&s), 0);
    open_pool(&s, 0, true);
    serve_pool(&s, true);
    fd = client_open(s.server, "disk", 0, &e);
    EXPECT_EQ(e.flags & (NBD_FLAG_READ_ONLY | NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES), NBD_FLAG_READ_ONLY);
    EXPECT_EQ(client_read(fd, 0, 8192, 4096, back), 0);
    EXPECT_EQ(memcmp(back, data, 4096), 0);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 0, 4096, data), NBD_EPERM);
    EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    close(fd);
    stack_end(&s);
}

/* ---- flushes ---- */

struct durable_command {
    const char *name;
    uint16_t flags, type;
    uint32_t length;
};

static const struct durable_command durable_commands[] = {
    {"FLUSH", 0, NBD_CMD_FLUSH, 0},
    {"WRITE with FUA, part of a record", NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 4096},
    {"WRITE with FUA, a record", NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 65536},
    {"WRITE with FUA, in parts", NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, sizeof data},
    {"TRIM with FUA", NBD_CMD_FLAG_FUA, NBD_CMD_TRIM, 65536},
    {"TRIM with FUA, part of a record", NBD_CMD_FLAG_FUA, NBD_CMD_TRIM, 5000},
    {"WRITE_ZEROES with FUA", NBD_CMD_FLAG_FUA, NBD_CMD_WRITE_ZEROES, 65536},
    {"WRITE_ZEROES with FUA and NO_HOLE", NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_NO_HOLE, NBD_CMD_WRITE_ZEROES, 65536},
};
#define DURABLE_COUNT (sizeof durable_commands / sizeof durable_commands[0])

static uint64_t offset_of(const struct durable_command *d)
{
    return d->type == NBD_CMD_FLUSH ? 0 : 64 * KIB;
}

/* Rules 25 to 29; A#17131, A#17761, A#552, B1, B2: counted at the device, for each connection. */
static void rule_25_each_durable_command_flushes_the_device(void)
{
    struct stack s;
    fill(2);
    stack_begin(&s, one_volume);
    int fds[3] = {client_open(s.server, "disk", 0, NULL), client_open(s.server, "", CLIENT_STRUCTURED, NULL),
                  client_open(s.server, "disk", CLIENT_META, NULL)};
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 3; i++) {
            for (size_t j = 0; j < DURABLE_COUNT; j++) {
                const struct durable_command *d = &durable_commands[j];
                /* something that must become durable, on another connection */
                EXPECT_EQ(client_do(fds[(i + 1) % 3], 0, NBD_CMD_WRITE, 8 * MIB + j * 4096, 4096, data + round), 0);
                EXPECT_EQ(client_do(fds[(i + 2) % 3], 0, NBD_CMD_WRITE, 64 * KIB, 64 * KIB, data + round), 0);
                unsigned before = atomic_load(&s.gate.flushes);
                EXPECT_EQ(client_do(fds[i], d->flags, d->type, offset_of(d), d->length, data), 0);
                if (atomic_load(&s.gate.flushes) == before)
                    printf("# no flush for %s on connection %u\n", d->name, i);
                EXPECT(atomic_load(&s.gate.flushes) > before);
            }
        }
    }
    /* A#552: what does not ask for it causes none */
    unsigned before = atomic_load(&s.gate.flushes);
    for (unsigned i = 0; i < 200; i++) {
        EXPECT_EQ(client_do(fds[i % 3], 0, NBD_CMD_WRITE, (i % 64) * 4096, 4096, data), 0);
        if (i % 10 == 0)
            EXPECT_EQ(client_do(fds[i % 3], 0, NBD_CMD_TRIM, (i % 64) * 4096, 4096, NULL), 0);
    }
    EXPECT_EQ(atomic_load(&s.gate.flushes), before);
    struct nbd_server_stats stats; /* both ways were taken: through the queue, and in the loop's thread */
    nbd_server_get_stats(s.server, &stats);
    EXPECT(stats.asides > 0 && stats.asides < 2 * 3 * DURABLE_COUNT * 3 + 220);
    for (unsigned i = 0; i < 3; i++)
        close(fds[i]);
    stack_end(&s);
}

/* With FUA the outcome is durable, also when the range was so before, but not durably: the device is flushed. */
static void rule_27_fua_on_what_was_done_without_it(void)
{
    static const struct {
        const char *name;
        uint16_t first, second, flags;
        uint32_t first_length, second_length;
    } table[] = {{"TRIM twice", NBD_CMD_TRIM, NBD_CMD_TRIM, 0, 65536, 65536},
                 {"TRIM, then of a part", NBD_CMD_TRIM, NBD_CMD_TRIM, 0, 65536, 5000},
                 {"TRIM, then zeroes", NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES, 0, 65536, 65536},
                 {"TRIM, then zeroes of a part", NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES, 0, 65536, 5000},
                 {"zeroes twice", NBD_CMD_WRITE_ZEROES, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 65536, 65536},
                 {"zeroes, then TRIM of a part", NBD_CMD_WRITE_ZEROES, NBD_CMD_TRIM, 0, 65536, 5000},
                 {"WRITE twice", NBD_CMD_WRITE, NBD_CMD_WRITE, 0, 65536, 65536},
                 {"WRITE, then of a part", NBD_CMD_WRITE, NBD_CMD_WRITE, 0, 65536, 4096},
                 {"TRIM, then FLUSH", NBD_CMD_TRIM, NBD_CMD_FLUSH, 0, 65536, 0}};
    struct stack s;
    fill(6);
    stack_begin(&s, one_volume);
    int a = client_open(s.server, "disk", 0, NULL), b = client_open(s.server, "disk", 0, NULL);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        EXPECT_EQ(client_do(a, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 64 * KIB, 64 * KIB, data), 0);
        EXPECT_EQ(client_do(a, table[i].flags, table[i].first, 64 * KIB, table[i].first_length, data + 100), 0);
        unsigned before = atomic_load(&s.gate.flushes);
        uint64_t offset = table[i].second == NBD_CMD_FLUSH ? 0 : 64 * KIB;
        uint16_t flags = table[i].second == NBD_CMD_FLUSH ? 0 : table[i].flags | NBD_CMD_FLAG_FUA;
        EXPECT_EQ(client_do(b, flags, table[i].second, offset, table[i].second_length, data + 100), 0);
        if (atomic_load(&s.gate.flushes) == before)
            printf("# no flush: %s\n", table[i].name);
        EXPECT(atomic_load(&s.gate.flushes) > before);
    }
    close(a);
    close(b);
    stack_end(&s);
}

/* The reply waits for the device's flush; what needs none goes on meanwhile. */
static void rule_27_no_reply_before_the_flush(void)
{
    struct stack s;
    static uint8_t back[4096];
    fill(3);
    stack_begin(&s, one_volume);
    int fd = client_open(s.server, "disk", CLIENT_STRUCTURED, NULL);
    int other = client_open(s.server, "disk", CLIENT_STRUCTURED, NULL);
    EXPECT_EQ(client_do(other, 0, NBD_CMD_WRITE, 12 * MIB, 4096, data), 0);
    for (size_t j = 0; j < DURABLE_COUNT; j++) {
        const struct durable_command *d = &durable_commands[j];
        EXPECT_EQ(client_do(other, 0, NBD_CMD_WRITE, 64 * KIB, 64 * KIB, data), 0);
        gate_hold(&s.gate, true);
        EXPECT(client_request(fd, d->flags, d->type, j, offset_of(d), d->length));
        if (d->type == NBD_CMD_WRITE)
            EXPECT(client_send(fd, data, d->length));
        EXPECT(client_hears_nothing(fd, 100));
        EXPECT_EQ(client_read(other, 0, 12 * MIB, 4096, back), 0);
        EXPECT_EQ(memcmp(back, data, 4096), 0);
        gate_hold(&s.gate, false);
        EXPECT_EQ(client_outcome(fd, j), 0);
    }
    close(fd);
    close(other);
    stack_end(&s);
}

/* A#12391, rule 29: no success after the device failed, not even the first; and nothing is papered over later. */
static void a12391_a_failing_device_fails_every_durable_command(void)
{
    for (size_t j = 0; j < DURABLE_COUNT; j++) {
        const struct durable_command *d = &durable_commands[j];
        struct stack s;
        static uint8_t back[4096];
        fill(4);
        stack_begin(&s, one_volume);
        int fd = client_open(s.server, "disk", j % 2, NULL);
        EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, 65536, data), 0);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_WRITE, 64 * KIB, 64 * KIB, data), 0);
        atomic_store(&s.gate.fails, true);
        EXPECT_EQ(client_do(fd, d->flags, d->type, offset_of(d), d->length, data), NBD_EIO);
        atomic_store(&s.gate.fails, false); /* the device comes back; the pool does not believe it */
        EXPECT_EQ(client_do(fd, d->flags, d->type, offset_of(d), d->length, data), NBD_EIO);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL), NBD_EIO);
        /* B1: the connection lives, and what is durable is read */
        EXPECT_EQ(client_read(fd, 0, 0, 4096, back), 0);
        EXPECT_EQ(memcmp(back, data, 4096), 0);
        close(fd);
        EXPECT(stop_serving(&s) < 0);
        open_pool(&s, 0, false);
        serve_pool(&s, false);
        fd = client_open(s.server, "disk", 0, NULL);
        EXPECT_EQ(client_read(fd, 0, 0, 4096, back), 0);
        EXPECT_EQ(memcmp(back, data, 4096), 0);
        EXPECT_EQ(client_do(fd, d->flags, d->type, offset_of(d), d->length, data), 0);
        close(fd);
        stack_end(&s);
    }
}

/* B29, B49: a full pool refuses new data with the right error, and everything else works; space comes back. */
static void b29_a_full_pool(void)
{
    static const char *const volumes[] = {"a", "b", "c", "d", "e", NULL};
    static uint8_t back[1 << 20];
    struct stack s;
    struct prng r;
    int fds[5];
    fill(5);
    prng_seed(&r, 5);
    stack_begin(&s, volumes);
    for (unsigned i = 0; i < 5; i++)
        fds[i] = client_open(s.server, volumes[i], CLIENT_META, NULL);
    int error = 0;
    unsigned written = 0;
    while (error == 0 && written < 80) {
        prng_fill(&r, data, 1 << 20);
        error = client_do(fds[written / 16], 0, NBD_CMD_WRITE, written % 16 * MIB, 1 << 20, data);
        written += error == 0;
    }
    EXPECT_EQ(error, NBD_ENOSPC); /* 80 MiB of noise do not go into 72 */
    EXPECT(written > 20);
    for (unsigned i = 0; i < 5; i++)
        EXPECT_EQ(client_do(fds[i], 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    prng_seed(&r, 5);
    for (unsigned i = 0; i < written; i++) {
        prng_fill(&r, data, 1 << 20);
        EXPECT_EQ(client_read(fds[i / 16], 0, i % 16 * MIB, 1 << 20, back), 0);
        EXPECT_EQ(memcmp(back, data, 1 << 20), 0);
    }
    EXPECT_EQ(client_do(fds[0], 0, NBD_CMD_TRIM, 0, VOLUME_BYTES, NULL), 0);
    EXPECT_EQ(client_do(fds[0], 0, NBD_CMD_FLUSH, 0, 0, NULL), 0);
    EXPECT_EQ(pool_checkpoint(s.pool), 0);
    EXPECT_EQ(pool_checkpoint(s.pool), 0);
    EXPECT_EQ(client_do(fds[0], NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, 1 << 20, data), 0);
    for (unsigned i = 0; i < 5; i++)
        close(fds[i]);
    stack_end(&s);
}

/* Rule 43, B31: a large mostly empty volume costs little to ask about, to trim and to zero. */
static void rule_43_large_and_empty(void)
{
    static const char *const none[] = {NULL};
    struct stack s;
    struct client_chunk chunk;
    stack_begin(&s, none);
    struct volume_settings settings = {.size_bytes = 64 * TIB};
    EXPECT_EQ(volume_create(s.pool, "huge", &settings, NULL), 0);
    int fd = client_open(s.server, "huge", CLIENT_META, NULL);
    uint64_t begin = env_now_ns(env_os());
    for (uint64_t offset = 0; offset < 64 * TIB; offset += TIB) {
        EXPECT(client_request(fd, 0, NBD_CMD_BLOCK_STATUS, offset, offset + 1, UINT32_MAX - 4095));
        EXPECT(client_chunk(fd, &chunk));
        EXPECT_EQ(chunk.length, 12);
        EXPECT_EQ(wire_get_u32(chunk.data + 4), UINT32_MAX - 4095);
        client_chunk_free(&chunk);
        EXPECT_EQ(client_do(fd, 0, NBD_CMD_TRIM, offset, UINT32_MAX, NULL), 0);
        EXPECT_EQ(client_do(fd, NBD_CMD_FLAG_FAST_ZERO, NBD_CMD_WRITE_ZEROES, offset, UINT32_MAX, NULL), 0);
    }
    uint64_t took_ms = (env_now_ns(env_os()) - begin) / NS_PER_MS;
    printf("# 192 requests of 4 GiB each: %llu ms\n", (unsigned long long)took_ms);
    EXPECT(took_ms < 10000);
    close(fd);
    stack_end(&s);
}

int main(void)
{
    RUN(names_of_volumes);
    RUN(no_volume_and_one_volume);
    RUN(read_only_pools);
    RUN(rule_25_each_durable_command_flushes_the_device);
    RUN(rule_27_fua_on_what_was_done_without_it);
    RUN(rule_27_no_reply_before_the_flush);
    RUN(a12391_a_failing_device_fails_every_durable_command);
    RUN(b29_a_full_pool);
    RUN(rule_43_large_and_empty);
    return tap_done();
}
