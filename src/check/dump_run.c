/*
 * What one `ashlar dump` asked for, shown.
 */
#include <errno.h>

#include "base/error.h"
#include "check/dump.h"

static int show(struct dump *d, const struct dump_request *r, struct error *err)
{
    int result = 0;
    if (r->what == DUMP_ALL || r->what == DUMP_LABEL)
        result = dump_labels(d, err);
    if (result == 0 && (r->what == DUMP_ALL || r->what == DUMP_SLOTS))
        result = dump_slots(d, err);
    if (result == 0 && (r->what == DUMP_ALL || r->what == DUMP_CATALOG))
        result = dump_catalog(d, err);
    if (result == 0 && r->what == DUMP_CHUNKS)
        result = dump_chunks(d, err);
    if (result == 0 && r->what == DUMP_NODE)
        result = dump_node(d, r->address, err);
    if (result == 0 && r->what == DUMP_VOLUME)
        result = dump_volume(d, r->name, err);
    return result;
}

int dump_run(struct device *dev, const struct dump_request *request, struct check_report **ret_report, bool *ret_begun,
             struct error *err)
{
    struct inspection ins;
    const struct check_options options = {.quick = true};
    struct check_report *report = check_report_new();
    *ret_begun = false;
    *ret_report = NULL;
    if (report == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory", dev->name);
    struct dump d = {.ins = &ins, .json = request->json};
    int result = inspection_open(&ins, dev, &options, report, err);
    if (result == 0 && ins.label.sequence != 0)
        result = check_load_table(&ins, err);
    if (result == 0 && ins.label.sequence != 0)
        result = check_load_catalog(&ins, err);
    if (result == 0) {
        *ret_begun = true;
        dump_begin(&d);
        if (ins.label.sequence != 0)
            result = show(&d, request, err);
        else
            result = dump_labels(&d, err);
        dump_end(&d);
        if (d.failed)
            result = error_set(err, -ENOMEM, "out of memory, or the output could not be written");
    }
    inspection_close(&ins);
    *ret_report = report;
    return result;
}
