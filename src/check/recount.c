/*
 * When a map node is lost, the accounts go on counting what it held: they are the proof by which it may come back
 * (revive.c), and they keep the segments of what may be wanted yet. When then the range is written or trimmed, nobody
 * can tell what of the account belonged to it, and it stays too high: a segment of which nothing is live is never used
 * again. Once no lost range is left in any map and all of them can be read, the accounts are simply what the maps say.
 */
#include "check/recount.h"

#include <errno.h>

#include "base/error.h"
#include "check/rewrite.h"

static bool is_wrong(const struct inspection *ins)
{
    return check_report_count_of(ins->report, CHECK_PROBLEM_VOLUME_ACCOUNT_MISMATCH) != 0 ||
           check_report_count_of(ins->report, CHECK_PROBLEM_SLOT_LIVE_MISMATCH) != 0;
}

static bool all_was_counted(const struct inspection *ins)
{
    bool all = rewrite_allowed(ins) && !ins->incomplete && ins->lost.count == 0;
    for (size_t i = 0; i < ins->trees.count && all; i++)
        all = !ins->trees.list[i].incomplete && !ins->trees.list[i].skipped;
    return all;
}

int check_recount(struct inspection *ins, struct error *err)
{
    struct rewrite *w = NULL;
    if (!is_wrong(ins) || !all_was_counted(ins))
        return 0;
    int result = rewrite_begin(ins, &w);
    if (result == 0) {
        rewrite_accounts(w);
        result = rewrite_finish(w);
    }
    rewrite_free(w);
    return result == -ENOMEM ? error_set(err, result, "%s: out of memory counting accounts", ins->dev->name) : 0;
}
