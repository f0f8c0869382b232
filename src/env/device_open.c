/*
 * Opening a file or block device: what it is, whose it is, how large it is and how it wants to be used.
 *
 * Nothing is changed before the lock is held, save that DEVICE_OPEN_CREATE makes an empty file, which is removed again
 * if a later step fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "env/device_impl.h"

#define SECTOR_BYTES_MIN 512
#define SECTOR_BYTES_MAX 65536
#define LOCK_TRIES 20
#define LOCK_PAUSE_NS 50000000

/* The system's words for a negative errno; buf is used or not. */
static const char *error_words(int code, char *buf, size_t buf_bytes)
{
    return strerror_r(-code, buf, buf_bytes);
}

static int system_error(struct error *err, int code, const char *path, const char *what)
{
    char buf[128];
    return error_set(err, code, "%s: %s: %s", path, what, error_words(code, buf, sizeof buf));
}

static const char *file_type_name(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISCHR(mode))
        return "a character device";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    return "of an unknown type";
}

static bool type_fits(mode_t mode)
{
    return S_ISREG(mode) || S_ISBLK(mode);
}

static int type_error(struct error *err, const char *path, mode_t mode)
{
    return error_set(err, -EINVAL, "%s is %s; give a regular file or a block device", path, file_type_name(mode));
}

/* The process that holds a flock on the file, 0 if that cannot be known. */
static int lock_holder(const struct stat *st)
{
    FILE *locks = fopen("/proc/locks", "re");
    if (locks == NULL)
        return 0;
    char line[256];
    int holder = 0;
    while (holder == 0 && fgets(line, sizeof line, locks) != NULL) {
        /* "7: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF"; a waiter has "->" before FLOCK and does not match. */
        int pid;
        unsigned dev_major, dev_minor;
        uint64_t inode;
        if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%" SCNu64, &pid, &dev_major, &dev_minor, &inode) != 4)
            continue;
        if (dev_major == major(st->st_dev) && dev_minor == minor(st->st_dev) && inode == st->st_ino && pid > 0)
            holder = pid;
    }
    (void)fclose(locks);
    return holder;
}

/* true if the process that has the lock does not run any more: what it left in the kernel will let go by itself. */
static bool holder_is_gone(const struct stat *st)
{
    char path[64];
    int pid = lock_holder(st);
    if (pid == 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
    char target[1];
    return readlink(path, target, sizeof target) < 0 && (errno == ENOENT || errno == ESRCH);
}

static int busy_error(struct error *err, const char *path, const struct stat *st)
{
    int pid = lock_holder(st);
    if (pid == 0)
        return error_set(err, -EBUSY, "%s is in use by another program%s; stop that one first", path,
                         S_ISBLK(st->st_mode) ? " or mounted" : "");
    char comm_path[64], comm[64] = "?\n";
    (void)snprintf(comm_path, sizeof comm_path, "/proc/%d/comm", pid);
    FILE *f = fopen(comm_path, "re");
    if (f != NULL) {
        if (fgets(comm, sizeof comm, f) == NULL)
            memcpy(comm, "?", 2);
        (void)fclose(f);
    }
    comm[strcspn(comm, "\n")] = '\0';
    return error_set(err, -EBUSY, "%s is in use by process %d (%s); stop that one first", path, pid, comm);
}

static int open_error(struct error *err, int code, const char *path, unsigned flags)
{
    struct stat st;
    bool known = stat(path, &st) == 0;
    if (known && !type_fits(st.st_mode) && code != -EEXIST)
        return type_error(err, path, st.st_mode);
    if (known && code == -EBUSY)
        return busy_error(err, path, &st);
    if (code == -EEXIST)
        return error_set(err, code, "%s exists already; nothing was changed: remove it or choose another name", path);
    if (code == -ENOENT && (flags & DEVICE_OPEN_CREATE))
        return error_set(err, code, "%s cannot be created: its directory does not exist", path);
    if (code == -ENOENT)
        return error_set(err, code, "%s does not exist; check the path", path);
    if (code == -EACCES || code == -EPERM)
        return error_set(err, code, "%s: no permission to %s it as user %u", path,
                         (flags & DEVICE_OPEN_CREATE)      ? "create"
                         : (flags & DEVICE_OPEN_READ_ONLY) ? "read"
                                                           : "read and write",
                         (unsigned)geteuid());
    return system_error(err, code, path, (flags & DEVICE_OPEN_CREATE) ? "cannot be created" : "cannot be opened");
}

/*
 * The descriptor, or negative errno. O_NONBLOCK so that a pipe or a tape that lies there does not hold us up; it is
 * taken off again (an io_uring operation on such a descriptor would fail with EAGAIN where it should wait).
 */
static int open_path(const char *path, unsigned flags, struct stat *ret_st, struct error *err)
{
    int mode = (flags & DEVICE_OPEN_READ_ONLY) ? O_RDONLY : O_RDWR;
    mode |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    struct stat st;
    if (flags & DEVICE_OPEN_CREATE)
        mode |= O_CREAT | O_EXCL;
    else if (!(flags & (DEVICE_OPEN_READ_ONLY | DEVICE_OPEN_NO_LOCK)) && stat(path, &st) == 0 && S_ISBLK(st.st_mode))
        mode |= O_EXCL; /* refused where the block device is mounted or part of another */
    int fd = open(path, mode, 0600);
    if (fd < 0)
        return open_error(err, -errno, path, flags);
    if (fstat(fd, ret_st) < 0) {
        int ret = system_error(err, -errno, path, "its type cannot be read");
        (void)close(fd);
        return ret;
    }
    if (!type_fits(ret_st->st_mode)) {
        (void)close(fd);
        return type_error(err, path, ret_st->st_mode);
    }
    return fd;
}

/*
 * A refusal is believed only when it lasts. On a block device udev takes a lock for a moment whenever somebody who
 * could write has closed it; and the kernel may hold a file for a moment after the process that had it was killed,
 * while its io_uring requests end.
 */
static int lock_take(struct env *env, int fd, const char *path, unsigned flags, const struct stat *st,
                     struct error *err)
{
    if (flags & DEVICE_OPEN_NO_LOCK)
        return 0;
    for (int tries = LOCK_TRIES;;) {
        if (flock(fd, ((flags & DEVICE_OPEN_READ_ONLY) ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return system_error(err, -errno, path, "cannot be locked");
        tries--;
        if (tries == 0 || !(S_ISBLK(st->st_mode) || holder_is_gone(st)))
            return busy_error(err, path, st);
        env_sleep_ns(env, LOCK_PAUSE_NS);
    }
}

/* The new name itself must survive a power cut. */
static int directory_sync(const char *path, struct error *err)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory", path);
    int ret = 0;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        ret = system_error(err, -errno, path, "its directory cannot be synced");
    if (fd >= 0)
        (void)close(fd);
    free(copy);
    return ret;
}

static int file_size_new(int fd, const char *path, uint64_t size_bytes, struct error *err)
{
    if (size_bytes > INT64_MAX || ftruncate(fd, (off_t)size_bytes) < 0)
        return error_set(err, -EFBIG, "%s: the file system does not take a file of %" PRIu64 " bytes; choose less",
                         path, size_bytes);
    if (fsync(fd) < 0)
        return system_error(err, -errno, path, "cannot be synced");
    return directory_sync(path, err);
}

/* Whether O_DIRECT with DEVICE_ALIGN_BYTES is to be had; it is then in force. */
static bool direct_begin(int fd, uint32_t *ret_logical_bytes)
{
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 && (x.stx_mask & STATX_DIOALIGN)) {
        if (x.stx_dio_mem_align == 0 || x.stx_dio_mem_align > DEVICE_ALIGN_BYTES ||
            x.stx_dio_offset_align > DEVICE_ALIGN_BYTES)
            return false;
        *ret_logical_bytes = x.stx_dio_offset_align <= SECTOR_BYTES_MIN ? SECTOR_BYTES_MIN : DEVICE_ALIGN_BYTES;
    }
#else
    (void)ret_logical_bytes;
#endif
    int status = fcntl(fd, F_GETFL);
    if (status < 0 || fcntl(fd, F_SETFL, status | O_DIRECT) < 0)
        return false;
    /* Some file systems take the flag and refuse the transfer. */
    void *buffer = device_buffer_new(DEVICE_ALIGN_BYTES);
    bool works = buffer != NULL && pread(fd, buffer, DEVICE_ALIGN_BYTES, 0) >= 0;
    device_buffer_free(buffer);
    if (!works)
        (void)fcntl(fd, F_SETFL, status & ~O_DIRECT);
    return works;
}

/*
 * Buffered: what another process left dirty in the page cache is written, and the cache dropped, so that reads at open
 * see what the device holds, not what it was meant to hold before a writeback failed.
 */
static int page_cache_drop(int fd, const char *path, struct error *err)
{
    if (fdatasync(fd) < 0 && errno != EINVAL && errno != EROFS)
        return system_error(err, -errno, path, "its cached pages cannot be written");
    int ret = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return ret != 0 ? system_error(err, -ret, path, "its page cache cannot be dropped") : 0;
}

static uint32_t sector_clip(uint64_t bytes)
{
    return (uint32_t)min_u64(max_u64(bytes, SECTOR_BYTES_MIN), SECTOR_BYTES_MAX);
}

static bool block_can_discard(const struct stat *st)
{
    /* A partition has its queue in the directory of its disk. */
    static const char *const places[] = {"queue", "../queue"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[96];
        uint64_t max = 0;
        (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s/discard_max_bytes", major(st->st_rdev),
                       minor(st->st_rdev), places[i]);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        bool read = fscanf(f, "%" SCNu64, &max) == 1;
        (void)fclose(f);
        return read && max > 0;
    }
    return false;
}

static int block_geometry(int fd, const char *path, const struct stat *st, struct device_info *info, struct error *err)
{
    int logical = 0;
    unsigned physical = 0;
    if (ioctl(fd, BLKGETSIZE64, &info->size_bytes) < 0 || ioctl(fd, BLKSSZGET, &logical) < 0 ||
        ioctl(fd, BLKPBSZGET, &physical) < 0)
        return system_error(err, -errno, path, "its size cannot be read");
    if (logical <= 0 || logical > DEVICE_ALIGN_BYTES)
        return error_set(err, -EINVAL, "%s has sectors of %d bytes; only up to %d are supported", path, logical,
                         DEVICE_ALIGN_BYTES);
    info->logical_sector_bytes = sector_clip((uint64_t)logical);
    info->physical_sector_bytes = sector_clip(max_u64(physical, (uint64_t)logical));
    info->can_punch = !info->is_read_only && block_can_discard(st);
    return 0;
}

/* Punching behind the end of the file changes nothing and tells whether it can be done. */
static bool file_can_punch(int fd, uint64_t size_bytes)
{
    return size_bytes <= INT64_MAX - DEVICE_ALIGN_BYTES &&
           fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)size_bytes, DEVICE_ALIGN_BYTES) == 0;
}

static int device_prepare(int fd, const char *path, unsigned flags, const struct stat *st, struct device_info *info,
                          struct error *err)
{
    int status = fcntl(fd, F_GETFL);
    if (status < 0 || fcntl(fd, F_SETFL, status & ~O_NONBLOCK) < 0)
        return system_error(err, -errno, path, "its flags cannot be set");
    info->is_read_only = (flags & DEVICE_OPEN_READ_ONLY) != 0;
    info->is_block_device = S_ISBLK(st->st_mode);
    info->logical_sector_bytes = SECTOR_BYTES_MIN;
    info->physical_sector_bytes = DEVICE_ALIGN_BYTES;
    info->is_direct = !(flags & DEVICE_OPEN_BUFFERED) && direct_begin(fd, &info->logical_sector_bytes);
    if (!info->is_direct) {
        int ret = page_cache_drop(fd, path, err);
        if (ret < 0)
            return ret;
    }
    if (info->is_block_device)
        return block_geometry(fd, path, st, info, err);
    struct stat now; /* its size after creation */
    if (fstat(fd, &now) < 0)
        return system_error(err, -errno, path, "its size cannot be read");
    info->size_bytes = round_down((uint64_t)now.st_size, DEVICE_ALIGN_BYTES);
    info->can_punch = !info->is_read_only && file_can_punch(fd, (uint64_t)now.st_size);
    return 0;
}

static int file_open(struct device_file *file, struct env *env, const char *path, unsigned flags, uint64_t size_bytes,
                     struct error *err)
{
    struct device *dev = &file->base;
    struct stat st;
    CHECK(!(flags & DEVICE_OPEN_CREATE) || !(flags & DEVICE_OPEN_READ_ONLY));
    int fd = open_path(path, flags, &st, err);
    if (fd < 0)
        return fd;
    int ret = lock_take(env, fd, path, flags, &st, err);
    if (ret == 0 && (flags & DEVICE_OPEN_CREATE))
        ret = file_size_new(fd, path, size_bytes, err);
    if (ret == 0)
        ret = device_prepare(fd, path, flags, &st, &dev->info, err);
    if (ret < 0) {
        if (flags & DEVICE_OPEN_CREATE)
            (void)unlink(path);
        (void)close(fd);
        return ret;
    }
    dev->info.size_bytes = round_down(dev->info.size_bytes, DEVICE_ALIGN_BYTES);
    dev->env = env;
    (void)snprintf(dev->name, sizeof dev->name, "%s", path);
    file->fd = fd;
    env_mutex_init(&file->flush_lock, env);
    env_cond_init(&file->flush_ended, env);
    return 0;
}

int device_open(struct env *env, const char *path, unsigned flags, uint64_t size_bytes, struct device **ret_dev,
                struct error *err)
{
    CHECK(env_sim(env) == NULL);
    struct device_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory", path);
    int ret = file_open(file, env, path, flags, size_bytes, err);
    if (ret < 0) {
        free(file);
        return ret;
    }
    file->base.ops = &device_plain_ops;
    file->base.info.engine = "plain";
    if (file->base.info.is_direct && !(flags & DEVICE_OPEN_PLAIN))
        (void)device_uring_begin(file); /* if it cannot be had, plain it is */
    *ret_dev = &file->base;
    return 0;
}
