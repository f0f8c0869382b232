/*
 * The last resort of the memory budget (budget.c): somebody has waited for memory for stall_ns, so for that long those
 * who hold it gave none of it back. Once a second then, the connection that holds most of what only its peer can free
 * (an unfinished payload, replies not taken) is dropped, if it has hardly moved for as long. A connection that moves is
 * never dropped, nor one that waits for the engine, nor one that holds little.
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

/* Times without movement; judged at every tick. */
static unsigned slow_ticks(struct nbd_connection *c)
{
    uint64_t moved = nbd_connection_moved_bytes(c);
    c->slow_ticks = moved - c->moved_at_tick < MOVED_BYTES_MIN ? c->slow_ticks + 1 : 0;
    c->moved_at_tick = moved;
    return c->slow_ticks;
}

static struct nbd_connection *find_victim(struct nbd_server *server, unsigned ticks_min)
{
    struct nbd_connection *victim = NULL;
    uint64_t most = HELD_BYTES_MIN - 1;
    for (struct list *at = server->connections.next; at != &server->connections; at = at->next) {
        struct nbd_connection *c = CONTAINER_OF(at, struct nbd_connection, link);
        uint64_t held = held_for_peer(c);
        if (slow_ticks(c) >= ticks_min && held > most) {
            most = held;
            victim = c;
        }
    }
    return victim;
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
    unsigned ticks_min = (unsigned)(server->options.stall_ns / tick_ns(server));
    struct nbd_connection *victim = find_victim(server, ticks_min);
    nbd_loop_set_timer(server->loop, timer, now + tick_ns(server));
    if (victim == NULL || now < since + server->options.stall_ns)
        return;
    nbd_count(&server->counters.dropped_stalls, 1);
    nbd_server_notice(server, "NBD %s: held request memory that others wait for and hardly moved, connection closed",
                      victim->peer);
    nbd_connection_close(victim);
}
