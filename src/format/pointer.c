/*
 * Pointers as bytes. Layout and rules: doc/format/pointer.md.
 *
 * pointer_valid is the one statement of what a pointer may be: the decoder refuses what it refuses, the encoder asserts
 * it, and chunk entries and packed nodes, which keep the same fields in other places, ask it too.
 */
#include "format/pointer.h"

#include <errno.h>

#include "base/check.h"
#include "codec/codec.h"
#include "format/limits.h"

#define LENGTH_LIMIT (1u << 24)

_Static_assert(RECORD_BYTES_MAX + RECORD_LOSS_MAP_BYTES(RECORD_BYTES_MAX) < LENGTH_LIMIT, "lengths are 24 bits");
_Static_assert(POINTER_BYTES == 8 + 3 + 1 + 1 + 1 + 1 + 1 + 16, "fields fill a pointer");

static bool checksum_is_zero(struct checksum c)
{
    return c.low == 0 && c.high == 0;
}

static bool codec_known(uint8_t codec)
{
    return codec == CODEC_OFF || codec == CODEC_LZ4 || codec == CODEC_ZSTD;
}

/* Everything that describes bytes is zero in a pointer that has none. */
static bool describes_no_bytes(const struct pointer *p)
{
    return p->length == 0 && p->codec == 0 && p->codec_param == 0 && p->checksum_kind == CHECKSUM_KIND_NONE &&
           p->flags == 0 && checksum_is_zero(p->checksum);
}

/* The longest that stored bytes of this kind can be; 0: a kind that version 1 does not know. */
static uint32_t length_bytes_max(const struct pointer *p)
{
    switch (p->kind) {
    case POINTER_DATA:
        if ((p->flags & POINTER_LOSSY) != 0)
            return RECORD_BYTES_MAX + RECORD_LOSS_MAP_BYTES(RECORD_BYTES_MAX);
        return RECORD_BYTES_MAX;
    case POINTER_NODE:
    case POINTER_PATCH:
        return RECORD_BYTES_MAX;
    default:
        return 0;
    }
}

bool pointer_valid(const struct pointer *p)
{
    if (p->kind == POINTER_ABSENT)
        return p->address == 0 && describes_no_bytes(p);
    if (p->kind == POINTER_HOLE || p->kind == POINTER_PROVISIONED || p->kind == POINTER_LOST)
        return describes_no_bytes(p);
    if (p->length == 0 || p->length > length_bytes_max(p) || p->length > UINT64_MAX - p->address)
        return false;
    if (p->checksum_kind != CHECKSUM_KIND_XXH3_128 || p->codec_param != 0)
        return false;
    /* A node carries no raw size, so a compressed one could not be expanded with a bound: nodes are packed instead. */
    if (p->kind == POINTER_NODE)
        return p->codec == CODEC_OFF && p->flags == 0;
    if (p->kind == POINTER_PATCH)
        return codec_known(p->codec) && p->flags == 0;
    return codec_known(p->codec) && (p->flags & ~POINTER_LOSSY) == 0;
}

bool patch_valid(const struct patch *p)
{
    const uint32_t sectors_max = RECORD_BYTES_MAX / SECTOR_BYTES;
    if (p->pointer.kind != POINTER_PATCH || !pointer_valid(&p->pointer))
        return false;
    if (p->sector_count == 0 || p->first_sector >= sectors_max || p->sector_count > sectors_max - p->first_sector)
        return false;
    const uint32_t raw_bytes = p->sector_count * (uint32_t)SECTOR_BYTES;
    return p->pointer.codec == CODEC_OFF ? p->pointer.length == raw_bytes : p->pointer.length < raw_bytes;
}

void pointer_encode(struct sink *out, const struct pointer *p)
{
    CHECK(pointer_valid(p));
    CHECK_GE(sink_left(out), POINTER_BYTES);
    CHECK_LT(p->length, LENGTH_LIMIT);
    sink_u64(out, p->address);
    sink_u24(out, p->length);
    sink_u8(out, p->kind);
    sink_u8(out, p->codec);
    sink_u8(out, p->codec_param);
    sink_u8(out, p->checksum_kind);
    sink_u8(out, p->flags);
    sink_u64(out, p->checksum.low);
    sink_u64(out, p->checksum.high);
}

int pointer_decode(struct source *in, struct pointer *ret_pointer)
{
    struct pointer p = {0};
    p.address = source_u64(in);
    p.length = source_u24(in);
    p.kind = source_u8(in);
    p.codec = source_u8(in);
    p.codec_param = source_u8(in);
    p.checksum_kind = source_u8(in);
    p.flags = source_u8(in);
    p.checksum.low = source_u64(in);
    p.checksum.high = source_u64(in);
    if (in->bad || !pointer_valid(&p))
        return -EBADMSG;
    *ret_pointer = p;
    return 0;
}

bool pointer_equal(const struct pointer *a, const struct pointer *b)
{
    return a->address == b->address && a->length == b->length && a->kind == b->kind && a->codec == b->codec &&
           a->codec_param == b->codec_param && a->checksum_kind == b->checksum_kind && a->flags == b->flags &&
           checksum_equal(a->checksum, b->checksum);
}
