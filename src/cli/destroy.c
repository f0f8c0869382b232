/*
 * ashlar destroy POOL VOLUME: a volume and what it holds go.
 */
#include <stdio.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"

static void print_destroy(const struct invocation *in, const json_t *result)
{
    (void)in;
    printf("%s is gone\n", output_text(result, "volume"));
}

static int run_destroy(struct invocation *in)
{
    struct error err = {0};
    if (in->operand_count == 1) {
        error_set(&err, -EINVAL, "destroy takes a volume: ashlar destroy POOL VOLUME; a whole pool goes with its file");
        return output_error(in, &err, EXIT_USAGE);
    }
    return session_show(in, in->operands[0], "destroy", json_pack("{s:s}", "volume", in->operands[1]), print_destroy);
}

const struct verb verb_destroy = {
    .name = "destroy",
    .operands = "POOL VOLUME",
    .summary = "removes a volume and what it holds",
    .details = "At once and without asking, as in zfs. A volume that a client is connected to is refused, with the\n"
               "clients named. Its space comes back after the next checkpoints.",
    .operand_count_min = 1,
    .operand_count_max = 2,
    .run = run_destroy,
};
