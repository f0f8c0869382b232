/*
 * Simulated disks: making and opening them, their settings and their size.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "env/sim_disk_impl.h"

#define LATENCY_MIN_NS 10000
#define LATENCY_MAX_NS 100000

static struct sim_disk *disk_alloc(struct sim *sim, uint32_t physical_sector_bytes)
{
    struct sim_disk *disk = sim_alloc(sizeof *disk);
    disk->sim = sim;
    disk->physical_sector_bytes = physical_sector_bytes;
    list_init(&disk->in_flight);
    list_init(&disk->cached);
    list_init(&disk->orphaned);
    list_init(&disk->devices);
    list_init(&disk->faults);
    disk->latency_min_ns = LATENCY_MIN_NS;
    disk->latency_max_ns = LATENCY_MAX_NS;
    disk->capacity_bytes = UINT64_MAX;
    prng_seed(&disk->prng, prng_u64(&sim->prng));
    sim->disks++;
    return disk;
}

struct sim_disk *sim_disk_new(struct sim *sim, uint64_t size_bytes, uint32_t physical_sector_bytes)
{
    CHECK_EQ(size_bytes % SIM_PAGE_BYTES, 0);
    CHECK(is_power_of_2(physical_sector_bytes));
    CHECK_GE(physical_sector_bytes, 512);
    CHECK_LE(physical_sector_bytes, 65536);
    struct sim_disk *disk = disk_alloc(sim, physical_sector_bytes);
    sim_picture_init(&disk->durable, size_bytes / SIM_PAGE_BYTES);
    sim_picture_init(&disk->current, size_bytes / SIM_PAGE_BYTES);
    return disk;
}

void sim_disk_free(struct sim_disk *disk)
{
    if (disk == NULL)
        return;
    CHECK(list_empty(&disk->devices));
    sim_disk_forget_changes(disk, &disk->in_flight);
    sim_disk_forget_changes(disk, &disk->cached);
    sim_disk_forget_changes(disk, &disk->orphaned);
    sim_fault_forget_all(disk);
    sim_picture_fini(&disk->durable);
    sim_picture_fini(&disk->current);
    disk->sim->disks--;
    free(disk);
}

static int sim_device_resize(struct device *dev, uint64_t size_bytes)
{
    struct sim_device *device = (struct sim_device *)dev;
    if (device->off)
        return -EIO;
    sim_picture_resize(&device->disk->durable, size_bytes / SIM_PAGE_BYTES);
    sim_picture_resize(&device->disk->current, size_bytes / SIM_PAGE_BYTES);
    return 0;
}

static uint64_t sim_device_allocated_bytes(struct device *dev)
{
    return sim_disk_allocated_bytes(((struct sim_device *)dev)->disk);
}

static void sim_device_close(struct device *dev)
{
    struct sim_device *device = (struct sim_device *)dev;
    CHECK_EQ(device->calls_running, 0);
    list_remove(&device->link);
    free(device);
}

static const struct device_ops sim_device_ops = {
    .run = sim_device_run,
    .resize = sim_device_resize,
    .allocated_bytes = sim_device_allocated_bytes,
    .close = sim_device_close,
};

struct device *sim_disk_open(struct sim_disk *disk, bool read_only)
{
    /* What a machine that is gone had in flight, and no power cut decided, never reached the disk. */
    if (list_empty(&disk->devices))
        sim_disk_forget_changes(disk, &disk->in_flight);
    struct sim_device *device = sim_alloc(sizeof *device);
    struct device *dev = &device->base;
    dev->ops = &sim_device_ops;
    dev->env = sim_env(disk->sim);
    dev->info = (struct device_info){.size_bytes = disk->current.page_count * SIM_PAGE_BYTES,
                                     .logical_sector_bytes = SIM_SECTOR_BYTES,
                                     .physical_sector_bytes = disk->physical_sector_bytes,
                                     .is_read_only = read_only,
                                     .is_direct = true,
                                     .can_punch = true,
                                     .engine = "simulation"};
    (void)snprintf(dev->name, sizeof dev->name, "simulated disk");
    device->disk = disk;
    list_append(&disk->devices, &device->link);
    return dev;
}

struct sim_disk *sim_disk_from_image(struct sim *sim, const struct sim_image *image)
{
    struct sim_disk *disk = disk_alloc(sim, image->physical_sector_bytes);
    disk->durable = sim_picture_copy(&image->durable);
    disk->current = sim_picture_copy(&image->current);
    struct sim_change *const *change = image->changes;
    for (size_t i = 0; i < image->in_flight_count; i++, change++)
        list_append(&disk->in_flight, &sim_pending_new(sim_change_ref(*change))->link);
    for (size_t i = 0; i < image->cached_count; i++, change++) {
        struct sim_pending *pending = sim_pending_new(sim_change_ref(*change));
        pending->completion = ++disk->completions;
        list_append(&disk->cached, &pending->link);
        if ((*change)->kind == DEVICE_WRITE)
            disk->cached_bytes += (*change)->page_count * SIM_PAGE_BYTES;
    }
    for (size_t i = 0; i < image->orphaned_count; i++, change++)
        list_append(&disk->orphaned, &sim_pending_new(sim_change_ref(*change))->link);
    return disk;
}

void sim_disk_switch_off(struct sim_disk *disk)
{
    for (struct list *l = disk->devices.next; l != &disk->devices; l = l->next)
        CONTAINER_OF(l, struct sim_device, link)->off = true;
}

void sim_disk_set_hook(struct sim_disk *disk, sim_disk_hook hook, void *arg)
{
    disk->hook = hook;
    disk->hook_arg = arg;
}

uint64_t sim_disk_step_count(const struct sim_disk *disk)
{
    return disk->step_count;
}

void sim_disk_set_latency(struct sim_disk *disk, uint64_t min_ns, uint64_t max_ns)
{
    CHECK_LE(min_ns, max_ns);
    CHECK_LT(max_ns, UINT64_MAX / 2);
    disk->latency_min_ns = min_ns;
    disk->latency_max_ns = max_ns;
}

uint64_t sim_disk_allocated_bytes(const struct sim_disk *disk)
{
    return disk->current.allocated_pages * SIM_PAGE_BYTES;
}

void sim_disk_set_capacity(struct sim_disk *disk, uint64_t capacity_bytes)
{
    disk->capacity_bytes = capacity_bytes;
}

void sim_disk_peek(const struct sim_disk *disk, uint64_t offset_bytes, void *ret_bytes, uint64_t length_bytes)
{
    uint8_t *to = ret_bytes;
    CHECK(range_inside(offset_bytes, length_bytes, disk->current.page_count * SIM_PAGE_BYTES));
    while (length_bytes > 0) {
        const struct sim_page *page = sim_picture_page(&disk->current, offset_bytes / SIM_PAGE_BYTES);
        size_t within = (size_t)(offset_bytes % SIM_PAGE_BYTES);
        size_t n = (size_t)min_u64(length_bytes, SIM_PAGE_BYTES - within);
        if (page != NULL)
            memcpy(to, page->bytes + within, n);
        else
            memset(to, 0, n);
        to += n;
        offset_bytes += n;
        length_bytes -= n;
    }
}
