/*
 * The command line behind a verb: options, operands, and the help made from the same table.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "front/control/nearest.h"

/* What every verb takes. */
static const struct option_spec common_options[] = {
    {"json", NULL, "print one JSON object instead of text"},
    {"timeout", "SECONDS", "how long a silent server is waited for (default 30)"},
    {"help", NULL, "print this"},
    {NULL},
};

enum { TIMEOUT_SECONDS_DEFAULT = 30, TIMEOUT_SECONDS_MAX = 86400 };

static const struct option_spec *spec_in(const struct option_spec *specs, const char *name, size_t length)
{
    for (; specs != NULL && specs->name != NULL; specs++)
        if (strlen(specs->name) == length && memcmp(specs->name, name, length) == 0)
            return specs;
    return NULL;
}

static int unknown_option(const struct verb *verb, const char *name, size_t length, struct error *err)
{
    const char *names[OPTIONS_MAX];
    char word[64], hint[96];
    size_t count = 0;
    for (const struct option_spec *s = verb->options; s != NULL && s->name != NULL; s++)
        names[count++] = s->name;
    for (const struct option_spec *s = common_options; s->name != NULL; s++)
        names[count++] = s->name;
    snprintf(word, sizeof(word), "%.*s", (int)length, name);
    const char *nearest = nearest_name(word, names, count);
    if (nearest != NULL)
        snprintf(hint, sizeof(hint), "; did you mean --%s?", nearest);
    else
        snprintf(hint, sizeof(hint), "; see: ashlar help %s", verb->name);
    return error_set(err, -EINVAL, "%s has no option --%s%s", verb->name, word, hint);
}

static int timeout_parse(struct invocation *in, const char *value, struct error *err)
{
    unsigned seconds = 0;
    for (const char *c = value; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || seconds > TIMEOUT_SECONDS_MAX)
            return error_set(err, -EINVAL, "--timeout '%.32s': whole seconds from 1 to %d", value, TIMEOUT_SECONDS_MAX);
        seconds = seconds * 10 + (unsigned)(*c - '0');
    }
    if (seconds == 0 || seconds > TIMEOUT_SECONDS_MAX)
        return error_set(err, -EINVAL, "--timeout '%.32s': whole seconds from 1 to %d", value, TIMEOUT_SECONDS_MAX);
    in->timeout_seconds = seconds;
    return 0;
}

static int option_take(struct invocation *in, const struct option_spec *spec, const char *value, struct error *err)
{
    if (strcmp(spec->name, "json") == 0) {
        in->json = true;
        return 0;
    }
    if (strcmp(spec->name, "help") == 0)
        return 1;
    if (strcmp(spec->name, "timeout") == 0)
        return timeout_parse(in, value, err);
    if (in->option_count == OPTIONS_MAX)
        return error_set(err, -EINVAL, "%s: more than %d options", in->verb->name, OPTIONS_MAX);
    in->options[in->option_count].spec = spec;
    in->options[in->option_count++].value = value;
    return 0;
}

/* Reads the option at argv[*at]; *at is left on the last word it used. */
static int option_parse(struct invocation *in, int argc, char **argv, int *at, struct error *err)
{
    const char *word = argv[*at];
    bool is_short = word[1] != '-';
    const char *name = word + (is_short ? 1 : 2);
    const char *equals = is_short ? NULL : strchr(name, '=');
    /* -o name=value and -oname=value; there is no other short option. */
    size_t length = is_short ? 1 : equals != NULL ? (size_t)(equals - name) : strlen(name);
    const char *value = is_short && name[1] != '\0' ? name + 1 : equals != NULL ? equals + 1 : NULL;
    const struct option_spec *spec = spec_in(in->verb->options, name, length);
    if (spec == NULL && !is_short)
        spec = spec_in(common_options, name, length);
    if (spec == NULL && strcmp(word, "-h") == 0)
        return 1;
    if (spec == NULL && is_short)
        return error_set(err, -EINVAL, "%s has no option %.32s; see: ashlar help %s", in->verb->name, word,
                         in->verb->name);
    if (spec == NULL)
        return unknown_option(in->verb, name, length, err);
    if (spec->value == NULL && value != NULL)
        return error_set(err, -EINVAL, "option --%s takes no value", spec->name);
    if (spec->value != NULL && value == NULL) {
        if (*at + 1 >= argc)
            return error_set(err, -EINVAL, "option %s%s needs a value: %s", is_short ? "-" : "--", spec->name,
                             spec->value);
        value = argv[++*at];
    }
    return option_take(in, spec, value, err);
}

static int operands_check(const struct invocation *in, struct error *err)
{
    const struct verb *v = in->verb;
    if (in->operand_count < v->operand_count_min)
        return error_set(err, -EINVAL, "%s: something is missing; usage: ashlar %s %s", v->name, v->name, v->operands);
    if (in->operand_count > v->operand_count_max)
        return error_set(err, -EINVAL, "%s: '%.64s' is one word too many; usage: ashlar %s %s", v->name,
                         in->operands[v->operand_count_max], v->name, v->operands);
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9'; /* -1 is a value that somebody got wrong, not an option */
}

/* Reads the words behind the verb. 0; -EINVAL with text; 1: --help was there. */
static int invocation_parse(struct invocation *in, const struct verb *verb, int argc, char **argv, struct error *err)
{
    *in = (struct invocation){.verb = verb, .timeout_seconds = TIMEOUT_SECONDS_DEFAULT};
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!options_ended && strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && word[0] == '-' && word[1] != '\0' && !is_digit(word[1])) {
            int r = option_parse(in, argc, argv, &i, err);
            if (r != 0)
                return r;
        } else if (in->operand_count == OPERANDS_MAX) {
            return error_set(err, -EINVAL, "%s: more than %d words", verb->name, OPERANDS_MAX);
        } else {
            in->operands[in->operand_count++] = word;
        }
    }
    return operands_check(in, err);
}

const char *invocation_next(const struct invocation *in, const char *name, unsigned *cursor)
{
    while (*cursor < in->option_count) {
        unsigned i = (*cursor)++;
        if (strcmp(in->options[i].spec->name, name) == 0)
            return in->options[i].value != NULL ? in->options[i].value : "";
    }
    return NULL;
}

bool invocation_flag(const struct invocation *in, const char *name)
{
    unsigned cursor = 0;
    return invocation_next(in, name, &cursor) != NULL;
}

const char *invocation_value(const struct invocation *in, const char *name)
{
    const char *last = NULL, *value;
    unsigned cursor = 0;
    while ((value = invocation_next(in, name, &cursor)) != NULL)
        last = value;
    return last;
}

const char *invocation_operand(const struct invocation *in, unsigned index)
{
    return index < in->operand_count ? in->operands[index] : NULL;
}

int invocation_properties(const struct invocation *in, json_t **ret_properties, struct error *err)
{
    json_t *properties = json_object();
    const char *option;
    unsigned cursor = 0;
    int r = properties != NULL ? 0 : error_set(err, -ENOMEM, "no memory");
    while (r == 0 && (option = invocation_next(in, "o", &cursor)) != NULL) {
        const char *equals = strchr(option, '=');
        char name[64];
        if (equals == NULL || equals == option || (size_t)(equals - option) >= sizeof(name)) {
            r = error_set(err, -EINVAL, "-o '%.64s': it must be name=value", option);
            break;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(equals - option), option);
        if (json_object_get(properties, name) != NULL)
            r = error_set(err, -EINVAL, "-o %s is given twice", name);
        else if (json_object_set_new(properties, name, json_string(equals + 1)) < 0)
            r = error_set(err, -EINVAL, "-o %s: the value is not UTF-8", name);
    }
    if (r < 0)
        json_decref(properties);
    else
        *ret_properties = properties;
    return r;
}

static void print_options(const struct option_spec *specs)
{
    for (; specs != NULL && specs->name != NULL; specs++) {
        char left[64];
        const char *dashes = specs->name[1] == '\0' ? "-" : "--";
        snprintf(left, sizeof(left), "%s%s%s%s", dashes, specs->name, specs->value != NULL ? " " : "",
                 specs->value != NULL ? specs->value : "");
        printf("  %-26s %s\n", left, specs->meaning);
    }
}

void verb_print_help(const struct verb *verb)
{
    printf("usage: ashlar %s %s\n\n%s.\n", verb->name, verb->operands, verb->summary);
    if (verb->details != NULL)
        printf("\n%s\n", verb->details);
    printf("\n");
    print_options(verb->options);
    print_options(common_options);
}

int verb_run(const struct verb *verb, int argc, char **argv)
{
    struct invocation in;
    struct error err = {0};
    int r = invocation_parse(&in, verb, argc, argv, &err);
    if (r > 0) {
        verb_print_help(verb);
        return EXIT_DONE;
    }
    if (r < 0) {
        /* Whoever asked for JSON gets it, also if the mistake stood before --json. */
        for (int i = 0; i < argc; i++)
            in.json = in.json || strcmp(argv[i], "--json") == 0;
        return output_error(&in, &err, EXIT_USAGE);
    }
    return verb->run(&in);
}
