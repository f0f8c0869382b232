/*
 * ashlar create POOL VOLUME SIZE, and the way to ashlar create POOL --size SIZE (create_pool.c).
 */
#include "cli/create.h"

#include <stdio.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/argument.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "format/catalog.h"

static void print_volume(const struct invocation *in, const json_t *result)
{
    const json_t *properties = json_object_get(result, "properties");
    char size[16], record[16];
    (void)in;
    printf("%s: %s, %s, records of %s\n", output_text(result, "volume"),
           size_format_exact(output_u64(properties, "size"), size, sizeof(size)),
           output_text(properties, "compression"),
           size_format_exact(output_u64(properties, "record-size"), record, sizeof(record)));
}

static int create_volume(struct invocation *in)
{
    struct error err = {0};
    uint64_t size_bytes = 0;
    json_t *properties = NULL;
    const char *name = in->operands[1];
    int r = 0;
    if (invocation_value(in, "size") != NULL)
        r = error_set(&err, -EINVAL,
                      "--size is for a new pool; a volume's size follows its name: ashlar create %s %s SIZE",
                      in->operands[0], name);
    if (r == 0)
        r = volume_name_check(name, &err);
    if (r == 0)
        r = argument_volume_size(in->operands[2], "SIZE", &size_bytes, &err);
    if (r == 0)
        r = argument_volume_properties(in, &properties, &err);
    if (r < 0)
        return output_error(in, &err, EXIT_USAGE);
    json_t *arguments =
        json_pack("{s:s, s:I, s:o}", "volume", name, "size", (json_int_t)size_bytes, "properties", properties);
    return session_show(in, in->operands[0], "create", arguments, print_volume);
}

static int run_create(struct invocation *in)
{
    struct error err = {0};
    if (in->operand_count == 3)
        return create_volume(in);
    if (in->operand_count == 1)
        return create_pool_run(in);
    error_set(
        &err, -EINVAL,
        "create: a pool is made with: ashlar create POOL --size SIZE; a volume with: ashlar create POOL VOLUME SIZE");
    return output_error(in, &err, EXIT_USAGE);
}

static const struct option_spec create_options[] = {
    {"size", "SIZE", "of a new pool: how large its file may grow"},
    {"o", "NAME=VALUE", "a property; may be repeated"},
    {"force", NULL, "make a pool on a block device although something is on it"},
    {NULL},
};

const struct verb verb_create = {
    .name = "create",
    .operands = "POOL --size SIZE | POOL VOLUME SIZE",
    .summary = "makes a pool, or a volume in one",
    .details = "A pool is a file, which takes only the space that it holds, or a block device, which is taken whole\n"
               "(leave --size out). Something that is there is never overwritten, but for an empty file.\n"
               "\n"
               "Properties of a volume: compression=off|lz4|zstd|zstd-N|zstd-fast-N (zstd), record-size=4K..1M (16K).\n"
               "Properties of a pool: segment-size, write-unit; their defaults suit nearly everybody.",
    .options = create_options,
    .operand_count_min = 1,
    .operand_count_max = 3,
    .run = run_create,
};
