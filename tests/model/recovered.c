/*
 * What a store shows after it was opened: every volume, every sector.
 *
 * A volume is read in large pieces; where that fails, record by record, so that one damaged record does not hide the
 * others.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"
#include "model/driver.h"
#include "model/pattern.h"

static bool piece_read(struct store *s, unsigned volume, struct recovered *r, uint64_t at, uint64_t length)
{
    uint8_t *bytes = r->bytes[volume] + at;
    if (s->ops->read(s, volume, at, bytes, length) != 0)
        return false;
    for (uint64_t i = 0; i < length; i += SECTOR_BYTES)
        r->values[volume][(at + i) / SECTOR_BYTES] = sector_value(bytes + i);
    return true;
}

static bool volume_read_all(struct store *s, unsigned volume, bool lost_allowed, struct recovered *r, struct text *why)
{
    const struct oracle_found *f = &r->found[volume];
    uint64_t piece = max_u64(64 * KIB, f->record_bytes);
    for (uint64_t at = 0; at < f->size_bytes; at += piece) {
        uint64_t length = min_u64(piece, f->size_bytes - at);
        if (piece_read(s, volume, r, at, length))
            continue;
        if (!lost_allowed) {
            text_printf(why, "volume %u [%llu, +%llu) cannot be read", volume, (unsigned long long)at,
                        (unsigned long long)length);
            return false;
        }
        for (uint64_t i = at; i < at + length; i += SECTOR_BYTES)
            if (!piece_read(s, volume, r, i, SECTOR_BYTES)) {
                r->values[volume][i / SECTOR_BYTES] = ORACLE_LOST;
                memset(r->bytes[volume] + i, 0, SECTOR_BYTES);
                r->lost_sectors++;
            }
    }
    return true;
}

bool recovered_check(struct store *s, struct oracle *o, bool lost_allowed, struct recovered *r, struct text *why)
{
    *r = (struct recovered){0};
    struct oracle_found list[ORACLE_VOLUMES + 1];
    size_t count = s->ops->list(s, list, ORACLE_VOLUMES + 1);
    CHECK_LE(count, ORACLE_VOLUMES);
    if (!oracle_check_catalog(o, list, count, why))
        return false;
    for (size_t i = 0; i < count; i++) {
        unsigned volume = (unsigned)list[i].volume;
        r->exists[volume] = true;
        r->found[volume] = list[i];
        r->values[volume] = calloc(list[i].size_bytes / SECTOR_BYTES, sizeof(uint64_t));
        r->bytes[volume] = malloc(list[i].size_bytes);
        CHECK(r->values[volume] != NULL && r->bytes[volume] != NULL);
        int result = s->ops->adopt(s, volume, list[i].name);
        if (result != 0) {
            text_printf(why, "volume \"%s\" is listed but cannot be had: %d", list[i].name, result);
            return false;
        }
        if (!volume_read_all(s, volume, lost_allowed, r, why) ||
            !oracle_check_volume(o, volume, r->values[volume], list[i].size_bytes / SECTOR_BYTES, lost_allowed, why))
            return false;
    }
    return true;
}

void recovered_free(struct recovered *r)
{
    for (size_t i = 0; i < ORACLE_VOLUMES; i++) {
        free(r->values[i]);
        free(r->bytes[i]);
    }
    *r = (struct recovered){0};
}
