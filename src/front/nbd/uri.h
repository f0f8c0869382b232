/*
 * NBD URIs (https://github.com/NetworkBlockDevice/nbd, doc/uri.md): nbd://HOST:PORT/EXPORT and
 * nbd+unix:///EXPORT?socket=PATH, escaped as RFC 3986 wants it.
 */
#ifndef ASHLAR_FRONT_NBD_URI_H
#define ASHLAR_FRONT_NBD_URI_H

#include <stddef.h>

/* What stands before and after the export name in the URI of a listening socket; both allocated, "" if it has no name
 * that could be told. Aborts without memory. */
void nbd_uri_of_socket(int fd, char **ret_head, char **ret_tail);
/* "?socket=PATH", allocated. */
char *nbd_uri_unix_tail(const char *path);
/* Head, escaped name and tail into buf; cut if too long. Returns buf. */
char *nbd_uri_join(const char *head, const char *name, const char *tail, char *buf, size_t buf_bytes);

#endif
