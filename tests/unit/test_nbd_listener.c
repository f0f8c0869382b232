/*
 * Where connections come from: unix sockets, TCP, activation, descriptors that are given. Numbers in names: the rules
 * that servers get wrong; B: a row of the table of faults that others shipped.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/math.h"
#include "env/env.h"
#include "front/nbd/protocol.h"
#include "front/nbd/wire.h"
#include "memory_exports.h"
#include "nbd_fixture.h"
#include "raw_client.h"
#include "tap.h"

static char directory[] = "/tmp/ashlar-nbd-XXXXXX";
static char path[100];

/* A server that is not started, on one export. */
struct bare {
    struct memory_exports *memory;
    struct nbd_server *server;
};

static void bare_begin(struct bare *b)
{
    struct memory_options memory = {0};
    struct nbd_server_options options = {0};
    b->memory = memory_exports_new(env_os(), &memory);
    memory_exports_add(b->memory, "disk", 1 * MIB, false);
    EXPECT_EQ(nbd_server_new(env_os(), &options, memory_export_ops(), b->memory, &b->server, NULL), 0);
}

static void bare_end(struct bare *b)
{
    nbd_server_free(b->server);
    memory_exports_free(b->memory);
}

static int connect_unix(const char *at)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool works(int fd)
{
    return fd >= 0 && client_go(fd, "disk", 0, NULL) && client_do(fd, 0, NBD_CMD_FLUSH, 0, 0, NULL) == 0;
}

static void unix_socket(void)
{
    struct bare b;
    struct stat st;
    char uri[512], expected[256];
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_unix(b.server, path, NULL), 0);
    EXPECT_EQ(stat(path, &st), 0);
    EXPECT(S_ISSOCK(st.st_mode));
    EXPECT_EQ(st.st_mode & 0777, 0600);
    EXPECT_EQ(nbd_server_start(b.server, NULL), 0);
    snprintf(expected, sizeof expected, "nbd+unix:///a%%20b?socket=%s", path);
    EXPECT_TEXT(nbd_server_uri(b.server, 0, "a b", uri, sizeof uri), expected);
    EXPECT_TEXT(nbd_server_uri(b.server, 1, "", uri, sizeof uri), "");
    int fds[20];
    for (int i = 0; i < 20; i++) {
        fds[i] = connect_unix(path);
        EXPECT(works(fds[i]));
    }
    EXPECT_EQ(nbd_server_stop(b.server, 1000000000), 0);
    EXPECT(access(path, F_OK) < 0); /* removed */
    for (int i = 0; i < 20; i++)
        close(fds[i]);
    bare_end(&b);
}

static void unix_socket_that_is_stale_is_replaced(void)
{
    struct bare b;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(stale, (struct sockaddr *)&address, sizeof address), 0);
    close(stale); /* bound, nobody listens: as after a crash */
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_unix(b.server, path, NULL), 0);
    EXPECT_EQ(nbd_server_start(b.server, NULL), 0);
    int fd = connect_unix(path);
    EXPECT(works(fd));
    close(fd);
    bare_end(&b);
}

static void unix_socket_of_a_living_server_is_left_alone(void)
{
    struct bare a, b;
    struct error err = {0};
    bare_begin(&a);
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_unix(a.server, path, NULL), 0);
    EXPECT_EQ(nbd_server_start(a.server, NULL), 0);
    EXPECT_EQ(nbd_server_listen_unix(b.server, path, &err), -EADDRINUSE);
    EXPECT(strstr(err.text, path) != NULL);
    bare_end(&b);
    int fd = connect_unix(path); /* the end of the second does not remove the socket of the first */
    EXPECT(works(fd));
    close(fd);
    bare_end(&a);
}

static void a_file_that_is_no_socket_is_left_alone(void)
{
    struct bare b;
    struct error err = {0};
    char letter;
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    EXPECT_EQ(write(fd, "a", 1), 1);
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_unix(b.server, path, &err), -EEXIST);
    bare_end(&b);
    EXPECT_EQ(pread(fd, &letter, 1, 0), 1);
    EXPECT_EQ(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}

static void the_socket_of_a_successor_is_not_removed(void)
{
    struct bare b;
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_unix(b.server, path, NULL), 0);
    unlink(path);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    bare_end(&b);
    EXPECT_EQ(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}

static void unix_socket_errors(void)
{
    struct bare b;
    struct error err = {0};
    char longer[200], beside[200];
    bare_begin(&b);
    snprintf(longer, sizeof longer, "%s/%0100d", directory, 1);
    EXPECT_EQ(nbd_server_listen_unix(b.server, longer, &err), -ENAMETOOLONG);
    EXPECT(strstr(err.text, "at most 107") != NULL);
    EXPECT_EQ(nbd_server_listen_unix(b.server, "", NULL), -ENAMETOOLONG);
    err = (struct error){0};
    EXPECT_EQ(nbd_server_listen_unix(b.server, "/no/such/directory/s", &err), -ENOENT);
    EXPECT(strstr(err.text, "/no/such/directory/s") != NULL);
    bare_end(&b);
    /* nothing is left lying about */
    snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
    EXPECT(access(beside, F_OK) < 0);
}

static int connect_tcp(const char *uri)
{
    unsigned port = 0;
    bool six = strncmp(uri, "nbd://[", 7) == 0;
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 sixth = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    const char *colon = strrchr(uri, ':');
    if (colon == NULL || sscanf(colon, ":%u/", &port) != 1)
        return -1;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    four.sin_port = sixth.sin6_port = htons((uint16_t)port);
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int ret =
        six ? connect(fd, (struct sockaddr *)&sixth, sizeof sixth) : connect(fd, (struct sockaddr *)&four, sizeof four);
    if (ret == 0)
        return fd;
    close(fd);
    return -1;
}

static void tcp(void)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};
    for (int i = 0; i < 3; i++) {
        struct bare b;
        struct error err = {0};
        char uri[256];
        bare_begin(&b);
        int ret = nbd_server_listen_tcp(b.server, hosts[i], 0, &err);
        if (i == 1 && ret == -EADDRNOTAVAIL) {
            printf("# no IPv6 here\n");
            bare_end(&b);
            continue;
        }
        EXPECT_EQ(ret, 0);
        EXPECT_EQ(nbd_server_start(b.server, NULL), 0);
        nbd_server_uri(b.server, 0, "disk", uri, sizeof uri);
        EXPECT(strncmp(uri, i == 1 ? "nbd://[::1]:" : "nbd://", i == 1 ? 12 : 6) == 0);
        int fd = connect_tcp(uri);
        EXPECT(works(fd));
        struct nbd_client_info info;
        EXPECT_EQ(nbd_server_get_clients(b.server, &info, 1), 1);
        EXPECT(strncmp(info.peer, i == 1 ? "[::1]:" : "127.0.0.1:", i == 1 ? 6 : 10) == 0 || i == 2);
        close(fd);
        bare_end(&b);
    }
}

static void tcp_errors(void)
{
    struct bare a, b;
    struct error err = {0};
    char uri[256];
    bare_begin(&a);
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_tcp(a.server, "127.0.0.1", 0, NULL), 0);
    nbd_server_uri(a.server, 0, "", uri, sizeof uri);
    unsigned port = 0;
    EXPECT_EQ(sscanf(strrchr(uri, ':'), ":%u/", &port), 1);
    EXPECT_EQ(nbd_server_listen_tcp(b.server, "127.0.0.1", (uint16_t)port, &err), -EADDRINUSE);
    EXPECT(strstr(err.text, "127.0.0.1") != NULL);
    err = (struct error){0};
    EXPECT(nbd_server_listen_tcp(b.server, "no.such.host.invalid", 1, &err) < 0);
    EXPECT(strstr(err.text, "no.such.host.invalid") != NULL);
    EXPECT(nbd_server_listen_tcp(b.server, "192.0.2.1", 0, NULL) < 0); /* not an address of ours */
    bare_end(&b);
    bare_end(&a);
}

static void listening_sockets_that_are_given(void)
{
    struct bare b;
    struct error err = {0};
    struct sockaddr_in any = {.sin_family = AF_INET};
    char uri[256];
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd, (struct sockaddr *)&any, sizeof any), 0);
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_fd(b.server, fd, &err), -EINVAL); /* does not listen yet */
    EXPECT_EQ(listen(fd, 5), 0);
    EXPECT_EQ(nbd_server_listen_fd(b.server, fd, NULL), 0);
    EXPECT_EQ(nbd_server_listen_fd(b.server, -1, NULL), -EINVAL);
    EXPECT_EQ(nbd_server_start(b.server, NULL), 0);
    int client = connect_tcp(nbd_server_uri(b.server, 0, "", uri, sizeof uri));
    EXPECT(works(client));
    close(client);
    bare_end(&b);
}

/* The protocol of service managers fixes the descriptor number and the process, so this runs in a child. */
static int serve_activated(void)
{
    struct bare b;
    char text[16];
    unsigned count = 99;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 5) < 0 || dup2(fd, 3) != 3)
        return 10;
    bare_begin(&b);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", "1", 1);
    if (nbd_server_listen_activation(b.server, &count, NULL) != 0 || count != 0)
        return 11; /* meant for another process */
    snprintf(text, sizeof text, "%d", (int)getpid());
    setenv("LISTEN_PID", text, 1);
    if (nbd_server_listen_activation(b.server, &count, NULL) != 0 || count != 1)
        return 12;
    if (getenv("LISTEN_PID") != NULL || getenv("LISTEN_FDS") != NULL || nbd_server_start(b.server, NULL) != 0)
        return 13;
    int client = connect_unix(path);
    if (!works(client))
        return 14;
    close(client);
    bare_end(&b);
    return access(path, F_OK) == 0 ? 0 : 15; /* not ours to remove */
}

static void socket_activation(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(serve_activated());
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    unlink(path);
}

/* Without descriptors accept fails; the server must not spin, and must go on when there are some again. */
static void out_of_descriptors(void)
{
    struct bare b;
    struct rlimit before, low;
    struct nbd_server_stats first, second;
    int fds[40];
    bare_begin(&b);
    EXPECT_EQ(nbd_server_listen_unix(b.server, path, NULL), 0);
    EXPECT_EQ(nbd_server_start(b.server, NULL), 0);
    for (int i = 0; i < 40; i++)
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int next = dup(fds[0]);
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = (rlim_t)next + 5;
    close(next);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    for (int i = 0; i < 40; i++)
        EXPECT_EQ(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
    env_sleep_ns(env_os(), 200000000);
    nbd_server_get_stats(b.server, &first);
    env_sleep_ns(env_os(), 1000000000);
    nbd_server_get_stats(b.server, &second);
    EXPECT(first.accepted < 40);
    EXPECT(second.accept_failures > 0);
    EXPECT(second.loop_waits - first.loop_waits < 20); /* it sleeps */
    EXPECT(works(fds[0]));                             /* who is in is served */
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 1; i < 40; i++)
        EXPECT(works(fds[i]));
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    bare_end(&b);
}

/* ---- one connection on given descriptors ---- */

struct server_thread {
    struct fixture *f;
    int in, out, result;
    struct env_thread *thread;
};

static void serve(void *arg)
{
    struct server_thread *s = arg;
    s->result = nbd_server_serve(s->f->server, s->in, s->out, NULL);
}

static void serve_begin(struct server_thread *s, struct fixture *f, int in, int out)
{
    *s = (struct server_thread){.f = f, .in = in, .out = out, .result = 1};
    EXPECT_EQ(env_thread_start(env_os(), "serve", serve, s, &s->thread), 0);
}

/* A session of flags, GO, a WRITE, a READ of it, DISC. */
static size_t session(uint8_t *bytes)
{
    uint8_t payload[64];
    size_t n = client_info_payload(payload, "disk", NULL, 0);
    uint8_t *p = wire_put_u64(wire_put_u32(bytes, 3), UINT64_C(0x49484156454f5054));
    p = wire_put_u32(wire_put_u32(p, NBD_OPT_GO), (uint32_t)n);
    memcpy(p, payload, n);
    p += n;
    for (uint16_t type = NBD_CMD_WRITE;; type = type == NBD_CMD_WRITE ? NBD_CMD_READ : NBD_CMD_DISC) {
        p = wire_put_u64(wire_put_u32(wire_put_u32(p, 0x25609513), type), 40u + type);
        p = wire_put_u32(wire_put_u64(p, type == NBD_CMD_DISC ? 0 : 100), type == NBD_CMD_DISC ? 0 : 5);
        if (type == NBD_CMD_WRITE) {
            memcpy(p, "hello", 5);
            p += 5;
        }
        if (type == NBD_CMD_DISC)
            return (size_t)(p - bytes);
    }
}

/* What the session must be answered, from the greeting on. */
static bool answers_are_right(const uint8_t *a, size_t n)
{
    return n == 18 + 32 + 20 + 16 + 16 + 5 && memcmp(a, "NBDMAGIC", 8) == 0 &&
           wire_get_u32(a + 18 + 12) == NBD_REP_INFO && wire_get_u32(a + 50 + 12) == NBD_REP_ACK &&
           wire_get_u32(a + 70) == 0x67446698 && wire_get_u64(a + 78) == 41 && wire_get_u64(a + 94) == 40 &&
           memcmp(a + 102, "hello", 5) == 0;
}

static void serve_on_pipes(void)
{
    uint8_t bytes[512], answer[512];
    struct fixture f;
    struct server_thread s;
    int in[2], out[2];
    fixture_begin(&f);
    REQUIRE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    size_t n = session(bytes), got = 0;
    EXPECT_EQ(write(in[1], bytes, n), (ssize_t)n);
    serve_begin(&s, &f, in[0], out[1]);
    env_thread_join(s.thread); /* DISC ended it, though the pipe is open */
    EXPECT_EQ(s.result, 0);
    EXPECT_EQ(fcntl(in[0], F_GETFL) & O_NONBLOCK, 0); /* as it was */
    EXPECT_EQ(fcntl(out[1], F_GETFL) & O_NONBLOCK, 0);
    close(out[1]);
    for (ssize_t now; (now = read(out[0], answer + got, sizeof answer - got)) > 0;)
        got += (size_t)now;
    EXPECT(answers_are_right(answer, got));
    close(in[0]);
    close(in[1]);
    close(out[0]);
    fixture_end(&f);
}

static void serve_on_files(void)
{
    uint8_t bytes[512], answer[512];
    struct fixture f;
    struct server_thread s;
    fixture_begin(&f);
    FILE *in = tmpfile(), *out = tmpfile();
    REQUIRE(in != NULL && out != NULL);
    size_t n = session(bytes);
    EXPECT_EQ(pwrite(fileno(in), bytes, n, 0), (ssize_t)n);
    serve_begin(&s, &f, fileno(in), fileno(out));
    env_thread_join(s.thread);
    EXPECT_EQ(s.result, 0);
    EXPECT(answers_are_right(answer, (size_t)pread(fileno(out), answer, sizeof answer, 0)));
    fclose(in);
    fclose(out);
    fixture_end(&f);
}

static void serve_on_a_socket(void)
{
    struct fixture f;
    struct server_thread s;
    int pair[2];
    fixture_begin(&f);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    serve_begin(&s, &f, pair[1], pair[1]);
    EXPECT(works(pair[0]));
    close(pair[0]);
    env_thread_join(s.thread);
    EXPECT_EQ(s.result, 0);
    EXPECT(fcntl(pair[1], F_GETFD) >= 0); /* the caller's still */
    close(pair[1]);
    EXPECT(nbd_server_serve(f.server, -1, -1, NULL) == -EBADF);
    fixture_end(&f);
}

/* Rule 8: a reader that goes away must not kill the server by SIGPIPE; nor must end of input in the middle. */
static void rule_8_broken_pipes(void)
{
    uint8_t bytes[512];
    struct fixture f;
    fixture_begin(&f);
    size_t n = session(bytes);
    for (size_t cut = 0; cut <= n; cut += 3) {
        struct server_thread s;
        int in[2], out[2];
        REQUIRE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
        EXPECT_EQ(write(in[1], bytes, cut), (ssize_t)cut);
        close(in[1]);
        close(out[0]);
        serve_begin(&s, &f, in[0], out[1]);
        env_thread_join(s.thread);
        EXPECT_EQ(s.result, 0);
        close(in[0]);
        close(out[1]);
    }
    fixture_end(&f);
}

/* More than a pipe holds: the rest is written when there is room. */
static void serve_waits_for_a_slow_pipe(void)
{
    static uint8_t answer[2 << 20];
    uint8_t bytes[512], *p;
    struct fixture f;
    struct server_thread s;
    int in[2], out[2];
    fixture_begin(&f);
    REQUIRE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    p = bytes + session(bytes) - 28; /* before DISC */
    p = wire_put_u64(wire_put_u32(wire_put_u32(p, 0x25609513), NBD_CMD_READ), 9);
    p = wire_put_u32(wire_put_u64(p, 0), 1 << 20);
    EXPECT_EQ(write(in[1], bytes, (size_t)(p - bytes)), p - bytes);
    close(in[1]); /* end of input: what was asked for is answered */
    serve_begin(&s, &f, in[0], out[1]);
    size_t got = 0, wanted = 18 + 32 + 20 + 16 + 21 + 16 + (1 << 20);
    while (got < wanted) {
        env_sleep_ns(env_os(), 1000000);
        ssize_t now = read(out[0], answer + got, 50000);
        REQUIRE(now > 0);
        got += (size_t)now;
    }
    env_thread_join(s.thread);
    EXPECT_EQ(s.result, 0);
    EXPECT_EQ(got, wanted);
    close(in[0]);
    close(out[0]);
    close(out[1]);
    fixture_end(&f);
}

static void options_out_of_range(void)
{
    static const struct nbd_server_options table[] = {{.max_connections = 65537},
                                                      {.request_memory_bytes = 1},
                                                      {.request_memory_bytes = 40 * MIB, .max_connections = 8192}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct nbd_server *server;
        struct error err = {0};
        EXPECT_EQ(nbd_server_new(env_os(), &table[i], memory_export_ops(), NULL, &server, &err), -EINVAL);
        EXPECT(err.text[0] != '\0');
    }
}

int main(void)
{
    if (mkdtemp(directory) == NULL)
        return 99;
    snprintf(path, sizeof path, "%s/socket", directory);
    RUN(socket_activation); /* before there are threads: it forks */
    RUN(unix_socket);
    RUN(unix_socket_that_is_stale_is_replaced);
    RUN(unix_socket_of_a_living_server_is_left_alone);
    RUN(a_file_that_is_no_socket_is_left_alone);
    RUN(the_socket_of_a_successor_is_not_removed);
    RUN(unix_socket_errors);
    RUN(tcp);
    RUN(tcp_errors);
    RUN(listening_sockets_that_are_given);
    RUN(out_of_descriptors);
    RUN(serve_on_pipes);
    RUN(serve_on_files);
    RUN(serve_on_a_socket);
    RUN(rule_8_broken_pipes);
    RUN(serve_waits_for_a_slow_pipe);
    RUN(options_out_of_range);
    rmdir(directory);
    return tap_done();
}
