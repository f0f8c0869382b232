/*
 * ashlar create POOL --size SIZE
 *
 * What must not happen is that something is lost: a file that holds a byte is refused, a block device that holds one in
 * its first MiB needs --force, one that is mounted or otherwise in use is refused. What fails leaves no file behind.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "cli/create.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "codec/codec.h"
#include "env/device.h"
#include "front/control/message.h"
#include "front/control/property.h"
#include "pool/pool.h"

#define PROBE_BYTES MIB

/* What is at the path, and what to do with it. */
struct place {
    const char *path;
    bool exists, is_block_device;
    bool has_size;
    uint64_t size_bytes; /* asked for */
};

static int place_find(const struct invocation *in, struct place *ret_place, struct error *err)
{
    struct place *p = ret_place;
    struct stat st;
    *p = (struct place){.path = in->operands[0]};
    const char *size = invocation_value(in, "size");
    if (size != NULL) {
        int r = size_parse(size, "--size", &p->size_bytes, err);
        if (r < 0)
            return r;
        if (p->size_bytes == 0)
            return error_set(err, -EINVAL, "--size: a pool of 0 bytes holds nothing");
        p->has_size = true;
    }
    p->exists = stat(p->path, &st) == 0;
    if (!p->exists && errno != ENOENT)
        return error_set(err, -errno, "'%s': %s", p->path, strerror(errno));
    p->is_block_device = p->exists && S_ISBLK(st.st_mode);
    if (!p->has_size && !p->is_block_device)
        return error_set(err, -EINVAL, "create: say how large the pool may grow: ashlar create %s --size 100G",
                         p->path);
    return 0;
}

/* Refuses what would lose something. */
static int place_check(const struct place *p, bool force, struct error *err)
{
    struct stat st;
    if (!p->exists || stat(p->path, &st) < 0)
        return 0;
    if (S_ISBLK(st.st_mode))
        return 0; /* looked at when it is open */
    if (!S_ISREG(st.st_mode))
        return error_set(err, -EEXIST, "'%s' exists and is neither a file nor a block device", p->path);
    if (st.st_size > 0) {
        char size[16];
        return error_set(
            err, -EEXIST, "'%s' exists and holds %s; nothing was changed: remove it or choose another name%s", p->path,
            size_format((uint64_t)st.st_size, size, sizeof(size)), force ? " (--force is for block devices)" : "");
    }
    return 0;
}

static int device_check(struct device *dev, const struct place *p, bool force, struct error *err)
{
    char have[16], want[16];
    uint64_t size_bytes = dev->info.size_bytes;
    size_format_exact(size_bytes, have, sizeof(have));
    size_format_exact(p->size_bytes, want, sizeof(want));
    if (p->has_size && p->size_bytes > size_bytes)
        return error_set(err, -EINVAL, "'%s' is too small: it holds %s, not %s", p->path, have, want);
    if (p->has_size && round_up(p->size_bytes, DEVICE_ALIGN_BYTES) < size_bytes)
        return error_set(err, -EINVAL, "'%s': a block device is taken whole, all %s: leave --size out", p->path, have);
    size_t probe_bytes = min_u64(PROBE_BYTES, size_bytes);
    void *probe = device_buffer_new(PROBE_BYTES);
    if (probe == NULL)
        return error_set(err, -ENOMEM, "no memory to look at '%s'", p->path);
    int r = probe_bytes > 0 ? device_read(dev, 0, probe, probe_bytes) : 0;
    if (r < 0)
        error_set(err, r, "reading '%s': %s", p->path, strerror(-r));
    else if (!force && probe_bytes > 0 && !bytes_are_zero(probe, probe_bytes))
        r = error_set(err, -EEXIST, "'%s' is not empty; --force makes a pool and loses what is on it", p->path);
    device_buffer_free(probe);
    return r;
}

static int place_open(const struct place *p, bool force, struct device **ret_dev, struct error *err)
{
    uint64_t size_bytes = round_up(min_u64(p->size_bytes, INT64_MAX - DEVICE_ALIGN_BYTES), DEVICE_ALIGN_BYTES);
    if (!p->exists)
        return device_open(env_os(), p->path, DEVICE_OPEN_CREATE, size_bytes, ret_dev, err);
    struct device *dev;
    int r = device_open(env_os(), p->path, 0, 0, &dev, err);
    if (r < 0)
        return r;
    if (p->is_block_device) {
        r = device_check(dev, p, force, err);
    } else if (dev->info.size_bytes > 0) {
        r = error_set(err, -EEXIST, "'%s' was written to by somebody else; nothing was changed", p->path);
    } else {
        r = device_resize(dev, size_bytes);
        if (r < 0)
            error_set(err, r, "'%s' cannot be made %llu bytes long: %s", p->path, (unsigned long long)size_bytes,
                      strerror(-r));
    }
    if (r < 0)
        device_close(dev);
    else
        *ret_dev = dev;
    return r;
}

static int take_options(const struct invocation *in, struct pool_create_options *options, struct error *err)
{
    json_t *properties, *value;
    const char *name;
    int r = invocation_properties(in, &properties, err);
    if (r < 0)
        return r;
    json_object_foreach(properties, name, value)
    {
        if (r == 0)
            r = property_set_pool_at_create(name, json_string_value(value), options, err);
    }
    json_decref(properties);
    return r;
}

static void print_pool(const struct invocation *in, const struct device_info *info)
{
    char size[16], path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", in->operands[0]);
    control_text_clean(path);
    if (in->json) {
        json_t *result = json_pack("{s:s, s:I}", "pool", path, "size", (json_int_t)info->size_bytes);
        output_json(result);
        json_decref(result);
        return;
    }
    printf("%s: a pool of %s; next, a volume: ashlar create %s NAME 10G\n", in->operands[0],
           size_format_exact(info->size_bytes, size, sizeof(size)), in->operands[0]);
}

int create_pool_run(const struct invocation *in)
{
    struct error err = {0};
    struct place place;
    struct device *dev = NULL;
    struct pool_create_options options = {0};
    struct progress progress;
    char what[64];
    bool force = invocation_flag(in, "force");
    if (take_options(in, &options, &err) < 0 || place_find(in, &place, &err) < 0)
        return output_error(in, &err, EXIT_USAGE);
    int r = place_check(&place, force, &err);
    if (r == 0)
        r = place_open(&place, force, &dev, &err);
    if (r < 0)
        return output_error(in, &err, EXIT_FAILED);
    snprintf(what, sizeof(what), "create %.40s", in->operands[0]);
    progress_begin(&progress, what, PROGRESS_SIGNALS_KILL);
    r = pool_create(dev, &options, &err);
    progress_end(&progress);
    if (r < 0 && !place.exists)
        (void)unlink(place.path);
    else if (r < 0 && !place.is_block_device && device_resize(dev, 0) < 0)
        fprintf(stderr, "ashlar: '%s' could not be emptied again\n", place.path);
    struct device_info info = dev->info;
    device_close(dev);
    if (r < 0)
        return output_error(in, &err, EXIT_FAILED);
    print_pool(in, &info);
    return EXIT_DONE;
}
