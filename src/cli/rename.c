/*
 * ashlar rename POOL VOLUME NEW-NAME
 */
#include <stdio.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "format/catalog.h"

static void print_rename(const struct invocation *in, const json_t *result)
{
    (void)in;
    printf("%s is now called %s\n", output_text(result, "from"), output_text(result, "volume"));
}

static int run_rename(struct invocation *in)
{
    struct error err = {0};
    if (volume_name_check(in->operands[2], &err) < 0)
        return output_error(in, &err, EXIT_USAGE);
    json_t *arguments = json_pack("{s:s, s:s}", "volume", in->operands[1], "to", in->operands[2]);
    return session_show(in, in->operands[0], "rename", arguments, print_rename);
}

const struct verb verb_rename = {
    .name = "rename",
    .operands = "POOL VOLUME NEW-NAME",
    .summary = "gives a volume another name",
    .operand_count_min = 3,
    .operand_count_max = 3,
    .run = run_rename,
};
