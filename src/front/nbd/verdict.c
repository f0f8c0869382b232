/*
 * The order matters where a request is wrong in several ways: the server's state first (ESHUTDOWN), then a
 * command that does not exist (EINVAL), then the export (EPERM), then the rest of the command's form, then the range.
 */
#include "front/nbd/verdict.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/math.h"
#include "front/nbd/command.h"
#include "front/nbd/protocol.h"

typedef unsigned long long ull; /* for printf */

__attribute__((format(printf, 3, 4))) static uint32_t refuse(uint32_t error, char **ret_text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vasprintf(ret_text, format, args) < 0)
        *ret_text = NULL;
    va_end(args);
    return error;
}

/* The flags that the command may carry on this connection. */
static uint16_t flags_allowed(uint16_t type, const struct nbd_terms *terms)
{
    unsigned allowed = 0;
    /* Once it is advertised FUA is valid on every command, and means nothing on most. */
    if ((terms->transmission_flags & NBD_FLAG_SEND_FUA) != 0)
        allowed |= NBD_CMD_FLAG_FUA;
    if (type == NBD_CMD_READ && terms->structured)
        allowed |= NBD_CMD_FLAG_DF;
    if (type == NBD_CMD_WRITE_ZEROES)
        allowed |= NBD_CMD_FLAG_NO_HOLE;
    if (type == NBD_CMD_WRITE_ZEROES && (terms->transmission_flags & NBD_FLAG_SEND_FAST_ZERO) != 0)
        allowed |= NBD_CMD_FLAG_FAST_ZERO;
    if (type == NBD_CMD_BLOCK_STATUS)
        allowed |= NBD_CMD_FLAG_REQ_ONE;
    return (uint16_t)allowed;
}

static bool writes(uint16_t type)
{
    return type == NBD_CMD_WRITE || type == NBD_CMD_TRIM || type == NBD_CMD_WRITE_ZEROES;
}

static uint32_t check_range(const struct nbd_request_header *h, uint64_t size_bytes, char **ret_text)
{
    if (range_inside(h->offset, h->length, size_bytes))
        return 0;
    bool no_space = h->type == NBD_CMD_WRITE || h->type == NBD_CMD_WRITE_ZEROES;
    return refuse(no_space ? NBD_ENOSPC : NBD_EINVAL, ret_text, "%u bytes at %llu: the export ends at %llu", h->length,
                  (ull)h->offset, (ull)size_bytes);
}

/* Lengths that no reply, or no payload, may have. */
static uint32_t check_length(const struct nbd_request_header *h, const struct nbd_terms *terms, char **ret_text)
{
    if (h->type == NBD_CMD_BLOCK_STATUS && h->length == 0)
        return refuse(NBD_EINVAL, ret_text, "BLOCK_STATUS of no bytes");
    if (h->type != NBD_CMD_READ || h->length <= NBD_PAYLOAD_BYTES_MAX)
        return 0;
    if (!terms->structured)
        return refuse(NBD_EINVAL, ret_text, "READ of %u bytes: the most in one simple reply is %u", h->length,
                      NBD_PAYLOAD_BYTES_MAX);
    if ((h->flags & NBD_CMD_FLAG_DF) != 0)
        return refuse(NBD_EOVERFLOW, ret_text, "READ of %u bytes: the most in one chunk is %u", h->length,
                      NBD_PAYLOAD_BYTES_MAX);
    return 0;
}

uint32_t nbd_verdict(const struct nbd_request_header *h, const struct nbd_terms *terms, char **ret_text)
{
    *ret_text = NULL;
    if (terms->shutting_down)
        return refuse(NBD_ESHUTDOWN, ret_text, "the server is shutting down");
    if (h->type >= NBD_CMD_COUNT)
        return refuse(NBD_EINVAL, ret_text, "unknown command %u", h->type);
    if (writes(h->type) && (terms->transmission_flags & NBD_FLAG_READ_ONLY) != 0)
        return refuse(NBD_EPERM, ret_text, "the export is read-only");
    uint16_t unknown = (uint16_t)(h->flags & ~flags_allowed(h->type, terms));
    if (unknown != 0)
        return refuse(NBD_EINVAL, ret_text, "flags 0x%x do not go with command %u here", unknown, h->type);
    if (h->type == NBD_CMD_FLUSH) {
        if (h->offset == 0 && h->length == 0)
            return 0;
        return refuse(NBD_EINVAL, ret_text, "FLUSH with offset %llu and length %u: both must be 0", (ull)h->offset,
                      h->length);
    }
    if (h->type == NBD_CMD_BLOCK_STATUS && !terms->base_allocation)
        return refuse(NBD_EINVAL, ret_text, "BLOCK_STATUS, but no metadata context was selected");
    uint32_t error = check_range(h, terms->size_bytes, ret_text);
    return error != 0 ? error : check_length(h, terms, ret_text);
}
