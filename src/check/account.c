/*
 * Recounts against what the catalog and the slot table say, and the table against the label.
 *
 * Where a part of the trees could not be read the recounts are too low, and nothing is said about what depends on them:
 * the damage was reported.
 */
#include "check/inspection.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "check/tree.h"

#define QUARANTINE_CHECKPOINTS_MAX 16

static void check_volume(struct inspection *ins, const struct check_tree *t)
{
    const struct catalog_volume *v = &t->volume;
    const struct {
        const char *what;
        uint64_t said, counted;
    } figures[] = {
        {"mapped records", v->mapped_records, t->mapped_records},
        {"stored bytes", v->stored_bytes, t->stored_bytes},
        {"map bytes", v->node_bytes, t->node_bytes},
        {"provisioned records", v->provisioned_records, t->provisioned_records},
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        /* Where a range was lost before, nobody could know how much of the account belonged to it. */
        if (figures[i].said == figures[i].counted || (t->lossy && figures[i].said > figures[i].counted))
            continue;
        check_found_in(ins, CHECK_PROBLEM_VOLUME_ACCOUNT_MISMATCH, t, 0, 0, CHECK_NOWHERE, CHECK_NOWHERE,
                       "%s: %" PRIu64 " by the catalog, %" PRIu64 " by its map", figures[i].what, figures[i].said,
                       figures[i].counted);
    }
}

static void __attribute__((format(printf, 4, 5)))
slot_found(struct inspection *ins, enum check_problem_id id, uint32_t slot, const char *format, ...)
{
    char detail[160];
    va_list args;
    va_start(args, format);
    if (vsnprintf(detail, sizeof(detail), format, args) < 0)
        detail[0] = '\0';
    va_end(args);
    check_found(ins, id, check_slot_offset(ins, slot), CHECK_NOWHERE, "slot %" PRIu32 ": %s", slot, detail);
}

/*
 * A slot that the label says holds this segment. The label is of the cut, the table was written a little later, when
 * the heads may have gone on: a coming segment may be open by then and an open one closed, but they are where they
 * were.
 */
static void check_named_slot(struct inspection *ins, const char *what, uint32_t slot, uint64_t segment, uint8_t head)
{
    const struct slot *t = &ins->slots[slot].table;
    const bool placed = t->state == SLOT_NEXT || t->state == SLOT_OPEN || t->state == SLOT_CLOSED;
    /* The first label of a pool names a slot for a table that has nothing in it yet. */
    if (t->state == SLOT_BARE && segment == ins->label.replay_address / ins->segment_bytes &&
        ins->label.replay_address % ins->segment_bytes == 0)
        return;
    if (!placed || t->head != head || t->segment != segment)
        slot_found(ins, CHECK_PROBLEM_SLOT_STATE_MISMATCH, slot,
                   "%s, segment %" PRIu64 ", by the label; the table says state %u, head %u, segment %" PRIu64, what,
                   segment, t->state, t->head, t->segment);
}

static void check_label_slots(struct inspection *ins)
{
    const struct label *l = &ins->label;
    check_named_slot(ins, "the open data segment", l->replay_slot, l->replay_address / ins->segment_bytes,
                     CHUNK_HEAD_DATA);
    if (l->node_slot != SLOT_NONE)
        check_named_slot(ins, "the open node segment", l->node_slot, l->node_address / ins->segment_bytes,
                         CHUNK_HEAD_NODE);
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX && l->replay_next_slots[k] != SLOT_NONE; k++)
        check_named_slot(ins, "a coming data segment", l->replay_next_slots[k], l->replay_next_segments[k],
                         CHUNK_HEAD_DATA);
}

/* ---- leaks ---- */

static int mark_record(void *arg, uint32_t tree, const struct pointer *p, uint64_t index)
{
    struct inspection *ins = arg;
    const uint64_t place = check_place(ins, tree, p->address, p->length);
    (void)index;
    if (place != CHECK_NOWHERE)
        ins->slots[place / ins->segment_bytes].held_before = true;
    return 0;
}

static int mark_node(void *arg, uint32_t tree, const struct pointer *p, uint8_t level, uint64_t number)
{
    (void)level;
    return mark_record(arg, tree, p, number);
}

/* Walks the pool's own trees of the checkpoint before. false: they cannot be told any more. */
static bool mark_held_before(struct inspection *ins)
{
    static const uint16_t kinds[CHECK_TREES_OWN] = {
        [CHECK_TREE_TABLE] = ROOT_SLOT_TABLE, [CHECK_TREE_CATALOG] = ROOT_CATALOG};
    const struct check_visitor visitor = {.arg = ins, .node = mark_node, .record = mark_record};
    bool whole = ins->label_before.sequence != 0;
    for (uint32_t tree = 0; tree < CHECK_TREES_OWN && whole; tree++) {
        struct check_tree *t = &ins->trees.list[tree];
        const struct check_tree now = *t;
        const struct label_root *root = label_find_root(&ins->label_before, kinds[tree]);
        t->volume.root = root != NULL ? root->pointer : (struct pointer){0};
        t->volume.height = root != NULL ? root->height : 0;
        t->incomplete = false;
        whole = check_tree_walk(ins, tree, &visitor) == 0 && !t->incomplete;
        *t = now;
    }
    return whole;
}

/* A closed segment, below the cut, with nothing in it, closed before this checkpoint. Where a range was lost, what it
 * held is still counted, and keeps its segment: the entries there may be wanted yet. */
static bool looks_leaked(const struct inspection *ins, uint32_t slot, bool lossy)
{
    const struct check_slot *s = &ins->slots[slot];
    const struct slot *t = &s->table;
    return t->state == SLOT_CLOSED && s->object_count == 0 && !(lossy && t->live_bytes != 0) &&
           t->since < ins->label.checkpoint &&
           (t->head != CHUNK_HEAD_DATA || t->segment < ins->label.replay_address / ins->segment_bytes);
}

/*
 * Kept space that nothing refers to and that is not on its way to be free. A checkpoint sends what is empty at its cut
 * to quarantine, and then writes the pool's own trees, whose old nodes empty further segments of the node head: those
 * go with the next checkpoint, and are no leak as long as the own trees of the checkpoint before refer to them.
 */
static void check_leaks(struct inspection *ins, bool lossy)
{
    const uint64_t checkpoint = ins->label.checkpoint;
    bool any = false;
    for (uint32_t slot = 0; slot < ins->slot_count; slot++) {
        const struct slot *t = &ins->slots[slot].table;
        any |= looks_leaked(ins, slot, lossy);
        /* Readers may hold a slot in quarantine for a few checkpoints, not for more. */
        if (t->state == SLOT_QUARANTINED && checkpoint > QUARANTINE_CHECKPOINTS_MAX &&
            t->since < checkpoint - QUARANTINE_CHECKPOINTS_MAX)
            slot_found(ins, CHECK_PROBLEM_QUARANTINE_STUCK, slot, "since checkpoint %" PRIu64 " of %" PRIu64, t->since,
                       checkpoint);
    }
    if (!any || !mark_held_before(ins))
        return;
    for (uint32_t slot = 0; slot < ins->slot_count; slot++)
        if (looks_leaked(ins, slot, lossy) && !ins->slots[slot].held_before)
            slot_found(ins, CHECK_PROBLEM_SLOT_LEAKED, slot,
                       "closed since checkpoint %" PRIu64 ", nothing in it is live", ins->slots[slot].table.since);
}

static void check_slot_account(struct inspection *ins, uint32_t slot, bool lossy)
{
    const struct check_slot *s = &ins->slots[slot];
    const struct slot *t = &s->table;
    const bool coming = t->state == SLOT_NEXT && t->head == CHUNK_HEAD_DATA;
    const bool free = t->state == SLOT_BARE || t->state == SLOT_READY || t->state == SLOT_QUARANTINED || coming;
    if (t->state != SLOT_BARE && t->state != SLOT_READY && t->segment >= ins->label.next_segment)
        slot_found(ins, CHECK_PROBLEM_COUNTER_BEHIND, slot, "segment %" PRIu64 ", the next one is %" PRIu64, t->segment,
                   ins->label.next_segment);
    if (free && s->object_count != 0)
        slot_found(ins, CHECK_PROBLEM_SLOT_FREE_LIVE, slot, "state %u, %" PRIu64 " objects", t->state, s->object_count);
    if (ins->incomplete)
        return;
    if (t->live_bytes != s->live_bytes && !(lossy && t->live_bytes > s->live_bytes))
        slot_found(ins, CHECK_PROBLEM_SLOT_LIVE_MISMATCH, slot, "%" PRIu32 " by the table, %" PRIu64 " by the maps",
                   t->live_bytes, s->live_bytes);
}

void check_accounts(struct inspection *ins)
{
    bool lossy = false;
    for (size_t i = CHECK_TREES_OWN; i < ins->trees.count; i++) {
        const struct check_tree *t = &ins->trees.list[i];
        lossy |= t->lossy;
        if (!t->incomplete && !t->skipped)
            check_volume(ins, t);
    }
    lossy |= ins->trees.list[CHECK_TREE_CATALOG].lossy;
    if (ins->table_incomplete || ins->trees.list[CHECK_TREE_TABLE].lossy)
        return;
    check_label_slots(ins);
    for (uint32_t slot = 0; slot < ins->slot_count; slot++)
        check_slot_account(ins, slot, lossy);
    if (!ins->incomplete)
        check_leaks(ins, lossy);
}
