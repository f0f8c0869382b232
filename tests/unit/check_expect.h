/*
 * Running the checker on an image and saying what it must find.
 */
#ifndef ASHLAR_TESTS_UNIT_CHECK_EXPECT_H
#define ASHLAR_TESTS_UNIT_CHECK_EXPECT_H

#include "base/error.h"
#include "check/check.h"
#include "image_builder.h"
#include "tap.h"

/* The report on the image as it is; NULL (and a failed expectation) if it could not be checked. */
static inline struct check_report *check_image(struct image *img, const struct check_options *options)
{
    const struct check_options none = {0};
    struct check_report *report = NULL;
    struct error err = {0};
    const int result = check_run(image_device(img), options != NULL ? options : &none, &report, &err);
    EXPECT_EQ(result, 0);
    if (result != 0)
        printf("# check_run: %s\n", err.text);
    return report;
}

static inline void print_report(const struct check_report *report)
{
    struct text text = {0};
    check_report_print(report, &text);
    for (char *line = text.bytes, *end; line != NULL && *line != '\0'; line = end) {
        end = strchr(line, '\n');
        printf("#   %.*s\n", (int)(end - line), line);
        end++;
    }
    text_free(&text);
}

/* Exactly these problems, whatever their number; ids ends with CHECK_PROBLEM_COUNT. */
static inline bool report_has_only(const struct check_report *report, const enum check_problem_id *ids)
{
    bool as_expected = true;
    for (unsigned id = 0; id < CHECK_PROBLEM_COUNT; id++) {
        bool expected = false;
        for (const enum check_problem_id *e = ids; *e != CHECK_PROBLEM_COUNT; e++)
            expected |= *e == id;
        if ((check_report_count_of(report, (enum check_problem_id)id) != 0) == expected)
            continue;
        as_expected = false;
        printf("# %s %s\n", check_problem_name((enum check_problem_id)id), expected ? "was not found" : "was found");
    }
    if (!as_expected)
        print_report(report);
    return as_expected;
}

#define EXPECT_PROBLEMS_WITH(img, options, ...)                                                \
    do {                                                                                       \
        const enum check_problem_id ids_[] = {__VA_ARGS__ __VA_OPT__(, ) CHECK_PROBLEM_COUNT}; \
        struct check_report *report_ = check_image(img, options);                              \
        if (report_ != NULL)                                                                   \
            EXPECT(report_has_only(report_, ids_));                                            \
        check_report_free(report_);                                                            \
    } while (0)

/* Exactly the problems named. */
#define EXPECT_PROBLEMS(img, ...) EXPECT_PROBLEMS_WITH(img, NULL, __VA_ARGS__)

#endif
