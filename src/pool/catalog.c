/*
 * The volumes of a pool: in memory, by name; on disk, objects of the catalog tree.
 *
 * Every change of the catalog is durable when its call returns: it sets `catalog_changed` and runs a checkpoint. A
 * volume can be opened only after the label that created it is durable, so the log never holds an entry of a branch
 * that no label knows (R26); it can be opened no more from the moment its destruction begins.
 */
#include "pool/pool_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

uint64_t volume_record_count(const struct volume *v)
{
    return div_ceil(v->size_bytes, v->record_bytes);
}

struct volume *pool_find_volume(struct pool *pool, const char *name)
{
    CHECK(env_mutex_held(&pool->lock));
    for (struct list *l = pool->volumes.next; l != &pool->volumes; l = l->next) {
        struct volume *v = (struct volume *)l;
        if (strcmp(v->name, name) == 0 && !v->destroyed)
            return v;
    }
    return NULL;
}

void pool_insert_volume(struct pool *pool, struct volume *v)
{
    struct list *at = pool->volumes.next;
    while (at != &pool->volumes && strcmp(((struct volume *)at)->name, v->name) < 0)
        at = at->next;
    list_insert_before(at, &v->link);
    pool->volume_count++;
}

static struct volume *volume_new(struct pool *pool)
{
    struct volume *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    list_init(&v->link);
    list_init(&v->dirty);
    v->pool = pool;
    return v;
}

void volume_free(struct volume *v)
{
    CHECK(list_empty(&v->dirty));
    pending_free(&v->overlay);
    pending_free(&v->overlay_sealing);
    pending_free(&v->active);
    pending_free(&v->frozen);
    free(v);
}

struct volume *volume_from_catalog(struct pool *pool, const struct catalog_volume *c)
{
    struct volume *v = volume_new(pool);
    if (v == NULL)
        return NULL;
    memcpy(v->name, c->name, sizeof v->name);
    memcpy(v->guid, c->guid, sizeof v->guid);
    v->object_id = c->object_id;
    v->branch = c->branch;
    v->size_bytes = v->next_size_bytes = c->size_bytes;
    v->record_bytes = c->record_bytes;
    v->codec = c->codec;
    v->created_wall_ns = c->created_wall_ns;
    v->tree = (struct map_tree){
        .branch = c->branch, .height = c->height, .root = c->root, .cut_address = pool->label.replay_address};
    v->mapped_records = c->mapped_records;
    v->stored_bytes = c->stored_bytes;
    v->node_bytes = c->node_bytes;
    v->provisioned_records = c->provisioned_records;
    v->live = true;
    return v;
}

void volume_to_catalog(const struct volume *v, struct catalog_volume *ret_catalog)
{
    memset(ret_catalog, 0, sizeof *ret_catalog);
    memcpy(ret_catalog->name, v->name, sizeof ret_catalog->name);
    memcpy(ret_catalog->guid, v->guid, sizeof ret_catalog->guid);
    ret_catalog->object_id = v->object_id;
    ret_catalog->branch = v->branch;
    ret_catalog->size_bytes = v->next_size_bytes;
    ret_catalog->record_bytes = v->record_bytes;
    ret_catalog->codec = v->codec;
    ret_catalog->created_wall_ns = v->created_wall_ns;
    ret_catalog->height = v->tree.height;
    ret_catalog->root = v->tree.root;
    ret_catalog->mapped_records = v->mapped_records;
    ret_catalog->stored_bytes = v->stored_bytes;
    ret_catalog->node_bytes = v->node_bytes;
    ret_catalog->provisioned_records = v->provisioned_records;
}

/* A record of the volume from `first` on that somebody is reading. */
static struct record *find_filling(struct pool *pool, const struct volume *v, uint64_t first)
{
    for (uint32_t i = 0; i <= pool->cache.bucket_mask; i++) {
        for (struct record *r = pool->cache.buckets[i]; r != NULL; r = r->hash_next) {
            if (r->owner == v && r->index >= first && r->filling)
                return r;
        }
    }
    return NULL;
}

void volume_drop_cached(struct volume *v, uint64_t first)
{
    struct pool *pool = v->pool;
    struct record *r, *next;
    while ((r = find_filling(pool, v, first)) != NULL) {
        cache_pin(&pool->cache, r);
        pool_wait_filled(pool, r);
        cache_unpin(&pool->cache, r);
    }
    for (uint32_t i = 0; i <= pool->cache.bucket_mask; i++) {
        for (r = pool->cache.buckets[i]; r != NULL; r = next) {
            next = r->hash_next;
            if (r->owner != v || r->index < first)
                continue;
            pool_unreserve(pool, r->reserved_bytes);
            r->reserved_bytes = 0;
            cache_drop(&pool->cache, r);
        }
    }
}

/* ---- loading ---- */

struct load {
    struct pool *pool;
    struct error *err;
};

static int count_node(void *arg, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct load *load = arg;
    (void)level;
    (void)number;
    slots_add_own_at(&load->pool->slots, p->address, p->length);
    return 0;
}

static int unreadable(void *arg, const struct pointer *p, uint8_t level, uint64_t number, int error)
{
    struct load *load = arg;
    (void)error;
    return error_set(load->err, -EBADMSG,
                     "%s: the catalog is damaged: node %" PRIu64 " of level %u at address %" PRIu64
                     " does not verify in either copy; 'ashlar check --repair' may help",
                     load->pool->dev->name, number, level, p->address);
}

static int load_object(void *arg, const struct pointer *p, uint64_t index, bool is_patch)
{
    struct load *load = arg;
    struct pool *pool = load->pool;
    uint8_t stored[CATALOG_OBJECT_BYTES_MAX], raw[CATALOG_OBJECT_BYTES_MAX];
    struct catalog_volume c;
    if (is_patch || p->length > sizeof stored)
        return error_set(load->err, -EBADMSG, "%s: catalog object %" PRIu64 " is malformed", pool->dev->name, index);
    slots_add_own_at(&pool->slots, p->address, p->length);
    int result = reader_read(&pool->reader, p, false, stored);
    if (result != 0)
        return error_set(load->err, result,
                         "%s: catalog object %" PRIu64 " at address %" PRIu64
                         " cannot be read: %s; 'ashlar check --repair' may help",
                         pool->dev->name, index, p->address,
                         result == -EBADMSG ? "it does not verify" : strerror(-result));
    struct codec_context *codec = workers_borrow_codec(pool->workers);
    result = codec == NULL ? -ENOMEM : codec_decompress(codec, p->codec, stored, p->length, raw, sizeof raw);
    workers_return_codec(pool->workers, codec);
    if (result == 0)
        result = catalog_volume_decode(raw, sizeof raw, index, &c, load->err);
    if (result != 0)
        return error_set(load->err, result, "%s: catalog object %" PRIu64 " is malformed", pool->dev->name, index);
    struct volume *v = volume_from_catalog(pool, &c);
    if (v == NULL)
        return -ENOMEM;
    env_mutex_lock(&pool->lock);
    bool taken = pool_find_volume(pool, c.name) != NULL;
    if (!taken)
        pool_insert_volume(pool, v);
    env_mutex_unlock(&pool->lock);
    if (!taken)
        return 0;
    volume_free(v);
    return error_set(load->err, -EBADMSG, "%s: two volumes are named %s", pool->dev->name, c.name);
}

int pool_load_catalog(struct pool *pool, struct error *err)
{
    struct load load = {.pool = pool, .err = err};
    struct map_walk walk = {.arg = &load, .node = count_node, .data = load_object, .unreadable = unreadable};
    int result = map_walk_tree(&pool->node_store, &pool->catalog_tree, &walk);
    return result == 0
               ? 0
               : error_set(err, result, "%s: reading the catalog failed: %s", pool->dev->name, strerror(-result));
}
