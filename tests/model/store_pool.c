/*
 * A power cut of a running pool: the disk is switched off, so that nothing the pool still does reaches it, the pool is
 * closed (which frees its memory and fails, as it must), the cut decides what of the unflushed survives, and the pool
 * is opened on a fresh device.
 */
#include "model/store_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "base/prng.h"
#include "check/check.h"
#include "model/issued.h"
#include "model/labels.h"
#include "model/queue_call.h"
#include "pool/pool_test.h"

struct store_pool {
    struct store store;
    struct store_pool_options options;
    struct sim *sim;
    struct sim_disk *disk;
    struct pool *pool;
    struct queue *queue; /* with through_queue, while the pool is open */
    struct volume *volumes[STORE_VOLUMES];
    char names[STORE_VOLUMES][ORACLE_NAME_BYTES];
    bool off;             /* the power went */
    bool flush_fails;     /* one was told to */
    uint64_t off_at;      /* the device step at which it goes; 0: none */
    struct issued issued; /* with watch_addresses */
    uint64_t label_lost;  /* the number of the last one made unreadable */
    int close_result;
    struct text close_text;
    void (*function)(void *arg); /* run by the fiber */
    void *function_arg;
};

static struct store_pool *pool_of(struct store *s)
{
    return (struct store_pool *)s;
}

static int complain(struct text *why, const char *what, int result, const struct error *err)
{
    text_printf(why, "%s: %d %s", what, result, err->text);
    return result;
}

/* ---- opening and closing ---- */

static int engine_open(struct store_pool *p, struct text *why)
{
    const struct store_pool_options *o = &p->options;
    struct pool_options options = {.cache_bytes = o->cache_bytes == 0 ? 8 * MIB : o->cache_bytes,
                                   .worker_count = o->worker_count,
                                   .background = o->background,
                                   .read_only = o->read_only,
                                   .lose_damaged_log = o->lose_damaged_log,
                                   .rules_off = o->rules_off,
                                   .checkpoint_log_bytes = o->checkpoint_log_bytes};
    struct device *dev = sim_disk_open(p->disk, o->read_only);
    CHECK(dev != NULL);
    struct error err = {0};
    int r = pool_open(dev, &options, &p->pool, &err);
    if (r != 0)
        p->pool = NULL;
    else if (o->through_queue)
        CHECK_EQ(queue_new(sim_env(p->sim), 3, &p->queue), 0);
    return r == 0 ? 0 : complain(why, "pool_open", r, &err);
}

static void volumes_put(struct store_pool *p)
{
    for (size_t i = 0; i < STORE_VOLUMES; i++) {
        if (p->volumes[i] != NULL)
            volume_put(p->volumes[i]);
        p->volumes[i] = NULL;
    }
}

int store_pool_close(struct store *s, struct text *why)
{
    struct store_pool *p = pool_of(s);
    if (p->pool == NULL) {
        if (p->close_result != 0)
            text_printf(why, "%s", p->close_text.bytes);
        return p->close_result;
    }
    if (p->queue != NULL)
        queue_free(p->queue);
    p->queue = NULL;
    volumes_put(p);
    struct error err = {0};
    int r = pool_close(p->pool, &err);
    p->pool = NULL;
    return r == 0 ? 0 : complain(why, "pool_close", r, &err);
}

static int adopt(struct store *s, unsigned volume, const char *name)
{
    struct store_pool *p = pool_of(s);
    struct error err = {0};
    if (p->volumes[volume] != NULL)
        volume_put(p->volumes[volume]);
    p->volumes[volume] = NULL;
    int r = volume_get(p->pool, name, &p->volumes[volume], &err);
    if (r != 0)
        p->volumes[volume] = NULL;
    else if (name != p->names[volume])
        snprintf(p->names[volume], sizeof(p->names[volume]), "%s", name);
    return r;
}

int store_pool_open(struct store *s, struct text *why)
{
    struct store_pool *p = pool_of(s);
    int r = engine_open(p, why);
    for (unsigned i = 0; i < STORE_VOLUMES && r == 0; i++)
        if (p->names[i][0] != '\0')
            r = adopt(s, i, p->names[i]);
    return r;
}

static int pool_reopen(struct store *s, struct text *why)
{
    int r = store_pool_close(s, why);
    return r != 0 ? r : store_pool_open(s, why);
}

static int pool_crash(struct store *s, enum sim_loss loss, uint64_t seed, struct text *why)
{
    struct store_pool *p = pool_of(s);
    struct text expected = {0};
    sim_disk_switch_off(p->disk);
    (void)store_pool_close(s, &expected);
    text_free(&expected);
    sim_disk_power_cut(p->disk, loss, seed);
    p->off_at = 0;
    if (p->flush_fails) {
        /* If no flush met the fault, one that covers nothing does now. */
        struct device *dev = sim_disk_open(p->disk, false);
        (void)!device_flush(dev);
        device_close(dev);
    }
    p->off = p->flush_fails = false;
    memset(p->names, 0, sizeof(p->names));
    struct prng random;
    prng_seed(&random, seed);
    if (prng_chance(&random, p->options.label_loss_per_mille)) {
        uint64_t lost = labels_spoil_newest(p->disk, p->options.disk_bytes, p->label_lost, seed);
        p->label_lost = lost == 0 ? p->label_lost : lost;
    }
    return engine_open(p, why);
}

/* The hook of POKE_CUT_LATER and of watch_addresses. */
static void step_seen(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io)
{
    struct store_pool *p = arg;
    if (p->options.watch_addresses)
        issued_note(&p->issued, disk, p->options.segment_bytes, io);
    if (p->off_at == 0 || number < p->off_at)
        return;
    p->off = true;
    sim_disk_switch_off(disk);
}

static bool pool_is_off(struct store *s)
{
    return pool_of(s)->off || pool_of(s)->flush_fails;
}

static bool pool_finish(struct store *s, struct text *why)
{
    struct store_pool *p = pool_of(s);
    if (p->issued.twice) {
        text_printf(why, "a log address was issued twice");
        return false;
    }
    if (pool_is_off(s))
        return true;
    p->off_at = 0; /* a cut that was still to come does not come */
    return store_pool_close(s, why) == 0 && (p->options.unchecked || store_pool_check(p->disk, why));
}

static void fiber(void *arg)
{
    struct store_pool *p = arg;
    if (p->pool == NULL)
        p->close_result = engine_open(p, &p->close_text);
    if (p->pool != NULL)
        p->function(p->function_arg);
    if (p->pool != NULL)
        p->close_result = store_pool_close(&p->store, &p->close_text);
}

static void pool_run(struct store *s, void (*function)(void *arg), void *arg)
{
    struct store_pool *p = pool_of(s);
    if (!p->options.fibers) {
        function(arg);
        return;
    }
    p->function = function;
    p->function_arg = arg;
    sim_run(p->sim, fiber, p);
}

/* ---- volumes ---- */

static int pool_create_volume(struct store *s, unsigned volume, const char *name, uint64_t size_bytes,
                              uint32_t record_bytes, struct codec_choice codec)
{
    struct volume_settings settings = {.size_bytes = size_bytes, .record_bytes = record_bytes, .codec = codec};
    struct error err = {0};
    int r = volume_create(pool_of(s)->pool, name, &settings, &err);
    return r != 0 ? r : adopt(s, volume, name);
}

static int pool_destroy_volume(struct store *s, unsigned volume)
{
    struct store_pool *p = pool_of(s);
    struct error err = {0};
    volume_put(p->volumes[volume]);
    p->volumes[volume] = NULL;
    int r = volume_destroy(p->pool, p->names[volume], &err);
    if (r != 0)
        return adopt(s, volume, p->names[volume]) != 0 ? -ENOENT : r;
    p->names[volume][0] = '\0';
    return 0;
}

static int pool_rename_volume(struct store *s, unsigned volume, const char *name)
{
    struct store_pool *p = pool_of(s);
    struct error err = {0};
    int r = volume_rename(p->pool, p->names[volume], name, &err);
    if (r == 0)
        snprintf(p->names[volume], sizeof(p->names[volume]), "%s", name);
    return r;
}

static int pool_resize_volume(struct store *s, unsigned volume, uint64_t size_bytes)
{
    struct error err = {0};
    return volume_resize(pool_of(s)->pool, pool_of(s)->names[volume], size_bytes, &err);
}

static int pool_set_codec(struct store *s, unsigned volume, struct codec_choice codec)
{
    struct error err = {0};
    return volume_set_codec(pool_of(s)->pool, pool_of(s)->names[volume], codec, &err);
}

struct listing {
    struct oracle_found *list;
    size_t count, room;
};

static int listing_add(void *arg, const struct volume_info *info)
{
    struct listing *l = arg;
    if (l->count == l->room)
        return 1;
    struct oracle_found *f = &l->list[l->count++];
    *f = (struct oracle_found){.size_bytes = info->size_bytes, .record_bytes = info->record_bytes};
    snprintf(f->name, sizeof(f->name), "%.*s", (int)sizeof(f->name) - 1, info->name);
    return 0;
}

static size_t pool_list(struct store *s, struct oracle_found *ret_list, size_t room)
{
    struct listing l = {.list = ret_list, .room = room};
    (void)volume_list(pool_of(s)->pool, listing_add, &l);
    return l.count;
}

/* ---- data ---- */

/* Straight to the volume, or, with through_queue, as a front door would send it. */
static int call(struct store *s, struct request r, unsigned volume)
{
    struct store_pool *p = pool_of(s);
    r.volume = p->volumes[volume];
    if (p->queue != NULL)
        return queue_call(sim_env(p->sim), p->queue, &r);
    switch (r.kind) {
    case REQUEST_READ:
        return volume_readv(r.volume, r.offset_bytes, r.iov, r.iov_count);
    case REQUEST_WRITE:
        return volume_writev(r.volume, r.offset_bytes, r.iov, r.iov_count, r.flags);
    case REQUEST_TRIM:
        return volume_trim(r.volume, r.offset_bytes, r.length_bytes, r.flags);
    case REQUEST_ZERO:
        return volume_zero(r.volume, r.offset_bytes, r.length_bytes, r.flags);
    case REQUEST_FLUSH:
        return volume_flush(r.volume);
    case REQUEST_PREFETCH:
    case REQUEST_EXTENTS:
        break;
    }
    return -EINVAL;
}

static int pool_read(struct store *s, unsigned volume, uint64_t offset_bytes, void *ret_buf, uint64_t length_bytes)
{
    /* Two pieces, now and then: front doors have more than one buffer. */
    size_t first = length_bytes > 1 && offset_bytes % 3 == 0 ? length_bytes / 2 : length_bytes;
    struct iovec iov[2] = {{.iov_base = ret_buf, .iov_len = first},
                           {.iov_base = (uint8_t *)ret_buf + first, .iov_len = length_bytes - first}};
    return call(s,
                (struct request){.kind = REQUEST_READ,
                                 .offset_bytes = offset_bytes,
                                 .length_bytes = length_bytes,
                                 .iov = iov,
                                 .iov_count = first == length_bytes ? 1 : 2},
                volume);
}

static int pool_write(struct store *s, unsigned volume, uint64_t offset_bytes, const void *buf, uint64_t length_bytes,
                      unsigned flags)
{
    size_t first = length_bytes > 1 && offset_bytes % 3 == 0 ? length_bytes / 2 : length_bytes;
    uint8_t *bytes = (uint8_t *)(uintptr_t)buf;
    struct iovec iov[2] = {{.iov_base = bytes, .iov_len = first},
                           {.iov_base = bytes + first, .iov_len = length_bytes - first}};
    return call(s,
                (struct request){.kind = REQUEST_WRITE,
                                 .flags = flags & VOLUME_FUA,
                                 .offset_bytes = offset_bytes,
                                 .length_bytes = length_bytes,
                                 .iov = iov,
                                 .iov_count = first == length_bytes ? 1 : 2},
                volume);
}

static int pool_range(struct store *s, enum request_kind kind, unsigned volume, uint64_t offset_bytes,
                      uint64_t length_bytes, unsigned flags)
{
    return call(
        s, (struct request){.kind = kind, .flags = flags, .offset_bytes = offset_bytes, .length_bytes = length_bytes},
        volume);
}

static int pool_trim(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
{
    return pool_range(s, REQUEST_TRIM, volume, offset_bytes, length_bytes, flags & VOLUME_FUA);
}

static int pool_zero(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
{
    return pool_range(s, REQUEST_ZERO, volume, offset_bytes, length_bytes, flags);
}

static int pool_extents(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes,
                        struct extent *ret_extents, size_t room, size_t *ret_count)
{
    return volume_extents(pool_of(s)->volumes[volume], offset_bytes, length_bytes, ret_extents, room, ret_count);
}

static int pool_flush_volume(struct store *s, unsigned volume)
{
    return pool_range(s, REQUEST_FLUSH, volume, 0, 0, 0);
}

static int pool_flush_all(struct store *s)
{
    return pool_flush(pool_of(s)->pool);
}

static int pool_make_checkpoint(struct store *s)
{
    return pool_checkpoint(pool_of(s)->pool);
}

static int pool_poke(struct store *s, enum store_poke what, unsigned volume, uint64_t index)
{
    struct store_pool *p = pool_of(s);
    switch (what) {
    case POKE_WRITE_BACK:
        return pool_test_write_back(p->pool, p->volumes[volume], index);
    case POKE_SEAL:
        return pool_test_seal(p->pool);
    case POKE_EVICT:
        pool_test_evict(p->pool, p->volumes[volume], index);
        return 0;
    case POKE_REAP:
        pool_test_reap(p->pool);
        return 0;
    case POKE_SLEEP:
        env_sleep_ns(sim_env(p->sim), index % 8 * 30000);
        return 0;
    case POKE_FAIL_FLUSH:
        if (!p->flush_fails)
            sim_disk_fail(p->disk, DEVICE_FLUSH, 1, -EIO, false);
        p->flush_fails = true;
        return 0;
    case POKE_CUT_LATER:
        p->off_at = sim_disk_step_count(p->disk) + index;
        sim_disk_set_hook(p->disk, step_seen, p);
        return 0;
    }
    return -EINVAL;
}

static void pool_space(struct store *s, struct store_space *ret_space)
{
    struct pool_info info;
    pool_get_info(pool_of(s)->pool, &info);
    *ret_space = (struct store_space){.usable_bytes = info.usable_bytes,
                                      .free_bytes = info.free_bytes,
                                      .live_bytes = info.live_bytes,
                                      .pending_free_bytes = info.pending_free_bytes,
                                      .dead_bytes = info.dead_bytes,
                                      .reserved_bytes = info.reserved_bytes};
}

static void pool_free(struct store *s)
{
    struct store_pool *p = pool_of(s);
    struct text expected = {0};
    sim_disk_switch_off(p->disk);
    if (p->pool != NULL)
        (void)store_pool_close(s, &expected);
    text_free(&expected);
    sim_disk_free(p->disk);
    sim_free(p->sim);
    text_free(&p->close_text);
    issued_free(&p->issued);
    free(p);
}

/* ---- making ---- */

static struct store_pool *store_pool_alloc(const struct store_pool_options *options)
{
    static const struct store_ops ops = {.create = pool_create_volume,
                                         .destroy = pool_destroy_volume,
                                         .rename = pool_rename_volume,
                                         .resize = pool_resize_volume,
                                         .set_codec = pool_set_codec,
                                         .read = pool_read,
                                         .write = pool_write,
                                         .trim = pool_trim,
                                         .zero = pool_zero,
                                         .extents = pool_extents,
                                         .flush = pool_flush_volume,
                                         .flush_all = pool_flush_all,
                                         .checkpoint = pool_make_checkpoint,
                                         .poke = pool_poke,
                                         .reopen = pool_reopen,
                                         .crash = pool_crash,
                                         .list = pool_list,
                                         .adopt = adopt,
                                         .space = pool_space,
                                         .is_off = pool_is_off,
                                         .run = pool_run,
                                         .finish = pool_finish,
                                         .free = pool_free};
    struct store_pool *p = calloc(1, sizeof(*p));
    CHECK(p != NULL);
    p->store.ops = &ops;
    p->options = *options;
    if (p->options.segment_bytes == 0)
        p->options.segment_bytes = 64 * KIB;
    if (p->options.lookahead_count == 0)
        p->options.lookahead_count = 2;
    if (p->options.physical_sector_bytes == 0)
        p->options.physical_sector_bytes = 512;
    return p;
}

struct store *store_pool_new(const struct store_pool_options *options, struct text *why)
{
    struct store_pool *p = store_pool_alloc(options);
    p->sim = sim_new(options->seed);
    p->disk = sim_disk_new(p->sim, p->options.disk_bytes, p->options.physical_sector_bytes);
    struct pool_create_options create = {.segment_bytes = p->options.segment_bytes,
                                         .lookahead_count = p->options.lookahead_count};
    struct error err = {0};
    struct device *dev = sim_disk_open(p->disk, false);
    CHECK(dev != NULL);
    int r = pool_create(dev, &create, &err);
    device_close(dev);
    if (r != 0)
        complain(why, "pool_create", r, &err);
    else if (!options->fibers)
        r = engine_open(p, why);
    if (options->watch_addresses)
        sim_disk_set_hook(p->disk, step_seen, p);
    if (r == 0)
        return &p->store;
    pool_free(&p->store);
    return NULL;
}

struct store *store_pool_from_image(const struct store_pool_options *options, const struct sim_image *image, int loss,
                                    uint64_t seed, sim_disk_hook hook, void *hook_arg, struct text *why)
{
    struct store_pool *p = store_pool_alloc(options);
    p->sim = sim_new(seed);
    p->disk = sim_disk_from_image(p->sim, image);
    if (loss >= 0)
        sim_disk_power_cut(p->disk, (enum sim_loss)loss, seed);
    if (hook != NULL)
        sim_disk_set_hook(p->disk, hook, hook_arg);
    if (engine_open(p, why) == 0)
        return &p->store;
    pool_free(&p->store);
    return NULL;
}

struct sim *store_pool_sim(struct store *s)
{
    return pool_of(s)->sim;
}

struct sim_disk *store_pool_disk(struct store *s)
{
    return pool_of(s)->disk;
}

struct pool *store_pool_pool(struct store *s)
{
    return pool_of(s)->pool;
}

struct volume *store_pool_volume(struct store *s, unsigned volume)
{
    return pool_of(s)->volumes[volume];
}

void store_pool_repair(struct sim_disk *disk)
{
    struct device *dev = sim_disk_open(disk, false);
    struct check_options options = {.repair = true};
    struct check_report *report = NULL;
    struct error err = {0};
    CHECK(dev != NULL);
    if (check_run(dev, &options, &report, &err) == 0)
        check_report_free(report);
    device_close(dev);
}

bool store_pool_check(struct sim_disk *disk, struct text *why)
{
    struct device *dev = sim_disk_open(disk, true);
    CHECK(dev != NULL);
    struct check_options options = {0};
    struct check_report *report = NULL;
    struct error err = {0};
    int r = check_run(dev, &options, &report, &err);
    device_close(dev);
    if (r != 0) {
        complain(why, "check_run", r, &err);
        return false;
    }
    bool clean = check_report_is_clean(report);
    if (!clean) {
        text_printf(why, "check is not clean: ");
        check_report_print(report, why);
    }
    check_report_free(report);
    return clean;
}
