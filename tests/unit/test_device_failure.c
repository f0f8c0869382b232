/*
 * Conformance in failure: on every implementation of a device, what fails is told, cancels what was to follow, and
 * where nobody knows what reached the device it is for good.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "env/device_impl.h"
#include "test_device_fixture.h"

static void test_past_the_end(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    EXPECT_EQ(device_read(f.dev, DEVICE_BYTES, f.buf, PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, DEVICE_BYTES - PAGE, f.buf, 2 * PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, UINT64_MAX - PAGE + 1, f.buf, PAGE), -EIO);
    EXPECT_EQ(device_read(f.dev, DEVICE_BYTES - PAGE, f.buf, PAGE), 0);
    EXPECT(!f.dev->failed);

    /* A failed read cancels what comes after it, and that is no failure of the device. */
    struct iovec iov = {.iov_base = f.buf, .iov_len = PAGE};
    struct device_io ios[3] = {io_of(DEVICE_READ, DEVICE_PAGES, &iov, 1),
                               {.kind = DEVICE_FLUSH, .after_previous = true},
                               io_of(DEVICE_READ, 0, &iov, 1)};
    EXPECT_EQ(device_run(f.dev, ios, 3), -EIO);
    EXPECT_EQ(ios[1].result, -ECANCELED);
    EXPECT_EQ(ios[2].result, 0);
    EXPECT_EQ(f.dev->stats.flushes, 0);
    EXPECT(!f.dev->failed);

    EXPECT_EQ(device_write(f.dev, DEVICE_BYTES, f.buf, PAGE), -EIO);
    EXPECT(f.dev->failed);
    EXPECT_EQ(device_write(f.dev, 0, f.buf, PAGE), -EIO);
    fixture_fini(&f);
}

/* The next writes fail, from page 8 on in files (a limit on the file size), any page in the simulation. */
static void writes_begin_to_fail(struct fixture *f)
{
    if (target == TARGET_SIM) {
        sim_disk_fail(f->disk, DEVICE_WRITE, 1, -EFBIG, true);
        return;
    }
    struct rlimit limit;
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 8 * PAGE;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void writes_stop_to_fail(void)
{
    struct rlimit limit;
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void expect_failed_for_good(struct fixture *f)
{
    uint64_t flushes = f->dev->stats.flushes, writes = f->dev->stats.writes;
    struct device_io punch = range_io(DEVICE_PUNCH, 0, 1), allocate = range_io(DEVICE_ALLOCATE, 0, 1);
    EXPECT(f->dev->failed);
    EXPECT_EQ(device_write(f->dev, 0, f->buf, PAGE), -EIO);
    EXPECT_EQ(device_flush(f->dev), -EIO);
    EXPECT_EQ(device_run(f->dev, &punch, 1), -EIO);
    EXPECT_EQ(device_run(f->dev, &allocate, 1), -EIO);
    EXPECT_EQ(device_resize(f->dev, DEVICE_BYTES + PAGE), -EIO);
    EXPECT_EQ(f->dev->stats.writes, writes);
    EXPECT_EQ(f->dev->stats.flushes, flushes);
    struct iovec iov = {.iov_base = f->buf, .iov_len = PAGE};
    struct device_io mixed[3] = {
        io_of(DEVICE_READ, 0, &iov, 1), {.kind = DEVICE_FLUSH, .after_previous = true}, io_of(DEVICE_READ, 1, &iov, 1)};
    EXPECT_EQ(device_run(f->dev, mixed, 3), -EIO);
    EXPECT_EQ(mixed[0].result, 0);
    EXPECT_EQ(mixed[1].result, -EIO);
    EXPECT_EQ(mixed[2].result, 0);
}

/* A write that fails after it was half done: the flush behind it is cancelled, the device is failed. */
static void test_failed_write_is_for_good(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    EXPECT_EQ(device_write(f.dev, 0, f.buf, 16 * PAGE), 0);
    EXPECT_EQ(device_flush(f.dev), 0);
    writes_begin_to_fail(&f);
    memset(f.buf, 1, 16 * PAGE);
    struct iovec iov = {.iov_base = f.buf, .iov_len = 16 * PAGE};
    struct device_io ios[2] = {io_of(DEVICE_WRITE, 0, &iov, 1), {.kind = DEVICE_FLUSH, .after_previous = true}};
    EXPECT_EQ(device_run(f.dev, ios, 2), -EFBIG);
    EXPECT_EQ(ios[0].result, -EFBIG);
    EXPECT_EQ(ios[1].result, -ECANCELED);
    writes_stop_to_fail();
    EXPECT_EQ(f.dev->stats.flushes, 1);
    expect_failed_for_good(&f);
    fixture_fini(&f);
}

/* The same where several writes were on their way at once; some of them succeed. */
static void test_failed_write_among_several(void)
{
    enum { SEVERAL = 12 };
    struct fixture f;
    if (!fixture_init(&f))
        return;
    struct iovec iov[SEVERAL];
    struct device_io ios[SEVERAL + 1];
    if (target == TARGET_SIM)
        sim_disk_fail(f.disk, DEVICE_WRITE, 5, -EFBIG, false);
    else
        writes_begin_to_fail(&f);
    for (size_t i = 0; i < SEVERAL; i++) {
        iov[i] = (struct iovec){.iov_base = f.buf, .iov_len = PAGE};
        ios[i] = io_of(DEVICE_WRITE, i, &iov[i], 1);
    }
    ios[SEVERAL] = (struct device_io){.kind = DEVICE_FLUSH, .after_previous = true};
    EXPECT_EQ(device_run(f.dev, ios, SEVERAL + 1), -EFBIG);
    writes_stop_to_fail();
    size_t failed = 0;
    for (size_t i = 0; i < SEVERAL; i++)
        failed += ios[i].result != 0;
    EXPECT_EQ(failed, target == TARGET_SIM ? 1 : 4);
    EXPECT_EQ(ios[SEVERAL].result, -ECANCELED);
    EXPECT_EQ(f.dev->stats.writes, SEVERAL - failed);
    expect_failed_for_good(&f);
    fixture_fini(&f);
}

static void test_failed_flush_is_for_good(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    int kept = -1, pipe_ends[2] = {-1, -1};
    if (target == TARGET_SIM) {
        sim_disk_fail(f.disk, DEVICE_FLUSH, 1, -EINVAL, false);
    } else {
        /* A pipe cannot be synced. */
        kept = dup(device_file_of(f.dev)->fd);
        REQUIRE(kept >= 0 && pipe(pipe_ends) == 0);
        REQUIRE(dup2(pipe_ends[0], device_file_of(f.dev)->fd) >= 0);
    }
    EXPECT_EQ(device_flush(f.dev), -EINVAL);
    if (kept >= 0) {
        EXPECT(dup2(kept, device_file_of(f.dev)->fd) >= 0);
        (void)close(kept);
        (void)close(pipe_ends[0]);
        (void)close(pipe_ends[1]);
    }
    expect_failed_for_good(&f);
    fixture_fini(&f);
}

static void test_file_that_became_short(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    if (target == TARGET_SIM) {
        tap_skip("a simulated disk does not shrink behind the back of its device");
    } else {
        EXPECT_EQ(truncate(f.path, 8 * PAGE + 512), 0);
        EXPECT_EQ(device_read(f.dev, 7 * PAGE, f.buf, PAGE), 0);
        EXPECT_EQ(device_read(f.dev, 7 * PAGE, f.buf, 4 * PAGE), -EIO);
        struct iovec iov = {.iov_base = f.buf, .iov_len = PAGE};
        struct device_io ios[2] = {io_of(DEVICE_READ, 1, &iov, 1), io_of(DEVICE_READ, 100, &iov, 1)};
        EXPECT_EQ(device_run(f.dev, ios, 2), -EIO);
        EXPECT_EQ(ios[0].result, 0);
        EXPECT(!f.dev->failed);
    }
    fixture_fini(&f);
}

static bool aborts(struct fixture *f, struct device_io io)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(STDOUT_FILENO);
        (void)close(STDERR_FILENO);
        int ignored = device_run(f->dev, &io, 1);
        _exit(ignored == 0 ? 0 : 1);
    }
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_misuse_aborts(void)
{
    struct fixture f;
    if (!fixture_init(&f))
        return;
    struct iovec page = {f.buf, PAGE}, odd_buffer = {f.buf + 512, PAGE}, sector = {f.buf, 512};
    struct device_io io = io_of(DEVICE_READ, 0, &page, 1);
    io.offset_bytes = 512;
    EXPECT(aborts(&f, io));
    EXPECT(aborts(&f, io_of(DEVICE_READ, 0, &odd_buffer, 1)));
    EXPECT(aborts(&f, io_of(DEVICE_WRITE, 0, &sector, 1)));
    io = io_of(DEVICE_WRITE, 0, &page, 1);
    io.length_bytes = 2 * PAGE;
    EXPECT(aborts(&f, io));
    EXPECT(aborts(&f, range_io(DEVICE_PUNCH, 0, 0)));
    EXPECT(aborts(&f, (struct device_io){.kind = DEVICE_FLUSH, .length_bytes = PAGE}));
    EXPECT(!aborts(&f, io_of(DEVICE_READ, 0, &page, 1)));
    fixture_fini(&f);
}

static void checks(void)
{
    RUN(test_past_the_end);
    RUN(test_failed_write_is_for_good);
    RUN(test_failed_write_among_several);
    RUN(test_failed_flush_is_for_good);
    RUN(test_file_that_became_short);
    RUN(test_misuse_aborts);
}

int main(void)
{
    /* A write over the limit on the file size shall fail, not kill. */
    (void)sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    return conformance_main(checks);
}
