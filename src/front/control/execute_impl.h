/*
 * What the files of the verbs share: their entry points, common errors and results, and the progress meter.
 */
#ifndef ASHLAR_FRONT_CONTROL_EXECUTE_IMPL_H
#define ASHLAR_FRONT_CONTROL_EXECUTE_IMPL_H

#include "front/control/execute.h"

struct volume_settings;

/* The verbs, as in struct control_verb. */
int execute_list(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                 struct error *err);
int execute_get(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                struct error *err);
int execute_set(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                struct error *err);
int execute_create(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err);
int execute_rename(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err);
int execute_resize(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err);
int execute_destroy(const struct control_host *host, struct control_call *call, struct arguments *a,
                    json_t **ret_result, struct error *err);
int execute_import(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err);
int execute_export(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err);
int execute_status(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err);

/* The result, or -ENOMEM where it is NULL. */
int execute_result(json_t *result, json_t **ret_result, struct error *err);
/* Properties of a new volume from {"name": "value"}; defaults where there are none. */
int execute_settings(const json_t *properties, struct volume_settings *ret_settings, struct error *err);
/* The error for a volume that is in use: says by whom where the server knows. */
int execute_busy(const struct control_host *host, const char *volume, unsigned users, const char *instead,
                 struct error *err);
/* Users of a volume; 0 if it does not exist. */
unsigned execute_users(const struct control_host *host, const char *volume);

/* Calls progress, at most every 100 ms. */
struct execute_meter {
    struct control_call *call;
    struct env *env;
    uint64_t total, started_ns, told_ns;
};
struct execute_meter execute_meter_of(const struct control_host *host, struct control_call *call, uint64_t total);
/* -ECANCELED if the caller gave up. */
int execute_meter_tell(struct execute_meter *m, uint64_t done);
double execute_meter_seconds(const struct execute_meter *m);

#endif
