/*
 * Verifying stored bytes: the checksum of the pointer, then decompression to exactly the raw size.
 */
#include "check/inspection.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"

static size_t raw_bytes_of(const struct inspection *ins, const struct check_object *o)
{
    const struct check_tree *t = &ins->trees.list[o->tree];
    if (o->kind == ENTRY_PATCH)
        return (size_t)o->sector_count * SECTOR_BYTES;
    return t->record_bytes + ((o->flags & POINTER_LOSSY) != 0 ? RECORD_LOSS_MAP_BYTES(t->record_bytes) : 0);
}

/* The bits of the loss map behind a record's bytes, counted. */
static unsigned lost_sectors(const struct inspection *ins, const struct check_object *o)
{
    const uint32_t record_bytes = ins->trees.list[o->tree].record_bytes;
    unsigned count = 0;
    for (uint32_t i = 0; i < RECORD_LOSS_MAP_BYTES(record_bytes); i++)
        count += (unsigned)__builtin_popcount(ins->raw[record_bytes + i]);
    return count;
}

bool check_object_verify(struct inspection *ins, const struct check_object *o, const uint8_t *bytes,
                         enum check_problem_id *ret_id)
{
    *ret_id = o->kind == ENTRY_PATCH ? CHECK_PROBLEM_PATCH_DAMAGED : CHECK_PROBLEM_RECORD_DAMAGED;
    if (!checksum_equal(checksum_of(bytes, o->length), o->checksum))
        return false;
    if (o->kind == ENTRY_NODE)
        return true;
    *ret_id = CHECK_PROBLEM_RECORD_UNPACKABLE;
    if (o->codec == CODEC_OFF && o->flags == 0)
        return o->length == raw_bytes_of(ins, o);
    if (codec_decompress(ins->codec, o->codec, bytes, o->length, ins->raw, raw_bytes_of(ins, o)) != 0)
        return false;
    if ((o->flags & POINTER_LOSSY) != 0)
        check_found_in(ins, CHECK_PROBLEM_RECORD_LOSSY, &ins->trees.list[o->tree], o->index, 1, CHECK_NOWHERE,
                       o->address, "%u sectors", lost_sectors(ins, o));
    return true;
}
