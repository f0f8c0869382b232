/*
 * The seeded simulation of env/ and of devices: one OS thread, its own clock and scheduler.
 *
 * Threads are fibers (ucontext; annotated for the sanitizers) with stacks of 1 MiB. A fiber runs until it locks a
 * mutex that is held, waits, sleeps, joins, or runs a device operation; at each of these points (and, with probability
 * `yield_per_mille`, at every lock, unlock, signal and start of a thread) the scheduler picks the next runnable fiber
 * by the seed. When no fiber is runnable the clock jumps to the next timer or device completion; when there is neither,
 * that is a deadlock: aborts with the list of fibers and what each waits for.
 *
 * Code outside sim_run (plain test code) may use everything too: it is never interrupted, and its device operations
 * complete at once. Fibers that it started run only while it waits (join, condition, a lock that a fiber holds, sleep)
 * and during the next sim_run.
 *
 * With yields on, a condition variable also wakes now and then for no reason, as POSIX allows.
 *
 * Same seed, same code, same calls: the same trace hash (every device operation with its bytes, every scheduling
 * choice). Nothing is global: simulations may live side by side, also one inside a fiber of another.
 */
#ifndef ASHLAR_ENV_SIM_H
#define ASHLAR_ENV_SIM_H

#include "env/device.h"
#include "env/env.h"

struct sim *sim_new(uint64_t seed);
/* All fibers must have ended and been joined, all disks be freed. NULL is fine. */
void sim_free(struct sim *sim);
struct env *sim_env(struct sim *sim);
uint64_t sim_trace_hash(const struct sim *sim);
void sim_set_yield(struct sim *sim, unsigned yield_per_mille); /* default 0 */

/* Starts `run` as the first fiber and schedules until every fiber has ended. Called from outside. */
void sim_run(struct sim *sim, void (*run)(void *arg), void *arg);

/*
 * A simulated disk: sparse memory, what was flushed and what was not kept apart.
 *
 * A write takes the bytes when it is submitted and takes effect when it completes. A flush makes durable what was
 * completed when the flush was submitted; what was in flight then is not covered. A flush that fails makes nothing
 * durable, and what it should have covered no later flush covers (Linux calls such pages clean): its fate is decided by
 * the next power cut, whatever its kind. A write that fails lands whole, in part or not at all. A punched range reads
 * as zeroes or as before, an allocated one as before or as zeroes; both are volatile until flushed, like a write.
 *
 * The cache of the disk is finite: when more than 64 MiB of writes are unflushed, the oldest become durable.
 */
struct sim_disk;
/*
 * A picture of a disk at one moment: durable content plus unflushed writes; shares pages. Costs a pointer for each
 * unflushed change, nothing for the content, whatever the size of the disk.
 */
struct sim_image;

/* size_bytes is a multiple of 4096; the sector a power of two from 512 to 65536. */
struct sim_disk *sim_disk_new(struct sim *sim, uint64_t size_bytes, uint32_t physical_sector_bytes);
void sim_disk_free(struct sim_disk *disk); /* its devices must be closed. NULL is fine */

/*
 * A device on the disk, as device_open gives one. Opening again after a crash gives a fresh device (not `failed`).
 * Writes that an earlier machine had in flight are forgotten if no power cut has decided on them.
 */
struct device *sim_disk_open(struct sim_disk *disk, bool read_only);

struct sim_image *sim_disk_image(const struct sim_disk *disk);
void sim_image_free(struct sim_image *image); /* NULL is fine */
/*
 * A new disk in `sim` (any simulation of this OS thread) from the image; unflushed writes are still unflushed, those in
 * flight still undecided. Hooks, faults and settings are not part of an image.
 */
struct sim_disk *sim_disk_from_image(struct sim *sim, const struct sim_image *image);

enum sim_loss {
    SIM_LOSS_RANDOM,  /* each unflushed write, in flight or not: kept, lost or torn at 512 bytes, in random order */
    SIM_LOSS_ALL,     /* nothing unflushed survives */
    SIM_LOSS_NONE,    /* all that completed survives (a process crash, not a power cut); what was in flight is random */
    SIM_LOSS_REORDER, /* a random suffix of the writes survives and what came before it does not */
    SIM_LOSS_TEAR,    /* everything survives but the newest write, which is torn: part of it is there, part is not */
};
/*
 * Power cut: switches the disk off and decides by seed what of the unflushed survives; afterwards there is nothing
 * unflushed. Where the physical sector is larger than 4096 bytes, a torn write that covers a physical sector in part
 * also turns the rest of that sector into noise.
 */
void sim_disk_power_cut(struct sim_disk *disk, enum sim_loss loss, uint64_t seed);

/* From now on every operation on the devices that are open on this disk fails with -EIO and changes nothing ("the
 * machine is off"); what is in flight stays so, for a power cut to decide on. */
void sim_disk_switch_off(struct sim_disk *disk);

/*
 * Called when a write, flush, punch or allocate is about to take effect, with its running number from 1; until the hook
 * returns the operation is in flight. May take an image, switch off, cut power; may not run operations on this disk.
 */
typedef void (*sim_disk_hook)(void *arg, struct sim_disk *disk, uint64_t number, const struct device_io *io);
void sim_disk_set_hook(struct sim_disk *disk, sim_disk_hook hook, void *arg);
uint64_t sim_disk_step_count(const struct sim_disk *disk); /* writes + flushes + punches + allocates so far */

/*
 * The n-th (from 1, counted from now) operation of `kind` fails with `error` (negative errno); for ever after if
 * sticky. Any number of faults may be ordered; an operation that meets several suffers the first ordered.
 */
void sim_disk_fail(struct sim_disk *disk, enum device_io_kind kind, uint64_t nth, int error, bool sticky);
/* The n-th write (counted from now) is reported as done but lands at another offset / nowhere. */
void sim_disk_misdirect(struct sim_disk *disk, uint64_t nth, uint64_t wrong_offset_bytes);
void sim_disk_lose_write(struct sim_disk *disk, uint64_t nth);
/* Overwrites bytes at rest, now and durably, unflushed writes included. `bytes` NULL: noise from the seed that changes
 * every byte. Counts as no operation. */
void sim_disk_corrupt(struct sim_disk *disk, uint64_t offset_bytes, uint64_t length_bytes, const void *bytes,
                      uint64_t seed);
/* Reads what a read would give, at any offset, without counting as an operation. */
void sim_disk_peek(const struct sim_disk *disk, uint64_t offset_bytes, void *ret_bytes, uint64_t length_bytes);
/* Device latency: uniform in [min, max]; default 10 .. 100 microseconds. Operations in flight complete in random order.
 */
void sim_disk_set_latency(struct sim_disk *disk, uint64_t min_ns, uint64_t max_ns);
/* Bytes not punched since they were written. */
uint64_t sim_disk_allocated_bytes(const struct sim_disk *disk);
/* Every DEVICE_ALLOCATE and first write beyond this many allocated bytes fails with -ENOSPC ("the host file system is
 * full"). */
void sim_disk_set_capacity(struct sim_disk *disk, uint64_t capacity_bytes);

#endif
