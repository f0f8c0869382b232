/*
 * Catalog objects from bytes. doc/format/catalog.md. Tags come in ascending order of their numbers, so each at most
 * once; all that version 1 knows must be there.
 */
#include "format/catalog_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

static int decode_kind(struct source *value, struct error *err)
{
    const uint16_t kind = source_u16(value);
    const uint16_t version = source_u16(value);
    if (value->bad)
        return error_set(err, -EBADMSG, "catalog object without a kind");
    if (kind != CATALOG_VOLUME)
        return error_set(err, -EOPNOTSUPP, "catalog object of unknown kind %u: a newer program is needed", kind);
    if (version > CATALOG_OBJECT_VERSION)
        return error_set(err, -EOPNOTSUPP, "catalog object of version %u: this program knows versions up to %u",
                         version, CATALOG_OBJECT_VERSION);
    if (version == 0)
        return error_set(err, -EBADMSG, "catalog object of version 0, which does not exist");
    return 0;
}

static void decode_name(struct source *value, struct catalog_volume *v)
{
    const size_t n = source_left(value);
    if (n > VOLUME_NAME_BYTES_MAX || memchr(value->bytes, '\0', n) != NULL)
        value->bad = true;
    else
        source_copy(value, v->name, n);
}

static void decode_root(struct source *value, struct catalog_volume *v)
{
    v->height = source_u8(value);
    if (pointer_decode(value, &v->root) != 0)
        value->bad = true;
}

static void decode_account(struct source *value, struct catalog_volume *v)
{
    v->mapped_records = source_u64(value);
    v->stored_bytes = source_u64(value);
    v->node_bytes = source_u64(value);
    v->provisioned_records = source_u64(value);
}

/* One tag that this version knows, whatever the bit that says whether it must. */
static int decode_value(uint16_t number, struct source *value, struct catalog_volume *v, struct error *err)
{
    switch (number) {
    case CATALOG_TAG_KIND:
        return decode_kind(value, err);
    case CATALOG_TAG_OBJECT_ID:
        v->object_id = source_u64(value);
        return 0;
    case CATALOG_TAG_BRANCH:
        v->branch = source_u64(value);
        return 0;
    case CATALOG_TAG_GUID:
        source_copy(value, v->guid, sizeof(v->guid));
        return 0;
    case CATALOG_TAG_NAME:
        decode_name(value, v);
        return 0;
    case CATALOG_TAG_SIZE:
        v->size_bytes = source_u64(value);
        return 0;
    case CATALOG_TAG_RECORD_BYTES:
        v->record_bytes = source_u32(value);
        return 0;
    case CATALOG_TAG_CODEC:
        v->codec.id = source_u8(value);
        v->codec.level = (int8_t)source_u8(value);
        return 0;
    case CATALOG_TAG_CREATED:
        v->created_wall_ns = source_u64(value);
        return 0;
    case CATALOG_TAG_ROOT:
        decode_root(value, v);
        return 0;
    default:
        decode_account(value, v);
        return 0;
    }
}

/* Reads one tag, length, value. *number is the last tag's number and becomes this one's; 0 at the end of the object. */
static int decode_next(struct source *in, uint16_t *number, struct catalog_volume *v, struct error *err)
{
    /* Zeroes that follow an object may be of odd length. */
    const uint16_t tag = source_left(in) == 1 ? source_u8(in) : source_u16(in);
    if (tag == CATALOG_TAG_END) {
        source_zeroes(in, source_left(in));
        if (in->bad)
            return error_set(err, -EBADMSG, "catalog object: bytes behind its end are not zero");
        *number = CATALOG_TAG_END;
        return 0;
    }
    const uint16_t n = tag & CATALOG_TAG_NUMBER_MASK;
    const uint16_t length = source_u16(in);
    const uint8_t *bytes = source_take(in, length);
    if (bytes == NULL)
        return error_set(err, -EBADMSG, "catalog object ends inside tag %u", n);
    if (n <= *number || (*number == CATALOG_TAG_END && n != CATALOG_TAG_KIND))
        return error_set(err, -EBADMSG, "catalog object: tag %u out of place", n);
    *number = n;
    if (n >= CATALOG_TAG_COUNT) {
        if ((tag & CATALOG_TAG_MUST_UNDERSTAND) != 0)
            return error_set(err, -EOPNOTSUPP, "catalog object: tag %u must be understood: a newer program is needed",
                             n);
        return 0;
    }
    struct source value = source_of(bytes, length);
    int r = decode_value(n, &value, v, err);
    CHECK_LE(value.position, length);
    if (r == 0 && (value.bad || source_left(&value) != 0))
        r = error_set(err, -EBADMSG, "catalog object: malformed value of tag %u", n);
    return r;
}

int catalog_volume_decode(const uint8_t *buf, size_t buf_bytes, uint64_t object_id, struct catalog_volume *ret_volume,
                          struct error *err)
{
    if (buf_bytes > CATALOG_OBJECT_BYTES_MAX)
        return error_set(err, -EBADMSG, "catalog object of %zu bytes: at most %d are allowed", buf_bytes,
                         CATALOG_OBJECT_BYTES_MAX);
    struct source in = source_of(buf, buf_bytes);
    struct catalog_volume v = {0};
    uint32_t seen = 0;
    uint16_t number = CATALOG_TAG_END;
    while (source_left(&in) > 0) {
        int r = decode_next(&in, &number, &v, err);
        if (r != 0)
            return r;
        if (number < CATALOG_TAG_COUNT)
            seen |= 1u << number;
    }
    const uint32_t required = (1u << CATALOG_TAG_COUNT) - (1u << CATALOG_TAG_KIND);
    if ((seen & required) != required)
        return error_set(err, -EBADMSG, "catalog object %" PRIu64 ": values are missing", object_id);
    if (v.object_id != object_id)
        return error_set(err, -EBADMSG, "catalog object %" PRIu64 " says that it is object %" PRIu64, object_id,
                         v.object_id);
    const char *fault = catalog_volume_fault(&v);
    if (fault != NULL)
        return error_set(err, -EBADMSG, "catalog object %" PRIu64 ": %s out of range", object_id, fault);
    *ret_volume = v;
    return 0;
}
