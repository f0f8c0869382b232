/*
 * Bytes to options: greeting, client flags, then options one at a time.
 *
 * Every length is checked before memory for it is taken: a payload of up to NBD_OPTION_PAYLOAD_BYTES_MAX is kept, a
 * longer one is skipped and refused, so that the stream stays in step; a client that announces more than
 * NBD_OPTION_SKIP_BYTES_MAX is dropped. An option is answered only when what was said before has been sent, so a client
 * that does not read costs nothing.
 *
 * What the back-end has to be asked (list, open) is asked by the errand thread, with the connection's state on the way
 * in struct nbd_handshake_errand; the connection reads nothing meanwhile. Nothing is opened before a client asks by
 * name.
 */
#include "front/nbd/handshake.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "front/nbd/connection.h"
#include "front/nbd/options.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/wire.h"

struct nbd_handshake *nbd_handshake_new(struct nbd_connection *c)
{
    struct nbd_handshake *h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    h->state = NBD_AT_CLIENT_FLAGS;
    h->options_allowed = NBD_OPTIONS_MAX;
    h->errand.connection = c;
    return h;
}

static void retire_greeting(struct nbd_reply *reply)
{
    free(reply);
}

void nbd_handshake_begin(struct nbd_connection *c)
{
    struct nbd_reply *reply = calloc(1, sizeof *reply);
    if (reply == NULL) {
        nbd_connection_close(c);
        return;
    }
    uint8_t *p = wire_put_u64(reply->head, NBD_MAGIC);
    p = wire_put_u64(p, NBD_IHAVEOPT);
    wire_put_u16(p, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
    reply->head_bytes = NBD_GREETING_BYTES;
    reply->retire = retire_greeting;
    env_mutex_lock(&c->sender.lock);
    nbd_sender_put_locked(c, reply);
    nbd_sender_send_and_unlock(c, true);
}

void nbd_handshake_free(struct nbd_handshake *h)
{
    if (h == NULL)
        return;
    if (h->errand.export != NULL)
        h->errand.connection->server->ops->close(h->errand.export);
    free(h->errand.entries);
    free(h->payload);
    free(h);
}

static void take_client_flags(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    uint32_t flags = wire_get_u32(h->header);
    h->filled = 0;
    if ((flags & ~(uint32_t)(NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES)) != 0) {
        nbd_connection_violation(c, "client flags 0x%x that were not offered", flags);
        return;
    }
    h->fixed = (flags & NBD_FLAG_FIXED_NEWSTYLE) != 0;
    h->no_zeroes = (flags & NBD_FLAG_NO_ZEROES) != 0;
    h->state = NBD_AT_OPTION_HEADER;
}

static void take_option_header(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    uint64_t magic = wire_get_u64(h->header);
    h->option = wire_get_u32(h->header + 8);
    h->payload_bytes = wire_get_u32(h->header + 12);
    h->filled = 0;
    if (magic != NBD_IHAVEOPT) {
        nbd_connection_violation(c, "option with magic number 0x%llx", (unsigned long long)magic);
    } else if (!h->fixed && h->option != NBD_OPT_EXPORT_NAME) {
        nbd_connection_violation(c, "option %u from a client that did not agree to fixed newstyle", h->option);
    } else if (h->option == NBD_OPT_EXPORT_NAME && h->payload_bytes > NBD_STRING_BYTES_MAX) {
        nbd_connection_violation(c, "export name of %u bytes", h->payload_bytes);
    } else if (h->payload_bytes > NBD_OPTION_SKIP_BYTES_MAX) {
        nbd_connection_violation(c, "option %u of %u bytes", h->option, h->payload_bytes);
    } else if (++h->option_count > h->options_allowed) {
        nbd_connection_violation(c, "more than %u options", h->options_allowed);
    } else {
        h->state = NBD_AT_OPTION_PAYLOAD;
        if (h->payload_bytes > 0 && h->payload_bytes <= NBD_OPTION_PAYLOAD_BYTES_MAX) {
            h->payload = malloc(h->payload_bytes);
            if (h->payload == NULL)
                nbd_connection_close(c);
        }
    }
}

/* Collects up to `wanted` bytes in the header; true when they are complete. */
static bool collect_header(struct nbd_handshake *h, uint32_t wanted, const uint8_t *bytes, size_t n, size_t *ret_taken)
{
    size_t taken = (size_t)min_u64(n, wanted - h->filled);
    memcpy(h->header + h->filled, bytes, taken);
    h->filled += (uint32_t)taken;
    *ret_taken = taken;
    return h->filled == wanted;
}

static size_t take_bytes(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    struct nbd_handshake *h = c->handshake;
    size_t taken = 0;
    if (h->state == NBD_AT_CLIENT_FLAGS) {
        if (collect_header(h, NBD_CLIENT_FLAGS_BYTES, bytes, n, &taken))
            take_client_flags(c);
    } else if (h->state == NBD_AT_OPTION_HEADER) {
        if (collect_header(h, NBD_OPTION_HEADER_BYTES, bytes, n, &taken))
            take_option_header(c);
    } else {
        taken = (size_t)min_u64(n, h->payload_bytes - h->filled);
        if (h->payload != NULL)
            memcpy(h->payload + h->filled, bytes, taken);
        h->filled += (uint32_t)taken;
    }
    return taken;
}

/* Whether what was said before has been sent; if not, the connection is posted when it has. */
static bool all_sent(struct nbd_connection *c)
{
    env_mutex_lock(&c->sender.lock);
    bool sent = c->sender.unsent_bytes == 0;
    c->sender.notify = !sent;
    env_mutex_unlock(&c->sender.lock);
    return sent;
}

/* Goes on without bytes. true: it did. */
static bool step(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    switch (h->state) {
    case NBD_AT_CLIENT_FLAGS:
    case NBD_AT_OPTION_HEADER:
        return false;
    case NBD_AT_OPTION_PAYLOAD:
        if (h->filled < h->payload_bytes)
            return false;
        h->filled = 0;
        h->state = NBD_AT_OPTION;
        return true;
    case NBD_AT_OPTION:
        if (!all_sent(c))
            return false;
        nbd_option_handle(c);
        return true;
    case NBD_AT_LIST:
        if (!all_sent(c))
            return false;
        nbd_option_list_on(c);
        return true;
    case NBD_AT_BACKEND:
        if (!atomic_load_explicit(&h->errand.done, memory_order_acquire))
            return false;
        nbd_option_called(c);
        return true;
    }
    return false;
}

size_t nbd_handshake_consume(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    size_t at = 0;
    if (n > 0)
        c->handshake->heard = true;
    while (c->phase == NBD_PHASE_HANDSHAKE) {
        if (step(c))
            continue;
        if (at == n || !nbd_handshake_wants_bytes(c))
            break;
        at += take_bytes(c, bytes + at, n - at);
    }
    return at;
}

bool nbd_handshake_wants_bytes(struct nbd_connection *c)
{
    return c->handshake->state <= NBD_AT_OPTION_PAYLOAD;
}
