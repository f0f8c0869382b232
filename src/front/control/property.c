/*
 * The property tables. Names and meanings as in zfs where zfs has the property; words joined by a hyphen.
 */
#include "front/control/property.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "codec/codec.h"
#include "format/limits.h"
#include "front/control/nearest.h"
#include "pool/pool.h"

static const struct property volume_properties[] = {
    {"name", PROPERTY_TEXT, PROPERTY_READ_ONLY, "1 to 240 of A-Z a-z 0-9 . _ : + - (ashlar rename)"},
    {"size", PROPERTY_BYTES, PROPERTY_BY_SET, "what a client sees; a multiple of 512"},
    {"used", PROPERTY_BYTES, PROPERTY_READ_ONLY, "what the volume takes in the pool: referenced + reserved"},
    {"referenced", PROPERTY_BYTES, PROPERTY_READ_ONLY, "its data as stored, and its map"},
    {"logical-referenced", PROPERTY_BYTES, PROPERTY_READ_ONLY, "its data before compression; holes not counted"},
    {"compression-ratio", PROPERTY_RATIO, PROPERTY_READ_ONLY, "logical bytes for each stored byte of data"},
    {"compression", PROPERTY_TEXT, PROPERTY_ANY_TIME, "off, lz4, zstd, zstd-1 to zstd-19, zstd-fast-1 to zstd-fast-5"},
    {"record-size", PROPERTY_BYTES, PROPERTY_AT_CREATE, "a power of two from 4K to 1M; the unit of compression"},
    {"reserved", PROPERTY_BYTES, PROPERTY_READ_ONLY, "kept for zeroes that a client asked to provision"},
    {"metadata", PROPERTY_BYTES, PROPERTY_READ_ONLY, "its map"},
    {"users", PROPERTY_COUNT, PROPERTY_READ_ONLY, "connections and open handles"},
    {"guid", PROPERTY_TEXT, PROPERTY_READ_ONLY, "identity that outlives renames"},
    {"created", PROPERTY_TEXT, PROPERTY_READ_ONLY, "UTC"},
    {NULL},
};

static const struct property pool_properties[] = {
    {"path", PROPERTY_TEXT, PROPERTY_READ_ONLY, "of the pool file or device"},
    {"size", PROPERTY_BYTES, PROPERTY_READ_ONLY, "of the file or device"},
    {"usable", PROPERTY_BYTES, PROPERTY_READ_ONLY, "what can hold data"},
    {"used", PROPERTY_BYTES, PROPERTY_READ_ONLY, "usable less free"},
    {"free", PROPERTY_BYTES, PROPERTY_READ_ONLY, "what new data may still take, as stored"},
    {"reserved", PROPERTY_BYTES, PROPERTY_READ_ONLY, "kept for provisioned zeroes and acknowledged writes"},
    {"allocated", PROPERTY_BYTES, PROPERTY_READ_ONLY, "of the pool file in its file system"},
    {"compression-ratio", PROPERTY_RATIO, PROPERTY_READ_ONLY, "logical bytes for each stored byte of data"},
    {"volumes", PROPERTY_COUNT, PROPERTY_READ_ONLY, "how many there are"},
    {"segment-size", PROPERTY_BYTES, PROPERTY_AT_CREATE, "a power of two; the unit in which the log grows"},
    {"write-unit", PROPERTY_BYTES, PROPERTY_AT_CREATE, "4K to 64K; at least the device's physical sector"},
    {"read-only", PROPERTY_FLAG, PROPERTY_READ_ONLY, "opened or served read-only"},
    {"guid", PROPERTY_TEXT, PROPERTY_READ_ONLY, "identity"},
    {"created", PROPERTY_TEXT, PROPERTY_READ_ONLY, "UTC"},
    {NULL},
};

enum { TABLE_MAX = 32 };

const struct property *property_table(enum property_owner owner)
{
    return owner == PROPERTY_OF_VOLUME ? volume_properties : pool_properties;
}

int property_find(enum property_owner owner, const char *name, const struct property **ret_property, struct error *err)
{
    const char *names[TABLE_MAX];
    char hint[96];
    size_t count = 0;
    for (const struct property *p = property_table(owner); p->name != NULL; p++) {
        if (strcmp(p->name, name) == 0) {
            *ret_property = p;
            return 0;
        }
        names[count++] = p->name;
    }
    return error_set(err, -EINVAL, "no property of a %s is called '%.64s'%s",
                     owner == PROPERTY_OF_VOLUME ? "volume" : "pool", name,
                     nearest_hint(name, names, count, hint, sizeof(hint)));
}

char *wall_time_format(uint64_t wall_ns, char *buf, size_t buf_bytes)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL || strftime(buf, buf_bytes, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        snprintf(buf, buf_bytes, "-");
    return buf;
}

double property_ratio(uint64_t logical_bytes, uint64_t stored_bytes)
{
    if (stored_bytes == 0 || logical_bytes == 0)
        return 1;
    double ratio = (double)logical_bytes / (double)stored_bytes;
    return (double)(uint64_t)(ratio * 1000 + 0.5) / 1000;
}

json_t *property_volume_to_json(const struct volume_info *info)
{
    char codec[16], guid[37], created[32];
    uint64_t referenced = info->stored_bytes + info->metadata_bytes;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "name", info->name, "size",
                     (json_int_t)info->size_bytes, "used", (json_int_t)(referenced + info->reserved_bytes),
                     "referenced", (json_int_t)referenced, "logical-referenced", (json_int_t)info->mapped_bytes,
                     "compression-ratio", property_ratio(info->mapped_bytes, info->stored_bytes), "compression",
                     codec_choice_format(info->codec, codec, sizeof(codec)), "record-size",
                     (json_int_t)info->record_bytes, "reserved", (json_int_t)info->reserved_bytes, "metadata",
                     (json_int_t)info->metadata_bytes, "users", (json_int_t)info->users, "guid",
                     uuid_format(info->guid, guid), "created",
                     wall_time_format(info->created_wall_ns, created, sizeof(created)));
}

json_t *property_pool_to_json(const struct pool_info *info, const char *path, double compression_ratio)
{
    char guid[37], created[32];
    uint64_t used = info->usable_bytes - min_u64(info->free_bytes, info->usable_bytes);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:b, s:s, s:s}", "path", path, "size",
                     (json_int_t)info->size_bytes, "usable", (json_int_t)info->usable_bytes, "used", (json_int_t)used,
                     "free", (json_int_t)info->free_bytes, "reserved", (json_int_t)info->reserved_bytes, "allocated",
                     (json_int_t)info->allocated_bytes, "compression-ratio", compression_ratio, "volumes",
                     (json_int_t)info->volume_count, "segment-size", (json_int_t)info->segment_bytes, "write-unit",
                     (json_int_t)info->write_unit_bytes, "read-only", (int)info->read_only, "guid",
                     uuid_format(info->uuid, guid), "created",
                     wall_time_format(info->created_wall_ns, created, sizeof(created)));
}

char *property_value_format(enum property_kind kind, const json_t *value, char *buf, size_t buf_bytes)
{
    if (kind == PROPERTY_BYTES && json_is_integer(value))
        return size_format((uint64_t)json_integer_value(value), buf, buf_bytes);
    if (kind == PROPERTY_RATIO && json_is_number(value))
        snprintf(buf, buf_bytes, "%.2f", json_number_value(value));
    else if (json_is_integer(value))
        snprintf(buf, buf_bytes, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(buf, buf_bytes, "%g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(buf, buf_bytes, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_string(value))
        snprintf(buf, buf_bytes, "%s", json_string_value(value));
    else
        snprintf(buf, buf_bytes, "-");
    return buf;
}

/* Says what to do instead where a property exists and cannot be set at create. */
static int not_at_create(const struct property *p, struct error *err)
{
    if (p->change == PROPERTY_BY_SET)
        return error_set(err, -EINVAL, "'%s' is an argument of its own at create, not an option of -o", p->name);
    return error_set(err, -EINVAL, "property '%s' is read-only (%s)", p->name, p->meaning);
}

static int record_size_parse(const char *value, struct volume_settings *settings, struct error *err)
{
    uint64_t bytes;
    int r = size_parse(value, "record-size", &bytes, err);
    if (r < 0)
        return r;
    if (!is_power_of_2(bytes) || bytes < RECORD_BYTES_MIN || bytes > RECORD_BYTES_MAX)
        return error_set(err, -EINVAL, "record-size '%.32s': it must be a power of two from 4K to 1M", value);
    settings->record_bytes = (uint32_t)bytes;
    return 0;
}

int property_set_at_create(const char *name, const char *value, struct volume_settings *settings, struct error *err)
{
    const struct property *p;
    int r = property_find(PROPERTY_OF_VOLUME, name, &p, err);
    if (r < 0)
        return r;
    if (p->change != PROPERTY_AT_CREATE && p->change != PROPERTY_ANY_TIME)
        return not_at_create(p, err);
    if (strcmp(name, "record-size") == 0)
        return record_size_parse(value, settings, err);
    return codec_choice_parse(value, &settings->codec, err);
}

int property_change_take(const char *name, const char *value, struct property_changes *changes, struct error *err)
{
    const struct property *p;
    int r = property_find(PROPERTY_OF_VOLUME, name, &p, err);
    if (r < 0)
        return r;
    if (p->change == PROPERTY_AT_CREATE)
        return error_set(err, -EINVAL, "property '%s' is fixed when a volume is created", name);
    if (p->change == PROPERTY_READ_ONLY)
        return error_set(err, -EINVAL, "property '%s' is read-only (%s)", name, p->meaning);
    if (p->change == PROPERTY_BY_SET) {
        changes->set_size = true;
        return size_parse(value, name, &changes->size_bytes, err);
    }
    changes->set_codec = true;
    return codec_choice_parse(value, &changes->codec, err);
}

int property_set_pool_at_create(const char *name, const char *value, struct pool_create_options *options,
                                struct error *err)
{
    const struct property *p;
    uint64_t bytes;
    int r = property_find(PROPERTY_OF_POOL, name, &p, err);
    if (r < 0)
        return r;
    if (p->change != PROPERTY_AT_CREATE)
        return not_at_create(p, err);
    r = size_parse(value, name, &bytes, err);
    if (r < 0)
        return r;
    bool is_segment = strcmp(name, "segment-size") == 0;
    uint64_t least = is_segment ? SEGMENT_BYTES_MIN : WRITE_UNIT_BYTES_MIN;
    uint64_t most = is_segment ? SEGMENT_BYTES_MAX : WRITE_UNIT_BYTES_MAX;
    if (!is_power_of_2(bytes) || bytes < least || bytes > most) {
        char low[16], high[16];
        return error_set(err, -EINVAL, "%s '%.32s': it must be a power of two from %s to %s", name, value,
                         size_format_exact(least, low, sizeof(low)), size_format_exact(most, high, sizeof(high)));
    }
    if (is_segment)
        options->segment_bytes = (uint32_t)bytes;
    else
        options->write_unit_bytes = (uint32_t)bytes;
    return 0;
}
