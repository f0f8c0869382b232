/*
 * Properties of volumes and of the pool: one table of names, of what each is and whether it may be set, shared by who
 * works on the pool and who prints.
 */
#ifndef ASHLAR_FRONT_CONTROL_PROPERTY_H
#define ASHLAR_FRONT_CONTROL_PROPERTY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"

struct error;
struct pool_create_options;
struct pool_info;
struct volume_info;
struct volume_settings;

enum property_kind {
    PROPERTY_TEXT,
    PROPERTY_BYTES,
    PROPERTY_COUNT,
    PROPERTY_RATIO,
    PROPERTY_FLAG,
};

enum property_change {
    PROPERTY_READ_ONLY,
    PROPERTY_AT_CREATE, /* -o of create and import, fixed then */
    PROPERTY_ANY_TIME,  /* -o, and set */
    PROPERTY_BY_SET,    /* set only: at create it is an argument of its own */
};

struct property {
    const char *name;
    enum property_kind kind;
    enum property_change change;
    const char *meaning; /* one line */
};

enum property_owner { PROPERTY_OF_VOLUME, PROPERTY_OF_POOL };

/* The table, ended by a NULL name. */
const struct property *property_table(enum property_owner owner);
/* -EINVAL names the nearest known one. */
int property_find(enum property_owner owner, const char *name, const struct property **ret_property, struct error *err);

/* All properties as a JSON object, in the order of the table. NULL: no memory. */
json_t *property_volume_to_json(const struct volume_info *info);
/* path is UTF-8; the ratio is that of all volumes together. */
json_t *property_pool_to_json(const struct pool_info *info, const char *path, double compression_ratio);
double property_ratio(uint64_t logical_bytes, uint64_t stored_bytes);

/* A value as a person reads it. buf is returned. */
char *property_value_format(enum property_kind kind, const json_t *value, char *buf, size_t buf_bytes);

/* -o name=value of a new volume. -EINVAL with text: unknown, not settable then, or a value out of range. */
int property_set_at_create(const char *name, const char *value, struct volume_settings *settings, struct error *err);
/* What set asks for, taken apart before anything is changed. */
struct property_changes {
    bool set_codec, set_size;
    struct codec_choice codec;
    uint64_t size_bytes;
};
/* Adds name=value. -EINVAL with text: unknown, cannot be set, or a value out of range. */
int property_change_take(const char *name, const char *value, struct property_changes *changes, struct error *err);

/* -o name=value of a new pool. */
int property_set_pool_at_create(const char *name, const char *value, struct pool_create_options *options,
                                struct error *err);

/* 2026-08-22T10:30:00Z. buf of 32 bytes is enough. */
char *wall_time_format(uint64_t wall_ns, char *buf, size_t buf_bytes);

#endif
