/*
 * The content of a simulated disk at one moment: a persistent radix tree of 4 KiB pages.
 *
 * Pages and nodes are counted and shared; a node that several pictures share is copied when one of them changes it. So
 * a copy of a picture costs nothing, whatever the size of the disk, and each change after it costs the path from the
 * root: a test can keep a picture of the disk at every one of thousands of steps.
 */
#ifndef ASHLAR_ENV_SIM_PICTURE_H
#define ASHLAR_ENV_SIM_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_PAGE_BYTES 4096
#define SIM_SECTOR_BYTES 512
#define SIM_PAGE_SECTORS (SIM_PAGE_BYTES / SIM_SECTOR_BYTES)

/* Never changed once it is made. */
struct sim_page {
    uint32_t refs;
    bool released; /* punched, and reads as the bytes it had: not counted as allocated */
    uint64_t hash; /* of the bytes, for the trace */
    uint8_t bytes[SIM_PAGE_BYTES];
};

struct sim_page *sim_page_new(const void *bytes, bool released);
struct sim_page *sim_page_ref(struct sim_page *page); /* NULL is fine, as for the next */
void sim_page_unref(struct sim_page *page);
/* Sectors whose bit is set in `mask` from `over`, the others from `under`; NULL stands for zeroes. A new reference. */
struct sim_page *sim_page_mix(struct sim_page *under, struct sim_page *over, unsigned mask);

struct sim_picture_node;

struct sim_picture {
    struct sim_picture_node *root; /* NULL: all holes */
    unsigned levels;
    uint64_t page_count;
    uint64_t allocated_pages;
};

void sim_picture_init(struct sim_picture *p, uint64_t page_count);
void sim_picture_fini(struct sim_picture *p);
struct sim_picture sim_picture_copy(const struct sim_picture *p);
/* The page, without a reference of its own; NULL: a hole, reads as zeroes. */
struct sim_page *sim_picture_page(const struct sim_picture *p, uint64_t page);
/* Takes over one reference to `content` (NULL: makes a hole). */
void sim_picture_set(struct sim_picture *p, uint64_t page, struct sim_page *content);
void sim_picture_resize(struct sim_picture *p, uint64_t page_count);

#endif
