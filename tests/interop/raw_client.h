/*
 * A client that sends any bytes it likes and checks what comes back: for tests of the NBD server. Nothing waits longer
 * than ten seconds.
 */
#ifndef ASHLAR_TESTS_INTEROP_RAW_CLIENT_H
#define ASHLAR_TESTS_INTEROP_RAW_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nbd_server;

/* One end of a socket pair whose other end the server has adopted; -1 on failure. */
int client_connect(struct nbd_server *server);

/* Whole, or false. */
bool client_send(int fd, const void *bytes, size_t n);
bool client_receive(int fd, void *ret_bytes, size_t n);
/* True if the server closes within ten seconds and sends nothing before. */
bool client_sees_end(int fd);
/* True if nothing comes for so long. */
bool client_hears_nothing(int fd, unsigned ms);

/* ---- handshake ---- */

/* Reads the greeting (true if it is the right one), answers with these client flags. */
bool client_greet(int fd, uint32_t flags);
bool client_option(int fd, uint32_t option, const void *data, size_t n);
struct client_reply {
    uint32_t option, type, length;
    uint8_t data[65536];
};
/* Reads one reply; false if it is malformed. */
bool client_option_reply(int fd, struct client_reply *ret_reply);
/* Sends the option and reads replies up to the final one, whose type it returns; 0 if that failed. */
uint32_t client_ask(int fd, uint32_t option, const void *data, size_t n);

/* The payload of GO or INFO: name and information requests. Returns its length. */
size_t client_info_payload(uint8_t *buf, const char *name, const uint16_t *infos, unsigned count);
/* The payload of *_META_CONTEXT. */
size_t client_meta_payload(uint8_t *buf, const char *name, const char *const *queries, unsigned count);

struct client_export {
    uint64_t size;
    uint16_t flags;
};
enum {
    CLIENT_STRUCTURED = 1,
    CLIENT_META = 2, /* base:allocation; implies structured */
};
/* Connects and negotiates with GO; -1 on failure. ret_export may be NULL. */
int client_open(struct nbd_server *server, const char *name, unsigned how, struct client_export *ret_export);
/* The same on a descriptor that is connected. */
bool client_go(int fd, const char *name, unsigned how, struct client_export *ret_export);

/* ---- transmission ---- */

bool client_request(int fd, uint16_t flags, uint16_t type, uint64_t cookie, uint64_t offset, uint32_t length);
/* Reads a simple reply: its error, or -1 if it is none or has another cookie. */
int client_simple(int fd, uint64_t cookie);

struct client_chunk {
    uint16_t flags, type;
    uint64_t cookie;
    uint32_t length;
    uint8_t *data; /* allocated: length bytes */
};
/* Reads a chunk; false if it is none. client_chunk_free in any case. */
bool client_chunk(int fd, struct client_chunk *ret_chunk);
void client_chunk_free(struct client_chunk *chunk);
/* Reads a structured reply that is one error chunk with DONE: the error, -1 if it is something else. The text is
 * checked to fit. */
int client_error(int fd, uint64_t cookie);
/* Reads either kind of final reply without data: 0 or the error, -1 for anything else. */
int client_outcome(int fd, uint64_t cookie);

/* A request and its outcome; data for WRITE. */
int client_do(int fd, uint16_t flags, uint16_t type, uint64_t offset, uint32_t length, const void *data);
/* A READ, answered in either way, chunks in any order: 0 and the bytes, or the error, or -1. */
int client_read(int fd, uint16_t flags, uint64_t offset, uint32_t length, void *ret_bytes);
/* The rest of such an answer, after client_request. */
int client_read_answer(int fd, uint64_t cookie, uint64_t offset, uint32_t length, void *ret_bytes);

#endif
