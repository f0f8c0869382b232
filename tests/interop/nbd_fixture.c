/*
 * Notices come from the server's threads and are kept for the test to look at.
 */
#include "nbd_fixture.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "env/env.h"

static void keep_notice(void *arg, const char *text)
{
    struct fixture *f = arg;
    env_mutex_lock(&f->lock);
    f->notices++;
    (void)snprintf(f->notice, sizeof f->notice, "%s", text);
    env_mutex_unlock(&f->lock);
}

void fixture_begin_with(struct fixture *f, const struct memory_options *memory, const struct nbd_server_options *server,
                        const char *const *exports, uint64_t size_bytes)
{
    struct memory_options memory_options = memory != NULL ? *memory : (struct memory_options){0};
    struct nbd_server_options options = server != NULL ? *server : (struct nbd_server_options){0};
    struct error err = {0};
    *f = (struct fixture){0};
    env_mutex_init(&f->lock, env_os());
    options.notice = keep_notice;
    options.notice_arg = f;
    f->memory = memory_exports_new(env_os(), &memory_options);
    for (; *exports != NULL; exports++) {
        size_t n = strlen(*exports);
        memory_exports_add(f->memory, *exports, size_bytes, n > 3 && strcmp(*exports + n - 3, "-ro") == 0);
    }
    int ret = nbd_server_new(env_os(), &options, memory_exports_ops_of(f->memory), f->memory, &f->server, &err);
    if (ret == 0)
        ret = nbd_server_start(f->server, &err);
    if (ret < 0)
        printf("# %s\n", err.text);
    CHECK_EQ(ret, 0);
}

void fixture_begin(struct fixture *f)
{
    static const char *const exports[] = {"disk", NULL};
    fixture_begin_with(f, NULL, NULL, exports, 1 * GIB);
}

void fixture_end(struct fixture *f)
{
    nbd_server_free(f->server);
    memory_exports_free(f->memory);
    env_mutex_destroy(&f->lock);
}

unsigned fixture_notices(struct fixture *f, char *buf, size_t buf_bytes)
{
    env_mutex_lock(&f->lock);
    unsigned count = f->notices;
    if (buf != NULL)
        (void)snprintf(buf, buf_bytes, "%s", f->notice);
    env_mutex_unlock(&f->lock);
    return count;
}

void fixture_get_stats(struct fixture *f, struct nbd_server_stats *ret_stats)
{
    nbd_server_get_stats(f->server, ret_stats);
}

bool fixture_is_deserted(struct fixture *f)
{
    struct nbd_server_stats stats;
    for (int i = 0; i < 1000; i++) {
        fixture_get_stats(f, &stats);
        if (stats.connections_now + stats.handshakes_now + stats.closing_now == 0)
            return true;
        env_sleep_ns(env_os(), 10000000);
    }
    return false;
}
