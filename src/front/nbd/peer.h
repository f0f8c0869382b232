/*
 * Who is at the other end of a connection, for messages and lists.
 */
#ifndef ASHLAR_FRONT_NBD_PEER_H
#define ASHLAR_FRONT_NBD_PEER_H

#include <stdbool.h>
#include <stddef.h>

/* "pid 17 uid 0" on a unix socket, "127.0.0.1:40022" or "[::1]:40022" on TCP, else "descriptor 0". */
void peer_name(int fd, bool is_socket, char *buf, size_t buf_bytes);

#endif
