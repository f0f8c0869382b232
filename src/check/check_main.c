/*
 * `ashlar check POOL`.
 *
 * A pool that is served may be checked, too: it is read beside its server, without a lock. What the checker sees then
 * changes under its eyes; so damage counts only if two looks one after the other, by the same label, find the same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "check/check.h"
#include "check/command.h"

#define LOOKS_AT_SERVED_MAX 6
#define SECOND_NS UINT64_C(1000000000)

static const char usage[] =
    "usage: ashlar check POOL [--quick | --all] [--repair] [--label NUMBER] [--json]\n\n"
    "Reads a pool from its bytes alone, without the engine, and recounts everything: labels, the\n"
    "chain of the log, every chunk, map and record, the accounts of volumes and slots.\n\n"
    "  --quick          metadata only: the records themselves are not read\n"
    "  --all            also what is stored and no longer referred to\n"
    "  --repair         write back what an intact copy, or the log, still knows; not while served\n"
    "  --label NUMBER   as if all newer labels were lost\n"
    "  --json           print one JSON object instead of text\n\n"
    "Exit status: 0 clean, 1 damage found, 2 the command line is wrong, 3 could not be checked.\n"
    "See ashlar-check(8).\n";

/* A line on a terminal, for what takes over a second. */
struct bar {
    uint64_t started_ns, drawn_ns;
    bool terminal, drawn;
};

static void bar_draw(void *arg, unsigned per_mille)
{
    struct bar *bar = arg;
    const uint64_t now_ns = env_now_ns(env_os());
    if (!bar->terminal || now_ns - bar->started_ns < SECOND_NS || now_ns - bar->drawn_ns < SECOND_NS / 5)
        return;
    bar->drawn = true;
    bar->drawn_ns = now_ns;
    fprintf(stderr, "\rcheck %3u%%\033[K", per_mille / 10);
}

static void bar_clear(struct bar *bar)
{
    if (bar->drawn)
        fputs("\r\033[K", stderr);
    bar->drawn = false;
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

static int check_served(struct device *dev, const struct check_options *options, struct check_report **ret_report,
                        struct error *err)
{
    struct check_report *before = NULL;
    for (int look = 0; look < LOOKS_AT_SERVED_MAX; look++) {
        struct check_report *report = NULL;
        const int result = check_run(dev, options, &report, err);
        const bool settled =
            result != 0 || check_report_is_clean(report) || (before != NULL && reports_agree(before, report));
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

static int run(const char *path, struct check_options *options, bool json)
{
    struct error err = {0};
    struct device *dev = NULL;
    struct check_report *report = NULL;
    struct bar bar = {.started_ns = env_now_ns(env_os()), .terminal = isatty(STDERR_FILENO) != 0};
    bool served = false;
    int result;
    options->progress = bar_draw;
    options->progress_arg = &bar;
    if (options->repair)
        result = device_open(env_os(), path, 0, 0, &dev, &err);
    else
        result = check_open_for_reading(path, &dev, &served, &err);
    if (result == 0)
        result = served ? check_served(dev, options, &report, &err) : check_run(dev, options, &report, &err);
    bar_clear(&bar);
    device_close(dev);
    if (result != 0)
        return check_fail(json, CHECK_EXIT_UNABLE, &err);
    const int status = check_report_is_clean(report) ? CHECK_EXIT_CLEAN : CHECK_EXIT_DAMAGE;
    print_report(report, json);
    check_report_free(report);
    return status;
}

int check_main(int argc, char **argv)
{
    struct check_options options = {0};
    struct check_words words;
    struct error err = {0};
    const char *label = NULL;
    bool json = false, has_label = false;
    const struct check_flag flags[] = {
        {"quick", &options.quick, NULL}, {"all", &options.all, NULL}, {"repair", &options.repair, NULL},
        {"label", &has_label, &label},   {"json", &json, NULL},       {0}};
    int result = check_words_parse(argc, argv, flags, &words, &err);
    if (result == 0 && words.help) {
        fputs(usage, stdout);
        return CHECK_EXIT_CLEAN;
    }
    if (result == 0 && words.operand_count != 1)
        result = error_set(&err, -EINVAL, "check: one pool is needed; usage: ashlar check POOL");
    if (result == 0 && options.quick && options.all)
        result = error_set(&err, -EINVAL, "check: --quick and --all cannot go together");
    if (result == 0 && options.repair && has_label)
        result = error_set(&err, -EINVAL, "check: --repair and --label cannot go together");
    if (result == 0 && has_label)
        result = check_number_parse(label, "--label", &options.label_sequence, &err);
    if (result != 0)
        return check_fail(json, CHECK_EXIT_USAGE, &err);
    return run(words.operands[0], &options, json);
}
