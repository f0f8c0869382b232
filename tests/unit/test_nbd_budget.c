/*
 * Request memory: the budget's promises (nobody takes all, nobody starves, no deadlock, everything comes back) and the
 * buffers that are paid from it.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/math.h"
#include "base/prng.h"
#include "base/tree.h"
#include "env/env.h"
#include "front/nbd/budget.h"
#include "front/nbd/buffer.h"
#include "seed.h"
#include "tap.h"

#define CONNECTIONS 16
#define TOTAL (64 * MIB)
#define RESERVE NBD_BUDGET_RESERVE_BYTES(CONNECTIONS)
#define COMMON (TOTAL - RESERVE)

struct peer {
    struct nbd_share share;
    atomic_uint woken;
};

static void wake(struct nbd_share *share)
{
    atomic_fetch_add(&CONTAINER_OF(share, struct peer, share)->woken, 1);
}

static struct nbd_budget *begin(struct peer *peers, unsigned count)
{
    struct nbd_budget *b;
    for (unsigned i = 0; i < count; i++) {
        peers[i] = (struct peer){.share.wake = wake};
        atomic_init(&peers[i].woken, 0);
    }
    return nbd_budget_new(env_os(), TOTAL, CONNECTIONS, &b) == 0 ? b : NULL;
}

static uint64_t used(struct nbd_budget *b)
{
    struct nbd_budget_info info;
    nbd_budget_get_info(b, &info);
    return info.used_bytes;
}

static void one_share_has_an_eighth_at_most(void)
{
    struct peer p[1];
    struct nbd_budget *b = begin(p, 1);
    uint64_t taken = 0;
    REQUIRE(b != NULL);
    while (nbd_budget_try(b, &p[0].share, 64 * KIB))
        taken += 64 * KIB;
    EXPECT(taken <= COMMON / 8);
    EXPECT(taken > COMMON / 8 - 64 * KIB);
    nbd_budget_give(b, &p[0].share, taken);
    EXPECT_EQ(used(b), 0);
    nbd_budget_free(b);
}

static void many_greedy_shares_leave_room(void)
{
    static struct peer p[1001];
    struct nbd_budget *b = begin(p, 1001);
    REQUIRE(b != NULL);
    /* A thousand take turns and take what they get. */
    for (int round = 0; round < 200; round++)
        for (unsigned i = 0; i < 1000; i++)
            (void)nbd_budget_try(b, &p[i].share, 4 * KIB);
    uint64_t most = 0;
    for (unsigned i = 0; i < 1000; i++)
        most = max_u64(most, p[i].share.held_bytes);
    EXPECT(most <= 128 * KIB);
    /* A newcomer still gets small requests. */
    EXPECT(nbd_budget_try(b, &p[1000].share, 4 * KIB));
    EXPECT(nbd_budget_try(b, &p[1000].share, 8 * KIB));
    for (unsigned i = 0; i <= 1000; i++)
        nbd_budget_give(b, &p[i].share, p[i].share.held_bytes);
    EXPECT_EQ(used(b), 0);
    nbd_budget_free(b);
}

static void the_largest_request_is_always_admitted(void)
{
    struct peer p[2];
    struct nbd_budget *b = begin(p, 2);
    REQUIRE(b != NULL);
    while (nbd_budget_try(b, &p[0].share, 4 * KIB))
        ;
    EXPECT(nbd_budget_wait(b, &p[1].share, 32 * MIB + KIB));
    EXPECT_EQ(p[1].share.reserve_bytes, 32 * MIB + KIB);
    nbd_budget_give(b, &p[1].share, 32 * MIB + KIB);
    nbd_budget_give(b, &p[0].share, p[0].share.held_bytes);
    nbd_budget_free(b);
}

static void the_line_is_served_in_order(void)
{
    struct peer p[4];
    struct nbd_budget *b = begin(p, 4);
    REQUIRE(b != NULL);
    EXPECT(nbd_budget_wait(b, &p[0].share, 30 * MIB));
    EXPECT(!nbd_budget_wait(b, &p[1].share, 20 * MIB));
    EXPECT(!nbd_budget_wait(b, &p[2].share, 16 * MIB)); /* stands behind, and does not fit the common part */
    EXPECT(!nbd_budget_wait(b, &p[1].share, 20 * MIB)); /* asked again: still waits, once */
    EXPECT(nbd_budget_waiting_since_ns(b) != 0);
    EXPECT(nbd_budget_try(b, &p[3].share, MIB)); /* small ones pass */
    nbd_budget_give(b, &p[0].share, 15 * MIB);
    /* 15 MiB are free in the reserve: too little for the head, and the second may not overtake it there. */
    EXPECT_EQ(atomic_load(&p[1].woken), 0);
    EXPECT_EQ(atomic_load(&p[2].woken), 0);
    nbd_budget_give(b, &p[0].share, 15 * MIB);
    EXPECT_EQ(atomic_load(&p[1].woken), 1);
    EXPECT_EQ(atomic_load(&p[2].woken), 0);
    EXPECT(nbd_budget_wait(b, &p[1].share, 20 * MIB)); /* what was set aside */
    nbd_budget_give(b, &p[1].share, 20 * MIB);
    EXPECT_EQ(atomic_load(&p[2].woken), 1);
    EXPECT(nbd_budget_wait(b, &p[2].share, MIB)); /* asks for less: the rest goes back */
    EXPECT_EQ(used(b), 2 * MIB);
    nbd_budget_give(b, &p[2].share, MIB);
    nbd_budget_give(b, &p[3].share, MIB);
    EXPECT_EQ(nbd_budget_waiting_since_ns(b), 0);
    nbd_budget_free(b);
}

static void who_leaves_gives_back_and_is_not_woken(void)
{
    struct peer p[3];
    struct nbd_budget *b = begin(p, 3);
    REQUIRE(b != NULL);
    EXPECT(nbd_budget_wait(b, &p[0].share, 32 * MIB));
    EXPECT(!nbd_budget_wait(b, &p[1].share, 32 * MIB));
    EXPECT(!nbd_budget_wait(b, &p[2].share, 32 * MIB));
    nbd_budget_leave(b, &p[1].share);
    nbd_budget_give(b, &p[0].share, 32 * MIB);
    EXPECT_EQ(atomic_load(&p[1].woken), 0);
    EXPECT_EQ(atomic_load(&p[2].woken), 1);
    EXPECT_EQ(used(b), 32 * MIB); /* set aside */
    nbd_budget_leave(b, &p[2].share);
    EXPECT_EQ(used(b), 0);
    nbd_budget_leave(b, &p[2].share); /* once more does nothing */
    nbd_budget_free(b);
}

/* Honest clients that each have half of something large: all must come to an end. */
struct honest {
    struct peer peer;
    struct nbd_budget *budget;
    uint64_t seed;
    unsigned done;
    struct env_thread *thread;
};

static bool wait_for(struct honest *h, uint64_t bytes)
{
    for (int i = 0; i < 20000; i++) {
        if (nbd_budget_wait(h->budget, &h->peer.share, bytes))
            return true;
        env_sleep_ns(env_os(), 1000000);
    }
    return false;
}

static void be_honest(void *arg)
{
    struct honest *h = arg;
    struct prng r;
    prng_seed(&r, h->seed);
    for (int i = 0; i < 200; i++) {
        /* A part of 1 MiB: in pieces while the common part lasts, then the rest of it at once. */
        uint64_t have = 0;
        while (have < MIB) {
            uint64_t piece = min_u64(MIB - have, 4 * KIB << prng_below(&r, 7));
            if (!nbd_budget_try(h->budget, &h->peer.share, piece)) {
                piece = MIB - have;
                if (!wait_for(h, piece))
                    return;
            }
            have += piece;
        }
        if (prng_chance(&r, 20) && !wait_for(h, 20 * MIB))
            return;
        nbd_budget_give(h->budget, &h->peer.share, h->peer.share.held_bytes + h->peer.share.reserve_bytes);
        h->done++;
    }
}

static void no_deadlock_and_no_starvation(void)
{
    static struct honest h[CONNECTIONS * 4];
    struct nbd_budget *b;
    uint64_t seed = seed_choose();
    /* So little that all of them together want eight times what there is. */
    REQUIRE(nbd_budget_new(env_os(), NBD_BUDGET_BYTES_MIN(CONNECTIONS), CONNECTIONS, &b) == 0);
    for (unsigned i = 0; i < CONNECTIONS * 4; i++) {
        h[i] = (struct honest){.peer.share.wake = wake, .budget = b, .seed = seed + i};
        REQUIRE(env_thread_start(env_os(), "honest", be_honest, &h[i], &h[i].thread) == 0);
    }
    for (unsigned i = 0; i < CONNECTIONS * 4; i++) {
        env_thread_join(h[i].thread);
        EXPECT_EQ(h[i].done, 200);
    }
    EXPECT_EQ(used(b), 0);
    nbd_budget_free(b);
}

/* ---- buffers ---- */

static void buffer_costs(void)
{
    EXPECT_EQ(nbd_piece_bytes(1), 4096);
    EXPECT_EQ(nbd_piece_bytes(4096), 4096);
    EXPECT_EQ(nbd_piece_bytes(4097), 8192);
    EXPECT_EQ(nbd_piece_bytes(1048576), 1048576);
    EXPECT_EQ(nbd_buffer_cost(0), 0);
    EXPECT_EQ(nbd_buffer_cost(1), 4096);
    EXPECT_EQ(nbd_buffer_cost(MIB + 1), MIB + 4096);
    EXPECT_EQ(nbd_buffer_cost(32 * MIB), 32 * MIB);
}

static bool bytes_are(const struct nbd_buffer *buffer, const uint8_t *expected, size_t n)
{
    size_t at = 0;
    for (unsigned i = 0; i < buffer->count && at < n; i++) {
        size_t part = min_u64(buffer->pieces[i].iov_len, n - at);
        if (memcmp(buffer->pieces[i].iov_base, expected + at, part) != 0)
            return false;
        at += part;
    }
    return at == n;
}

static void buffers_grow_and_shrink_without_losing_a_byte(void)
{
    struct nbd_buffer_pool *pool;
    struct prng r;
    static uint8_t expected[MIB];
    prng_seed(&r, seed_choose());
    prng_fill(&r, expected, sizeof expected);
    REQUIRE(nbd_buffer_pool_new(env_os(), &pool) == 0);
    for (int round = 0; round < 200; round++) {
        struct nbd_buffer buffer = {0};
        uint64_t capacity = 0, length = 1 + prng_below(&r, sizeof expected);
        while (buffer.filled_bytes < length) {
            uint64_t room = buffer.capacity_bytes - buffer.filled_bytes;
            uint64_t offer = min_u64(length - buffer.filled_bytes, 256 * KIB);
            if (room < offer) {
                EXPECT_EQ(nbd_buffer_extend(pool, &buffer, offer - room), 0);
                capacity += nbd_buffer_cost(offer - room);
            }
            EXPECT_EQ(buffer.capacity_bytes, capacity);
            uint64_t n = 1 + prng_below(&r, prng_chance(&r, 500) ? 100 : offer);
            n = min_u64(n, min_u64(length, buffer.capacity_bytes) - buffer.filled_bytes);
            nbd_buffer_append(&buffer, expected + buffer.filled_bytes, n);
            capacity -= nbd_buffer_shrink(pool, &buffer);
            EXPECT_EQ(buffer.capacity_bytes, capacity);
            /* What is held follows what has arrived. */
            EXPECT(buffer.capacity_bytes <= 4 * buffer.filled_bytes + 2 * NBD_PIECE_BYTES_MIN);
        }
        nbd_buffer_trim(&buffer, length);
        EXPECT(bytes_are(&buffer, expected, length));
        EXPECT_EQ(nbd_buffer_release(pool, &buffer), capacity);
    }
    EXPECT(nbd_buffer_pool_trim(pool) > 0);
    EXPECT_EQ(nbd_buffer_pool_trim(pool), 0);
    nbd_buffer_pool_free(pool);
}

static void a_buffer_of_the_largest_size(void)
{
    struct nbd_buffer_pool *pool;
    struct nbd_buffer buffer = {0};
    struct iovec iov[64];
    size_t bytes;
    REQUIRE(nbd_buffer_pool_new(env_os(), &pool) == 0);
    EXPECT_EQ(nbd_buffer_extend(pool, &buffer, 32 * MIB - 5), 0);
    EXPECT_EQ(buffer.count, 32);
    EXPECT_EQ(nbd_buffer_tail(&buffer, 32 * MIB - 5, iov, 64, &bytes), 32);
    EXPECT_EQ(bytes, 32 * MIB - 5);
    EXPECT_EQ(iov[31].iov_len, MIB - 5);
    nbd_buffer_trim(&buffer, 32 * MIB - 5);
    EXPECT_EQ(buffer.pieces[31].iov_len, MIB - 5);
    EXPECT_EQ(nbd_buffer_release(pool, &buffer), 32 * MIB);
    nbd_buffer_pool_free(pool);
}

int main(void)
{
    RUN(one_share_has_an_eighth_at_most);
    RUN(many_greedy_shares_leave_room);
    RUN(the_largest_request_is_always_admitted);
    RUN(the_line_is_served_in_order);
    RUN(who_leaves_gives_back_and_is_not_woken);
    RUN(no_deadlock_and_no_starvation);
    RUN(buffer_costs);
    RUN(buffers_grow_and_shrink_without_losing_a_byte);
    RUN(a_buffer_of_the_largest_size);
    return tap_done();
}
