/*
 * Values of the command line that several verbs take.
 */
#ifndef ASHLAR_CLI_ARGUMENT_H
#define ASHLAR_CLI_ARGUMENT_H

#include <jansson.h>
#include <stdint.h>

struct error;
struct invocation;

/* The size of a volume: a multiple of 512, not 0. `what` names it in errors. */
int argument_volume_size(const char *word, const char *what, uint64_t *ret_bytes, struct error *err);
/* A decimal number in [least, most]. */
int argument_number(const char *word, const char *what, uint64_t least, uint64_t most, uint64_t *ret_number,
                    struct error *err);
/*
 * -o name=value of a new volume as an object. The same checks that whoever has the pool makes again are made here,
 * where what they find is a mistake of the command line.
 */
int argument_volume_properties(const struct invocation *in, json_t **ret_properties, struct error *err);

#endif
