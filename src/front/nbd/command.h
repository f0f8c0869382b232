/*
 * A command of the transmission phase under way: from its header to its last reply.
 *
 * It is carried out as one part or several, each one request of the engine. The caller has taken the memory from the
 * budget: NBD_COMMAND_COST for the command with its first part, NBD_PART_COST for each further part, and the capacity
 * of each part's buffer; all of it is given back here.
 */
#ifndef ASHLAR_FRONT_NBD_COMMAND_H
#define ASHLAR_FRONT_NBD_COMMAND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "front/nbd/buffer.h"
#include "front/nbd/sender.h"
#include "queue/queue.h"

struct nbd_connection;
struct nbd_command;

#define NBD_COMMAND_COST 1024
#define NBD_PART_COST 512
/* A READ or WRITE that is longer is carried out in parts, cut where the volume's offset is a multiple of this: no
 * record is larger, so no record is cut. */
#define NBD_PART_BYTES (1024u * 1024)
#define NBD_COMMANDS_MAX 128 /* under way on one connection */
#define NBD_EXTENTS_MAX 1024 /* descriptors in one answer to BLOCK_STATUS */

struct nbd_request_header {
    uint16_t flags, type;
    uint64_t cookie, offset;
    uint32_t length;
};

struct nbd_part {
    struct nbd_command *command;
    struct request request;
    struct nbd_buffer buffer;
    struct nbd_reply reply; /* READ: the chunk with its data */
};

struct nbd_command {
    struct nbd_connection *connection; /* a reference */
    /* One of the reply that ends the command, one of each chunk before it is retired: they may be retired by different
     * threads, in any order. */
    atomic_uint references;
    struct nbd_request_header header;
    unsigned parts_left;    /* guarded by the sender's lock: parts submitted or still to come */
    uint32_t error;         /* guarded likewise: the first one, for all but READ */
    struct nbd_reply reply; /* the last one, for all but a READ that succeeded */
    struct nbd_part first;
};

/* Loop. NULL: no memory, and the cost was given back. */
struct nbd_command *nbd_command_new(struct nbd_connection *c, const struct nbd_request_header *header);
/* Loop. A further part, NULL likewise. */
struct nbd_part *nbd_command_add_part(struct nbd_command *command);

/* Releases the part's buffer and, unless it is inside its command, the part; gives back what they cost. */
void nbd_part_free(struct nbd_part *part);

/* Ends a command that was not submitted: error 0 for success, else a text for the error chunk (taken over, may be
 * NULL). */
void nbd_command_finish(struct nbd_command *command, uint32_t error, char *text);
/* Gives up the part that is being made and those that would come: nobody is there to be told. */
void nbd_command_abandon(struct nbd_command *command, struct nbd_part *part);

/*
 * Hands a part to the export. For READ and WRITE its buffer has the capacity (WRITE: and the bytes) for length. `last`:
 * no further part will come. The command may be gone when this returns if it is the last.
 */
void nbd_part_submit(struct nbd_part *part, uint64_t offset, uint64_t length, bool last);

#endif
