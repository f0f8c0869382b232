/*
 * Numbers and sizes, checked before anybody is asked to do anything.
 */
#include "cli/argument.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "cli/verb.h"
#include "format/limits.h"
#include "front/control/property.h"
#include "pool/pool.h"

int argument_volume_size(const char *word, const char *what, uint64_t *ret_bytes, struct error *err)
{
    uint64_t bytes;
    int r = size_parse(word, what, &bytes, err);
    if (r < 0)
        return r;
    if (bytes == 0)
        return error_set(err, -EINVAL, "%s: a volume of 0 bytes is no volume", what);
    if (bytes % SECTOR_BYTES != 0)
        return error_set(err, -EINVAL, "%s: '%s' is no multiple of %d bytes; the next one is %" PRIu64, what, word,
                         SECTOR_BYTES, round_up(bytes, SECTOR_BYTES));
    if (bytes > VOLUME_BYTES_MAX)
        return error_set(err, -EINVAL, "%s: '%s' is too large; a volume has at most 4096P", what, word);
    *ret_bytes = bytes;
    return 0;
}

int argument_number(const char *word, const char *what, uint64_t least, uint64_t most, uint64_t *ret_number,
                    struct error *err)
{
    uint64_t number = 0;
    const char *c = word;
    for (; *c >= '0' && *c <= '9'; c++)
        if (!mul_fits(number, 10, &number) || !add_fits(number, (uint64_t)(*c - '0'), &number))
            break;
    if (c == word || *c != '\0' || number < least || number > most)
        return error_set(err, -EINVAL, "%s: '%.32s' is not a number from %" PRIu64 " to %" PRIu64, what, word, least,
                         most);
    *ret_number = number;
    return 0;
}

int argument_volume_properties(const struct invocation *in, json_t **ret_properties, struct error *err)
{
    struct volume_settings settings = {0};
    json_t *properties, *value;
    const char *name;
    int r = invocation_properties(in, &properties, err);
    if (r < 0)
        return r;
    json_object_foreach(properties, name, value)
    {
        if (r == 0)
            r = property_set_at_create(name, json_string_value(value), &settings, err);
    }
    if (r < 0)
        json_decref(properties);
    else
        *ret_properties = properties;
    return r;
}
