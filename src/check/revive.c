/*
 * A lost leaf of which no exact copy can be put together (rebuild.c) still has most of its records somewhere. What is
 * not known is whether the newest entry of a record that can be found is the newest there was: a trim has no bytes that
 * keep its segment, and a volume that was made smaller left no entry at all. To show what was trimmed would be wrong
 * bytes given out as right. The accounts settle it:
 *
 * 1. A live object lies in a segment in use, and its chunk's table names it. So all entries found there that nothing
 *    found is newer than, the *candidates*, hold everything that was live in what is lost, and perhaps something dead.
 * 2. The slot table says for each slot how many live bytes are in it, exact at the checkpoint. What the intact part of
 *    the maps refers to there is known. If that and all candidates of the slot together are just what the table says,
 *    every one of them is live. If what is known is already all, every one is dead. The volume's own account, of stored
 *    bytes and of map bytes, gives the same proof for all of its candidates together.
 * 3. Where neither holds it is uncertain which candidates are live. A record with an uncertain part becomes
 *    POINTER_LOST: it reads as an error. So does one without a candidate, unless the table of every chunk in use can be
 *    read: only then there is certainly nothing, and it reads as zeroes.
 *
 * A slot in which a chunk cannot be made out proves nothing (1 does not hold there), and no volume's account does then.
 * Of the node head such a place matters only before the lost node, where something below it could have been; the bytes
 * in front of it in its own chunk do not count: what is below it had its address before the chunk was begun, and the
 * smallest chunk of the node head, twice, is two write units. Nothing is proved either where accounts may be too high:
 * in a pool in which a range was lost before. (An account that is too high and does not show: a range was lost while
 * the pool was in use, then just what was lost was trimmed, and no trace of that trim is left. If then the very leaf is
 * lost in both copies, this proof is wrong. `check` finds such an account while the leaf is there.)
 *
 * Of an inner node the candidates are the newest versions of the nodes below it; the same holds for them, with the
 * bytes of map nodes. What they lead to has a say too: if the slot of a record below one is settled by its sum, so is
 * the candidate, and one with a record in a segment that is not in use any more is dead. What is dead goes out of the
 * sums, and that may settle others. Inner nodes come first; leaves when they are all in place, in the next look.
 *
 * Accounts are not counted anew as long as something is lost (recount.c does it later): they keep what they said, so
 * that the proof stays possible and the entries stay where they are. How it is written is told by rewrite.c. It is
 * done only in a pool that was closed cleanly: otherwise slots and numbers may be in use that only the log behind
 * the checkpoint tells.
 */
#include "check/revive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "check/repair.h"
#include "check/rewrite.h"
#include "check/tree.h"

enum verdict { VERDICT_UNKNOWN, VERDICT_LIVE, VERDICT_DEAD };

/* Bytes of candidates, and of lost nodes that something intact refers to. */
struct sums {
    uint64_t *by_slot;
    uint64_t *by_tree; /* of candidates only: map nodes where inner nodes are lost, else records and patches */
    uint64_t *lost_by_tree;
};

#define PASSES_MAX 16 /* each settles a candidate at least; what is left then stays uncertain */

struct revive {
    struct rebuild *r;
    struct sums sums;
    uint8_t level;                      /* of the nodes dealt with: 0, or the highest that is lost */
    bool any_gap;                       /* somewhere an entry table of the data head cannot be read */
    bool spoiled;                       /* some candidate could not be counted: nothing is proved */
    bool blind;                         /* not all records below the candidates could be counted: they prove nothing */
    CHECK_ARRAY(enum verdict) children; /* of inner nodes: what is known of each candidate, in the order of a pass */
    size_t child;                       /* of `children`, in a pass */
    struct rewrite *w;
};

static uint32_t slot_of(struct inspection *ins, const struct pointer *p)
{
    const uint64_t place = check_place(ins, CHECK_TREES_OWN, p->address, p->length);
    return place == CHECK_NOWHERE ? SLOT_NONE : (uint32_t)(place / ins->segment_bytes);
}

static bool slot_has_gap(const struct rebuild *r, uint32_t slot)
{
    for (size_t i = 0; i < r->gaps.count; i++)
        if (r->gaps.list[i].slot == slot)
            return true;
    return false;
}

/* Something below this inner node may lie where no table can be read. */
static bool may_hide_below(const struct rebuild *r, const struct check_lost_node *lost)
{
    for (size_t i = 0; i < r->gaps.count; i++) {
        const struct rebuild_gap *g = &r->gaps.list[i];
        if (r->ins->slots[g->slot].table.head != CHUNK_HEAD_NODE || g->from >= lost->address)
            continue;
        if (g->to <= lost->address || lost->address - g->from >= 2 * (uint64_t)r->ins->write_unit_bytes)
            return true;
    }
    return false;
}

/* ---- what must hold ---- */

static bool pool_allows(const struct rebuild *r)
{
    const struct inspection *ins = r->ins;
    return rewrite_allowed(ins) && !r->overflowed &&
           check_report_count_of(ins->report, CHECK_PROBLEM_NODE_DAMAGED) == ins->lost.count;
}

/* ---- candidates ---- */

static void add_candidate(struct revive *v, uint32_t tree, const struct pointer *p)
{
    const uint32_t slot = slot_of(v->r->ins, p);
    v->spoiled |= slot == SLOT_NONE;
    if (slot == SLOT_NONE)
        return;
    v->sums.by_slot[slot] += p->length;
    v->sums.by_tree[tree] += p->length;
}

/* r->node becomes the lost node as it would be if all candidates were live. */
static void put_candidates(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to)
{
    struct rebuild *r = v->r;
    struct node *n = &r->node;
    const uint64_t records = r->ins->trees.list[lost->tree].record_count;
    rebuild_begin(r, lost);
    for (size_t i = from; i < to; i++) {
        const struct found_entry *f = &r->found.list[i];
        if (f->trust != TRUST_LIVE)
            continue;
        if (lost->level > 0 && f->entry.kind == ENTRY_NODE && f->entry.level + 1u == lost->level)
            n->children[f->entry.index - (n->number << MAP_INNER_BITS)] = rebuild_pointer(f);
        else if (lost->level == 0 && f->entry.kind != ENTRY_NODE)
            v->spoiled |= !rebuild_apply_to_leaf(r, f);
    }
    if (lost->level > 0)
        return;
    /* Past the end of the volume nothing is live. */
    const uint64_t first = n->number << MAP_LEAF_BITS;
    for (uint32_t i = 0; i < map_fanout(0); i++)
        if (first + i >= records)
            n->children[i] = (struct pointer){0};
    while (n->patch_count > 0 && first + n->patches[n->patch_count - 1].child >= records)
        n->patch_count--;
}

typedef void visit_function(struct revive *v, const struct check_lost_node *lost, const struct pointer *p, void *arg);

/* Visits all that a candidate, a map node, leads to. *ret_whole false: a part of it cannot be read. */
static int visit_below(struct revive *v, const struct check_lost_node *lost, const struct pointer *p, uint8_t level,
                       uint64_t number, visit_function *visit, void *arg, bool *ret_whole)
{
    struct inspection *ins = v->r->ins;
    uint64_t offset;
    uint8_t *bytes = malloc(ins->node_bytes_max);
    struct node *n = malloc(sizeof(*n));
    struct node_patch *patches = level == 0 ? calloc(NODE_PATCHES_MAX, sizeof(*patches)) : NULL;
    int result = bytes != NULL && n != NULL && (level > 0 || patches != NULL) ? 0 : -ENOMEM;
    bool read = false;
    if (result == 0) {
        n->patches = patches;
        read = p->length <= ins->node_bytes_max && check_object_read(ins, lost->tree, p, true, bytes, &offset) == 0 &&
               node_decode(bytes, p->length, lost->branch, level, number, p->address, n, NULL) == 0;
        *ret_whole &= read;
    }
    for (uint32_t i = 0; result == 0 && read && i < map_fanout(level); i++) {
        if (!pointer_has_bytes(&n->children[i]))
            continue;
        visit(v, lost, &n->children[i], arg);
        if (level > 0)
            result = visit_below(v, lost, &n->children[i], (uint8_t)(level - 1), (number << MAP_INNER_BITS) + i, visit,
                                 arg, ret_whole);
    }
    for (uint32_t i = 0; result == 0 && read && level == 0 && i < n->patch_count; i++)
        visit(v, lost, &n->patches[i].patch.pointer, arg);
    free(patches);
    free(n);
    free(bytes);
    return result;
}

static void count_object(struct revive *v, const struct check_lost_node *lost, const struct pointer *p, void *arg)
{
    const uint32_t slot = slot_of(v->r->ins, p);
    (void)arg;
    if (p->kind == POINTER_NODE)
        add_candidate(v, lost->tree, p);
    else if (slot != SLOT_NONE)
        v->sums.by_slot[slot] += p->length;
}

static int count_child(struct revive *v, const struct check_lost_node *lost, uint32_t i)
{
    const struct node *n = &v->r->node;
    bool whole = true;
    add_candidate(v, lost->tree, &n->children[i]);
    const int result = visit_below(v, lost, &n->children[i], (uint8_t)(n->level - 1), (n->number << MAP_INNER_BITS) + i,
                                   count_object, NULL, &whole);
    v->blind |= !whole;
    v->spoiled |= !whole && n->level > 1;
    return result;
}

static int count_candidates(struct revive *v, const struct check_lost_node *lost)
{
    const struct node *n = &v->r->node;
    int result = 0;
    for (uint32_t i = 0; i < map_fanout(n->level) && result == 0; i++) {
        const struct pointer *p = &n->children[i];
        v->spoiled |= !pointer_valid(p);
        if (!pointer_has_bytes(p) || v->spoiled)
            continue;
        if (n->level == 0)
            add_candidate(v, lost->tree, p);
        else if (v->children.list[v->child++] != VERDICT_DEAD)
            result = count_child(v, lost, i);
    }
    for (uint32_t i = 0; i < n->patch_count; i++) {
        v->spoiled |= !patch_valid(&n->patches[i].patch);
        add_candidate(v, lost->tree, &n->patches[i].patch.pointer);
    }
    return result;
}

/* ---- proof ---- */

static enum verdict judge(uint64_t said, uint64_t known, uint64_t candidates)
{
    if (said == known + candidates)
        return VERDICT_LIVE;
    return said == known ? VERDICT_DEAD : VERDICT_UNKNOWN;
}

static enum verdict judge_object(const struct revive *v, const struct check_lost_node *lost, const struct pointer *p)
{
    struct inspection *ins = v->r->ins;
    const struct check_tree *t = &ins->trees.list[lost->tree];
    const uint32_t slot = slot_of(ins, p);
    enum verdict verdict = VERDICT_UNKNOWN;
    if (v->spoiled || slot == SLOT_NONE)
        return VERDICT_UNKNOWN;
    if (lost->level > 0 || !slot_has_gap(v->r, slot))
        verdict = judge(ins->slots[slot].table.live_bytes, ins->slots[slot].live_bytes, v->sums.by_slot[slot]);
    if (verdict != VERDICT_UNKNOWN || v->any_gap)
        return verdict;
    const uint64_t candidates = v->sums.by_tree[lost->tree];
    return lost->level > 0 ? judge(t->volume.node_bytes, t->node_bytes + v->sums.lost_by_tree[lost->tree], candidates)
                           : judge(t->volume.stored_bytes, t->stored_bytes, candidates);
}

/* What an object below a candidate says of it: it is live as that is, or dead. */
struct evidence {
    bool live, dead;
};

static void hear_object(struct revive *v, const struct check_lost_node *lost, const struct pointer *p, void *arg)
{
    struct inspection *ins = v->r->ins;
    struct evidence *e = arg;
    const uint32_t slot = slot_of(ins, p);
    const uint8_t state = slot != SLOT_NONE ? ins->slots[slot].table.state : SLOT_BARE;
    (void)lost;
    if (p->kind == POINTER_NODE)
        return;
    /* What is live lies in a segment in use. */
    if (state != SLOT_OPEN && state != SLOT_CLOSED) {
        e->dead = true;
        return;
    }
    if (v->blind)
        return;
    const enum verdict verdict =
        judge(ins->slots[slot].table.live_bytes, ins->slots[slot].live_bytes, v->sums.by_slot[slot]);
    e->live |= verdict == VERDICT_LIVE;
    e->dead |= verdict == VERDICT_DEAD;
}

static int judge_child(struct revive *v, const struct check_lost_node *lost, uint32_t i, enum verdict *ret_verdict)
{
    const struct node *n = &v->r->node;
    const enum verdict own = judge_object(v, lost, &n->children[i]);
    struct evidence e = {.live = own == VERDICT_LIVE, .dead = own == VERDICT_DEAD};
    bool whole = true;
    int result = 0;
    if (!v->spoiled)
        result = visit_below(v, lost, &n->children[i], (uint8_t)(n->level - 1), (n->number << MAP_INNER_BITS) + i,
                             hear_object, &e, &whole);
    *ret_verdict = e.live == e.dead ? VERDICT_UNKNOWN : e.live ? VERDICT_LIVE : VERDICT_DEAD;
    return result;
}

/* Takes from r->node what is dead, and marks what is uncertain. Returns the number of children that are kept and have
 * bytes. */
static uint32_t keep_what_is_proved(struct revive *v, const struct check_lost_node *lost)
{
    struct node *n = &v->r->node;
    bool dead_patch[MAP_FANOUT_MAX] = {false}, uncertain[MAP_FANOUT_MAX] = {false}, bytes[MAP_FANOUT_MAX] = {false};
    uint32_t kept = 0, useful = 0;
    for (uint32_t i = 0; i < n->patch_count; i++) {
        const enum verdict verdict = judge_object(v, lost, &n->patches[i].patch.pointer);
        uncertain[n->patches[i].child] |= verdict == VERDICT_UNKNOWN;
        dead_patch[n->patches[i].child] |= verdict == VERDICT_DEAD;
        bytes[n->patches[i].child] = true;
        if (verdict != VERDICT_DEAD)
            n->patches[kept++] = n->patches[i];
    }
    n->patch_count = kept;
    for (uint32_t i = 0; i < map_fanout(n->level); i++) {
        struct pointer *p = &n->children[i];
        enum verdict verdict = VERDICT_DEAD;
        if (pointer_has_bytes(p))
            verdict = n->level > 0 ? v->children.list[v->child++] : judge_object(v, lost, p);
        bytes[i] |= pointer_has_bytes(p);
        /* A patch that is dead was folded into something newer than what is below it, or trimmed with it. */
        uncertain[i] |= verdict == VERDICT_UNKNOWN || (verdict == VERDICT_LIVE && dead_patch[i]) ||
                        (!bytes[i] && (v->any_gap || v->spoiled));
        if (uncertain[i])
            *p = (struct pointer){.kind = POINTER_LOST, .address = lost->address};
        else if (verdict == VERDICT_DEAD && pointer_has_bytes(p))
            *p = (struct pointer){0};
        useful += !uncertain[i] && pointer_has_bytes(p);
    }
    kept = 0;
    for (uint32_t i = 0; i < n->patch_count; i++)
        if (!uncertain[n->patches[i].child])
            n->patches[kept++] = n->patches[i];
    n->patch_count = kept;
    return useful + kept;
}

/* ---- the two passes ---- */

static int each_lost(struct revive *v,
                     int (*each)(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to))
{
    struct rebuild *r = v->r;
    int result = 0;
    for (size_t from = 0, to; from < r->found.count && result == 0; from = to) {
        const struct check_lost_node *lost = &r->ins->lost.list[r->found.list[from].lost];
        for (to = from; to < r->found.count && r->found.list[to].lost == r->found.list[from].lost;)
            to++;
        if (lost->tree >= CHECK_TREES_OWN && (lost->level > 0) == (v->level > 0))
            result = each(v, lost, from, to);
    }
    return result;
}

static int count_one(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to)
{
    put_candidates(v, lost, from, to);
    return count_candidates(v, lost);
}

/* Makes room for the verdicts on the children of inner nodes. */
static int list_children(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to)
{
    int result = 0;
    put_candidates(v, lost, from, to);
    for (uint32_t i = 0; lost->level > 0 && i < map_fanout(lost->level) && result == 0; i++)
        if (pointer_has_bytes(&v->r->node.children[i]) && check_array_add(&v->children) == NULL)
            result = -ENOMEM;
    return result;
}

static int judge_one(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to)
{
    int result = 0;
    put_candidates(v, lost, from, to);
    for (uint32_t i = 0; lost->level > 0 && i < map_fanout(lost->level) && result == 0; i++) {
        if (!pointer_has_bytes(&v->r->node.children[i]))
            continue;
        enum verdict *verdict = &v->children.list[v->child++];
        if (*verdict == VERDICT_UNKNOWN)
            result = judge_child(v, lost, i, verdict);
    }
    return result;
}

static int one_pass(struct revive *v,
                    int (*each)(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to))
{
    v->child = 0;
    return each_lost(v, each);
}

/* Which candidates are live. One that turns out to be dead takes its bytes from the sums, and may so settle others. */
static int settle(struct revive *v)
{
    const struct inspection *ins = v->r->ins;
    size_t unknown = SIZE_MAX, now = 0;
    int result = one_pass(v, list_children);
    for (int pass = 0; pass < PASSES_MAX && now < unknown && result == 0; pass++) {
        memset(v->sums.by_slot, 0, ins->slot_count * sizeof(uint64_t));
        memset(v->sums.by_tree, 0, ins->trees.count * sizeof(uint64_t));
        unknown = pass == 0 ? SIZE_MAX : now;
        result = one_pass(v, count_one);
        if (result == 0)
            result = one_pass(v, judge_one);
        now = 0;
        for (size_t i = 0; i < v->children.count; i++)
            now += v->children.list[i] == VERDICT_UNKNOWN;
    }
    return result;
}

static int write_one(struct revive *v, const struct check_lost_node *lost, size_t from, size_t to)
{
    put_candidates(v, lost, from, to);
    if (keep_what_is_proved(v, lost) == 0)
        return 0;
    return rewrite_node(v->w, lost, &v->r->node);
}

static int revive_all(struct revive *v)
{
    struct inspection *ins = v->r->ins;
    for (size_t i = 0; i < ins->lost.count; i++) {
        const struct check_lost_node *lost = &ins->lost.list[i];
        const uint32_t slot = slot_of(ins, &lost->pointer);
        if (lost->tree < CHECK_TREES_OWN || slot == SLOT_NONE)
            return 0;
        v->level = lost->level > v->level ? lost->level : v->level;
        v->spoiled |= lost->level > 0 && may_hide_below(v->r, lost);
        ins->slots[slot].live_bytes += lost->pointer.length;
        v->sums.lost_by_tree[lost->tree] += lost->pointer.length;
        v->blind |= lost->level == 0;
    }
    for (size_t i = 0; i < v->r->gaps.count && v->level == 0; i++)
        v->any_gap |= ins->slots[v->r->gaps.list[i].slot].table.head == CHUNK_HEAD_DATA;
    int result = settle(v);
    if (result == 0)
        result = rewrite_begin(ins, &v->w);
    if (result == 0)
        result = one_pass(v, write_one);
    if (result == 0)
        result = rewrite_finish(v->w);
    rewrite_free(v->w);
    return result == -ENOMEM ? result : 0;
}

int check_revive(struct rebuild *r)
{
    struct inspection *ins = r->ins;
    if (!ins->options.repair || !pool_allows(r))
        return 0;
    struct revive v = {.r = r};
    v.sums = (struct sums){.by_slot = calloc(ins->slot_count, sizeof(uint64_t)),
                           .by_tree = calloc(ins->trees.count, sizeof(uint64_t)),
                           .lost_by_tree = calloc(ins->trees.count, sizeof(uint64_t))};
    int result = -ENOMEM;
    if (v.sums.by_slot != NULL && v.sums.by_tree != NULL && v.sums.lost_by_tree != NULL)
        result = revive_all(&v);
    free(v.children.list);
    free(v.sums.by_slot);
    free(v.sums.by_tree);
    free(v.sums.lost_by_tree);
    return result;
}
