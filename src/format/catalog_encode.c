/*
 * Catalog objects to bytes. doc/format/catalog.md.
 */
#include "format/catalog_impl.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

/* Every tag of version 1 must be understood: none may be dropped by a program that rewrites the object. */
static void open_tag(struct sink *out, enum catalog_tag tag, size_t length_bytes)
{
    CHECK(tag > CATALOG_TAG_END && tag < CATALOG_TAG_COUNT);
    CHECK_LE(length_bytes, UINT16_MAX);
    sink_u16(out, (uint16_t)(tag | CATALOG_TAG_MUST_UNDERSTAND));
    sink_u16(out, (uint16_t)length_bytes);
}

static void encode_u64(struct sink *out, enum catalog_tag tag, uint64_t value)
{
    open_tag(out, tag, 8);
    sink_u64(out, value);
}

size_t catalog_volume_encode(const struct catalog_volume *v, uint8_t *buf, size_t buf_bytes)
{
    const char *fault = catalog_volume_fault(v);
    if (fault != NULL)
        check_failed(__FILE__, __LINE__, fault);

    struct sink out = sink_of(buf, buf_bytes);
    open_tag(&out, CATALOG_TAG_KIND, 4);
    sink_u16(&out, CATALOG_VOLUME);
    sink_u16(&out, CATALOG_OBJECT_VERSION);
    encode_u64(&out, CATALOG_TAG_OBJECT_ID, v->object_id);
    encode_u64(&out, CATALOG_TAG_BRANCH, v->branch);
    open_tag(&out, CATALOG_TAG_GUID, sizeof(v->guid));
    sink_copy(&out, v->guid, sizeof(v->guid));
    const size_t name_bytes = strlen(v->name);
    open_tag(&out, CATALOG_TAG_NAME, name_bytes);
    sink_copy(&out, v->name, name_bytes);
    encode_u64(&out, CATALOG_TAG_SIZE, v->size_bytes);
    open_tag(&out, CATALOG_TAG_RECORD_BYTES, 4);
    sink_u32(&out, v->record_bytes);
    open_tag(&out, CATALOG_TAG_CODEC, 2);
    sink_u8(&out, v->codec.id);
    sink_u8(&out, (uint8_t)v->codec.level);
    encode_u64(&out, CATALOG_TAG_CREATED, v->created_wall_ns);
    open_tag(&out, CATALOG_TAG_ROOT, CATALOG_ROOT_BYTES);
    sink_u8(&out, v->height);
    pointer_encode(&out, &v->root);
    open_tag(&out, CATALOG_TAG_ACCOUNT, CATALOG_ACCOUNT_BYTES);
    sink_u64(&out, v->mapped_records);
    sink_u64(&out, v->stored_bytes);
    sink_u64(&out, v->node_bytes);
    sink_u64(&out, v->provisioned_records);
    CHECK(!out.bad);
    CHECK_LE(out.position, CATALOG_OBJECT_BYTES_MAX);
    return out.position;
}
