/*
 * ashlar check and ashlar dump: programs of their own that share only the format with the engine, and read their
 * command line themselves.
 */
#include "check/check.h"

#include "cli/verb.h"

const struct verb verb_check = {
    .name = "check",
    .summary = "counts everything in a pool independently; finds and mends damage",
    .run_raw = check_main,
};

const struct verb verb_dump = {
    .name = "dump",
    .summary = "shows what lies in a pool: labels, log, maps",
    .run_raw = dump_main,
};
