/*
 * libashlar, submitted calls: each completes exactly once, the eventfd tells, bounds hold, handles cannot be closed
 * under calls, every call has its twin, and many threads may do it all at once.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "library_fixture.h"

static void nap(int ms)
{
    struct timespec t = {0, ms > 0 ? ms * 1000000L : 100000L};
    nanosleep(&t, NULL);
}

static bool readable(struct ashlar_queue *q)
{
    struct pollfd fd = {.fd = ashlar_queue_fd(q), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

/* Reaps one completion, waiting for it; its result. */
static int wait_one(struct ashlar_queue *q, struct ashlar_completion *c)
{
    return ashlar_queue_wait(q, c, 1, 20000) == 1 ? c->result : -ETIMEDOUT;
}

static void test_write_and_read(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c;
    static unsigned char in[100000], back[100000];
    int here;
    REQUIRE(fixture_new(&f, NULL));
    REQUIRE(ashlar_queue_new(0, 0, &q, &f.error) == 0);
    fill(in, sizeof(in), 3);
    EXPECT(!readable(q));
    EXPECT_EQ(ashlar_queue_reap(q, &c, 1), 0);
    EXPECT_EQ(ashlar_submit_write(q, f.volume, in, sizeof(in), 777, ASHLAR_FUA, &here), 0);
    EXPECT_EQ(ashlar_queue_pending(q), 1);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT(c.user == &here);
    EXPECT_TEXT(c.text, "");
    EXPECT_EQ(ashlar_queue_pending(q), 0);
    EXPECT(!readable(q));
    EXPECT_EQ(ashlar_submit_read(q, f.volume, back, sizeof(back), 777, 0, NULL), 0);
    for (int i = 0; i < 20000 && !readable(q); i++)
        nap(1);
    EXPECT(readable(q));
    EXPECT_EQ(ashlar_queue_reap(q, &c, 1), 1);
    EXPECT_EQ(c.result, 0);
    EXPECT(c.user == NULL);
    EXPECT(memcmp(in, back, sizeof(in)) == 0);
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

static void test_other_io(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c;
    struct ashlar_extent extents[8];
    size_t count = 0;
    unsigned char b[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8] = {0};
    struct iovec iov[6];
    REQUIRE(fixture_new(&f, NULL));
    REQUIRE(ashlar_queue_new(0, 0, &q, &f.error) == 0);
    for (int i = 0; i < 6; i++)
        iov[i] = (struct iovec){b + i, 1};
    EXPECT_EQ(ashlar_submit_writev(q, f.volume, iov, 6, 0, 0, NULL), 0);
    memset(iov, 0, sizeof(iov)); /* the array was copied */
    EXPECT_EQ(wait_one(q, &c), 0);
    for (int i = 0; i < 6; i++)
        iov[i] = (struct iovec){back + i, 1};
    EXPECT_EQ(ashlar_submit_readv(q, f.volume, iov, 6, 0, 0, NULL), 0);
    memset(iov, 0, sizeof(iov));
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT(memcmp(b, back, 6) == 0);
    EXPECT_EQ(ashlar_submit_extents(q, f.volume, MIB_BYTES, 0, 0, extents, 8, &count, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT(count > 0);
    EXPECT_EQ(extents[0].kind, ASHLAR_EXTENT_DATA);
    EXPECT_EQ(ashlar_submit_trim(q, f.volume, 3, 0, 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_zero(q, f.volume, 1, 5, ASHLAR_FUA, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_flush(q, f.volume, 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_read(f.volume, back, 8, 0, 0, NULL), 0);
    EXPECT(memcmp(back, "\0\0\0\4\5\0\0\0", 8) == 0);
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

static void test_errors_come_as_completions(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c;
    char b[16];
    int here;
    REQUIRE(fixture_new(&f, NULL));
    REQUIRE(ashlar_queue_new(0, 0, &q, &f.error) == 0);
    EXPECT_EQ(ashlar_submit_read(q, f.volume, b, sizeof(b), 64 * MIB_BYTES, 0, &here), 0);
    EXPECT_EQ(wait_one(q, &c), -EINVAL);
    EXPECT(c.user == &here);
    EXPECT(strstr(c.text, "16 bytes at 67108864 leave its 67108864 bytes") != NULL);
    /* These were never submitted. */
    EXPECT_EQ(ashlar_submit_read(q, f.volume, b, sizeof(b), 0, 0x80, &here), -EINVAL);
    EXPECT_EQ(ashlar_submit_read(q, NULL, b, sizeof(b), 0, 0, &here), -EINVAL);
    EXPECT_EQ(ashlar_submit_read(NULL, f.volume, b, sizeof(b), 0, 0, &here), -EINVAL);
    EXPECT_EQ(ashlar_submit_read(q, f.volume, NULL, 1, 0, 0, &here), -EINVAL);
    EXPECT_EQ(ashlar_submit_volume_open(q, f.pool, NULL, 0, &f.volume, &here), -EINVAL);
    EXPECT_EQ(ashlar_queue_pending(q), 0);
    EXPECT_EQ(ashlar_queue_wait(q, &c, 1, -1), 0); /* nothing is in flight: it does not wait */
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

static void test_bounds(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c[8];
    char b[512];
    unsigned accepted = 0;
    REQUIRE(fixture_new(&f, NULL));
    REQUIRE(ashlar_queue_new(4, 0, &q, &f.error) == 0);
    for (int i = 0; i < 8; i++) {
        int r = ashlar_submit_read(q, f.volume, b, sizeof(b), 0, 0, NULL);
        accepted += r == 0;
        EXPECT(r == 0 || r == -EAGAIN);
    }
    EXPECT_EQ(accepted, 4);
    EXPECT_EQ(ashlar_queue_free(q), -EBUSY);
    for (unsigned reaped = 0; reaped < 4;) {
        unsigned n = ashlar_queue_wait(q, c, 8, 20000);
        REQUIRE(n > 0);
        reaped += n;
    }
    EXPECT_EQ(ashlar_submit_read(q, f.volume, b, sizeof(b), 0, 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c[0]), 0);
    EXPECT_EQ(ashlar_queue_free(q), 0);
    EXPECT_EQ(ashlar_queue_free(NULL), 0);
    EXPECT_EQ(ashlar_queue_new(0, 1, &q, &f.error), -EINVAL);
    fixture_remove(&f);
}

static void test_wait_times_out(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c;
    struct ashlar_pool *pool = NULL;
    REQUIRE(fixture_directory(&f));
    REQUIRE(ashlar_queue_new(0, 0, &q, &f.error) == 0);
    /* A job for the queue's own thread, which it may not have finished at once; then all of it. */
    EXPECT_EQ(ashlar_submit_pool_open(q, "/nowhere/pool", NULL, 0, &pool, &f), 0);
    while (ashlar_queue_wait(q, &c, 1, 1) == 0)
        ;
    EXPECT_EQ(c.result, -ENOENT);
    EXPECT(c.user == &f);
    EXPECT(strstr(c.text, "/nowhere/pool") != NULL);
    EXPECT(pool == NULL);
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

/* The whole life of a pool without one call that waits. */
static void test_every_call(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c;
    struct ashlar_pool *pool = NULL;
    struct ashlar_volume *volume = NULL;
    struct ashlar_volume_options options = ASHLAR_VOLUME_OPTIONS_INIT;
    struct ashlar_open_options open_options = ASHLAR_OPEN_OPTIONS_INIT;
    char compression[16] = "lz4";
    REQUIRE(fixture_directory(&f));
    REQUIRE(ashlar_queue_new(0, 0, &q, &f.error) == 0);
    EXPECT_EQ(ashlar_submit_pool_create(q, f.path, POOL_SIZE, NULL, 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    open_options.cache_bytes = 64 * MIB_BYTES;
    EXPECT_EQ(ashlar_submit_pool_open(q, f.path, &open_options, 0, &pool, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    REQUIRE(pool != NULL);
    options.size_bytes = 64 * MIB_BYTES;
    options.compression = compression;
    EXPECT_EQ(ashlar_submit_volume_create(q, pool, "a", &options, 0, NULL), 0);
    memset(compression, 'x', sizeof(compression)); /* it was copied */
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_volume_rename(q, pool, "a", "b", 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_volume_resize(q, pool, "b", MIB_BYTES, 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_volume_set_compression(q, pool, "b", "zstd-2", 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_volume_open(q, pool, "b", 0, &volume, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_volume_size(volume), MIB_BYTES);
    EXPECT_EQ(ashlar_submit_volume_destroy(q, pool, "b", 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), -EBUSY);
    EXPECT_EQ(ashlar_volume_close(volume), 0);
    EXPECT_EQ(ashlar_submit_volume_destroy(q, pool, "b", 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_pool_flush(q, pool, 0, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_submit_pool_close(q, pool, NULL), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

static void test_handles_are_held(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    struct ashlar_completion c;
    static unsigned char in[8 * MIB_BYTES];
    unsigned busy = 0;
    REQUIRE(fixture_new(&f, "zstd-19"));
    REQUIRE(ashlar_queue_new(0, 0, &q, &f.error) == 0);
    fill(in, sizeof(in), 5);
    /* A flush of so much takes a while: meanwhile the volume and the pool cannot be closed. */
    EXPECT_EQ(ashlar_write(f.volume, in, sizeof(in), 0, 0, &f.error), 0);
    EXPECT_EQ(ashlar_submit_flush(q, f.volume, 0, NULL), 0);
    EXPECT_EQ(ashlar_submit_pool_flush(q, f.pool, 0, NULL), 0);
    busy += ashlar_pool_close(f.pool, &f.error) == -EBUSY;
    EXPECT_EQ(busy, 1);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(wait_one(q, &c), 0);
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

/* ---- many threads ---- */

enum { THREADS = 4, CALLS = 2000, BLOCK = 4096 };

struct worker {
    struct ashlar_queue *queue;
    struct ashlar_volume *volume;
    unsigned number;
    _Atomic unsigned *counts; /* completions of each call */
    unsigned char block[BLOCK];
    unsigned failed;
};

static void *submit_many(void *arg)
{
    struct worker *w = arg;
    for (unsigned i = 0; i < CALLS; i++) {
        void *user = &w->counts[w->number * CALLS + i];
        uint64_t offset = ((uint64_t)w->number * 256 + i % 256) * BLOCK;
        int r;
        do {
            r = i % 3 == 0   ? ashlar_submit_write(w->queue, w->volume, w->block, BLOCK, offset, 0, user)
                : i % 3 == 1 ? ashlar_submit_zero(w->queue, w->volume, 100, offset, 0, user)
                             : ashlar_submit_trim(w->queue, w->volume, 100, offset + 512, 0, user);
            if (r == -EAGAIN)
                nap(0);
        } while (r == -EAGAIN);
        w->failed += r != 0;
    }
    return NULL;
}

struct reaper {
    struct ashlar_queue *queue;
    _Atomic unsigned *left;
    unsigned errors;
};

static void *reap_many(void *arg)
{
    struct reaper *r = arg;
    struct ashlar_completion c[16];
    while (atomic_load(r->left) > 0) {
        unsigned n = ashlar_queue_wait(r->queue, c, 16, 50);
        for (unsigned i = 0; i < n; i++) {
            r->errors += c[i].result != 0;
            atomic_fetch_add((_Atomic unsigned *)c[i].user, 1);
            atomic_fetch_sub(r->left, 1);
        }
        if (n == 0)
            nap(1);
    }
    return NULL;
}

static void test_threads(void)
{
    struct fixture f;
    struct ashlar_queue *q;
    static _Atomic unsigned counts[THREADS * CALLS];
    static struct worker workers[THREADS];
    static _Atomic unsigned left = THREADS * CALLS;
    struct reaper reapers[2];
    pthread_t submitting[THREADS], reaping[2];
    unsigned once = 0, failed = 0;
    REQUIRE(fixture_new(&f, "lz4"));
    REQUIRE(ashlar_queue_new(64, 0, &q, &f.error) == 0);
    for (unsigned i = 0; i < 2; i++) {
        reapers[i] = (struct reaper){.queue = q, .left = &left};
        REQUIRE(pthread_create(&reaping[i], NULL, reap_many, &reapers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.queue = q, .volume = f.volume, .number = i, .counts = counts};
        REQUIRE(pthread_create(&submitting[i], NULL, submit_many, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(submitting[i], NULL);
        failed += workers[i].failed;
    }
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(reaping[i], NULL);
        failed += reapers[i].errors;
    }
    for (unsigned i = 0; i < THREADS * CALLS; i++)
        once += atomic_load(&counts[i]) == 1;
    EXPECT_EQ(once, THREADS * CALLS);
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(ashlar_queue_pending(q), 0);
    EXPECT(!readable(q));
    EXPECT_EQ(ashlar_queue_free(q), 0);
    fixture_remove(&f);
}

int main(void)
{
    RUN(test_write_and_read);
    RUN(test_other_io);
    RUN(test_errors_come_as_completions);
    RUN(test_bounds);
    RUN(test_wait_times_out);
    RUN(test_every_call);
    RUN(test_handles_are_held);
    RUN(test_threads);
    return tap_done();
}
