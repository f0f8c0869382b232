/*
 * The device of a simulated disk: how a call's operations are submitted, fly, and take effect.
 *
 * An operation that may start is submitted: a write's bytes are taken then, and a flush covers what is cached then.
 * In a fiber each operation in flight gets a timer, and the fiber waits; outside, what is in flight takes effect at
 * once, in an order chosen by the seed. An element with after_previous is submitted when every earlier one has its
 * result.
 *
 * An operation takes effect in one step: hook, fault, effect. The hook comes first and may take an image or switch the
 * machine off; the operation is then still in flight.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/tree.h"
#include "env/sim_disk_impl.h"

#define FEW_OPS 8
#define ODD_PER_MILLE 250

enum op_state { OP_WAITING, OP_IN_FLIGHT, OP_DONE };

struct sim_call {
    struct sim_device *dev;
    struct sim_op *ops;
    size_t count, done;
    struct fiber *fiber; /* waits for the last operation; NULL: outside */
};

struct sim_op {
    struct sim_timer timer;
    struct sim_call *call;
    struct device_io *io;
    enum op_state state;
    struct sim_pending *pending; /* of a write, punch or allocate in flight */
    uint64_t cover;              /* of a flush in flight */
};

static bool is_step(enum device_io_kind kind)
{
    return kind != DEVICE_READ;
}

/* Pages of a vector in order; whole ones, because all pieces are multiples of DEVICE_ALIGN_BYTES. */
struct page_walk {
    const struct device_io *io;
    int piece;
    size_t offset_bytes;
};

static uint8_t *page_walk_next(struct page_walk *w)
{
    while (w->offset_bytes == w->io->iov[w->piece].iov_len) {
        w->piece++;
        w->offset_bytes = 0;
    }
    uint8_t *bytes = (uint8_t *)w->io->iov[w->piece].iov_base + w->offset_bytes;
    w->offset_bytes += SIM_PAGE_BYTES;
    return bytes;
}

static struct sim_change *change_of_io(struct sim_disk *disk, const struct device_io *io)
{
    static const uint8_t zeroes[SIM_PAGE_BYTES];
    struct sim_change *change =
        sim_change_new(io->kind, io->offset_bytes / SIM_PAGE_BYTES, io->length_bytes / SIM_PAGE_BYTES);
    if (io->kind == DEVICE_WRITE) {
        struct page_walk walk = {.io = io};
        for (uint64_t i = 0; i < change->page_count; i++)
            change->pages[i] = sim_page_new(page_walk_next(&walk), false);
        return change;
    }
    if (io->kind == DEVICE_ALLOCATE)
        change->pages[0] = sim_page_new(zeroes, false);
    change->odd = prng_chance(&disk->prng, ODD_PER_MILLE);
    return change;
}

static void op_trace(const struct sim_op *op, uint64_t content_hash)
{
    struct sim *sim = op->call->dev->disk->sim;
    sim_trace(sim, (uint64_t)op->io->kind << 32 ^ (uint32_t)op->io->result);
    sim_trace(sim, op->io->offset_bytes);
    sim_trace(sim, op->io->length_bytes ^ content_hash);
}

static uint64_t hash_add(uint64_t hash, const struct sim_page *page)
{
    return (hash ^ (page != NULL ? page->hash : 0)) * UINT64_C(0x9fb21c651e98df25);
}

static uint64_t change_hash(const struct sim_change *change)
{
    uint64_t hash = change->odd;
    if (change->kind == DEVICE_WRITE)
        for (uint64_t i = 0; i < change->page_count; i++)
            hash = hash_add(hash, change->pages[i]);
    return hash;
}

static uint64_t read_pages(const struct sim_disk *disk, const struct device_io *io)
{
    struct page_walk walk = {.io = io};
    uint64_t first = io->offset_bytes / SIM_PAGE_BYTES, hash = 0;
    for (uint64_t i = 0; i < io->length_bytes / SIM_PAGE_BYTES; i++) {
        const struct sim_page *page = sim_picture_page(&disk->current, first + i);
        uint8_t *to = page_walk_next(&walk);
        if (page != NULL)
            memcpy(to, page->bytes, SIM_PAGE_BYTES);
        else
            memset(to, 0, SIM_PAGE_BYTES);
        hash = hash_add(hash, page);
    }
    return hash;
}

/* Whether the file system under the disk has the blocks that the operation needs and does not have yet. */
static bool capacity_suffices(const struct sim_disk *disk, const struct sim_change *change)
{
    if (disk->capacity_bytes == UINT64_MAX || change->kind == DEVICE_PUNCH)
        return true;
    uint64_t missing = 0;
    for (uint64_t i = 0; i < change->page_count; i++) {
        const struct sim_page *page = sim_picture_page(&disk->current, change->first_page + i);
        missing += page == NULL || page->released;
    }
    return missing == 0 || (disk->current.allocated_pages + missing) * SIM_PAGE_BYTES <= disk->capacity_bytes;
}

/* A write that failed may have reached the medium whole, in part or not at all. */
static void failed_write_lands(struct sim_disk *disk, struct sim_pending *pending)
{
    const struct sim_change *intended = pending->change;
    uint64_t choice = prng_below(&disk->prng, 3);
    if (choice == 0 || intended->kind != DEVICE_WRITE) {
        sim_pending_free(pending);
        return;
    }
    struct sim_change *landed = sim_change_new(DEVICE_WRITE, intended->first_page, intended->page_count);
    for (uint64_t i = 0; i < intended->page_count; i++) {
        unsigned mask = choice == 1 ? UINT8_MAX : (unsigned)prng_below(&disk->prng, 1U << SIM_PAGE_SECTORS);
        struct sim_page *before = sim_picture_page(&disk->current, intended->first_page + i);
        landed->pages[i] = sim_page_mix(before, intended->pages[i], mask);
        if (landed->pages[i] == NULL) /* no sector landed on a hole: the hole is filled with zeroes all the same */
            landed->pages[i] = sim_page_new((const uint8_t[SIM_PAGE_BYTES]){0}, false);
    }
    sim_change_unref(pending->change);
    pending->change = landed;
    sim_disk_cache_change(disk, pending);
}

static void change_moves(struct sim_pending *pending, uint64_t page)
{
    const struct sim_change *intended = pending->change;
    struct sim_change *moved = sim_change_new(DEVICE_WRITE, page, intended->page_count);
    for (uint64_t i = 0; i < intended->page_count; i++)
        moved->pages[i] = sim_page_ref(intended->pages[i]);
    sim_change_unref(pending->change);
    pending->change = moved;
}

static int change_takes_effect(struct sim_disk *disk, struct sim_pending *pending, const struct sim_fault *fault)
{
    if (fault != NULL && fault->fault == SIM_FAULT_FAIL) {
        failed_write_lands(disk, pending);
        return fault->error;
    }
    if (fault != NULL && fault->fault == SIM_FAULT_LOSE) {
        sim_pending_free(pending);
        return 0;
    }
    if (!capacity_suffices(disk, pending->change)) {
        sim_pending_free(pending);
        return -ENOSPC;
    }
    if (fault != NULL && fault->fault == SIM_FAULT_MISDIRECT)
        change_moves(pending, fault->wrong_page);
    sim_disk_cache_change(disk, pending);
    return 0;
}

static int flush_takes_effect(struct sim_disk *disk, uint64_t cover, const struct sim_fault *fault)
{
    if (fault != NULL) {
        sim_disk_make_orphans(disk, cover);
        return fault->error;
    }
    sim_disk_make_durable(disk, cover);
    return 0;
}

void sim_pending_disown(struct sim_pending *pending)
{
    if (pending->op != NULL)
        pending->op->pending = NULL;
    pending->op = NULL;
}

/* Its change, if any, stays behind in flight: a power cut decides what became of it. */
static int op_dies(struct sim_op *op)
{
    if (op->pending != NULL)
        op->pending->op = NULL;
    return -EIO;
}

static int op_step(struct sim_op *op, uint64_t *ret_hash)
{
    struct sim_device *dev = op->call->dev;
    struct sim_disk *disk = dev->disk;
    disk->step_count++;
    if (disk->hook != NULL)
        disk->hook(disk->hook_arg, disk, disk->step_count, op->io);
    if (dev->off)
        return op_dies(op);
    const struct sim_fault *fault = sim_fault_meet(disk, op->io->kind);
    if (op->io->kind == DEVICE_FLUSH)
        return flush_takes_effect(disk, op->cover, fault);
    struct sim_pending *pending = op->pending;
    op->pending = NULL;
    *ret_hash = change_hash(pending->change);
    return change_takes_effect(disk, pending, fault);
}

static void op_takes_effect(struct sim_op *op)
{
    struct sim_device *dev = op->call->dev;
    uint64_t hash = 0;
    if (dev->off) {
        op->io->result = op_dies(op);
    } else if (is_step(op->io->kind)) {
        op->io->result = op_step(op, &hash);
    } else {
        const struct sim_fault *fault = sim_fault_meet(dev->disk, DEVICE_READ);
        op->io->result = fault != NULL ? fault->error : 0;
        if (fault == NULL)
            hash = read_pages(dev->disk, op->io);
    }
    op->state = OP_DONE;
    op->call->done++;
    op_trace(op, hash);
}

static void call_advance(struct sim_call *call);

static void op_timer_fires(struct sim_timer *timer)
{
    struct sim_op *op = CONTAINER_OF(timer, struct sim_op, timer);
    struct sim_call *call = op->call;
    op_takes_effect(op);
    call_advance(call);
    if (call->done == call->count)
        fiber_wake(call->fiber);
}

static void op_submit(struct sim_op *op)
{
    struct sim_device *dev = op->call->dev;
    struct sim_disk *disk = dev->disk;
    op->state = OP_IN_FLIGHT;
    if (!dev->off && op->io->kind == DEVICE_FLUSH) {
        op->cover = disk->completions;
    } else if (!dev->off && is_step(op->io->kind)) {
        op->pending = sim_pending_new(change_of_io(disk, op->io));
        op->pending->op = op;
        list_append(&disk->in_flight, &op->pending->link);
    }
    if (op->call->fiber == NULL)
        return;
    uint64_t spread = disk->latency_max_ns - disk->latency_min_ns;
    op->timer.fire = op_timer_fires;
    sim_timer_set(disk->sim, &op->timer,
                  disk->sim->now_ns + disk->latency_min_ns + prng_below(&disk->prng, spread + 1));
}

/* Submits, or cancels, every operation whose turn has come. */
static void call_advance(struct sim_call *call)
{
    bool all_before_done = true, failed_before = false;
    for (size_t i = 0; i < call->count; i++) {
        struct sim_op *op = &call->ops[i];
        if (op->state == OP_WAITING && op->io->after_previous && all_before_done && failed_before) {
            op->io->result = -ECANCELED;
            op->state = OP_DONE;
            call->done++;
        } else if (op->state == OP_WAITING && (!op->io->after_previous || all_before_done)) {
            op_submit(op);
        }
        all_before_done &= op->state == OP_DONE;
        failed_before |= op->state == OP_DONE && op->io->result != 0;
    }
}

/* Outside: what is in flight takes effect one by one until nothing is. */
static void call_run_at_once(struct sim_call *call)
{
    struct sim_disk *disk = call->dev->disk;
    while (call->done < call->count) {
        size_t flying = 0;
        for (size_t i = 0; i < call->count; i++)
            flying += call->ops[i].state == OP_IN_FLIGHT;
        CHECK_GT(flying, 0);
        uint64_t skip = flying == 1 ? 0 : prng_below(&disk->prng, flying);
        size_t i = 0;
        while (call->ops[i].state != OP_IN_FLIGHT || skip-- > 0)
            i++;
        op_takes_effect(&call->ops[i]);
        call_advance(call);
    }
}

void sim_device_run(struct device *dev, struct device_io *ios, size_t count)
{
    struct sim_device *device = (struct sim_device *)dev;
    struct sim *sim = device->disk->sim;
    struct sim_op few[FEW_OPS];
    struct sim_op *ops = count <= FEW_OPS ? few : sim_alloc(count * sizeof *ops);
    struct sim_call call = {.dev = device, .ops = ops, .count = count};
    if (!sim_is_outside(sim))
        call.fiber = sim->current;
    for (size_t i = 0; i < count; i++)
        ops[i] = (struct sim_op){.call = &call, .io = &ios[i]};
    device->calls_running++;
    call_advance(&call);
    if (call.fiber != NULL)
        sim_wait(sim, "device", device->base.name);
    else
        call_run_at_once(&call);
    device->calls_running--;
    if (ops != few)
        free(ops);
}
