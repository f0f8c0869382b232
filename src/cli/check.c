/*
 * ashlar check: a program of its own that shares only the format with the engine, and reads its command line itself.
 */
#include "check/check.h"

#include "cli/verb.h"

const struct verb verb_check = {
    .name = "check",
    .summary = "counts everything in a pool independently; finds and mends damage",
    .run_raw = check_main,
};
