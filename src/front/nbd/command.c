/*
 * Counting parts: a command starts with one part to come. Submitting a part that is not the last adds one, so the count
 * reaches zero exactly when the last part was submitted and all are done. A READ is answered part by part, a chunk
 * each, and whoever brings the count to zero marks its own chunk as the last, under the sender's lock, so that the
 * chunk with DONE is queued behind all others. All other commands have one reply, sent then.
 *
 * FUA on a WRITE of several parts is not passed to each of them (that would be a device flush per megabyte): when all
 * are done, one FLUSH request follows and the reply waits for it.
 *
 * A READ that is answered whole (simple reply, DF, or short) has one part, and its header goes out only when the data
 * are there: no reply ever needs to be taken back.
 */
#include "front/nbd/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "front/nbd/connection.h"
#include "front/nbd/errors.h"
#include "front/nbd/server_impl.h"
#include "front/nbd/wire.h"

_Static_assert(sizeof(struct nbd_command) + 128 <= NBD_COMMAND_COST, "the cost covers the allocation and a text");
_Static_assert(sizeof(struct nbd_part) <= NBD_PART_COST, "the cost covers the allocation");

static void give(struct nbd_connection *c, uint64_t bytes)
{
    nbd_budget_give(c->server->budget, &c->share, bytes);
}

static void command_put(struct nbd_command *command)
{
    if (atomic_fetch_sub_explicit(&command->references, 1, memory_order_acq_rel) > 1)
        return;
    struct nbd_connection *c = command->connection;
    free(command);
    give(c, NBD_COMMAND_COST);
    nbd_connection_put(c);
}

void nbd_part_free(struct nbd_part *part)
{
    struct nbd_connection *c = part->command->connection;
    uint64_t bytes = nbd_buffer_release(c->server->pool, &part->buffer);
    if (part != &part->command->first) {
        bytes += NBD_PART_COST;
        free(part);
    }
    if (bytes > 0)
        give(c, bytes);
}

struct nbd_command *nbd_command_new(struct nbd_connection *c, const struct nbd_request_header *header)
{
    struct nbd_command *command = calloc(1, sizeof *command);
    if (command == NULL) {
        give(c, NBD_COMMAND_COST);
        return NULL;
    }
    command->connection = c;
    command->header = *header;
    command->parts_left = 1;
    atomic_init(&command->references, 1);
    command->first.command = command;
    nbd_connection_get(c);
    env_mutex_lock(&c->sender.lock);
    c->sender.command_count++;
    env_mutex_unlock(&c->sender.lock);
    return command;
}

struct nbd_part *nbd_command_add_part(struct nbd_command *command)
{
    struct nbd_part *part = calloc(1, sizeof *part);
    if (part == NULL)
        give(command->connection, NBD_PART_COST);
    else
        part->command = command;
    return part;
}

/* ---- replies ---- */

static void retire_command(struct nbd_reply *reply)
{
    command_put(CONTAINER_OF(reply, struct nbd_command, reply));
}

static void retire_part(struct nbd_reply *reply)
{
    struct nbd_part *part = CONTAINER_OF(reply, struct nbd_part, reply);
    struct nbd_command *command = part->command;
    bool last = reply->ends_command;
    nbd_part_free(part);
    if (last)
        command_put(command);
    command_put(command);
}

/* The part's chunk, with the reference that it holds. */
static struct nbd_reply *chunk_of(struct nbd_part *part)
{
    atomic_fetch_add_explicit(&part->command->references, 1, memory_order_relaxed);
    part->reply.retire = retire_part;
    return &part->reply;
}

static uint8_t *put_chunk(struct nbd_reply *reply, uint16_t type, uint64_t cookie, uint64_t payload_bytes)
{
    uint8_t *p = wire_put_u32(reply->head, NBD_STRUCTURED_REPLY_MAGIC);
    p = wire_put_u16(p, 0);
    p = wire_put_u16(p, type);
    p = wire_put_u64(p, cookie);
    return wire_put_u32(p, (uint32_t)payload_bytes);
}

static void put_simple(struct nbd_reply *reply, uint32_t error, uint64_t cookie)
{
    uint8_t *p = wire_put_u32(reply->head, NBD_SIMPLE_REPLY_MAGIC);
    p = wire_put_u32(p, error);
    p = wire_put_u64(p, cookie);
    reply->head_bytes = NBD_SIMPLE_REPLY_BYTES;
}

/* An error, with its text and, if has_offset, where. */
static void put_error(struct nbd_command *command, struct nbd_reply *reply, uint32_t error, char *text,
                      const uint64_t *offset)
{
    nbd_count(&command->connection->server->counters.errors, 1);
    if (!command->connection->structured) {
        free(text);
        put_simple(reply, error, command->header.cookie);
        return;
    }
    reply->text = text;
    reply->text_bytes = text != NULL ? (uint32_t)strlen(text) : 0;
    uint64_t payload = 6 + (uint64_t)reply->text_bytes + (offset != NULL ? 8 : 0);
    uint8_t *p = put_chunk(reply, offset != NULL ? NBD_REPLY_TYPE_ERROR_OFFSET : NBD_REPLY_TYPE_ERROR,
                           command->header.cookie, payload);
    p = wire_put_u32(p, error);
    p = wire_put_u16(p, (uint16_t)reply->text_bytes);
    reply->head_bytes = (uint8_t)(p - reply->head);
    if (offset != NULL) {
        wire_put_u64(reply->tail, *offset);
        reply->tail_bytes = 8;
    }
}

static void mark_last(struct nbd_reply *reply)
{
    reply->ends_command = true;
    if (wire_get_u32(reply->head) == NBD_STRUCTURED_REPLY_MAGIC)
        wire_put_u16(reply->head + 4, NBD_REPLY_FLAG_DONE);
}

/* Makes the one reply of a command that is not a READ answered with data. */
static void put_outcome(struct nbd_command *command, uint32_t error, char *text)
{
    struct nbd_connection *c = command->connection;
    struct nbd_reply *reply = &command->reply;
    reply->retire = retire_command;
    if (error != 0) {
        put_error(command, reply, error, text, NULL);
    } else if (command->header.type == NBD_CMD_READ && c->structured) {
        put_chunk(reply, NBD_REPLY_TYPE_NONE, command->header.cookie, 0);
        reply->head_bytes = NBD_CHUNK_HEADER_BYTES;
    } else {
        put_simple(reply, 0, command->header.cookie);
    }
    mark_last(reply);
}

void nbd_command_finish(struct nbd_command *command, uint32_t error, char *text)
{
    put_outcome(command, error, text);
    nbd_sender_put(command->connection, &command->reply);
}

static char *failure_text(const struct nbd_command *command, uint64_t offset, uint64_t length, uint32_t error)
{
    static const char *const verbs[NBD_CMD_COUNT] = {"READ", "WRITE", "DISC",         "FLUSH",
                                                     "TRIM", "CACHE", "WRITE_ZEROES", "BLOCK_STATUS"};
    char *text = NULL;
    if (asprintf(&text, "%s of %llu bytes at %llu: %s", verbs[command->header.type], (unsigned long long)length,
                 (unsigned long long)offset,
                 error == NBD_EIO      ? "data damaged, or the device failed"
                 : error == NBD_ENOSPC ? "the pool is full"
                                       : nbd_error_name(error)) < 0)
        return NULL;
    return text;
}

/* The same for a command as a whole. */
static char *command_failure_text(const struct nbd_command *command, uint32_t error)
{
    return error == 0 ? NULL : failure_text(command, command->header.offset, command->header.length, error);
}

/* ---- completions: any thread ---- */

static void read_completed(struct nbd_part *part, int result)
{
    struct nbd_command *command = part->command;
    struct nbd_connection *c = command->connection;
    struct nbd_reply *reply = chunk_of(part);
    uint32_t error = nbd_error_of(result, 0);
    if (error != 0) {
        /* Errors with an offset leave the other parts valid; the offset is the part's. */
        const struct request *r = &part->request;
        put_error(command, reply, error, failure_text(command, r->offset_bytes, r->length_bytes, error),
                  &r->offset_bytes);
    } else {
        if (c->structured) {
            uint8_t *p =
                put_chunk(reply, NBD_REPLY_TYPE_OFFSET_DATA, command->header.cookie, 8 + part->request.length_bytes);
            wire_put_u64(p, part->request.offset_bytes);
            reply->head_bytes = NBD_CHUNK_HEADER_BYTES + 8;
        } else {
            put_simple(reply, 0, command->header.cookie);
        }
        reply->data = &part->buffer;
        reply->data_bytes = part->request.length_bytes;
    }
    env_mutex_lock(&c->sender.lock);
    if (--command->parts_left == 0)
        mark_last(reply);
    nbd_sender_put_locked(c, reply);
    nbd_sender_send_and_unlock(c, false);
}

static uint32_t status_of(enum extent_kind kind)
{
    switch (kind) {
    case EXTENT_HOLE:
        return NBD_STATE_HOLE | NBD_STATE_ZERO;
    case EXTENT_PROVISIONED:
        return NBD_STATE_ZERO;
    case EXTENT_DATA:
        return 0;
    }
    return 0;
}

/*
 * Turns the extents into descriptors, in the same memory: a descriptor is 8 bytes where an extent was 16, so none is
 * overwritten before it was read. Neighbours of equal status are joined, and whatever the back-end says, the
 * descriptors stay inside the request and none is empty. Returns how many.
 */
static size_t encode_extents(uint8_t *memory, size_t extent_count, uint64_t length)
{
    _Static_assert(sizeof(struct extent) >= 8, "descriptors fit where the extents were");
    size_t count = 0;
    uint64_t joined = 0;
    uint32_t joined_status = 0;
    for (size_t i = 0; i < extent_count && length > 0; i++) {
        struct extent extent;
        memcpy(&extent, memory + i * sizeof extent, sizeof extent);
        uint64_t n = min_u64(extent.length_bytes, length);
        uint32_t status = status_of(extent.kind);
        length -= n;
        if (joined > 0 && status != joined_status && n > 0) {
            wire_put_u32(wire_put_u32(memory + 8 * count++, (uint32_t)joined), joined_status);
            joined = 0;
        }
        if (n > 0) {
            joined += n;
            joined_status = status;
        }
    }
    if (joined > 0)
        wire_put_u32(wire_put_u32(memory + 8 * count++, (uint32_t)joined), joined_status);
    return count;
}

static void status_completed(struct nbd_part *part, int result)
{
    struct nbd_command *command = part->command;
    struct nbd_connection *c = command->connection;
    uint8_t *memory = part->buffer.pieces[0].iov_base;
    size_t count = result == 0 ? encode_extents(memory, part->request.extent_count, command->header.length) : 0;
    uint32_t error = result != 0 ? nbd_error_of(result, 0) : count == 0 ? NBD_EIO : 0;
    struct nbd_reply *reply = chunk_of(part);
    if (error != 0) {
        put_error(command, reply, error, command_failure_text(command, error), NULL);
    } else {
        uint8_t *p = put_chunk(reply, NBD_REPLY_TYPE_BLOCK_STATUS, command->header.cookie, 4 + 8 * (uint64_t)count);
        wire_put_u32(p, NBD_BASE_ALLOCATION_ID);
        reply->head_bytes = NBD_CHUNK_HEADER_BYTES + 4;
        nbd_buffer_trim(&part->buffer, 8 * count);
        reply->data = &part->buffer;
        reply->data_bytes = 8 * count;
    }
    mark_last(reply);
    nbd_sender_put(c, reply);
}

static void flush_completed(struct request *r)
{
    struct nbd_part *part = CONTAINER_OF(r, struct nbd_part, request);
    uint32_t error = nbd_error_of(r->result, 0);
    nbd_command_finish(part->command, error, command_failure_text(part->command, error));
}

/* All parts of a command with one reply are done. */
static void all_completed(struct nbd_command *command, bool several)
{
    struct nbd_connection *c = command->connection;
    uint32_t error = command->error;
    if (several && error == 0 && (command->header.flags & NBD_CMD_FLAG_FUA) != 0) {
        struct request *r = &command->first.request;
        *r = (struct request){.kind = REQUEST_FLUSH, .complete = flush_completed};
        c->server->ops->submit(c->export, r);
        return;
    }
    nbd_command_finish(command, error, command_failure_text(command, error));
}

static void effect_completed(struct nbd_part *part, int result)
{
    struct nbd_command *command = part->command;
    struct nbd_connection *c = command->connection;
    bool fast = command->header.type == NBD_CMD_WRITE_ZEROES && (command->header.flags & NBD_CMD_FLAG_FAST_ZERO) != 0;
    uint32_t error = nbd_error_of(result, fast);
    bool several = command->header.length > NBD_PART_BYTES && command->header.type == NBD_CMD_WRITE;
    nbd_part_free(part);
    env_mutex_lock(&c->sender.lock);
    if (error != 0 && command->error == 0)
        command->error = error;
    bool last = --command->parts_left == 0;
    c->sender.progressed = true;
    bool post = !last && c->sender.notify;
    if (post)
        nbd_connection_get(c); /* the command may be gone as soon as the lock is */
    env_mutex_unlock(&c->sender.lock);
    if (post) {
        nbd_connection_post(c);
        nbd_connection_put(c);
    }
    if (last)
        all_completed(command, several);
}

static void part_completed(struct request *r)
{
    struct nbd_part *part = CONTAINER_OF(r, struct nbd_part, request);
    switch (part->command->header.type) {
    case NBD_CMD_READ:
        read_completed(part, r->result);
        break;
    case NBD_CMD_BLOCK_STATUS:
        status_completed(part, r->result);
        break;
    default:
        effect_completed(part, r->result);
    }
}

/* ---- submission: loop ---- */

static void fill_request(struct nbd_part *part, uint64_t offset, uint64_t length)
{
    static const enum request_kind kinds[NBD_CMD_COUNT] = {
        [NBD_CMD_READ] = REQUEST_READ,
        [NBD_CMD_WRITE] = REQUEST_WRITE,
        [NBD_CMD_FLUSH] = REQUEST_FLUSH,
        [NBD_CMD_TRIM] = REQUEST_TRIM,
        [NBD_CMD_CACHE] = REQUEST_PREFETCH,
        [NBD_CMD_WRITE_ZEROES] = REQUEST_ZERO,
        [NBD_CMD_BLOCK_STATUS] = REQUEST_EXTENTS,
    };
    const struct nbd_request_header *h = &part->command->header;
    struct request *r = &part->request;
    bool writes = h->type == NBD_CMD_WRITE || h->type == NBD_CMD_TRIM || h->type == NBD_CMD_WRITE_ZEROES;
    bool several = h->type == NBD_CMD_WRITE && h->length > NBD_PART_BYTES;
    *r = (struct request){
        .kind = kinds[h->type], .offset_bytes = offset, .length_bytes = length, .complete = part_completed};
    if (writes && !several && (h->flags & NBD_CMD_FLAG_FUA) != 0)
        r->flags |= VOLUME_FUA;
    if (h->type == NBD_CMD_WRITE_ZEROES && (h->flags & NBD_CMD_FLAG_NO_HOLE) != 0)
        r->flags |= VOLUME_PROVISION;
    if (h->type == NBD_CMD_READ || h->type == NBD_CMD_WRITE) {
        nbd_buffer_trim(&part->buffer, length);
        r->iov = part->buffer.pieces;
        r->iov_count = (int)part->buffer.count;
    }
    if (h->type == NBD_CMD_BLOCK_STATUS) {
        r->extents = part->buffer.pieces[0].iov_base;
        r->extent_room = (h->flags & NBD_CMD_FLAG_REQ_ONE) != 0 ? 1 : NBD_EXTENTS_MAX;
    }
}

void nbd_part_submit(struct nbd_part *part, uint64_t offset, uint64_t length, bool last)
{
    struct nbd_command *command = part->command;
    struct nbd_connection *c = command->connection;
    fill_request(part, offset, length);
    if (!last) {
        env_mutex_lock(&c->sender.lock);
        command->parts_left++;
        env_mutex_unlock(&c->sender.lock);
    }
    nbd_lone_submit(c, &part->request, last && part == &command->first);
}

void nbd_command_abandon(struct nbd_command *command, struct nbd_part *part)
{
    struct nbd_connection *c = command->connection;
    if (part != NULL)
        nbd_part_free(part);
    env_mutex_lock(&c->sender.lock);
    command->error = NBD_EIO; /* so that no flush follows */
    bool last = --command->parts_left == 0;
    env_mutex_unlock(&c->sender.lock);
    if (last)
        nbd_command_finish(command, NBD_EIO, NULL);
}
