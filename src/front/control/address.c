/*
 * A unix socket's name has room for 107 bytes and a path may be longer: bind and connect therefore go through
 * /proc/self/fd/N/NAME, N an open directory. Where even NAME is too long for that, a hash takes the place of its end.
 *
 * The socket is created with its mode (fchmod before bind), never open to others for a moment. Only who holds the
 * pool's lock listens, so a socket that refuses connections there is stale and may be replaced.
 */
#include "front/control/address.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"

enum { NAME_BYTES_MAX = 80, LISTEN_BACKLOG = 16 };

/* FNV-1a: tells long names apart, no more is asked of it. */
static unsigned long long name_hash(const char *name)
{
    unsigned long long h = 14695981039346656037u;
    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

int control_address_of(const char *pool_path, struct control_address *ret_address, struct error *err)
{
    if (realpath(pool_path, ret_address->pool) == NULL)
        return error_set(err, -errno, "'%s': %s", pool_path, strerror(errno));
    const char *slash = strrchr(ret_address->pool, '/');
    const char *name = slash + 1;
    int directory_length = (int)(name - ret_address->pool);
    size_t room = sizeof(ret_address->path);
    int n = strlen(name) + strlen(".control") <= NAME_BYTES_MAX
                ? snprintf(ret_address->path, room, "%s.control", ret_address->pool)
                : snprintf(ret_address->path, room, "%.*s%.40s-%016llx.control", directory_length, ret_address->pool,
                           name, name_hash(name));
    if (n < 0 || (size_t)n >= room)
        return error_set(err, -ENAMETOOLONG, "'%s': the path is too long", pool_path);
    return 0;
}

/* Fills a socket address that reaches path through a directory descriptor, which the caller closes. */
static int address_open(const struct control_address *address, struct sockaddr_un *ret_un, struct error *err)
{
    char directory[PATH_MAX];
    const char *name = strrchr(address->path, '/') + 1;
    snprintf(directory, sizeof(directory), "%.*s", (int)(name - address->path), address->path);
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, -errno, "directory '%s': %s", directory, strerror(errno));
    memset(ret_un, 0, sizeof(*ret_un));
    ret_un->sun_family = AF_UNIX;
    int n = snprintf(ret_un->sun_path, sizeof(ret_un->sun_path), "/proc/self/fd/%d/%s", fd, name);
    if (n < 0 || (size_t)n >= sizeof(ret_un->sun_path)) {
        close(fd);
        return error_set(err, -ENAMETOOLONG, "control socket '%s': the name is too long", address->path);
    }
    return fd;
}

int control_address_connect(const struct control_address *address, struct error *err)
{
    struct sockaddr_un un;
    int directory = address_open(address, &un, err);
    if (directory < 0)
        return directory;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -errno : 0;
    if (r == 0 && connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
        r = -errno;
    close(directory);
    if (r == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    if (r == -ENOENT || r == -ECONNREFUSED || r == -ENOTSOCK)
        return -ENOENT;
    if (r == -EAGAIN) /* its backlog is full */
        return error_set(err, -EAGAIN, "the server of '%s' is busy with other commands", address->pool);
    return error_set(err, r, "control socket '%s': %s", address->path, strerror(-r));
}

/* Removes a stale socket, so that bind finds the name free. */
static int stale_remove(const struct control_address *address, struct error *err)
{
    struct stat st;
    if (lstat(address->path, &st) < 0)
        return errno == ENOENT ? 0 : error_set(err, -errno, "control socket '%s': %s", address->path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, -EADDRINUSE, "'%s' is in the way of the control socket and is no socket: move it away",
                         address->path);
    int fd = control_address_connect(address, err);
    if (fd >= 0 || fd == -EAGAIN) {
        if (fd >= 0)
            close(fd);
        return error_set(err, -EADDRINUSE, "'%s' is already served: ashlar stop %s", address->pool, address->pool);
    }
    if (fd != -ENOENT)
        return fd;
    if (unlink(address->path) < 0 && errno != ENOENT)
        return error_set(err, -errno, "stale control socket '%s': %s", address->path, strerror(errno));
    return 0;
}

int control_address_listen(const struct control_address *address, struct error *err)
{
    struct sockaddr_un un;
    int r = stale_remove(address, err);
    if (r < 0)
        return r;
    int directory = address_open(address, &un, err);
    if (directory < 0)
        return directory;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 ||
        listen(fd, LISTEN_BACKLOG) < 0)
        r = error_set(err, -errno, "control socket '%s': %s", address->path, strerror(errno));
    close(directory);
    if (r < 0 && fd >= 0)
        close(fd);
    return r < 0 ? r : fd;
}

int control_peer_of(int fd, pid_t *ret_pid, uid_t *ret_uid)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return -errno;
    *ret_pid = peer.pid;
    *ret_uid = peer.uid;
    return 0;
}
