/*
 * Every 4 KiB of a small pool overwritten with noise in turn, labels, catalog, slot table, map nodes and chunk headers
 * included: the pool opens (after `check --repair` where that is needed), at most the records stored in those 4 KiB are
 * lost, each loss is named by volume and range, and everything else reads right.
 *
 * Twice: a pool that was closed, and one whose power was cut with a log to replay.
 */
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/check.h"
#include "format/limits.h"
#include "model/driver.h"
#include "seed.h"
#include "sim/log_scan.h"
#include "sim/rig.h"

#define PAGE 4096

static const struct profile profile = {
    .weights = {[OP_WRITE] = 60, [OP_FLUSH] = 6, [OP_TRIM] = 8, [OP_ZERO] = 4, [OP_CHECKPOINT] = 3},
    .volume_count = 2,
    .record_bytes = {4096, 8192},
    .size_bytes = {160 * 1024, 256 * 1024},
    .length_max_bytes = 48 * 1024,
    .fua_per_mille = 200,
    .half_record_per_mille = 200,
};

static uint64_t seed;

struct sweep {
    struct store_pool_options options;
    struct store *s;
    struct oracle *o;
    struct sim_image *image;
    struct log_scan scan;
    uint64_t branch[ORACLE_VOLUMES];
    char names[ORACLE_VOLUMES][ORACLE_NAME_BYTES];
    uint64_t pages, harmless, repaired, lost_records;
};

static bool sweep_prepare(struct sweep *w, bool closed, struct text *why)
{
    struct history h;
    struct history_stats stats = {0};
    *w = (struct sweep){
        .options = {.disk_bytes = 6 * MIB, .segment_bytes = 128 * KIB, .lookahead_count = 2, .seed = seed},
        .o = oracle_new()};
    w->s = store_pool_new(&w->options, why);
    if (w->s == NULL)
        return false;
    struct driver *d = driver_new(&profile, w->s, w->o, &stats);
    history_make(&h, &profile, seed, 150);
    bool good = driver_create_all(d, why);
    for (size_t i = 0; i < h.count && good; i++)
        good = driver_step(d, &h.ops[i], why);
    good = good && driver_step(d, &(struct op){.kind = closed ? OP_CHECKPOINT : OP_FLUSH_ALL}, why);
    for (uint64_t i = 0; i < 2 && good; i++)
        good = driver_step(d, &(struct op){.kind = OP_WRITE, .flags = VOLUME_FUA, .shape = SHAPE_SECTORS, .stamp = i},
                           why);
    driver_free(d);
    history_free(&h);
    for (unsigned v = 0; v < profile.volume_count && good; v++) {
        struct volume_info info;
        volume_get_info(store_pool_volume(w->s, v), &info);
        w->branch[v] = info.branch;
        snprintf(w->names[v], sizeof(w->names[v]), "v%u", v);
    }
    if (good && closed)
        good = store_pool_close(w->s, why) == 0;
    w->image = sim_disk_image(store_pool_disk(w->s));
    log_scan_disk(&w->scan, store_pool_disk(w->s), w->options.disk_bytes);
    return good;
}

static void sweep_free(struct sweep *w)
{
    sim_image_free(w->image);
    log_scan_free(&w->scan);
    if (w->s != NULL)
        w->s->ops->free(w->s);
    oracle_free(w->o);
}

static struct check_report *check_disk(struct sim_disk *disk, bool repair, struct text *why)
{
    struct device *dev = sim_disk_open(disk, !repair);
    struct check_options options = {.repair = repair};
    struct check_report *report = NULL;
    struct error err = {0};
    int r = check_run(dev, &options, &report, &err);
    if (r != 0)
        text_printf(why, "check: %d %s", r, err.text);
    device_close(dev);
    return r == 0 ? report : NULL;
}

/* Does a problem of the report name that byte of the volume? */
static bool report_names(const struct check_report *report, const char *volume, uint64_t offset)
{
    size_t count;
    const struct check_problem *list = check_report_problems(report, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].volume, volume) == 0 && offset - list[i].offset_bytes < list[i].length_bytes)
            return true;
    return false;
}

static bool damage_names(struct store *s, const char *volume, uint64_t offset)
{
    static struct pool_damage list[256];
    size_t count = pool_get_damage(store_pool_pool(s), list, 256);
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].volume, volume) == 0 && offset >= list[i].offset_bytes &&
            offset < list[i].offset_bytes + list[i].length_bytes)
            return true;
    return false;
}

/* The record has a lost sector: it was stored in the page, and check and the pool's list name the sector. */
static bool loss_explained(struct sweep *w, struct store *s, unsigned v, uint64_t sector, uint64_t page,
                           const struct check_report *report, struct text *why)
{
    uint64_t at = sector * SECTOR_BYTES, record = at / profile.record_bytes[v];
    const char *fault = !log_scan_holds(&w->scan, page, PAGE, w->branch[v], record) ? "was not stored there"
                        : !report_names(report, w->names[v], at)                    ? "is not named by check"
                        : !damage_names(s, w->names[v], at)                         ? "is not in the list of damages"
                                                                                    : NULL;
    if (fault != NULL)
        text_printf(why, "sector %llu of volume %u is lost and %s", (unsigned long long)sector, v, fault);
    return fault == NULL;
}

static bool losses_explained(struct sweep *w, struct store *s, const struct recovered *r, uint64_t page,
                             const struct check_report *report, struct text *why)
{
    for (unsigned v = 0; v < profile.volume_count; v++) {
        uint64_t last_record = UINT64_MAX;
        for (uint64_t i = 0; r->exists[v] && i < r->found[v].size_bytes / SECTOR_BYTES; i++) {
            if (r->values[v][i] != ORACLE_LOST)
                continue;
            uint64_t record = i * SECTOR_BYTES / profile.record_bytes[v];
            w->lost_records += record != last_record;
            last_record = record;
            if (!loss_explained(w, s, v, i, page, report, why))
                return false;
        }
    }
    return true;
}

/*
 * The log's newest chunks, above what the newest of them knows durable, cannot be told from a torn tail when they are
 * damaged: no store that writes one copy could. They are left out of the sweep.
 */
static bool page_is_tail(const struct sweep *w, uint64_t page)
{
    const struct scanned_chunk *newest = NULL;
    for (size_t i = 0; i < w->scan.count; i++) {
        const struct scanned_chunk *c = &w->scan.chunks[i];
        if (c->header.head == CHUNK_HEAD_DATA && (newest == NULL || c->header.address > newest->header.address))
            newest = c;
    }
    for (size_t i = 0; i < w->scan.count; i++) {
        const struct scanned_chunk *c = &w->scan.chunks[i];
        if (c->header.head == CHUNK_HEAD_DATA && c->header.address >= newest->header.durable_to &&
            page < c->offset_bytes + c->header.chunk_bytes && page + PAGE > c->offset_bytes)
            return true;
    }
    return false;
}

/* The damaged disk: a pool on it has to hold, where need be after a repair. */
static bool damaged_disk_holds(struct sweep *w, struct sim_disk *disk, uint64_t page, struct text *why)
{
    struct text refusal = {0};
    struct check_report *report = check_disk(disk, false, why);
    bool good = report != NULL;
    struct sim_image *image = sim_disk_image(disk);
    struct store *s = store_pool_from_image(&w->options, image, SIM_LOSS_NONE, 1, NULL, NULL, &refusal);
    if (s == NULL && good) {
        sim_image_free(image);
        check_report_free(report);
        report = check_disk(disk, true, why);
        image = sim_disk_image(disk);
        s = store_pool_from_image(&w->options, image, SIM_LOSS_NONE, 1, NULL, NULL, why);
        w->repaired++;
        good = s != NULL && report != NULL;
        if (!good)
            text_printf(why, " (refused at first: %s)", refusal.bytes);
    }
    struct recovered r = {0};
    good = good && recovered_check(s, w->o, true, &r, why) && losses_explained(w, s, &r, page, report, why);
    if (good && r.lost_sectors == 0 && s != NULL) {
        w->harmless++;
        good = store_pool_close(s, why) == 0;
    }
    recovered_free(&r);
    if (s != NULL)
        s->ops->free(s);
    sim_image_free(image);
    check_report_free(report);
    text_free(&refusal);
    return good;
}

static bool page_holds(struct sweep *w, uint64_t page, struct text *why)
{
    struct sim *sim = sim_new(page);
    struct sim_disk *disk = sim_disk_from_image(sim, w->image);
    sim_disk_power_cut(disk, SIM_LOSS_ALL, 1);
    sim_disk_corrupt(disk, page, PAGE, NULL, page + seed);
    bool good = damaged_disk_holds(w, disk, page, why);
    sim_disk_free(disk);
    sim_free(sim);
    return good;
}

static void sweep_all(bool closed)
{
    struct sweep w;
    struct text why = {0};
    bool prepared = sweep_prepare(&w, closed, &why);
    EXPECT(prepared);
    unsigned failures = 0;
    for (uint64_t page = 0; prepared && page < w.options.disk_bytes && failures < 10; page += PAGE) {
        if (!closed && page_is_tail(&w, page))
            continue;
        w.pages++;
        bool good = page_holds(&w, page, &why);
        EXPECT(good);
        if (good)
            continue;
        failures++;
        printf("# page at %" PRIu64 ": %s\n", page, why.bytes);
        for (size_t i = 0; i < w.scan.count; i++) {
            const struct scanned_chunk *c = &w.scan.chunks[i];
            if (page < c->offset_bytes + c->header.chunk_bytes && page + PAGE > c->offset_bytes)
                printf("#   there: chunk of head %u, address %" PRIu64 ", %" PRIu32 " bytes, %" PRIu32
                       " entries, durable to %" PRIu64 "\n",
                       c->header.head, c->header.address, c->header.chunk_bytes, c->header.entry_count,
                       c->header.durable_to);
        }
        text_free(&why);
    }
    printf("# %" PRIu64 " pages, %" PRIu64 " harmless, %" PRIu64 " repaired first, %" PRIu64 " records lost in all\n",
           w.pages, w.harmless, w.repaired, w.lost_records);
    EXPECT(w.lost_records > 0);
    text_free(&why);
    sweep_free(&w);
}

static void test_closed_pool(void)
{
    sweep_all(true);
}

static void test_pool_with_a_log_to_replay(void)
{
    sweep_all(false);
}

int main(void)
{
    seed = seed_choose();
    RUN(test_closed_pool);
    RUN(test_pool_with_a_log_to_replay);
    return tap_done();
}
