/*
 * import: a file, block device or stream becomes a volume.
 *
 * A new volume is filled under the name NAME.importing and gets its own name when it is complete and durable, so that
 * what was cut short, by whatever, is never taken for the whole. Holes of the source are skipped; zeroes in its data
 * become holes in the engine. A stream has no size: its volume doubles as it comes and is cut to measure at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "format/catalog.h"
#include "format/limits.h"
#include "front/control/execute_impl.h"
#include "front/control/stream.h"
#include "pool/pool.h"
#include "volume/volume.h"

enum { CHUNK_BYTES = 1024 * 1024 };
#define STREAM_FIRST_BYTES (64 * MIB)
#define SUFFIX ".importing"

struct import {
    const struct control_host *host;
    struct control_call *call;
    struct stream source;
    const char *name;
    char working_name[VOLUME_NAME_BYTES_MAX + 1]; /* what it is called while it is filled */
    bool created;
    struct volume *volume;
    uint64_t volume_bytes; /* its size now */
    uint64_t done_bytes;   /* of the source, holes included */
    uint64_t data_bytes;   /* of it, written */
    struct execute_meter meter;
    char *buffer;
    struct error *err;
};

static int import_keep_waiting(void *arg)
{
    struct import *m = arg;
    m->meter.told_ns = 0;
    return execute_meter_tell(&m->meter, m->done_bytes);
}

static int import_fail(struct import *m, int code)
{
    char done[16];
    size_format(m->done_bytes, done, sizeof(done));
    const char *kept = m->created ? "; nothing of it was kept" : "; the volume holds what came so far";
    if (code == -ENOSPC)
        return error_set(m->err, code, "import into '%s': the pool is full after %s%s", m->name, done, kept);
    if (code == -ECANCELED)
        return error_set(m->err, code, "import into '%s': given up after %s%s", m->name, done, kept);
    return error_set(m->err, code, "import into '%s': after %s: %s%s", m->name, done, strerror(-code), kept);
}

/* Makes sure that the volume reaches to end. */
static int import_room(struct import *m, uint64_t end)
{
    if (end <= m->volume_bytes)
        return 0;
    char have[16];
    if (!m->created)
        return error_set(m->err, -EFBIG, "import into '%s': the input is longer than its %s: ashlar resize first",
                         m->name, size_format_exact(m->volume_bytes, have, sizeof(have)));
    uint64_t size_bytes = m->volume_bytes;
    while (size_bytes < end)
        size_bytes *= 2;
    int r = volume_resize(m->host->pool, m->working_name, min_u64(size_bytes, VOLUME_BYTES_MAX), m->err);
    if (r == 0)
        m->volume_bytes = size_bytes;
    return r;
}

static int import_write(struct import *m, uint64_t offset, size_t n)
{
    int r = import_room(m, offset + n);
    if (r < 0)
        return r;
    r = volume_write(m->volume, offset, m->buffer, n, 0);
    if (r < 0)
        return import_fail(m, r);
    m->done_bytes = offset + n;
    m->data_bytes += n;
    r = execute_meter_tell(&m->meter, m->done_bytes);
    return r < 0 ? import_fail(m, r) : 0;
}

/* A range that reads as zeroes: nothing to do in a new volume. */
static int import_zero(struct import *m, uint64_t start, uint64_t end)
{
    int r = m->created || start >= end ? 0 : volume_trim(m->volume, start, end - start, 0);
    return r < 0 ? import_fail(m, r) : 0;
}

static int import_pipe(struct import *m)
{
    for (uint64_t offset = 0;;) {
        int64_t n = stream_read(&m->source, offset, m->buffer, CHUNK_BYTES);
        if (n < 0)
            return import_fail(m, (int)n);
        if (n == 0)
            return m->call->confirm != NULL && m->call->confirm(m->call->arg) != 0 ? import_fail(m, -ECANCELED) : 0;
        int r = import_write(m, offset, (size_t)n);
        if (r < 0)
            return r;
        offset += (uint64_t)n;
    }
}

static int import_data(struct import *m, uint64_t start, uint64_t end)
{
    while (start < end) {
        /* Chunks end on multiples of the chunk, so that every record is written whole. */
        size_t wanted = min_u64(end - start, CHUNK_BYTES - start % CHUNK_BYTES);
        int64_t n = stream_read(&m->source, start, m->buffer, wanted);
        if (n >= 0 && (size_t)n < wanted)
            return error_set(m->err, -EIO, "import into '%s': the input became shorter while it was read", m->name);
        int r = n < 0 ? import_fail(m, (int)n) : import_write(m, start, wanted);
        if (r < 0)
            return r;
        start += wanted;
    }
    return 0;
}

static int import_file(struct import *m)
{
    uint64_t at = 0, size_bytes = m->source.size_bytes;
    while (at < size_bytes) {
        uint64_t start, end;
        int r = stream_next_data(&m->source, at, &start, &end);
        if (r < 0)
            return import_fail(m, r);
        r = import_zero(m, at, start);
        if (r == 0)
            r = import_data(m, start, end);
        if (r < 0)
            return r;
        at = end;
        m->done_bytes = end;
    }
    return 0;
}

static int import_copy(struct import *m)
{
    int r = m->source.kind == STREAM_PIPE ? import_pipe(m) : import_file(m);
    if (r == 0)
        r = import_zero(m, m->done_bytes, m->volume_bytes); /* what is behind the input */
    if (r == 0) {
        r = volume_flush(m->volume);
        if (r < 0)
            import_fail(m, r);
    }
    return r;
}

/* ---- the volume ---- */

static int import_create(struct import *m, const json_t *properties)
{
    struct volume_settings settings;
    int r = execute_settings(properties, &settings, m->err);
    if (r < 0)
        return r;
    settings.size_bytes =
        m->source.kind == STREAM_PIPE ? STREAM_FIRST_BYTES : round_up(m->source.size_bytes, SECTOR_BYTES);
    snprintf(m->working_name, sizeof(m->working_name), "%.*s" SUFFIX, VOLUME_NAME_BYTES_MAX - (int)strlen(SUFFIX),
             m->name);
    r = volume_create(m->host->pool, m->working_name, &settings, m->err);
    if (r == -EEXIST && m->err != NULL)
        snprintf(m->err->text, sizeof(m->err->text),
                 "volume '%.230s' is there from an import that runs or was cut short: destroy it first",
                 m->working_name);
    if (r < 0)
        return r;
    m->created = true;
    m->volume_bytes = settings.size_bytes;
    return 0;
}

static int import_overwrite(struct import *m, const json_t *properties, bool force)
{
    struct volume_info info;
    if (!force)
        return error_set(m->err, -EEXIST, "volume '%s' exists already; --force overwrites what it holds", m->name);
    volume_get_info(m->volume, &info);
    if (info.users > 1) /* this one included */
        return execute_busy(m->host, m->name, info.users - 1, "disconnect first", m->err);
    if (properties != NULL && json_object_size(properties) > 0)
        return error_set(m->err, -EINVAL, "volume '%s' exists already: -o is for new volumes; see ashlar set", m->name);
    m->volume_bytes = info.size_bytes;
    if (m->source.kind != STREAM_PIPE && m->source.size_bytes > info.size_bytes) {
        char have[16], need[16];
        return error_set(m->err, -EFBIG, "volume '%s' holds %s, the input is %s: ashlar resize first", m->name,
                         size_format_exact(info.size_bytes, have, sizeof(have)),
                         size_format_exact(m->source.size_bytes, need, sizeof(need)));
    }
    return 0;
}

static int import_begin(struct import *m, const json_t *properties, bool force)
{
    int r = volume_name_check(m->name, m->err);
    if (r < 0)
        return r;
    if (m->source.kind != STREAM_PIPE && m->source.size_bytes == 0)
        return error_set(m->err, -EINVAL, "import into '%s': the input is empty", m->name);
    if (m->source.size_bytes > VOLUME_BYTES_MAX)
        return error_set(m->err, -EFBIG, "import into '%s': the input is larger than a volume may be", m->name);
    snprintf(m->working_name, sizeof(m->working_name), "%s", m->name);
    if (volume_get(m->host->pool, m->name, &m->volume, NULL) == 0)
        return import_overwrite(m, properties, force);
    r = import_create(m, properties);
    return r < 0 ? r : volume_get(m->host->pool, m->working_name, &m->volume, m->err);
}

/* Cuts a stream's volume to measure and gives a new volume its name; or removes it. */
static int import_end(struct import *m, int r)
{
    if (m->volume != NULL)
        volume_put(m->volume);
    m->volume = NULL;
    if (!m->created)
        return r;
    uint64_t size_bytes = round_up(m->done_bytes, SECTOR_BYTES);
    if (r == 0 && size_bytes == 0)
        r = error_set(m->err, -EINVAL, "import into '%s': the input is empty", m->name);
    if (r == 0 && size_bytes != m->volume_bytes)
        r = volume_resize(m->host->pool, m->working_name, size_bytes, m->err);
    if (r == 0)
        r = volume_rename(m->host->pool, m->working_name, m->name, m->err);
    if (r == 0) {
        m->volume_bytes = size_bytes;
        return 0;
    }
    struct error second = {0}; /* the first one is to be told */
    int removed = volume_destroy(m->host->pool, m->working_name, &second);
    (void)removed; /* a pool that failed cannot: the name says what it is */
    return r;
}

int execute_import(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
                   struct error *err)
{
    struct import m = {.host = host, .call = call, .err = err};
    m.name = argument_text(a, "volume", 1);
    const json_t *properties = argument_texts(a, "properties");
    bool force = argument_flag(a, "force");
    int r = arguments_done(a);
    if (r < 0)
        return r;
    r = stream_open(&m.source, call->fd, false, import_keep_waiting, &m, err);
    if (r < 0)
        return r;
    m.meter = execute_meter_of(host, call, m.source.size_bytes);
    m.buffer = malloc(CHUNK_BYTES);
    r = m.buffer == NULL ? error_set(err, -ENOMEM, "no memory for a buffer") : import_begin(&m, properties, force);
    if (r == 0)
        r = import_copy(&m);
    r = import_end(&m, r);
    free(m.buffer);
    stream_close(&m.source);
    if (r < 0)
        return r;
    return execute_result(json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:f}", "pool", host->path, "volume", m.name,
                                    "created", (int)m.created, "size", (json_int_t)m.volume_bytes, "bytes",
                                    (json_int_t)m.done_bytes, "data-bytes", (json_int_t)m.data_bytes, "seconds",
                                    execute_meter_seconds(&m.meter)),
                          ret_result, err);
}
