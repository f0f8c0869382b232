/*
 * ashlar import POOL VOLUME FILE|-
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/argument.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/source.h"
#include "cli/verb.h"
#include "format/catalog.h"

static void print_import(const struct invocation *in, const json_t *result)
{
    char size[16], bytes[16], rate[16];
    double seconds = output_real(result, "seconds");
    uint64_t data_bytes = output_u64(result, "data-bytes");
    (void)in;
    printf("%s: %s, %s of data in %.1f s, %s/s\n", output_text(result, "volume"), output_size(result, "size", size),
           size_format(data_bytes, bytes, sizeof(bytes)), seconds,
           size_format(seconds > 0 ? (uint64_t)((double)data_bytes / seconds) : data_bytes, rate, sizeof(rate)));
}

static int run_import(struct invocation *in)
{
    struct error err = {0};
    struct progress progress;
    json_t *properties, *result;
    const char *file = in->operands[2];
    char what[64];
    if (volume_name_check(in->operands[1], &err) < 0 || argument_volume_properties(in, &properties, &err) < 0)
        return output_error(in, &err, EXIT_USAGE);
    int fd = strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        error_set(&err, -errno, "'%s': %s", file, strerror(errno));
        json_decref(properties);
        return output_error(in, &err, EXIT_FAILED);
    }
    int r = source_check(fd, file, in->operands[0], invocation_flag(in, "raw"), &err);
    if (r < 0) {
        close(fd);
        json_decref(properties);
        return output_error(in, &err, EXIT_FAILED);
    }
    json_t *arguments = json_pack("{s:s, s:o, s:b}", "volume", in->operands[1], "properties", properties, "force",
                                  (int)invocation_flag(in, "force"));
    snprintf(what, sizeof(what), "import %.32s", in->operands[1]);
    progress_begin(&progress, what, PROGRESS_SIGNALS_WATCH);
    r = session_run(in, in->operands[0], "import", arguments, fd, &progress, &result, &err);
    progress_end(&progress);
    close(fd);
    if (r < 0)
        return output_error(in, &err, EXIT_FAILED);
    if (in->json)
        output_json(result);
    else
        print_import(in, result);
    json_decref(result);
    return EXIT_DONE;
}

static const struct option_spec import_options[] = {
    {"o", "NAME=VALUE", "a property of the new volume, as in create; may be repeated"},
    {"force", NULL, "overwrite a volume that exists"},
    {"raw", NULL, "take the bytes of a file that looks like an image format (qcow2 and others) or compressed"},
    {NULL},
};

const struct verb verb_import = {
    .name = "import",
    .operands = "POOL VOLUME FILE|-",
    .summary = "makes a volume from a file, a block device or standard input",
    .details =
        "The volume is made with the size of the file, rounded up to 512. Holes and zeroes take no space. It has the\n"
        "name VOLUME.importing until it is complete and durable; what is cut short leaves nothing else behind.",
    .options = import_options,
    .operand_count_min = 3,
    .operand_count_max = 3,
    .run = run_import,
};
