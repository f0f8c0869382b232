/*
 * Accepting: a few connections a turn, then others have theirs. Without a free descriptor accept fails at once and the
 * connection stays in the queue, where a watch would report it again and again: so the listener pauses, until a
 * connection is closed or RESUME_NS has passed.
 *
 * Unix sockets: the file is made by bind, gets its mode before listen (until then nobody can connect), and takes the
 * path's place by rename, so that a stale socket is replaced in one step. A socket at the path is stale if nobody
 * accepts there. At the end the file is removed only if it is still the one that was made.
 */
#include "front/nbd/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/tree.h"
#include "front/nbd/connection.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/uri.h"

#define ACCEPTS_A_TURN 16
#define BACKLOG 1024
#define RESUME_NS UINT64_C(500000000)

/* ---- accepting: loop ---- */

static void pause_listener(struct nbd_listener *l, int error)
{
    struct nbd_server *server = l->server;
    nbd_count(&server->counters.accept_failures, 1);
    nbd_server_notice(server, "NBD: cannot accept a connection: %s; raise the limit (ulimit -n) or close some",
                      strerror(error));
    nbd_loop_unwatch(server->loop, &l->watch);
    l->watched = false;
    nbd_loop_set_timer(server->loop, &l->resume_timer, nbd_loop_now_ns(server->loop) + RESUME_NS);
}

static void accept_some(struct nbd_task *task)
{
    struct nbd_listener *l = CONTAINER_OF(task, struct nbd_listener, task);
    struct nbd_server *server = l->server;
    for (int i = 0; i < ACCEPTS_A_TURN && l->watched && !server->draining; i++) {
        int fd = accept4(l->watch.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            struct error err = {0};
            nbd_server_admit(server);
            if (nbd_connection_new(server, fd, fd, true, true, NULL, NULL, &err) < 0)
                nbd_server_notice(server, "%s", err.text);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_listener(l, errno);
        } else if (errno == EAGAIN) {
            return;
        }
        /* Anything else is the fault of the one connection that was to be accepted: go on with the next. */
    }
}

static void listener_ready(struct nbd_watch *watch, uint32_t events)
{
    struct nbd_listener *l = CONTAINER_OF(watch, struct nbd_listener, watch);
    (void)events;
    (void)nbd_loop_post(l->server->loop, &l->task);
}

static void resume_fired(struct nbd_timer *timer)
{
    struct nbd_listener *l = CONTAINER_OF(timer, struct nbd_listener, resume_timer);
    struct error err = {0};
    if (nbd_listener_start(l, &err) < 0)
        nbd_loop_set_timer(l->server->loop, timer, nbd_loop_now_ns(l->server->loop) + RESUME_NS);
}

int nbd_listener_start(struct nbd_listener *l, struct error *err)
{
    int ret = nbd_loop_watch(l->server->loop, &l->watch, EPOLLIN);
    l->watched = ret == 0;
    return ret < 0 ? error_set(err, ret, "NBD: cannot watch a listening socket: %s", strerror(-ret)) : 0;
}

void nbd_listener_resume(struct nbd_listener *l)
{
    if (l->resume_timer.deadline_ns == 0)
        return;
    nbd_loop_stop_timer(&l->resume_timer);
    resume_fired(&l->resume_timer);
}

/* ---- making and closing ---- */

static void remove_file(const struct nbd_listener *l)
{
    struct stat st;
    if (l->unlink_path != NULL && lstat(l->unlink_path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        (void)unlink(l->unlink_path); /* a file that stays is stale, and replaced next time */
}

void nbd_listener_close(struct nbd_listener *l)
{
    if (l->closed)
        return;
    l->closed = true;
    nbd_loop_stop_timer(&l->resume_timer);
    if (l->watched)
        nbd_loop_unwatch(l->server->loop, &l->watch);
    l->watched = false;
    remove_file(l);
    close(l->watch.fd);
}

void nbd_listener_free(struct nbd_listener *l)
{
    nbd_listener_close(l);
    list_remove(&l->link);
    free(l->uri_head);
    free(l->uri_tail);
    free(l->unlink_path);
    free(l);
}

/* Takes fd over. */
static struct nbd_listener *listener_add(struct nbd_server *server, int fd, struct error *err)
{
    struct nbd_listener *l = calloc(1, sizeof *l);
    int mode = fcntl(fd, F_GETFL);
    if (l == NULL || mode < 0 || fcntl(fd, F_SETFL, mode | O_NONBLOCK) < 0) {
        error_set(err, l == NULL ? -ENOMEM : -errno, "NBD: cannot listen on descriptor %d: %s", fd,
                  strerror(l == NULL ? ENOMEM : errno));
        free(l);
        close(fd);
        return NULL;
    }
    l->server = server;
    l->watch = (struct nbd_watch){.ready = listener_ready, .fd = fd};
    l->task.run = accept_some;
    l->resume_timer.fire = resume_fired;
    list_append(&server->listeners, &l->link);
    nbd_uri_of_socket(fd, &l->uri_head, &l->uri_tail);
    return l;
}

int nbd_listener_fd(struct nbd_server *server, int fd, struct error *err)
{
    int accepts = 0, type = 0;
    socklen_t n = sizeof accepts, m = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &n) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &m) < 0 || !accepts || type != SOCK_STREAM)
        return error_set(err, -EINVAL, "descriptor %d is no listening stream socket", fd);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return listener_add(server, fd, err) == NULL ? err->code : 0;
}

/* ---- unix ---- */

/* 0: the path is free, or holds a socket where nobody listens. */
static int check_path(const char *path, const struct sockaddr_un *address, struct error *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : error_set(err, -errno, "unix socket %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, -EEXIST,
                         "unix socket %s: a file that is no socket is there; remove it or choose another path", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "unix socket %s: %s", path, strerror(errno));
    int ret = connect(fd, (const struct sockaddr *)address, sizeof *address);
    int error = errno;
    close(fd);
    if (ret == 0 || error == EAGAIN)
        return error_set(err, -EADDRINUSE,
                         "unix socket %s: another server listens there; stop it or choose another path", path);
    if (error != ECONNREFUSED && error != ENOENT)
        return error_set(err, -error, "unix socket %s: %s", path, strerror(error));
    return 0;
}

static int fill_address(struct sockaddr_un *address, const char *path, struct error *err)
{
    size_t n = strlen(path);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n == 0 || n >= sizeof address->sun_path)
        return error_set(err, -ENAMETOOLONG, "unix socket %s: a path of %zu bytes, at most %zu; choose a shorter one",
                         path, n, sizeof address->sun_path - 1);
    memcpy(address->sun_path, path, n);
    return 0;
}

/* Binds beside the path, sets the mode, listens, and moves the file to the path. */
static int bind_beside(int fd, const char *path, struct error *err)
{
    struct sockaddr_un beside;
    char *name = NULL;
    if (asprintf(&name, "%s.%d", path, (int)getpid()) < 0)
        return error_set(err, -ENOMEM, "no memory");
    int ret = fill_address(&beside, name, err);
    if (ret == 0) {
        (void)unlink(name); /* of a dead process with our number */
        if (bind(fd, (struct sockaddr *)&beside, sizeof beside) < 0)
            ret = error_set(err, -errno, "unix socket %s: %s", path, strerror(errno));
    }
    if (ret == 0 && (chmod(name, S_IRUSR | S_IWUSR) < 0 || listen(fd, BACKLOG) < 0 || rename(name, path) < 0)) {
        ret = error_set(err, -errno, "unix socket %s: %s", path, strerror(errno));
        (void)unlink(name);
    }
    free(name);
    return ret;
}

int nbd_listener_unix(struct nbd_server *server, const char *path, struct error *err)
{
    struct sockaddr_un address;
    int ret = fill_address(&address, path, err);
    if (ret == 0)
        ret = check_path(path, &address, err);
    if (ret < 0)
        return ret;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, -errno, "unix socket %s: %s", path, strerror(errno));
    ret = bind_beside(fd, path, err);
    if (ret < 0) {
        close(fd);
        return ret;
    }
    struct nbd_listener *l = listener_add(server, fd, err);
    if (l == NULL)
        return err->code;
    struct stat st;
    free(l->uri_tail); /* made from the name that the socket was bound to */
    l->uri_tail = nbd_uri_unix_tail(path);
    l->unlink_path = strdup(path);
    if (l->unlink_path == NULL || lstat(path, &st) < 0)
        return error_set(err, -ENOMEM, "unix socket %s: it is gone, or there is no memory", path);
    l->device = st.st_dev;
    l->inode = st.st_ino;
    return 0;
}

/* ---- TCP ---- */

static int listen_at(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0)
        return -errno;
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* Each family has a socket of its own. */
    if (at->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

int nbd_listener_tcp(struct nbd_server *server, const char *host, uint16_t port, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
    char service[8];
    const char *shown = host != NULL ? host : "all addresses";
    (void)snprintf(service, sizeof service, "%u", port);
    int ret = getaddrinfo(host, service, &hints, &list);
    if (ret != 0)
        return error_set(err, -EINVAL, "TCP %s port %u: %s", shown, port, gai_strerror(ret));
    int made = 0, first_error = 0;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        int fd = listen_at(at);
        if (fd < 0) {
            /* A host without IPv6 has no place to bind the second one to. */
            if (first_error == 0 && !(made > 0 && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)))
                first_error = fd;
        } else if (listener_add(server, fd, err) == NULL) {
            freeaddrinfo(list);
            return err->code;
        } else {
            made++;
        }
    }
    freeaddrinfo(list);
    if (made > 0 && (first_error == 0 || first_error == -EAFNOSUPPORT || first_error == -EADDRNOTAVAIL))
        return 0;
    return error_set(err, first_error, "TCP %s port %u: %s", shown, port, strerror(-first_error));
}
