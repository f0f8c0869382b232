/*
 * ashlar set POOL VOLUME PROPERTY=VALUE...
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "front/control/property.h"

enum { FIRST_PROPERTY = 2 };

static int take_properties(const struct invocation *in, json_t *properties, struct error *err)
{
    for (unsigned i = FIRST_PROPERTY; i < in->operand_count; i++) {
        const char *word = in->operands[i];
        const char *equals = strchr(word, '=');
        char name[64];
        if (equals == NULL || equals == word || (size_t)(equals - word) >= sizeof(name))
            return error_set(err, -EINVAL, "'%.64s': it must be property=value", word);
        snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
        struct property_changes changes = {0};
        int r = property_change_take(name, equals + 1, &changes, err);
        if (r < 0)
            return r;
        if (json_object_get(properties, name) != NULL)
            return error_set(err, -EINVAL, "%s is given twice", name);
        (void)json_object_set_new(properties, name, json_string(equals + 1));
    }
    return 0;
}

static void print_set(const struct invocation *in, const json_t *result)
{
    const json_t *properties = json_object_get(result, "properties");
    for (unsigned i = FIRST_PROPERTY; i < in->operand_count; i++) {
        const struct property *p;
        char name[64], buf[256];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(in->operands[i], "="), in->operands[i]);
        if (property_find(PROPERTY_OF_VOLUME, name, &p, NULL) == 0)
            printf("%s %s\n", name,
                   property_value_format(p->kind, json_object_get(properties, name), buf, sizeof(buf)));
    }
}

static int run_set(struct invocation *in)
{
    struct error err = {0};
    json_t *properties = json_object();
    const char *target = in->operands[1];
    if (strcmp(target, ".") == 0)
        error_set(&err, -EINVAL, "no property of a pool can be set once it is made");
    else
        (void)take_properties(in, properties, &err);
    if (err.code < 0) {
        json_decref(properties);
        return output_error(in, &err, EXIT_USAGE);
    }
    json_t *arguments = json_pack("{s:s, s:o, s:b}", "volume", target, "properties", properties, "force",
                                  (int)invocation_flag(in, "force"));
    return session_show(in, in->operands[0], "set", arguments, print_set);
}

static const struct option_spec set_options[] = {
    {"force", NULL, "shrink even though what lies behind is lost"},
    {NULL},
};

const struct verb verb_set = {
    .name = "set",
    .operands = "POOL VOLUME PROPERTY=VALUE...",
    .summary = "changes properties of a volume",
    .details = "compression=NAME   off, lz4, zstd, zstd-1 to zstd-19, zstd-fast-1 to zstd-fast-5; for new writes\n"
               "size=SIZE          the same as ashlar resize",
    .options = set_options,
    .operand_count_min = 3,
    .operand_count_max = OPERANDS_MAX,
    .run = run_set,
};
