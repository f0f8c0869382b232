/*
 * What the encoder and the decoder of catalog objects share: tags, the rules of validity.
 * Bytes and rules: doc/format/catalog.md.
 */
#ifndef ASHLAR_FORMAT_CATALOG_IMPL_H
#define ASHLAR_FORMAT_CATALOG_IMPL_H

#include "format/catalog.h"

#define CATALOG_OBJECT_VERSION 1

/* A tag's highest bit: who does not know the tag must refuse the object. */
#define CATALOG_TAG_MUST_UNDERSTAND 0x8000
#define CATALOG_TAG_NUMBER_MASK 0x7fff

/* Numbers are durable: never reuse one. They come in this order; 0 is the end. */
enum catalog_tag {
    CATALOG_TAG_END = 0,
    CATALOG_TAG_KIND = 1,
    CATALOG_TAG_OBJECT_ID = 2,
    CATALOG_TAG_BRANCH = 3,
    CATALOG_TAG_GUID = 4,
    CATALOG_TAG_NAME = 5,
    CATALOG_TAG_SIZE = 6,
    CATALOG_TAG_RECORD_BYTES = 7,
    CATALOG_TAG_CODEC = 8,
    CATALOG_TAG_CREATED = 9,
    CATALOG_TAG_ROOT = 10,
    CATALOG_TAG_ACCOUNT = 11,
    CATALOG_TAG_COUNT, /* not a tag */
};

#define CATALOG_ROOT_BYTES (1 + POINTER_BYTES)
#define CATALOG_ACCOUNT_BYTES (4 * 8)

/* NULL if the volume's values are in range and fit together, else which are not. */
const char *catalog_volume_fault(const struct catalog_volume *v);

#endif
