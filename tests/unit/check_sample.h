/*
 * The image that tests of single problems begin with, and what they expect of it.
 */
#ifndef ASHLAR_TESTS_UNIT_CHECK_SAMPLE_H
#define ASHLAR_TESTS_UNIT_CHECK_SAMPLE_H

#include "check_expect.h"

/*
 * A volume of two map levels and one of one; three data segments, the first two closed. Records 0-9 of alpha are
 * compressed, beta's 0-9 are raw.
 */
static inline struct image *sample_with(void (*tamper)(struct image *, enum image_object, unsigned, void *))
{
    struct image *img = image_new();
    const unsigned a = image_volume(img, "alpha", 1000 * 4096, 4096), b = image_volume(img, "beta", 50 * 16384, 16384);
    img->tamper = tamper;
    for (unsigned i = 0; i < 10; i++)
        image_write(img, a, i, (int)i);
    image_write(img, a, 900, 9);
    image_patch(img, a, 3, 1, 2, 50);
    image_seal(img);
    for (unsigned i = 0; i < 10; i++) {
        image_write_codec(img, b, i, (int)i + 20, CODEC_OFF);
        if (i % 5 == 4)
            image_seal(img);
    }
    image_trim(img, a, 700, 10);
    image_seal(img);
    image_checkpoint(img);
    return img;
}

#define EXPECT_TAMPERED(tamper, ...)                   \
    do {                                               \
        struct image *tampered_ = sample_with(tamper); \
        EXPECT_PROBLEMS(tampered_, __VA_ARGS__);       \
        image_free(tampered_);                         \
    } while (0)

/* At least this problem: what is made here is so wrong that other things are as well. */
static inline void expect_found(struct image *img, enum check_problem_id id)
{
    struct check_report *report = check_image(img, NULL);
    REQUIRE(report != NULL);
    EXPECT(check_report_count_of(report, id) > 0);
    if (check_report_count_of(report, id) == 0)
        print_report(report);
    check_report_free(report);
}

#endif
