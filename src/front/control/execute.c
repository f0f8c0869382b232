/*
 * The verb table, and the verbs that are one call of the pool.
 */
#include "front/control/execute.h"

#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "env/env.h"
#include "front/control/execute_impl.h"
#include "front/control/property.h"
#include "pool/pool.h"

static const struct control_verb verbs[] = {
    {"list", false, execute_list},      {"get", false, execute_get},      {"set", true, execute_set},
    {"create", true, execute_create},   {"rename", true, execute_rename}, {"resize", true, execute_resize},
    {"destroy", true, execute_destroy}, {"import", true, execute_import}, {"export", false, execute_export},
    {"status", false, execute_status},
};

const struct control_verb *control_verb_find(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

int control_execute(const struct control_host *host, struct control_call *call, json_t **ret_result, struct error *err)
{
    const struct control_verb *verb = control_verb_find(call->request.verb);
    if (verb == NULL)
        return error_set(err, -ENOSYS, "the server of this pool does not know the verb '%s'", call->request.verb);
    struct arguments a = arguments_of(&call->request, err);
    return verb->run(host, call, &a, ret_result, err);
}

int execute_result(json_t *result, json_t **ret_result, struct error *err)
{
    if (result == NULL)
        return error_set(err, -ENOMEM, "no memory for the result");
    *ret_result = result;
    return 0;
}

int execute_settings(const json_t *properties, struct volume_settings *ret_settings, struct error *err)
{
    *ret_settings = (struct volume_settings){0};
    int r = codec_choice_parse("zstd", &ret_settings->codec, err);
    if (r < 0 || properties == NULL)
        return r;
    union {
        const json_t *in;
        json_t *out; /* the iteration takes no const */
    } object = {.in = properties};
    const char *name;
    json_t *value;
    json_object_foreach(object.out, name, value)
    {
        r = property_set_at_create(name, json_string_value(value), ret_settings, err);
        if (r < 0)
            return r;
    }
    return 0;
}

unsigned execute_users(const struct control_host *host, const char *volume)
{
    struct volume *v;
    struct volume_info info;
    if (volume_get(host->pool, volume, &v, NULL) < 0)
        return 0;
    volume_get_info(v, &info);
    volume_put(v);
    return info.users > 0 ? info.users - 1 : 0; /* without this reference */
}

int execute_busy(const struct control_host *host, const char *volume, unsigned users, const char *instead,
                 struct error *err)
{
    struct text who = {0};
    if (host->ops != NULL && host->ops->describe_users != NULL)
        host->ops->describe_users(host->arg, volume, &who);
    int r = error_set(err, -EBUSY, "volume '%s' is in use by %u connection%s%s%.200s%s; %s", volume, users,
                      users == 1 ? "" : "s", who.length > 0 ? " (" : "", who.length > 0 ? who.bytes : "",
                      who.length > 0 ? ")" : "", instead);
    text_free(&who);
    return r;
}

struct execute_meter execute_meter_of(const struct control_host *host, struct control_call *call, uint64_t total)
{
    uint64_t now_ns = env_now_ns(host->env);
    return (struct execute_meter){
        .call = call, .env = host->env, .total = total, .started_ns = now_ns, .told_ns = now_ns};
}

int execute_meter_tell(struct execute_meter *m, uint64_t done)
{
    uint64_t now_ns = env_now_ns(m->env);
    if (m->call->progress == NULL || now_ns - m->told_ns < 100000000)
        return 0;
    m->told_ns = now_ns;
    return m->call->progress(m->call->arg, done, m->total) != 0 ? -ECANCELED : 0;
}

double execute_meter_seconds(const struct execute_meter *m)
{
    return (double)((env_now_ns(m->env) - m->started_ns) / 1000000) / 1000;
}
