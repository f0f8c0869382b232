/*
 * The inside of a report: what the checker fills in.
 */
#ifndef ASHLAR_CHECK_REPORT_H
#define ASHLAR_CHECK_REPORT_H

#include "check/check.h"

struct check_report {
    struct check_problem *problems;
    size_t problem_count, problem_capacity; /* listed */
    uint64_t counts[CHECK_PROBLEM_COUNT];   /* listed or not */
    struct check_repair *repairs;
    size_t repair_count, repair_capacity;
    struct check_summary summary;
};

/* NULL: no memory. */
struct check_report *check_report_new(void);
/* Adds a copy of the problem. Running out of memory only shortens the list: the count stays right. */
void check_report_add(struct check_report *report, const struct check_problem *problem);
void check_report_add_repair(struct check_report *report, const struct check_repair *repair);

#endif
