/*
 * ashlar check POOL: the independent witness, and its repairs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "check/check.h"
#include "cli/argument.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "env/device.h"

static void tell(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)progress_tell(arg, done_bytes, total_bytes);
}

static void print_report(const struct check_report *report, bool json)
{
    struct text text = {0};
    char *object = json ? check_report_json(report) : NULL;
    if (!json)
        check_report_print(report, &text);
    if (object != NULL)
        puts(object);
    else if (text.bytes != NULL)
        fputs(text.bytes, stdout);
    free(object);
    text_free(&text);
}

static int look(const char *path, const struct check_options *options, struct check_report **ret_report,
                struct error *err)
{
    struct device *dev = NULL;
    bool served = false;
    int r = session_check_path(path, err);
    if (r == 0 && options->repair)
        r = device_open(env_os(), path, 0, 0, &dev, err);
    else if (r == 0)
        r = check_open_for_reading(env_os(), path, &dev, &served, err);
    if (r == 0 && served)
        r = check_run_served(dev, options, ret_report, err);
    else if (r == 0)
        r = check_run(dev, options, ret_report, err);
    device_close(dev);
    return r;
}

static int run_check(struct invocation *in)
{
    struct check_options options = {.quick = invocation_flag(in, "quick"),
                                    .all = invocation_flag(in, "all"),
                                    .repair = invocation_flag(in, "repair")};
    struct check_report *report = NULL;
    struct progress progress;
    struct error err = {0};
    const char *label = invocation_value(in, "label"), *path = in->operands[0];
    char what[64];
    int r = 0;
    if (options.quick && options.all)
        r = error_set(&err, -EINVAL, "check: --quick and --all cannot go together");
    if (r == 0 && options.repair && label != NULL)
        r = error_set(&err, -EINVAL, "check: --repair and --label cannot go together");
    if (r == 0 && label != NULL)
        r = argument_number(label, "--label", 1, INT64_MAX, &options.label_sequence, &err);
    if (r != 0)
        return output_error(in, &err, EXIT_USAGE);
    snprintf(what, sizeof(what), "check %.40s", path);
    progress_begin(&progress, what, PROGRESS_SIGNALS_KILL);
    options.progress = tell;
    options.progress_arg = &progress;
    r = look(path, &options, &report, &err);
    progress_end(&progress);
    if (r != 0)
        return output_error(in, &err, EXIT_FAILED);
    const int status = check_report_is_clean(report) ? EXIT_DONE : EXIT_FAILED;
    print_report(report, in->json);
    check_report_free(report);
    return status;
}

static const struct option_spec check_options[] = {
    {"quick", NULL, "metadata only: the records themselves are not read"},
    {"all", NULL, "also what is stored and no longer referred to"},
    {"repair", NULL, "mend what an intact copy, or the log, still knows; not while served"},
    {"label", "NUMBER", "as if all newer labels were lost"},
    {NULL},
};

const struct verb verb_check = {
    .name = "check",
    .operands = "POOL",
    .summary = "counts everything in a pool independently; finds and mends damage",
    .details = "Reads a pool from its bytes alone, without the engine, and recounts everything: labels, the chain of\n"
               "the log, every chunk, map and record, the accounts of volumes and slots. Writes nothing without\n"
               "--repair. A pool that is served is read beside its server.\n"
               "\n"
               "Exit status: 0 clean, 1 damage found or not to be checked, 2 the command line is wrong.\n"
               "See ashlar-check(8).",
    .options = check_options,
    .operand_count_min = 1,
    .operand_count_max = 1,
    .run = run_check,
};
