/*
 * The verbs of the command, and what a command line gives one.
 *
 *     ashlar VERB POOL [TARGET] [ARGUMENTS] [OPTIONS]
 *
 * Options may stand anywhere after the verb; `--` ends them. `--name VALUE` and `--name=VALUE` are the same. Exit
 * status: 0 done, 1 failed or damage found, 2 the command line is wrong.
 */
#ifndef ASHLAR_CLI_VERB_H
#define ASHLAR_CLI_VERB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct error;

enum exit_status {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
};

struct option_spec {
    const char *name;    /* without the dashes; "o" is the short one of properties, -o */
    const char *value;   /* what its value is called, NULL: it has none */
    const char *meaning; /* one line */
};

struct invocation;

struct verb {
    const char *name;
    const char *operands;              /* after the verb, for the usage line */
    const char *summary;               /* a few words */
    const char *details;               /* paragraphs for `ashlar help VERB` */
    const struct option_spec *options; /* ended by a NULL name; NULL: none but those that every verb has */
    unsigned operand_count_min, operand_count_max;
    int (*run)(struct invocation *in);
};

enum { OPERANDS_MAX = 64, OPTIONS_MAX = 64 };

struct invocation {
    const struct verb *verb;
    const char *operands[OPERANDS_MAX];
    unsigned operand_count;
    struct {
        const struct option_spec *spec;
        const char *value;
    } options[OPTIONS_MAX];
    unsigned option_count;
    bool json;
    unsigned timeout_seconds;
};

bool invocation_flag(const struct invocation *in, const char *name);
/* The last value given, or NULL. */
const char *invocation_value(const struct invocation *in, const char *name);
/* Values of a repeated option one after another; *cursor begins at 0. NULL at the end. */
const char *invocation_next(const struct invocation *in, const char *name, unsigned *cursor);
/* The operand of that index, NULL if there is none. */
const char *invocation_operand(const struct invocation *in, unsigned index);

/* Runs a verb with the words behind it: parses them, prints its help or the error in them, or does it. The exit
 * status. */
int verb_run(const struct verb *verb, int argc, char **argv);
/* Prints the verb's help to standard output. */
void verb_print_help(const struct verb *verb);

/* Puts the properties given by -o name=value into a new object (empty if there are none). -EINVAL: malformed, or given
 * twice. */
int invocation_properties(const struct invocation *in, json_t **ret_properties, struct error *err);

/* The verbs, one file each. */
extern const struct verb verb_check, verb_create, verb_destroy, verb_doctor, verb_dump, verb_export, verb_get,
    verb_import, verb_list, verb_rename, verb_resize, verb_serve, verb_set, verb_status, verb_stop;

#endif
