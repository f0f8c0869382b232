/*
 * ashlar get POOL [VOLUME|.] [PROPERTY...]: properties of a volume or of the pool.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "front/control/property.h"

enum { FIRST_PROPERTY = 2 }; /* index of the operand */

static enum property_owner owner_of(const struct invocation *in)
{
    const char *target = invocation_operand(in, 1);
    return target == NULL || strcmp(target, ".") == 0 ? PROPERTY_OF_POOL : PROPERTY_OF_VOLUME;
}

static void print_properties(const struct invocation *in, const json_t *result)
{
    const json_t *properties = json_object_get(result, "properties");
    char buf[256];
    if (in->operand_count == FIRST_PROPERTY + 1) { /* one value, for scripts */
        const struct property *p;
        if (property_find(owner_of(in), in->operands[FIRST_PROPERTY], &p, NULL) == 0)
            printf("%s\n", property_value_format(p->kind, json_object_get(properties, p->name), buf, sizeof(buf)));
        return;
    }
    for (const struct property *p = property_table(owner_of(in)); p->name != NULL; p++) {
        bool wanted = in->operand_count <= FIRST_PROPERTY;
        for (unsigned i = FIRST_PROPERTY; i < in->operand_count; i++)
            wanted = wanted || strcmp(in->operands[i], p->name) == 0;
        if (wanted)
            printf("%-20s %s\n", p->name,
                   property_value_format(p->kind, json_object_get(properties, p->name), buf, sizeof(buf)));
    }
}

/* Leaves in the result only what was asked for. */
static void select_properties(const struct invocation *in, json_t *result)
{
    json_t *all = json_object_get(result, "properties");
    json_t *wanted = json_object();
    for (unsigned i = FIRST_PROPERTY; i < in->operand_count; i++)
        (void)json_object_set(wanted, in->operands[i], json_object_get(all, in->operands[i]));
    (void)json_object_set_new(result, "properties", wanted);
}

static int run_get(struct invocation *in)
{
    struct error err = {0};
    const struct property *p;
    for (unsigned i = FIRST_PROPERTY; i < in->operand_count; i++)
        if (property_find(owner_of(in), in->operands[i], &p, &err) < 0)
            return output_error(in, &err, EXIT_USAGE);
    json_t *arguments = owner_of(in) == PROPERTY_OF_VOLUME ? json_pack("{s:s}", "volume", in->operands[1]) : NULL;
    json_t *result;
    if (session_run(in, in->operands[0], "get", arguments, -1, NULL, &result, &err) < 0)
        return output_error(in, &err, EXIT_FAILED);
    if (in->json && in->operand_count > FIRST_PROPERTY)
        select_properties(in, result);
    if (in->json)
        output_json(result);
    else
        print_properties(in, result);
    json_decref(result);
    return EXIT_DONE;
}

const struct verb verb_get = {
    .name = "get",
    .operands = "POOL [VOLUME|.] [PROPERTY...]",
    .summary = "properties of a volume, or of the pool itself",
    .details = "Without VOLUME, or with a dot in its place, those of the pool. One PROPERTY prints its value alone.\n"
               "--json gives sizes in bytes. ashlar(1) lists the properties.",
    .operand_count_min = 1,
    .operand_count_max = OPERANDS_MAX,
    .run = run_get,
};
