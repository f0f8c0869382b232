/*
 * What a volume in the catalog may be, names among it.
 */
#include "format/catalog_impl.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

#define RECORD_INDEX_LIMIT (UINT64_C(1) << (MAP_LEAF_BITS + (MAP_LEVELS_MAX - 1) * MAP_INNER_BITS))

_Static_assert(VOLUME_BYTES_MAX / RECORD_BYTES_MIN <= RECORD_INDEX_LIMIT, "every volume fits a map");

static bool name_byte_allowed(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._:+-", c) != NULL);
}

int volume_name_check(const char *name, struct error *err)
{
    const size_t length = strlen(name);
    if (length == 0)
        return error_set(err, -EINVAL, "a volume's name cannot be empty");
    if (length > VOLUME_NAME_BYTES_MAX)
        return error_set(err, -EINVAL, "volume name of %zu bytes: at most %d are allowed", length,
                         VOLUME_NAME_BYTES_MAX);
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (!name_byte_allowed(c))
            return error_set(err, -EINVAL,
                             c > ' ' && c < 0x7f
                                 ? "volume name with '%c' at byte %zu: allowed are A-Z a-z 0-9 . _ : + -"
                                 : "volume name with byte 0x%02x at byte %zu: allowed are A-Z a-z 0-9 "
                                   ". _ : + -",
                             c, i);
    }
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(err, -EINVAL, "a volume cannot be named \"%s\"", name);
    return 0;
}

uint8_t map_height_for(uint64_t record_count)
{
    CHECK_LE(record_count, RECORD_INDEX_LIMIT);
    uint8_t height = 1;
    while (record_count > UINT64_C(1) << map_level_bits(height - 1u))
        height++;
    CHECK_LE(height, MAP_LEVELS_MAX);
    return height;
}

const char *catalog_volume_fault(const struct catalog_volume *v)
{
    if (v->object_id >= RECORD_INDEX_LIMIT)
        return "object id out of range";
    if (v->branch < BRANCH_FIRST_USER)
        return "branch is one of the pool's own";
    if (memchr(v->name, '\0', sizeof(v->name)) == NULL || volume_name_check(v->name, NULL) != 0)
        return "name";
    if (v->size_bytes == 0 || v->size_bytes > VOLUME_BYTES_MAX || v->size_bytes % SECTOR_BYTES != 0)
        return "size";
    if (!is_power_of_2(v->record_bytes) || v->record_bytes < RECORD_BYTES_MIN || v->record_bytes > RECORD_BYTES_MAX)
        return "record size";
    if (!codec_choice_valid(v->codec))
        return "codec";
    if (v->height > MAP_LEVELS_MAX || v->height < map_height_for(div_ceil(v->size_bytes, v->record_bytes)))
        return "height";
    if (!pointer_valid(&v->root) || v->root.kind == POINTER_DATA || v->root.kind == POINTER_PATCH)
        return "root";
    if (v->mapped_records > RECORD_INDEX_LIMIT || v->provisioned_records > RECORD_INDEX_LIMIT)
        return "account";
    return NULL;
}
