/*
 * The table of problem kinds, as data.
 */
#include "check/problem.h"

#include "base/check.h"

static const struct {
    const char *name;
    const char *text;
    enum check_severity severity;
} problems[CHECK_PROBLEM_COUNT] = {
#define CHECK_PROBLEM_ROW(name, id, severity, text) {id, text, CHECK_##severity},
    CHECK_PROBLEMS(CHECK_PROBLEM_ROW)
#undef CHECK_PROBLEM_ROW
};

const char *check_problem_name(enum check_problem_id id)
{
    CHECK_LT(id, CHECK_PROBLEM_COUNT);
    return problems[id].name;
}

const char *check_problem_text(enum check_problem_id id)
{
    CHECK_LT(id, CHECK_PROBLEM_COUNT);
    return problems[id].text;
}

enum check_severity check_problem_severity(enum check_problem_id id)
{
    CHECK_LT(id, CHECK_PROBLEM_COUNT);
    return problems[id].severity;
}

const char *check_severity_name(enum check_severity severity)
{
    static const char *const names[CHECK_SEVERITY_COUNT] = {"wrong", "suspicious", "leak"};
    CHECK_LT(severity, CHECK_SEVERITY_COUNT);
    return names[severity];
}
