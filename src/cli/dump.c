/*
 * ashlar dump POOL [label | slots | catalog | chunks | node ADDRESS | volume NAME]
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "check/check.h"
#include "check/dump.h"
#include "cli/argument.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "front/control/nearest.h"

static const char *const object_words[DUMP_WHAT_COUNT] = {NULL,     "label", "slots", "catalog",
                                                          "chunks", "node",  "volume"};

static int parse(const struct invocation *in, struct dump_request *r, struct error *err)
{
    char hint[96];
    *r = (struct dump_request){.what = DUMP_ALL, .json = in->json, .name = invocation_operand(in, 2)};
    const char *word = invocation_operand(in, 1);
    if (word == NULL)
        return 0;
    for (unsigned i = DUMP_LABEL; i < DUMP_WHAT_COUNT; i++)
        if (strcmp(word, object_words[i]) == 0)
            r->what = (enum dump_what)i;
    if (r->what == DUMP_ALL)
        return error_set(err, -EINVAL, "dump: '%.64s' is not one of label, slots, catalog, chunks, node, volume%s",
                         word, nearest_hint(word, object_words, DUMP_WHAT_COUNT, hint, sizeof(hint)));
    const bool takes_more = r->what == DUMP_NODE || r->what == DUMP_VOLUME;
    if (takes_more != (in->operand_count == 3))
        return error_set(err, -EINVAL, "dump: usage: ashlar dump POOL %s%s", word,
                         r->what == DUMP_NODE     ? " ADDRESS"
                         : r->what == DUMP_VOLUME ? " NAME"
                                                  : "");
    return r->what == DUMP_NODE ? argument_number(r->name, "ADDRESS", 0, INT64_MAX, &r->address, err) : 0;
}

/* What stood in the way of showing it, on standard error. */
static void print_problems(const struct check_report *report)
{
    struct text text = {0};
    size_t count;
    (void)check_report_problems(report, &count);
    check_report_print(report, &text);
    const char *line = text.bytes;
    for (size_t i = 0; i < count && line != NULL; i++) {
        const char *end = strchr(line, '\n');
        fprintf(stderr, "ashlar: %.*s\n", (int)(end - line), line);
        line = end + 1;
    }
    text_free(&text);
}

static int run_dump(struct invocation *in)
{
    struct error err = {0};
    struct dump_request request;
    struct device *dev = NULL;
    struct check_report *report = NULL;
    bool served, begun = false;
    if (parse(in, &request, &err) != 0)
        return output_error(in, &err, EXIT_USAGE);
    int r = session_check_path(in->operands[0], &err);
    if (r == 0)
        r = check_open_for_reading(env_os(), in->operands[0], &dev, &served, &err);
    if (r == 0)
        r = dump_run(dev, &request, &report, &begun, &err);
    device_close(dev);
    const bool clean = report != NULL && check_report_is_clean(report);
    if (report != NULL)
        print_problems(report);
    check_report_free(report);
    /* Where an array was printed no second JSON value follows it. */
    in->json = in->json && !begun;
    if (r != 0)
        return output_error(in, &err, EXIT_FAILED);
    return clean ? EXIT_DONE : EXIT_FAILED;
}

const struct verb verb_dump = {
    .name = "dump",
    .operands = "POOL [label | slots | catalog | chunks | node ADDRESS | volume NAME]",
    .summary = "shows what lies in a pool: labels, log, maps",
    .details = "Object by object, as it is on the device: for finding faults.\n"
               "\n"
               "  label           every label of both rings\n"
               "  slots           the slot table\n"
               "  catalog         the volumes of the last checkpoint\n"
               "  chunks          every chunk of every segment in use, with its entries\n"
               "  node ADDRESS    the map node at this log address\n"
               "  volume NAME     a volume's whole map\n"
               "\n"
               "Without any of these: labels, slots and catalog; --json: one array of objects. Exit status: 0 done,\n"
               "1 not there, damaged or not readable, 2 the command line is wrong. See ashlar-check(8).",
    .operand_count_min = 1,
    .operand_count_max = 3,
    .run = run_dump,
};
