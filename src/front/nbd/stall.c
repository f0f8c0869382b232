/*
 * The last resort of the memory budget (budget.c): somebody has waited for memory for stall_ns, so for that long those
 * who hold it gave none of it back. Then, at every tick, connections are dropped that hold what only their peer can
 * free (an unfinished payload, replies not taken) and have hardly moved for as long: those that hold most first, and as
 * many as it takes for all who wait. A connection that moves is never dropped, nor one that waits for the engine, nor
 * one that holds little.
 */
#include "base/math.h"
#include "base/tree.h"
#include "front/nbd/connection.h"
#include "front/nbd/server_impl.h"

#define NS_PER_S UINT64_C(1000000000)
#define HELD_BYTES_MIN (64 * KIB)
#define MOVED_BYTES_MIN (64 * KIB) /* a second: what counts as moving */

/* Memory that comes back only if the peer does something. */
static uint64_t held_for_peer(struct nbd_connection *c)
{
    env_mutex_lock(&c->sender.lock);
    uint64_t unsent = c->sender.blocked ? c->sender.unsent_bytes : 0;
    env_mutex_unlock(&c->sender.lock);
    return unsent + nbd_transmission_held_bytes(c);
}

/* Counts for every connection the ticks for which it has hardly moved, and not because it waits for memory itself. */
static void judge_all(struct nbd_server *server)
{
    for (struct list *at = server->connections.next; at != &server->connections; at = at->next) {
        struct nbd_connection *c = CONTAINER_OF(at, struct nbd_connection, link);
        uint64_t moved = nbd_connection_moved_bytes(c);
        bool slow = moved - c->moved_at_tick < MOVED_BYTES_MIN && !nbd_budget_is_waiting(server->budget, &c->share);
        c->slow_ticks = slow ? c->slow_ticks + 1 : 0;
        c->moved_at_tick = moved;
    }
}

static struct nbd_connection *find_victim(struct nbd_server *server, unsigned ticks_min, uint64_t *ret_held_bytes)
{
    struct nbd_connection *victim = NULL;
    *ret_held_bytes = HELD_BYTES_MIN - 1;
    for (struct list *at = server->connections.next; at != &server->connections; at = at->next) {
        struct nbd_connection *c = CONTAINER_OF(at, struct nbd_connection, link);
        uint64_t held = held_for_peer(c);
        if (c->slow_ticks >= ticks_min && held > *ret_held_bytes) {
            *ret_held_bytes = held;
            victim = c;
        }
    }
    return victim;
}

static void drop_stalled(struct nbd_server *server, unsigned ticks_min)
{
    struct nbd_budget_info info;
    uint64_t held, freed = 0;
    nbd_budget_get_info(server->budget, &info);
    while (freed < info.wanted_bytes) {
        struct nbd_connection *victim = find_victim(server, ticks_min, &held);
        if (victim == NULL)
            return;
        freed += held;
        nbd_count(&server->counters.dropped_stalls, 1);
        nbd_server_notice(server,
                          "NBD %s: held request memory that others wait for and hardly moved, connection closed",
                          victim->peer);
        nbd_connection_close(victim);
    }
}

static uint64_t tick_ns(const struct nbd_server *server)
{
    return min_u64(NS_PER_S, server->options.stall_ns);
}

void nbd_server_watch_stalls(struct nbd_server *server)
{
    if (server->stall_timer.deadline_ns != 0)
        return;
    for (struct list *at = server->connections.next; at != &server->connections; at = at->next) {
        struct nbd_connection *c = CONTAINER_OF(at, struct nbd_connection, link);
        c->moved_at_tick = nbd_connection_moved_bytes(c);
        c->slow_ticks = 0;
    }
    nbd_loop_set_timer(server->loop, &server->stall_timer, nbd_loop_now_ns(server->loop) + tick_ns(server));
}

void nbd_server_stall_tick(struct nbd_timer *timer)
{
    struct nbd_server *server = CONTAINER_OF(timer, struct nbd_server, stall_timer);
    uint64_t since = nbd_budget_waiting_since_ns(server->budget);
    if (since == 0)
        return;
    uint64_t now = nbd_loop_now_ns(server->loop);
    nbd_loop_set_timer(server->loop, timer, now + tick_ns(server));
    judge_all(server);
    if (now >= since + server->options.stall_ns)
        drop_stalled(server, (unsigned)(server->options.stall_ns / tick_ns(server)));
}
