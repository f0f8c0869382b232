/*
 * Merging (merge.h): accounts, giving up subtrees, then one node after the other of a level, decoded into a scratch
 * node, changed, and encoded anew.
 */
#include "map/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

struct leaf_patches {
    uint8_t count;
    struct patch list[2 * PATCHES_PER_RECORD_MAX]; /* too many until those that newer ones cover are gone */
};

struct merge_scratch {
    struct node node;                                 /* the node being made */
    struct node_patch node_patches[NODE_PATCHES_MAX]; /* its patches, when it is encoded */
    struct leaf_patches patches[1u << MAP_LEAF_BITS]; /* by child, while it is changed */
    uint8_t *bytes;
    size_t bytes_room;
};

/* Marks an update whose subtree was taken apart by the level below, so that the level above does not walk it again. */
static const struct patch taken_apart;

/* ---- account ---- */

static void account_place(struct map_merge *m, const struct pointer *p, int sign)
{
    int64_t bytes = sign * (int64_t)p->length;
    if (!m->own)
        slots_add_live(m->slots, p->address, bytes);
    else if (m->old_tree.physical)
        slots_add_own(m->slots, (uint32_t)(p->address / m->slots->geometry->segment_bytes), bytes);
    else
        slots_add_own_at(m->slots, p->address, bytes);
}

static void account_node(struct map_merge *m, const struct pointer *p, int sign)
{
    CHECK_EQ(p->kind, POINTER_NODE);
    account_place(m, p, sign);
    m->account.node_bytes += sign * (int64_t)p->length;
}

static void account_data(struct map_merge *m, const struct pointer *p, int sign)
{
    account_place(m, p, sign);
    m->account.stored_bytes += sign * (int64_t)p->length;
}

/* A record as a whole: its base and how many patches lie on it. */
static void account_record(struct map_merge *m, const struct pointer *base, uint32_t patch_count, int sign)
{
    m->account.mapped_records += sign * (base->kind == POINTER_DATA || patch_count > 0);
    m->account.provisioned_records += sign * (base->kind == POINTER_PROVISIONED);
}

static void account_empty(struct map_merge *m, const struct pointer *p, uint64_t count, int sign)
{
    if (p->kind == POINTER_PROVISIONED)
        m->account.provisioned_records += sign * (int64_t)count;
}

/* ---- giving up subtrees ---- */

static int drop_node(void *arg, const struct pointer *p, uint8_t level, uint64_t number)
{
    (void)level;
    (void)number;
    account_node(arg, p, -1);
    return 0;
}

static int drop_data(void *arg, const struct pointer *p, uint64_t index, bool is_patch)
{
    (void)index;
    (void)is_patch;
    account_data(arg, p, -1);
    return 0;
}

static int drop_empty(void *arg, const struct pointer *p, uint64_t first_index, uint64_t count)
{
    (void)first_index;
    account_empty(arg, p, count, -1);
    return 0;
}

static int drop_unreadable(void *arg, const struct pointer *p, uint8_t level, uint64_t number, int error)
{
    struct map_merge *m = arg;
    (void)level;
    (void)number;
    (void)error;
    m->lost_nodes++;
    account_node(m, p, -1);
    return 0;
}

/* mapped_records of a leaf; the walk's data callback sees pointers, not records. */
static uint64_t mapped_in_leaf(const struct cached_node *leaf)
{
    uint64_t count = 0;
    uint64_t patched[2] = {0, 0};
    for (uint32_t i = 0; i < leaf->patch_count; i++)
        patched[leaf->patches[i].child / 64] |= UINT64_C(1) << leaf->patches[i].child % 64;
    for (uint32_t i = 0; i < map_fanout(0); i++)
        count += leaf->children[i].kind == POINTER_DATA || (patched[i / 64] >> i % 64 & 1) != 0;
    return count;
}

static int drop_node_counting(void *arg, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct map_merge *m = arg;
    if (level == 0) {
        struct cached_node *leaf;
        int result = node_store_get(m->store, &m->old_tree, p, 0, number, &leaf);
        if (result != 0)
            return result;
        m->account.mapped_records -= (int64_t)mapped_in_leaf(leaf);
        node_store_put(m->store, leaf);
    }
    return drop_node(arg, p, level, number);
}

static int drop_subtree(struct map_merge *m, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct map_walk walk = {
        .arg = m, .node = drop_node_counting, .data = drop_data, .empty = drop_empty, .unreadable = drop_unreadable};
    return map_walk_subtree(m->store, &m->old_tree, p, level, number, &walk);
}

int map_merge_discard_tree(struct map_merge *m)
{
    return drop_subtree(m, &m->old_tree.root, m->old_tree.height - 1, 0);
}

/* ---- one node ---- */

static struct pointer lost_pointer(uint64_t address)
{
    return (struct pointer){.kind = POINTER_LOST, .address = address};
}

static void load_children(struct merge_scratch *s, uint8_t level, const struct pointer *old,
                          const struct cached_node *node)
{
    uint32_t fanout = map_fanout(level);
    for (uint32_t i = 0; i < fanout; i++)
        s->node.children[i] = node != NULL ? node->children[i] : *old;
    for (uint32_t i = 0; level == 0 && i < fanout; i++)
        s->patches[i].count = 0;
    for (uint32_t i = 0; node != NULL && i < node->patch_count; i++) {
        struct leaf_patches *list = &s->patches[node->patches[i].child];
        CHECK_LT(list->count, PATCHES_PER_RECORD_MAX);
        list->list[list->count++] = node->patches[i].patch;
    }
}

/* What the node was, into the scratch. Its own bytes leave the account: it is being replaced. */
static int load_old(struct map_merge *m, uint64_t number)
{
    struct merge_scratch *s = m->scratch;
    struct pointer old = {0};
    struct cached_node *node = NULL;
    int result = 0;
    if (m->level >= m->old_tree.height) {
        /* The tree grew: the old root is the first child of the first node above it. */
        load_children(s, m->level, &old, NULL);
        if (m->level == m->old_tree.height && number == 0)
            s->node.children[0] = m->old_tree.root;
        return 0;
    }
    uint32_t top_bits = map_level_bits(m->old_tree.height - 1u) - map_level_bits(m->level);
    if (number >> top_bits == 0)
        result = map_find_node(m->store, &m->old_tree, m->level, number, &old);
    if (result == 0 && old.kind == POINTER_NODE) {
        account_node(m, &old, -1);
        result = node_store_get(m->store, &m->old_tree, &old, m->level, number, &node);
    }
    if (result == -EBADMSG) {
        m->lost_nodes++;
        old = lost_pointer(old.address);
        result = 0;
    }
    if (result != 0)
        return result;
    load_children(s, m->level, &old, node);
    if (node != NULL)
        node_store_put(m->store, node);
    return 0;
}

static void patch_dropped(void *arg, const struct patch *patch)
{
    account_data(arg, &patch->pointer, -1);
}

/* -EBADMSG: more patches than a record can have. Only a pool that was tampered with says so. */
static int change_record(struct map_merge *m, uint32_t child, const struct map_update *u)
{
    struct pointer *base = &m->scratch->node.children[child];
    struct leaf_patches *patches = &m->scratch->patches[child];
    account_record(m, base, patches->count, -1);
    if (u->has_base) {
        if (base->kind == POINTER_DATA)
            account_data(m, base, -1);
        for (uint32_t i = 0; i < patches->count; i++)
            account_data(m, &patches->list[i].pointer, -1);
        patches->count = 0;
        *base = u->base;
        if (base->kind == POINTER_DATA)
            account_data(m, base, 1);
    }
    for (uint32_t i = 0; i < u->patch_count && !m->forget_patches; i++) {
        CHECK_LT(patches->count, 2 * PATCHES_PER_RECORD_MAX);
        patches->list[patches->count++] = u->patches[i];
        account_data(m, &u->patches[i].pointer, 1);
    }
    patches->count = (uint8_t)patches_prune(patches->list, patches->count, patch_dropped, m);
    account_record(m, base, patches->count, 1);
    return patches->count <= PATCHES_PER_RECORD_MAX ? 0 : -EBADMSG;
}

/* A child subtree becomes another pointer: from the level below, or a range that covers it. */
static int change_child(struct map_merge *m, uint32_t child, uint64_t child_number, const struct map_update *u)
{
    struct pointer *p = &m->scratch->node.children[child];
    bool is_range = u->base.kind == POINTER_HOLE || u->base.kind == POINTER_PROVISIONED;
    uint64_t records = UINT64_C(1) << map_level_bits(m->level - 1u);
    int result = 0;
    CHECK_EQ(u->patch_count, 0);
    CHECK(u->has_base);
    /* A raised range replaces a subtree nobody has taken apart; what the level below made replaces a node it has
     * accounted. */
    if (is_range && u->patches != &taken_apart) {
        result = drop_subtree(m, p, m->level - 1, child_number);
        if (result == 0)
            account_empty(m, &u->base, records, 1);
    }
    *p = u->base;
    return result;
}

/* ---- what becomes of it ---- */

/* One pointer that says the same as all children, if there is one: all absent, all holes (the newest date), all
 * provisioned, all lost. */
static bool collapse(const struct merge_scratch *s, uint8_t level, struct pointer *ret_pointer)
{
    uint32_t fanout = map_fanout(level);
    struct pointer all = s->node.children[0];
    for (uint32_t i = 0; i < fanout; i++) {
        const struct pointer *p = &s->node.children[i];
        if (pointer_has_bytes(p) || (level == 0 && s->patches[i].count > 0))
            return false;
        bool both_zero = (p->kind == POINTER_ABSENT || p->kind == POINTER_HOLE) &&
                         (all.kind == POINTER_ABSENT || all.kind == POINTER_HOLE);
        if (p->kind != all.kind && !both_zero)
            return false;
        if (p->kind != POINTER_ABSENT && (all.kind == POINTER_ABSENT || p->address > all.address))
            all = *p;
    }
    *ret_pointer = all;
    return true;
}

static int encode(struct map_merge *m, uint64_t number, size_t *ret_length)
{
    struct merge_scratch *s = m->scratch;
    s->node.branch = m->old_tree.branch;
    s->node.level = m->level;
    s->node.number = number;
    s->node.patches = s->node_patches;
    s->node.patch_count = 0;
    for (uint32_t i = 0; m->level == 0 && i < map_fanout(0); i++) {
        for (uint32_t k = 0; k < s->patches[i].count; k++)
            s->node_patches[s->node.patch_count++] =
                (struct node_patch){.child = (uint8_t)i, .patch = s->patches[i].list[k]};
    }
    size_t room = node_encoded_bytes_max(m->level, s->node.patch_count);
    if (room > s->bytes_room) {
        uint8_t *bytes = realloc(s->bytes, room);
        if (bytes == NULL)
            return -ENOMEM;
        s->bytes = bytes;
        s->bytes_room = room;
    }
    *ret_length = node_encode(&s->node, s->bytes, s->bytes_room);
    return 0;
}

static struct map_update *raise_update(struct map_merge *m, uint64_t number)
{
    CHECK_LT(m->raised_count, m->raised_room);
    m->raised_nodes[m->raised_count] = NULL;
    struct map_update *u = &m->raised[m->raised_count++];
    *u = (struct map_update){.first = number, .count = 1, .has_base = true};
    return u;
}

/* The node just encoded, for the cache, which takes it once its address is known. Updates at random make more nodes at
 * a time than the cache could ever take: those beyond its budget are read back if they are wanted. */
static void keep_node(struct map_merge *m)
{
    const struct node *n = &m->scratch->node;
    if (m->old_tree.physical || m->raised_node_bytes >= m->store->budget_bytes / 2)
        return;
    struct cached_node *node = cached_node_of(n);
    m->raised_nodes[m->raised_count - 1] = node;
    if (node != NULL)
        m->raised_node_bytes += cached_node_bytes(node);
}

static int finish_node(struct map_merge *m, uint64_t number)
{
    struct map_update *u = raise_update(m, number);
    u->patches = &taken_apart;
    if (collapse(m->scratch, m->level, &u->base))
        return 0;
    size_t length;
    int result = encode(m, number, &length);
    if (result != 0)
        return result;
    struct chunk_entry entry = {.kind = ENTRY_NODE, .level = m->level, .branch = m->old_tree.branch, .index = number};
    keep_node(m);
    return node_head_append(m->node_head, &entry, m->scratch->bytes, (uint32_t)length, m->old_tree.physical, &u->base,
                            m->checkpoint);
}

/* ---- a level ---- */

/* Changes node `number` by all updates that touch it, starting at *at; moves *at and the rest of a range along. */
static int make_node(struct map_merge *m, uint64_t number, uint64_t *at)
{
    uint64_t fanout = map_fanout(m->level), first = number * fanout, end = first + fanout;
    int result = load_old(m, number);
    while (result == 0 && *at < m->update_count && m->updates[*at].first < end) {
        struct map_update *u = &m->updates[*at];
        uint64_t stop = min_u64(u->first + u->count, end);
        for (uint64_t i = u->first; i < stop && result == 0; i++) {
            if (m->level == 0)
                result = change_record(m, (uint32_t)(i - first), u);
            else
                result = change_child(m, (uint32_t)(i - first), i, u);
        }
        u->count -= stop - u->first;
        u->first = stop;
        if (u->count > 0)
            break; /* goes on in the next node */
        (*at)++;
    }
    return result == 0 ? finish_node(m, number) : result;
}

/* A range that covers whole nodes from its start: they go up as one. */
static void raise_whole_nodes(struct map_merge *m, struct map_update *u, uint64_t fanout)
{
    uint64_t nodes = u->count / fanout;
    struct map_update *r = raise_update(m, u->first / fanout);
    r->count = nodes;
    r->base = u->base;
    u->first += nodes * fanout;
    u->count -= nodes * fanout;
}

static int reserve_raised(struct map_merge *m)
{
    m->raised_room = 3 * m->update_count + 1;
    m->raised_count = 0;
    m->raised_node_bytes = 0;
    m->raised = malloc(m->raised_room * sizeof *m->raised);
    m->raised_nodes = calloc(m->raised_room, sizeof *m->raised_nodes);
    return m->raised == NULL || m->raised_nodes == NULL ? -ENOMEM : 0;
}

int map_merge_level(struct map_merge *m)
{
    uint64_t fanout = map_fanout(m->level);
    bool grown = m->level >= m->old_tree.height && m->level < m->new_tree.height;
    int result = reserve_raised(m);
    if (result == 0 && grown && (m->update_count == 0 || m->updates[0].first >= fanout)) {
        uint64_t none = m->update_count;
        result = make_node(m, 0, &none);
    }
    for (uint64_t at = 0; result == 0 && at < m->update_count;) {
        struct map_update *u = &m->updates[at];
        bool was_taken_apart = u->patches == &taken_apart;
        bool may_rise = m->level + 1 < m->new_tree.height && !was_taken_apart &&
                        !(grown && u->first == 0); /* keeps its place above the old root */
        if (may_rise && u->first % fanout == 0 && u->count >= fanout) {
            raise_whole_nodes(m, u, fanout);
            at += u->count == 0;
        } else {
            result = make_node(m, u->first / fanout, &at);
        }
    }
    return result;
}

void map_merge_promote(struct map_merge *m)
{
    for (uint64_t i = 0; i < m->raised_count; i++) {
        const struct pointer *p = &m->raised[i].base;
        if (p->kind == POINTER_NODE)
            account_node(m, p, 1);
        node_store_adopt(m->store, m->raised_nodes[i], p->kind == POINTER_NODE ? p->address : 0);
    }
    free(m->updates);
    free(m->raised_nodes);
    m->updates = m->raised;
    m->update_count = m->raised_count;
    m->raised = NULL;
    m->raised_nodes = NULL;
    m->raised_count = 0;
    m->level++;
}

int map_merge_begin(struct map_merge *m, struct node_store *store, struct node_head *node_head, struct slots *slots,
                    const struct map_tree *old_tree, uint8_t new_height, struct map_update *updates,
                    uint64_t update_count, uint64_t checkpoint)
{
    memset(m, 0, sizeof *m);
    CHECK_GE(new_height, old_tree->height);
    CHECK_LE(new_height, MAP_LEVELS_MAX);
    m->store = store;
    m->node_head = node_head;
    m->slots = slots;
    m->checkpoint = checkpoint;
    m->old_tree = *old_tree;
    m->new_tree = *old_tree;
    m->new_tree.height = new_height;
    m->updates = updates;
    m->update_count = update_count;
    m->scratch = calloc(1, sizeof *m->scratch);
    return m->scratch == NULL ? -ENOMEM : 0;
}

bool map_merge_done(const struct map_merge *m)
{
    return m->level == m->new_tree.height || (m->update_count == 0 && m->old_tree.height == m->new_tree.height);
}

void map_merge_end(struct map_merge *m)
{
    if (m->level == m->new_tree.height && m->update_count > 0) {
        CHECK_EQ(m->updates[0].first, 0);
        CHECK_EQ(m->update_count, 1);
        m->new_tree.root = m->updates[0].base;
    }
    for (uint64_t i = 0; i < m->raised_count; i++)
        node_store_adopt(m->store, m->raised_nodes[i], 0);
    free(m->updates);
    free(m->raised);
    free(m->raised_nodes);
    if (m->scratch != NULL)
        free(m->scratch->bytes);
    free(m->scratch);
    memset(&m->updates, 0, sizeof *m - offsetof(struct map_merge, updates));
}
