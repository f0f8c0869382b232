/*
 * The two label rings.
 *
 * Label n is written to place n % LABEL_RING_SLOTS of the front ring, flushed, then to that place of the back ring. So
 * at rest both rings hold the newest 32 labels, but for what a power cut does to the last label of an opening of the
 * pool: its back copy may be torn, or still be the label 32 before; and the front copy of the label after the newest
 * may be torn. A label is the last of its opening if it is the newest, or if the one after it has another incarnation.
 * Everything else that is missing or does not verify is damage.
 *
 * A copy is written back from the other one (bit for bit: a label's bytes follow from its values and its place).
 */
#include "check/inspection.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "check/repair.h"

enum copy_state { COPY_NONE, COPY_VALID, COPY_DAMAGED };

struct label_copy {
    enum copy_state state;
    bool blank;            /* all zero */
    uint64_t offset_bytes; /* CHECK_NOWHERE: not on the device */
    struct label label;    /* if valid */
    struct error why;      /* if damaged */
};

struct label_rings {
    struct label_copy copies[2][LABEL_RING_SLOTS]; /* front, back */
    uint32_t write_unit_bytes;
    const struct label *newest;
    bool damaged; /* something with a label's magic does not verify */
    int refused;  /* error of a label that verified and is beyond this program */
    struct error refusal;
};

static void read_copy(struct inspection *ins, struct label_rings *r, bool back, uint32_t place, uint64_t offset)
{
    struct label_copy *c = &r->copies[back][place];
    *c = (struct label_copy){.offset_bytes = offset};
    const uint64_t until = offset + (uint64_t)(LABEL_RING_SLOTS - place) * r->write_unit_bytes;
    const uint8_t *bytes = check_window_bytes(&ins->scan, offset, r->write_unit_bytes, until);
    if (bytes == NULL) {
        c->offset_bytes = CHECK_NOWHERE;
        return;
    }
    const int result = label_decode(bytes, r->write_unit_bytes, back, place, &c->label, &c->why);
    if (result == 0)
        c->state = COPY_VALID;
    else if (result == -ENODATA)
        c->blank = bytes_are_zero(bytes, r->write_unit_bytes);
    else
        c->state = COPY_DAMAGED;
    if (result == -EBADMSG)
        r->damaged = true;
    if (result == -EOPNOTSUPP && r->refused == 0) {
        r->refused = result;
        r->refusal = c->why;
    }
}

static void read_ring(struct inspection *ins, struct label_rings *r, bool back, uint64_t device_bytes)
{
    const uint64_t ring_bytes = (uint64_t)LABEL_RING_SLOTS * r->write_unit_bytes;
    if (device_bytes < ring_bytes + r->write_unit_bytes)
        return;
    for (uint32_t place = 0; place < LABEL_RING_SLOTS; place++)
        read_copy(ins, r, back, place, label_offset_bytes(device_bytes, r->write_unit_bytes, back, place));
}

static void choose_newest(struct label_rings *r)
{
    r->newest = NULL;
    for (int back = 0; back <= 1; back++)
        for (uint32_t i = 0; i < LABEL_RING_SLOTS; i++) {
            const struct label_copy *c = &r->copies[back][i];
            if (c->state == COPY_VALID && (r->newest == NULL || c->label.sequence > r->newest->sequence))
                r->newest = &c->label;
        }
}

static void read_rings_as(struct inspection *ins, struct label_rings *r, uint32_t write_unit_bytes)
{
    memset(r->copies, 0, sizeof(r->copies));
    r->write_unit_bytes = write_unit_bytes;
    read_ring(ins, r, false, ins->dev->info.size_bytes);
    read_ring(ins, r, true, ins->dev->info.size_bytes);
    choose_newest(r);
}

/* The write unit is known once a label verifies. */
static void read_rings(struct inspection *ins, struct label_rings *r)
{
    for (uint32_t unit = WRITE_UNIT_BYTES_MIN; unit <= WRITE_UNIT_BYTES_MAX; unit *= 2) {
        read_rings_as(ins, r, unit);
        if (r->newest == NULL)
            continue;
        /* The back ring lies where the pool ends, not the device. */
        const uint64_t pool_bytes = r->newest->devices[0].size_bytes;
        if (pool_bytes != ins->dev->info.size_bytes) {
            read_ring(ins, r, true, pool_bytes);
            choose_newest(r);
        }
        if (r->newest != NULL)
            return;
    }
    /* To say where the damaged ones lie. */
    if (r->damaged)
        read_rings_as(ins, r, WRITE_UNIT_BYTES_MIN);
}

static const struct label *find_label(const struct label_rings *r, uint64_t sequence)
{
    const uint32_t place = (uint32_t)(sequence % LABEL_RING_SLOTS);
    for (int back = 0; back <= 1; back++)
        if (r->copies[back][place].state == COPY_VALID && r->copies[back][place].label.sequence == sequence)
            return &r->copies[back][place].label;
    return NULL;
}

/* true if a power cut may have come while label `sequence` was written. */
static bool may_be_cut_off(const struct label_rings *r, uint64_t sequence)
{
    const struct label *l = find_label(r, sequence), *next = find_label(r, sequence + 1);
    if (sequence >= r->newest->sequence)
        return true;
    return l != NULL && next != NULL && l->incarnation != next->incarnation;
}

/* Writes the label of `good` over the other copy, if that is what its bytes were. */
static void restore_copy(struct inspection *ins, const struct label_rings *r, const struct label_copy *good,
                         const struct label_copy *bad)
{
    if (good->state != COPY_VALID || bad->offset_bytes == CHECK_NOWHERE)
        return;
    uint8_t *bytes = device_buffer_new(r->write_unit_bytes);
    if (bytes == NULL)
        return;
    /* A label that a newer program extended does not come out of the encoder as it went in: left alone. */
    label_encode(&good->label, bytes, r->write_unit_bytes);
    const uint8_t *as_read = check_window_bytes(&ins->scan, good->offset_bytes, r->write_unit_bytes, 0);
    if (as_read != NULL && memcmp(as_read, bytes, r->write_unit_bytes) == 0) {
        struct label twin = good->label;
        twin.in_back_ring = !twin.in_back_ring;
        label_encode(&twin, bytes, r->write_unit_bytes);
        check_repair_add(ins, bad->offset_bytes, bytes, r->write_unit_bytes, "label %" PRIu64 " from its %s copy",
                         twin.sequence, twin.in_back_ring ? "front" : "back");
    }
    device_buffer_free(bytes);
}

/* One copy of label `sequence`, which is at most 31 before the newest. */
static void check_copy(struct inspection *ins, const struct label_rings *r, uint64_t sequence, bool back)
{
    const uint32_t place = (uint32_t)(sequence % LABEL_RING_SLOTS);
    const struct label_copy *c = &r->copies[back][place], *twin = &r->copies[!back][place];
    if (c->offset_bytes == CHECK_NOWHERE || (c->state == COPY_VALID && c->label.sequence == sequence))
        return;
    const char *ring = back ? "back" : "front";
    const bool twin_holds = twin->state == COPY_VALID && twin->label.sequence == sequence;
    const bool cut_off = back && twin_holds && may_be_cut_off(r, sequence);
    const bool whole = c->state == COPY_VALID || c->blank; /* what was there before is still there */
    if (whole && cut_off)
        return;
    if (whole)
        check_found(ins, CHECK_PROBLEM_LABEL_STALE, c->offset_bytes, CHECK_NOWHERE,
                    "%s ring, label %" PRIu64 " expected", ring, sequence);
    else
        check_found(ins, cut_off ? CHECK_PROBLEM_LABEL_TORN : CHECK_PROBLEM_LABEL_DAMAGED, c->offset_bytes,
                    CHECK_NOWHERE, "%s ring, label %" PRIu64 "%s", ring, sequence,
                    twin_holds ? ": the other copy is intact" : ": the other copy is lost too");
    if (twin_holds)
        restore_copy(ins, r, twin, c);
}

/*
 * The place of the label after the newest. Its front copy may have been torn by a power cut while it was written; the
 * label 32 before it, which this place held, is of no use any more, but completes the rings.
 */
static void check_next_place(struct inspection *ins, const struct label_rings *r)
{
    const uint64_t sequence = r->newest->sequence + 1;
    const struct label_copy *front = &r->copies[0][sequence % LABEL_RING_SLOTS];
    const struct label_copy *back = &r->copies[1][sequence % LABEL_RING_SLOTS];
    const uint64_t before = sequence > LABEL_RING_SLOTS ? sequence - LABEL_RING_SLOTS : 0;
    if (before != 0)
        check_copy(ins, r, before, true);
    if (front->state == COPY_VALID || front->offset_bytes == CHECK_NOWHERE)
        return;
    if (front->state == COPY_NONE && (before == 0 || front->blank))
        return;
    check_found(ins, CHECK_PROBLEM_LABEL_TORN, front->offset_bytes, CHECK_NOWHERE, "front ring, label %" PRIu64,
                sequence);
    if (before != 0 && back->state == COPY_VALID && back->label.sequence == before)
        restore_copy(ins, r, back, front);
}

/* Copies of one label say the same, and all labels are of one pool. */
static int check_agreement(struct inspection *ins, const struct label_rings *r)
{
    uint8_t *front = device_buffer_new(r->write_unit_bytes), *back = device_buffer_new(r->write_unit_bytes);
    const bool room = front != NULL && back != NULL;
    for (uint32_t i = 0; i < LABEL_RING_SLOTS && room; i++) {
        const struct label_copy *f = &r->copies[0][i], *b = &r->copies[1][i];
        for (int k = 0; k <= 1; k++) {
            const struct label_copy *c = &r->copies[k][i];
            if (c->state == COPY_VALID &&
                memcmp(c->label.pool_uuid, r->newest->pool_uuid, sizeof(c->label.pool_uuid)) != 0)
                check_found(ins, CHECK_PROBLEM_LABEL_FOREIGN, c->offset_bytes, CHECK_NOWHERE, "%s ring, label %" PRIu64,
                            k ? "back" : "front", c->label.sequence);
        }
        if (f->state != COPY_VALID || b->state != COPY_VALID || f->label.sequence != b->label.sequence)
            continue;
        struct label twin = b->label;
        twin.in_back_ring = false;
        label_encode(&f->label, front, r->write_unit_bytes);
        label_encode(&twin, back, r->write_unit_bytes);
        if (memcmp(front, back, r->write_unit_bytes) != 0)
            check_found(ins, CHECK_PROBLEM_LABEL_CONFLICT, b->offset_bytes, CHECK_NOWHERE, "label %" PRIu64,
                        twin.sequence);
    }
    device_buffer_free(front);
    device_buffer_free(back);
    return room ? 0 : -ENOMEM;
}

/* A label was written after everything below its replay start had been flushed. */
static int note_durables(struct inspection *ins, const struct label_rings *r)
{
    int result = 0;
    for (int back = 0; back <= 1; back++)
        for (uint32_t i = 0; i < LABEL_RING_SLOTS && result == 0; i++) {
            const struct label_copy *c = &r->copies[back][i];
            if (c->state == COPY_VALID)
                result = check_note_durable(ins, c->label.incarnation, c->label.replay_address);
        }
    return result;
}

/* No label verifies: all that can be said is where there were any. */
static int check_ruins(struct inspection *ins, const struct label_rings *r, struct error *err)
{
    if (!r->damaged)
        return error_set(err, -EINVAL, "%s: not an Ashlar pool (no label at its front or end)", ins->dev->name);
    for (int back = 0; back <= 1; back++)
        for (uint32_t i = 0; i < LABEL_RING_SLOTS; i++)
            if (r->copies[back][i].state == COPY_DAMAGED)
                check_found(ins, CHECK_PROBLEM_LABEL_DAMAGED, r->copies[back][i].offset_bytes, CHECK_NOWHERE,
                            "%s ring: %s", back ? "back" : "front", r->copies[back][i].why.text);
    return 0;
}

/* The newest label of an older checkpoint. */
static void find_label_before(struct inspection *ins, const struct label_rings *r)
{
    for (int back = 0; back <= 1; back++)
        for (uint32_t i = 0; i < LABEL_RING_SLOTS; i++) {
            const struct label_copy *c = &r->copies[back][i];
            if (c->state == COPY_VALID && c->label.sequence < ins->label.sequence &&
                c->label.checkpoint < ins->label.checkpoint && c->label.sequence > ins->label_before.sequence)
                ins->label_before = c->label;
        }
}

static int check_rings(struct inspection *ins, struct label_rings *r, struct error *err)
{
    read_rings(ins, r);
    if (r->refused != 0)
        return error_set(err, r->refused, "%s: %s", ins->dev->name, r->refusal.text);
    if (r->newest == NULL)
        return check_ruins(ins, r, err);
    const uint64_t newest = r->newest->sequence;
    if (r->newest->devices[0].size_bytes > ins->dev->info.size_bytes)
        check_found(ins, CHECK_PROBLEM_DEVICE_SHORT, CHECK_NOWHERE, CHECK_NOWHERE, "%" PRIu64 " bytes of %" PRIu64,
                    ins->dev->info.size_bytes, r->newest->devices[0].size_bytes);
    for (uint64_t s = newest < LABEL_RING_SLOTS ? 1 : newest - LABEL_RING_SLOTS + 2; s <= newest; s++) {
        check_copy(ins, r, s, false);
        check_copy(ins, r, s, true);
    }
    check_next_place(ins, r);
    if (check_agreement(ins, r) != 0)
        return error_set(err, -ENOMEM, "%s: out of memory", ins->dev->name);
    if (note_durables(ins, r) != 0)
        return error_set(err, -ENOMEM, "%s: out of memory", ins->dev->name);
    const struct label *chosen = r->newest;
    if (ins->options.label_sequence != 0)
        chosen = find_label(r, ins->options.label_sequence);
    if (chosen == NULL)
        return error_set(err, -EINVAL, "%s: no intact label %" PRIu64 "; the newest is %" PRIu64, ins->dev->name,
                         ins->options.label_sequence, newest);
    ins->label = *chosen;
    ins->newest_sequence = newest;
    find_label_before(ins, r);
    return 0;
}

int check_labels(struct inspection *ins, struct error *err)
{
    struct label_rings *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory", ins->dev->name);
    const int result = check_rings(ins, r, err);
    free(r);
    return result;
}

int check_visit_labels(struct inspection *ins, check_label_visit each, void *arg)
{
    struct label_rings *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    read_rings(ins, r);
    for (int back = 0; back <= 1; back++)
        for (uint32_t i = 0; i < LABEL_RING_SLOTS; i++) {
            const struct label_copy *c = &r->copies[back][i];
            if (c->state != COPY_NONE)
                each(arg, back != 0, c->offset_bytes, c->state == COPY_VALID ? &c->label : NULL, c->why.text);
        }
    free(r);
    return 0;
}
