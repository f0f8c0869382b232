/*
 * The metadata context queries: there is one context, base:allocation. A query for another, in a namespace known or
 * unknown, selects nothing and is no error; "base:" is a wildcard when listing only.
 *
 * SET replaces what was selected before whatever comes of it, and is bound to the export name it was given: GO with
 * another name finds nothing selected.
 */
#include <errno.h>
#include <string.h>

#include "front/nbd/connection.h"
#include "front/nbd/handshake.h"
#include "front/nbd/options.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/wire.h"

static bool query_is(const uint8_t *query, uint32_t n, const char *text)
{
    return n == strlen(text) && memcmp(query, text, n) == 0;
}

/* Reads the queries. false: answered with an error. */
static bool take_queries(struct nbd_connection *c, struct wire_source *s, bool *ret_matched)
{
    bool lists = c->handshake->option == NBD_OPT_LIST_META_CONTEXT;
    uint32_t count = wire_take_u32(s);
    *ret_matched = lists && count == 0;
    for (uint32_t i = 0; i < count && !s->bad; i++) {
        uint32_t n = wire_take_u32(s);
        const uint8_t *query = wire_take(s, n);
        if (query == NULL)
            break;
        if (n > NBD_STRING_BYTES_MAX) {
            nbd_option_error(c, NBD_REP_ERR_INVALID, "query of %u bytes, the most is %u", n, NBD_STRING_BYTES_MAX);
            return false;
        }
        if (query_is(query, n, NBD_BASE_ALLOCATION) || (lists && query_is(query, n, "base:")))
            *ret_matched = true;
    }
    if (!s->bad && s->left_bytes == 0)
        return true;
    nbd_option_error(c, NBD_REP_ERR_INVALID, "%u queries do not match an option of %u bytes", count,
                     c->handshake->payload_bytes);
    return false;
}

void nbd_meta_handle(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    if (h->option == NBD_OPT_SET_META_CONTEXT)
        h->context_set = false;
    if (!h->structured) {
        nbd_option_error(c, NBD_REP_ERR_INVALID, "metadata contexts need structured replies, negotiate these first");
        return;
    }
    struct wire_source s = {.bytes = h->payload, .left_bytes = h->payload_bytes};
    char name[EXPORT_NAME_BYTES];
    if (nbd_option_take_name(c, &s, name) && take_queries(c, &s, &h->matched))
        nbd_option_call(c, NBD_CALL_DESCRIBE, name);
}

void nbd_meta_called(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    h->state = NBD_AT_OPTION_HEADER;
    if (h->errand.result < 0) {
        bool unknown = h->errand.result == -ENOENT || h->errand.result == -EINVAL;
        nbd_option_error(c, unknown ? NBD_REP_ERR_UNKNOWN : NBD_REP_ERR_POLICY, "%s", h->errand.error.text);
        return;
    }
    bool sets = h->option == NBD_OPT_SET_META_CONTEXT;
    if (h->matched) {
        uint8_t reply[4 + sizeof NBD_BASE_ALLOCATION];
        size_t n = strlen(NBD_BASE_ALLOCATION);
        wire_put_u32(reply, sets ? NBD_BASE_ALLOCATION_ID : 0);
        memcpy(reply + 4, NBD_BASE_ALLOCATION, n);
        nbd_option_reply(c, NBD_REP_META_CONTEXT, reply, 4 + n);
    }
    if (sets && h->matched) {
        h->context_set = true;
        memcpy(h->context_name, h->errand.name, sizeof h->context_name);
    }
    nbd_option_reply(c, NBD_REP_ACK, NULL, 0);
}
