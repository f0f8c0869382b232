/*
 * Flushes from many threads at once, with an fdatasync of our own in place of the system's: each flush that returns
 * success had one to itself, begun after it was asked for; and a writeback that fails is told to everybody who has to
 * know although the kernel tells it once.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "env/device.h"
#include "tap.h"

#define PAGE 4096
#define THREADS 8
#define ROUNDS 30

/* What the fdatasync below knows; guarded by lock. */
static struct {
    struct env_mutex lock;
    uint64_t clock;      /* counts beginnings and ends */
    uint64_t last_whole; /* when the newest fdatasync that has ended began */
    unsigned calls, running, running_max;
    bool dirty_is_lost; /* a writeback has failed and nobody was told */
} syncs;

static char path[256];

/* Overrides the C library's: the device calls this one. */
int fdatasync(int fd)
{
    (void)fd;
    env_mutex_lock(&syncs.lock);
    uint64_t began = ++syncs.clock;
    syncs.calls++;
    syncs.running++;
    if (syncs.running > syncs.running_max)
        syncs.running_max = syncs.running;
    env_mutex_unlock(&syncs.lock);
    env_sleep_ns(env_os(), 300000);
    env_mutex_lock(&syncs.lock);
    bool fails = syncs.dirty_is_lost;
    syncs.dirty_is_lost = false;
    syncs.running--;
    if (began > syncs.last_whole)
        syncs.last_whole = began;
    env_mutex_unlock(&syncs.lock);
    if (fails)
        env_sleep_ns(env_os(), 2000000); /* the news takes its time to arrive */
    errno = EIO;
    return fails ? -1 : 0;
}

struct flusher {
    struct device *dev;
    unsigned ok, uncovered;
};

static void flush_and_check(void *arg)
{
    struct flusher *f = arg;
    for (int i = 0; i < ROUNDS; i++) {
        env_mutex_lock(&syncs.lock);
        uint64_t asked = ++syncs.clock;
        env_mutex_unlock(&syncs.lock);
        int ret = device_flush(f->dev);
        env_mutex_lock(&syncs.lock);
        f->ok += ret == 0;
        f->uncovered += ret == 0 && syncs.last_whole < asked;
        env_mutex_unlock(&syncs.lock);
    }
}

/* All threads at once; true if the device could be had. */
static bool flush_from_all(unsigned flags, bool writeback_fails, struct flusher *ret_sum)
{
    struct device *dev = NULL;
    struct error err = {0};
    struct env_thread *threads[THREADS];
    struct flusher flushers[THREADS];
    memset(ret_sum, 0, sizeof *ret_sum);
    if (device_open(env_os(), path, flags, 16 * PAGE, &dev, &err) != 0) {
        printf("# %s\n", err.text);
        return false;
    }
    env_mutex_lock(&syncs.lock);
    syncs.calls = syncs.running_max = 0;
    syncs.dirty_is_lost = writeback_fails;
    env_mutex_unlock(&syncs.lock);
    for (int i = 0; i < THREADS; i++) {
        flushers[i] = (struct flusher){.dev = dev};
        EXPECT_EQ(env_thread_start(env_os(), "flusher", flush_and_check, &flushers[i], &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        env_thread_join(threads[i]);
        ret_sum->ok += flushers[i].ok;
        ret_sum->uncovered += flushers[i].uncovered;
    }
    EXPECT_EQ(dev->failed, writeback_fails);
    EXPECT_EQ(dev->stats.flushes, ret_sum->ok);
    device_close(dev);
    EXPECT_EQ(unlink(path), 0);
    return true;
}

static void test_each_flush_is_covered(void)
{
    static const unsigned flags[] = {DEVICE_OPEN_BUFFERED, DEVICE_OPEN_PLAIN, 0};
    for (size_t i = 0; i < 3; i++) {
        struct flusher sum;
        REQUIRE(flush_from_all(DEVICE_OPEN_CREATE | flags[i], false, &sum));
        EXPECT_EQ(sum.ok, THREADS * ROUNDS);
        EXPECT_EQ(sum.uncovered, 0);
        if (flags[i] == DEVICE_OPEN_BUFFERED) {
            EXPECT_EQ(syncs.running_max, 1);
            EXPECT(syncs.calls < THREADS * ROUNDS); /* they share */
        }
    }
}

/* The one fdatasync that is told runs while the others wait; nobody may be told that all is well. */
static void test_failed_writeback_is_told_to_all(void)
{
    struct flusher sum;
    REQUIRE(flush_from_all(DEVICE_OPEN_CREATE | DEVICE_OPEN_BUFFERED, true, &sum));
    EXPECT_EQ(sum.ok, 0);
    EXPECT_EQ(syncs.calls, 1); /* and none is tried again */
}

int main(void)
{
    const char *root = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/ashlar-flush-%d", root != NULL ? root : "/var/tmp", (int)getpid());
    env_mutex_init(&syncs.lock, env_os());
    RUN(test_each_flush_is_covered);
    RUN(test_failed_writeback_is_told_to_all);
    env_mutex_destroy(&syncs.lock);
    return tap_done();
}
