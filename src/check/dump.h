/*
 * What `ashlar dump` shows: every durable object of a pool as a flat list of named values.
 */
#ifndef ASHLAR_CHECK_DUMP_H
#define ASHLAR_CHECK_DUMP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "check/inspection.h"

/* Objects are printed one after the other, as they are met: as lines of text, or as elements of one JSON array. */
struct dump {
    struct inspection *ins;
    bool json;
    bool begun;  /* an element was printed */
    bool failed; /* no memory for one of them */
};

void dump_begin(struct dump *d);
void dump_end(struct dump *d);

/* Each shows all objects of its kind. 0 or negative errno with text. */
int dump_labels(struct dump *d, struct error *err);
int dump_slots(struct dump *d, struct error *err);
int dump_catalog(struct dump *d, struct error *err);
int dump_chunks(struct dump *d, struct error *err);
/* The map node, or record of the pool's own trees, that an entry at this log address of the node head names. */
int dump_node(struct dump *d, uint64_t address, struct error *err);
/* A volume and its whole map. -ENOENT. */
int dump_volume(struct dump *d, const char *name, struct error *err);

/* dump_values.c: durable values as JSON, NULL if there is no memory. */
json_t *dump_pointer_json(const struct pointer *p);
json_t *dump_label_json(const struct label *l);
json_t *dump_slot_json(const struct slot *s);
json_t *dump_volume_json(const struct catalog_volume *v);
json_t *dump_header_json(const struct chunk_header *h);
json_t *dump_entry_json(const struct chunk_entry *e, uint64_t chunk_address);

#endif
