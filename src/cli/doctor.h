/*
 * What the examinations of `doctor` share: findings.
 */
#ifndef ASHLAR_CLI_DOCTOR_H
#define ASHLAR_CLI_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum verdict {
    VERDICT_OK,
    VERDICT_NOTE, /* worth knowing, nothing is wrong */
    VERDICT_WARN, /* something that costs speed or safety */
    VERDICT_BAD,  /* a pool cannot work here */
};

struct doctor {
    bool json;
    json_t *findings; /* of all examinations, for --json */
    unsigned warnings, problems;
};

/* Adds a finding and, without --json, prints it. figures (may be NULL): an object of numbers, taken over. */
void doctor_add(struct doctor *d, enum verdict verdict, const char *name, json_t *figures, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* doctor_system.c */
void doctor_kernel(struct doctor *d);
void doctor_limits(struct doctor *d);
/* doctor_place.c: path is a pool, or a directory where one might be. */
void doctor_place(struct doctor *d, const char *path);
/* doctor_codec.c: data_path: what to compress; NULL: this program and its libraries. */
void doctor_codec(struct doctor *d, const char *data_path);

#endif
