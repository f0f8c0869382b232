/*
 * Inside of a simulated disk: what is durable, what reads see, and the changes in between.
 *
 * A write, punch or allocate is a *change*. Its life:
 *
 *   in flight   submitted, not completed: reads do not see it; a power cut may keep any part of it
 *   cached      completed: reads see it; a power cut may keep any part of it; the next flush makes it durable
 *   orphaned    a flush that should have made it durable failed: reads see it, no later flush covers it (Linux calls
 *               such pages clean), a power cut may keep any part of it
 *   durable     merged into the durable picture, forgotten as a change
 *
 * `cached` is in the order of completion, which is the order in which the changes took effect. A flush covers the
 * changes that were cached when it was submitted.
 *
 * A cache is finite: beyond CACHE_BYTES_MAX the oldest cached changes become durable on their own, which keeps the
 * memory of a test that never flushes within bounds.
 */
#ifndef ASHLAR_ENV_SIM_DISK_IMPL_H
#define ASHLAR_ENV_SIM_DISK_IMPL_H

#include "env/sim_impl.h"
#include "env/sim_picture.h"

#define CACHE_BYTES_MAX (UINT64_C(64) << 20)

/* Immutable, counted, shared between disks and images. */
struct sim_change {
    uint32_t refs;
    enum device_io_kind kind; /* WRITE, PUNCH or ALLOCATE */
    bool odd;                 /* PUNCH: the range goes on reading as it did; ALLOCATE: the range becomes zeroes */
    uint64_t first_page;
    uint64_t page_count;
    struct sim_page *pages[]; /* WRITE: page_count of them; ALLOCATE: one page of zeroes */
};

struct sim_op;

/* A change on its way, in one of a disk's lists. */
struct sim_pending {
    struct list link;
    struct sim_change *change;
    uint64_t completion; /* cached: its number in the order of completion */
    struct sim_op *op;   /* in flight: the operation that waits for it; NULL if that was told of a failure meanwhile */
};

/* The faults ordered by a test. */
enum sim_fault_kind { SIM_FAULT_FAIL, SIM_FAULT_MISDIRECT, SIM_FAULT_LOSE };

struct sim_fault {
    struct list link;
    enum sim_fault_kind fault;
    enum device_io_kind kind;
    uint64_t countdown; /* fires when it goes from 1 to 0 */
    int error;
    bool sticky;
    uint64_t wrong_page;
};

struct sim_device {
    struct device base; /* first: a pointer to one is a pointer to the other */
    struct sim_disk *disk;
    struct list link; /* in disk->devices */
    bool off;
    size_t calls_running;
};

struct sim_disk {
    struct sim *sim;
    uint32_t physical_sector_bytes;
    struct sim_picture durable, current;
    struct list in_flight, cached, orphaned; /* of struct sim_pending */
    uint64_t cached_bytes;
    uint64_t completions;
    struct list devices;
    struct list faults;
    uint64_t step_count;
    sim_disk_hook hook;
    void *hook_arg;
    uint64_t latency_min_ns, latency_max_ns;
    uint64_t capacity_bytes;
    struct prng prng; /* of its own: what one disk does leaves the choices of the scheduler alone */
};

struct sim_image {
    uint32_t physical_sector_bytes;
    struct sim_picture durable, current;
    size_t in_flight_count, cached_count, orphaned_count;
    struct sim_change *changes[]; /* in flight, then cached, then orphaned; each in its list's order */
};

struct sim_change *sim_change_new(enum device_io_kind kind, uint64_t first_page, uint64_t page_count);
struct sim_change *sim_change_ref(struct sim_change *change);
void sim_change_unref(struct sim_change *change);
/* What the page (an index inside the change) of a picture becomes by the sectors in mask. */
void sim_change_apply_page(const struct sim_change *change, uint64_t index, unsigned mask, struct sim_picture *picture);
void sim_change_apply(const struct sim_change *change, struct sim_picture *picture);

struct sim_pending *sim_pending_new(struct sim_change *change); /* takes over the reference */
void sim_pending_free(struct sim_pending *pending);             /* also takes it out of its list */

/* The operation that waits for it no longer has it. */
void sim_pending_disown(struct sim_pending *pending);

/* In flight -> cached: the change takes effect. */
void sim_disk_cache_change(struct sim_disk *disk, struct sim_pending *pending);
/* Cached -> durable, those completed by number `cover`. */
void sim_disk_make_durable(struct sim_disk *disk, uint64_t cover);
/* Cached -> orphaned, the same ones. */
void sim_disk_make_orphans(struct sim_disk *disk, uint64_t cover);
void sim_disk_forget_changes(struct sim_disk *disk, struct list *changes);

/* The fault that this operation meets, NULL: none. Counts down. */
const struct sim_fault *sim_fault_meet(struct sim_disk *disk, enum device_io_kind kind);
void sim_fault_forget_all(struct sim_disk *disk);

void sim_device_run(struct device *dev, struct device_io *ios, size_t count);

#endif
