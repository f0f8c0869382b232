/*
 * A small store in memory that keeps every promise, or breaks exactly one. It exists to prove that the checks of this
 * directory catch what they are there for.
 */
#ifndef ASHLAR_TESTS_MODEL_STORE_FAKE_H
#define ASHLAR_TESTS_MODEL_STORE_FAKE_H

#include "model/store.h"

enum lie {
    LIE_NONE,
    LIE_FLUSH,       /* a flush answers 0 and makes nothing durable */
    LIE_FUA,         /* FUA is ignored */
    LIE_TORN,        /* a power cut leaves half of a write */
    LIE_STALE_READ,  /* a read now and then shows what was there before the newest write */
    LIE_TRIM_BACK,   /* after a power cut trimmed data is back, although the trim was flushed */
    LIE_ORDER,       /* after a power cut an older FUA write lies over a newer one */
    LIE_OLD,         /* after a power cut a flushed sector has an older value */
    LIE_ROT,         /* after a power cut one byte differs */
    LIE_HOLE,        /* dirty data is called a hole */
    LIE_KEEPS_TRIM,  /* a trimmed record stays data */
    LIE_UNPROVISION, /* a provisioned record is called a hole */
    LIE_NEIGHBOUR,   /* a trim takes one byte more */
    LIE_SHORT,       /* a write drops its last byte */
    LIE_FULL,        /* ENOSPC without a reason */
    LIE_SIZE,        /* a resize is forgotten by a power cut */
    LIE_NAME,        /* a rename is forgotten by a power cut */
    LIE_GONE,        /* a volume is gone after a power cut */
    LIE_BACK,        /* a destroyed volume is back after a power cut */
    LIE_GROWN,       /* growing shows what lay beyond the end before it was cut off */
    LIE_COUNT,
};

const char *lie_name(enum lie lie);
struct store *store_fake_new(enum lie lie, uint64_t seed);

#endif
