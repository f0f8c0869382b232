/*
 * States, by the fields of struct nbd_transmission:
 *
 *   header    nothing set: collects 28 bytes -> pending
 *   pending   pending: waits for a slot and for memory -> header (begun), or one of those below
 *   payload   command is a WRITE: receives it part by part -> header
 *   cutting   command is a READ: submits it part by part -> header
 *   discard   failed: takes the payload of a refused WRITE, then answers -> header
 *
 * Backpressure: a command is begun only if fewer than NBD_COMMANDS_MAX are under way on this connection and less than
 * UNSENT_BYTES_MAX of its replies is waiting to be sent; so a client that does not read its replies stops itself and
 * nobody else. Memory is taken from the budget first (budget.c). While anything waits, nothing is read from the socket.
 *
 * Payload goes to its place without a copy where possible: once a header has been seen, what follows is received into
 * the part's own pieces, and only what lies beyond the payload into the loop's scratch memory. What of a payload came
 * together with its header is copied.
 */
#include "front/nbd/transmission.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "front/nbd/connection.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/verdict.h"
#include "front/nbd/wire.h"

#define UNSENT_BYTES_MAX (1 * MIB)
#define PARTS_AHEAD 4           /* parts of one command under way at once */
#define OFFER_BYTES (256 * KIB) /* a payload is received so much at a time */
#define LARGE_PAYLOAD_BYTES (16 * KIB)
#define BEYOND_LARGE_BYTES 512 /* received beyond a payload if payloads are large: little, for it will be copied */

static bool is_split(const struct nbd_connection *c, const struct nbd_request_header *h)
{
    if (h->length <= NBD_PART_BYTES)
        return false;
    return h->type == NBD_CMD_WRITE || (h->type == NBD_CMD_READ && c->structured && (h->flags & NBD_CMD_FLAG_DF) == 0);
}

/* The length of the part that begins at t->at. */
static uint64_t part_bytes(const struct nbd_transmission *t)
{
    if (t->command->header.length <= NBD_PART_BYTES)
        return t->end - t->at;
    return min_u64(t->end, round_down(t->at, NBD_PART_BYTES) + NBD_PART_BYTES) - t->at;
}

/* Whether another command (or another part of `command`) may begin; if not, the connection is posted when it may. */
static bool may_begin(struct nbd_connection *c, const struct nbd_command *command)
{
    struct nbd_sender *s = &c->sender;
    env_mutex_lock(&s->lock);
    bool ok = s->unsent_bytes < UNSENT_BYTES_MAX;
    if (command == NULL)
        ok = ok && s->command_count < NBD_COMMANDS_MAX;
    else
        ok = ok && command->parts_left <= PARTS_AHEAD;
    s->notify = !ok;
    env_mutex_unlock(&s->lock);
    return ok;
}

/* Memory for all that is needed now; if there is none, the connection is posted when there is. */
static bool pay(struct nbd_connection *c, uint64_t bytes)
{
    bool paid = nbd_budget_wait(c->server->budget, &c->share, bytes);
    if (!paid)
        nbd_connection_waits_for_memory(c);
    return paid;
}

static void out_of_memory(struct nbd_connection *c)
{
    nbd_server_notice(c->server, "NBD %s: out of memory, connection closed", c->peer);
    nbd_connection_close(c);
}

/* Allocates what was paid for; false: there is no memory, and the payment was given back. */
static bool extend(struct nbd_connection *c, struct nbd_part *part, uint64_t bytes)
{
    if (nbd_buffer_extend(c->server->pool, &part->buffer, bytes) == 0)
        return true;
    nbd_budget_give(c->server->budget, &c->share, nbd_buffer_cost(bytes));
    return false;
}

/* The same for the part being received; false: the connection is closed. */
static bool extend_payload(struct nbd_connection *c, uint64_t bytes)
{
    bool ok = extend(c, c->transmission.part, bytes);
    if (!ok)
        out_of_memory(c);
    return ok;
}

/* ---- payload ---- */

/* Makes room for up to `more` bytes of the part; there may be less afterwards, but some. */
static bool make_room(struct nbd_connection *c, uint64_t more)
{
    struct nbd_transmission *t = &c->transmission;
    struct nbd_buffer *buffer = &t->part->buffer;
    struct nbd_budget *budget = c->server->budget;
    if (nbd_budget_try(budget, &c->share, nbd_buffer_cost(more)))
        return extend_payload(c, more);
    if (buffer->capacity_bytes > buffer->filled_bytes)
        return true;
    if (nbd_budget_try(budget, &c->share, NBD_PIECE_BYTES_MIN))
        return extend_payload(c, min_u64(more, NBD_PIECE_BYTES_MIN));
    uint64_t rest = part_bytes(t) - buffer->capacity_bytes;
    if (!pay(c, nbd_buffer_cost(rest)))
        return false;
    t->granted = true;
    return extend_payload(c, rest);
}

/* The part of a WRITE that begins at t->at. */
static bool begin_part(struct nbd_connection *c)
{
    struct nbd_transmission *t = &c->transmission;
    if (t->at == t->command->header.offset) {
        t->part = &t->command->first;
        return true;
    }
    if (!may_begin(c, t->command) || !pay(c, NBD_PART_COST))
        return false;
    t->part = nbd_command_add_part(t->command);
    if (t->part == NULL)
        out_of_memory(c);
    return t->part != NULL;
}

/* Submits the part if it is complete. */
static void end_part(struct nbd_connection *c)
{
    struct nbd_transmission *t = &c->transmission;
    struct nbd_part *part = t->part;
    uint64_t length = part_bytes(t);
    if (part->buffer.filled_bytes < length)
        return;
    uint64_t offset = t->at;
    bool last = offset + length == t->end;
    t->part = NULL;
    t->granted = false;
    t->at += length;
    if (last)
        t->command = NULL;
    nbd_part_submit(part, offset, length, last);
}

/* Takes payload out of bytes. Returns how many; 0: stuck, or closed. */
static size_t take_payload(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    struct nbd_transmission *t = &c->transmission;
    if (t->part == NULL && !begin_part(c))
        return 0;
    struct nbd_buffer *buffer = &t->part->buffer;
    uint64_t wanted = min_u64(n, part_bytes(t) - buffer->filled_bytes);
    uint64_t room = buffer->capacity_bytes - buffer->filled_bytes;
    if (room < wanted && !make_room(c, wanted - room))
        return 0;
    size_t taken = (size_t)min_u64(wanted, buffer->capacity_bytes - buffer->filled_bytes);
    nbd_buffer_append(buffer, bytes, taken);
    end_part(c);
    return taken;
}

static size_t take_discarded(struct nbd_connection *c, size_t n)
{
    struct nbd_transmission *t = &c->transmission;
    size_t taken = (size_t)min_u64(n, t->discard_bytes);
    t->discard_bytes -= taken;
    if (t->discard_bytes == 0) {
        struct nbd_command *command = t->failed;
        t->failed = NULL;
        nbd_command_finish(command, t->failed_error, t->failed_text);
        t->failed_text = NULL;
    }
    return taken;
}

/* ---- beginning a command ---- */

/* Submits parts of a READ. false: stuck, or closed. */
static bool cut_read(struct nbd_connection *c)
{
    struct nbd_transmission *t = &c->transmission;
    struct nbd_command *command = t->command;
    uint64_t length = part_bytes(t);
    bool first = t->at == command->header.offset;
    if (!may_begin(c, command) || !pay(c, nbd_buffer_cost(length) + (first ? 0 : NBD_PART_COST)))
        return false;
    struct nbd_part *part = first ? &command->first : nbd_command_add_part(command);
    if (part == NULL) {
        nbd_budget_give(c->server->budget, &c->share, nbd_buffer_cost(length));
        out_of_memory(c);
        return false;
    }
    if (!extend(c, part, length)) {
        nbd_part_free(part);
        out_of_memory(c);
        return false;
    }
    uint64_t offset = t->at;
    t->at += length;
    bool last = t->at == t->end;
    if (last)
        t->command = NULL;
    nbd_part_submit(part, offset, length, last);
    return true;
}

static uint64_t data_bytes_at_once(const struct nbd_connection *c, const struct nbd_request_header *h)
{
    if (h->type == NBD_CMD_READ && !is_split(c, h))
        return h->length;
    if (h->type == NBD_CMD_BLOCK_STATUS)
        return (h->flags & NBD_CMD_FLAG_REQ_ONE) != 0 ? sizeof(struct extent) : NBD_EXTENTS_MAX * sizeof(struct extent);
    return 0;
}

/* The memory for data_bytes has been paid for. */
static void begin_checked(struct nbd_connection *c, struct nbd_command *command, uint64_t data_bytes)
{
    struct nbd_transmission *t = &c->transmission;
    const struct nbd_request_header *h = &t->header;
    bool nothing = h->length == 0 && h->type != NBD_CMD_FLUSH;
    if (nothing) {
        nbd_command_finish(command, 0, NULL);
    } else if (h->type == NBD_CMD_WRITE || is_split(c, h)) {
        t->command = command;
        t->part = NULL;
        t->at = h->offset;
        t->end = h->offset + h->length;
        t->granted = false;
        t->payload_hint = h->type == NBD_CMD_WRITE ? h->length : 0;
    } else if (data_bytes > 0 && !extend(c, &command->first, data_bytes)) {
        nbd_command_abandon(command, NULL);
        out_of_memory(c);
    } else {
        if (h->type == NBD_CMD_READ)
            t->payload_hint = 0;
        nbd_part_submit(&command->first, h->offset, h->length, true);
    }
}

static void begin_failed(struct nbd_connection *c, struct nbd_command *command, uint32_t error, char *text)
{
    struct nbd_transmission *t = &c->transmission;
    if (t->header.type == NBD_CMD_WRITE && t->header.length > 0) {
        t->failed = command;
        t->failed_error = error;
        t->failed_text = text;
        t->discard_bytes = t->header.length;
    } else {
        nbd_command_finish(command, error, text);
    }
}

static void count_command(struct nbd_connection *c, uint16_t type)
{
    struct nbd_counters *counters = &c->server->counters;
    nbd_count(type < NBD_CMD_COUNT ? &counters->commands[type] : &counters->commands_unknown, 1);
}

/* Begins the pending command. false: stuck; it stays pending. */
static bool begin(struct nbd_connection *c)
{
    struct nbd_transmission *t = &c->transmission;
    const struct nbd_request_header *h = &t->header;
    if (h->type == NBD_CMD_DISC) {
        t->pending = false;
        count_command(c, h->type);
        nbd_connection_end(c);
        return true;
    }
    if (!may_begin(c, NULL))
        return false;
    struct nbd_terms terms = {.transmission_flags = c->flags,
                              .structured = c->structured,
                              .base_allocation = c->base_allocation,
                              .shutting_down = c->server->draining,
                              .size_bytes = c->server->ops->size_bytes(c->export)};
    char *text;
    uint32_t error = nbd_verdict(h, &terms, &text);
    uint64_t data_bytes = error == 0 ? data_bytes_at_once(c, h) : 0;
    uint64_t data_cost = nbd_buffer_cost(data_bytes);
    if (!pay(c, NBD_COMMAND_COST + data_cost)) {
        free(text);
        return false;
    }
    t->pending = false;
    count_command(c, h->type);
    struct nbd_command *command = nbd_command_new(c, h);
    if (command == NULL) {
        free(text);
        if (data_cost > 0)
            nbd_budget_give(c->server->budget, &c->share, data_cost);
        out_of_memory(c);
    } else if (error != 0) {
        begin_failed(c, command, error, text);
    } else {
        begin_checked(c, command, data_bytes);
    }
    return true;
}

/* ---- bytes ---- */

static size_t take_header(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    struct nbd_transmission *t = &c->transmission;
    size_t taken = (size_t)min_u64(n, NBD_REQUEST_BYTES - t->header_filled);
    memcpy(t->header_bytes + t->header_filled, bytes, taken);
    t->header_filled += (unsigned)taken;
    if (t->header_filled < NBD_REQUEST_BYTES)
        return taken;
    t->header_filled = 0;
    const uint8_t *p = t->header_bytes;
    t->header = (struct nbd_request_header){.flags = wire_get_u16(p + 4),
                                            .type = wire_get_u16(p + 6),
                                            .cookie = wire_get_u64(p + 8),
                                            .offset = wire_get_u64(p + 16),
                                            .length = wire_get_u32(p + 24)};
    if (wire_get_u32(p) != NBD_REQUEST_MAGIC) {
        nbd_connection_violation(c, "request with magic number 0x%08x", wire_get_u32(p));
    } else if (t->header.type == NBD_CMD_WRITE && t->header.length > NBD_PAYLOAD_BYTES_MAX) {
        nbd_connection_violation(c, "WRITE of %u bytes, the most is %u", t->header.length, NBD_PAYLOAD_BYTES_MAX);
    } else {
        t->pending = true;
    }
    return taken;
}

size_t nbd_transmission_consume(struct nbd_connection *c, const uint8_t *bytes, size_t n)
{
    struct nbd_transmission *t = &c->transmission;
    size_t at = 0;
    t->stuck = false;
    while (c->phase == NBD_PHASE_TRANSMISSION && !t->stuck) {
        if (t->pending) {
            t->stuck = !begin(c);
        } else if (t->command != NULL && t->command->header.type == NBD_CMD_READ) {
            t->stuck = !cut_read(c);
        } else if (at == n) {
            break;
        } else if (t->command != NULL) {
            size_t taken = take_payload(c, bytes + at, n - at);
            t->stuck = taken == 0;
            at += taken;
        } else if (t->failed != NULL) {
            at += take_discarded(c, n - at);
        } else {
            at += take_header(c, bytes + at, n - at);
        }
    }
    return at;
}

bool nbd_transmission_wants_bytes(struct nbd_connection *c)
{
    return !c->transmission.stuck;
}

int nbd_transmission_room(struct nbd_connection *c, struct iovec *ret_iov, int room, size_t *ret_bytes,
                          size_t *ret_beyond)
{
    struct nbd_transmission *t = &c->transmission;
    bool large = t->payload_hint > LARGE_PAYLOAD_BYTES;
    *ret_bytes = 0;
    *ret_beyond = large ? BEYOND_LARGE_BYTES : NBD_SCRATCH_BYTES;
    if (t->failed != NULL)
        *ret_beyond = NBD_SCRATCH_BYTES;
    if (t->command == NULL)
        return 0;
    if (t->part == NULL && !begin_part(c)) {
        t->stuck = true;
        return 0;
    }
    struct nbd_buffer *buffer = &t->part->buffer;
    uint64_t left = part_bytes(t) - buffer->filled_bytes;
    uint64_t offer = min_u64(left, OFFER_BYTES);
    uint64_t free_bytes = buffer->capacity_bytes - buffer->filled_bytes;
    if (free_bytes < offer && !make_room(c, offer - free_bytes)) {
        t->stuck = true;
        return 0;
    }
    int count = nbd_buffer_tail(buffer, left, ret_iov, room, ret_bytes);
    if (*ret_bytes < left || t->at + part_bytes(t) < t->end)
        *ret_beyond = 0;
    return count;
}

void nbd_transmission_received(struct nbd_connection *c, size_t bytes)
{
    struct nbd_transmission *t = &c->transmission;
    struct nbd_buffer *buffer = &t->part->buffer;
    buffer->filled_bytes += bytes;
    if (!t->granted && buffer->filled_bytes < part_bytes(t)) {
        uint64_t given_up = nbd_buffer_shrink(c->server->pool, buffer);
        if (given_up > 0)
            nbd_budget_give(c->server->budget, &c->share, given_up);
    }
    end_part(c);
}

void nbd_transmission_abandon(struct nbd_connection *c)
{
    struct nbd_transmission *t = &c->transmission;
    struct nbd_command *command = t->command != NULL ? t->command : t->failed;
    struct nbd_part *part = t->part;
    free(t->failed_text);
    t->failed_text = NULL;
    t->command = t->failed = NULL;
    t->part = NULL;
    t->pending = false;
    if (command != NULL)
        nbd_command_abandon(command, part);
    nbd_budget_leave(c->server->budget, &c->share);
}

uint64_t nbd_transmission_held_bytes(const struct nbd_connection *c)
{
    return c->transmission.part != NULL ? c->transmission.part->buffer.capacity_bytes : 0;
}
