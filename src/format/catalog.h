/*
 * A catalog object: tag-length-value, each tag with a "must understand" bit. doc/format/catalog.md. In this version the
 * only object is a volume: a name for a branch.
 */
#ifndef ASHLAR_FORMAT_CATALOG_H
#define ASHLAR_FORMAT_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"
#include "format/limits.h"
#include "format/pointer.h"

struct error;

enum catalog_object_kind {
    CATALOG_VOLUME = 1,
    CATALOG_SNAPSHOT = 2,   /* reserved */
    CATALOG_BOOKMARK = 3,   /* reserved */
    CATALOG_DYING_TREE = 4, /* reserved */
};

struct catalog_volume {
    uint64_t object_id; /* its index in the catalog tree */
    uint64_t branch;    /* its head */
    uint8_t guid[16];
    char name[VOLUME_NAME_BYTES_MAX + 1];
    uint64_t size_bytes; /* multiple of SECTOR_BYTES */
    uint32_t record_bytes;
    struct codec_choice codec;
    uint64_t created_wall_ns;
    uint8_t height;      /* levels of the map, >= 1; enough for size_bytes */
    struct pointer root; /* absent, a hole, or a node */
    /* Account, exact at the checkpoint: */
    uint64_t mapped_records; /* records with data */
    uint64_t stored_bytes;   /* of records and patches, as in their pointers */
    uint64_t node_bytes;     /* of the map, one copy */
    uint64_t provisioned_records;
};

#define CATALOG_OBJECT_BYTES_MAX 4096

/* Returns the encoded length. */
size_t catalog_volume_encode(const struct catalog_volume *v, uint8_t *buf, size_t buf_bytes);
/* 0, -EBADMSG, -EOPNOTSUPP (another object kind, or an unknown tag that must be understood). */
int catalog_volume_decode(const uint8_t *buf, size_t buf_bytes, uint64_t object_id, struct catalog_volume *ret_volume,
                          struct error *err);

/* 1-240 bytes of [A-Za-z0-9._:+-], not "." or "..". 0 or -EINVAL with text that says what is wrong with it. */
int volume_name_check(const char *name, struct error *err);

/* Levels a map needs for that many records: 1 .. MAP_LEVELS_MAX. */
uint8_t map_height_for(uint64_t record_count);

#endif
