/*
 * Pages and pictures. See sim_picture.h.
 *
 * Nodes have 64 children: a 16 MiB disk has two levels, and copying a shared path touches at most 128 reference counts.
 */
#include "env/sim_picture.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "env/sim_impl.h"

#define NODE_BITS 6
#define NODE_CHILDREN (1U << NODE_BITS)

struct sim_picture_node {
    uint32_t refs;
    void *children[NODE_CHILDREN]; /* nodes; on the lowest level pages */
};

static struct sim_page *page_alloc(bool released)
{
    struct sim_page *page = malloc(sizeof *page);
    CHECK(page != NULL);
    page->refs = 1;
    page->released = released;
    return page;
}

static struct sim_page *page_seal(struct sim_page *page)
{
    page->hash = XXH3_64bits(page->bytes, sizeof page->bytes);
    return page;
}

struct sim_page *sim_page_new(const void *bytes, bool released)
{
    struct sim_page *page = page_alloc(released);
    memcpy(page->bytes, bytes, sizeof page->bytes);
    return page_seal(page);
}

struct sim_page *sim_page_ref(struct sim_page *page)
{
    if (page != NULL)
        page->refs++;
    return page;
}

void sim_page_unref(struct sim_page *page)
{
    if (page == NULL)
        return;
    CHECK_GT(page->refs, 0);
    page->refs--;
    if (page->refs == 0)
        free(page);
}

struct sim_page *sim_page_mix(struct sim_page *under, struct sim_page *over, unsigned mask)
{
    const unsigned all = (1U << SIM_PAGE_SECTORS) - 1;
    if (mask == all)
        return sim_page_ref(over);
    if (mask == 0 || (under == NULL && over == NULL))
        return sim_page_ref(under);
    struct sim_page *page = page_alloc(false);
    for (size_t sector = 0; sector < SIM_PAGE_SECTORS; sector++) {
        const struct sim_page *from = (mask >> sector & 1) ? over : under;
        uint8_t *to = page->bytes + sector * SIM_SECTOR_BYTES;
        if (from != NULL)
            memcpy(to, from->bytes + sector * SIM_SECTOR_BYTES, SIM_SECTOR_BYTES);
        else
            memset(to, 0, SIM_SECTOR_BYTES);
    }
    return page_seal(page);
}

static void child_unref(void *child, unsigned level)
{
    if (child == NULL)
        return;
    if (level == 0) {
        sim_page_unref(child);
        return;
    }
    struct sim_picture_node *node = child;
    CHECK_GT(node->refs, 0);
    node->refs--;
    if (node->refs > 0)
        return;
    for (size_t i = 0; i < NODE_CHILDREN; i++)
        child_unref(node->children[i], level - 1);
    free(node);
}

/* The node at *place, made if there is none, replaced by a copy of its own if others share it. */
static struct sim_picture_node *node_own(struct sim_picture_node **place, unsigned level)
{
    struct sim_picture_node *shared = *place;
    if (shared != NULL && shared->refs == 1)
        return shared;
    struct sim_picture_node *own = sim_alloc(sizeof *own);
    own->refs = 1;
    *place = own;
    if (shared == NULL)
        return own;
    memcpy(own->children, shared->children, sizeof own->children);
    for (size_t i = 0; i < NODE_CHILDREN; i++) {
        if (own->children[i] == NULL)
            continue;
        if (level == 1)
            sim_page_ref(own->children[i]);
        else
            ((struct sim_picture_node *)own->children[i])->refs++;
    }
    shared->refs--;
    return own;
}

static unsigned levels_for(uint64_t page_count)
{
    unsigned levels = 1;
    while (levels * NODE_BITS < 64 && page_count > UINT64_C(1) << levels * NODE_BITS)
        levels++;
    return levels;
}

static size_t child_index(uint64_t page, unsigned level)
{
    return (size_t)(page >> (level - 1) * NODE_BITS) % NODE_CHILDREN;
}

void sim_picture_init(struct sim_picture *p, uint64_t page_count)
{
    *p = (struct sim_picture){.levels = levels_for(page_count), .page_count = page_count};
}

void sim_picture_fini(struct sim_picture *p)
{
    child_unref(p->root, p->levels);
    p->root = NULL;
}

struct sim_picture sim_picture_copy(const struct sim_picture *p)
{
    if (p->root != NULL)
        p->root->refs++;
    return *p;
}

struct sim_page *sim_picture_page(const struct sim_picture *p, uint64_t page)
{
    CHECK_LT(page, p->page_count);
    const struct sim_picture_node *node = p->root;
    for (unsigned level = p->levels; node != NULL && level > 1; level--)
        node = node->children[child_index(page, level)];
    return node != NULL ? node->children[child_index(page, 1)] : NULL;
}

static bool counts_as_allocated(const struct sim_page *page)
{
    return page != NULL && !page->released;
}

void sim_picture_set(struct sim_picture *p, uint64_t page, struct sim_page *content)
{
    CHECK_LT(page, p->page_count);
    if (content == NULL && sim_picture_page(p, page) == NULL)
        return;
    struct sim_picture_node *node = node_own(&p->root, p->levels);
    for (unsigned level = p->levels; level > 1; level--) {
        void **place = &node->children[child_index(page, level)];
        struct sim_picture_node *child = *place;
        node = node_own(&child, level - 1);
        *place = node;
    }
    void **place = &node->children[child_index(page, 1)];
    p->allocated_pages += counts_as_allocated(content);
    p->allocated_pages -= counts_as_allocated(*place);
    sim_page_unref(*place);
    *place = content;
}

void sim_picture_resize(struct sim_picture *p, uint64_t page_count)
{
    for (uint64_t page = page_count; page < p->page_count; page++)
        sim_picture_set(p, page, NULL);
    p->page_count = page_count;
    while (p->levels < levels_for(page_count)) {
        if (p->root != NULL) {
            struct sim_picture_node *root = sim_alloc(sizeof *root);
            root->refs = 1;
            root->children[0] = p->root;
            p->root = root;
        }
        p->levels++;
    }
}
