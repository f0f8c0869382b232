/*
 * ashlar stop POOL: asks the server to end and waits until its process is gone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "front/control/client.h"

static int stop(const struct invocation *in, struct progress *progress, pid_t *ret_pid, struct error *err)
{
    struct control_client *client;
    json_t *result = NULL;
    const char *pool = in->operands[0];
    int r = session_check_path(pool, err);
    if (r < 0)
        return r;
    r = control_client_open(pool, &client, err);
    if (r == -ENOENT && err->code == 0)
        return error_set(err, -ESRCH, "'%s' is not served", pool);
    if (r < 0)
        return r;
    *ret_pid = control_client_server_pid(client);
    r = control_client_call(client, "stop", NULL, -1, in->timeout_seconds, progress_tell, progress, &result, err);
    json_decref(result);
    if (r == 0) {
        r = control_client_wait_gone(client, in->timeout_seconds);
        if (r < 0)
            error_set(err, r, "the server of '%s' (process %d) closed the pool but has not ended for %u seconds", pool,
                      (int)*ret_pid, in->timeout_seconds);
    }
    control_client_close(client);
    return r;
}

static int run_stop(struct invocation *in)
{
    struct error err = {0};
    struct progress progress;
    pid_t pid = 0;
    progress_begin(&progress, "stop", PROGRESS_SIGNALS_WATCH);
    int r = stop(in, &progress, &pid, &err);
    progress_end(&progress);
    if (r < 0)
        return output_error(in, &err, EXIT_FAILED);
    if (in->json) {
        json_t *result = json_pack("{s:b, s:i}", "stopped", 1, "pid", (int)pid);
        output_json(result);
        json_decref(result);
    } else {
        printf("stopped: everything is durable, process %d is gone\n", (int)pid);
    }
    return EXIT_DONE;
}

const struct verb verb_stop = {
    .name = "stop",
    .operands = "POOL",
    .summary = "ends the server of a pool and waits until it is gone",
    .details = "Requests under way are finished, everything is flushed. Clients that do not go by themselves are\n"
               "disconnected after a few seconds.",
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run_stop,
};
