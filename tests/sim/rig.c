/*
 * The rig of the step-by-step tests (rig.h): a pool on a simulated disk behind the model's store interface.
 */
#include "sim/rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

void rig_init(struct rig *r)
{
    *r = (struct rig){.options = {.disk_bytes = 16 * MIB, .segment_bytes = 256 * KIB, .lookahead_count = 2, .seed = 1}};
}

static bool said(struct rig *r, bool good)
{
    if (!good)
        printf("# %s\n", r->why.length == 0 ? "no reason given" : r->why.bytes);
    fflush(stdout);
    return good;
}

bool rig_start(struct rig *r, unsigned volumes, uint32_t record_bytes)
{
    r->s = store_pool_new(&r->options, &r->why);
    int result = r->s == NULL ? -EINVAL : 0;
    for (unsigned i = 0; i < volumes && result == 0; i++) {
        char name[16];
        snprintf(name, sizeof(name), "v%u", i);
        result = r->s->ops->create(r->s, i, name, RIG_SIZE_BYTES, record_bytes, (struct codec_choice){0});
        if (result != 0)
            text_printf(&r->why, "create %s: %d", name, result);
    }
    return said(r, result == 0);
}

void rig_end(struct rig *r)
{
    if (r->s != NULL)
        r->s->ops->free(r->s);
    text_free(&r->why);
    r->s = NULL;
}

int rig_write(struct rig *r, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, uint64_t stamp,
              unsigned flags)
{
    uint8_t *bytes = malloc(length_bytes);
    CHECK(bytes != NULL);
    pattern_fill(bytes, length_bytes, stamp, PATTERN_NOISE);
    int result = r->s->ops->write(r->s, volume, offset_bytes, bytes, length_bytes, flags);
    free(bytes);
    return result;
}

bool rig_reads(struct rig *r, unsigned volume, uint64_t offset_bytes, uint64_t length_bytes, uint64_t stamp)
{
    uint8_t *bytes = malloc(length_bytes), *want = malloc(length_bytes);
    CHECK(bytes != NULL && want != NULL);
    pattern_fill(want, length_bytes, stamp, stamp == 0 ? PATTERN_ZERO : PATTERN_NOISE);
    int result = r->s->ops->read(r->s, volume, offset_bytes, bytes, length_bytes);
    bool good = result == 0 && memcmp(bytes, want, length_bytes) == 0;
    if (!good)
        printf("# volume %u [%llu, +%llu): result %d, %s\n", volume, (unsigned long long)offset_bytes,
               (unsigned long long)length_bytes, result, result == 0 ? "other bytes" : "no bytes");
    free(bytes);
    free(want);
    return good;
}

bool rig_adopt_all(struct rig *r)
{
    struct oracle_found list[STORE_VOLUMES];
    size_t count = r->s->ops->list(r->s, list, STORE_VOLUMES);
    for (size_t i = 0; i < count; i++) {
        unsigned number = (unsigned)(list[i].name[1] - '0');
        if (number >= STORE_VOLUMES || r->s->ops->adopt(r->s, number, list[i].name) != 0)
            return false;
    }
    return count > 0;
}

bool rig_crash(struct rig *r, enum sim_loss loss, uint64_t seed)
{
    int result = r->s->ops->crash(r->s, loss, seed, &r->why);
    return said(r, result == 0 && rig_adopt_all(r));
}

bool rig_check(struct rig *r)
{
    return said(r, store_pool_check(store_pool_disk(r->s), &r->why));
}

struct pool_info rig_info(struct rig *r)
{
    struct pool_info info;
    pool_get_info(store_pool_pool(r->s), &info);
    return info;
}
