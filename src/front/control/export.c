/*
 * export: a volume becomes a file, block device or stream.
 *
 * Holes of the volume, and zeroes in its data, stay holes in a file, become punched ranges of a block device and zeroes
 * in a stream. A volume that is in use is copied as it is read, range by range: that is no snapshot, and the result
 * says how many users there were.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "codec/codec.h"
#include "front/control/execute_impl.h"
#include "front/control/stream.h"
#include "pool/pool.h"
#include "volume/volume.h"

enum {
    CHUNK_BYTES = 1024 * 1024,
    ZERO_UNIT_BYTES = 32 * 1024, /* zeroes in data are looked for in units of this */
    EXTENT_ROOM = 256,
};

struct export
{
    const struct control_host *host;
    struct stream target;
    const char *name;
    struct volume *volume;
    uint64_t size_bytes, done_bytes, data_bytes;
    struct execute_meter meter;
    char *buffer;
    struct error *err;
};

static int export_keep_waiting(void *arg)
{
    struct export *x = arg;
    x->meter.told_ns = 0;
    return execute_meter_tell(&x->meter, x->done_bytes);
}

static int export_fail(struct export *x, int code, const char *doing)
{
    char at[16];
    size_format(x->done_bytes, at, sizeof(at));
    if (code == -ECANCELED)
        return error_set(x->err, code, "export of '%s': given up after %s", x->name, at);
    if (code == -EBADMSG || (code == -EIO && strcmp(doing, "reading the volume") == 0))
        return error_set(x->err, -EIO, "export of '%s': damaged data behind %s: see ashlar status and ashlar check",
                         x->name, at);
    return error_set(x->err, code, "export of '%s': %s behind %s: %s", x->name, doing, at, strerror(-code));
}

static int export_zeroes(struct export *x, uint64_t offset, uint64_t n)
{
    int r = 0;
    if (x->target.kind != STREAM_PIPE) {
        r = stream_zero(&x->target, offset, n);
        return r < 0 ? export_fail(x, r, "writing zeroes") : 0;
    }
    memset(x->buffer, 0, min_u64(n, CHUNK_BYTES));
    for (uint64_t done = 0; done < n && r == 0; done += CHUNK_BYTES) {
        r = stream_write(&x->target, 0, x->buffer, min_u64(n - done, CHUNK_BYTES));
        x->done_bytes = offset + min_u64(n, done + CHUNK_BYTES);
        if (r == 0)
            r = execute_meter_tell(&x->meter, x->done_bytes);
    }
    return r < 0 ? export_fail(x, r, "writing") : 0;
}

/* Writes what is in the buffer, the zeroes in it as zeroes. */
static int export_write(struct export *x, uint64_t offset, size_t n)
{
    if (x->target.kind == STREAM_PIPE) {
        int r = stream_write(&x->target, 0, x->buffer, n);
        x->data_bytes += n;
        return r < 0 ? export_fail(x, r, "writing") : 0;
    }
    for (size_t at = 0; at < n;) {
        size_t end = at;
        bool zero = bytes_are_zero(x->buffer + at, min_u64(ZERO_UNIT_BYTES, n - at));
        while (end < n && bytes_are_zero(x->buffer + end, min_u64(ZERO_UNIT_BYTES, n - end)) == zero)
            end += min_u64(ZERO_UNIT_BYTES, n - end);
        int r = zero ? stream_zero(&x->target, offset + at, end - at)
                     : stream_write(&x->target, offset + at, x->buffer + at, end - at);
        if (r < 0)
            return export_fail(x, r, "writing");
        x->data_bytes += zero ? 0 : end - at;
        at = end;
    }
    return 0;
}

static int export_data(struct export *x, uint64_t start, uint64_t end)
{
    while (start < end) {
        size_t n = min_u64(end - start, CHUNK_BYTES - start % CHUNK_BYTES);
        int r = volume_read(x->volume, start, x->buffer, n);
        if (r < 0)
            return export_fail(x, r, "reading the volume");
        r = export_write(x, start, n);
        if (r < 0)
            return r;
        start += n;
        x->done_bytes = start;
        r = execute_meter_tell(&x->meter, x->done_bytes);
        if (r < 0)
            return export_fail(x, r, "copying");
    }
    return 0;
}

static int export_copy(struct export *x)
{
    struct extent *extents = calloc(EXTENT_ROOM, sizeof(*extents));
    int r = extents == NULL ? error_set(x->err, -ENOMEM, "no memory for extents") : 0;
    for (uint64_t at = 0; r == 0 && at < x->size_bytes;) {
        size_t count = 0;
        r = volume_extents(x->volume, at, x->size_bytes - at, extents, EXTENT_ROOM, &count);
        if (r < 0) {
            export_fail(x, r, "reading the volume's map");
            break;
        }
        for (size_t i = 0; r == 0 && i < count; i++) {
            uint64_t end = at + extents[i].length_bytes;
            r = extents[i].kind == EXTENT_DATA ? export_data(x, at, end) : export_zeroes(x, at, end - at);
            at = end;
            x->done_bytes = end;
        }
        if (r == 0) {
            r = execute_meter_tell(&x->meter, x->done_bytes);
            if (r < 0)
                export_fail(x, r, "copying");
        }
    }
    free(extents);
    return r;
}

static int export_begin(struct export *x, unsigned *ret_users)
{
    struct volume_info info;
    int r = volume_get(x->host->pool, x->name, &x->volume, x->err);
    if (r < 0)
        return r;
    volume_get_info(x->volume, &info);
    *ret_users = info.users > 0 ? info.users - 1 : 0;
    x->size_bytes = info.size_bytes;
    x->meter = execute_meter_of(x->host, x->meter.call, x->size_bytes);
    if (x->target.kind == STREAM_BLOCK && x->target.size_bytes < x->size_bytes) {
        char need[16], have[16];
        return error_set(x->err, -ENOSPC, "export of '%s': the device holds %s, the volume is %s", x->name,
                         size_format_exact(x->target.size_bytes, have, sizeof(have)),
                         size_format_exact(x->size_bytes, need, sizeof(need)));
    }
    return 0;
}

/* The file gets its length at the end: until then a reader can tell that it is not complete. */
static int export_finish(struct export *x)
{
    int r = stream_set_size(&x->target, x->size_bytes);
    if (r < 0)
        return export_fail(x, r, "setting the length");
    r = stream_sync(&x->target);
    return r < 0 ? export_fail(x, r, "syncing the file") : 0;
}

int execute_export(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err)
{
    struct export x = {.host = host, .err = err, .meter = {.call = call}};
    unsigned users = 0;
    x.name = argument_text(a, "volume", 1);
    int r = arguments_done(a);
    if (r < 0)
        return r;
    r = stream_open(&x.target, call->fd, true, export_keep_waiting, &x, err);
    if (r < 0)
        return r;
    x.buffer = malloc(CHUNK_BYTES);
    r = x.buffer == NULL ? error_set(err, -ENOMEM, "no memory for a buffer") : export_begin(&x, &users);
    if (r == 0)
        r = export_copy(&x);
    if (r == 0)
        r = export_finish(&x);
    if (x.volume != NULL)
        volume_put(x.volume);
    free(x.buffer);
    stream_close(&x.target);
    if (r < 0)
        return r;
    return execute_result(json_pack("{s:s, s:s, s:I, s:I, s:f, s:I}", "pool", host->path, "volume", x.name, "bytes",
                                    (json_int_t)x.size_bytes, "data-bytes", (json_int_t)x.data_bytes, "seconds",
                                    execute_meter_seconds(&x.meter), "users", (json_int_t)users),
                          ret_result, err);
}
