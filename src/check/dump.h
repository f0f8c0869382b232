/*
 * What `ashlar dump` shows: every durable object of a pool as a flat list of named values.
 */
#ifndef ASHLAR_CHECK_DUMP_H
#define ASHLAR_CHECK_DUMP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "check/inspection.h"

enum dump_what { DUMP_ALL, DUMP_LABEL, DUMP_SLOTS, DUMP_CATALOG, DUMP_CHUNKS, DUMP_NODE, DUMP_VOLUME, DUMP_WHAT_COUNT };

struct dump_request {
    enum dump_what what;
    const char *name; /* DUMP_VOLUME */
    uint64_t address; /* DUMP_NODE */
    bool json;
};

/*
 * Prints what was asked for to standard output. *ret_report: what stood in the way, to be freed by the caller; NULL
 * only without memory. *ret_begun: something was printed, so that an error comes behind a part of it. Errors as
 * check_run; -ENOENT: what was asked for is not there.
 */
int dump_run(struct device *dev, const struct dump_request *request, struct check_report **ret_report, bool *ret_begun,
             struct error *err) __attribute__((warn_unused_result));

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
