/*
 * Changes of a simulated disk and their way from in flight to durable. See sim_disk_impl.h.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/tree.h"
#include "env/sim_disk_impl.h"

#define MASK_ALL ((1U << SIM_PAGE_SECTORS) - 1)

static size_t change_pages(enum device_io_kind kind, uint64_t page_count)
{
    switch (kind) {
    case DEVICE_WRITE:
        return (size_t)page_count;
    case DEVICE_ALLOCATE:
        return 1;
    case DEVICE_READ:
    case DEVICE_PUNCH:
    case DEVICE_FLUSH:
        break;
    }
    return 0;
}

struct sim_change *sim_change_new(enum device_io_kind kind, uint64_t first_page, uint64_t page_count)
{
    size_t pages = change_pages(kind, page_count);
    struct sim_change *change = sim_alloc(sizeof *change + pages * sizeof change->pages[0]);
    change->refs = 1;
    change->kind = kind;
    change->first_page = first_page;
    change->page_count = page_count;
    return change;
}

struct sim_change *sim_change_ref(struct sim_change *change)
{
    change->refs++;
    return change;
}

void sim_change_unref(struct sim_change *change)
{
    CHECK_GT(change->refs, 0);
    change->refs--;
    if (change->refs > 0)
        return;
    size_t pages = change_pages(change->kind, change->page_count);
    for (size_t i = 0; i < pages; i++)
        sim_page_unref(change->pages[i]);
    free(change);
}

static struct sim_page *released_copy(const struct sim_page *page)
{
    return page != NULL ? sim_page_new(page->bytes, true) : NULL;
}

void sim_change_apply_page(const struct sim_change *change, uint64_t index, unsigned mask, struct sim_picture *picture)
{
    uint64_t at = change->first_page + index;
    if (at >= picture->page_count || mask == 0)
        return; /* the disk has shrunk since */
    struct sim_page *before = sim_picture_page(picture, at);
    struct sim_page *after = NULL;
    switch (change->kind) {
    case DEVICE_WRITE:
        after = sim_page_mix(before, change->pages[index], mask);
        break;
    case DEVICE_PUNCH:
        after = change->odd ? released_copy(before) : sim_page_mix(before, NULL, mask);
        break;
    case DEVICE_ALLOCATE:
        if (before != NULL && !before->released && !change->odd)
            return;
        after = sim_page_ref(change->pages[0]);
        break;
    case DEVICE_READ:
    case DEVICE_FLUSH:
        return;
    }
    sim_picture_set(picture, at, after);
}

void sim_change_apply(const struct sim_change *change, struct sim_picture *picture)
{
    for (uint64_t i = 0; i < change->page_count; i++)
        sim_change_apply_page(change, i, MASK_ALL, picture);
}

struct sim_pending *sim_pending_new(struct sim_change *change)
{
    struct sim_pending *pending = sim_alloc(sizeof *pending);
    list_init(&pending->link);
    pending->change = change;
    return pending;
}

void sim_pending_free(struct sim_pending *pending)
{
    list_remove(&pending->link);
    sim_change_unref(pending->change);
    free(pending);
}

void sim_disk_forget_changes(struct sim_disk *disk, struct list *changes)
{
    while (!list_empty(changes))
        sim_pending_free(CONTAINER_OF(changes->next, struct sim_pending, link));
    if (changes == &disk->cached)
        disk->cached_bytes = 0;
}

static uint64_t change_bytes(const struct sim_change *change)
{
    return change->kind == DEVICE_WRITE ? change->page_count * SIM_PAGE_BYTES : 0;
}

/* What became durable on a page replaces what an older, orphaned change would have put there. */
static void orphans_superseded(struct sim_disk *disk, const struct sim_change *by)
{
    for (struct list *l = disk->orphaned.next; l != &disk->orphaned;) {
        struct sim_pending *orphan = CONTAINER_OF(l, struct sim_pending, link);
        l = l->next;
        if (orphan->change->first_page - by->first_page < by->page_count)
            sim_pending_free(orphan);
    }
}

/* The oldest cached change leaves the cache if it is covered. */
static struct sim_pending *cached_oldest(struct sim_disk *disk, uint64_t cover)
{
    if (list_empty(&disk->cached))
        return NULL;
    struct sim_pending *oldest = CONTAINER_OF(disk->cached.next, struct sim_pending, link);
    if (oldest->completion > cover)
        return NULL;
    list_remove(&oldest->link);
    disk->cached_bytes -= change_bytes(oldest->change);
    return oldest;
}

static void become_durable(struct sim_disk *disk, struct sim_pending *pending)
{
    sim_change_apply(pending->change, &disk->durable);
    orphans_superseded(disk, pending->change);
    sim_pending_free(pending);
}

void sim_disk_make_durable(struct sim_disk *disk, uint64_t cover)
{
    struct sim_pending *pending;
    while ((pending = cached_oldest(disk, cover)) != NULL)
        become_durable(disk, pending);
}

void sim_disk_cache_change(struct sim_disk *disk, struct sim_pending *pending)
{
    sim_change_apply(pending->change, &disk->current);
    list_remove(&pending->link);
    list_append(&disk->cached, &pending->link);
    pending->op = NULL;
    disk->completions++;
    pending->completion = disk->completions;
    disk->cached_bytes += change_bytes(pending->change);
    while (disk->cached_bytes > CACHE_BYTES_MAX)
        become_durable(disk, cached_oldest(disk, UINT64_MAX));
}

/* Orphans have one page each, so that one can be superseded without its neighbours. */
static void orphan_page(struct sim_disk *disk, const struct sim_change *change, uint64_t index)
{
    struct sim_change *alone = sim_change_new(change->kind, change->first_page + index, 1);
    alone->odd = change->odd;
    if (change->kind == DEVICE_WRITE)
        alone->pages[0] = sim_page_ref(change->pages[index]);
    else if (change->kind == DEVICE_ALLOCATE)
        alone->pages[0] = sim_page_ref(change->pages[0]);
    list_append(&disk->orphaned, &sim_pending_new(alone)->link);
}

void sim_disk_make_orphans(struct sim_disk *disk, uint64_t cover)
{
    struct sim_pending *pending;
    while ((pending = cached_oldest(disk, cover)) != NULL) {
        for (uint64_t i = 0; i < pending->change->page_count; i++)
            orphan_page(disk, pending->change, i);
        sim_pending_free(pending);
    }
}
