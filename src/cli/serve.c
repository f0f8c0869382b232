/*
 * ashlar serve POOL: the server, in the foreground.
 *
 * Life: options -> signals blocked and read from a descriptor -> pool opened (its lock is what makes this the server)
 * -> queue, NBD server with its listeners, control server -> ready. Then one wait: for a signal, for `ashlar stop`, or
 * for the end of the connection of --stdio. Stopping goes the same way back: no new clients, requests under way finish,
 * the control socket goes, everything is flushed and the pool closed. A second signal ends the waiting: what was
 * acknowledged is flushed, and the process leaves.
 */
#include "cli/serve.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "env/device.h"
#include "env/env.h"
#include "front/control/client.h"
#include "front/control/server.h"
#include "front/nbd/pool_exports.h"
#include "front/nbd/server.h"
#include "pool/pool.h"
#include "queue/queue.h"

static void notice(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "ashlar: %s\n", text);
}

/* ---- coming up ---- */

static int signals_begin(struct server *s, struct error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    struct sigaction hangup;
    /* A terminal that goes away ends the server in good order, unless it was started by nohup. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return error_set(err, -errno, "sigprocmask: %s", strerror(errno));
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->signal_fd < 0 || s->stop_fd < 0)
        return error_set(err, -errno, "signalfd, eventfd: %s", strerror(errno));
    return 0;
}

/*
 * One malloc arena, set before the first thread starts. Records are allocated by the thread that writes them and freed
 * by the one that evicts them; glibc gives each thread an arena of its own, in which such memory stays behind: 1,026 MB
 * for a cache of 256 MiB after 10 GiB, 334 MB with one arena. The lock of the one arena did not show in any figure,
 * because small blocks come from each thread's own cache. It is for the program to do this, not for the library: it
 * holds for the whole process.
 */
static void memory_set_up(void)
{
    (void)mallopt(M_ARENA_MAX, 1); /* if it fails, more memory is used, nothing else */
}

/* A client is a descriptor: take as many as are allowed. */
static void descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int check_not_served(const struct serve_options *o, struct error *err)
{
    struct control_client *client;
    int r = session_check_path(o->pool_path, err);
    if (r < 0)
        return r;
    r = control_client_open(o->pool_path, &client, err);
    if (r < 0)
        return r == -ENOENT && err->code == 0 ? 0 : r;
    int pid = (int)control_client_server_pid(client);
    control_client_close(client);
    return error_set(err, -EADDRINUSE, "'%s' is already served by process %d; to end it: ashlar stop %s", o->pool_path,
                     pid, o->pool_path);
}

static int pool_start(struct server *s, struct error *err)
{
    const struct serve_options *o = &s->options;
    struct device *dev;
    struct pool_options options = {
        .cache_bytes = o->cache_bytes,
        .worker_count = o->worker_count,
        .read_only = o->read_only,
        .lose_damaged_log = o->lose_damaged_log,
        .background = true,
        .notice = notice,
    };
    int r = device_open(env_os(), o->pool_path, o->read_only ? DEVICE_OPEN_READ_ONLY : 0, 0, &dev, err);
    return r < 0 ? r : pool_open(dev, &options, &s->pool, err);
}

static int listen_default(struct server *s, struct error *err)
{
    char path[sizeof(s->path) + 8];
    snprintf(path, sizeof(path), "%s.nbd", s->options.pool_path);
    return nbd_server_listen_unix(s->nbd, path, err);
}

static int listen_all(struct server *s, struct error *err)
{
    const struct serve_options *o = &s->options;
    unsigned activated = 0;
    int r = nbd_server_listen_activation(s->nbd, &activated, err);
    for (unsigned i = 0; r == 0 && i < o->listener_count; i++) {
        const struct serve_listener *l = &o->listeners[i];
        r = l->is_tcp ? nbd_server_listen_tcp(s->nbd, l->host, l->port, err)
                      : nbd_server_listen_unix(s->nbd, l->path, err);
    }
    if (r == 0 && activated == 0 && o->listener_count == 0 && !o->use_stdio)
        r = listen_default(s, err);
    return r;
}

static int nbd_start(struct server *s, struct error *err)
{
    struct nbd_server_options options = {
        .max_connections = s->options.max_connections, .read_only = s->options.read_only, .notice = notice};
    int r = queue_new(env_os(), s->options.thread_count, &s->queue);
    if (r < 0)
        return error_set(err, r, "the request queue: %s", strerror(-r));
    r = pool_exports_new(s->pool, s->queue, s->options.read_only, &s->exports);
    if (r < 0)
        return error_set(err, r, "the exports: %s", strerror(-r));
    r = nbd_server_new(env_os(), &options, pool_export_ops(), s->exports, &s->nbd, err);
    if (r == 0)
        r = listen_all(s, err);
    return r;
}

/* A pool in a directory that cannot be written to can be served read-only all the same: readers share the lock. */
static int control_start(struct server *s, struct control_host *host, struct error *err)
{
    struct error why = {0};
    *host = (struct control_host){.env = env_os(), .pool = s->pool, .path = s->path, .ops = serve_host_ops(), .arg = s};
    int r = control_server_start(host, s->options.pool_path, &s->control, &why);
    if (r == 0)
        return 0;
    if (s->options.read_only && (r == -EROFS || r == -EACCES)) {
        fprintf(stderr, "ashlar: no control socket (%s): stop this server by a signal\n", why.text);
        return 0;
    }
    return error_set(err, r, "%s", why.text);
}

static void stdio_run(void *arg)
{
    struct server *s = arg;
    struct error err = {0};
    uint64_t one = 1;
    if (nbd_server_serve(s->nbd, STDIN_FILENO, STDOUT_FILENO, &err) < 0)
        notice(NULL, err.text);
    ssize_t n = write(s->stop_fd, &one, sizeof(one));
    (void)n; /* the counter cannot be full */
}

static int server_start(struct server *s, struct control_host *host, struct error *err)
{
    int r = check_not_served(&s->options, err);
    if (r == 0)
        r = signals_begin(s, err);
    if (r < 0)
        return r;
    descriptors_raise();
    memory_set_up();
    s->started_ns = env_now_ns(env_os());
    s->started_wall_ns = env_wall_ns(env_os());
    r = pool_start(s, err);
    if (r == 0)
        r = nbd_start(s, err);
    if (r == 0)
        r = control_start(s, host, err);
    if (r == 0)
        r = nbd_server_start(s->nbd, err);
    if (r == 0 && s->options.use_stdio) {
        r = env_thread_start(env_os(), "stdio", stdio_run, s, &s->helper);
        if (r < 0)
            error_set(err, r, "a thread for --stdio: %s", strerror(-r));
    }
    return r;
}

/* ---- going down ---- */

/* True if it was a signal. */
static bool wait_for_stop(struct server *s)
{
    struct pollfd fds[2] = {{.fd = s->signal_fd, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};
    struct signalfd_siginfo info;
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return (fds[0].revents & POLLIN) != 0 && read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

struct stopping {
    struct server *server;
    unsigned cut;
    int done_fd;
};

static void stop_run(void *arg)
{
    struct stopping *stopping = arg;
    uint64_t one = 1;
    stopping->cut = nbd_server_stop(stopping->server->nbd, stopping->server->options.grace_ns);
    ssize_t n = write(stopping->done_fd, &one, sizeof(one));
    (void)n;
}

/*
 * The user does not want to wait: makes everything acknowledged durable and leaves, whatever clients and commands still
 * have under way. The pool is not closed, so the next open replays the log since the last checkpoint. From here on a
 * signal kills.
 */
static _Noreturn void hurry(struct server *s)
{
    sigset_t set;
    struct signalfd_siginfo info;
    fprintf(stderr, "ashlar: flushing, and leaving without waiting for anybody; once more to kill\n");
    while (read(s->signal_fd, &info, sizeof(info)) > 0)
        ; /* else the signal that said so would kill as soon as it may */
    sigfillset(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    int r = s->options.read_only ? 0 : pool_flush(s->pool);
    if (r < 0)
        fprintf(stderr, "ashlar: the last flush: %s\n", strerror(-r));
    _exit(r < 0 ? EXIT_FAILED : EXIT_DONE);
}

/* Ends the NBD server with grace; the next signal ends waiting. */
static void nbd_stop(struct server *s)
{
    struct stopping stopping = {.server = s, .done_fd = eventfd(0, EFD_CLOEXEC)};
    struct env_thread *thread;
    if (stopping.done_fd < 0 || env_thread_start(env_os(), "nbd-stop", stop_run, &stopping, &thread) < 0) {
        stopping.cut = nbd_server_stop(s->nbd, s->options.grace_ns);
    } else {
        struct pollfd fds[2] = {{.fd = stopping.done_fd, .events = POLLIN}, {.fd = s->signal_fd, .events = POLLIN}};
        while (poll(fds, 2, -1) < 0 && errno == EINTR)
            ;
        if ((fds[0].revents & POLLIN) == 0)
            hurry(s);
        env_thread_join(thread);
    }
    if (stopping.done_fd >= 0)
        close(stopping.done_fd);
    if (stopping.cut > 0)
        fprintf(stderr, "ashlar: %u connections had requests under way and were cut\n", stopping.cut);
}

/* Undoes what server_start did, as far as it came. */
static void server_stop(struct server *s, struct error *err)
{
    struct error closing = {0};
    if (s->control != NULL)
        control_server_end(s->control);
    if (s->nbd != NULL)
        nbd_server_free(s->nbd);
    if (s->helper != NULL)
        env_thread_join(s->helper);
    if (s->exports != NULL)
        pool_exports_free(s->exports);
    if (s->queue != NULL)
        queue_free(s->queue);
    if (s->pool != NULL && pool_close(s->pool, &closing) < 0)
        error_set(err, closing.code, "%s", closing.text);
    control_server_free(s->control, &closing);
}

static int run_serve(struct invocation *in)
{
    struct error err = {0};
    struct control_host host;
    struct server s = {.in = in, .signal_fd = -1, .stop_fd = -1};
    if (serve_options_parse(in, &s.options, &err) < 0)
        return output_error(in, &err, EXIT_USAGE);
    snprintf(s.path, sizeof(s.path), "%s", s.options.pool_path);
    control_text_clean(s.path);
    if (server_start(&s, &host, &err) == 0) {
        serve_print(&s);
        serve_tell_ready(s.options.ready_fd, "serving");
        if (wait_for_stop(&s))
            fprintf(stderr, "ashlar: stopping; once more to hurry\n");
        serve_tell_stopping();
        nbd_stop(&s);
    }
    server_stop(&s, &err);
    return err.code < 0 ? output_error(in, &err, EXIT_FAILED) : EXIT_DONE;
}

static const struct option_spec serve_options[] = {
    {"nbd", "ADDRESS", "unix:PATH or tcp:HOST:PORT; may be repeated (default unix:POOL.nbd)"},
    {"read-only", NULL, "nobody can write; the pool is not changed either"},
    {"cache", "SIZE", "memory for records and map (default 256M)"},
    {"threads", "N", "threads that carry out requests (default 16)"},
    {"workers", "N", "threads that compress (default one a CPU)"},
    {"max-connections", "N", "clients at a time (default 1024)"},
    {"grace", "SECONDS", "how long stopping waits for requests under way (default 10)"},
    {"ready-fd", "N", "write a line to this descriptor when clients can connect"},
    {"stdio", NULL, "serve one connection on standard input and output, then end"},
    {"lose-damaged-log", NULL, "open although flushed log is damaged; what lies behind is lost"},
    {NULL},
};

const struct verb verb_serve = {
    .name = "serve",
    .operands = "POOL",
    .summary = "serves all volumes of a pool over NBD, in the foreground",
    .details =
        "Volumes made while it runs are served at once. The empty export name is the only volume, if there is one.\n"
        "SIGTERM, SIGINT or ashlar stop end it: requests under way finish, everything is flushed.\n"
        "\n"
        "Without --nbd it listens on a unix socket beside the pool that only its user can open. TCP has no\n"
        "password and no encryption: name an address that only friends can reach.",
    .options = serve_options,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run_serve,
};
