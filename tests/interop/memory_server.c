/*
 * The NBD server on exports in memory, as a program: so that clients that others wrote can be tried against the
 * protocol without the engine.
 *
 *   memory_server [--unix PATH] [--tcp PORT] [--stdio] [--activation] [--ready-fd N] [--threads N] [--delay-us N]
 *                 [--fail-reads OFFSET] NAME:BYTES[:ro]...
 *
 * Ends at SIGTERM or SIGINT (or, with --stdio, with the connection); then prints what it counted to standard error.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "env/env.h"
#include "front/nbd/server.h"
#include "memory_exports.h"

struct settings {
    const char *unix_path;
    bool stdio, activation, tcp;
    uint16_t tcp_port;
    int ready_fd;
    struct memory_options memory;
    bool fails;
    uint64_t fail_offset;
};

static void say(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "memory_server: %s\n", text);
}

static int read_options(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"unix", 1, NULL, 'u'},       {"tcp", 1, NULL, 't'},        {"stdio", 0, NULL, 's'},
        {"ready-fd", 1, NULL, 'r'},   {"threads", 1, NULL, 'n'},    {"delay-us", 1, NULL, 'd'},
        {"fail-reads", 1, NULL, 'f'}, {"activation", 0, NULL, 'a'}, {NULL, 0, NULL, 0}};
    for (int letter; (letter = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        uint64_t n = optarg != NULL ? strtoull(optarg, NULL, 0) : 0;
        switch (letter) {
        case 'u':
            s->unix_path = optarg;
            break;
        case 't':
            s->tcp = true;
            s->tcp_port = (uint16_t)n;
            break;
        case 's':
            s->stdio = true;
            break;
        case 'a':
            s->activation = true;
            break;
        case 'r':
            s->ready_fd = (int)n;
            break;
        case 'n':
            s->memory.thread_count = (unsigned)n;
            break;
        case 'd':
            s->memory.delay_ns_max = n * 1000;
            break;
        case 'f':
            s->fails = true;
            s->fail_offset = n;
            break;
        default:
            return -EINVAL;
        }
    }
    return 0;
}

static void add_export(struct memory_exports *m, const char *text)
{
    char name[EXPORT_NAME_BYTES];
    const char *colon = strchr(text, ':');
    snprintf(name, sizeof name, "%.*s", colon != NULL ? (int)(colon - text) : (int)strlen(text), text);
    uint64_t bytes = colon != NULL ? strtoull(colon + 1, NULL, 0) : 1 << 30;
    memory_exports_add(m, name, bytes, colon != NULL && strstr(colon, ":ro") != NULL);
}

static int listen_as_told(struct nbd_server *server, const struct settings *s, struct error *err)
{
    unsigned count;
    int ret = 0;
    if (s->unix_path != NULL)
        ret = nbd_server_listen_unix(server, s->unix_path, err);
    if (ret == 0 && s->tcp)
        ret = nbd_server_listen_tcp(server, "127.0.0.1", s->tcp_port, err);
    if (ret == 0 && s->activation)
        ret = nbd_server_listen_activation(server, &count, err);
    return ret;
}

static void print_stats(struct nbd_server *server)
{
    struct nbd_server_stats s;
    uint64_t commands = 0;
    nbd_server_get_stats(server, &s);
    for (unsigned i = 0; i < NBD_CMD_COUNT; i++)
        commands += s.commands[i];
    fprintf(stderr,
            "memory_server: %" PRIu64 " connections, %" PRIu64 " commands, %" PRIu64 " errors, %" PRIu64 " receives, "
            "%" PRIu64 " sends (%" PRIu64 " direct), %" PRIu64 " sleeps (%" PRIu64 " woken), memory at most %" PRIu64
            " KiB, dropped %" PRIu64 "\n",
            s.negotiated, commands, s.errors, s.receive_calls, s.send_calls, s.direct_sends, s.loop_waits,
            s.loop_wake_ups, s.memory_bytes_max / 1024, s.dropped_violations + s.dropped_stalls + s.dropped_handshakes);
}

static int run(struct nbd_server *server, const struct settings *s, const sigset_t *signals, struct error *err)
{
    int ret = listen_as_told(server, s, err), number;
    char uri[1024];
    if (ret == 0)
        ret = nbd_server_start(server, err);
    if (ret < 0)
        return ret;
    for (unsigned i = 0; nbd_server_uri(server, i, "", uri, sizeof uri)[0] != '\0'; i++)
        fprintf(stderr, "memory_server: %s\n", uri);
    if (s->ready_fd >= 0) {
        if (write(s->ready_fd, "ready\n", 6) != 6)
            return error_set(err, -errno, "cannot write to descriptor %d", s->ready_fd);
        close(s->ready_fd);
    }
    if (s->stdio)
        return nbd_server_serve(server, STDIN_FILENO, STDOUT_FILENO, err);
    sigwait(signals, &number);
    (void)nbd_server_stop(server, UINT64_C(5000000000));
    return 0;
}

int main(int argc, char **argv)
{
    struct settings s = {.ready_fd = -1};
    struct error err = {0};
    sigset_t signals;
    if (read_options(argc, argv, &s) < 0 || optind == argc) {
        fprintf(stderr, "usage: memory_server [OPTION...] NAME:BYTES[:ro]...\n");
        return 2;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    struct memory_exports *memory = memory_exports_new(env_os(), &s.memory);
    for (int i = optind; i < argc; i++)
        add_export(memory, argv[i]);
    if (s.fails)
        memory_exports_fail(memory, REQUEST_READ, EIO, s.fail_offset, 1, UINT32_MAX);
    struct nbd_server_options options = {.notice = say};
    struct nbd_server *server;
    int ret = nbd_server_new(env_os(), &options, memory_export_ops(), memory, &server, &err);
    if (ret == 0) {
        ret = run(server, &s, &signals, &err);
        print_stats(server);
        nbd_server_free(server);
    }
    memory_exports_free(memory);
    if (ret < 0)
        fprintf(stderr, "memory_server: %s\n", err.text);
    return ret < 0 ? 1 : 0;
}
