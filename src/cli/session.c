/*
 * The control socket first, the pool's lock second: who holds the lock either answers on the socket or is another
 * command that is done in a moment. Between a server's start and its first answer, and between its last and its end,
 * the lock is held and nobody answers: that too is waited for.
 */
#include "cli/session.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "env/device.h"
#include "env/env.h"
#include "front/control/client.h"
#include "front/control/execute.h"
#include "pool/pool.h"

#define LOCK_WAIT_NS UINT64_C(3000000000)
#define LOCK_RETRY_NS UINT64_C(50000000)

int session_check_path(const char *pool_path, struct error *err)
{
    struct stat st;
    if (stat(pool_path, &st) == 0)
        return 0;
    if (errno == ENOENT)
        return error_set(err, -ENOENT, "there is no pool at '%s'; make one: ashlar create %s --size 10G", pool_path,
                         pool_path);
    return error_set(err, -errno, "pool '%s': %s", pool_path, strerror(errno));
}

/* Notices of a pool that is open for one command. */
static void print_notice(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "ashlar: %s\n", text);
}

/* *ret_locked: another process has the pool open. */
static int run_direct(const char *pool_path, struct control_call *call, bool changes_pool, json_t **ret_result,
                      bool *ret_locked, struct error *err)
{
    char path[PATH_MAX];
    struct device *dev;
    struct pool_options options = {.read_only = !changes_pool, .background = call->fd >= 0, .notice = print_notice};
    struct control_host host = {.env = env_os(), .path = path};
    int r = device_open(env_os(), pool_path, changes_pool ? 0 : DEVICE_OPEN_READ_ONLY, 0, &dev, err);
    *ret_locked = r == -EBUSY;
    if (r == 0)
        r = pool_open(dev, &options, &host.pool, err);
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), "%s", pool_path);
    control_text_clean(path);
    r = control_execute(&host, call, ret_result, err);
    int closed = pool_close(host.pool, err); /* keeps an error that is there already */
    if (r == 0 && closed < 0) {
        json_decref(*ret_result);
        r = closed;
    }
    return r;
}

/* One try. *ret_locked: somebody has the pool open and does not answer on a socket. */
static int run_once(const struct invocation *in, const char *pool_path, struct control_call *call,
                    const struct control_verb *verb, json_t **ret_result, bool *ret_locked, struct error *err)
{
    struct control_client *client;
    int r = control_client_open(pool_path, &client, err);
    if (r == 0) {
        r = control_client_call(client, verb->name, call->request.arguments, call->fd, in->timeout_seconds,
                                call->progress, call->arg, ret_result, err);
        control_client_close(client);
        return r;
    }
    if (r != -ENOENT || err->code != 0)
        return r;
    return run_direct(pool_path, call, verb->changes_pool, ret_result, ret_locked, err);
}

static int run_until_done(const struct invocation *in, const char *pool_path, const char *verb_name, json_t *arguments,
                          int fd, struct progress *progress, json_t **ret_result, struct error *err)
{
    const struct control_verb *verb = control_verb_find(verb_name);
    struct control_call call = {.request.arguments = arguments != NULL ? arguments : json_object(), .fd = fd};
    uint64_t started_ns = env_now_ns(env_os());
    snprintf(call.request.verb, sizeof(call.request.verb), "%s", verb_name);
    call.progress = progress_tell;
    call.confirm = progress_confirm;
    call.arg = progress;
    int r = session_check_path(pool_path, err);
    bool again = r == 0;
    while (again) {
        struct error attempt = {0};
        bool locked = false;
        r = run_once(in, pool_path, &call, verb, ret_result, &locked, &attempt);
        again = locked && env_now_ns(env_os()) - started_ns < LOCK_WAIT_NS;
        if (again)
            env_sleep_ns(env_os(), LOCK_RETRY_NS);
        else if (r < 0)
            r = error_set(err, attempt.code, "%s", attempt.text);
    }
    control_request_clear(&call.request);
    return r;
}

int session_run(const struct invocation *in, const char *pool_path, const char *verb, json_t *arguments, int fd,
                struct progress *progress, json_t **ret_result, struct error *err)
{
    struct progress own;
    char what[64];
    const char *target = invocation_operand(in, 1);
    if (progress != NULL)
        return run_until_done(in, pool_path, verb, arguments, fd, progress, ret_result, err);
    snprintf(what, sizeof(what), "%s %.32s", in->verb->name, target != NULL ? target : pool_path);
    progress_begin(&own, what, PROGRESS_SIGNALS_KILL);
    int r = run_until_done(in, pool_path, verb, arguments, fd, &own, ret_result, err);
    progress_end(&own);
    return r;
}

int session_show(const struct invocation *in, const char *pool_path, const char *verb, json_t *arguments,
                 void (*print)(const struct invocation *in, const json_t *result))
{
    struct error err = {0};
    json_t *result = NULL;
    int r = session_run(in, pool_path, verb, arguments, -1, NULL, &result, &err);
    if (r < 0)
        return output_error(in, &err, EXIT_FAILED);
    if (in->json)
        output_json(result);
    else
        print(in, result);
    json_decref(result);
    return EXIT_DONE;
}
