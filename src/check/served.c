/*
 * Looking at a pool that may be open elsewhere.
 *
 * A pool that is served may be checked, too: it is read beside its server, without a lock. What the checker sees then
 * changes under its eyes; so damage counts only if two looks one after the other, by the same label, find the same.
 */
#include <errno.h>

#include "base/error.h"
#include "check/check.h"
#include "env/device.h"

#define LOOKS_AT_SERVED_MAX 6

int check_open_for_reading(struct env *env, const char *path, struct device **ret_dev, bool *ret_served,
                           struct error *err)
{
    struct error locked = {0};
    *ret_served = false;
    int result = device_open(env, path, DEVICE_OPEN_READ_ONLY, 0, ret_dev, &locked);
    if (result == -EBUSY) {
        *ret_served = true;
        result = device_open(env, path, DEVICE_OPEN_READ_ONLY | DEVICE_OPEN_NO_LOCK, 0, ret_dev, err);
    } else if (result != 0) {
        *err = locked;
    }
    return result;
}

/* true if both looks saw the same problems from the same label. */
static bool reports_agree(const struct check_report *a, const struct check_report *b)
{
    size_t count_a, count_b;
    const struct check_problem *x = check_report_problems(a, &count_a), *y = check_report_problems(b, &count_b);
    if (check_report_summary(a)->label_sequence != check_report_summary(b)->label_sequence || count_a != count_b)
        return false;
    for (size_t i = 0; i < count_a; i++)
        if (x[i].id != y[i].id || x[i].device_offset_bytes != y[i].device_offset_bytes || x[i].address != y[i].address)
            return false;
    return true;
}

int check_run_served(struct device *dev, const struct check_options *options, struct check_report **ret_report,
                     struct error *err)
{
    struct check_report *before = NULL;
    for (int look = 0; look < LOOKS_AT_SERVED_MAX; look++) {
        struct check_report *report = NULL;
        const int result = check_run(dev, options, &report, err);
        const bool settled = result == 0
                                 ? check_report_is_clean(report) || (before != NULL && reports_agree(before, report))
                                 : result != -ESTALE;
        check_report_free(before);
        before = report;
        if (settled) {
            *ret_report = report;
            return result;
        }
    }
    check_report_free(before);
    return error_set(err, -EAGAIN,
                     "%s is being served and changed faster than it can be checked: stop its server, or check again "
                     "when there is less to do",
                     dev->name);
}
