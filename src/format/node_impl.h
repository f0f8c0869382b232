/*
 * What the encoder and the decoder of map nodes share: numbers of the layout, the rules of validity.
 * Bytes and rules: doc/format/node.md.
 */
#ifndef ASHLAR_FORMAT_NODE_IMPL_H
#define ASHLAR_FORMAT_NODE_IMPL_H

#include <stdbool.h>

#include "format/node.h"

#define NODE_MAGIC "ANOD"
#define NODE_MAGIC_BYTES 4
#define NODE_VERSION 1

/* A run of children of one description: this byte, the flags if it says so, and the number of children less one. */
#define NODE_TAG_KIND_MASK 0x0f
#define NODE_TAG_CODEC_SHIFT 4
#define NODE_TAG_CODEC_MASK 0x30
#define NODE_TAG_FLAGS_FOLLOW 0x40
#define NODE_TAG_RESERVED 0x80

/* Addresses are kept as differences to the end of the pointer before, or in so many bytes each above a base. */
#define NODE_ADDRESS_DELTAS 0
#define NODE_ADDRESS_BYTES_MAX 8

/* true if a run that `a` is in goes on with `b`. */
static inline bool node_run_continues(const struct pointer *a, const struct pointer *b)
{
    return a->kind == b->kind && a->codec == b->codec && a->flags == b->flags;
}

/* NULL if the node is well formed by itself, else what is wrong with it. */
const char *node_fault(const struct node *n);

#endif
