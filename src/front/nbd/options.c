/*
 * Each option ends in exactly one final reply (or in transmission, or in the end of the connection), and every error
 * leaves the handshake as it was before: usable.
 *
 * Answers to INFO and GO are made by the same function from the same facts, so equal questions get equal answers. An
 * export is opened by GO and EXPORT_NAME; INFO and the meta contexts open it, look, and close it again.
 */
#include "front/nbd/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/tree.h"
#include "front/nbd/connection.h"
#include "front/nbd/handshake.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/utf8.h"
#include "front/nbd/wire.h"

/* ---- replies ---- */

static void retire_reply(struct nbd_reply *reply)
{
    free(reply);
}

/* Any bytes, as they are. */
static void send_bytes(struct nbd_connection *c, struct nbd_reply *reply, const void *data, size_t n)
{
    reply->text = malloc(n > 0 ? n : 1);
    if (reply->text == NULL) {
        free(reply);
        nbd_connection_close(c);
        return;
    }
    if (n > 0)
        memcpy(reply->text, data, n);
    reply->text_bytes = (uint32_t)n;
    reply->retire = retire_reply;
    env_mutex_lock(&c->sender.lock);
    nbd_sender_put_locked(c, reply);
    nbd_sender_send_and_unlock(c, true);
}

void nbd_option_reply(struct nbd_connection *c, uint32_t type, const void *data, size_t n)
{
    if (c->phase == NBD_PHASE_CLOSED)
        return;
    struct nbd_reply *reply = calloc(1, sizeof *reply);
    if (reply == NULL) {
        nbd_connection_close(c);
        return;
    }
    uint8_t *p = wire_put_u64(reply->head, NBD_OPTION_REPLY_MAGIC);
    p = wire_put_u32(p, c->handshake->option);
    p = wire_put_u32(p, type);
    wire_put_u32(p, (uint32_t)n);
    reply->head_bytes = NBD_OPTION_REPLY_HEADER_BYTES;
    send_bytes(c, reply, data, n);
}

void nbd_option_error(struct nbd_connection *c, uint32_t type, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    nbd_option_reply(c, type, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

/* ---- calls of the back-end ---- */

static void call_backend(struct nbd_errand *errand)
{
    struct nbd_handshake_errand *e = CONTAINER_OF(errand, struct nbd_handshake_errand, errand);
    struct nbd_connection *c = e->connection;
    struct nbd_server *server = c->server;
    e->error = (struct error){0};
    e->result = 0;
    switch (e->call) {
    case NBD_CALL_LIST:
        e->result = server->ops->list(server->backend, e->name, e->entries, NBD_LIST_PAGE, &e->entry_count);
        break;
    case NBD_CALL_DESCRIBE:
    case NBD_CALL_OPEN:
        e->result = server->ops->open(server->backend, e->name, &e->export, &e->info, &e->error);
        if (e->result < 0)
            e->export = NULL;
        else
            e->info.read_only |= server->options.read_only;
        break;
    case NBD_CALL_CLOSE:
        break;
    }
    if (e->export != NULL && e->call != NBD_CALL_OPEN) {
        server->ops->close(e->export);
        e->export = NULL;
    }
    atomic_store_explicit(&e->done, true, memory_order_release);
    nbd_connection_post(c);
    nbd_connection_put(c);
}

void nbd_option_call(struct nbd_connection *c, int call, const char *name)
{
    struct nbd_handshake_errand *e = &c->handshake->errand;
    e->errand.run = call_backend;
    e->call = (enum nbd_call)call;
    if (name != e->name)
        snprintf(e->name, sizeof e->name, "%s", name);
    atomic_store_explicit(&e->done, false, memory_order_relaxed);
    c->handshake->state = NBD_AT_BACKEND;
    nbd_connection_get(c);
    nbd_errands_post(c->server->errands, &e->errand);
}

/* ---- names ---- */

/* A name of n bytes into ret_name. false: no name that may be used. One longer than any export's is cut to a length
 * that none has, and so is unknown. */
static bool copy_name(const uint8_t *bytes, size_t n, char *ret_name)
{
    if (n > NBD_STRING_BYTES_MAX || !utf8_valid(bytes, n) || (n > 0 && memchr(bytes, 0, n) != NULL))
        return false;
    size_t kept = n < EXPORT_NAME_BYTES - 1 ? n : EXPORT_NAME_BYTES - 1;
    if (kept > 0)
        memcpy(ret_name, bytes, kept);
    ret_name[kept] = '\0';
    if (n > kept)
        ret_name[0] = '\x7f'; /* no export is called so */
    return true;
}

bool nbd_option_take_name(struct nbd_connection *c, struct wire_source *s, char *ret_name)
{
    uint32_t length = wire_take_u32(s);
    const uint8_t *bytes = wire_take(s, length);
    if (bytes == NULL) {
        nbd_option_error(c, NBD_REP_ERR_INVALID, "name of %u bytes in an option of %u", length,
                         c->handshake->payload_bytes);
        return false;
    }
    if (!copy_name(bytes, length, ret_name)) {
        nbd_option_error(c, NBD_REP_ERR_INVALID, "export name of %u bytes: at most %u, UTF-8, no NUL", length,
                         NBD_STRING_BYTES_MAX);
        return false;
    }
    return true;
}

/* ---- EXPORT_NAME, INFO, GO ---- */

static uint16_t transmission_flags(const struct export_info *info, bool structured)
{
    unsigned flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_CACHE;
    if (info->read_only)
        flags |= NBD_FLAG_READ_ONLY;
    else
        flags |= NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_FAST_ZERO;
    if (structured)
        flags |= NBD_FLAG_SEND_DF;
    return (uint16_t)flags;
}

static void send_text_info(struct nbd_connection *c, uint16_t type, const char *text)
{
    uint8_t info[2 + sizeof(struct export_entry)];
    size_t n = strlen(text);
    wire_put_u16(info, type);
    memcpy(info + 2, text, n);
    nbd_option_reply(c, NBD_REP_INFO, info, 2 + n);
}

static void send_infos(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    const struct export_info *info = &h->errand.info;
    uint8_t bytes[14];
    uint8_t *p = wire_put_u64(wire_put_u16(bytes, NBD_INFO_EXPORT), info->size_bytes);
    wire_put_u16(p, transmission_flags(info, h->structured));
    nbd_option_reply(c, NBD_REP_INFO, bytes, 12);
    if ((h->infos & 1u << NBD_INFO_NAME) != 0)
        send_text_info(c, NBD_INFO_NAME, info->entry.name);
    if ((h->infos & 1u << NBD_INFO_DESCRIPTION) != 0 && info->entry.description[0] != '\0')
        send_text_info(c, NBD_INFO_DESCRIPTION, info->entry.description);
    if ((h->infos & 1u << NBD_INFO_BLOCK_SIZE) != 0) {
        p = wire_put_u32(wire_put_u16(bytes, NBD_INFO_BLOCK_SIZE), 1);
        p = wire_put_u32(p, info->block_bytes_preferred);
        wire_put_u32(p, NBD_PAYLOAD_BYTES_MAX);
        nbd_option_reply(c, NBD_REP_INFO, bytes, 14);
    }
}

/* Makes the opened export the connection's. false: there are too many connections. */
static bool take_export(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    if (!nbd_connection_count_negotiated(c))
        return false;
    c->export = h->errand.export;
    h->errand.export = NULL;
    c->info = h->errand.info;
    c->structured = h->structured;
    c->base_allocation = h->context_set && strcmp(h->context_name, h->errand.name) == 0;
    c->flags = transmission_flags(&c->info, h->structured);
    return true;
}

static void reply_export_name(struct nbd_connection *c)
{
    uint8_t bytes[10 + NBD_EXPORT_NAME_PADDING_BYTES] = {0};
    wire_put_u16(wire_put_u64(bytes, c->info.size_bytes), c->flags);
    struct nbd_reply *reply = calloc(1, sizeof *reply);
    if (reply == NULL)
        nbd_connection_close(c);
    else
        send_bytes(c, reply, bytes, c->handshake->no_zeroes ? 10 : sizeof bytes);
}

static void export_name_called(struct nbd_connection *c)
{
    if (c->handshake->errand.result < 0 || !take_export(c)) {
        nbd_server_notice(c->server, "NBD %s: no export \"%s\" for it, connection closed", c->peer,
                          c->handshake->errand.name);
        nbd_connection_close(c);
        return;
    }
    reply_export_name(c);
    nbd_connection_negotiated(c);
}

static void unknown_export(struct nbd_connection *c)
{
    const struct nbd_handshake_errand *e = &c->handshake->errand;
    if (e->result == -ENOENT || e->result == -EINVAL)
        nbd_option_error(c, NBD_REP_ERR_UNKNOWN, "%s", e->error.text);
    else
        nbd_option_error(c, NBD_REP_ERR_POLICY, "cannot open the export: %s", e->error.text);
}

static void info_called(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    h->state = NBD_AT_OPTION_HEADER;
    if (h->errand.result < 0) {
        unknown_export(c);
    } else if (h->option == NBD_OPT_GO && !take_export(c)) {
        nbd_option_call(c, NBD_CALL_CLOSE, h->errand.name);
    } else {
        send_infos(c);
        nbd_option_reply(c, NBD_REP_ACK, NULL, 0);
        if (h->option == NBD_OPT_GO && c->phase == NBD_PHASE_HANDSHAKE)
            nbd_connection_negotiated(c);
    }
}

static void full_called(struct nbd_connection *c)
{
    c->handshake->state = NBD_AT_OPTION_HEADER;
    nbd_option_error(c, NBD_REP_ERR_POLICY, "the server has %u connections, its limit (--max-connections)",
                     c->server->options.max_connections);
}

static void handle_info(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    struct wire_source s = {.bytes = h->payload, .left_bytes = h->payload_bytes};
    char name[EXPORT_NAME_BYTES];
    if (!nbd_option_take_name(c, &s, name))
        return;
    uint16_t count = wire_take_u16(&s);
    if (s.bad || s.left_bytes != 2 * (size_t)count) {
        nbd_option_error(c, NBD_REP_ERR_INVALID, "%u information requests in %zu bytes", count, s.left_bytes);
        return;
    }
    h->infos = 0;
    for (unsigned i = 0; i < count; i++) {
        uint16_t info = wire_take_u16(&s);
        if (info <= NBD_INFO_BLOCK_SIZE)
            h->infos |= 1u << info;
    }
    nbd_option_call(c, h->option == NBD_OPT_GO ? NBD_CALL_OPEN : NBD_CALL_DESCRIBE, name);
}

static void handle_export_name(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    char name[EXPORT_NAME_BYTES];
    if (copy_name(h->payload, h->payload_bytes, name))
        nbd_option_call(c, NBD_CALL_OPEN, name);
    else
        nbd_connection_violation(c, "export name that is no UTF-8 text");
}

/* ---- LIST ---- */

static void send_entry(struct nbd_connection *c, const struct export_entry *entry)
{
    uint8_t bytes[4 + sizeof *entry];
    size_t name = strlen(entry->name), description = strlen(entry->description);
    wire_put_u32(bytes, (uint32_t)name);
    memcpy(bytes + 4, entry->name, name);
    memcpy(bytes + 4 + name, entry->description, description);
    nbd_option_reply(c, NBD_REP_SERVER, bytes, 4 + name + description);
}

static void list_called(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    struct nbd_handshake_errand *e = &h->errand;
    if (e->result < 0) {
        h->state = NBD_AT_OPTION_HEADER;
        nbd_option_error(c, NBD_REP_ERR_POLICY, "cannot list the exports: %s", strerror(-e->result));
        return;
    }
    if (e->entry_count == 0) {
        h->state = NBD_AT_OPTION_HEADER;
        nbd_option_reply(c, NBD_REP_ACK, NULL, 0);
        return;
    }
    /* A client may ask about each that it was told of: its flags and its contexts. */
    h->listed += (unsigned)e->entry_count;
    if (h->options_allowed < NBD_OPTIONS_MAX + 2 * h->listed)
        h->options_allowed = NBD_OPTIONS_MAX + 2 * h->listed;
    for (size_t i = 0; i < e->entry_count && c->phase == NBD_PHASE_HANDSHAKE; i++)
        send_entry(c, &e->entries[i]);
    memcpy(e->name, e->entries[e->entry_count - 1].name, sizeof e->name);
    h->state = NBD_AT_LIST;
}

void nbd_option_list_on(struct nbd_connection *c)
{
    struct nbd_handshake_errand *e = &c->handshake->errand;
    nbd_option_call(c, NBD_CALL_LIST, e->name);
}

static void handle_list(struct nbd_connection *c)
{
    struct nbd_handshake_errand *e = &c->handshake->errand;
    c->handshake->listed = 0;
    if (e->entries == NULL)
        e->entries = calloc(NBD_LIST_PAGE, sizeof *e->entries);
    if (e->entries == NULL)
        nbd_option_error(c, NBD_REP_ERR_POLICY, "no memory for the list");
    else
        nbd_option_call(c, NBD_CALL_LIST, "");
}

/* ---- all ---- */

static void handle_structured_reply(struct nbd_connection *c)
{
    if (c->handshake->structured) {
        nbd_option_error(c, NBD_REP_ERR_INVALID, "structured replies were negotiated already");
        return;
    }
    c->handshake->structured = true;
    nbd_option_reply(c, NBD_REP_ACK, NULL, 0);
}

static bool takes_no_payload(uint32_t option)
{
    return option == NBD_OPT_LIST || option == NBD_OPT_STRUCTURED_REPLY;
}

static bool takes_payload(uint32_t option)
{
    return option == NBD_OPT_INFO || option == NBD_OPT_GO || option == NBD_OPT_LIST_META_CONTEXT ||
           option == NBD_OPT_SET_META_CONTEXT;
}

static void dispatch(struct nbd_connection *c)
{
    uint32_t option = c->handshake->option;
    switch (option) {
    case NBD_OPT_EXPORT_NAME:
        handle_export_name(c);
        break;
    case NBD_OPT_LIST:
        handle_list(c);
        break;
    case NBD_OPT_INFO:
    case NBD_OPT_GO:
        handle_info(c);
        break;
    case NBD_OPT_STRUCTURED_REPLY:
        handle_structured_reply(c);
        break;
    case NBD_OPT_LIST_META_CONTEXT:
    case NBD_OPT_SET_META_CONTEXT:
        nbd_meta_handle(c);
        break;
    default:
        nbd_option_error(c, NBD_REP_ERR_UNSUP, "option %u is unknown here", option);
    }
}

void nbd_option_handle(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    uint32_t option = h->option;
    h->state = NBD_AT_OPTION_HEADER;
    if (option == NBD_OPT_ABORT) {
        nbd_option_reply(c, NBD_REP_ACK, NULL, 0);
        nbd_connection_end(c);
    } else if (c->server->draining && option == NBD_OPT_EXPORT_NAME) {
        nbd_connection_close(c);
    } else if (c->server->draining) {
        nbd_option_error(c, NBD_REP_ERR_SHUTDOWN, "the server is shutting down");
    } else if (takes_no_payload(option) && h->payload_bytes > 0) {
        nbd_option_error(c, NBD_REP_ERR_INVALID, "option %u takes no data, %u bytes came", option, h->payload_bytes);
    } else if (takes_payload(option) && h->payload_bytes > NBD_OPTION_PAYLOAD_BYTES_MAX) {
        nbd_option_error(c, NBD_REP_ERR_TOO_BIG, "option %u of %u bytes, the most is %u", option, h->payload_bytes,
                         NBD_OPTION_PAYLOAD_BYTES_MAX);
    } else {
        dispatch(c);
    }
    if (c->phase == NBD_PHASE_HANDSHAKE) {
        free(h->payload);
        h->payload = NULL;
    }
}

void nbd_option_called(struct nbd_connection *c)
{
    struct nbd_handshake *h = c->handshake;
    if (h->errand.call == NBD_CALL_CLOSE) {
        full_called(c);
        return;
    }
    switch (h->option) {
    case NBD_OPT_EXPORT_NAME:
        export_name_called(c);
        break;
    case NBD_OPT_LIST:
        list_called(c);
        break;
    case NBD_OPT_INFO:
    case NBD_OPT_GO:
        info_called(c);
        break;
    default:
        nbd_meta_called(c);
    }
}
