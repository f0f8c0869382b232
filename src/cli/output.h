/*
 * What the command prints: results on standard output as text or JSON, errors on standard error, tables.
 */
#ifndef ASHLAR_CLI_OUTPUT_H
#define ASHLAR_CLI_OUTPUT_H

#include <jansson.h>
#include <stdint.h>

struct error;
struct invocation;

/* Prints "ashlar: text" to standard error, and with --json {"error": ...} to standard output. Returns status. */
int output_error(const struct invocation *in, const struct error *err, int status);
/* Prints a result as JSON. */
void output_json(const json_t *result);

/* Accessors for results: 0, "" or an empty value where the server sent nothing of that name and kind. */
uint64_t output_u64(const json_t *object, const char *name);
double output_real(const json_t *object, const char *name);
const char *output_text(const json_t *object, const char *name);
/* A size as a person reads it, in one of a few buffers of the caller's. */
char *output_size(const json_t *object, const char *name, char buf[16]);

/* A table: cells are added row by row, the first row is the heading; printed with columns as wide as they need. Numbers
 * (cells that begin with a digit) stand to the right. */
struct table {
    unsigned columns;
    char **cells;
    unsigned count, room;
};
void table_add(struct table *t, const char *cell);
void table_print(struct table *t); /* and frees it */

#endif
