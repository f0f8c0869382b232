/*
 * A disk image in a container, or a compressed one, imported byte for byte makes a volume that no guest boots from, and
 * whoever did it learns that much later. The formats are told by the bytes at their front.
 *
 * Sources: the magic numbers are those of the formats' specifications (QEMU docs/interop/qcow2.txt and qed_spec.txt,
 * VMware Virtual Disk Format 5.0, MS-VHDX 2.2.1, VirtualBox's VDI header, RFC 1952, RFC 8878, the xz file format).
 */
#include "cli/source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/error.h"

struct image_format {
    const char *name;
    unsigned offset, length;
    char magic[9];
    const char *unpack; /* a program that writes the bytes to standard output; NULL: qemu-img converts it */
};

#define FRONT_BYTES 128

static const struct image_format formats[] = {
    {"a qcow2 image", 0, 4, "QFI\xfb", NULL},
    {"a QED image", 0, 4, "QED\0", NULL},
    {"a VMDK image", 0, 4, "KDMV", NULL},
    {"the descriptor of a VMDK image", 0, 8, "# Disk D", NULL},
    {"a VHDX image", 0, 8, "vhdxfile", NULL},
    {"a VDI image", 64, 4, "\x7f\x10\xda\xbe", NULL},
    {"compressed with gzip", 0, 3, "\x1f\x8b\x08", "zcat"},
    {"compressed with xz", 0, 6, "\xfd\x37zXZ", "xzcat"},
    {"compressed with zstd", 0, 4, "\x28\xb5\x2f\xfd", "zstdcat"},
    {"compressed with bzip2", 0, 3, "BZh", "bzcat"},
};

static bool is_pool(const struct stat *st, const char *pool_path)
{
    struct stat pool;
    if (stat(pool_path, &pool) < 0)
        return false;
    if (S_ISBLK(st->st_mode) && S_ISBLK(pool.st_mode))
        return st->st_rdev == pool.st_rdev;
    return st->st_dev == pool.st_dev && st->st_ino == pool.st_ino;
}

int source_check(int fd, const char *file, const char *pool_path, bool raw, struct error *err)
{
    struct stat st;
    char front[FRONT_BYTES];
    if (fstat(fd, &st) < 0)
        return error_set(err, -errno, "'%s': %s", file, strerror(errno));
    if (is_pool(&st, pool_path))
        return error_set(err, -EINVAL, "'%s' is the pool itself: name another file", file);
    const off_t at = lseek(fd, 0, SEEK_CUR);
    const ssize_t n = raw || at < 0 ? 0 : pread(fd, front, sizeof(front), at);
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const struct image_format *f = &formats[i];
        if (n < (ssize_t)(f->offset + f->length) || memcmp(front + f->offset, f->magic, f->length) != 0)
            continue;
        if (f->unpack != NULL)
            return error_set(err, -EINVAL,
                             "'%s' is %s: pipe it in unpacked (%s FILE | ashlar import POOL VOLUME -), or --raw takes "
                             "its bytes as they are",
                             file, f->name, f->unpack);
        return error_set(err, -EINVAL,
                         "'%s' is %s, not the bytes of a disk: make those with qemu-img convert -O raw, or --raw takes "
                         "the file as it is",
                         file, f->name);
    }
    return 0;
}
