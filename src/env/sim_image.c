/*
 * Images of a simulated disk, and what a power cut leaves of it.
 *
 * After a cut each 512-byte sector holds what was durable or what some change that was not durable yet put there; which
 * is drawn anew for every page. A torn write also damages what it did not mean to write: where the physical sector is
 * larger than a page, the rest of a physical sector that the write covered in part only is noise.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/tree.h"
#include "env/sim_disk_impl.h"

#define MASK_ALL ((1U << SIM_PAGE_SECTORS) - 1)

static size_t list_count(const struct list *head)
{
    size_t n = 0;
    for (const struct list *l = head->next; l != head; l = l->next)
        n++;
    return n;
}

static struct sim_change **changes_collect(const struct list *head, struct sim_change **to)
{
    for (struct list *l = head->next; l != head; l = l->next, to++)
        *to = sim_change_ref(CONTAINER_OF(l, struct sim_pending, link)->change);
    return to;
}

struct sim_image *sim_disk_image(const struct sim_disk *disk)
{
    size_t in_flight = list_count(&disk->in_flight), cached = list_count(&disk->cached),
           orphaned = list_count(&disk->orphaned);
    struct sim_image *image = sim_alloc(sizeof *image + (in_flight + cached + orphaned) * sizeof image->changes[0]);
    image->physical_sector_bytes = disk->physical_sector_bytes;
    image->durable = sim_picture_copy(&disk->durable);
    image->current = sim_picture_copy(&disk->current);
    image->in_flight_count = in_flight;
    image->cached_count = cached;
    image->orphaned_count = orphaned;
    struct sim_change **to = changes_collect(&disk->in_flight, image->changes);
    to = changes_collect(&disk->cached, to);
    (void)changes_collect(&disk->orphaned, to);
    return image;
}

void sim_image_free(struct sim_image *image)
{
    if (image == NULL)
        return;
    size_t changes = image->in_flight_count + image->cached_count + image->orphaned_count;
    for (size_t i = 0; i < changes; i++)
        sim_change_unref(image->changes[i]);
    sim_picture_fini(&image->durable);
    sim_picture_fini(&image->current);
    free(image);
}

/* A power cut at work: what is left so far, and the die. */
struct cut {
    struct prng prng;
    struct sim_picture left;
    uint64_t physical_pages; /* pages of a physical sector; 0 or 1: no collateral damage */
};

static void page_becomes_noise(struct cut *cut, uint64_t page)
{
    uint8_t bytes[SIM_PAGE_BYTES];
    if (page >= cut->left.page_count || sim_picture_page(&cut->left, page) == NULL)
        return;
    prng_fill(&cut->prng, bytes, sizeof bytes);
    sim_picture_set(&cut->left, page, sim_page_new(bytes, false));
}

static void neighbours_become_noise(struct cut *cut, const struct sim_change *change)
{
    if (cut->physical_pages <= 1 || change->kind != DEVICE_WRITE)
        return;
    uint64_t end = change->first_page + change->page_count;
    for (uint64_t page = change->first_page; page % cut->physical_pages != 0;)
        page_becomes_noise(cut, --page);
    for (uint64_t page = end; page % cut->physical_pages != 0; page++)
        page_becomes_noise(cut, page);
}

/* A part of the change is kept: a prefix or a random part, at least one sector and not all of them. */
static void change_tears(struct cut *cut, const struct sim_change *change)
{
    uint64_t sectors = change->page_count * SIM_PAGE_SECTORS;
    uint64_t kept_for_sure = prng_below(&cut->prng, sectors);
    uint64_t lost_for_sure = (kept_for_sure + 1 + prng_below(&cut->prng, sectors - 1)) % sectors;
    uint64_t prefix = 1 + prng_below(&cut->prng, sectors - 1);
    bool is_prefix = prng_chance(&cut->prng, 500);
    for (uint64_t i = 0; i < change->page_count; i++) {
        unsigned mask = 0;
        for (unsigned s = 0; s < SIM_PAGE_SECTORS; s++) {
            uint64_t sector = i * SIM_PAGE_SECTORS + s;
            bool keep = is_prefix                 ? sector < prefix
                        : sector == kept_for_sure ? true
                        : sector == lost_for_sure ? false
                                                  : prng_chance(&cut->prng, 500);
            mask |= (unsigned)keep << s;
        }
        sim_change_apply_page(change, i, mask, &cut->left);
    }
    neighbours_become_noise(cut, change);
}

/* Kept with the given probability, else torn or lost evenly. */
static void change_by_chance(struct cut *cut, const struct sim_change *change, unsigned keep_per_mille)
{
    if (prng_chance(&cut->prng, keep_per_mille))
        sim_change_apply(change, &cut->left);
    else if (prng_chance(&cut->prng, 500))
        change_tears(cut, change);
}

static void changes_by_chance(struct cut *cut, struct sim_change *const *changes, size_t count, unsigned keep_per_mille)
{
    for (size_t i = 0; i < count; i++)
        change_by_chance(cut, changes[i], keep_per_mille);
}

static void shuffle(struct prng *prng, struct sim_change **changes, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)prng_below(prng, i);
        struct sim_change *swap = changes[i - 1];
        changes[i - 1] = changes[j];
        changes[j] = swap;
    }
}

static unsigned keep_draw(struct cut *cut)
{
    /* Cuts that keep nearly all and nearly nothing find other faults than even ones. */
    static const unsigned per_mille[] = {50, 350, 650, 950};
    return per_mille[prng_below(&cut->prng, sizeof per_mille / sizeof per_mille[0])];
}

static void loss_random(struct cut *cut, struct sim_image *image)
{
    size_t count = image->in_flight_count + image->cached_count + image->orphaned_count;
    unsigned keep = keep_draw(cut);
    shuffle(&cut->prng, image->changes, count);
    changes_by_chance(cut, image->changes, count, keep);
}

/* The i-th of the changes that no failed flush has orphaned: completed ones first, then those in flight. */
static const struct sim_change *change_in_order(const struct sim_image *image, size_t i)
{
    return i < image->cached_count ? image->changes[image->in_flight_count + i]
                                   : image->changes[i - image->cached_count];
}

static void orphans_by_chance(struct cut *cut, const struct sim_image *image)
{
    changes_by_chance(cut, image->changes + image->in_flight_count + image->cached_count, image->orphaned_count, 500);
}

static void loss_reorder(struct cut *cut, struct sim_image *image)
{
    size_t count = image->cached_count + image->in_flight_count;
    orphans_by_chance(cut, image);
    for (size_t i = (size_t)prng_below(&cut->prng, count + 1); i < count; i++)
        sim_change_apply(change_in_order(image, i), &cut->left);
}

static void loss_tear(struct cut *cut, struct sim_image *image)
{
    size_t count = image->cached_count + image->in_flight_count;
    size_t newest = count;
    for (size_t i = count; i > 0 && newest == count; i--)
        if (change_in_order(image, i - 1)->kind == DEVICE_WRITE)
            newest = i - 1;
    orphans_by_chance(cut, image);
    for (size_t i = 0; i < count; i++)
        if (i != newest)
            sim_change_apply(change_in_order(image, i), &cut->left);
    if (newest < count)
        change_tears(cut, change_in_order(image, newest));
}

/* The page cache goes with the process, or with the reopening that drops it: orphans are what the disk has of them. */
static void loss_none(struct cut *cut, struct sim_image *image)
{
    orphans_by_chance(cut, image);
    for (size_t i = 0; i < image->cached_count; i++)
        sim_change_apply(change_in_order(image, i), &cut->left);
    changes_by_chance(cut, image->changes, image->in_flight_count, 500);
}

static void disk_leaves_only(struct sim_disk *disk, struct sim_picture left)
{
    for (struct list *l = disk->in_flight.next; l != &disk->in_flight; l = l->next)
        sim_pending_disown(CONTAINER_OF(l, struct sim_pending, link));
    sim_disk_forget_changes(disk, &disk->in_flight);
    sim_disk_forget_changes(disk, &disk->cached);
    sim_disk_forget_changes(disk, &disk->orphaned);
    sim_picture_fini(&disk->durable);
    sim_picture_fini(&disk->current);
    disk->durable = sim_picture_copy(&left);
    disk->current = left;
}

void sim_disk_power_cut(struct sim_disk *disk, enum sim_loss loss, uint64_t seed)
{
    sim_disk_switch_off(disk);
    struct sim_image *image = sim_disk_image(disk);
    struct cut cut = {.left = sim_picture_copy(&disk->durable),
                      .physical_pages = disk->physical_sector_bytes / SIM_PAGE_BYTES};
    prng_seed(&cut.prng, seed);
    switch (loss) {
    case SIM_LOSS_RANDOM:
        loss_random(&cut, image);
        break;
    case SIM_LOSS_ALL:
        break;
    case SIM_LOSS_NONE:
        loss_none(&cut, image);
        break;
    case SIM_LOSS_REORDER:
        loss_reorder(&cut, image);
        break;
    case SIM_LOSS_TEAR:
        loss_tear(&cut, image);
        break;
    }
    disk_leaves_only(disk, cut.left);
    sim_image_free(image);
}
