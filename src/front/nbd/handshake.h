/*
 * The handshake of a connection: fixed newstyle negotiation. Loop thread, but for the errand.
 */
#ifndef ASHLAR_FRONT_NBD_HANDSHAKE_H
#define ASHLAR_FRONT_NBD_HANDSHAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "front/nbd/errand.h"
#include "front/nbd/export.h"
#include "front/nbd/protocol.h"

struct nbd_connection;

#define NBD_OPTIONS_MAX 32                        /* of one handshake, and some more for each export it was told of */
#define NBD_OPTION_PAYLOAD_BYTES_MAX (64u * 1024) /* kept in memory */
#define NBD_OPTION_SKIP_BYTES_MAX (1024u * 1024)  /* skipped to stay in step; beyond that the peer is dropped */
#define NBD_LIST_PAGE 64                          /* exports asked of the back-end at a time */

enum nbd_handshake_state {
    NBD_AT_CLIENT_FLAGS,
    NBD_AT_OPTION_HEADER,
    NBD_AT_OPTION_PAYLOAD,
    NBD_AT_OPTION,  /* complete; to be answered once what was said before is sent */
    NBD_AT_LIST,    /* LIST goes on once what was said before is sent */
    NBD_AT_BACKEND, /* waits for the errand */
};

/* A call of the back-end that may block, made by the errand thread. */
enum nbd_call {
    NBD_CALL_LIST,     /* a page of exports after `name` */
    NBD_CALL_DESCRIBE, /* open, look, close */
    NBD_CALL_OPEN,
    NBD_CALL_CLOSE,
};

struct nbd_handshake_errand {
    struct nbd_errand errand;
    struct nbd_connection *connection; /* a reference while the errand is under way */
    enum nbd_call call;
    char name[EXPORT_NAME_BYTES];
    struct export_entry *entries; /* NBD_LIST_PAGE of them, allocated when first needed */
    size_t entry_count;
    struct export *export; /* OPEN: out */
    struct export_info info;
    int result;
    struct error error;
    atomic_bool done; /* released by the errand thread when all of the above is written, acquired by the loop */
};

struct nbd_handshake {
    enum nbd_handshake_state state;
    uint8_t header[NBD_OPTION_HEADER_BYTES];
    uint32_t filled; /* bytes of the header, the flags or the payload so far */
    bool no_zeroes, fixed, structured;
    bool heard; /* the peer has sent something */

    uint32_t option, payload_bytes;
    uint8_t *payload;                               /* NULL: none, or skipped */
    unsigned option_count, options_allowed, listed; /* exports told of by the last LIST */

    /* The last SET_META_CONTEXT that succeeded and selected base:allocation: the name it was for. */
    bool context_set;
    char context_name[EXPORT_NAME_BYTES];

    /* The option that waits for the back-end. */
    uint32_t infos; /* GO, INFO: bit i: information i was asked for */
    bool matched;   /* *_META_CONTEXT: a query names base:allocation */
    struct nbd_handshake_errand errand;
};

/* NULL: no memory. */
struct nbd_handshake *nbd_handshake_new(struct nbd_connection *c);
/* Sends the greeting. */
void nbd_handshake_begin(struct nbd_connection *c);
/* Closes an export that it still has open: in the errand thread. */
void nbd_handshake_free(struct nbd_handshake *h);

/* Takes bytes; fewer than n if an option waits for its answer, or if the phase has changed. n may be 0: goes on. */
size_t nbd_handshake_consume(struct nbd_connection *c, const uint8_t *bytes, size_t n);
/* Whether bytes are welcome now. */
bool nbd_handshake_wants_bytes(struct nbd_connection *c);

#endif
