/*
 * ashlar list POOL: a line for each volume.
 */
#include <stdio.h>

#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"

static void print_list(const struct invocation *in, const json_t *result)
{
    const json_t *volumes = json_object_get(result, "volumes");
    size_t count = json_array_size(volumes);
    if (count == 0) {
        printf("no volumes; make one: ashlar create %s NAME 10G\n", in->operands[0]);
        return;
    }
    static const char *const headings[] = {"NAME", "SIZE", "USED", "RATIO", "RECORD", "COMPRESSION"};
    struct table t = {.columns = sizeof(headings) / sizeof(headings[0])};
    char buf[16];
    for (unsigned i = 0; i < t.columns; i++)
        table_add(&t, headings[i]);
    for (size_t i = 0; i < count; i++) {
        const json_t *v = json_array_get(volumes, i);
        table_add(&t, output_text(v, "name"));
        table_add(&t, output_size(v, "size", buf));
        table_add(&t, output_size(v, "used", buf));
        snprintf(buf, sizeof(buf), "%.2f", output_real(v, "compression-ratio"));
        table_add(&t, buf);
        table_add(&t, output_size(v, "record-size", buf));
        table_add(&t, output_text(v, "compression"));
    }
    table_print(&t);
}

static int run_list(struct invocation *in)
{
    return session_show(in, in->operands[0], "list", NULL, print_list);
}

const struct verb verb_list = {
    .name = "list",
    .operands = "POOL",
    .summary = "the volumes of a pool",
    .details =
        "USED and RATIO are as of the last checkpoint, at most a few seconds ago while the pool is served: what was\n"
        "written since is not counted yet. --json gives every property of every volume, sizes in bytes.",
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run_list,
};
