/*
 * A relative path is made absolute: the URI is for other programs, which may run elsewhere.
 */
#include "front/nbd/uri.h"

#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"

static void append_escaped(struct text *t, const char *string, const char *also_plain)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *string != '\0'; string++) {
        if (strchr(plain, *string) != NULL || strchr(also_plain, *string) != NULL)
            text_printf(t, "%c", *string);
        else
            text_printf(t, "%%%02X", (unsigned char)*string);
    }
}

char *nbd_uri_unix_tail(const char *path)
{
    struct text t = {0};
    char directory[PATH_MAX];
    text_printf(&t, "?socket=");
    if (path[0] != '/' && getcwd(directory, sizeof directory) != NULL) {
        append_escaped(&t, directory, "/");
        text_printf(&t, "/");
    }
    append_escaped(&t, path, "/");
    return t.bytes;
}

static char *copy(const char *string)
{
    struct text t = {0};
    text_printf(&t, "%s", string);
    return t.bytes;
}

static bool is_wildcard(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        return four.sin_addr.s_addr == htonl(INADDR_ANY);
    }
    struct sockaddr_in6 six;
    memcpy(&six, address, sizeof six);
    return IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr);
}

static char *tcp_head(const struct sockaddr_storage *address, socklen_t n)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo((const struct sockaddr *)address, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return copy("");
    struct text t = {0};
    if (is_wildcard(address))
        text_printf(&t, "nbd://localhost:%s/", port);
    else if (address->ss_family == AF_INET6)
        text_printf(&t, "nbd://[%s]:%s/", host, port);
    else
        text_printf(&t, "nbd://%s:%s/", host, port);
    return t.bytes;
}

void nbd_uri_of_socket(int fd, char **ret_head, char **ret_tail)
{
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    *ret_head = *ret_tail = NULL;
    if (getsockname(fd, (struct sockaddr *)&address, &n) == 0) {
        struct sockaddr_un local;
        memcpy(&local, &address, sizeof local);
        if (address.ss_family == AF_INET || address.ss_family == AF_INET6) {
            *ret_head = tcp_head(&address, n);
        } else if (address.ss_family == AF_UNIX && n > offsetof(struct sockaddr_un, sun_path) &&
                   local.sun_path[0] != '\0') {
            *ret_head = copy("nbd+unix:///");
            *ret_tail = nbd_uri_unix_tail(local.sun_path);
        }
    }
    if (*ret_head == NULL)
        *ret_head = copy("");
    if (*ret_tail == NULL)
        *ret_tail = copy("");
}

char *nbd_uri_join(const char *head, const char *name, const char *tail, char *buf, size_t buf_bytes)
{
    struct text t = {0};
    append_escaped(&t, name, "");
    (void)snprintf(buf, buf_bytes, "%s%s%s", head, t.bytes != NULL ? t.bytes : "", tail);
    text_free(&t);
    return buf;
}
