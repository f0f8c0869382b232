/*
 * The file system or device under a pool: what it is, and what its flushes are worth.
 *
 * The probe file is nameless and goes with the process. Blocks that were written before and blocks that were only
 * allocated are timed apart: the first write to an allocated block changes the file system's own records, and its flush
 * waits for those too.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/math.h"
#include "base/text.h"
#include "cli/doctor.h"
#include "env/env.h"

#define PROBE_BYTES (4 * MIB)
#define FLUSH_BUDGET_NS UINT64_C(1500000000)
/* A flash device with a power-loss capacitor answers a flush in about 20 microseconds; a system call alone takes
 * under 1. In between lies what no device that keeps its word does. */
#define FLUSH_PLAUSIBLE_NS UINT64_C(12000)
enum { BLOCK_BYTES = 4096, FLUSHES_MAX = 200 };

static const struct {
    long magic;
    const char *name;
} file_systems[] = {
    {EXT4_SUPER_MAGIC, "ext4"}, {0x58465342, "xfs"},    {BTRFS_SUPER_MAGIC, "btrfs"},
    {TMPFS_MAGIC, "tmpfs"},     {RAMFS_MAGIC, "ramfs"}, {OVERLAYFS_SUPER_MAGIC, "overlay"},
    {NFS_SUPER_MAGIC, "nfs"},   {0x2fc12fc1, "zfs"},    {F2FS_SUPER_MAGIC, "f2fs"},
    {FUSE_SUPER_MAGIC, "fuse"},
};

static void file_system(struct doctor *d, int directory)
{
    struct statfs fs;
    const char *name = "of a kind not known here";
    if (fstatfs(directory, &fs) < 0)
        return;
    long magic = (long)fs.f_type & 0xffffffff;
    for (size_t i = 0; i < sizeof(file_systems) / sizeof(file_systems[0]); i++)
        if (file_systems[i].magic == magic)
            name = file_systems[i].name;
    if (magic == TMPFS_MAGIC || magic == RAMFS_MAGIC)
        doctor_add(d, VERDICT_WARN, "file system", NULL, "%s: in memory, nothing in it survives a restart", name);
    else if (magic == BTRFS_SUPER_MAGIC)
        doctor_add(d, VERDICT_NOTE, "file system", NULL,
                   "btrfs copies on every write, and so does the pool: chattr +C on the directory spares one of them");
    else if (magic == NFS_SUPER_MAGIC || magic == FUSE_SUPER_MAGIC)
        doctor_add(d, VERDICT_NOTE, "file system", NULL, "%s: locks and flushes are as good as its server", name);
    else
        doctor_add(d, VERDICT_OK, "file system", NULL, "%s", name);
}

static bool queue_read(dev_t dev, const char *name, char *buf, int buf_bytes)
{
    /* A partition has its queue in the directory of its disk. */
    static const char *const places[] = {"queue", "../queue"};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(dev), minor(dev), places[i], name);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        bool read = fgets(buf, buf_bytes, f) != NULL;
        (void)fclose(f);
        buf[strcspn(buf, "\n")] = '\0';
        if (read)
            return true;
    }
    return false;
}

static void block_device(struct doctor *d, dev_t dev)
{
    char logical[32], physical[32], cache[32] = "unknown", rotational[32] = "0";
    if (!queue_read(dev, "logical_block_size", logical, sizeof(logical)) ||
        !queue_read(dev, "physical_block_size", physical, sizeof(physical)))
        return;
    (void)queue_read(dev, "write_cache", cache, sizeof(cache));
    (void)queue_read(dev, "rotational", rotational, sizeof(rotational));
    doctor_add(d, VERDICT_OK, "block device", NULL, "sectors of %s bytes, %s physical, %s, cache: %s", logical,
               physical, rotational[0] == '1' ? "rotating" : "not rotating", cache);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

/* Times write and flush of single blocks at ascending offsets. Returns how many; sorted. */
static unsigned flushes_time(int fd, uint64_t offset, const char *block, uint64_t *ret_ns)
{
    unsigned count = 0;
    uint64_t started_ns = env_now_ns(env_os());
    while (count < FLUSHES_MAX && env_now_ns(env_os()) - started_ns < FLUSH_BUDGET_NS) {
        uint64_t begin_ns = env_now_ns(env_os());
        off_t at = (off_t)(offset + (uint64_t)count * BLOCK_BYTES);
        if (pwrite(fd, block, BLOCK_BYTES, at) != BLOCK_BYTES || fdatasync(fd) < 0)
            break;
        ret_ns[count++] = env_now_ns(env_os()) - begin_ns;
    }
    qsort(ret_ns, count, sizeof(ret_ns[0]), compare_u64);
    return count;
}

static void flushes_report(struct doctor *d, const char *name, const uint64_t *ns, unsigned count)
{
    if (count == 0) {
        doctor_add(d, VERDICT_BAD, name, NULL, "4 KiB cannot be written and flushed: %s", strerror(errno));
        return;
    }
    uint64_t half = ns[count / 2], most = ns[count - 1 - count / 100];
    json_t *figures = json_pack("{s:I, s:I, s:I}", "median-ns", (json_int_t)half, "p99-ns", (json_int_t)most, "count",
                                (json_int_t)count);
    if (half < FLUSH_PLAUSIBLE_NS)
        doctor_add(d, VERDICT_WARN, name, figures,
                   "median %.1f us: too fast to be durable; memory, or a cache that says yes to everything",
                   (double)half / 1000);
    else
        doctor_add(d, VERDICT_OK, name, figures, "median %.2f ms, 99 of 100 under %.2f ms", (double)half / 1e6,
                   (double)most / 1e6);
}

static void flushes(struct doctor *d, int fd)
{
    uint64_t ns[FLUSHES_MAX];
    char *bytes = calloc(1, PROBE_BYTES);
    if (bytes == NULL)
        return;
    env_random(env_os(), bytes, PROBE_BYTES);
    if (pwrite(fd, bytes, PROBE_BYTES, 0) != (ssize_t)PROBE_BYTES || fsync(fd) < 0) {
        doctor_add(d, VERDICT_BAD, "writing", NULL, "4 MiB cannot be written here: %s", strerror(errno));
    } else {
        flushes_report(d, "flush, written blocks", ns, flushes_time(fd, 0, bytes, ns));
        if (fallocate(fd, 0, (off_t)PROBE_BYTES, (off_t)PROBE_BYTES) == 0 && fsync(fd) == 0)
            flushes_report(d, "flush, allocated blocks", ns, flushes_time(fd, PROBE_BYTES, bytes, ns));
    }
    free(bytes);
}

static void file_abilities(struct doctor *d, int fd)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (direct >= 0)
        doctor_add(d, VERDICT_OK, "O_DIRECT", NULL, "available");
    else
        doctor_add(d, VERDICT_NOTE, "O_DIRECT", NULL, "%s; everything is in memory twice", strerror(errno));
    if (direct >= 0)
        close(direct);
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK_BYTES) == 0)
        doctor_add(d, VERDICT_OK, "hole punching", NULL, "available: the pool file gives freed space back");
    else
        doctor_add(d, VERDICT_WARN, "hole punching", NULL, "%s; the pool file keeps all the space it ever took",
                   strerror(errno));
}

/* The room that a sparse pool may still ask its file system for. */
static void room(struct doctor *d, const char *path, const struct stat *st, int directory)
{
    struct statvfs fs;
    char may[16], has[16];
    uint64_t held = (uint64_t)st->st_blocks * 512, size = (uint64_t)st->st_size;
    if (!S_ISREG(st->st_mode) || fstatvfs(directory, &fs) < 0)
        return;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize, growth = size > held ? size - held : 0;
    size_format(growth, may, sizeof(may));
    size_format(free_bytes, has, sizeof(has));
    if (growth > free_bytes)
        doctor_add(d, VERDICT_WARN, "room", NULL,
                   "'%s' may grow by %s and its file system has %s left: writes will fail before the pool is full",
                   path, may, has);
    else
        doctor_add(d, VERDICT_OK, "room", NULL, "the pool may grow by %s, its file system has %s", may, has);
}

void doctor_place(struct doctor *d, const char *path)
{
    struct stat st;
    char directory_path[PATH_MAX];
    if (stat(path, &st) < 0) {
        doctor_add(d, VERDICT_BAD, "place", NULL, "'%s': %s", path, strerror(errno));
        return;
    }
    if (S_ISBLK(st.st_mode)) {
        block_device(d, st.st_rdev);
        doctor_add(d, VERDICT_NOTE, "flush", NULL, "not timed: nothing is written to a block device");
        return;
    }
    snprintf(directory_path, sizeof(directory_path), "%s", path);
    const char *where = S_ISDIR(st.st_mode) ? directory_path : dirname(directory_path);
    int directory = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        doctor_add(d, VERDICT_BAD, "place", NULL, "'%s': %s", where, strerror(errno));
        return;
    }
    file_system(d, directory);
    block_device(d, st.st_dev);
    room(d, path, &st, directory);
    int fd = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        doctor_add(d, VERDICT_NOTE, "flush", NULL, "not timed: no temporary file can be made there: %s",
                   strerror(errno));
    } else {
        flushes(d, fd);
        file_abilities(d, fd);
        close(fd);
    }
    close(directory);
}
