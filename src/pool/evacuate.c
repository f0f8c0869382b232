/*
 * Evacuation: getting node segments back that a few live objects keep.
 *
 * Each checkpoint writes the nodes it changed and lets go of their older versions, wherever they lie. A node that
 * nothing changes any more keeps its whole segment, so in a pool that is nearly full such segments could eat the
 * reserve, and with it the promise that a full pool can still be trimmed. So a checkpoint that finds little free looks
 * for the node segments with least in them, and writes what is live there once more: a leaf or inner node by an update
 * that changes nothing, all catalog objects and slot-table records where any of those lie there. The segment is dead
 * with this checkpoint and free two labels later, as any other.
 *
 * A victim holds at most an eighth of a segment, and all of them together a quarter: so an evacuation takes less than
 * it gives back, and node segments take at most eight times what is live in them, with room to find it. Nodes that do
 * not verify are left where they are, for check --repair.
 *
 * Only inner nodes are read to find what lies in a victim. Trees change at checkpoints only, and this is part of one:
 * no lock is needed to walk them.
 */
#include "pool/checkpoint_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

#define TOUCHES_MAX 4096

struct candidate {
    uint32_t slot, live_bytes;
};

struct evacuation {
    struct checkpoint_work *w;
    struct volume *volume; /* being walked */
    uint8_t *victims;      /* a byte a slot */
};

static int compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return a->live_bytes < b->live_bytes ? -1 : a->live_bytes > b->live_bytes;
}

static bool slots_are_short(struct pool *pool)
{
    env_mutex_lock(&pool->lock);
    uint64_t free = slots_free_count(&pool->slots);
    env_mutex_unlock(&pool->lock);
    return free < 2 * pool->reserve_slots;
}

/* Marks the victims; returns how many. */
static uint32_t choose_victims(struct evacuation *e, struct candidate *list)
{
    struct pool *pool = e->w->pool;
    uint32_t segment_bytes = pool->geometry.segment_bytes, count = 0, chosen = 0;
    for (uint32_t slot = 0; slot < pool->geometry.slot_count; slot++) {
        struct slot t = slots_get(&pool->slots, slot);
        uint32_t live = t.live_bytes + slots_own_bytes(&pool->slots, slot);
        if (t.state == SLOT_CLOSED && t.head == CHUNK_HEAD_NODE && live > 0 && live <= segment_bytes / 8)
            list[count++] = (struct candidate){.slot = slot, .live_bytes = live};
    }
    qsort(list, count, sizeof *list, compare_candidates);
    /* Each is written twice, and what is above it too. */
    uint64_t most = min_u64(segment_bytes / 4, e->w->spare_bytes / 4);
    for (uint64_t sum = 0; chosen < count; chosen++) {
        sum += list[chosen].live_bytes;
        if (sum > most)
            break;
        e->victims[list[chosen].slot] = 1;
        e->w->rewrite_own |= slots_own_bytes(&pool->slots, list[chosen].slot) > 0;
    }
    return chosen;
}

static bool lies_in_victim(const struct evacuation *e, const struct pointer *p)
{
    const struct pool *pool = e->w->pool;
    uint64_t offset;
    if (slots_resolve(&e->w->pool->slots, p->address, &offset) != 0)
        return false;
    return e->victims[(offset - pool->geometry.data_start_bytes) / pool->geometry.segment_bytes] != 0;
}

static int add_touch(struct checkpoint_work *w, struct volume *v, uint64_t index)
{
    if (w->touches == NULL) {
        w->touches = malloc(TOUCHES_MAX * sizeof *w->touches);
        if (w->touches == NULL)
            return -ENOMEM;
    }
    w->touches[w->touch_count++] = (struct map_touch){.volume = v, .index = index};
    return w->touch_count == TOUCHES_MAX ? 1 : 0;
}

static int look_at_node(void *arg, const struct pointer *p, uint8_t level, uint64_t number)
{
    struct evacuation *e = arg;
    struct cached_node *leaf;
    if (!lies_in_victim(e, p))
        return 0;
    if (level == 0) {
        struct node_store *store = &e->w->pool->node_store;
        int result = node_store_get(store, &e->volume->tree, p, 0, number, &leaf);
        if (result != 0)
            return result == -EBADMSG ? 0 : result;
        node_store_put(store, leaf);
    }
    return add_touch(e->w, e->volume, number << map_level_bits(level));
}

static int pass_over(void *arg, const struct pointer *p, uint8_t level, uint64_t number, int error)
{
    (void)arg;
    (void)p;
    (void)level;
    (void)number;
    (void)error;
    return 0;
}

/* The volumes there are now; a checkpoint alone takes one away. */
static struct volume **list_volumes(struct pool *pool, uint32_t *ret_count)
{
    uint32_t count = 0;
    env_mutex_lock(&pool->lock);
    struct volume **list = malloc((pool->volume_count + 1) * sizeof(struct volume *));
    for (struct list *l = pool->volumes.next; l != &pool->volumes && list != NULL; l = l->next)
        list[count++] = (struct volume *)l;
    env_mutex_unlock(&pool->lock);
    *ret_count = count;
    return list;
}

static int find_touches(struct evacuation *e)
{
    struct pool *pool = e->w->pool;
    struct map_walk walk = {.arg = e, .node = look_at_node, .unreadable = pass_over, .leaves_unread = true};
    uint32_t count;
    struct volume **list = list_volumes(pool, &count);
    int result = list == NULL ? -ENOMEM : 0;
    for (uint32_t i = 0; i < count && result == 0; i++) {
        e->volume = list[i];
        if (list[i]->tree.height > 0)
            result = map_walk_tree(&pool->node_store, &list[i]->tree, &walk);
    }
    free(list);
    return result < 0 ? result : 0;
}

int checkpoint_choose_evacuation(struct checkpoint_work *w)
{
    struct pool *pool = w->pool;
    struct evacuation e = {.w = w};
    if (!slots_are_short(pool))
        return 0;
    struct candidate *list = malloc(pool->geometry.slot_count * sizeof *list);
    e.victims = calloc(pool->geometry.slot_count, 1);
    int result = list == NULL || e.victims == NULL ? -ENOMEM : 0;
    if (result == 0 && choose_victims(&e, list) > 0)
        result = find_touches(&e);
    free(list);
    free(e.victims);
    if (w->rewrite_own)
        slots_mark_all_changed(&pool->slots);
    return result;
}

bool checkpoint_touches(const struct checkpoint_work *w, const struct volume *v)
{
    bool touched = w->rewrite_own;
    for (uint32_t i = 0; i < w->touch_count && !touched; i++)
        touched = w->touches[i].volume == v;
    return touched;
}

static bool is_touch(const struct map_update *u)
{
    return !u->has_base && u->patch_count == 0;
}

static int compare_updates(const void *left, const void *right)
{
    const struct map_update *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (int)is_touch(a) - (int)is_touch(b);
}

int checkpoint_add_touches(const struct checkpoint_work *w, const struct volume *v, struct map_update **updates,
                           uint64_t *count)
{
    uint64_t n = *count, kept = 0, end = 0;
    if (w->touch_count == 0)
        return 0;
    struct map_update *list = realloc(*updates, (n + w->touch_count) * sizeof *list);
    if (list == NULL)
        return -ENOMEM;
    *updates = list;
    for (uint32_t i = 0; i < w->touch_count; i++) {
        if (w->touches[i].volume == v)
            list[n++] = (struct map_update){.first = w->touches[i].index, .count = 1};
    }
    qsort(list, n, sizeof *list, compare_updates);
    /* What another update changes needs no touch. */
    for (uint64_t i = 0; i < n; i++) {
        if (is_touch(&list[i]) && list[i].first < end)
            continue;
        end = list[i].first + list[i].count;
        list[kept++] = list[i];
    }
    *count = kept;
    return 0;
}
