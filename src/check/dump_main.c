/*
 * `ashlar dump POOL [label | slots | catalog | chunks | node ADDRESS | volume NAME]`.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "check/check.h"
#include "check/command.h"
#include "check/dump.h"

static const char usage[] =
    "usage: ashlar dump POOL [label | slots | catalog | chunks | node ADDRESS | volume NAME] [--json]\n\n"
    "Shows what lies in a pool, object by object, as it is on the device: for finding faults.\n\n"
    "  label           every label of both rings\n"
    "  slots           the slot table\n"
    "  catalog         the volumes of the last checkpoint\n"
    "  chunks          every chunk of every segment in use, with its entries\n"
    "  node ADDRESS    the map node at this log address\n"
    "  volume NAME     a volume's whole map\n"
    "  --json          one array of objects\n\n"
    "Without any of these: labels, slots and catalog. Exit status: 0 done, 1 not there or damaged,\n"
    "2 the command line is wrong, 3 not readable. See ashlar-check(8).\n";

enum what { WHAT_ALL, WHAT_LABEL, WHAT_SLOTS, WHAT_CATALOG, WHAT_CHUNKS, WHAT_NODE, WHAT_VOLUME, WHAT_COUNT };

struct request {
    enum what what;
    const char *name;
    uint64_t address;
    bool json;
};

static int parse(const struct check_words *w, struct request *r, struct error *err)
{
    static const char *const names[WHAT_COUNT] = {NULL, "label", "slots", "catalog", "chunks", "node", "volume"};
    if (w->operand_count == 0)
        return error_set(err, -EINVAL, "dump: a pool is needed; usage: ashlar dump POOL");
    if (w->operand_count == 1)
        return 0;
    for (unsigned i = WHAT_LABEL; i < WHAT_COUNT; i++)
        if (strcmp(w->operands[1], names[i]) == 0)
            r->what = (enum what)i;
    if (r->what == WHAT_ALL)
        return error_set(err, -EINVAL, "dump: '%.64s' is not one of label, slots, catalog, chunks, node, volume",
                         w->operands[1]);
    const bool takes_more = r->what == WHAT_NODE || r->what == WHAT_VOLUME;
    if (takes_more != (w->operand_count == 3))
        return error_set(err, -EINVAL, "dump: usage: ashlar dump POOL %s%s", w->operands[1],
                         r->what == WHAT_NODE     ? " ADDRESS"
                         : r->what == WHAT_VOLUME ? " NAME"
                                                  : "");
    r->name = w->operands[2];
    return r->what == WHAT_NODE ? check_number_parse(r->name, "ADDRESS", &r->address, err) : 0;
}

static int show(struct dump *d, const struct request *r, struct error *err)
{
    int result = 0;
    if (r->what == WHAT_ALL || r->what == WHAT_LABEL)
        result = dump_labels(d, err);
    if (result == 0 && (r->what == WHAT_ALL || r->what == WHAT_SLOTS))
        result = dump_slots(d, err);
    if (result == 0 && (r->what == WHAT_ALL || r->what == WHAT_CATALOG))
        result = dump_catalog(d, err);
    if (result == 0 && r->what == WHAT_CHUNKS)
        result = dump_chunks(d, err);
    if (result == 0 && r->what == WHAT_NODE)
        result = dump_node(d, r->address, err);
    if (result == 0 && r->what == WHAT_VOLUME)
        result = dump_volume(d, r->name, err);
    return result;
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

static int run(const char *path, const struct request *r)
{
    struct error err = {0};
    struct device *dev = NULL;
    struct inspection ins;
    const struct check_options options = {.quick = true};
    struct check_report *report = check_report_new();
    bool served;
    if (report == NULL || check_open_for_reading(path, &dev, &served, &err) != 0) {
        check_report_free(report);
        return check_fail(r->json, CHECK_EXIT_UNABLE, &err);
    }
    int status = CHECK_EXIT_UNABLE;
    struct dump d = {.ins = &ins, .json = r->json};
    int result = inspection_open(&ins, dev, &options, report, &err);
    if (result == 0 && ins.label.sequence != 0)
        result = check_load_table(&ins, &err);
    if (result == 0 && ins.label.sequence != 0)
        result = check_load_catalog(&ins, &err);
    if (result == 0) {
        status = CHECK_EXIT_DAMAGE;
        dump_begin(&d);
        if (ins.label.sequence != 0)
            result = show(&d, r, &err);
        else
            result = dump_labels(&d, &err);
        dump_end(&d);
        if (d.failed)
            result = error_set(&err, -ENOMEM, "out of memory, or the output could not be written");
    }
    inspection_close(&ins);
    device_close(dev);
    print_problems(report);
    const bool clean = check_report_is_clean(report);
    check_report_free(report);
    if (result != 0)
        return check_fail(false, status, &err);
    return clean ? CHECK_EXIT_CLEAN : CHECK_EXIT_DAMAGE;
}

int dump_main(int argc, char **argv)
{
    struct request r = {.what = WHAT_ALL};
    struct check_words words;
    struct error err = {0};
    const struct check_flag flags[] = {{"json", &r.json, NULL}, {0}};
    int result = check_words_parse(argc, argv, flags, &words, &err);
    if (result == 0 && words.help) {
        fputs(usage, stdout);
        return CHECK_EXIT_CLEAN;
    }
    if (result == 0)
        result = parse(&words, &r, &err);
    return result == 0 ? run(words.operands[0], &r) : check_fail(r.json, CHECK_EXIT_USAGE, &err);
}
