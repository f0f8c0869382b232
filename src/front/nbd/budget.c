/*
 * Sharing out the memory of requests: bounded in all, fair, and free of deadlock with peers that are slow on purpose.
 *
 * The dangers: (1) a client announces a 32 MiB WRITE and sends a byte a second; (2) it asks for 32 MiB and does not
 * read them; (3) a hundred honest clients each have half of a large WRITE here, all memory is taken, none can be
 * finished; (4) a busy client keeps the memory coming and going so that a small one never finds any.
 *
 * What is done about them, here and in transmission.c:
 *
 * - Memory follows the bytes. A WRITE's payload is allocated as it arrives (at most four times what has arrived and
 *   8 KiB), and a request longer than 1 MiB is carried out in parts of that size, each given back when it is
 *   done. So a slow sender (1) holds 4 KiB, and a client that does not read (2) holds what was under way when its
 *   socket filled up: nothing new is begun for it.
 * - The common part (all but the reserve) has a dynamic limit per share: it may hold at most as much as is still free,
 *   and at most an eighth. However many try, each newcomer finds room as large as what any of them could still add, so
 *   no single client, nor a few, can take it all (4).
 * - Who does not fit waits in line, and the reserve serves the line in order, strictly: the head of the line gets what
 *   it needs as soon as the reserve has room for the whole of it. A grant is all that its owner needs to finish that
 *   request or part; so everybody who was granted memory can finish and give it back without asking again, the head of
 *   the line is always served in the end, and neither (3) nor starvation can happen. Room in the common part that comes
 *   free is granted to those in line, too, in order, skipping whom it does not fit. What needs most at once is a READ
 *   that cannot be cut (a simple reply, or DF) of more than an eighth of the common part: such ones take turns.
 * - What is left is a peer that holds a large grant and does not move. If somebody has waited for some seconds, the
 *   server drops those that hold most among the ones that hardly moved (stall.c). Nobody is dropped for being
 *   slow while there is memory.
 *
 * Invariants: common_used = sum of held; reserve_used = sum of reserve; a share is in the line exactly if wanted is not
 * 0, and then nothing is granted to it. An amount given back counts against the share's part of the reserve first: the
 * reserve is whole again as soon as may be.
 *
 * Locking: one mutex. wake() is called under it, so that a share that has left is never woken; only the inbox of a loop
 * may be locked inside it.
 */
#include "front/nbd/budget.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/math.h"
#include "base/tree.h"
#include "env/env.h"

/* A share of the common part that one connection may have at most: enough for 15 requests of 256 KiB under way. */
#define COMMON_FRACTION 8

struct nbd_budget {
    struct env *env;
    struct env_mutex lock;
    uint64_t common_bytes, reserve_bytes; /* sizes */
    uint64_t common_used, reserve_used, used_max;
    struct list line; /* shares that wait, first come first */
    unsigned waiting;
    uint64_t wanted_bytes; /* sum over the line */
};

int nbd_budget_new(struct env *env, uint64_t total_bytes, unsigned connections, struct nbd_budget **ret_budget)
{
    CHECK_GE(total_bytes, NBD_BUDGET_BYTES_MIN(connections));
    struct nbd_budget *b = calloc(1, sizeof *b);
    if (b == NULL)
        return -ENOMEM;
    b->env = env;
    b->reserve_bytes = NBD_BUDGET_RESERVE_BYTES(connections);
    b->common_bytes = total_bytes - b->reserve_bytes;
    list_init(&b->line);
    env_mutex_init(&b->lock, env);
    *ret_budget = b;
    return 0;
}

void nbd_budget_free(struct nbd_budget *b)
{
    if (b == NULL)
        return;
    CHECK_EQ(b->common_used, 0);
    CHECK_EQ(b->reserve_used, 0);
    CHECK(list_empty(&b->line));
    env_mutex_destroy(&b->lock);
    free(b);
}

static void note_use_locked(struct nbd_budget *b)
{
    b->used_max = max_u64(b->used_max, b->common_used + b->reserve_used);
}

static bool take_common_locked(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    uint64_t free_bytes = b->common_bytes - b->common_used;
    uint64_t limit = min_u64(free_bytes, b->common_bytes / COMMON_FRACTION);
    if (bytes > free_bytes || share->held_bytes + bytes > limit)
        return false;
    share->held_bytes += bytes;
    b->common_used += bytes;
    note_use_locked(b);
    return true;
}

static bool take_reserve_locked(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    if (bytes > b->reserve_bytes - b->reserve_used)
        return false;
    share->reserve_bytes += bytes;
    b->reserve_used += bytes;
    note_use_locked(b);
    return true;
}

static void give_locked(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    uint64_t from_reserve = min_u64(bytes, share->reserve_bytes);
    share->reserve_bytes -= from_reserve;
    b->reserve_used -= from_reserve;
    CHECK_GE(share->held_bytes, bytes - from_reserve);
    share->held_bytes -= bytes - from_reserve;
    b->common_used -= bytes - from_reserve;
}

static void leave_line_locked(struct nbd_budget *b, struct nbd_share *share)
{
    list_remove(&share->link);
    b->wanted_bytes -= share->wanted_bytes;
    share->wanted_bytes = 0;
    b->waiting--;
}

/* Sets aside what those in line wait for, as far as there is room, and wakes them. */
static void serve_line_locked(struct nbd_budget *b)
{
    bool first = true; /* nobody before this one still waits */
    struct list *next;
    for (struct list *at = b->line.next; at != &b->line; at = next) {
        next = at->next;
        struct nbd_share *share = CONTAINER_OF(at, struct nbd_share, link);
        uint64_t bytes = share->wanted_bytes;
        if (take_common_locked(b, share, bytes) || (first && take_reserve_locked(b, share, bytes))) {
            leave_line_locked(b, share);
            share->granted_bytes = bytes;
            share->wake(share);
        } else {
            first = false;
        }
    }
}

/* Uses up what was set aside: true if it was enough. */
static bool take_granted_locked(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    if (share->granted_bytes == 0)
        return false;
    uint64_t granted = share->granted_bytes;
    share->granted_bytes = 0;
    bool enough = granted >= bytes;
    give_locked(b, share, enough ? granted - bytes : granted);
    return enough;
}

bool nbd_budget_try(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    env_mutex_lock(&b->lock);
    bool taken = take_common_locked(b, share, bytes);
    env_mutex_unlock(&b->lock);
    return taken;
}

bool nbd_budget_wait(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    CHECK_LE(bytes, b->reserve_bytes);
    CHECK_GT(bytes, 0);
    env_mutex_lock(&b->lock);
    if (share->wanted_bytes != 0) { /* in line already: woken for another reason */
        env_mutex_unlock(&b->lock);
        return false;
    }
    if (take_granted_locked(b, share, bytes)) {
        serve_line_locked(b);
        env_mutex_unlock(&b->lock);
        return true;
    }
    bool taken = take_common_locked(b, share, bytes) || (b->waiting == 0 && take_reserve_locked(b, share, bytes));
    if (!taken) {
        share->wanted_bytes = bytes;
        share->waiting_since_ns = env_now_ns(b->env);
        list_append(&b->line, &share->link);
        b->waiting++;
        b->wanted_bytes += bytes;
    }
    env_mutex_unlock(&b->lock);
    return taken;
}

void nbd_budget_give(struct nbd_budget *b, struct nbd_share *share, uint64_t bytes)
{
    env_mutex_lock(&b->lock);
    give_locked(b, share, bytes);
    serve_line_locked(b);
    env_mutex_unlock(&b->lock);
}

void nbd_budget_leave(struct nbd_budget *b, struct nbd_share *share)
{
    env_mutex_lock(&b->lock);
    if (share->wanted_bytes != 0)
        leave_line_locked(b, share);
    give_locked(b, share, share->granted_bytes);
    share->granted_bytes = 0;
    serve_line_locked(b);
    env_mutex_unlock(&b->lock);
}

bool nbd_budget_is_waiting(struct nbd_budget *b, const struct nbd_share *share)
{
    env_mutex_lock(&b->lock);
    bool waiting = share->wanted_bytes != 0;
    env_mutex_unlock(&b->lock);
    return waiting;
}

uint64_t nbd_budget_waiting_since_ns(struct nbd_budget *b)
{
    env_mutex_lock(&b->lock);
    uint64_t since = 0;
    if (!list_empty(&b->line))
        since = CONTAINER_OF(b->line.next, struct nbd_share, link)->waiting_since_ns;
    env_mutex_unlock(&b->lock);
    return since;
}

void nbd_budget_get_info(struct nbd_budget *b, struct nbd_budget_info *ret_info)
{
    env_mutex_lock(&b->lock);
    *ret_info = (struct nbd_budget_info){.total_bytes = b->common_bytes + b->reserve_bytes,
                                         .used_bytes = b->common_used + b->reserve_used,
                                         .used_bytes_max = b->used_max,
                                         .waiting = b->waiting,
                                         .wanted_bytes = b->wanted_bytes};
    env_mutex_unlock(&b->lock);
}
