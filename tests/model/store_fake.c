/*
 * Each volume has its bytes as they read now, its bytes as a power cut would leave them (durable), and a journal: what
 * was done since the last flush, in order, record by record, as whole sectors. At a power cut each element of the
 * journal happened or not, by chance; one with FUA did. The promises allow every outcome of that.
 */
#include "model/store_fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"
#include "format/limits.h"

#define FAKE_VOLUME_BYTES ((uint64_t)128 * 1024)

struct element {
    struct element *next;
    uint64_t offset, length;
    bool must, is_trim;
    uint8_t bytes[];
};

struct fake_volume {
    bool exists, destroyed_once;
    char name[ORACLE_NAME_BYTES], old_name[ORACLE_NAME_BYTES];
    uint64_t size, old_size;
    uint32_t record;
    uint8_t *now, *durable, *before; /* before: the durable bytes before the last flush */
    bool *provisioned;
    struct element *first, **last;
};

struct fake {
    struct store store;
    enum lie lie;
    struct prng random;
    struct fake_volume volumes[STORE_VOLUMES];
};

static const char *const lie_names[LIE_COUNT] = {
    "none",          "lost flush",      "lost FUA",     "torn record",      "stale read",       "resurrected trim",
    "order",         "older value",     "rot",          "data as hole",     "kept trim",        "provision as hole",
    "trim too long", "write too short", "false ENOSPC", "forgotten resize", "forgotten rename", "lost volume",
    "volume back",   "tail back",
};

const char *lie_name(enum lie lie)
{
    return lie_names[lie];
}

static struct fake *fake_of(struct store *s)
{
    return (struct fake *)s;
}

static void journal_clear(struct fake_volume *v)
{
    while (v->first != NULL) {
        struct element *e = v->first;
        v->first = e->next;
        free(e);
    }
    v->last = &v->first;
}

/* Notes that the range of v->now changed: one element a record, whole sectors. */
static void journal_add(struct fake_volume *v, uint64_t offset, uint64_t length, bool must, bool is_trim)
{
    uint64_t end = round_up(offset + length, SECTOR_BYTES);
    for (uint64_t at = round_down(offset, SECTOR_BYTES); at < end;) {
        uint64_t part = min_u64(end, round_down(at, v->record) + v->record) - at;
        struct element *e = calloc(1, sizeof(*e) + part);
        CHECK(e != NULL);
        *e = (struct element){.offset = at, .length = part, .must = must, .is_trim = is_trim};
        memcpy(e->bytes, v->now + at, part);
        *v->last = e;
        v->last = &e->next;
        at += part;
    }
}

static int fake_create(struct store *s, unsigned volume, const char *name, uint64_t size_bytes, uint32_t record_bytes,
                       struct codec_choice codec)
{
    (void)codec;
    struct fake_volume *v = &fake_of(s)->volumes[volume];
    CHECK_LE(size_bytes, FAKE_VOLUME_BYTES);
    if (v->now == NULL) {
        v->now = malloc(FAKE_VOLUME_BYTES);
        v->durable = malloc(FAKE_VOLUME_BYTES);
        v->before = malloc(FAKE_VOLUME_BYTES);
        v->provisioned = calloc(FAKE_VOLUME_BYTES / RECORD_BYTES_MIN, sizeof(bool));
        CHECK(v->now != NULL && v->durable != NULL && v->before != NULL && v->provisioned != NULL);
    }
    memset(v->now, 0, FAKE_VOLUME_BYTES);
    memset(v->durable, 0, FAKE_VOLUME_BYTES);
    memset(v->before, 0, FAKE_VOLUME_BYTES);
    memset(v->provisioned, 0, FAKE_VOLUME_BYTES / RECORD_BYTES_MIN * sizeof(bool));
    v->last = &v->first;
    v->exists = true;
    snprintf(v->name, sizeof(v->name), "%s", name);
    snprintf(v->old_name, sizeof(v->old_name), "%s", name);
    v->size = v->old_size = size_bytes;
    v->record = record_bytes;
    return 0;
}

static int fake_destroy(struct store *s, unsigned volume)
{
    struct fake_volume *v = &fake_of(s)->volumes[volume];
    v->exists = false;
    v->destroyed_once = true;
    journal_clear(v);
    return 0;
}

static int fake_rename(struct store *s, unsigned volume, const char *name)
{
    struct fake_volume *v = &fake_of(s)->volumes[volume];
    memcpy(v->old_name, v->name, sizeof(v->name));
    snprintf(v->name, sizeof(v->name), "%s", name);
    return 0;
}

static void make_durable(struct fake *f, struct fake_volume *v)
{
    memcpy(v->before, v->durable, FAKE_VOLUME_BYTES);
    for (struct element *e = v->first; e != NULL; e = e->next)
        if (!(f->lie == LIE_TRIM_BACK && e->is_trim))
            memcpy(v->durable + e->offset, e->bytes, e->length);
    journal_clear(v);
}

static int fake_resize(struct store *s, unsigned volume, uint64_t size_bytes)
{
    struct fake *f = fake_of(s);
    struct fake_volume *v = &f->volumes[volume];
    make_durable(f, v);
    v->old_size = v->size;
    if (size_bytes < v->size && f->lie != LIE_GROWN) {
        memset(v->now + size_bytes, 0, v->size - size_bytes);
        memset(v->durable + size_bytes, 0, v->size - size_bytes);
    }
    memset(v->provisioned + size_bytes / v->record, 0,
           (FAKE_VOLUME_BYTES / RECORD_BYTES_MIN - size_bytes / v->record) * sizeof(bool));
    v->size = size_bytes;
    return 0;
}

static int fake_set_codec(struct store *s, unsigned volume, struct codec_choice codec)
{
    (void)s;
    (void)volume;
    (void)codec;
    return 0;
}

static int fake_read(struct store *s, unsigned volume, uint64_t offset_bytes, void *ret_buf, uint64_t length_bytes)
{
    struct fake *f = fake_of(s);
    struct fake_volume *v = &f->volumes[volume];
    bool stale = f->lie == LIE_STALE_READ && prng_chance(&f->random, 50);
    memcpy(ret_buf, (stale ? v->durable : v->now) + offset_bytes, length_bytes);
    return 0;
}

static void provision_set(struct fake_volume *v, uint64_t offset, uint64_t length, bool whole_value)
{
    for (uint64_t i = offset / v->record; i * v->record < offset + length; i++) {
        bool whole = i * v->record >= offset && (i + 1) * v->record <= offset + length;
        v->provisioned[i] = whole && whole_value;
    }
}

static int fake_write(struct store *s, unsigned volume, uint64_t offset_bytes, const void *buf, uint64_t length_bytes,
                      unsigned flags)
{
    struct fake *f = fake_of(s);
    struct fake_volume *v = &f->volumes[volume];
    if (f->lie == LIE_FULL && prng_chance(&f->random, 5))
        return -ENOSPC;
    bool shorter = f->lie == LIE_SHORT && prng_chance(&f->random, 20);
    memcpy(v->now + offset_bytes, buf, length_bytes - shorter);
    provision_set(v, offset_bytes, length_bytes, false);
    journal_add(v, offset_bytes, length_bytes, (flags & VOLUME_FUA) != 0 && f->lie != LIE_FUA, false);
    return 0;
}

static int range_zero(struct fake *f, unsigned volume, uint64_t offset, uint64_t length, unsigned flags)
{
    struct fake_volume *v = &f->volumes[volume];
    if (f->lie == LIE_NEIGHBOUR && offset + length < v->size && prng_chance(&f->random, 200))
        length++;
    memset(v->now + offset, 0, length);
    provision_set(v, offset, length, (flags & VOLUME_PROVISION) != 0);
    journal_add(v, offset, length, (flags & VOLUME_FUA) != 0 && f->lie != LIE_FUA, true);
    return 0;
}

static int fake_trim(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
{
    return range_zero(fake_of(s), volume, offset_bytes, length_bytes, flags & VOLUME_FUA);
}

static int fake_zero(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, unsigned flags)
{
    return range_zero(fake_of(s), volume, offset_bytes, length_bytes, flags);
}

static enum extent_kind kind_at(const struct fake *f, const struct fake_volume *v, uint64_t record)
{
    if (f->lie == LIE_HOLE)
        return EXTENT_HOLE;
    uint64_t start = record * v->record;
    bool zero = bytes_are_zero(v->now + start, min_u64(v->record, v->size - start));
    if (!zero || f->lie == LIE_KEEPS_TRIM)
        return EXTENT_DATA;
    return v->provisioned[record] && f->lie != LIE_UNPROVISION ? EXTENT_PROVISIONED : EXTENT_HOLE;
}

static int fake_extents(struct store *s, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes,
                        struct extent *ret_extents, size_t room, size_t *ret_count)
{
    const struct fake *f = fake_of(s);
    const struct fake_volume *v = &f->volumes[volume];
    uint64_t end = offset_bytes + length_bytes;
    *ret_count = 0;
    for (uint64_t at = offset_bytes; at < end;) {
        uint64_t part = min_u64(end, round_down(at, v->record) + v->record) - at;
        enum extent_kind kind = kind_at(f, v, at / v->record);
        if (*ret_count > 0 && ret_extents[*ret_count - 1].kind == kind)
            ret_extents[*ret_count - 1].length_bytes += part;
        else if (*ret_count == room)
            break;
        else
            ret_extents[(*ret_count)++] = (struct extent){.length_bytes = part, .kind = kind};
        at += part;
    }
    return 0;
}

static int fake_flush(struct store *s, unsigned volume)
{
    struct fake *f = fake_of(s);
    if (f->lie != LIE_FLUSH)
        make_durable(f, &f->volumes[volume]);
    return 0;
}

static int fake_flush_all(struct store *s)
{
    for (unsigned i = 0; i < STORE_VOLUMES; i++)
        if (fake_of(s)->volumes[i].exists)
            (void)fake_flush(s, i);
    return 0;
}

static int fake_poke(struct store *s, enum store_poke what, unsigned volume, uint64_t index)
{
    (void)s;
    (void)what;
    (void)volume;
    (void)index;
    return 0;
}

static int fake_reopen(struct store *s, struct text *why)
{
    (void)why;
    return fake_flush_all(s);
}

/* Decides about each element of the journal. */
static void volume_crash(struct fake *f, struct fake_volume *v, enum sim_loss loss)
{
    bool torn = false;
    for (struct element *e = v->first; e != NULL; e = e->next) {
        bool kept = e->must || loss == SIM_LOSS_NONE || (loss != SIM_LOSS_ALL && prng_chance(&f->random, 500));
        if (!kept)
            continue;
        uint64_t length = e->length;
        if (f->lie == LIE_TORN && !torn && !e->must && e->length > SECTOR_BYTES && (torn = true))
            length = round_down(e->length / 2, SECTOR_BYTES);
        memcpy(v->durable + e->offset, e->bytes, length);
    }
    for (struct element *e = v->first; e != NULL && f->lie == LIE_ORDER; e = e->next)
        if (e->must) {
            memcpy(v->durable + e->offset, e->bytes, e->length);
            break;
        }
    if (f->lie == LIE_OLD)
        memcpy(v->durable, v->before, SECTOR_BYTES);
    if (f->lie == LIE_ROT)
        v->durable[prng_below(&f->random, v->size)] ^= 0x40;
    journal_clear(v);
    memcpy(v->now, v->durable, FAKE_VOLUME_BYTES);
    memcpy(v->before, v->durable, FAKE_VOLUME_BYTES);
    if (f->lie == LIE_SIZE)
        v->size = v->old_size;
    if (f->lie == LIE_NAME)
        memcpy(v->name, v->old_name, sizeof(v->name));
    if (f->lie == LIE_GONE)
        v->exists = false;
}

static int fake_crash(struct store *s, enum sim_loss loss, uint64_t seed, struct text *why)
{
    (void)why;
    struct fake *f = fake_of(s);
    prng_seed(&f->random, seed);
    for (size_t i = 0; i < STORE_VOLUMES; i++) {
        if (f->volumes[i].exists)
            volume_crash(f, &f->volumes[i], loss);
        else if (f->lie == LIE_BACK && f->volumes[i].destroyed_once)
            f->volumes[i].exists = true;
    }
    return 0;
}

static size_t fake_list(struct store *s, struct oracle_found *ret_list, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < STORE_VOLUMES && count < room; i++) {
        const struct fake_volume *v = &fake_of(s)->volumes[i];
        if (!v->exists)
            continue;
        ret_list[count] = (struct oracle_found){.size_bytes = v->size, .record_bytes = v->record};
        memcpy(ret_list[count++].name, v->name, sizeof(v->name));
    }
    return count;
}

static int fake_adopt(struct store *s, unsigned volume, const char *name)
{
    const struct fake_volume *v = &fake_of(s)->volumes[volume];
    return v->exists && strcmp(v->name, name) == 0 ? 0 : -ENOENT;
}

static void fake_space(struct store *s, struct store_space *ret_space)
{
    (void)s;
    *ret_space = (struct store_space){.usable_bytes = GIB, .free_bytes = GIB};
}

static bool fake_is_off(struct store *s)
{
    (void)s;
    return false;
}

static void fake_free(struct store *s)
{
    struct fake *f = fake_of(s);
    for (size_t i = 0; i < STORE_VOLUMES; i++) {
        journal_clear(&f->volumes[i]);
        free(f->volumes[i].now);
        free(f->volumes[i].durable);
        free(f->volumes[i].before);
        free(f->volumes[i].provisioned);
    }
    free(f);
}

struct store *store_fake_new(enum lie lie, uint64_t seed)
{
    static const struct store_ops ops = {.create = fake_create,
                                         .destroy = fake_destroy,
                                         .rename = fake_rename,
                                         .resize = fake_resize,
                                         .set_codec = fake_set_codec,
                                         .read = fake_read,
                                         .write = fake_write,
                                         .trim = fake_trim,
                                         .zero = fake_zero,
                                         .extents = fake_extents,
                                         .flush = fake_flush,
                                         .flush_all = fake_flush_all,
                                         .checkpoint = fake_flush_all,
                                         .poke = fake_poke,
                                         .reopen = fake_reopen,
                                         .crash = fake_crash,
                                         .list = fake_list,
                                         .adopt = fake_adopt,
                                         .space = fake_space,
                                         .is_off = fake_is_off,
                                         .free = fake_free};
    struct fake *f = calloc(1, sizeof(*f));
    CHECK(f != NULL);
    f->store.ops = &ops;
    f->lie = lie;
    prng_seed(&f->random, seed);
    return &f->store;
}
