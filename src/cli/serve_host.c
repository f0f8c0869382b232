/*
 * What the control server asks of a running server: its status, who uses a volume, and to stop.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/serve.h"
#include "env/env.h"
#include "front/control/property.h"
#include "front/control/execute.h"
#include "front/nbd/server.h"

enum { CLIENTS_MAX = 1024, USERS_NAMED_MAX = 3, URI_BYTES = 4096 };

/* The list of clients, from malloc; NULL and 0 if there is no memory. */
static struct nbd_client_info *clients_of(struct server *s, size_t *ret_count)
{
    struct nbd_client_info *clients = calloc(CLIENTS_MAX, sizeof(*clients));
    size_t count = clients != NULL ? nbd_server_get_clients(s->nbd, clients, CLIENTS_MAX) : 0;
    *ret_count = count < CLIENTS_MAX ? count : CLIENTS_MAX;
    return clients;
}

static json_t *clients_to_json(struct server *s, uint64_t now_ns)
{
    size_t count;
    struct nbd_client_info *clients = clients_of(s, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:I}", "peer", clients[i].peer, "volume",
                                                     clients[i].export_name, "seconds",
                                                     (json_int_t)((now_ns - clients[i].connected_ns) / 1000000000)));
    free(clients);
    return array;
}

static json_t *stats_to_json(const struct nbd_server_stats *t)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "accepted", (json_int_t)t->accepted,
                     "negotiated", (json_int_t)t->negotiated, "handshakes", (json_int_t)t->handshakes_now,
                     "dropped-handshakes", (json_int_t)t->dropped_handshakes, "dropped-violations",
                     (json_int_t)t->dropped_violations, "dropped-stalls", (json_int_t)t->dropped_stalls, "refused-full",
                     (json_int_t)t->refused_full, "errors", (json_int_t)t->errors, "received-bytes",
                     (json_int_t)t->received_bytes, "sent-bytes", (json_int_t)t->sent_bytes, "request-memory",
                     (json_int_t)t->memory_bytes);
}

static json_t *host_status(void *arg)
{
    struct server *s = arg;
    struct nbd_server_stats stats;
    char since[32], uri[URI_BYTES];
    uint64_t now_ns = env_now_ns(env_os());
    json_t *listening = json_array();
    nbd_server_get_stats(s->nbd, &stats);
    for (unsigned i = 0; nbd_server_uri(s->nbd, i, "", uri, sizeof(uri))[0] != '\0'; i++)
        (void)json_array_append_new(listening, json_string(uri));
    return json_pack("{s:i, s:s, s:I, s:o, s:I, s:o, s:o}", "pid", (int)getpid(), "since",
                     wall_time_format(s->started_wall_ns, since, sizeof(since)), "uptime-seconds",
                     (json_int_t)((now_ns - s->started_ns) / 1000000000), "listening", listening, "connections",
                     (json_int_t)stats.connections_now, "clients", clients_to_json(s, now_ns), "nbd",
                     stats_to_json(&stats));
}

static void host_describe_users(void *arg, const char *volume, struct text *ret_text)
{
    struct server *s = arg;
    size_t count;
    unsigned named = 0;
    struct nbd_client_info *clients = clients_of(s, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(clients[i].export_name, volume) != 0)
            continue;
        if (named == USERS_NAMED_MAX) {
            text_printf(ret_text, ", ...");
            break;
        }
        text_printf(ret_text, "%s%s", named++ > 0 ? ", " : "", clients[i].peer);
    }
    free(clients);
}

static void host_stop(void *arg)
{
    struct server *s = arg;
    uint64_t one = 1;
    ssize_t n = write(s->stop_fd, &one, sizeof(one));
    (void)n; /* the counter cannot be full */
}

const struct control_host_ops *serve_host_ops(void)
{
    static const struct control_host_ops ops = {
        .status = host_status, .describe_users = host_describe_users, .stop = host_stop};
    return &ops;
}
