/*
 * The status verb: everything that the pool and its server know about themselves, as one JSON object. The names are
 * part of the interface: scripts read them.
 */
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "front/control/execute_impl.h"
#include "front/control/property.h"
#include "pool/pool.h"

enum { DAMAGE_MAX = 256 };

static json_t *damage_to_json(struct pool *pool)
{
    struct pool_damage *list = calloc(DAMAGE_MAX, sizeof(*list));
    json_t *array = json_array();
    size_t count = list != NULL ? pool_get_damage(pool, list, DAMAGE_MAX) : 0;
    for (size_t i = 0; i < count; i++) {
        char when[32];
        json_array_append_new(array, json_pack("{s:s, s:I, s:I, s:I, s:s, s:s}", "volume", list[i].volume, "offset",
                                               (json_int_t)list[i].offset_bytes, "length",
                                               (json_int_t)list[i].length_bytes, "address", (json_int_t)list[i].address,
                                               "seen", wall_time_format(list[i].wall_ns, when, sizeof(when)), "kind",
                                               list[i].error == -EBADMSG ? "does not verify" : "cannot be read"));
    }
    free(list);
    return array;
}

static int volume_counters(void *arg, const struct volume_info *info)
{
    json_array_append_new(
        arg, json_pack("{s:s, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:I}", "name", info->name, "size",
                       (json_int_t)info->size_bytes, "users", (json_int_t)info->users, "dirty",
                       (json_int_t)info->dirty_bytes, "requests", "reads", (json_int_t)info->read_count, "writes",
                       (json_int_t)info->write_count, "flushes", (json_int_t)info->flush_count, "trims",
                       (json_int_t)info->trim_count, "zeroes", (json_int_t)info->zero_count, "read-bytes",
                       (json_int_t)info->read_bytes, "written-bytes", (json_int_t)info->write_bytes, "corrupt-reads",
                       (json_int_t)info->corrupt_reads));
    return 0;
}

static json_t *log_to_json(const struct pool_info *i)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)i->log_bytes, "segments-free",
                     (json_int_t)i->free_slots, "segments", (json_int_t)i->slot_count, "checkpoint",
                     (json_int_t)i->checkpoint, "label", (json_int_t)i->label_sequence, "replay",
                     (json_int_t)i->replay_bytes, "skipped-entries", (json_int_t)i->skipped_entries);
}

static json_t *device_to_json(const struct pool_info *i)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "engine", i->device_engine != NULL ? i->device_engine : "?",
                     "reads", (json_int_t)i->device.reads, "writes", (json_int_t)i->device.writes, "flushes",
                     (json_int_t)i->device.flushes, "punches", (json_int_t)i->device.punches, "read-bytes",
                     (json_int_t)i->device.read_bytes, "written-bytes", (json_int_t)i->device.write_bytes);
}

/* NULL values would make json_pack fail: a server without a status says null. */
static json_t *server_to_json(const struct control_host *host)
{
    json_t *server = host->ops != NULL && host->ops->status != NULL ? host->ops->status(host->arg) : NULL;
    return server != NULL ? server : json_null();
}

int execute_status(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err)
{
    (void)call;
    struct pool_info i;
    char guid[37], created[32];
    int r = arguments_done(a);
    if (r < 0)
        return r;
    pool_get_info(host->pool, &i);
    i.read_only = i.read_only && host->ops != NULL; /* a command that only looks opens it so by itself */
    json_t *volumes = json_array();
    (void)volume_list(host->pool, volume_counters, volumes);
    const char *state = i.failed ? "failed" : i.corrupt_reads > 0 || i.lost_to > i.lost_from ? "damaged" : "good";
    json_t *result = json_pack(
        "{s:s, s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "pool", host->path, "guid",
        uuid_format(i.uuid, guid), "state", state, "read-only", (int)i.read_only, "created",
        wall_time_format(i.created_wall_ns, created, sizeof(created)), "size", (json_int_t)i.size_bytes, "usable",
        (json_int_t)i.usable_bytes, "used", (json_int_t)(i.usable_bytes - min_u64(i.free_bytes, i.usable_bytes)),
        "free", (json_int_t)i.free_bytes, "live", (json_int_t)i.live_bytes, "dead", (json_int_t)i.dead_bytes,
        "pending-free", (json_int_t)i.pending_free_bytes, "reserved", (json_int_t)i.reserved_bytes, "allocated",
        (json_int_t)i.allocated_bytes);
    json_t *more =
        json_pack("{s:o, s:{s:I, s:I, s:I}, s:o, s:I, s:{s:I, s:I}, s:o, s:o, s:o}", "log", log_to_json(&i), "cache",
                  "size", (json_int_t)i.cache_bytes, "used", (json_int_t)i.cache_used_bytes, "dirty",
                  (json_int_t)i.dirty_bytes, "device", device_to_json(&i), "corrupt-reads", (json_int_t)i.corrupt_reads,
                  "lost-log", "from", (json_int_t)i.lost_from, "to", (json_int_t)i.lost_to, "damage",
                  damage_to_json(host->pool), "volumes", volumes, "server", server_to_json(host));
    if (result != NULL && more != NULL)
        (void)json_object_update(result, more);
    json_decref(more);
    return execute_result(result, ret_result, err);
}
