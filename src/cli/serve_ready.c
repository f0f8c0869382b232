/*
 * Telling others that the server is up: people on standard output, a service manager by a datagram to NOTIFY_SOCKET
 * (the whole of that protocol), a script by a line on a descriptor.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/serve.h"
#include "cli/verb.h"
#include "front/control/server.h"
#include "front/nbd/server.h"
#include "pool/pool.h"

enum { VOLUMES_PRINTED_MAX = 20, URI_BYTES = 4096 };

/* Nobody has to be listening: errors do not matter. */
static void notify(const char *message)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(un.sun_path))
        return;
    memcpy(un.sun_path, path, strlen(path));
    if (path[0] == '@')
        un.sun_path[0] = '\0'; /* the abstract name space */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    ssize_t n = sendto(fd, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&un, length);
    (void)n;
    close(fd);
}

void serve_tell_ready(int ready_fd, const char *status)
{
    struct text message = {0};
    text_printf(&message, "READY=1\nMAINPID=%d\nSTATUS=%s", (int)getpid(), status);
    notify(message.bytes);
    text_free(&message);
    if (ready_fd < 0)
        return;
    ssize_t n = write(ready_fd, "ready\n", strlen("ready\n"));
    (void)n; /* who asked may be gone */
    if (ready_fd > STDERR_FILENO)
        close(ready_fd);
}

void serve_tell_stopping(void)
{
    notify("STOPPING=1");
}

struct printing {
    struct server *server;
    json_t *volumes; /* with --json */
    char first_uri[URI_BYTES];
    unsigned count;
};

static int print_volume(void *arg, const struct volume_info *info)
{
    struct printing *p = arg;
    char uri[URI_BYTES], size[16];
    json_t *uris = p->volumes != NULL ? json_array() : NULL;
    for (unsigned i = 0; nbd_server_uri(p->server->nbd, i, info->name, uri, sizeof(uri))[0] != '\0'; i++) {
        if (p->first_uri[0] == '\0')
            memcpy(p->first_uri, uri, sizeof(uri));
        if (uris != NULL)
            (void)json_array_append_new(uris, json_string(uri));
        else if (p->count < VOLUMES_PRINTED_MAX)
            printf("  %s  %s  %s\n", info->name, size_format(info->size_bytes, size, sizeof(size)), uri);
    }
    p->count++;
    if (p->volumes != NULL)
        (void)json_array_append_new(p->volumes, json_pack("{s:s, s:I, s:o}", "name", info->name, "size",
                                                          (json_int_t)info->size_bytes, "uris", uris));
    return 0;
}

static void print_json(struct server *s, struct printing *p)
{
    char uri[URI_BYTES];
    json_t *listening = json_array();
    for (unsigned i = 0; nbd_server_uri(s->nbd, i, "", uri, sizeof(uri))[0] != '\0'; i++)
        (void)json_array_append_new(listening, json_string(uri));
    json_t *control = s->control != NULL ? json_string(control_server_path(s->control)) : json_null();
    json_t *result = json_pack("{s:s, s:i, s:o, s:o, s:o}", "pool", s->path, "pid", (int)getpid(), "control",
                               control != NULL ? control : json_null(), "listening", listening, "volumes", p->volumes);
    output_json(result);
    json_decref(result);
}

static void print_text(struct server *s, const struct printing *p)
{
    if (p->count > VOLUMES_PRINTED_MAX)
        printf("  and %u more: ashlar list %s\n", p->count - VOLUMES_PRINTED_MAX, s->options.pool_path);
    if (p->count == 0)
        printf("no volumes yet; next, in another terminal: ashlar create %s NAME 10G\n", s->options.pool_path);
    else if (p->first_uri[0] != '\0')
        printf("next, in another terminal: nbdinfo '%s'\n", p->first_uri);
    printf("to end: ashlar stop %s\n", s->options.pool_path);
}

void serve_print(struct server *s)
{
    struct printing p = {.server = s};
    struct pool_info info;
    char size[16];
    if (s->options.use_stdio)
        return; /* standard output is the connection */
    pool_get_info(s->pool, &info);
    if (s->in->json)
        p.volumes = json_array();
    else
        printf("serving %s, %s%s, process %d\n", s->options.pool_path, size_format(info.size_bytes, size, sizeof(size)),
               s->options.read_only ? ", read-only" : "", (int)getpid());
    (void)volume_list(s->pool, print_volume, &p);
    if (s->in->json)
        print_json(s, &p);
    else
        print_text(s, &p);
    (void)fflush(stdout);
}
