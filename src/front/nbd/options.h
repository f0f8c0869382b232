/*
 * The options of a handshake and their answers. Loop thread.
 */
#ifndef ASHLAR_FRONT_NBD_OPTIONS_H
#define ASHLAR_FRONT_NBD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nbd_connection;
struct nbd_handshake;
struct wire_source;

/* The option is complete (its payload in memory, or skipped because it is too long to keep): answers it, or calls the
 * back-end. Sets the state, or closes, or enters transmission. */
void nbd_option_handle(struct nbd_connection *c);
/* The back-end has answered. */
void nbd_option_called(struct nbd_connection *c);
/* LIST: asks for the next page. */
void nbd_option_list_on(struct nbd_connection *c);

/* ---- for meta.c ---- */

void nbd_option_reply(struct nbd_connection *c, uint32_t type, const void *data, size_t n);
void nbd_option_error(struct nbd_connection *c, uint32_t type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads a name with its length before it. false: answered with an error. A name that is too long for any export is cut,
 * and so unknown. */
bool nbd_option_take_name(struct nbd_connection *c, struct wire_source *s, char *ret_name);
/* Calls the back-end about the export `name`; nbd_option_called follows. */
void nbd_option_call(struct nbd_connection *c, int call, const char *name);

/* meta.c: LIST_META_CONTEXT and SET_META_CONTEXT. */
void nbd_meta_handle(struct nbd_connection *c);
void nbd_meta_called(struct nbd_connection *c);

#endif
