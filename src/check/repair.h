/*
 * Repairs: writes of bytes that were there before, planned while the checker looks, made when it has seen everything.
 *
 * A repair only ever writes over a copy that does not verify, with what the intact copy (or the log) proves to have
 * been there, so that it can be cut off at any point and begun again. The one exception is what revive.c plans: new map
 * nodes in a slot that is free, and then a label that names them.
 */
#ifndef ASHLAR_CHECK_REPAIR_H
#define ASHLAR_CHECK_REPAIR_H

#include "check/chunk.h"

/* Plans a write of n bytes at a device offset; a copy is kept. Nothing unless a repair was asked for. */
void check_repair_add(struct inspection *ins, uint64_t device_offset_bytes, const void *bytes, size_t n,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The write planned last is made only when all before it are durable. */
void check_repair_after_flush(struct inspection *ins);

/* Plans to write back what is wrong in a pair of the node head; bytes: its whole span. Entries in ins->entries. */
void check_repair_pair(struct inspection *ins, const struct check_chunk *c, const uint8_t *bytes);

/* A data chunk that lacks header or trailer: noted for check_report_halves, and its repair planned. -ENOMEM. */
int check_half(struct inspection *ins, const struct check_chunk *c);

/* A data chunk whose echo is damaged: the same. front: header and table of the chunk before it, or NULL. -ENOMEM. */
int check_echo_damaged(struct inspection *ins, const struct check_chunk *c, const uint8_t *front, size_t front_bytes);

/* Makes the planned writes, flushes, and lists in the report what was written. Device errors. */
int check_repair_apply(struct inspection *ins, struct error *err);
bool check_repair_planned(const struct inspection *ins);

#endif
