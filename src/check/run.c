/*
 * The order of a run, and the second look after a repair.
 */
#include "check/check.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "check/inspection.h"
#include "check/rebuild.h"
#include "check/recount.h"
#include "check/repair.h"

static void plan_progress(struct inspection *ins)
{
    for (uint32_t slot = 0; slot < ins->slot_count; slot++) {
        bool known;
        const uint8_t state = ins->slots[slot].table.state;
        if (state == SLOT_OPEN || state == SLOT_CLOSED)
            ins->progress_total += check_segment_limit(ins, slot, &known);
    }
}

static int look(struct inspection *ins, struct error *err)
{
    int result = check_load_table(ins, err);
    if (result == 0)
        result = check_load_catalog(ins, err);
    if (result == 0)
        result = check_replay(ins, err);
    plan_progress(ins);
    if (result == 0)
        result = check_maps(ins, err);
    if (result == 0)
        result = check_replay_supersede(ins, err);
    if (result != 0)
        return result;
    check_accounts(ins);
    check_report_halves(ins);
    check_report_damages(ins);
    if (ins->options.repair)
        result = check_rebuild(ins, err);
    if (result == 0 && ins->options.repair && !check_repair_planned(ins))
        result = check_recount(ins, err);
    return result;
}

/* One look at everything; then the repairs it planned, if any: *ret_repaired. */
static int run_once(struct device *dev, const struct check_options *options, struct check_report *report,
                    bool *ret_repaired, struct error *err)
{
    struct inspection ins;
    int result = inspection_open(&ins, dev, options, report, err);
    if (result == 0 && ins.label.sequence != 0)
        result = look(&ins, err);
    *ret_repaired = result == 0 && check_repair_planned(&ins);
    if (*ret_repaired)
        result = check_repair_apply(&ins, err);
    inspection_close(&ins);
    return result;
}

/* A lost inner node hides the lost nodes below it: two looks for each level (one for what is rebuilt in place, one for
 * what is written anew), one for the accounts, and one more that finds nothing to do. */
#define LOOKS_MAX (2 * MAP_LEVELS_MAX + 3)

/* A new report that goes on with the list of repairs of the last one, which is gone. */
static struct check_report *next_report(struct check_report *last)
{
    struct check_report *next = check_report_new();
    for (size_t i = 0; next != NULL && i < last->repair_count; i++)
        check_report_add_repair(next, &last->repairs[i]);
    check_report_free(last);
    return next;
}

int check_run(struct device *dev, const struct check_options *options, struct check_report **ret_report,
              struct error *err)
{
    *ret_report = NULL;
    if (options->repair && dev->info.is_read_only)
        return error_set(err, -EROFS, "%s is open for reading only: it cannot be repaired", dev->name);
    struct check_options now = *options;
    struct check_report *report = check_report_new();
    bool repaired = true;
    int result = 0;
    for (int look_number = 1; repaired && result == 0; look_number++) {
        if (look_number > 1)
            report = next_report(report);
        if (report == NULL)
            return error_set(err, -ENOMEM, "%s: out of memory", dev->name);
        now.repair = options->repair && look_number < LOOKS_MAX;
        result = run_once(dev, &now, report, &repaired, err);
    }
    if (result != 0) {
        check_report_free(report);
        return result;
    }
    *ret_report = report;
    return 0;
}
