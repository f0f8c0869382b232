/*
 * ashlar resize POOL VOLUME SIZE
 */
#include <stdio.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/argument.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"

static void print_resize(const struct invocation *in, const json_t *result)
{
    char before[16], after[16];
    (void)in;
    printf("%s: from %s to %s\n", output_text(result, "volume"),
           size_format_exact(output_u64(result, "before"), before, sizeof(before)),
           size_format_exact(output_u64(result, "size"), after, sizeof(after)));
}

static int run_resize(struct invocation *in)
{
    struct error err = {0};
    uint64_t size_bytes;
    if (argument_volume_size(in->operands[2], "SIZE", &size_bytes, &err) < 0)
        return output_error(in, &err, EXIT_USAGE);
    json_t *arguments = json_pack("{s:s, s:I, s:b}", "volume", in->operands[1], "size", (json_int_t)size_bytes, "force",
                                  (int)invocation_flag(in, "force"));
    return session_show(in, in->operands[0], "resize", arguments, print_resize);
}

static const struct option_spec resize_options[] = {
    {"force", NULL, "shrink even though what lies behind is lost"},
    {NULL},
};

const struct verb verb_resize = {
    .name = "resize",
    .operands = "POOL VOLUME SIZE",
    .summary = "makes a volume larger or smaller",
    .details = "What is added reads as zeroes. Connected clients see the new size when they connect again.",
    .options = resize_options,
    .operand_count_min = 3,
    .operand_count_max = 3,
    .run = run_resize,
};
