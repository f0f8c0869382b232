/*
 * What the two commands of this floor share: words of the command line, errors, opening a pool that may be served.
 */
#ifndef ASHLAR_CHECK_COMMAND_H
#define ASHLAR_CHECK_COMMAND_H

#include <stdbool.h>

#include "env/device.h"

struct error;

enum check_exit {
    CHECK_EXIT_CLEAN = 0,
    CHECK_EXIT_DAMAGE = 1,
    CHECK_EXIT_USAGE = 2,
    CHECK_EXIT_UNABLE = 3, /* could not be checked */
};

/* An option without a value ("--quick"), or with one ("--label 7", "--label=7"). */
struct check_flag {
    const char *name;
    bool *is_set;
    const char **value; /* NULL: takes none */
};

#define CHECK_OPERANDS_MAX 3

struct check_words {
    const char *operands[CHECK_OPERANDS_MAX];
    unsigned operand_count;
    bool help;
};

/* Takes options and operands apart; flags end with a NULL name. 0, or -EINVAL with text. */
int check_words_parse(int argc, char **argv, const struct check_flag *flags, struct check_words *ret_words,
                      struct error *err);
/* A decimal number without sign. -EINVAL with text that names `what`. */
int check_number_parse(const char *word, const char *what, uint64_t *ret_number, struct error *err);

/* Opens the pool's file for reading, sharing it with its server if it is served: *ret_served. Errors of device_open. */
int check_open_for_reading(const char *path, struct device **ret_dev, bool *ret_served, struct error *err);

/* Prints "ashlar: text" to standard error, with json also {"error": text} to standard output; returns status. */
int check_fail(bool json, int status, const struct error *err);

#endif
