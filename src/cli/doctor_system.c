/*
 * What the kernel offers and what limits are set.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/doctor.h"

/* 0, or the errno of what does not work. */
static int ring_try(void)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof(params));
    int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static void device_node(struct doctor *d, const char *name, const char *path, const char *use)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        close(fd);
        doctor_add(d, VERDICT_OK, name, NULL, "%s can be opened", path);
        return;
    }
    doctor_add(d, VERDICT_NOTE, name, NULL, "%s: %s; %s", path, strerror(errno), use);
}

void doctor_kernel(struct doctor *d)
{
    struct utsname name;
    if (uname(&name) == 0)
        doctor_add(d, VERDICT_OK, "kernel", NULL, "%s %s, %s", name.sysname, name.release, name.machine);
    int ring = ring_try();
    if (ring == 0)
        doctor_add(d, VERDICT_OK, "io_uring", NULL, "available");
    else
        doctor_add(d, VERDICT_WARN, "io_uring", NULL,
                   "%s; pools use plain reads and writes, which is slower (sysctl kernel.io_uring_disabled?)",
                   strerror(ring));
    device_node(d, "nbd", "/dev/nbd0", "a volume becomes a local block device by: modprobe nbd; nbd-client");
    device_node(d, "fuse", "/dev/fuse", "nbdfuse, which shows a volume as a file, needs it");
    device_node(d, "loop", "/dev/loop-control", "mounting a volume through a file needs it");
    device_node(d, "ublk", "/dev/ublk-control", "not needed");
}

void doctor_limits(struct doctor *d)
{
    struct rlimit limit;
    char text[16];
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        json_t *figures = json_pack("{s:I}", "hard", (json_int_t)limit.rlim_max);
        if (limit.rlim_max < 1024)
            doctor_add(d, VERDICT_WARN, "descriptors", figures, "at most %llu: one a client is needed; ulimit -n",
                       (unsigned long long)limit.rlim_max);
        else
            doctor_add(d, VERDICT_OK, "descriptors", figures, "up to %llu", (unsigned long long)limit.rlim_max);
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        if (limit.rlim_cur == RLIM_INFINITY)
            doctor_add(d, VERDICT_OK, "locked memory", NULL, "without limit");
        else
            doctor_add(d, limit.rlim_cur < 1024 * 1024 ? VERDICT_WARN : VERDICT_OK, "locked memory", NULL,
                       "up to %s; older kernels count io_uring's rings in it",
                       size_format(limit.rlim_cur, text, sizeof(text)));
    }
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE), cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (pages > 0 && page_bytes > 0)
        doctor_add(d, VERDICT_OK, "machine", NULL, "%ld processors, %s of memory", cpus,
                   size_format((uint64_t)pages * (uint64_t)page_bytes, text, sizeof(text)));
}
