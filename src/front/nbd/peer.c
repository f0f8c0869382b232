/*
 * Names only numbers: a look-up of names could block the event loop.
 */
#include "front/nbd/peer.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

void peer_name(int fd, bool is_socket, char *buf, size_t buf_bytes)
{
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    (void)snprintf(buf, buf_bytes, "descriptor %d", fd);
    if (!is_socket || getpeername(fd, (struct sockaddr *)&address, &n) < 0)
        return;
    if (address.ss_family == AF_UNIX) {
        struct ucred peer;
        socklen_t size = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
            (void)snprintf(buf, buf_bytes, "pid %d uid %u", (int)peer.pid, peer.uid);
        return;
    }
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo((struct sockaddr *)&address, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    bool six = address.ss_family == AF_INET6;
    (void)snprintf(buf, buf_bytes, "%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port);
}
