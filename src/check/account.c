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

/* The slot that the label says holds this open or coming segment. */
static void check_named_slot(struct inspection *ins, const char *what, uint32_t slot, uint64_t segment, uint8_t state,
                             uint8_t head)
{
    const struct slot *t = &ins->slots[slot].table;
    if (t->state != state || t->head != head || t->segment != segment)
        slot_found(ins, CHECK_PROBLEM_SLOT_STATE_MISMATCH, slot,
                   "%s, segment %" PRIu64 ", by the label; the table says state %u, head %u, segment %" PRIu64, what,
                   segment, t->state, t->head, t->segment);
}

/* true if the label names the slot as open or coming. */
static bool named_by_label(const struct label *l, uint32_t slot)
{
    bool named = slot == l->replay_slot || slot == l->node_slot;
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        named |= slot == l->replay_next_slots[k];
    return named;
}

static void check_label_slots(struct inspection *ins)
{
    const struct label *l = &ins->label;
    check_named_slot(ins, "the open data segment", l->replay_slot, l->replay_address / ins->segment_bytes, SLOT_OPEN,
                     CHUNK_HEAD_DATA);
    if (l->node_slot != SLOT_NONE)
        check_named_slot(ins, "the open node segment", l->node_slot, l->node_address / ins->segment_bytes, SLOT_OPEN,
                         CHUNK_HEAD_NODE);
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX && l->replay_next_slots[k] != SLOT_NONE; k++)
        check_named_slot(ins, "a coming data segment", l->replay_next_slots[k], l->replay_next_segments[k], SLOT_NEXT,
                         CHUNK_HEAD_DATA);
}

/* Kept space that nothing refers to and that is not on its way to be free. */
static void check_leak(struct inspection *ins, uint32_t slot)
{
    const struct check_slot *s = &ins->slots[slot];
    const struct slot *t = &s->table;
    const uint64_t checkpoint = ins->label.checkpoint;
    const bool open = t->state == SLOT_OPEN || t->state == SLOT_NEXT;
    if (open && !named_by_label(&ins->label, slot) && s->object_count == 0)
        slot_found(ins, CHECK_PROBLEM_SLOT_LEAKED, slot, "open or coming by the table, unknown to the label");
    /* What was closed by an earlier checkpoint, and lies below the replay start, went to quarantine if it was empty. */
    if (t->state == SLOT_CLOSED && s->object_count == 0 && t->since < checkpoint &&
        (t->head != CHUNK_HEAD_DATA || t->segment < ins->label.replay_address / ins->segment_bytes))
        slot_found(ins, CHECK_PROBLEM_SLOT_LEAKED, slot, "closed since checkpoint %" PRIu64 ", nothing in it is live",
                   t->since);
    if (t->state == SLOT_QUARANTINED && checkpoint > 2 && t->since < checkpoint - 2)
        slot_found(ins, CHECK_PROBLEM_QUARANTINE_STUCK, slot, "since checkpoint %" PRIu64 " of %" PRIu64, t->since,
                   checkpoint);
}

static void check_slot_account(struct inspection *ins, uint32_t slot, bool lossy)
{
    const struct check_slot *s = &ins->slots[slot];
    const struct slot *t = &s->table;
    const bool free = t->state == SLOT_BARE || t->state == SLOT_READY || t->state == SLOT_QUARANTINED;
    if (t->state != SLOT_BARE && t->state != SLOT_READY && t->segment >= ins->label.next_segment)
        slot_found(ins, CHECK_PROBLEM_COUNTER_BEHIND, slot, "segment %" PRIu64 ", the next one is %" PRIu64, t->segment,
                   ins->label.next_segment);
    if ((free || t->state == SLOT_NEXT) && s->object_count != 0)
        slot_found(ins, CHECK_PROBLEM_SLOT_FREE_LIVE, slot, "state %u, %" PRIu64 " objects", t->state, s->object_count);
    if (ins->incomplete)
        return;
    if (t->live_bytes != s->live_bytes && !(lossy && t->live_bytes > s->live_bytes))
        slot_found(ins, CHECK_PROBLEM_SLOT_LIVE_MISMATCH, slot, "%" PRIu32 " by the table, %" PRIu64 " by the maps",
                   t->live_bytes, s->live_bytes);
    check_leak(ins, slot);
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
}
