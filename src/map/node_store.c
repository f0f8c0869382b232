/*
 * The node store (node_store.h): a hash by address and an LRU list that eviction takes from.
 */
#include "map/node_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

static size_t node_bytes(uint8_t level, uint32_t patch_count)
{
    return sizeof(struct cached_node) + map_fanout(level) * sizeof(struct pointer) +
           patch_count * sizeof(struct node_patch);
}

int node_store_init(struct node_store *s, struct env *env, struct reader *reader, uint64_t budget_bytes)
{
    memset(s, 0, sizeof *s);
    uint32_t buckets = 256;
    while (buckets < budget_bytes / 8192 && buckets < 1u << 20)
        buckets *= 2;
    s->buckets = calloc(buckets, sizeof(struct cached_node *));
    if (s->buckets == NULL)
        return -ENOMEM;
    s->bucket_mask = buckets - 1;
    s->budget_bytes = budget_bytes;
    s->reader = reader;
    list_init(&s->lru);
    env_mutex_init(&s->lock, env);
    return 0;
}

static struct cached_node **bucket_of(struct node_store *s, uint64_t address)
{
    return &s->buckets[(uint32_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & s->bucket_mask];
}

static void drop(struct node_store *s, struct cached_node *node)
{
    struct cached_node **link = bucket_of(s, node->address);
    while (*link != node)
        link = &(*link)->hash_next;
    *link = node->hash_next;
    list_remove(&node->lru);
    node->in_cache = false;
    s->used_bytes -= node_bytes(node->level, node->patch_count);
    free(node);
}

void node_store_fini(struct node_store *s)
{
    if (s->buckets == NULL)
        return;
    while (!list_empty(&s->lru)) {
        struct cached_node *node = (struct cached_node *)s->lru.next;
        CHECK_EQ(node->references, 0);
        drop(s, node);
    }
    CHECK_EQ(s->used_bytes, 0);
    free(s->buckets);
    s->buckets = NULL;
    env_mutex_destroy(&s->lock);
}

static struct cached_node *find(struct node_store *s, uint64_t address)
{
    struct cached_node *node = *bucket_of(s, address);
    while (node != NULL && node->address != address)
        node = node->hash_next;
    return node;
}

static void insert(struct node_store *s, struct cached_node *node, uint64_t address)
{
    struct cached_node **bucket = bucket_of(s, address);
    node->address = address;
    node->hash_next = *bucket;
    *bucket = node;
    node->in_cache = true;
    list_append(&s->lru, &node->lru);
    s->used_bytes += node_bytes(node->level, node->patch_count);
    for (struct list *l = s->lru.next; l != &s->lru && s->used_bytes > s->budget_bytes;) {
        struct cached_node *old = (struct cached_node *)l;
        l = l->next;
        if (old->references == 0 && old != node)
            drop(s, old);
    }
}

struct cached_node *cached_node_of(const struct node *n)
{
    uint32_t fanout = map_fanout(n->level);
    struct cached_node *node = malloc(node_bytes(n->level, n->patch_count));
    if (node == NULL)
        return NULL;
    memset(node, 0, sizeof *node);
    list_init(&node->lru);
    node->level = n->level;
    node->branch = n->branch;
    node->number = n->number;
    node->patch_count = n->patch_count;
    memcpy(node->children, n->children, fanout * sizeof(struct pointer));
    node->patches = (struct node_patch *)(void *)(node->children + fanout);
    if (n->patch_count > 0)
        memcpy(node->patches, n->patches, n->patch_count * sizeof(struct node_patch));
    return node;
}

uint64_t cached_node_bytes(const struct cached_node *node)
{
    return node_bytes(node->level, node->patch_count);
}

void node_store_adopt(struct node_store *s, struct cached_node *node, uint64_t address)
{
    if (node == NULL)
        return;
    if (address == 0) {
        free(node);
        return;
    }
    env_mutex_lock(&s->lock);
    if (find(s, address) != NULL)
        free(node);
    else
        insert(s, node, address);
    env_mutex_unlock(&s->lock);
}

/* Reads and decodes; the result is not in the cache. */
static int read_node(struct node_store *s, const struct map_tree *tree, const struct pointer *p, uint8_t level,
                     uint64_t number, struct cached_node **ret_node)
{
    struct node *scratch = calloc(1, sizeof *scratch);
    struct node_patch *patches = level == 0 ? malloc(NODE_PATCHES_MAX * sizeof *patches) : NULL;
    uint8_t *bytes = malloc(p->length);
    int result = -ENOMEM;
    *ret_node = NULL;
    if (scratch != NULL && bytes != NULL && (level > 0 || patches != NULL)) {
        scratch->patches = patches;
        result = reader_read(s->reader, p, tree->physical, bytes);
        if (result == 0)
            result = node_decode(bytes, p->length, tree->branch, level, number,
                                 tree->physical ? UINT64_MAX : p->address, scratch, NULL);
        if (result == 0) {
            *ret_node = cached_node_of(scratch);
            result = *ret_node == NULL ? -ENOMEM : 0;
        }
    }
    free(bytes);
    free(patches);
    free(scratch);
    return result;
}

int node_store_get(struct node_store *s, const struct map_tree *tree, const struct pointer *p, uint8_t level,
                   uint64_t number, struct cached_node **ret_node)
{
    CHECK_EQ(p->kind, POINTER_NODE);
    struct cached_node *node = NULL;
    if (!tree->physical) {
        env_mutex_lock(&s->lock);
        node = find(s, p->address);
        /* A hit under another identity can only be a damaged pointer; let the read below say so. */
        if (node != NULL && (node->branch != tree->branch || node->level != level || node->number != number))
            node = NULL;
        if (node != NULL) {
            node->references++;
            list_remove(&node->lru);
            list_append(&s->lru, &node->lru);
            s->hits++;
        } else {
            s->misses++;
        }
        env_mutex_unlock(&s->lock);
    }
    if (node != NULL) {
        *ret_node = node;
        return 0;
    }
    int result = read_node(s, tree, p, level, number, &node);
    if (result != 0)
        return result;
    node->references = 1;
    if (!tree->physical) {
        env_mutex_lock(&s->lock);
        struct cached_node *other = find(s, p->address);
        if (other == NULL) {
            insert(s, node, p->address);
        } else if (other->branch == tree->branch && other->level == level && other->number == number) {
            free(node);
            node = other;
            node->references++;
        }
        env_mutex_unlock(&s->lock);
    }
    *ret_node = node;
    return 0;
}

void node_store_put(struct node_store *s, struct cached_node *node)
{
    env_mutex_lock(&s->lock);
    CHECK_GT(node->references, 0);
    node->references--;
    bool gone = node->references == 0 && !node->in_cache;
    if (node->references == 0 && node->in_cache && s->used_bytes > s->budget_bytes)
        drop(s, node);
    env_mutex_unlock(&s->lock);
    if (gone)
        free(node);
}
