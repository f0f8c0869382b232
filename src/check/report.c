/*
 * Reports: a bounded list of problems, exact counts of all of them, and the two ways of printing them.
 */
#include "check/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct check_report *check_report_new(void)
{
    return calloc(1, sizeof(struct check_report));
}

void check_report_free(struct check_report *report)
{
    if (report == NULL)
        return;
    free(report->problems);
    free(report->repairs);
    free(report);
}

/* Makes room for one more element; false if there is none to be had. */
static bool make_room(void **array, size_t *capacity, size_t count, size_t element_bytes)
{
    if (count < *capacity)
        return true;
    const size_t grown = *capacity == 0 ? 16 : *capacity * 2;
    void *bigger = reallocarray(*array, grown, element_bytes);
    if (bigger == NULL)
        return false;
    *array = bigger;
    *capacity = grown;
    return true;
}

void check_report_add(struct check_report *report, const struct check_problem *problem)
{
    CHECK_LT(problem->id, CHECK_PROBLEM_COUNT);
    report->counts[problem->id]++;
    if (report->problem_count >= CHECK_PROBLEMS_LISTED_MAX)
        return;
    void *array = report->problems;
    if (!make_room(&array, &report->problem_capacity, report->problem_count, sizeof(*problem)))
        return;
    report->problems = array;
    report->problems[report->problem_count++] = *problem;
}

void check_report_add_repair(struct check_report *report, const struct check_repair *repair)
{
    void *array = report->repairs;
    if (!make_room(&array, &report->repair_capacity, report->repair_count, sizeof(*repair)))
        return;
    report->repairs = array;
    report->repairs[report->repair_count++] = *repair;
}

uint64_t check_report_count(const struct check_report *report, enum check_severity severity)
{
    uint64_t sum = 0;
    for (unsigned id = 0; id < CHECK_PROBLEM_COUNT; id++)
        if (check_problem_severity((enum check_problem_id)id) == severity)
            sum += report->counts[id];
    return sum;
}

uint64_t check_report_count_of(const struct check_report *report, enum check_problem_id id)
{
    CHECK_LT(id, CHECK_PROBLEM_COUNT);
    return report->counts[id];
}

bool check_report_is_clean(const struct check_report *report)
{
    return check_report_count(report, CHECK_WRONG) == 0 && check_report_count(report, CHECK_LEAK) == 0;
}

const struct check_problem *check_report_problems(const struct check_report *report, size_t *ret_count)
{
    *ret_count = report->problem_count;
    return report->problems;
}

const struct check_repair *check_report_repairs(const struct check_report *report, size_t *ret_count)
{
    *ret_count = report->repair_count;
    return report->repairs;
}

const struct check_summary *check_report_summary(const struct check_report *report)
{
    return &report->summary;
}

static void print_problem(const struct check_problem *p, struct text *out)
{
    text_printf(out, "%s: %s: %s", check_severity_name(check_problem_severity(p->id)), check_problem_name(p->id),
                check_problem_text(p->id));
    if (p->volume[0] != '\0')
        text_printf(out, "; volume %s", p->volume);
    if (p->length_bytes != 0)
        text_printf(out, " bytes %" PRIu64 "-%" PRIu64, p->offset_bytes, p->offset_bytes + (p->length_bytes - 1));
    if (p->device_offset_bytes != CHECK_NOWHERE)
        text_printf(out, "; device offset %" PRIu64, p->device_offset_bytes);
    if (p->address != CHECK_NOWHERE)
        text_printf(out, "; log address %" PRIu64, p->address);
    if (p->detail[0] != '\0')
        text_printf(out, "; %s", p->detail);
    text_printf(out, "\n");
}

static void print_counts(const struct check_report *report, struct text *out)
{
    const struct check_summary *s = &report->summary;
    char stored[16], tail[16], read[16];
    text_printf(out,
                "label %" PRIu64 ", checkpoint %" PRIu64 "%s: %" PRIu64 " volumes, %" PRIu64 " map nodes, %" PRIu64
                " records, %" PRIu64 " patches, %s stored\n",
                s->label_sequence, s->checkpoint, s->clean ? ", closed cleanly" : "", s->volumes, s->nodes, s->records,
                s->patches, size_format(s->stored_bytes, stored, sizeof(stored)));
    text_printf(out,
                "log behind the checkpoint: %" PRIu64 " chunks, %" PRIu64 " entries, %s%s; slots: %" PRIu64
                " in use, %" PRIu64 " free, %" PRIu64 " in quarantine; %s read\n",
                s->replay_chunks, s->replay_entries, size_format(s->replay_bytes, tail, sizeof(tail)),
                s->skipped_entries != 0 ? " (some of unknown branches)" : "", s->slots_used, s->slots_free,
                s->slots_quarantine, size_format(s->read_bytes, read, sizeof(read)));
}

void check_report_print(const struct check_report *report, struct text *out)
{
    uint64_t total = 0;
    for (unsigned id = 0; id < CHECK_PROBLEM_COUNT; id++)
        total += report->counts[id];
    for (size_t i = 0; i < report->problem_count; i++)
        print_problem(&report->problems[i], out);
    if (total > report->problem_count)
        text_printf(out, "and %" PRIu64 " more that are not listed\n", total - report->problem_count);
    for (size_t i = 0; i < report->repair_count; i++)
        text_printf(out, "repaired: device offset %" PRIu64 ", %" PRIu64 " bytes: %s\n",
                    report->repairs[i].device_offset_bytes, report->repairs[i].length_bytes, report->repairs[i].what);
    print_counts(report, out);
    if (total == 0) {
        text_printf(out, "clean\n");
        return;
    }
    text_printf(out, "%s: %" PRIu64 " wrong, %" PRIu64 " suspicious, %" PRIu64 " leaks\n",
                check_report_is_clean(report) ? "clean" : "damaged", check_report_count(report, CHECK_WRONG),
                check_report_count(report, CHECK_SUSPICIOUS), check_report_count(report, CHECK_LEAK));
}
