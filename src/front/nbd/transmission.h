/*
 * The receiving half of a connection after the handshake: requests out of bytes. Loop thread only.
 */
#ifndef ASHLAR_FRONT_NBD_TRANSMISSION_H
#define ASHLAR_FRONT_NBD_TRANSMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "front/nbd/command.h"
#include "front/nbd/protocol.h"

struct nbd_connection;

/* Zero at first. transmission.c has the states. */
struct nbd_transmission {
    uint8_t header_bytes[NBD_REQUEST_BYTES];
    unsigned header_filled;
    bool pending; /* a header is complete, its command not begun */
    struct nbd_request_header header;

    struct nbd_command *command; /* a WRITE being received or a READ being cut into parts */
    struct nbd_part *part;       /* WRITE: the part being received */
    uint64_t at, end;            /* what is left of the command, from the part on */
    bool granted;                /* all memory of the part is here, and is kept */

    struct nbd_command *failed; /* a WRITE that was refused: its payload is taken first, then it is answered */
    uint64_t discard_bytes;     /* of that payload still to come */
    uint32_t failed_error;
    char *failed_text;

    bool stuck;            /* what is begun must wait, see nbd_transmission_consume */
    uint32_t payload_hint; /* bytes of the last WRITE's payload */
};

/*
 * Takes bytes, n >= 0 of them, and begins what they ask for. Returns how many were taken: fewer than n if a command
 * must wait (for memory, or for replies to be sent), or if the connection's phase changed. A call with n = 0 goes on
 * with what waited.
 */
size_t nbd_transmission_consume(struct nbd_connection *c, const uint8_t *bytes, size_t n);

/* Whether bytes are welcome now. */
bool nbd_transmission_wants_bytes(struct nbd_connection *c);
/* Where the next bytes of a payload may be put directly: iovecs for *ret_bytes bytes, 0 if there is no such place.
 * Then, if bytes were received there, how many. *ret_beyond: how much to receive behind them, elsewhere. */
int nbd_transmission_room(struct nbd_connection *c, struct iovec *ret_iov, int room, size_t *ret_bytes,
                          size_t *ret_beyond);
void nbd_transmission_received(struct nbd_connection *c, size_t bytes);

/* Gives up a command that is not complete. */
void nbd_transmission_abandon(struct nbd_connection *c);
/* Memory that waits for the peer to send more. */
uint64_t nbd_transmission_held_bytes(const struct nbd_connection *c);

#endif
