/*
 * Durable values as JSON: names as in the specification, numbers as numbers, checksums as hexadecimal text.
 */
#include "check/dump.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *checksum_json(struct checksum c)
{
    char text[33];
    (void)snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, c.high, c.low);
    return json_string(text);
}

/* Incarnations are random: the upper half of their numbers is beyond what JSON readers keep. */
static json_t *incarnation_json(uint64_t n)
{
    char text[17];
    (void)snprintf(text, sizeof(text), "%016" PRIx64, n);
    return json_string(text);
}

static json_t *uuid_json(const uint8_t uuid[16])
{
    char text[37];
    return json_string(uuid_format(uuid, text));
}

/* A name for a durable number, or the number. */
static json_t *name_of(const char *const *names, size_t count, unsigned value)
{
    return value < count && names[value] != NULL ? json_string(names[value]) : json_integer(value);
}

#define NAME_OF(names, value) name_of(names, sizeof(names) / sizeof((names)[0]), value)

static const char *const pointer_kinds[] = {"absent", "hole", "provisioned", "data", "node", "patch", "inline", "lost"};
static const char *const entry_kinds[] = {NULL, "data", "patch", "trim", "zero", "node", "bridge"};
static const char *const slot_states[] = {"bare", "ready", "next", "open", "closed", "quarantined", "damaged"};
static const char *const heads[] = {"data", "node"};
static const char *const codecs[] = {"off", "lz4", "zstd"};

json_t *dump_pointer_json(const struct pointer *p)
{
    json_t *o = json_pack("{s:o}", "kind", NAME_OF(pointer_kinds, p->kind));
    if (o == NULL || p->kind == POINTER_ABSENT)
        return o;
    int bad = json_object_set_new(o, "address", number(p->address));
    if (pointer_has_bytes(p)) {
        bad |= json_object_set_new(o, "length", number(p->length));
        bad |= json_object_set_new(o, "codec", NAME_OF(codecs, p->codec));
        bad |= json_object_set_new(o, "flags", number(p->flags));
        bad |= json_object_set_new(o, "checksum", checksum_json(p->checksum));
    }
    if (bad == 0)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *segments_json(const uint64_t *segments, const uint32_t *slots)
{
    json_t *list = json_array();
    for (unsigned k = 0; k < LOOKAHEAD_SLOTS_MAX && slots[k] != SLOT_NONE; k++)
        (void)json_array_append_new(list,
                                    json_pack("{s:o, s:o}", "segment", number(segments[k]), "slot", number(slots[k])));
    return list;
}

static json_t *roots_json(const struct label *l)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < l->root_count; i++) {
        json_t *o = dump_pointer_json(&l->roots[i].pointer);
        (void)json_object_set_new(o, "root", number(l->roots[i].kind));
        (void)json_object_set_new(o, "height", number(l->roots[i].height));
        (void)json_array_append_new(list, o);
    }
    return list;
}

json_t *dump_label_json(const struct label *l)
{
    const struct label_device *d = &l->devices[0];
    json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:b, s:o}", "sequence", number(l->sequence), "checkpoint",
                          number(l->checkpoint), "incarnation", incarnation_json(l->incarnation), "oldest_intact",
                          number(l->oldest_intact), "clean", (l->flags & LABEL_CLEAN) != 0, "pool_uuid",
                          uuid_json(l->pool_uuid));
    const struct {
        const char *name;
        json_t *value;
    } more[] = {
        {"features_incompatible", number(l->features_incompatible)},
        {"features_read_only_compatible", number(l->features_read_only_compatible)},
        {"features_compatible", number(l->features_compatible)},
        {"write_unit_bytes", number(l->write_unit_bytes)},
        {"segment_bytes", number(l->segment_bytes)},
        {"lookahead_count", number(l->lookahead_count)},
        {"device_bytes", number(d->size_bytes)},
        {"data_start_bytes", number(d->data_start_bytes)},
        {"slot_count", number(d->slot_count)},
        {"created_wall_ns", number(l->created_wall_ns)},
        {"written_wall_ns", number(l->written_wall_ns)},
        {"next_segment", number(l->next_segment)},
        {"next_branch", number(l->next_branch)},
        {"replay_address", number(l->replay_address)},
        {"replay_slot", number(l->replay_slot)},
        {"replay_chain", checksum_json(l->replay_chain)},
        {"node_address", number(l->node_address)},
        {"node_slot", l->node_slot == SLOT_NONE ? json_null() : number(l->node_slot)},
        {"next", segments_json(l->replay_next_segments, l->replay_next_slots)},
        {"roots", roots_json(l)},
    };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        if (json_object_set_new(o, more[i].name, more[i].value) != 0) {
            json_decref(o);
            o = NULL;
        }
    return o;
}

json_t *dump_slot_json(const struct slot *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "state", NAME_OF(slot_states, s->state), "head",
                     NAME_OF(heads, s->head), "segment", number(s->segment), "used_bytes", number(s->used_bytes),
                     "live_bytes", number(s->live_bytes), "since", number(s->since));
}

json_t *dump_volume_json(const struct catalog_volume *v)
{
    char codec[16];
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", v->name,
                     "object_id", number(v->object_id), "branch", number(v->branch), "guid", uuid_json(v->guid),
                     "size_bytes", number(v->size_bytes), "record_bytes", number(v->record_bytes), "codec",
                     codec_choice_format(v->codec, codec, sizeof(codec)), "created_wall_ns", number(v->created_wall_ns),
                     "height", number(v->height), "mapped_records", number(v->mapped_records), "stored_bytes",
                     number(v->stored_bytes), "node_bytes", number(v->node_bytes), "provisioned_records",
                     number(v->provisioned_records), "root", dump_pointer_json(&v->root));
}

json_t *dump_header_json(const struct chunk_header *h)
{
    uint64_t segments[LOOKAHEAD_SLOTS_MAX], segment = h->next_segments_first;
    for (unsigned k = 0; k < LOOKAHEAD_SLOTS_MAX; k++) {
        segment += h->next_segment_deltas[k];
        segments[k] = segment;
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "address", number(h->address),
                     "head", NAME_OF(heads, h->head), "sequence", number(h->sequence), "flags", number(h->flags),
                     "chunk_bytes", number(h->chunk_bytes), "table_bytes", number(h->table_bytes), "payload_bytes",
                     number(h->payload_bytes), "incarnation", incarnation_json(h->incarnation), "durable_to",
                     number(h->durable_to), "wall_ns", number(h->wall_ns), "previous_chain",
                     checksum_json(h->previous_chain), "chain", checksum_json(h->chain), "next",
                     segments_json(segments, h->next_slots));
}

json_t *dump_entry_json(const struct chunk_entry *e, uint64_t chunk_address)
{
    json_t *o = json_pack("{s:o, s:o, s:o}", "kind", NAME_OF(entry_kinds, e->kind), "branch", number(e->branch),
                          "index", number(e->index));
    int bad = o == NULL;
    if (e->kind == ENTRY_NODE)
        bad |= json_object_set_new(o, "level", number(e->level));
    if (e->kind == ENTRY_BRIDGE)
        bad |= json_object_set_new(o, "slot", number(e->count));
    else if (e->length == 0)
        bad |= json_object_set_new(o, "count", number(e->count));
    if (e->kind == ENTRY_PATCH) {
        bad |= json_object_set_new(o, "first_sector", number(e->first_sector));
        bad |= json_object_set_new(o, "sector_count", number(e->sector_count));
    }
    if (e->length != 0) {
        bad |= json_object_set_new(o, "address", number(chunk_address + e->payload_offset));
        bad |= json_object_set_new(o, "length", number(e->length));
        bad |= json_object_set_new(o, "codec", NAME_OF(codecs, e->codec));
        bad |= json_object_set_new(o, "flags", number(e->flags));
        bad |= json_object_set_new(o, "checksum", checksum_json(e->checksum));
    }
    if (bad == 0)
        return o;
    json_decref(o);
    return NULL;
}
