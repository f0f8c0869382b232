/*
 * Whether a request may be carried out: the rules of the protocol, apart from doing it.
 */
#ifndef ASHLAR_FRONT_NBD_VERDICT_H
#define ASHLAR_FRONT_NBD_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

struct nbd_request_header;

/* What the rules depend on. */
struct nbd_terms {
    uint16_t transmission_flags;
    bool structured, base_allocation, shutting_down;
    uint64_t size_bytes;
};

/* 0, or the error to answer with, and a text that says why (to be freed; NULL if there is no memory for it). */
uint32_t nbd_verdict(const struct nbd_request_header *header, const struct nbd_terms *terms, char **ret_text);

#endif
