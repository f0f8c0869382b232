/*
 * Errors, option structs and info structs at the public boundary.
 *
 * Inside, corruption is -EBADMSG; a caller sees it as -EIO, as from a disk, except where a pool cannot be opened at
 * all.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "library/library.h"

_Static_assert(sizeof(struct ashlar_error) == 512, "struct ashlar_error is part of the ABI");

int library_error(struct ashlar_error *error, const struct error *src)
{
    if (error != NULL) {
        error->code = src->code;
        size_t length = strnlen(src->text, sizeof(error->text) - 1);
        memcpy(error->text, src->text, length);
        error->text[length] = '\0';
    }
    return src->code;
}

int library_fail(struct ashlar_error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof(error->text), format, args);
        va_end(args);
        error->code = code;
    }
    return code;
}

int library_check_flags(const char *call, unsigned flags, unsigned allowed, struct error *err)
{
    if ((flags & ~allowed) == 0)
        return 0;
    return error_set(err, -EINVAL, "%s: unknown flags 0x%x (it knows 0x%x)", call, flags & ~allowed, allowed);
}

int library_take_options(const char *call, const void *options, void *ret_options, size_t bytes, struct error *err)
{
    memset(ret_options, 0, bytes);
    if (options == NULL)
        return 0;
    size_t theirs;
    memcpy(&theirs, options, sizeof(theirs));
    if (theirs < sizeof(size_t) || theirs > 4096)
        return error_set(err, -EINVAL, "%s: options: struct_bytes is %zu; set it to sizeof the struct", call, theirs);
    const unsigned char *tail = options;
    for (size_t i = bytes; i < theirs; i++)
        if (tail[i] != 0)
            return error_set(err, -EINVAL,
                             "%s: options: byte %zu is set, of a field that library version %s does not know", call, i,
                             ashlar_version_text());
    memcpy(ret_options, options, min_u64(theirs, bytes));
    return 0;
}

int library_give_info(void *ret_info, void *ours, size_t bytes)
{
    size_t theirs;
    if (ret_info == NULL)
        return -EINVAL;
    memcpy(&theirs, ret_info, sizeof(theirs));
    if (theirs < sizeof(size_t) || theirs > 4096)
        return -EINVAL;
    memcpy(ours, &theirs, sizeof(theirs));
    memcpy(ret_info, ours, min_u64(theirs, bytes));
    if (theirs > bytes)
        memset((char *)ret_info + bytes, 0, theirs - bytes);
    return 0;
}

unsigned ashlar_version(void)
{
    return ASHLAR_VERSION;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *ashlar_version_text(void)
{
    return TEXT(ASHLAR_VERSION_MAJOR) "." TEXT(ASHLAR_VERSION_MINOR) "." TEXT(ASHLAR_VERSION_PATCH);
}
