/*
 * The control server and its client, over real sockets, with a verb table of the test's own in place of the engine:
 * descriptors, progress, cancelling, stale sockets, hostile peers, silent servers, stopping.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "env/env.h"
#include "front/control/address.h"
#include "front/control/client.h"
#include "front/control/server.h"
#include "tap.h"

static char directory[64], pool_path[512], socket_path[512];
static _Atomic int stops, cancels, confirmed;

/* ---- verbs in place of the engine's ---- */

static int wait_until_cancelled(struct control_call *call)
{
    for (uint64_t i = 0; i < 2000; i++) {
        if (call->progress(call->arg, i, 2000) != 0) {
            atomic_fetch_add(&cancels, 1);
            return -ECANCELED;
        }
        env_sleep_ns(env_os(), 5000000);
    }
    return 0;
}

int control_execute(const struct control_host *host, struct control_call *call, json_t **ret_result, struct error *err)
{
    const char *verb = call->request.verb;
    (void)host;
    if (strcmp(verb, "echo") == 0) {
        *ret_result = json_incref(call->request.arguments);
        return 0;
    }
    if (strcmp(verb, "write") == 0) {
        bool good = call->fd >= 0 && write(call->fd, "hello", 5) == 5;
        *ret_result = json_pack("{s:b}", "written", (int)good);
        return 0;
    }
    if (strcmp(verb, "large") == 0) {
        char *text = calloc(1, 3000000);
        memset(text, 'x', 2999999);
        *ret_result = json_pack("{s:s}", "text", text);
        free(text);
        return 0;
    }
    if (strcmp(verb, "slow") == 0) {
        env_sleep_ns(env_os(), UINT64_C(2500000000));
        *ret_result = json_pack("{}");
        return 0;
    }
    if (strcmp(verb, "confirm") == 0) {
        bool wanted = call->confirm(call->arg) == 0;
        atomic_fetch_add(wanted ? &confirmed : &cancels, 1);
        *ret_result = json_pack("{s:b}", "wanted", (int)wanted);
        return 0;
    }
    if (strcmp(verb, "wait") == 0) {
        int r = wait_until_cancelled(call);
        return error_set(err, r, "given up");
    }
    return error_set(err, -ENOSYS, "no verb '%s'", verb);
}

static void host_stop(void *arg)
{
    (void)arg;
    atomic_fetch_add(&stops, 1);
}

static const struct control_host_ops ops = {.stop = host_stop};

static struct control_server *start(struct control_host *host, struct error *err)
{
    struct control_server *server = NULL;
    *err = (struct error){0};
    *host = (struct control_host){.env = env_os(), .path = pool_path, .ops = &ops};
    if (control_server_start(host, pool_path, &server, err) < 0)
        return NULL;
    return server;
}

static void finish(struct control_server *server)
{
    control_server_end(server);
    control_server_free(server, NULL);
}

static int call(const char *verb, json_t *arguments, int fd, json_t **ret_result, struct error *err)
{
    struct control_client *client;
    *err = (struct error){0};
    int r = control_client_open(pool_path, &client, err);
    if (r < 0)
        return r;
    r = control_client_call(client, verb, arguments, fd, 10, NULL, NULL, ret_result, err);
    control_client_close(client);
    return r;
}

/* ---- tests ---- */

static void test_call(void)
{
    struct control_host host;
    struct error err;
    json_t *result = NULL, *arguments = json_pack("{s:s}", "a", "b");
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    EXPECT_EQ(call("echo", arguments, -1, &result, &err), 0);
    EXPECT(json_equal(result, arguments));
    json_decref(result);
    EXPECT_EQ(call("nonsense", NULL, -1, &result, &err), -ENOSYS);
    EXPECT_TEXT(err.text, "no verb 'nonsense'");
    EXPECT_EQ(call("large", NULL, -1, &result, &err), 0);
    EXPECT_EQ(strlen(json_string_value(json_object_get(result, "text"))), 2999999);
    json_decref(result);
    json_decref(arguments);
    finish(server);
}

static void test_many_calls_one_connection(void)
{
    struct control_host host;
    struct error err;
    struct control_client *client;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    REQUIRE(control_client_open(pool_path, &client, &err) == 0);
    EXPECT_EQ(control_client_server_pid(client), getpid());
    for (int i = 0; i < 100; i++) {
        json_t *result = NULL, *arguments = json_pack("{s:i}", "i", i);
        EXPECT_EQ(control_client_call(client, "echo", arguments, -1, 10, NULL, NULL, &result, &err), 0);
        EXPECT(json_equal(result, arguments));
        json_decref(result);
        json_decref(arguments);
    }
    control_client_close(client);
    finish(server);
}

static void test_descriptor_travels(void)
{
    struct control_host host;
    struct error err;
    json_t *result = NULL;
    int pipe_fds[2];
    char got[8] = {0};
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL && pipe(pipe_fds) == 0);
    EXPECT_EQ(call("write", NULL, pipe_fds[1], &result, &err), 0);
    EXPECT(json_is_true(json_object_get(result, "written")));
    json_decref(result);
    close(pipe_fds[1]);
    EXPECT_EQ(read(pipe_fds[0], got, sizeof(got)), 5);
    EXPECT_TEXT(got, "hello");
    EXPECT_EQ(read(pipe_fds[0], got, sizeof(got)), 0); /* the server closed its copy */
    close(pipe_fds[0]);
    finish(server);
}

static void test_socket_is_private(void)
{
    struct control_host host;
    struct error err;
    struct stat st;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    REQUIRE(lstat(socket_path, &st) == 0);
    EXPECT(S_ISSOCK(st.st_mode));
    EXPECT_EQ(st.st_mode & 07777, 0600);
    EXPECT_TEXT(control_server_path(server), socket_path);
    finish(server);
    EXPECT(lstat(socket_path, &st) < 0);
}

static void test_nobody_serves(void)
{
    struct control_client *client;
    struct error err = {0};
    EXPECT_EQ(control_client_open(pool_path, &client, &err), -ENOENT);
    EXPECT_EQ(err.code, 0);
    EXPECT_EQ(control_client_open("/nowhere/pool", &client, &err), -ENOENT);
    EXPECT_EQ(err.code, -ENOENT); /* the pool itself is missing: that has a text */
}

/* A socket file that nobody listens on. */
static void make_stale(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path, socket_path, strlen(socket_path) + 1);
    EXPECT_EQ(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    close(fd);
}

static void test_stale_socket(void)
{
    struct control_host host;
    struct control_client *client;
    struct error err = {0};
    json_t *result = NULL;
    make_stale();
    EXPECT_EQ(control_client_open(pool_path, &client, &err), -ENOENT);
    EXPECT_EQ(err.code, 0);
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    EXPECT_EQ(call("echo", NULL, -1, &result, &err), 0);
    json_decref(result);
    finish(server);
}

static void test_second_server(void)
{
    struct control_host host, other_host;
    struct error err;
    struct stat st;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    EXPECT(start(&other_host, &err) == NULL);
    EXPECT_EQ(err.code, -EADDRINUSE);
    EXPECT(lstat(socket_path, &st) == 0); /* the first one's is still there */
    finish(server);
}

static void test_file_in_the_way(void)
{
    struct control_host host;
    struct error err;
    struct stat st;
    int fd = open(socket_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    EXPECT_EQ(write(fd, "precious", 8), 8);
    close(fd);
    EXPECT(start(&host, &err) == NULL);
    EXPECT_EQ(err.code, -EADDRINUSE);
    EXPECT(strstr(err.text, "in the way") != NULL);
    EXPECT(stat(socket_path, &st) == 0 && st.st_size == 8);
    unlink(socket_path);
}

static int never_cancel(void *arg, uint64_t done, uint64_t total)
{
    uint64_t *most = arg;
    (void)total;
    *most = done > *most ? done : *most;
    return 0;
}

static int cancel_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return 1;
}

static int cancel_soon(void *arg, uint64_t done, uint64_t total)
{
    (void)total;
    (void)arg;
    return done >= 3;
}

static void test_slow_is_not_silent(void)
{
    struct control_host host;
    struct control_client *client;
    struct error err;
    json_t *result = NULL;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    REQUIRE(control_client_open(pool_path, &client, &err) == 0);
    /* It takes 2.5 s, tells that it lives every second: patience of 2 s is enough. */
    EXPECT_EQ(control_client_call(client, "slow", NULL, -1, 2, NULL, NULL, &result, &err), 0);
    json_decref(result);
    control_client_close(client);
    finish(server);
}

static void test_cancel(void)
{
    struct control_host host;
    struct control_client *client;
    struct error err;
    json_t *result = NULL;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    int before = atomic_load(&cancels);
    REQUIRE(control_client_open(pool_path, &client, &err) == 0);
    EXPECT_EQ(control_client_call(client, "wait", NULL, -1, 10, cancel_soon, NULL, &result, &err), -ECANCELED);
    control_client_close(client);
    for (int i = 0; i < 500 && atomic_load(&cancels) == before; i++)
        env_sleep_ns(env_os(), 10000000);
    EXPECT_EQ(atomic_load(&cancels), before + 1);
    finish(server);
}

static void test_confirm(void)
{
    struct control_host host;
    struct error err;
    struct control_client *client;
    json_t *result = NULL;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    int confirmed_before = atomic_load(&confirmed), cancels_before = atomic_load(&cancels);
    EXPECT_EQ(call("confirm", NULL, -1, &result, &err), 0);
    EXPECT(json_is_true(json_object_get(result, "wanted")));
    EXPECT_EQ(atomic_load(&confirmed), confirmed_before + 1);
    json_decref(result);
    REQUIRE(control_client_open(pool_path, &client, &err) == 0);
    EXPECT_EQ(control_client_call(client, "confirm", NULL, -1, 10, cancel_at_once, NULL, &result, &err), -ECANCELED);
    control_client_close(client); /* that is the answer */
    for (int i = 0; i < 500 && atomic_load(&cancels) == cancels_before; i++)
        env_sleep_ns(env_os(), 10000000);
    EXPECT_EQ(atomic_load(&cancels), cancels_before + 1);
    EXPECT_EQ(atomic_load(&confirmed), confirmed_before + 1);
    finish(server);
}

static void *call_wait(void *arg)
{
    struct control_client *client = arg;
    struct error err = {0};
    json_t *result = NULL;
    uint64_t most = 0;
    int r = control_client_call(client, "wait", NULL, -1, 10, never_cancel, &most, &result, &err);
    return r == -ECANCELED && most > 0 ? arg : NULL;
}

static void test_end_gives_up_what_runs(void)
{
    struct control_host host;
    struct control_client *client;
    struct error err;
    pthread_t thread;
    void *good = NULL;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    REQUIRE(control_client_open(pool_path, &client, &err) == 0);
    REQUIRE(pthread_create(&thread, NULL, call_wait, client) == 0);
    env_sleep_ns(env_os(), 300000000);
    finish(server);
    pthread_join(thread, &good);
    EXPECT(good != NULL);
    control_client_close(client);
}

static void *call_stop(void *arg)
{
    struct error err = {0};
    json_t *result = NULL;
    uint64_t *most = arg;
    int r = call("stop", NULL, -1, &result, &err);
    *most = r == 0 && json_is_true(json_object_get(result, "stopped"));
    json_decref(result);
    return NULL;
}

static void test_stop_is_answered_last(void)
{
    struct control_host host;
    struct error err;
    pthread_t thread;
    uint64_t stopped = 0;
    int before = atomic_load(&stops);
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);
    REQUIRE(pthread_create(&thread, NULL, call_stop, &stopped) == 0);
    for (int i = 0; i < 500 && atomic_load(&stops) == before; i++)
        env_sleep_ns(env_os(), 10000000);
    EXPECT_EQ(atomic_load(&stops), before + 1);
    control_server_end(server);
    env_sleep_ns(env_os(), 100000000);
    EXPECT_EQ(stopped, 0);
    control_server_free(server, NULL);
    pthread_join(thread, NULL);
    EXPECT_EQ(stopped, 1);
}

/* A connection that the test speaks over by itself. */
static int raw_connection(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path, socket_path, strlen(socket_path) + 1);
    EXPECT_EQ(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    return fd;
}

static bool answered_with_error(int fd)
{
    char line[512];
    ssize_t n = recv(fd, line, sizeof(line) - 1, 0);
    line[n > 0 ? n : 0] = '\0';
    return strstr(line, "\"error\"") != NULL;
}

static void test_hostile_peers(void)
{
    struct control_host host;
    struct error err;
    json_t *result = NULL;
    struct control_server *server = start(&host, &err);
    REQUIRE(server != NULL);

    int fd = raw_connection();
    EXPECT(send(fd, "garbage\n", 8, MSG_NOSIGNAL) == 8);
    EXPECT(answered_with_error(fd));
    close(fd);

    fd = raw_connection(); /* a line without end */
    char block[4096];
    memset(block, 'a', sizeof(block));
    for (int i = 0; i < 64; i++)
        if (send(fd, block, sizeof(block), MSG_NOSIGNAL) < 0)
            break;
    EXPECT(answered_with_error(fd));
    close(fd);

    fd = raw_connection(); /* half a request, then gone */
    EXPECT(send(fd, "{\"ashl", 6, MSG_NOSIGNAL) == 6);
    close(fd);

    int silent[40]; /* more than it takes */
    for (size_t i = 0; i < 40; i++)
        silent[i] = raw_connection();
    EXPECT(answered_with_error(silent[39]));
    for (size_t i = 0; i < 40; i++)
        close(silent[i]);
    env_sleep_ns(env_os(), 300000000);
    EXPECT_EQ(call("echo", NULL, -1, &result, &err), 0);
    json_decref(result);
    finish(server);
}

static void test_silent_server(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct error err;
    struct control_client *client;
    json_t *result = NULL;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path, socket_path, strlen(socket_path) + 1);
    EXPECT_EQ(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    EXPECT_EQ(listen(fd, 8), 0);
    err = (struct error){0};
    REQUIRE(control_client_open(pool_path, &client, &err) == 0);
    EXPECT_EQ(control_client_call(client, "echo", NULL, -1, 1, NULL, NULL, &result, &err), -ETIMEDOUT);
    EXPECT(strstr(err.text, "has not answered for 1 seconds") != NULL);
    control_client_close(client);
    close(fd);
    unlink(socket_path);
}

static void test_long_names(void)
{
    char name[256], path[512];
    struct control_host host;
    struct control_client *client;
    struct error err = {0};
    json_t *result = NULL;
    memset(name, 'n', 240);
    name[240] = '\0';
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    close(fd);
    struct control_server *server = NULL;
    host = (struct control_host){.env = env_os(), .path = path, .ops = &ops};
    REQUIRE(control_server_start(&host, path, &server, &err) == 0);
    REQUIRE(control_client_open(path, &client, &err) == 0);
    EXPECT_EQ(control_client_call(client, "echo", NULL, -1, 10, NULL, NULL, &result, &err), 0);
    json_decref(result);
    control_client_close(client);
    finish(server);
    unlink(path);
}

static void test_links_meet(void)
{
    char link_path[512];
    struct control_address one, other;
    struct error err = {0};
    snprintf(link_path, sizeof(link_path), "%s/link", directory);
    REQUIRE(symlink(pool_path, link_path) == 0);
    EXPECT_EQ(control_address_of(pool_path, &one, &err), 0);
    EXPECT_EQ(control_address_of(link_path, &other, &err), 0);
    EXPECT_TEXT(one.path, other.path);
    EXPECT_TEXT(one.path, socket_path);
    unlink(link_path);
}

int main(void)
{
    snprintf(directory, sizeof(directory), "/tmp/ashlar-control-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(pool_path, sizeof(pool_path), "%s/pool", directory);
    snprintf(socket_path, sizeof(socket_path), "%s/pool.control", directory);
    int fd = open(pool_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    RUN(test_call);
    RUN(test_many_calls_one_connection);
    RUN(test_descriptor_travels);
    RUN(test_socket_is_private);
    RUN(test_nobody_serves);
    RUN(test_stale_socket);
    RUN(test_second_server);
    RUN(test_file_in_the_way);
    RUN(test_slow_is_not_silent);
    RUN(test_cancel);
    RUN(test_confirm);
    RUN(test_end_gives_up_what_runs);
    RUN(test_stop_is_answered_last);
    RUN(test_hostile_peers);
    RUN(test_silent_server);
    RUN(test_long_names);
    RUN(test_links_meet);
    unlink(pool_path);
    rmdir(directory);
    return tap_done();
}
