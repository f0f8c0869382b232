/*
 * The pool's own trees: the slot table and the catalog.
 */
#include "check/inspection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "check/tree.h"

/* Object ids are indices of a tree of the greatest height. */
#define OBJECT_COUNT_MAX (UINT64_C(1) << map_level_bits(MAP_LEVELS_MAX - 1))

struct own_record {
    struct pointer pointer;
    uint64_t index;
};

/* The records of one of the pool's own trees, in order. */
struct own_records {
    struct inspection *ins;
    CHECK_ARRAY(struct own_record) found;
};

static int collect_record(void *arg, uint32_t tree, const struct pointer *p, uint64_t index)
{
    struct own_records *records = arg;
    if (index >= records->ins->trees.list[tree].record_count)
        return 0;
    struct own_record *r = check_array_add(&records->found);
    if (r == NULL)
        return -ENOMEM;
    *r = (struct own_record){.pointer = *p, .index = index};
    return 0;
}

/* Adds one of the pool's own trees, as a volume with a name nobody can give. */
static int add_own_tree(struct inspection *ins, enum root_kind kind, uint64_t branch, const char *name,
                        uint32_t record_bytes, uint64_t record_count)
{
    struct check_tree *t = check_array_add(&ins->trees);
    if (t == NULL)
        return -ENOMEM;
    const struct label_root *root = label_find_root(&ins->label, kind);
    *t = (struct check_tree){.record_bytes = record_bytes, .record_count = record_count};
    t->volume.branch = branch;
    (void)snprintf(t->volume.name, sizeof(t->volume.name), "%s", name);
    if (root != NULL) {
        t->volume.root = root->pointer;
        t->volume.height = root->height;
    }
    return 0;
}

/* The raw bytes of a record of the pool's own, into ins->raw. false: reported. */
static bool read_own_record(struct inspection *ins, uint32_t tree, const struct own_record *r, const char *what)
{
    const struct check_tree *t = &ins->trees.list[tree];
    uint8_t stored[TABLE_RECORD_BYTES];
    uint64_t offset;
    CHECK_LE(t->record_bytes, sizeof(stored));
    /* The walk has checked that the length fits the record. */
    int result = check_object_read(ins, tree, &r->pointer, true, stored, &offset);
    enum check_problem_id id = CHECK_PROBLEM_RECORD_DAMAGED;
    if (result == 0) {
        id = CHECK_PROBLEM_RECORD_UNPACKABLE;
        result = codec_decompress(ins->codec, r->pointer.codec, stored, r->pointer.length, ins->raw, t->record_bytes);
    }
    if (result == 0)
        return true;
    check_found_in(ins, id, t, r->index, 1, offset, r->pointer.address, "%s %" PRIu64, what, r->index);
    ins->incomplete = true;
    ins->trees.list[tree].incomplete = true;
    return false;
}

/* ---- slot table ---- */

static void take_table_record(struct inspection *ins, const struct own_record *r)
{
    const uint32_t first = (uint32_t)r->index * SLOTS_PER_TABLE_RECORD;
    struct slot slots[SLOTS_PER_TABLE_RECORD];
    struct error err = {0};
    if (!read_own_record(ins, CHECK_TREE_TABLE, r, "table record")) {
        ins->table_incomplete = true;
        return;
    }
    if (table_record_decode(ins->raw, TABLE_RECORD_BYTES, first, ins->segment_bytes, slots, &err) != 0) {
        check_found(ins, CHECK_PROBLEM_TABLE_INVALID, CHECK_NOWHERE, r->pointer.address, "%s", err.text);
        ins->table_incomplete = true;
        return;
    }
    for (uint32_t i = 0; i < SLOTS_PER_TABLE_RECORD; i++) {
        if (first + i < ins->slot_count)
            ins->slots[first + i].table = slots[i];
        else if (slots[i].state != SLOT_BARE)
            check_found(ins, CHECK_PROBLEM_TABLE_INVALID, CHECK_NOWHERE, r->pointer.address,
                        "slot %" PRIu32 " is in use, the device has %" PRIu32, first + i, ins->slot_count);
    }
}

static void count_slots(struct inspection *ins)
{
    struct check_summary *s = &ins->report->summary;
    for (uint32_t i = 0; i < ins->slot_count; i++) {
        const uint8_t state = ins->slots[i].table.state;
        if (state == SLOT_QUARANTINED)
            s->slots_quarantine++;
        else if (state == SLOT_BARE || state == SLOT_READY)
            s->slots_free++;
        else
            s->slots_used++;
    }
}

int check_load_table(struct inspection *ins, struct error *err)
{
    struct own_records records = {.ins = ins};
    const uint64_t record_count = div_ceil(ins->slot_count, SLOTS_PER_TABLE_RECORD);
    int result =
        add_own_tree(ins, ROOT_SLOT_TABLE, BRANCH_SLOT_TABLE, "(slot table)", TABLE_RECORD_BYTES, record_count);
    const struct check_visitor visitor = {.arg = &records, .record = collect_record};
    if (result == 0)
        result = check_tree_walk(ins, CHECK_TREE_TABLE, &visitor);
    for (size_t i = 0; i < records.found.count && result == 0; i++)
        take_table_record(ins, &records.found.list[i]);
    free(records.found.list);
    if (result != 0)
        return error_set(err, result, "%s: out of memory for the slot table", ins->dev->name);
    count_slots(ins);
    return check_place_segments(ins, err);
}

/* ---- catalog ---- */

static void take_catalog_object(struct inspection *ins, const struct own_record *r, struct catalog_volume *v)
{
    struct error err = {0};
    if (!read_own_record(ins, CHECK_TREE_CATALOG, r, "catalog object"))
        return;
    if (catalog_volume_decode(ins->raw, CATALOG_OBJECT_BYTES_MAX, r->index, v, &err) == 0)
        return;
    memset(v, 0, sizeof(*v));
    ins->incomplete = true;
    check_found(ins, CHECK_PROBLEM_CATALOG_INVALID, CHECK_NOWHERE, r->pointer.address, "%s", err.text);
}

static int add_volume(struct inspection *ins, const struct own_record *r)
{
    struct catalog_volume v = {0};
    take_catalog_object(ins, r, &v);
    if (v.branch == 0)
        return 0;
    struct check_tree *t = check_array_add(&ins->trees);
    if (t == NULL)
        return -ENOMEM;
    t->volume = v;
    t->record_bytes = v.record_bytes;
    t->record_count = div_ceil(v.size_bytes, v.record_bytes);
    ins->report->summary.volumes++;
    if (v.branch >= ins->label.next_branch || v.object_id >= ins->label.next_branch)
        check_found_in(ins, CHECK_PROBLEM_COUNTER_BEHIND, t, 0, 0, CHECK_NOWHERE, r->pointer.address,
                       "branch %" PRIu64 " and object %" PRIu64 ", the next one is %" PRIu64, v.branch, v.object_id,
                       ins->label.next_branch);
    return 0;
}

typedef int (*compare_function)(const void *a, const void *b);

static int compare_names(const void *a, const void *b)
{
    const struct check_tree *const *x = a, *const *y = b;
    return strcmp((*x)->volume.name, (*y)->volume.name);
}

static int compare_guids(const void *a, const void *b)
{
    const struct check_tree *const *x = a, *const *y = b;
    return memcmp((*x)->volume.guid, (*y)->volume.guid, sizeof((*x)->volume.guid));
}

static int compare_branches(const void *a, const void *b)
{
    const struct check_tree *const *x = a, *const *y = b;
    return (*x)->volume.branch < (*y)->volume.branch ? -1 : (*x)->volume.branch > (*y)->volume.branch;
}

/* Reports what two volumes share though each must have its own. */
static void check_unique(struct inspection *ins, struct check_tree **sorted, size_t count, compare_function compare,
                         enum check_problem_id id)
{
    qsort(sorted, count, sizeof(*sorted), compare);
    for (size_t i = 1; i < count; i++) {
        if (compare(&sorted[i - 1], &sorted[i]) != 0)
            continue;
        check_found_in(ins, id, sorted[i], 0, 0, CHECK_NOWHERE, CHECK_NOWHERE, "objects %" PRIu64 " (%s) and %" PRIu64,
                       sorted[i - 1]->volume.object_id, sorted[i - 1]->volume.name, sorted[i]->volume.object_id);
        if (id == CHECK_PROBLEM_BRANCH_DUPLICATE) {
            sorted[i]->skipped = true;
            ins->incomplete = true;
        }
    }
}

int check_load_catalog(struct inspection *ins, struct error *err)
{
    struct own_records records = {.ins = ins};
    int result =
        add_own_tree(ins, ROOT_CATALOG, BRANCH_CATALOG, "(catalog)", CATALOG_OBJECT_BYTES_MAX, OBJECT_COUNT_MAX);
    const struct check_visitor visitor = {.arg = &records, .record = collect_record};
    if (result == 0)
        result = check_tree_walk(ins, CHECK_TREE_CATALOG, &visitor);
    for (size_t i = 0; i < records.found.count && result == 0; i++)
        result = add_volume(ins, &records.found.list[i]);
    free(records.found.list);
    const size_t count = ins->trees.count - CHECK_TREES_OWN;
    struct check_tree **sorted = result == 0 ? calloc(count + 1, sizeof(*sorted)) : NULL;
    if (sorted == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory for the catalog", ins->dev->name);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &ins->trees.list[CHECK_TREES_OWN + i];
    check_unique(ins, sorted, count, compare_names, CHECK_PROBLEM_NAME_DUPLICATE);
    check_unique(ins, sorted, count, compare_guids, CHECK_PROBLEM_GUID_DUPLICATE);
    check_unique(ins, sorted, count, compare_branches, CHECK_PROBLEM_BRANCH_DUPLICATE);
    ins->by_branch = calloc(count + 1, sizeof(*ins->by_branch));
    for (size_t i = 0; i < count && ins->by_branch != NULL; i++)
        if (!sorted[i]->skipped)
            ins->by_branch[ins->by_branch_count++] = (uint32_t)(sorted[i] - ins->trees.list);
    free(sorted);
    return ins->by_branch != NULL ? 0 : error_set(err, -ENOMEM, "%s: out of memory for the catalog", ins->dev->name);
}
