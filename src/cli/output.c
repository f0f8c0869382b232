/*
 * Printing of results, errors and tables; the only place that decides how they look.
 */
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/verb.h"
#include "front/control/message.h"

int output_error(const struct invocation *in, const struct error *err, int status)
{
    fprintf(stderr, "ashlar: %s\n", err->text);
    if (in->json) {
        json_t *object = json_pack("{s:o}", "error", control_error_to_json(err));
        output_json(object);
        json_decref(object);
    }
    return status;
}

void output_json(const json_t *result)
{
    if (json_dumpf(result, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0)
        putchar('\n');
}

uint64_t output_u64(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

double output_real(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

const char *output_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

char *output_size(const json_t *object, const char *name, char buf[16])
{
    return size_format(output_u64(object, name), buf, 16);
}

void table_add(struct table *t, const char *cell)
{
    if (t->count == t->room) {
        t->room = t->room == 0 ? 64 : 2 * t->room;
        char **cells = realloc(t->cells, t->room * sizeof(*cells));
        CHECK(cells != NULL);
        t->cells = cells;
    }
    char *copy = strdup(cell);
    CHECK(copy != NULL);
    t->cells[t->count++] = copy;
}

static int is_number(const char *cell)
{
    return cell[0] >= '0' && cell[0] <= '9';
}

void table_print(struct table *t)
{
    size_t width[16] = {0};
    unsigned columns = t->columns;
    CHECK_GT(columns, 0);
    CHECK_LE(columns, sizeof(width) / sizeof(width[0]));
    CHECK_EQ(t->count % columns, 0);
    unsigned rows = t->count / columns;
    for (unsigned i = 0; i < t->count; i++)
        if (strlen(t->cells[i]) > width[i % columns])
            width[i % columns] = strlen(t->cells[i]);
    for (unsigned row = 0; row < rows; row++) {
        for (unsigned column = 0; column < columns; column++) {
            const char *cell = t->cells[row * columns + column];
            /* A heading stands as the first cell under it does. */
            const char *model = row == 0 && rows > 1 ? t->cells[columns + column] : cell;
            int left = column == 0 || !is_number(model);
            const char *gap = column == 0 ? "" : "  ";
            if (left && column + 1 == columns)
                printf("%s%s", gap, cell);
            else
                printf("%s%*s", gap, left ? -(int)width[column] : (int)width[column], cell);
        }
        putchar('\n');
    }
    for (unsigned i = 0; i < t->count; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){0};
}
