/*
 * Verbs on volumes: list, get, set, create, rename, resize, destroy.
 */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "front/control/execute_impl.h"
#include "front/control/property.h"
#include "pool/pool.h"

/* ---- looking ---- */

struct listing {
    json_t *volumes;
    uint64_t mapped_bytes, stored_bytes;
    bool failed;
};

static int list_one(void *arg, const struct volume_info *info)
{
    struct listing *l = arg;
    l->mapped_bytes += info->mapped_bytes;
    l->stored_bytes += info->stored_bytes;
    if (l->volumes != NULL && json_array_append_new(l->volumes, property_volume_to_json(info)) < 0)
        l->failed = true;
    return 0;
}

int execute_list(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                 struct error *err)
{
    (void)call;
    int r = arguments_done(a);
    if (r < 0)
        return r;
    struct listing l = {.volumes = json_array()};
    (void)volume_list(host->pool, list_one, &l);
    if (l.failed || l.volumes == NULL) {
        json_decref(l.volumes);
        return error_set(err, -ENOMEM, "no memory for the list of volumes");
    }
    return execute_result(json_pack("{s:s, s:o}", "pool", host->path, "volumes", l.volumes), ret_result, err);
}

static int volume_properties(const struct control_host *host, const char *name, json_t **ret_properties,
                             struct error *err)
{
    struct volume *v;
    struct volume_info info;
    int r = volume_get(host->pool, name, &v, err);
    if (r < 0)
        return r;
    volume_get_info(v, &info);
    volume_put(v);
    if (info.users > 0)
        info.users--; /* this look at it */
    return execute_result(property_volume_to_json(&info), ret_properties, err);
}

int execute_get(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                struct error *err)
{
    (void)call;
    const char *volume = argument_text(a, "volume", 0);
    json_t *properties = NULL;
    int r = arguments_done(a);
    if (r < 0)
        return r;
    if (volume != NULL) {
        r = volume_properties(host, volume, &properties, err);
        if (r < 0)
            return r;
        return execute_result(
            json_pack("{s:s, s:s, s:o}", "pool", host->path, "volume", volume, "properties", properties), ret_result,
            err);
    }
    struct pool_info info;
    struct listing l = {0};
    pool_get_info(host->pool, &info);
    info.read_only = info.read_only && host->ops != NULL; /* a command that only looks opens it so by itself */
    (void)volume_list(host->pool, list_one, &l);
    properties = property_pool_to_json(&info, host->path, property_ratio(l.mapped_bytes, l.stored_bytes));
    return execute_result(json_pack("{s:s, s:o}", "pool", host->path, "properties", properties), ret_result, err);
}

/* ---- changing ---- */

/* The answer of what made or changed a volume: its properties afterwards. */
static int result_of(const struct control_host *host, const char *volume, json_t **ret_result, struct error *err)
{
    json_t *properties;
    int r = volume_properties(host, volume, &properties, err);
    if (r < 0)
        return r;
    return execute_result(json_pack("{s:s, s:s, s:o}", "pool", host->path, "volume", volume, "properties", properties),
                          ret_result, err);
}

int execute_create(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err)
{
    (void)call;
    struct volume_settings settings;
    const char *volume = argument_text(a, "volume", 1);
    uint64_t size_bytes = argument_u64(a, "size", 1, 0);
    const json_t *properties = argument_texts(a, "properties");
    int r = arguments_done(a);
    if (r == 0)
        r = execute_settings(properties, &settings, err);
    if (r < 0)
        return r;
    settings.size_bytes = size_bytes;
    r = volume_create(host->pool, volume, &settings, err);
    return r < 0 ? r : result_of(host, volume, ret_result, err);
}

static int resize(const struct control_host *host, const char *volume, uint64_t size_bytes, bool force,
                  uint64_t *ret_before, struct error *err)
{
    struct volume *v;
    struct volume_info info;
    int r = volume_get(host->pool, volume, &v, err);
    if (r < 0)
        return r;
    volume_get_info(v, &info);
    volume_put(v);
    if (size_bytes < info.size_bytes && !force) {
        char before[16], after[16];
        return error_set(err, -EPERM,
                         "volume '%s': shrinking from %s to %s loses what lies behind; --force does it all the same",
                         volume, size_format_exact(info.size_bytes, before, sizeof(before)),
                         size_format_exact(size_bytes, after, sizeof(after)));
    }
    *ret_before = info.size_bytes;
    return volume_resize(host->pool, volume, size_bytes, err);
}

int execute_resize(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err)
{
    (void)call;
    const char *volume = argument_text(a, "volume", 1);
    uint64_t before = 0, size_bytes = argument_u64(a, "size", 1, 0);
    bool force = argument_flag(a, "force");
    int r = arguments_done(a);
    if (r == 0)
        r = resize(host, volume, size_bytes, force, &before, err);
    if (r < 0)
        return r;
    return execute_result(json_pack("{s:s, s:s, s:I, s:I}", "pool", host->path, "volume", volume, "size",
                                    (json_int_t)size_bytes, "before", (json_int_t)before),
                          ret_result, err);
}

static int changes_take(const json_t *properties, struct property_changes *ret_changes, struct error *err)
{
    union {
        const json_t *in;
        json_t *out; /* the iteration takes no const */
    } object = {.in = properties};
    const char *name;
    json_t *value;
    json_object_foreach(object.out, name, value)
    {
        int r = property_change_take(name, json_string_value(value), ret_changes, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int execute_set(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                struct error *err)
{
    (void)call;
    struct property_changes changes = {0};
    uint64_t before;
    const char *volume = argument_text(a, "volume", 1);
    const json_t *properties = argument_texts(a, "properties");
    bool force = argument_flag(a, "force");
    int r = arguments_done(a);
    if (r == 0 && (properties == NULL || json_object_size(properties) == 0))
        r = error_set(err, -EINVAL, "set: no property given");
    if (r == 0)
        r = changes_take(properties, &changes, err);
    if (r == 0 && changes.set_size)
        r = resize(host, volume, changes.size_bytes, force, &before, err);
    if (r == 0 && changes.set_codec)
        r = volume_set_codec(host->pool, volume, changes.codec, err);
    return r < 0 ? r : result_of(host, volume, ret_result, err);
}

int execute_rename(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err)
{
    (void)call;
    const char *volume = argument_text(a, "volume", 1);
    const char *to = argument_text(a, "to", 1);
    int r = arguments_done(a);
    if (r == 0)
        r = volume_rename(host->pool, volume, to, err);
    if (r < 0)
        return r;
    return execute_result(json_pack("{s:s, s:s, s:s}", "pool", host->path, "volume", to, "from", volume), ret_result,
                          err);
}

int execute_destroy(const struct control_host *host, struct control_call *call, struct arguments *a,
                    json_t **ret_result, struct error *err)
{
    (void)call;
    const char *volume = argument_text(a, "volume", 1);
    int r = arguments_done(a);
    if (r < 0)
        return r;
    struct error why = {0};
    r = volume_destroy(host->pool, volume, &why);
    if (r == -EBUSY)
        return execute_busy(host, volume, execute_users(host, volume), "disconnect first", err);
    if (r < 0)
        return error_set(err, r, "%s", why.text);
    return execute_result(json_pack("{s:s, s:s}", "pool", host->path, "volume", volume), ret_result, err);
}
