/*
 * New versions of map nodes, or of accounts, up to a label that names them.
 *
 * Written is, all into one free slot, which becomes the open segment of the node head: the nodes, each in a chunk of
 * its own, in two copies; the nodes above them, up to the root; the catalog's object of each volume concerned, and the
 * nodes above it; the records of the slot table that change, and the nodes above them. Then the device is flushed, and
 * a label follows that names the two new roots, in the front ring, flushed, and in the back ring, flushed. Nothing that
 * the label before it reaches is written over, so that a cut at any moment leaves the pool as it was or repaired. It is
 * a checkpoint like those of the engine: the number of checkpoints grows by one, the replay start stays.
 *
 * Order of writing is that of addresses: what is below before what is above.
 *
 * Everything is put together in memory first, and given up as a whole where it does not fit.
 */
#include "check/rewrite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "check/repair.h"
#include "check/tree.h"
#include "env/env.h"

/* What has a new place: a node, or a record of one of the pool's own trees. */
struct replaced {
    uint32_t tree;
    uint32_t bits;   /* of record indices below it: 0 for a record */
    uint64_t number; /* its index >> bits */
    struct pointer now;
};

/* What was put in the place of a volume's lost nodes. */
struct tally {
    size_t leaves;
    uint64_t provisioned_records;
    bool uncertain; /* something in them is lost, or lies deeper */
    bool recounted; /* its account was wrong and is as counted now */
};

struct rewrite {
    struct inspection *ins;
    struct tally *tallies; /* one a tree */
    uint32_t slot;
    uint64_t segment;
    uint8_t *bytes; /* of the segment, as long as it is filled */
    uint32_t filled_bytes;
    uint64_t chunk_count, node_count;
    uint64_t recount;   /* of accounts that were wrong: of volumes, and of slots */
    struct slot *table; /* as it is to be */
    CHECK_ARRAY(struct replaced) replaced;
};

bool rewrite_allowed(const struct inspection *ins)
{
    static const enum check_problem_id bad[] = {
        CHECK_PROBLEM_DEVICE_SHORT,      CHECK_PROBLEM_NODE_INVALID,           CHECK_PROBLEM_MAP_ADDRESS,
        CHECK_PROBLEM_MAP_BEYOND_END,    CHECK_PROBLEM_SEGMENT_LOST,           CHECK_PROBLEM_OVERLAP,
        CHECK_PROBLEM_CATALOG_INVALID,   CHECK_PROBLEM_BRANCH_DUPLICATE,       CHECK_PROBLEM_COUNTER_BEHIND,
        CHECK_PROBLEM_TABLE_INVALID,     CHECK_PROBLEM_SLOT_SEGMENT_DUPLICATE, CHECK_PROBLEM_SLOT_STATE_MISMATCH,
        CHECK_PROBLEM_SLOT_FREE_LIVE,    CHECK_PROBLEM_SLOT_SEGMENT_MISMATCH,  CHECK_PROBLEM_LOG_DAMAGED,
        CHECK_PROBLEM_SLOT_USED_MISMATCH};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (check_report_count_of(ins->report, bad[i]) != 0)
            return false;
    if ((ins->label.flags & LABEL_CLEAN) == 0 || ins->replay.count != 0 || ins->table_incomplete)
        return false;
    for (size_t i = 0; i < ins->trees.count; i++)
        if (ins->trees.list[i].lossy || (i < CHECK_TREES_OWN && ins->trees.list[i].incomplete))
            return false;
    return true;
}

static int choose_slot(const struct inspection *ins, uint32_t *ret_slot)
{
    for (int state = SLOT_READY; state >= SLOT_BARE; state--)
        for (uint32_t slot = 0; slot < ins->slot_count; slot++) {
            const struct check_slot *s = &ins->slots[slot];
            if (s->table.state != state || s->object_count != 0 || slot == ins->label.replay_slot ||
                slot == ins->label.node_slot || s->replay_segment != CHECK_NOWHERE)
                continue;
            *ret_slot = slot;
            return 0;
        }
    return -ENOSPC;
}

int rewrite_begin(struct inspection *ins, struct rewrite **ret_rewrite)
{
    const struct label *l = &ins->label;
    uint32_t slot;
    if (choose_slot(ins, &slot) != 0)
        return -ENOSPC;
    /* Numbers of a hostile label; and a label that a newer program extended, which would lose what it has more. */
    if (ins->newest_sequence == UINT64_MAX || l->checkpoint == UINT64_MAX ||
        l->next_segment >= UINT64_MAX / ins->segment_bytes ||
        (l->features_compatible | l->features_read_only_compatible) != 0)
        return -ENOSPC;
    struct rewrite *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return -ENOMEM;
    *w = (struct rewrite){.ins = ins, .slot = slot, .segment = ins->label.next_segment};
    w->bytes = calloc(1, ins->segment_bytes);
    w->table = calloc(ins->slot_count + SLOTS_PER_TABLE_RECORD, sizeof(*w->table));
    w->tallies = calloc(ins->trees.count, sizeof(*w->tallies));
    if (w->bytes == NULL || w->table == NULL || w->tallies == NULL) {
        rewrite_free(w);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < ins->slot_count; i++)
        w->table[i] = ins->slots[i].table;
    *ret_rewrite = w;
    return 0;
}

void rewrite_free(struct rewrite *w)
{
    if (w == NULL)
        return;
    free(w->bytes);
    free(w->table);
    free(w->tallies);
    free(w->replaced.list);
    free(w);
}

static int note_replaced(struct rewrite *w, uint32_t tree, uint32_t bits, uint64_t number, const struct pointer *now)
{
    struct replaced *r = check_array_add(&w->replaced);
    if (r == NULL)
        return -ENOMEM;
    *r = (struct replaced){.tree = tree, .bits = bits, .number = number, .now = *now};
    return 0;
}

static const struct replaced *find_replaced(const struct rewrite *w, uint32_t tree, uint32_t bits, uint64_t number)
{
    for (size_t i = 0; i < w->replaced.count; i++) {
        const struct replaced *r = &w->replaced.list[i];
        if (r->tree == tree && r->bits == bits && r->number == number)
            return r;
    }
    return NULL;
}

/* Something at or below the object of that many bits and number has a new place. */
static bool holds_replaced(const struct rewrite *w, uint32_t tree, uint32_t bits, uint64_t number)
{
    for (size_t i = 0; i < w->replaced.count; i++) {
        const struct replaced *r = &w->replaced.list[i];
        if (r->tree == tree && r->bits <= bits && r->number >> (bits - r->bits) == number)
            return true;
    }
    return false;
}

/* ---- the segment ---- */

/* An object in a chunk of its own, twice. -ENOSPC: it does not fit. */
static int put(struct rewrite *w, uint32_t tree, const struct chunk_entry *object, const uint8_t *bytes,
               struct pointer *ret_pointer)
{
    struct inspection *ins = w->ins;
    struct chunk_entry e = *object;
    e.count = 1;
    e.checksum = checksum_of(bytes, e.length);
    const size_t table_bytes = chunk_table_bytes(&e, 1);
    const uint32_t n = chunk_size_bytes(table_bytes, e.length, ins->write_unit_bytes, CHUNK_COPY_NONE);
    /* A write unit stays free: the node head's position lies in its segment. */
    if (n > ins->segment_bytes / 2 || w->filled_bytes + 2 * (uint64_t)n + ins->write_unit_bytes > ins->segment_bytes)
        return -ENOSPC;
    e.payload_offset = CHUNK_HEADER_BYTES + (uint32_t)table_bytes;
    for (uint32_t copy = 0; copy < 2; copy++) {
        uint8_t *to = w->bytes + w->filled_bytes + copy * (size_t)n;
        struct chunk_header h = {.head = CHUNK_HEAD_NODE,
                                 .flags = copy == 1 ? CHUNK_FLAG_COPY : 0,
                                 .address = w->segment * ins->segment_bytes + w->filled_bytes + copy * (uint64_t)n,
                                 .incarnation = ins->label.incarnation,
                                 .wall_ns = env_wall_ns(ins->dev->env),
                                 .sequence = w->chunk_count + 1};
        memcpy(h.pool_uuid, ins->label.pool_uuid, sizeof(h.pool_uuid));
        for (uint32_t i = 0; i < LOOKAHEAD_SLOTS_MAX; i++)
            h.next_slots[i] = SLOT_NONE;
        memcpy(to + e.payload_offset, bytes, e.length);
        chunk_encode(&h, &e, 1, to, ins->write_unit_bytes);
    }
    const uint64_t base = tree == CHECK_TREE_TABLE ? w->slot : w->segment;
    *ret_pointer = (struct pointer){.address = base * ins->segment_bytes + w->filled_bytes + e.payload_offset,
                                    .length = e.length,
                                    .kind = e.kind == ENTRY_NODE ? POINTER_NODE : POINTER_DATA,
                                    .codec = e.codec,
                                    .checksum_kind = CHECKSUM_KIND_XXH3_128,
                                    .checksum = e.checksum};
    w->filled_bytes += 2 * n;
    w->chunk_count++;
    return 0;
}

/* A new version of a map node takes the place of the old one in the accounts. */
static void account(struct rewrite *w, uint32_t tree, const struct pointer *old, const struct pointer *now)
{
    struct inspection *ins = w->ins;
    if (tree < CHECK_TREES_OWN)
        return;
    struct catalog_volume *v = &ins->trees.list[tree].volume;
    const uint64_t place = check_place(ins, tree, old->address, old->length);
    CHECK_NE(place, CHECK_NOWHERE);
    struct slot *s = &w->table[place / ins->segment_bytes];
    s->live_bytes -= (uint32_t)min_u64(old->length, s->live_bytes);
    v->node_bytes -= min_u64(old->length, v->node_bytes);
    v->node_bytes += now->length;
    w->table[w->slot].live_bytes += now->length;
}

static int put_node(struct rewrite *w, uint32_t tree, const struct pointer *old, const struct node *n,
                    struct pointer *ret_now)
{
    const size_t room = node_encoded_bytes_max(n->level, n->patch_count);
    uint8_t *bytes = malloc(room);
    if (bytes == NULL)
        return -ENOMEM;
    const struct chunk_entry e = {.kind = ENTRY_NODE,
                                  .level = n->level,
                                  .branch = n->branch,
                                  .index = n->number,
                                  .length = (uint32_t)node_encode(n, bytes, room)};
    const int result = put(w, tree, &e, bytes, ret_now);
    free(bytes);
    if (result == 0)
        account(w, tree, old, ret_now);
    return result;
}

/* What the nodes above those that are put in may take, so that room is left for them. */
static uint32_t room_above(const struct rewrite *w)
{
    const struct inspection *ins = w->ins;
    const uint32_t node = 2 * chunk_size_bytes(CHUNK_TABLE_ENTRY_BYTES_MAX, node_encoded_bytes_max(1, 0),
                                               ins->write_unit_bytes, CHUNK_COPY_NONE);
    return (uint32_t)min_u64((uint64_t)node * 3 * MAP_LEVELS_MAX, ins->segment_bytes / 2);
}

static void tally_node(struct tally *t, const struct node *n)
{
    t->leaves++;
    t->uncertain |= n->level > 0;
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        t->uncertain |= n->children[i].kind == POINTER_LOST;
        t->provisioned_records += n->children[i].kind == POINTER_PROVISIONED;
    }
}

int rewrite_node(struct rewrite *w, const struct check_lost_node *lost, const struct node *node)
{
    struct pointer now;
    const uint32_t filled = w->filled_bytes;
    CHECK_EQ(lost->number, node->number);
    CHECK_GE(lost->tree, CHECK_TREES_OWN);
    if (w->ins->segment_bytes - filled < room_above(w))
        return 0;
    const int result = put_node(w, lost->tree, &lost->pointer, node, &now);
    if (result != 0)
        return result == -ENOSPC ? 0 : result;
    w->node_count++;
    tally_node(&w->tallies[lost->tree], node);
    return note_replaced(w, lost->tree, map_level_bits(lost->level), lost->number, &now);
}

void rewrite_accounts(struct rewrite *w)
{
    struct inspection *ins = w->ins;
    CHECK_EQ(w->node_count, 0);
    for (size_t tree = CHECK_TREES_OWN; tree < ins->trees.count; tree++) {
        struct check_tree *t = &ins->trees.list[tree];
        struct catalog_volume *v = &t->volume;
        if (v->mapped_records == t->mapped_records && v->stored_bytes == t->stored_bytes &&
            v->node_bytes == t->node_bytes && v->provisioned_records == t->provisioned_records)
            continue;
        v->mapped_records = t->mapped_records;
        v->stored_bytes = t->stored_bytes;
        v->node_bytes = t->node_bytes;
        v->provisioned_records = t->provisioned_records;
        w->tallies[tree].recounted = true;
        w->recount++;
    }
    for (uint32_t slot = 0; slot < ins->slot_count; slot++) {
        const struct check_slot *counted = &ins->slots[slot];
        struct slot *s = &w->table[slot];
        if (s->live_bytes == counted->live_bytes)
            continue;
        s->live_bytes = (uint32_t)counted->live_bytes;
        w->recount++;
        /* The label before this may still reach the pool's own trees there: free with the next checkpoint. */
        const bool below = s->head != CHUNK_HEAD_DATA || s->segment < ins->label.replay_address / ins->segment_bytes;
        if (s->state == SLOT_CLOSED && counted->object_count == 0 && below) {
            s->state = SLOT_QUARANTINED;
            s->since = ins->label.checkpoint + 1;
        }
    }
}

/* ---- the way up ---- */

static int repoint(struct rewrite *w, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number,
                   struct pointer *ret_now);

static int repoint_children(struct rewrite *w, uint32_t tree, struct node *n)
{
    const uint32_t bits = n->level == 0 ? 0 : map_level_bits(n->level - 1u);
    const uint64_t first = n->number << (n->level == 0 ? MAP_LEAF_BITS : MAP_INNER_BITS);
    int result = 0;
    for (uint32_t i = 0; i < map_fanout(n->level) && result == 0; i++) {
        if (!holds_replaced(w, tree, bits, first + i))
            continue;
        const struct replaced *r = find_replaced(w, tree, bits, first + i);
        if (r != NULL)
            n->children[i] = r->now;
        else if (n->children[i].kind == POINTER_NODE)
            result = repoint(w, tree, &n->children[i], (uint8_t)(n->level - 1), first + i, &n->children[i]);
        else
            result = -EBADMSG;
    }
    return result;
}

/* Writes a node anew, and those below it that lead to something replaced. p may be ret_now. */
static int repoint(struct rewrite *w, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number,
                   struct pointer *ret_now)
{
    struct inspection *ins = w->ins;
    const struct pointer old = *p;
    const struct replaced *r = find_replaced(w, tree, map_level_bits(level), number);
    if (r != NULL) {
        *ret_now = r->now;
        return 0;
    }
    if (old.kind != POINTER_NODE || old.length > ins->node_bytes_max)
        return -EBADMSG;
    uint64_t offset;
    uint8_t *bytes = malloc(old.length);
    struct node *n = malloc(sizeof(*n));
    struct node_patch *patches = level == 0 ? calloc(NODE_PATCHES_MAX, sizeof(*patches)) : NULL;
    int result = bytes != NULL && n != NULL && (level > 0 || patches != NULL) ? 0 : -ENOMEM;
    if (result == 0 && check_object_read(ins, tree, &old, true, bytes, &offset) != 0)
        result = -EBADMSG;
    if (result == 0) {
        n->patches = patches;
        result = node_decode(bytes, old.length, ins->trees.list[tree].volume.branch, level, number,
                             tree == CHECK_TREE_TABLE ? UINT64_MAX : old.address, n, NULL);
    }
    if (result == 0)
        result = repoint_children(w, tree, n);
    if (result == 0)
        result = put_node(w, tree, &old, n, ret_now);
    free(patches);
    free(n);
    free(bytes);
    return result;
}

static int repoint_root(struct rewrite *w, uint32_t tree)
{
    struct catalog_volume *v = &w->ins->trees.list[tree].volume;
    if (v->height == 0)
        return -EBADMSG;
    return repoint(w, tree, &v->root, (uint8_t)(v->height - 1), 0, &v->root);
}

/* A record of one of the pool's own trees, compressed if that makes it smaller. */
static int put_record(struct rewrite *w, uint32_t tree, uint64_t index, const uint8_t *raw, uint32_t raw_bytes)
{
    struct inspection *ins = w->ins;
    uint8_t packed[TABLE_RECORD_BYTES];
    struct pointer now;
    struct chunk_entry e = {.kind = ENTRY_DATA, .branch = ins->trees.list[tree].volume.branch, .index = index};
    CHECK_LE(raw_bytes, sizeof(packed));
    e.codec = CODEC_LZ4;
    e.length =
        (uint32_t)codec_compress(ins->codec, (struct codec_choice){.id = CODEC_LZ4}, raw, raw_bytes, packed, raw_bytes);
    if (e.length == 0) {
        e.codec = CODEC_OFF;
        e.length = raw_bytes;
    }
    const int result = put(w, tree, &e, e.codec == CODEC_OFF ? raw : packed, &now);
    return result == 0 ? note_replaced(w, tree, 0, index, &now) : result;
}

/* ---- catalog ---- */

struct wanted {
    struct rewrite *w;
    uint64_t index;
    bool same;
};

/* The object in the catalog is what the encoder makes of its values: a newer program may have put more into it. */
static int compare_object(void *arg, uint32_t tree, const struct pointer *p, uint64_t index)
{
    struct wanted *wanted = arg;
    struct inspection *ins = wanted->w->ins;
    uint8_t stored[CATALOG_OBJECT_BYTES_MAX], raw[CATALOG_OBJECT_BYTES_MAX], again[CATALOG_OBJECT_BYTES_MAX] = {0};
    struct catalog_volume v;
    uint64_t offset;
    if (index != wanted->index || p->length > sizeof(stored))
        return 0;
    if (check_object_read(ins, tree, p, true, stored, &offset) != 0 ||
        codec_decompress(ins->codec, p->codec, stored, p->length, raw, sizeof(raw)) != 0 ||
        catalog_volume_decode(raw, sizeof(raw), index, &v, NULL) != 0)
        return 0;
    (void)catalog_volume_encode(&v, again, sizeof(again));
    wanted->same = memcmp(raw, again, sizeof(raw)) == 0;
    return 0;
}

/*
 * Space set aside by an entry that nothing tells of any more reads as zeroes, and is not set aside any more. Where
 * something is still lost nobody knows how much of it that would be: then the account stays.
 */
static void count_provisioned(struct rewrite *w, uint32_t tree)
{
    const struct tally *tally = &w->tallies[tree];
    struct check_tree *t = &w->ins->trees.list[tree];
    size_t lost = 0;
    for (size_t i = 0; i < w->ins->lost.count; i++)
        lost += w->ins->lost.list[i].tree == tree;
    if (lost == tally->leaves && !tally->uncertain)
        t->volume.provisioned_records = t->provisioned_records + tally->provisioned_records;
}

static int rewrite_volume(struct rewrite *w, uint32_t tree, bool moved)
{
    struct inspection *ins = w->ins;
    const struct catalog_volume *v = &ins->trees.list[tree].volume;
    struct wanted wanted = {.w = w, .index = v->object_id};
    const struct check_visitor visitor = {.arg = &wanted, .record = compare_object};
    uint8_t raw[CATALOG_OBJECT_BYTES_MAX] = {0};
    int result = check_tree_walk(ins, CHECK_TREE_CATALOG, &visitor);
    if (result == 0 && !wanted.same)
        result = -EBADMSG;
    if (result == 0 && moved)
        result = repoint_root(w, tree);
    if (result != 0)
        return result;
    if (moved)
        count_provisioned(w, tree);
    (void)catalog_volume_encode(v, raw, sizeof(raw));
    return put_record(w, CHECK_TREE_CATALOG, v->object_id, raw, sizeof(raw));
}

static int rewrite_catalog(struct rewrite *w)
{
    struct inspection *ins = w->ins;
    bool any = false;
    int result = 0;
    for (uint32_t tree = CHECK_TREES_OWN; tree < ins->trees.count && result == 0; tree++) {
        const bool moved = holds_replaced(w, tree, map_level_bits(MAP_LEVELS_MAX - 1), 0);
        if (!moved && !w->tallies[tree].recounted)
            continue;
        result = rewrite_volume(w, tree, moved);
        any = true;
    }
    return result == 0 && any ? repoint_root(w, CHECK_TREE_CATALOG) : result;
}

/* ---- slot table ---- */

/* The node head goes on in another slot: what it has behind it is closed, what it had chosen ahead is free. */
static void settle_node_slots(struct rewrite *w)
{
    const struct inspection *ins = w->ins;
    const struct label *l = &ins->label;
    const uint64_t open_segment = l->node_slot == SLOT_NONE ? 0 : l->node_address / ins->segment_bytes;
    for (uint32_t i = 0; i < ins->slot_count; i++) {
        struct slot *s = &w->table[i];
        if (i == w->slot || s->head != CHUNK_HEAD_NODE || (s->state != SLOT_OPEN && s->state != SLOT_NEXT))
            continue;
        if (i == l->node_slot)
            s->used_bytes = (uint32_t)(l->node_address % ins->segment_bytes);
        else if (s->segment < open_segment)
            s->used_bytes = ins->segment_bytes;
        else
            s->used_bytes = 0;
        const bool used = s->used_bytes != 0;
        *s = (struct slot){.state = used ? SLOT_CLOSED : SLOT_READY,
                           .head = used ? s->head : 0,
                           .used_bytes = s->used_bytes,
                           .live_bytes = used ? s->live_bytes : 0,
                           .segment = used ? s->segment : 0,
                           .since = l->checkpoint + 1};
    }
}

static bool slots_equal(const struct slot *a, const struct slot *b)
{
    return a->state == b->state && a->head == b->head && a->device == b->device && a->used_bytes == b->used_bytes &&
           a->live_bytes == b->live_bytes && a->segment == b->segment && a->since == b->since;
}

static int rewrite_table(struct rewrite *w)
{
    struct inspection *ins = w->ins;
    int result = 0;
    w->table[w->slot] = (struct slot){.state = SLOT_OPEN,
                                      .head = CHUNK_HEAD_NODE,
                                      .live_bytes = w->table[w->slot].live_bytes,
                                      .segment = w->segment,
                                      .since = ins->label.checkpoint + 1};
    settle_node_slots(w);
    for (uint32_t first = 0; first < ins->slot_count && result == 0; first += SLOTS_PER_TABLE_RECORD) {
        bool changed = false;
        uint8_t raw[TABLE_RECORD_BYTES];
        for (uint32_t i = first; i < first + SLOTS_PER_TABLE_RECORD && i < ins->slot_count; i++)
            changed |= !slots_equal(&w->table[i], &ins->slots[i].table);
        if (!changed)
            continue;
        table_record_encode(&w->table[first], first, raw);
        result = put_record(w, CHECK_TREE_TABLE, first / SLOTS_PER_TABLE_RECORD, raw, sizeof(raw));
    }
    return result == 0 ? repoint_root(w, CHECK_TREE_TABLE) : result;
}

/* ---- label ---- */

static void make_label(const struct rewrite *w, struct label *l)
{
    const struct inspection *ins = w->ins;
    *l = ins->label;
    l->oldest_intact = l->sequence;
    l->sequence = ins->newest_sequence + 1;
    l->checkpoint++;
    l->written_wall_ns = env_wall_ns(ins->dev->env);
    l->next_segment = w->segment + 1;
    l->node_slot = w->slot;
    l->node_address = w->segment * ins->segment_bytes + w->filled_bytes;
    for (uint32_t i = 0; i < l->root_count; i++) {
        if (l->roots[i].kind == ROOT_CATALOG)
            l->roots[i].pointer = ins->trees.list[CHECK_TREE_CATALOG].volume.root;
        if (l->roots[i].kind == ROOT_SLOT_TABLE)
            l->roots[i].pointer = ins->trees.list[CHECK_TREE_TABLE].volume.root;
    }
}

static int plan(struct rewrite *w)
{
    struct inspection *ins = w->ins;
    struct label l;
    uint8_t *bytes = malloc(ins->write_unit_bytes);
    if (bytes == NULL)
        return -ENOMEM;
    make_label(w, &l);
    if (w->node_count != 0)
        check_repair_add(ins, check_slot_offset(ins, w->slot), w->bytes, w->filled_bytes,
                         "%" PRIu64 " map nodes put together anew from the log, and what names them", w->node_count);
    else
        check_repair_add(ins, check_slot_offset(ins, w->slot), w->bytes, w->filled_bytes,
                         "%" PRIu64 " accounts of volumes and slots counted anew, and what names them", w->recount);
    for (unsigned back = 0; back < 2 && ins->writes.count == 1 + back; back++) {
        l.in_back_ring = back != 0;
        label_encode(&l, bytes, ins->write_unit_bytes);
        check_repair_add(ins,
                         label_offset_bytes(ins->pool_bytes, ins->write_unit_bytes, back != 0,
                                            (uint32_t)(l.sequence % LABEL_RING_SLOTS)),
                         bytes, ins->write_unit_bytes, "label %" PRIu64 ", %s copy, which leads to them", l.sequence,
                         back != 0 ? "back" : "front");
        check_repair_after_flush(ins);
    }
    free(bytes);
    return 0;
}

int rewrite_finish(struct rewrite *w)
{
    if (w->node_count == 0 && w->recount == 0)
        return -ENODATA;
    CHECK(!check_repair_planned(w->ins));
    int result = rewrite_catalog(w);
    if (result == 0)
        result = rewrite_table(w);
    return result == 0 ? plan(w) : result;
}
