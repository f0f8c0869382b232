/*
 * Going through a pool and showing what lies in it. Damage is shown as what it is, not followed.
 */
#include "check/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "check/chunk.h"
#include "check/tree.h"

/* ---- printing ---- */

static bool is_flat(const json_t *value)
{
    return !json_is_object(value) && !json_is_array(value);
}

static void print_value(const json_t *value)
{
    if (json_is_string(value))
        fputs(json_string_value(value), stdout);
    else if (json_is_integer(value))
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        fputs(json_is_true(value) ? "yes" : json_is_null(value) ? "none" : "no", stdout);
}

/* One line with the flat values, and behind it what is inside. */
static void print_object(json_t *object, int depth)
{
    const char *name;
    json_t *value;
    printf("%*s%s", depth * 4, "", json_string_value(json_object_get(object, "object")));
    json_object_foreach(object, name, value)
    {
        if (strcmp(name, "object") == 0 || !is_flat(value))
            continue;
        printf(" %s=", name);
        print_value(value);
    }
    putchar('\n');
    json_object_foreach(object, name, value)
    {
        size_t i;
        json_t *element;
        if (json_is_object(value)) {
            (void)json_object_set_new(value, "object", json_string(name));
            print_object(value, depth + 1);
        }
        json_array_foreach(value, i, element)
        {
            (void)json_object_set_new(element, "object", json_string(name));
            print_object(element, depth + 1);
        }
    }
}

void dump_begin(struct dump *d)
{
    if (d->json)
        putchar('[');
}

/* Prints and frees an object: {"object": "chunk", ...}. NULL counts as a lack of memory. */
static void dump_emit(struct dump *d, json_t *object)
{
    d->failed |= object == NULL;
    if (object == NULL)
        return;
    if (d->json) {
        fputs(d->begun ? ",\n" : "\n", stdout);
        d->failed |= json_dumpf(object, stdout, JSON_COMPACT) != 0;
    } else {
        print_object(object, 0);
    }
    d->begun = true;
    json_decref(object);
}

void dump_end(struct dump *d)
{
    if (d->json)
        puts(d->begun ? "\n]" : "]");
}

/* Gives an object its name, and takes a value in. */
static json_t *named(json_t *object, const char *name)
{
    return json_object_set_new(object, "object", json_string(name)) == 0 ? object : NULL;
}

static json_t *with(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0 ? object : NULL;
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* ---- labels, slots, catalog ---- */

static void emit_label(void *arg, bool back, uint64_t offset_bytes, const struct label *label, const char *why)
{
    struct dump *d = arg;
    json_t *o = label != NULL ? dump_label_json(label) : json_pack("{s:s}", "damaged", why);
    o = with(with(named(o, "label"), "ring", json_string(back ? "back" : "front")), "device_offset_bytes",
             number(offset_bytes));
    dump_emit(d, o);
}

int dump_labels(struct dump *d, struct error *err)
{
    return check_visit_labels(d->ins, emit_label, d) == 0 ? 0 : error_set(err, -ENOMEM, "out of memory");
}

int dump_slots(struct dump *d, struct error *err)
{
    (void)err;
    for (uint32_t slot = 0; slot < d->ins->slot_count; slot++) {
        const struct slot *t = &d->ins->slots[slot].table;
        if (t->state == SLOT_BARE)
            continue;
        json_t *o = with(named(dump_slot_json(t), "slot"), "number", number(slot));
        dump_emit(d, with(o, "device_offset_bytes", number(check_slot_offset(d->ins, slot))));
    }
    return 0;
}

int dump_catalog(struct dump *d, struct error *err)
{
    (void)err;
    for (size_t i = CHECK_TREES_OWN; i < d->ins->trees.count; i++)
        dump_emit(d, named(dump_volume_json(&d->ins->trees.list[i].volume), "volume"));
    return 0;
}

/* ---- chunks ---- */

static json_t *entries_json(const struct inspection *ins, const struct check_chunk *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->header.entry_count; i++)
        if (json_array_append_new(list, dump_entry_json(&ins->entries[i], c->address)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static void emit_chunk(struct dump *d, const struct check_chunk *c)
{
    json_t *o = with(named(dump_header_json(&c->header), "chunk"), "slot", number(c->slot));
    o = with(o, "device_offset_bytes", number(c->device_offset_bytes));
    if (!c->first_intact || !c->second_intact)
        o = with(o, "damaged", json_string(c->first_intact ? "second copy" : "first copy"));
    dump_emit(d, with(o, "entry", entries_json(d->ins, c)));
}

static void emit_gap(struct dump *d, const struct check_chunk *c)
{
    dump_emit(d, json_pack("{s:s, s:o, s:o, s:o}", "object", "damage", "address", number(c->address),
                           "device_offset_bytes", number(c->device_offset_bytes), "length", number(c->span_bytes)));
}

/* The segment of a slot, first as far as it is known to reach, then what goes on behind that. */
static void dump_segment(struct dump *d, uint32_t slot, uint64_t segment)
{
    struct inspection *ins = d->ins;
    struct check_walk walk = {.ins = ins, .window = &ins->scan, .slot = slot, .segment = segment};
    walk.limit = check_segment_limit(ins, slot, &walk.limit_known);
    for (;;) {
        struct check_chunk c;
        const enum check_step step = check_walk_next(&walk, &c);
        if (step == CHECK_STEP_CHUNK)
            emit_chunk(d, &c);
        else if (step == CHECK_STEP_GAP)
            emit_gap(d, &c);
        else if (!walk.limit_known)
            return;
        else {
            walk.limit_known = false;
            walk.limit = ins->segment_bytes;
        }
    }
}

int dump_chunks(struct dump *d, struct error *err)
{
    struct inspection *ins = d->ins;
    const int result = check_replay(ins, err);
    for (uint32_t slot = 0; slot < ins->slot_count && result == 0; slot++) {
        const struct check_slot *s = &ins->slots[slot];
        const bool used = s->table.state == SLOT_OPEN || s->table.state == SLOT_CLOSED;
        if (used || s->replay_segment != CHECK_NOWHERE)
            dump_segment(d, slot, used ? s->table.segment : s->replay_segment);
    }
    return result;
}

/* ---- nodes and maps ---- */

static json_t *children_json(const struct node *n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < map_fanout(n->level); i++)
        if (n->children[i].kind != POINTER_ABSENT)
            (void)json_array_append_new(list, with(dump_pointer_json(&n->children[i]), "place", number(i)));
    return list;
}

static json_t *patches_json(const struct node *n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n->patch_count; i++) {
        const struct node_patch *p = &n->patches[i];
        json_t *o = with(dump_pointer_json(&p->patch.pointer), "place", number(p->child));
        o = with(o, "first_sector", number(p->patch.first_sector));
        (void)json_array_append_new(list, with(o, "sector_count", number(p->patch.sector_count)));
    }
    return list;
}

static int emit_node(struct dump *d, const struct chunk_entry *e, const uint8_t *bytes, uint64_t address,
                     struct error *err)
{
    struct node *n = calloc(1, sizeof(*n));
    struct node_patch *patches = calloc(NODE_PATCHES_MAX, sizeof(*patches));
    int result = n != NULL && patches != NULL ? 0 : error_set(err, -ENOMEM, "out of memory");
    if (result == 0) {
        n->patches = patches;
        result = node_decode(bytes, e->length, e->branch, e->level, e->index, UINT64_MAX, n, err);
    }
    if (result == 0) {
        json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "object", "node", "address", number(address), "branch",
                              number(e->branch), "level", number(e->level), "number", number(e->index), "length",
                              number(e->length));
        dump_emit(d, with(with(o, "child", children_json(n)), "patch", patches_json(n)));
    }
    free(n);
    free(patches);
    return result;
}

/* The entry of the chunk at hand that begins there. */
static const struct chunk_entry *entry_at(const struct inspection *ins, const struct check_chunk *c, uint64_t address)
{
    for (uint32_t i = 0; i < c->header.entry_count; i++)
        if (ins->entries[i].length != 0 && c->address + ins->entries[i].payload_offset == address)
            return &ins->entries[i];
    return NULL;
}

int dump_node(struct dump *d, uint64_t address, struct error *err)
{
    struct inspection *ins = d->ins;
    struct check_chunk c;
    const uint64_t place = check_place(ins, CHECK_TREE_CATALOG, address, 1);
    if (place == CHECK_NOWHERE)
        return error_set(err, -ENOENT, "log address %" PRIu64 " lies in no slot", address);
    if (check_chunk_around(ins, &ins->scan, place, &c) != 0)
        return error_set(err, -ENOENT, "no chunk can be made out around log address %" PRIu64, address);
    const struct chunk_entry *found = entry_at(ins, &c, address);
    if (found == NULL || found->kind != ENTRY_NODE)
        return error_set(err, -ENOENT, "no map node begins at log address %" PRIu64 "; see: ashlar dump POOL chunks",
                         address);
    const struct chunk_entry e = *found;
    for (uint32_t copy = 0; copy < 2; copy++) {
        const uint64_t offset = c.device_offset_bytes + copy * (uint64_t)c.header.chunk_bytes + e.payload_offset;
        const uint8_t *bytes = check_window_bytes(&ins->point, offset, e.length, 0);
        if (bytes != NULL && checksum_equal(checksum_of(bytes, e.length), e.checksum))
            return emit_node(d, &e, bytes, address, err);
    }
    return error_set(err, -EBADMSG, "both copies of the map node at log address %" PRIu64 " are damaged", address);
}

static int emit_tree_node(void *arg, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number_)
{
    (void)tree;
    json_t *o = with(named(dump_pointer_json(p), "node"), "level", number(level));
    dump_emit(arg, with(o, "number", number(number_)));
    return 0;
}

static int emit_record(void *arg, uint32_t tree, const struct pointer *p, uint64_t index)
{
    (void)tree;
    dump_emit(arg, with(named(dump_pointer_json(p), "record"), "index", number(index)));
    return 0;
}

static int emit_patch(void *arg, uint32_t tree, const struct patch *p, uint64_t index)
{
    (void)tree;
    json_t *o = with(named(dump_pointer_json(&p->pointer), "patch"), "index", number(index));
    o = with(o, "first_sector", number(p->first_sector));
    dump_emit(arg, with(o, "sector_count", number(p->sector_count)));
    return 0;
}

static int emit_hole(void *arg, uint32_t tree, const struct pointer *p, uint64_t first, uint64_t count)
{
    (void)tree;
    json_t *o = with(named(dump_pointer_json(p), "range"), "index", number(first));
    dump_emit(arg, with(o, "count", number(count)));
    return 0;
}

int dump_volume(struct dump *d, const char *name, struct error *err)
{
    const struct check_visitor visitor = {.arg = d,
                                          .node = emit_tree_node,
                                          .record = emit_record,
                                          .patch = emit_patch,
                                          .hole = emit_hole,
                                          .report = true};
    for (uint32_t i = CHECK_TREES_OWN; i < d->ins->trees.count; i++) {
        const struct catalog_volume *v = &d->ins->trees.list[i].volume;
        if (strcmp(v->name, name) != 0)
            continue;
        dump_emit(d, named(dump_volume_json(v), "volume"));
        return check_tree_walk(d->ins, i, &visitor) == 0 ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    return error_set(err, -ENOENT, "%s: no volume is called '%.240s' in the catalog of its last checkpoint",
                     d->ins->dev->name, name);
}
