/*
 * Reading the counters. They are relaxed atomics, each right by itself; a set read while requests run is not one
 * moment's.
 */
#include "base/math.h"
#include "front/nbd/server_impl.h"

static uint64_t get(atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void nbd_server_get_stats(struct nbd_server *server, struct nbd_server_stats *ret_stats)
{
    struct nbd_counters *c = &server->counters;
    struct nbd_loop_info loop;
    struct nbd_budget_info budget;
    nbd_loop_get_info(server->loop, &loop);
    nbd_budget_get_info(server->budget, &budget);
    env_mutex_lock(&server->lock);
    uint64_t negotiated = server->negotiated_count, handshakes = server->handshake_count, alive = server->alive_count;
    env_mutex_unlock(&server->lock);
    *ret_stats = (struct nbd_server_stats){.connections_now = negotiated,
                                           .handshakes_now = handshakes,
                                           /* one that is just negotiated is counted twice for a moment */
                                           .closing_now = alive - min_u64(alive, negotiated + handshakes),
                                           .accepted = get(&c->accepted),
                                           .negotiated = get(&c->negotiated),
                                           .dropped_handshakes = get(&c->dropped_handshakes),
                                           .dropped_violations = get(&c->dropped_violations),
                                           .dropped_stalls = get(&c->dropped_stalls),
                                           .refused_full = get(&c->refused_full),
                                           .accept_failures = get(&c->accept_failures),
                                           .commands_unknown = get(&c->commands_unknown),
                                           .errors = get(&c->errors),
                                           .received_bytes = get(&c->received_bytes),
                                           .sent_bytes = get(&c->sent_bytes),
                                           .receive_calls = get(&c->receive_calls),
                                           .send_calls = get(&c->send_calls),
                                           .direct_sends = get(&c->direct_sends),
                                           .loop_waits = loop.waits,
                                           .loop_wake_ups = loop.wake_ups,
                                           .asides = loop.asides,
                                           .reliefs = loop.reliefs,
                                           .memory_bytes = budget.used_bytes,
                                           .memory_bytes_max = budget.used_bytes_max,
                                           .memory_waiting = budget.waiting};
    for (unsigned i = 0; i < NBD_CMD_COUNT; i++)
        ret_stats->commands[i] = get(&c->commands[i]);
}
