/*
 * Filling in a struct error. The first error wins: what went wrong first is the cause, what follows is the consequence.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Error texts quote names and paths that other people chose: a control character in one may not break the line or
 * steer a terminal. */
static void text_make_one_line(char *text)
{
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

int error_set(struct error *err, int code, const char *format, ...)
{
    if (err == NULL || err->code != 0)
        return code;
    err->code = code;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    if (length < 0)
        (void)snprintf(err->text, sizeof(err->text), "error %d (its text could not be formatted)", code);
    else if ((size_t)length >= sizeof(err->text))
        memcpy(err->text + sizeof(err->text) - 4, "...", 4);
    text_make_one_line(err->text);
    return code;
}
