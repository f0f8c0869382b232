/*
 * Written against the protocol's text, with its own constants where it matters: a wrong constant shared with the server
 * would go unseen.
 */
#include "raw_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "front/nbd/server.h"
#include "front/nbd/wire.h"

#define PATIENCE_MS 10000

int client_connect(struct nbd_server *server)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    if (nbd_server_adopt(server, pair[1], NULL) < 0) {
        close(pair[0]);
        return -1;
    }
    return pair[0];
}

static bool ready(int fd, short events, int ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    int ret;
    do
        ret = poll(&p, 1, ms);
    while (ret < 0 && errno == EINTR);
    return ret == 1;
}

bool client_send(int fd, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (sent < 0 && !ready(fd, POLLOUT, PATIENCE_MS))
            return false;
        if (sent > 0) {
            at += sent;
            n -= (size_t)sent;
        }
    }
    return true;
}

bool client_receive(int fd, void *ret_bytes, size_t n)
{
    uint8_t *at = ret_bytes;
    while (n > 0) {
        if (!ready(fd, POLLIN, PATIENCE_MS))
            return false;
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        }
    }
    return true;
}

bool client_sees_end(int fd)
{
    uint8_t byte;
    if (!ready(fd, POLLIN, PATIENCE_MS))
        return false;
    ssize_t got = recv(fd, &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

bool client_hears_nothing(int fd, unsigned ms)
{
    return !ready(fd, POLLIN, (int)ms);
}

/* ---- handshake ---- */

bool client_greet(int fd, uint32_t flags)
{
    uint8_t greeting[18], answer[4];
    if (!client_receive(fd, greeting, sizeof greeting) || memcmp(greeting, "NBDMAGICIHAVEOPT\0\3", 18) != 0)
        return false;
    wire_put_u32(answer, flags);
    return client_send(fd, answer, sizeof answer);
}

bool client_option(int fd, uint32_t option, const void *data, size_t n)
{
    uint8_t header[16] = "IHAVEOPT";
    wire_put_u32(header + 8, option);
    wire_put_u32(header + 12, (uint32_t)n);
    return client_send(fd, header, sizeof header) && (n == 0 || client_send(fd, data, n));
}

bool client_option_reply(int fd, struct client_reply *r)
{
    uint8_t header[20];
    if (!client_receive(fd, header, sizeof header) || memcmp(header, "\0\3\350\211\4\125\145\251", 8) != 0)
        return false;
    r->option = wire_get_u32(header + 8);
    r->type = wire_get_u32(header + 12);
    r->length = wire_get_u32(header + 16);
    return r->length <= sizeof r->data && client_receive(fd, r->data, r->length);
}

uint32_t client_ask(int fd, uint32_t option, const void *data, size_t n)
{
    struct client_reply *r = malloc(sizeof *r);
    uint32_t type = 0;
    if (r == NULL || !client_option(fd, option, data, n))
        goto out;
    do {
        if (!client_option_reply(fd, r) || r->option != option)
            goto out;
    } while (r->type != NBD_REP_ACK && (r->type & 0x80000000) == 0);
    type = r->type;
out:
    free(r);
    return type;
}

static uint8_t *put_string(uint8_t *p, const char *string)
{
    size_t n = strlen(string);
    p = wire_put_u32(p, (uint32_t)n);
    memcpy(p, string, n);
    return p + n;
}

size_t client_info_payload(uint8_t *buf, const char *name, const uint16_t *infos, unsigned count)
{
    uint8_t *p = wire_put_u16(put_string(buf, name), (uint16_t)count);
    for (unsigned i = 0; i < count; i++)
        p = wire_put_u16(p, infos[i]);
    return (size_t)(p - buf);
}

size_t client_meta_payload(uint8_t *buf, const char *name, const char *const *queries, unsigned count)
{
    uint8_t *p = wire_put_u32(put_string(buf, name), count);
    for (unsigned i = 0; i < count; i++)
        p = put_string(p, queries[i]);
    return (size_t)(p - buf);
}

static bool negotiate(int fd, const char *name, unsigned how, struct client_export *ret_export, struct client_reply *r)
{
    static const char *const contexts[] = {"base:allocation"};
    uint8_t payload[1024];
    if (!client_greet(fd, 3))
        return false;
    if (how != 0 && client_ask(fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0) != NBD_REP_ACK)
        return false;
    size_t n = client_meta_payload(payload, name, contexts, 1);
    if ((how & CLIENT_META) != 0 && client_ask(fd, NBD_OPT_SET_META_CONTEXT, payload, n) != NBD_REP_ACK)
        return false;
    n = client_info_payload(payload, name, NULL, 0);
    if (!client_option(fd, NBD_OPT_GO, payload, n))
        return false;
    bool told = false;
    do {
        if (!client_option_reply(fd, r))
            return false;
        if (r->type == NBD_REP_INFO && wire_get_u16(r->data) == 0 && r->length == 12) {
            told = true;
            ret_export->size = wire_get_u64(r->data + 2);
            ret_export->flags = wire_get_u16(r->data + 10);
        }
    } while (r->type == NBD_REP_INFO);
    return told && r->type == NBD_REP_ACK;
}

bool client_go(int fd, const char *name, unsigned how, struct client_export *ret_export)
{
    struct client_export unread;
    struct client_reply *r = malloc(sizeof *r);
    bool ok = r != NULL && negotiate(fd, name, how, ret_export != NULL ? ret_export : &unread, r);
    free(r);
    return ok;
}

int client_open(struct nbd_server *server, const char *name, unsigned how, struct client_export *ret_export)
{
    int fd = client_connect(server);
    if (fd >= 0 && !client_go(fd, name, how, ret_export)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- transmission ---- */

bool client_request(int fd, uint16_t flags, uint16_t type, uint64_t cookie, uint64_t offset, uint32_t length)
{
    uint8_t header[28];
    uint8_t *p = wire_put_u32(header, 0x25609513);
    p = wire_put_u16(wire_put_u16(p, flags), type);
    wire_put_u32(wire_put_u64(wire_put_u64(p, cookie), offset), length);
    return client_send(fd, header, sizeof header);
}

int client_simple(int fd, uint64_t cookie)
{
    uint8_t header[16];
    if (!client_receive(fd, header, sizeof header) || wire_get_u32(header) != 0x67446698 ||
        wire_get_u64(header + 8) != cookie)
        return -1;
    return (int)wire_get_u32(header + 4);
}

static bool rest_of_chunk(int fd, struct client_chunk *chunk)
{
    uint8_t header[16];
    chunk->data = NULL;
    if (!client_receive(fd, header, sizeof header))
        return false;
    chunk->flags = wire_get_u16(header);
    chunk->type = wire_get_u16(header + 2);
    chunk->cookie = wire_get_u64(header + 4);
    chunk->length = wire_get_u32(header + 12);
    if (chunk->length > 64u * 1024 * 1024)
        return false;
    chunk->data = malloc(chunk->length + 1);
    return chunk->data != NULL && client_receive(fd, chunk->data, chunk->length);
}

bool client_chunk(int fd, struct client_chunk *chunk)
{
    uint8_t magic[4];
    chunk->data = NULL;
    return client_receive(fd, magic, sizeof magic) && wire_get_u32(magic) == 0x668e33ef && rest_of_chunk(fd, chunk);
}

void client_chunk_free(struct client_chunk *chunk)
{
    free(chunk->data);
    chunk->data = NULL;
}

/* The error of an error chunk, -1 if it is none or malformed. */
static int error_of(const struct client_chunk *chunk)
{
    uint32_t fixed = chunk->type == 0x8001 ? 6 : 14;
    if ((chunk->type != 0x8001 && chunk->type != 0x8002) || chunk->length < fixed)
        return -1;
    if (wire_get_u16(chunk->data + 4) != chunk->length - fixed)
        return -1;
    return (int)wire_get_u32(chunk->data);
}

int client_error(int fd, uint64_t cookie)
{
    struct client_chunk chunk;
    int error = -1;
    if (client_chunk(fd, &chunk) && chunk.cookie == cookie && chunk.flags == 1)
        error = error_of(&chunk);
    client_chunk_free(&chunk);
    return error;
}

int client_outcome(int fd, uint64_t cookie)
{
    uint8_t magic[4], rest[12];
    if (!client_receive(fd, magic, sizeof magic))
        return -1;
    if (wire_get_u32(magic) == 0x67446698) {
        if (!client_receive(fd, rest, sizeof rest) || wire_get_u64(rest + 4) != cookie)
            return -1;
        return (int)wire_get_u32(rest);
    }
    struct client_chunk chunk = {0};
    int error = -1;
    if (wire_get_u32(magic) == 0x668e33ef && rest_of_chunk(fd, &chunk) && chunk.cookie == cookie && chunk.flags == 1)
        error = chunk.type == 0 && chunk.length == 0 ? 0 : error_of(&chunk);
    client_chunk_free(&chunk);
    return error;
}

int client_do(int fd, uint16_t flags, uint16_t type, uint64_t offset, uint32_t length, const void *data)
{
    uint64_t cookie = offset ^ 0x636f6f6b6965;
    if (!client_request(fd, flags, type, cookie, offset, length))
        return -1;
    if (type == NBD_CMD_WRITE && length > 0 && !client_send(fd, data, length))
        return -1;
    return client_outcome(fd, cookie);
}

/* Puts a content chunk in its place; false if it is wrong in any way. `seen` counts bytes. */
static bool place(const struct client_chunk *chunk, uint64_t offset, uint32_t length, uint8_t *bytes, uint64_t *seen)
{
    if (chunk->length < 9)
        return false;
    uint64_t at = wire_get_u64(chunk->data);
    uint64_t n = chunk->length - 8;
    if (chunk->type == 2)
        n = chunk->length == 12 ? wire_get_u32(chunk->data + 8) : 0;
    if (n == 0 || at < offset || at - offset > length || n > length - (at - offset))
        return false;
    if (chunk->type == 2)
        memset(bytes + (at - offset), 0, n);
    else
        memcpy(bytes + (at - offset), chunk->data + 8, n);
    *seen += n;
    return true;
}

int client_read_answer(int fd, uint64_t cookie, uint64_t offset, uint32_t length, void *ret_bytes)
{
    uint8_t magic[4], rest[12];
    uint64_t seen = 0;
    int error = 0;
    for (;;) {
        if (!client_receive(fd, magic, sizeof magic))
            return -1;
        if (wire_get_u32(magic) == 0x67446698) {
            if (!client_receive(fd, rest, sizeof rest) || wire_get_u64(rest + 4) != cookie || seen > 0)
                return -1;
            if (wire_get_u32(rest) != 0)
                return (int)wire_get_u32(rest);
            return client_receive(fd, ret_bytes, length) ? 0 : -1;
        }
        struct client_chunk chunk = {0};
        bool ok = wire_get_u32(magic) == 0x668e33ef && rest_of_chunk(fd, &chunk) && chunk.cookie == cookie;
        if (ok && (chunk.type == 1 || chunk.type == 2))
            ok = place(&chunk, offset, length, ret_bytes, &seen);
        else if (ok && chunk.type != 0)
            error = error_of(&chunk);
        bool done = (chunk.flags & 1) != 0;
        client_chunk_free(&chunk);
        if (!ok)
            return -1;
        if (done)
            return error != 0 ? error : seen == length ? 0 : -1;
    }
}

int client_read(int fd, uint16_t flags, uint64_t offset, uint32_t length, void *ret_bytes)
{
    uint64_t cookie = offset ^ 0x72656164;
    if (!client_request(fd, flags, NBD_CMD_READ, cookie, offset, length))
        return -1;
    return client_read_answer(fd, cookie, offset, length, ret_bytes);
}
