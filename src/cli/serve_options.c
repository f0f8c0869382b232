/*
 * The options of `serve`: read and checked as a whole before anything is opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "cli/argument.h"
#include "cli/serve.h"
#include "cli/verb.h"

enum { NBD_PORT = 10809, GRACE_SECONDS = 10, THREADS_MAX = 1024, CONNECTIONS_MAX = 65536 };

static int tcp_parse(const char *word, struct serve_listener *l, struct error *err)
{
    const char *host = word + strlen("tcp:"), *end, *port = NULL;
    if (host[0] == '[') {
        host++;
        end = strchr(host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return error_set(err, -EINVAL, "--nbd '%.200s': it must be tcp:[ADDRESS]:PORT", word);
        port = end[1] == ':' ? end + 2 : NULL;
    } else {
        const char *colon = strchr(host, ':');
        if (colon != NULL && strchr(colon + 1, ':') != NULL)
            return error_set(err, -EINVAL, "--nbd '%.200s': an IPv6 address stands in brackets, as tcp:[::1]:10809",
                             word);
        end = colon != NULL ? colon : host + strlen(host);
        port = colon != NULL ? colon + 1 : NULL;
    }
    if ((size_t)(end - host) >= sizeof(l->host))
        return error_set(err, -EINVAL, "--nbd '%.200s': the address is too long", word);
    if (end == host)
        return error_set(err, -EINVAL, "--nbd '%.200s': name the address; all of them are tcp:0.0.0.0 and tcp:[::]",
                         word);
    snprintf(l->host, sizeof(l->host), "%.*s", (int)(end - host), host);
    uint64_t number = NBD_PORT;
    int r = port != NULL ? argument_number(port, "--nbd: port", 0, UINT16_MAX, &number, err) : 0;
    l->is_tcp = true;
    l->port = (uint16_t)number;
    return r;
}

static int listener_parse(const char *word, struct serve_listener *ret_listener, struct error *err)
{
    *ret_listener = (struct serve_listener){0};
    if (strncmp(word, "tcp:", strlen("tcp:")) == 0)
        return tcp_parse(word, ret_listener, err);
    if (strncmp(word, "unix:", strlen("unix:")) != 0 || word[strlen("unix:")] == '\0')
        return error_set(err, -EINVAL, "--nbd '%.200s': it must be unix:PATH or tcp:ADDRESS:PORT", word);
    ret_listener->path = word + strlen("unix:");
    return 0;
}

static int number_option(const struct invocation *in, const char *name, uint64_t least, uint64_t most, uint64_t *number,
                         struct error *err)
{
    char what[32];
    const char *word = invocation_value(in, name);
    snprintf(what, sizeof(what), "--%s", name);
    return word != NULL ? argument_number(word, what, least, most, number, err) : 0;
}

static int listeners_parse(const struct invocation *in, struct serve_options *o, struct error *err)
{
    const char *word;
    unsigned cursor = 0;
    while ((word = invocation_next(in, "nbd", &cursor)) != NULL) {
        if (o->listener_count == SERVE_LISTENERS_MAX)
            return error_set(err, -EINVAL, "--nbd: more than %d of them", SERVE_LISTENERS_MAX);
        int r = listener_parse(word, &o->listeners[o->listener_count++], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int ready_fd_parse(const struct invocation *in, struct serve_options *o, struct error *err)
{
    uint64_t number = 0;
    o->ready_fd = -1;
    if (invocation_value(in, "ready-fd") == NULL)
        return 0;
    int r = number_option(in, "ready-fd", 0, INT32_MAX, &number, err);
    if (r < 0)
        return r;
    if (fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0)
        return error_set(err, -EINVAL, "--ready-fd %d: %s", (int)number, strerror(errno));
    o->ready_fd = (int)number;
    return 0;
}

static int cache_parse(const struct invocation *in, struct serve_options *o, struct error *err)
{
    const char *word = invocation_value(in, "cache");
    int r = word != NULL ? size_parse(word, "--cache", &o->cache_bytes, err) : 0;
    if (r == 0 && word != NULL && o->cache_bytes < 8 * MIB)
        r = error_set(err, -EINVAL, "--cache '%.32s': at least 8M", word);
    return r;
}

int serve_options_parse(const struct invocation *in, struct serve_options *ret_options, struct error *err)
{
    struct serve_options *o = ret_options;
    uint64_t threads = 0, workers = 0, connections = 0, grace_seconds = GRACE_SECONDS;
    *o = (struct serve_options){.pool_path = in->operands[0], .ready_fd = -1};
    o->use_stdio = invocation_flag(in, "stdio");
    o->read_only = invocation_flag(in, "read-only");
    o->lose_damaged_log = invocation_flag(in, "lose-damaged-log");
    if (o->read_only && o->lose_damaged_log)
        return error_set(err, -EINVAL,
                         "--read-only opens a pool with damaged log as it is: leave --lose-damaged-log out");
    int r = listeners_parse(in, o, err);
    if (r == 0)
        r = ready_fd_parse(in, o, err);
    if (r == 0)
        r = cache_parse(in, o, err);
    if (r == 0)
        r = number_option(in, "threads", 1, THREADS_MAX, &threads, err);
    if (r == 0)
        r = number_option(in, "workers", 1, THREADS_MAX, &workers, err);
    if (r == 0)
        r = number_option(in, "max-connections", 1, CONNECTIONS_MAX, &connections, err);
    if (r == 0)
        r = number_option(in, "grace", 0, 86400, &grace_seconds, err);
    o->thread_count = (unsigned)threads;
    o->worker_count = (unsigned)workers;
    o->max_connections = (unsigned)connections;
    o->grace_ns = grace_seconds * UINT64_C(1000000000);
    return r;
}
