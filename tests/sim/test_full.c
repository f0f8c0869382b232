/*
 * A full pool (promise 4, R32, R34): new data is refused with ENOSPC and nothing else goes wrong. What was accepted can
 * be flushed; flush, trim, destroy, checkpoint, close and open work; space comes back after checkpoints; provisioned
 * ranges take their data whatever happens.
 */
#include "tap.h"

#include <errno.h>

#include "base/math.h"
#include "base/prng.h"
#include "sim/rig.h"

#define RECORD 16384
#define VOLUMES 6
#define SEGMENT (256 * KIB)

/* A disk that six volumes of RIG_SIZE_BYTES overfill. */
static bool small_start(struct rig *r, uint64_t seed)
{
    rig_init(r);
    r->options.segment_bytes = SEGMENT;
    r->options.disk_bytes = 8 * MIB;
    r->options.seed = seed;
    if (!rig_start(r, 0, RECORD))
        return false;
    for (unsigned v = 0; v < VOLUMES; v++) {
        char name[16];
        snprintf(name, sizeof(name), "v%u", v);
        if (r->s->ops->create(r->s, v, name, 4 * MIB, RECORD, (struct codec_choice){0}) != 0)
            return false;
    }
    return true;
}

/* Fills volume after volume from `from` on, by pieces, until ENOSPC. Returns the bytes accepted; -1 on another answer.
 */
static int64_t fill(struct rig *r, unsigned from, uint64_t piece, unsigned flags)
{
    int64_t accepted = 0;
    for (unsigned v = from; v < VOLUMES; v++)
        for (uint64_t at = 0; at < 4 * MIB; at += piece) {
            int result = rig_write(r, v, at, piece, (v + 1) * 100000 + at / piece, flags);
            if (result == -ENOSPC)
                return accepted;
            if (result != 0)
                return -1;
            accepted += (int64_t)piece;
        }
    return accepted;
}

static bool filled_reads(struct rig *r, unsigned from, uint64_t piece, int64_t accepted)
{
    int64_t done = 0;
    for (unsigned v = from; v < VOLUMES; v++)
        for (uint64_t at = 0; at < 4 * MIB; at += piece) {
            if (done == accepted)
                return true;
            if (!rig_reads(r, v, at, piece, (v + 1) * 100000 + at / piece))
                return false;
            done += (int64_t)piece;
        }
    return done == accepted;
}

static void test_full_pool_goes_on(void)
{
    static const uint64_t pieces[] = {RECORD, 4096, 64 * 1024};
    for (unsigned i = 0; i < 6; i++) {
        struct rig r;
        REQUIRE(small_start(&r, i));
        int64_t accepted = fill(&r, 0, pieces[i % 3], i < 3 ? 0 : VOLUME_FUA);
        EXPECT(accepted > 0);
        printf("# %" PRId64 " bytes accepted in pieces of %" PRIu64 "%s, %" PRIu64 " usable\n", accepted, pieces[i % 3],
               i < 3 ? "" : " with FUA", rig_info(&r).usable_bytes);
        EXPECT(!rig_info(&r).failed);
        EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
        EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
        EXPECT(filled_reads(&r, 0, pieces[i % 3], accepted));
        EXPECT(rig_crash(&r, SIM_LOSS_ALL, i));
        EXPECT(filled_reads(&r, 0, pieces[i % 3], accepted));
        EXPECT_EQ(r.s->ops->reopen(r.s, &r.why), 0);
        EXPECT(rig_check(&r));
        EXPECT(filled_reads(&r, 0, pieces[i % 3], accepted));
        rig_end(&r);
    }
}

static void test_space_comes_back(void)
{
    struct rig r;
    REQUIRE(small_start(&r, 7));
    int64_t first = fill(&r, 0, RECORD, 0);
    EXPECT(first > 0);
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned v = 0; v < VOLUMES; v++) {
            if (round % 2 == 0) {
                EXPECT_EQ(r.s->ops->trim(r.s, v, 0, 4 * MIB, 0), 0);
            } else {
                char name[16];
                snprintf(name, sizeof(name), "v%u", v);
                EXPECT_EQ(r.s->ops->destroy(r.s, v), 0);
                EXPECT_EQ(r.s->ops->create(r.s, v, name, 4 * MIB, RECORD, (struct codec_choice){0}), 0);
            }
        }
        for (int i = 0; i < 3; i++)
            EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
        struct pool_info info = rig_info(&r);
        printf("# usable %" PRIu64 ", free %" PRIu64 ", live %" PRIu64 ", pending %" PRIu64 ", dead %" PRIu64
               ", reserved %" PRIu64 ", free slots %" PRIu32 "\n",
               info.usable_bytes, info.free_bytes, info.live_bytes, info.pending_free_bytes, info.dead_bytes,
               info.reserved_bytes, info.free_slots);
        /* No cleaner yet: two open segments and a few that hold some live metadata stay behind, not more each round. */
        EXPECT(info.free_bytes + 5 * SEGMENT >= info.usable_bytes);
        EXPECT(info.live_bytes < SEGMENT / 8);
        int64_t again = fill(&r, 0, RECORD, 0);
        EXPECT(again + 4 * (int64_t)SEGMENT >= first);
        printf("# round %u: %" PRId64 " bytes accepted, at first %" PRId64 "\n", round, again, first);
    }
    EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
    EXPECT(rig_check(&r));
    rig_end(&r);
}

/* Every open after a cut in a full pool works, however often; and once trimmed it takes data again. */
static void test_many_recoveries_of_a_full_pool(void)
{
    struct rig r;
    REQUIRE(small_start(&r, 8));
    int64_t accepted = fill(&r, 0, RECORD, VOLUME_FUA);
    EXPECT(accepted > 0);
    for (uint64_t i = 0; i < 24; i++) {
        bool opened = rig_crash(&r, i % 2 == 0 ? SIM_LOSS_ALL : SIM_LOSS_RANDOM, i);
        EXPECT(opened);
        REQUIRE(opened);
    }
    EXPECT(filled_reads(&r, 0, RECORD, accepted));
    for (unsigned v = 0; v < VOLUMES; v++)
        EXPECT_EQ(r.s->ops->trim(r.s, v, 0, 4 * MIB, VOLUME_FUA), 0);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
    EXPECT(fill(&r, 0, RECORD, 0) >= accepted / 10 * 9);
    rig_end(&r);
}

/* Random requests on a full pool: whatever is accepted is there after a flush and a power cut. */
static void test_what_is_accepted_is_stored(void)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct rig r;
        struct prng random;
        prng_seed(&random, seed);
        REQUIRE(small_start(&r, seed));
        EXPECT(fill(&r, 0, RECORD, 0) > 0);
        unsigned refused = 0;
        for (unsigned i = 0; i < 600; i++) {
            unsigned v = (unsigned)prng_below(&random, VOLUMES);
            uint64_t record = prng_below(&random, 4 * MIB / RECORD), stamp = 50000000 + seed * 10000 + i;
            int result = prng_chance(&random, 250) ? r.s->ops->trim(r.s, v, record * RECORD, RECORD, 0)
                                                   : rig_write(&r, v, record * RECORD, RECORD, stamp,
                                                               prng_chance(&random, 100) ? VOLUME_FUA : 0);
            EXPECT(result == 0 || result == -ENOSPC);
            refused += result == -ENOSPC;
            if (i % 100 == 99)
                EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
        }
        EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
        static uint8_t before[VOLUMES][4 * MIB], after[4 * MIB];
        for (unsigned v = 0; v < VOLUMES; v++)
            EXPECT_EQ(r.s->ops->read(r.s, v, 0, before[v], 4 * MIB), 0);
        EXPECT(rig_crash(&r, SIM_LOSS_ALL, seed));
        for (unsigned v = 0; v < VOLUMES; v++) {
            EXPECT_EQ(r.s->ops->read(r.s, v, 0, after, 4 * MIB), 0);
            EXPECT(memcmp(before[v], after, 4 * MIB) == 0);
        }
        printf("# seed %" PRIu64 ": %u refused\n", seed, refused);
        rig_end(&r);
    }
}

/* Zeroes with a reservation: the rest of the pool is filled, then the reserved range takes data, record by record. */
static void test_provisioned_range_takes_its_data(void)
{
    for (unsigned i = 0; i < 4; i++) {
        struct rig r;
        REQUIRE(small_start(&r, 20 + i));
        uint64_t reserved_before = rig_info(&r).reserved_bytes;
        EXPECT_EQ(r.s->ops->zero(r.s, 0, 0, MIB, VOLUME_PROVISION | (i % 2 != 0 ? VOLUME_FUA : 0)), 0);
        EXPECT(rig_info(&r).reserved_bytes >= reserved_before + MIB);
        EXPECT(fill(&r, 1, RECORD, 0) > 0);
        if (i >= 2) {
            EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
            EXPECT(rig_crash(&r, SIM_LOSS_ALL, i));
        }
        struct extent extent[2];
        size_t count = 0;
        EXPECT_EQ(r.s->ops->extents(r.s, 0, 0, MIB, extent, 2, &count), 0);
        EXPECT_EQ(count, 1);
        EXPECT_EQ(extent[0].kind, EXTENT_PROVISIONED);
        for (uint64_t at = 0; at < MIB; at += RECORD)
            EXPECT_EQ(rig_write(&r, 0, at, RECORD, 900000 + at, at % (3 * RECORD) == 0 ? VOLUME_FUA : 0), 0);
        EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
        EXPECT(rig_crash(&r, SIM_LOSS_ALL, i));
        for (uint64_t at = 0; at < MIB; at += RECORD)
            EXPECT(rig_reads(&r, 0, at, RECORD, 900000 + at));
        EXPECT(rig_check(&r));
        rig_end(&r);
    }
}

/* A reservation that does not fit is refused, and nothing is kept of it; nobody else gets what is reserved; trimming
 * gives it back. */
static void test_reservations_are_counted(void)
{
    struct rig r;
    REQUIRE(small_start(&r, 30));
    uint64_t before = rig_info(&r).reserved_bytes, reserved = 0;
    for (unsigned v = 0; v < VOLUMES - 1; v++) {
        int result = r.s->ops->zero(r.s, v, 0, MIB, VOLUME_PROVISION);
        EXPECT(result == 0 || result == -ENOSPC);
        reserved += result == 0 ? MIB : 0;
    }
    EXPECT(reserved >= MIB);
    EXPECT(reserved < 5 * MIB);
    EXPECT_EQ(r.s->ops->flush_all(r.s), 0);
    EXPECT(rig_info(&r).reserved_bytes >= before + reserved);
    EXPECT(rig_info(&r).reserved_bytes <= before + 2 * reserved);
    int64_t room = fill(&r, VOLUMES - 1, RECORD, 0);
    EXPECT(room >= 0);
    EXPECT((uint64_t)room + reserved <= rig_info(&r).usable_bytes);
    printf("# %" PRIu64 " bytes reserved, %" PRId64 " bytes of others accepted\n", reserved, room);
    for (unsigned v = 0; v < VOLUMES; v++)
        EXPECT_EQ(r.s->ops->trim(r.s, v, 0, 4 * MIB, 0), 0);
    EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
    EXPECT_EQ(rig_info(&r).reserved_bytes, before);
    EXPECT_EQ(rig_write(&r, VOLUMES - 1, 0, 8 * RECORD, 5, 0), 0);
    rig_end(&r);
}

/*
 * Checkpoint after checkpoint changes a few leaves, and leaves the others where they are: node segments with little in
 * them must not use up what a full pool keeps for trims and checkpoints.
 */
static void test_node_segments_come_back(void)
{
    struct rig r;
    struct prng random;
    prng_seed(&random, 9);
    rig_init(&r);
    r.options.segment_bytes = 64 * KIB;
    r.options.disk_bytes = 8 * MIB;
    REQUIRE(rig_start(&r, 0, 4096));
    for (unsigned v = 0; v < VOLUMES; v++) {
        char name[16];
        snprintf(name, sizeof(name), "v%u", v);
        REQUIRE(r.s->ops->create(r.s, v, name, 4 * MIB, 4096, (struct codec_choice){0}) == 0);
    }
    int result = 0;
    unsigned written = 0, trims = 0;
    for (; written < 10000 && result == 0; written++) {
        uint64_t at = prng_below(&random, 4 * MIB / 4096) * 4096;
        result = rig_write(&r, written % VOLUMES, at, 4096, written + 1, 0);
    }
    EXPECT_EQ(result, -ENOSPC);
    uint32_t first = rig_info(&r).free_slots, least = first;
    for (; trims < 400; trims++) {
        uint64_t at = prng_below(&random, 4 * MIB / 4096) * 4096;
        EXPECT_EQ(r.s->ops->trim(r.s, trims % VOLUMES, at, 4096, VOLUME_FUA), 0);
        if (trims % 2 == 0)
            EXPECT_EQ(r.s->ops->checkpoint(r.s), 0);
        uint32_t now = rig_info(&r).free_slots;
        least = now < least ? now : least;
    }
    printf("# %u writes accepted, then %u trims: free slots %" PRIu32 " at first, at least %" PRIu32 ", %" PRIu32
           " at last\n",
           written - 1, trims, first, least, rig_info(&r).free_slots);
    EXPECT(least + 12 > first);
    EXPECT(rig_crash(&r, SIM_LOSS_RANDOM, 3));
    EXPECT(rig_check(&r));
    rig_end(&r);
}

/*
 * A small pool, much chosen ahead, full, and its power cut again and again: what the data head has chosen ahead is no
 * room for checkpoints. Whatever is refused, nothing fails, and a volume can be destroyed.
 */
static void test_small_full_pool_after_cuts(void)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct rig r;
        struct prng random;
        unsigned refused = 0;
        prng_seed(&random, seed);
        rig_init(&r);
        r.options.segment_bytes = 64 * KIB;
        r.options.disk_bytes = 4 * MIB;
        r.options.lookahead_count = 8;
        r.options.seed = seed;
        REQUIRE(rig_start(&r, 0, 4096));
        for (unsigned v = 0; v < 2; v++)
            EXPECT_EQ(r.s->ops->create(r.s, v, v == 0 ? "v0" : "v1", 6 * MIB, 4096, (struct codec_choice){0}), 0);
        for (unsigned round = 0; round < 12; round++) {
            for (unsigned i = 0; i < 150; i++) {
                uint64_t at = prng_below(&random, 6 * MIB / 4096) * 4096;
                unsigned v = (unsigned)prng_below(&random, 2), flags = prng_chance(&random, 300) ? VOLUME_FUA : 0;
                if (prng_chance(&random, 250)) {
                    EXPECT_EQ(r.s->ops->trim(r.s, v, at, 4096, flags), 0);
                    continue;
                }
                int result = rig_write(&r, v, at, 4096, i + 1, flags);
                EXPECT(result == 0 || result == -ENOSPC);
                refused += result != 0;
            }
            EXPECT(rig_crash(&r, SIM_LOSS_RANDOM, seed * 100 + round));
        }
        EXPECT(refused > 0);
        EXPECT_EQ(r.s->ops->destroy(r.s, 1), 0);
        EXPECT(!rig_info(&r).failed);
        EXPECT(rig_check(&r));
        rig_end(&r);
    }
}

int main(void)
{
    RUN(test_full_pool_goes_on);
    RUN(test_space_comes_back);
    RUN(test_many_recoveries_of_a_full_pool);
    RUN(test_what_is_accepted_is_stored);
    RUN(test_provisioned_range_takes_its_data);
    RUN(test_reservations_are_counted);
    RUN(test_node_segments_come_back);
    RUN(test_small_full_pool_after_cuts);
    return tap_done();
}
