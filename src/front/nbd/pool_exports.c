/*
 * An open export is a reference to its volume: as long as a client is connected, the volume cannot be destroyed.
 *
 * The preferred block size is the record size: whole records are written without reading the old ones, and no trim or
 * zeroing below it gives space back. It is at most 1 MiB, the largest record, which the protocol allows.
 */
#include "front/nbd/pool_exports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "codec/codec.h"
#include "front/nbd/export.h"
#include "pool/pool.h"
#include "queue/queue.h"

#define PREFERRED_BYTES_MIN 4096

struct pool_exports {
    struct pool *pool;
    struct queue *queue;
    bool read_only;
};

struct export
{
    struct queue *queue;
    struct volume *volume;
};

int pool_exports_new(struct pool *pool, struct queue *queue, bool read_only, struct pool_exports **ret_exports)
{
    struct pool_exports *exports = malloc(sizeof *exports);
    if (exports == NULL)
        return -ENOMEM;
    *exports = (struct pool_exports){.pool = pool, .queue = queue, .read_only = read_only};
    *ret_exports = exports;
    return 0;
}

void pool_exports_free(struct pool_exports *exports)
{
    free(exports);
}

static void fill_entry(struct export_entry *entry, const struct volume_info *info)
{
    char size[16], record[16], codec[16];
    (void)snprintf(entry->name, sizeof entry->name, "%s", info->name);
    (void)snprintf(entry->description, sizeof entry->description, "%s volume, %s records, compression %s",
                   size_format(info->size_bytes, size, sizeof size),
                   size_format(info->record_bytes, record, sizeof record),
                   codec_choice_format(info->codec, codec, sizeof codec));
}

struct page {
    const char *after;
    struct export_entry *entries;
    size_t room, count;
};

static int add_to_page(void *arg, const struct volume_info *info)
{
    struct page *page = arg;
    if (strcmp(info->name, page->after) <= 0)
        return 0;
    if (page->count == page->room)
        return 1;
    fill_entry(&page->entries[page->count++], info);
    return 0;
}

static int exports_list(void *backend, const char *after, struct export_entry *ret_entries, size_t room,
                        size_t *ret_count)
{
    struct pool_exports *exports = backend;
    struct page page = {.after = after, .entries = ret_entries, .room = room};
    int ret = volume_list(exports->pool, add_to_page, &page);
    *ret_count = page.count;
    return ret < 0 ? ret : 0;
}

/* What "" stands for: the only volume. */
static int default_name(struct pool_exports *exports, char *ret_name, size_t room, struct error *err)
{
    struct export_entry entries[2];
    size_t count;
    int ret = exports_list(exports, "", entries, 2, &count);
    if (ret < 0)
        return error_set(err, ret, "cannot list the volumes: %s", strerror(-ret));
    if (count == 0)
        return error_set(err, -ENOENT, "the pool has no volume; make one: ashlar create POOL VOLUME SIZE");
    if (count > 1)
        return error_set(err, -ENOENT, "the pool has several volumes; name one of them, as %s", entries[0].name);
    (void)snprintf(ret_name, room, "%s", entries[0].name);
    return 0;
}

static int exports_open(void *backend, const char *name, struct export **ret_export, struct export_info *ret_info,
                        struct error *err)
{
    struct pool_exports *exports = backend;
    char only[EXPORT_NAME_BYTES];
    if (name[0] == '\0') {
        int ret = default_name(exports, only, sizeof only, err);
        if (ret < 0)
            return ret;
        name = only;
    }
    struct export *e = malloc(sizeof *e);
    if (e == NULL)
        return error_set(err, -ENOMEM, "no memory to open volume %s", name);
    int ret = volume_get(exports->pool, name, &e->volume, err);
    if (ret < 0) {
        free(e);
        return ret;
    }
    e->queue = exports->queue;
    struct volume_info info;
    volume_get_info(e->volume, &info);
    *ret_info = (struct export_info){.size_bytes = info.size_bytes,
                                     .block_bytes_preferred = (uint32_t)max_u64(PREFERRED_BYTES_MIN, info.record_bytes),
                                     .read_only = exports->read_only};
    fill_entry(&ret_info->entry, &info);
    *ret_export = e;
    return 0;
}

static void export_close(struct export *e)
{
    volume_put(e->volume);
    free(e);
}

static uint64_t export_size_bytes(struct export *e)
{
    return volume_size_bytes(e->volume);
}

static void export_submit(struct export *e, struct request *r)
{
    r->volume = e->volume;
    queue_submit(e->queue, r);
}

static void export_run(struct export *e, struct request *r)
{
    r->volume = e->volume;
    (void)request_run(r);
}

const struct export_ops *pool_export_ops(void)
{
    static const struct export_ops ops = {.list = exports_list,
                                          .open = exports_open,
                                          .close = export_close,
                                          .size_bytes = export_size_bytes,
                                          .submit = export_submit,
                                          .run = export_run};
    return &ops;
}
