/*
 * Opening devices: what is refused and with which words, locks between processes, creation, file systems without
 * O_DIRECT, punching or room.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/math.h"
#include "env/device.h"
#include "tap.h"

#define PAGE 4096

static char directory[200];
static char path[256];

static void path_set(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
}

/* The result; the device is closed again. The error text must hold `words` and the path. */
static int try_open(unsigned flags, uint64_t size_bytes, const char *words)
{
    struct device *dev = NULL;
    struct error err = {0};
    int ret = device_open(env_os(), path, flags, size_bytes, &dev, &err);
    if (ret == 0) {
        EXPECT_EQ(err.code, 0);
        device_close(dev);
        return 0;
    }
    EXPECT(dev == NULL);
    EXPECT_EQ(err.code, ret);
    EXPECT(strchr(err.text, '\n') == NULL);
    if (strstr(err.text, words) == NULL || strstr(err.text, path) == NULL) {
        tap_fail(__FILE__, __LINE__, words);
        printf("# text: %s\n", err.text);
    }
    return ret;
}

static void test_refusals(void)
{
    path_set("missing");
    EXPECT_EQ(try_open(0, 0, "does not exist"), -ENOENT);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY, 0, "does not exist"), -ENOENT);
    path_set("no/such/directory");
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, PAGE, "directory does not exist"), -ENOENT);
    path_set(".");
    EXPECT_EQ(try_open(0, 0, "is a directory"), -EINVAL);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY, 0, "is a directory"), -EINVAL);
    path_set("pipe");
    REQUIRE(mkfifo(path, 0600) == 0);
    EXPECT_EQ(try_open(0, 0, "is a pipe"), -EINVAL);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY, 0, "is a pipe"), -EINVAL);
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, PAGE, "exists already"), -EEXIST);
    EXPECT_EQ(unlink(path), 0);
    snprintf(path, sizeof path, "/dev/null");
    EXPECT_EQ(try_open(0, 0, "is a character device"), -EINVAL);
}

static void test_no_permission(void)
{
    path_set("locked-away");
    REQUIRE(try_open(DEVICE_OPEN_CREATE, PAGE, "") == 0);
    REQUIRE(chmod(path, 0) == 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        /* Root may read everything; the child becomes nobody. */
        bool nobody = geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0);
        _exit(nobody && try_open(0, 0, "no permission") == -EACCES ? 0 : 1);
    }
    int status = 0;
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(unlink(path), 0);
}

static void test_creation(void)
{
    struct stat st;
    path_set("new");
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, 64 * MIB, ""), 0);
    REQUIRE(stat(path, &st) == 0);
    EXPECT_EQ(st.st_size, 64 * MIB);
    EXPECT_EQ(st.st_mode & 0777, 0600);
    EXPECT(st.st_blocks < 1024); /* sparse */
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, PAGE, "exists already"), -EEXIST);
    REQUIRE(stat(path, &st) == 0);
    EXPECT_EQ(st.st_size, 64 * MIB);
    EXPECT_EQ(unlink(path), 0);
    /* What cannot be made leaves nothing behind. */
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, UINT64_C(1) << 63, "choose less"), -EFBIG);
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, INT64_MAX - PAGE + 1, "choose less"), -EFBIG);
    EXPECT(stat(path, &st) < 0 && errno == ENOENT);
}

static void test_odd_size(void)
{
    struct device *dev = NULL;
    struct error err = {0};
    path_set("odd");
    REQUIRE(try_open(DEVICE_OPEN_CREATE, 4 * PAGE, "") == 0);
    EXPECT_EQ(truncate(path, 3 * PAGE + 100), 0);
    REQUIRE(device_open(env_os(), path, 0, 0, &dev, &err) == 0);
    EXPECT_EQ(dev->info.size_bytes, 3 * PAGE);
    device_close(dev);
    EXPECT_EQ(truncate(path, 0), 0);
    REQUIRE(device_open(env_os(), path, 0, 0, &dev, &err) == 0);
    EXPECT_EQ(dev->info.size_bytes, 0);
    void *buf = device_buffer_new(PAGE);
    EXPECT_EQ(device_read(dev, 0, buf, PAGE), -EIO);
    device_buffer_free(buf);
    device_close(dev);
    EXPECT_EQ(unlink(path), 0);
}

/* A child that holds the device; killed by holder_stop. Returns its pid once it has it. */
static pid_t holder_start(unsigned flags)
{
    int pipe_ends[2];
    char byte = 'n';
    if (pipe(pipe_ends) != 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct device *dev;
        struct error err = {0};
        byte = device_open(env_os(), path, flags, 0, &dev, &err) == 0 ? 'y' : 'n';
        if (write(pipe_ends[1], &byte, 1) == 1)
            for (;;)
                (void)pause();
        _exit(1);
    }
    bool has = read(pipe_ends[0], &byte, 1) == 1 && byte == 'y';
    EXPECT(has);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
    return pid;
}

static void holder_stop(pid_t pid)
{
    int status;
    EXPECT_EQ(kill(pid, SIGKILL), 0);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
}

static void test_locks(void)
{
    path_set("shared");
    REQUIRE(try_open(DEVICE_OPEN_CREATE, 4 * PAGE, "") == 0);
    char words[64];
    pid_t pid = holder_start(0);
    REQUIRE(pid > 0);
    snprintf(words, sizeof words, "in use by process %d (", (int)pid);
    EXPECT_EQ(try_open(0, 0, words), -EBUSY);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY, 0, words), -EBUSY);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY | DEVICE_OPEN_NO_LOCK, 0, ""), 0);
    holder_stop(pid);
    EXPECT_EQ(try_open(0, 0, ""), 0); /* the lock went with the process */

    pid = holder_start(DEVICE_OPEN_READ_ONLY);
    REQUIRE(pid > 0);
    EXPECT_EQ(try_open(0, 0, "in use by process"), -EBUSY);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY, 0, ""), 0);
    holder_stop(pid);

    /* Twice in one process is refused as well; closing gives the lock back at once, also with rings. */
    struct device *dev = NULL;
    struct error err = {0};
    for (int i = 0; i < 20; i++) {
        REQUIRE(device_open(env_os(), path, 0, 0, &dev, &err) == 0);
        EXPECT_EQ(try_open(0, 0, "in use by process"), -EBUSY);
        device_close(dev);
    }
    EXPECT_EQ(unlink(path), 0);
}

/*
 * A small file system on `directory`/mounted, in a mount namespace of our own so that it goes with the process; false
 * where that is not allowed.
 */
static bool mount_small(const char *type, const char *options)
{
    static bool alone;
    path_set("mounted");
    alone = alone || (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    if (!alone || mkdir(path, 0700) != 0) {
        tap_skip("mounting is not permitted");
        return false;
    }
    if (mount("none", path, type, 0, options) == 0) {
        path_set("mounted/device");
        return true;
    }
    (void)rmdir(path);
    tap_skip("this file system is not to be had");
    return false;
}

static void unmount_small(void)
{
    (void)unlink(path);
    path_set("mounted");
    EXPECT_EQ(umount(path), 0);
    EXPECT_EQ(rmdir(path), 0);
}

static int allocate(struct device *dev, uint64_t offset_bytes, uint64_t length_bytes)
{
    struct device_io io = {.kind = DEVICE_ALLOCATE, .offset_bytes = offset_bytes, .length_bytes = length_bytes};
    return device_run(dev, &io, 1);
}

/* A host without room: allocating says so and harms nothing; a write that finds none is a failed write. */
static void test_host_is_full(void)
{
    if (!mount_small("tmpfs", "size=1m"))
        return;
    struct device *dev = NULL;
    struct error err = {0};
    uint8_t *buf = device_buffer_new(MIB);
    REQUIRE(device_open(env_os(), path, DEVICE_OPEN_CREATE, 4 * MIB, &dev, &err) == 0);
    EXPECT_EQ(allocate(dev, 0, MIB / 2), 0);
    EXPECT_EQ(allocate(dev, MIB, MIB), -ENOSPC);
    EXPECT(!dev->failed);
    EXPECT_EQ(device_write(dev, 0, buf, MIB / 2), 0);
    EXPECT_EQ(device_flush(dev), 0);
    EXPECT_EQ(device_write(dev, MIB, buf, MIB), -ENOSPC);
    EXPECT(dev->failed);
    EXPECT_EQ(device_flush(dev), -EIO);
    EXPECT_EQ(device_read(dev, 0, buf, MIB), 0);
    device_close(dev);
    device_buffer_free(buf);
    unmount_small();
}

/* ramfs has neither O_DIRECT nor punching nor allocating: the last is done by writing zeroes. */
static void test_poor_file_system(void)
{
    if (!mount_small("ramfs", ""))
        return;
    struct device *dev = NULL;
    struct error err = {0};
    uint8_t *buf = device_buffer_new(2 * MIB);
    REQUIRE(device_open(env_os(), path, DEVICE_OPEN_CREATE, 4 * MIB, &dev, &err) == 0);
    EXPECT(!dev->info.is_direct);
    EXPECT(!dev->info.can_punch);
    EXPECT_TEXT(dev->info.engine, "plain");
    memset(buf, 1, 2 * MIB);
    EXPECT_EQ(device_write(dev, 0, buf, 2 * MIB), 0);
    struct device_io punch = {.kind = DEVICE_PUNCH, .length_bytes = PAGE};
    EXPECT_EQ(device_run(dev, &punch, 1), -EOPNOTSUPP);
    EXPECT(!dev->failed);
    EXPECT_EQ(allocate(dev, MIB / 2, MIB + 5 * PAGE), 0);
    EXPECT_EQ(device_read(dev, 0, buf, 2 * MIB), 0);
    size_t ones = 0;
    for (size_t i = 0; i < 2 * MIB; i++)
        ones += buf[i];
    EXPECT_EQ(ones, 2 * MIB - (MIB + 5 * PAGE));
    EXPECT_EQ(buf[MIB / 2 - 1], 1);
    EXPECT_EQ(buf[MIB / 2 + MIB + 5 * PAGE], 1);
    device_close(dev);
    device_buffer_free(buf);
    unmount_small();
}

/* A loop device on a new file; our descriptor to it, which keeps it. `path` becomes its name. -1: not permitted. */
static int loop_start(void)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control >= 0 ? ioctl(control, LOOP_CTL_GET_FREE) : -1;
    if (control >= 0)
        (void)close(control);
    if (number < 0)
        return -1;
    path_set("loop-file");
    int backing = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    EXPECT_EQ(ftruncate(backing, 16 * MIB), 0);
    EXPECT_EQ(unlink(path), 0);
    snprintf(path, sizeof path, "/dev/loop%d", number);
    int loop = open(path, O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (unsigned)backing, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
    if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) < 0) {
        (void)close(loop);
        loop = -1;
    }
    (void)close(backing);
    return loop;
}

static void block_device_checks(struct device *dev, uint8_t *buf)
{
    EXPECT(dev->info.is_block_device);
    EXPECT(dev->info.can_punch);
    EXPECT_EQ(dev->info.size_bytes, 16 * MIB);
    EXPECT_EQ(dev->info.logical_sector_bytes, 512);
    EXPECT(dev->info.physical_sector_bytes >= 512);
    memset(buf, 7, MIB);
    EXPECT_EQ(device_write(dev, 15 * MIB, buf, MIB), 0);
    EXPECT_EQ(device_flush(dev), 0);
    struct device_io punch = {.kind = DEVICE_PUNCH, .offset_bytes = 15 * MIB, .length_bytes = MIB / 2};
    EXPECT_EQ(device_run(dev, &punch, 1), 0);
    EXPECT_EQ(device_read(dev, 15 * MIB, buf, MIB), 0);
    EXPECT(buf[0] == 0 || buf[0] == 7);
    EXPECT_EQ(buf[MIB / 2], 7);
    EXPECT_EQ(allocate(dev, 0, MIB), 0);
    EXPECT_EQ(device_resize(dev, MIB), -EOPNOTSUPP);
    EXPECT_EQ(device_allocated_bytes(dev), 0);
    EXPECT_EQ(device_read(dev, 16 * MIB, buf, PAGE), -EIO);
    EXPECT(!dev->failed);
}

static void test_block_device(void)
{
    int loop = loop_start();
    if (loop < 0) {
        tap_skip("loop devices are not to be had");
        return;
    }
    struct device *dev = NULL;
    struct error err = {0};
    uint8_t *buf = device_buffer_new(MIB);
    REQUIRE(device_open(env_os(), path, 0, 0, &dev, &err) == 0);
    block_device_checks(dev, buf);
    EXPECT_EQ(try_open(0, 0, "in use by process"), -EBUSY);
    EXPECT_EQ(try_open(DEVICE_OPEN_CREATE, MIB, "exists already"), -EEXIST);
    EXPECT_EQ(try_open(DEVICE_OPEN_READ_ONLY | DEVICE_OPEN_NO_LOCK, 0, ""), 0);
    device_close(dev);
    /* Claimed without a lock, as a mount claims it. */
    int claim = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
    EXPECT(claim >= 0);
    EXPECT_EQ(try_open(0, 0, "in use by another program or mounted"), -EBUSY);
    (void)close(claim);
    /* Locked, but not for long. */
    EXPECT_EQ(flock(loop, LOCK_SH), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        env_sleep_ns(env_os(), 120000000);
        _exit(flock(loop, LOCK_UN) == 0 ? 0 : 1);
    }
    EXPECT_EQ(try_open(0, 0, ""), 0);
    int status = 1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    device_buffer_free(buf);
    (void)close(loop);
}

int main(void)
{
    const char *root = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/ashlar-open-XXXXXX", root != NULL ? root : "/var/tmp");
    if (mkdtemp(directory) == NULL || chmod(directory, 0755) != 0) {
        printf("Bail out! %s: %s\n", directory, strerror(errno));
        return 1;
    }
    RUN(test_refusals);
    RUN(test_no_permission);
    RUN(test_creation);
    RUN(test_odd_size);
    RUN(test_locks);
    RUN(test_host_is_full);
    RUN(test_poor_file_system);
    RUN(test_block_device);
    (void)rmdir(directory);
    return tap_done();
}
