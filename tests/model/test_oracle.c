/*
 * The oracle by itself: each promise, and each way to break it, on small hand-made stories.
 */
#include "tap.h"

#include <errno.h>
#include <string.h>

#include "model/oracle.h"

#define A UINT64_C(0xa)
#define B UINT64_C(0xb)
#define C UINT64_C(0xc)

/* One volume of two records of eight sectors. */
static struct oracle *story(void)
{
    struct oracle *o = oracle_new();
    unsigned n =
        oracle_begin(o, &(struct oracle_args){
                            .kind = ORACLE_CREATE, .volume = 1, .name = "v", .size_bytes = 8192, .record_bytes = 4096});
    oracle_end(o, n, 0);
    return o;
}

static unsigned begin_write(struct oracle *o, uint64_t first, uint64_t count, uint64_t value, bool durable)
{
    uint64_t values[16];
    for (size_t i = 0; i < 16; i++)
        values[i] = value;
    return oracle_begin(o, &(struct oracle_args){.kind = value == 0 ? ORACLE_ZERO : ORACLE_WRITE,
                                                 .volume = 1,
                                                 .first = first,
                                                 .count = count,
                                                 .values = values,
                                                 .durable = durable});
}

static void write_done(struct oracle *o, uint64_t first, uint64_t count, uint64_t value, bool durable)
{
    oracle_end(o, begin_write(o, first, count, value, durable), 0);
}

static void flush_done(struct oracle *o)
{
    oracle_end(o, oracle_begin(o, &(struct oracle_args){.kind = ORACLE_FLUSH, .volume = 1}), 0);
}

/* After a cut record 0 reads as these values, sector by sector ('.' = 0), record 1 as zeroes. */
static bool cut_reads(struct oracle *o, const char *sectors)
{
    uint64_t values[16] = {0};
    struct text why = {0};
    for (size_t i = 0; sectors[i] != '\0'; i++)
        values[i] = sectors[i] == '.' ? 0 : sectors[i] == '?' ? ORACLE_LOST : (uint64_t)(sectors[i] - 'a' + 10);
    bool good = oracle_check_volume(o, 1, values, 16, strchr(sectors, '?') != NULL, &why);
    bool reason = why.length > 0;
    text_free(&why);
    return good && !reason;
}

static bool now_reads(struct oracle *o, uint64_t began, uint64_t first, uint64_t value)
{
    struct text why = {0};
    bool good = oracle_read_end(o, began, 1, first, 1, &value, &why);
    text_free(&why);
    return good;
}

static void test_flush_makes_durable(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    EXPECT(cut_reads(o, "aaaaaaaa"));
    EXPECT(cut_reads(o, "........"));
    flush_done(o);
    EXPECT(cut_reads(o, "aaaaaaaa"));
    EXPECT(!cut_reads(o, "........"));
    write_done(o, 0, 8, B, false);
    EXPECT(cut_reads(o, "aaaaaaaa"));
    EXPECT(cut_reads(o, "bbbbbbbb"));
    EXPECT(!cut_reads(o, "........"));
    oracle_free(o);
}

static void test_flush_covers_only_what_ended_before(void)
{
    struct oracle *o = story();
    unsigned late = begin_write(o, 0, 8, A, false);
    unsigned flush = oracle_begin(o, &(struct oracle_args){.kind = ORACLE_FLUSH, .volume = 1});
    oracle_end(o, late, 0);
    oracle_end(o, flush, 0);
    EXPECT(cut_reads(o, "........"));
    EXPECT(cut_reads(o, "aaaaaaaa"));
    flush = oracle_begin(o, &(struct oracle_args){.kind = ORACLE_FLUSH, .volume = 1});
    EXPECT(cut_reads(o, "........")); /* not yet */
    oracle_end(o, flush, -EIO);
    EXPECT(cut_reads(o, "........")); /* it failed */
    flush_done(o);
    EXPECT(!cut_reads(o, "........"));
    oracle_free(o);
}

static void test_flush_of_another_volume(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    oracle_end(o, oracle_begin(o, &(struct oracle_args){.kind = ORACLE_FLUSH, .volume = 2}), 0);
    EXPECT(cut_reads(o, "........"));
    oracle_end(o, oracle_begin(o, &(struct oracle_args){.kind = ORACLE_FLUSH_ALL}), 0);
    EXPECT(!cut_reads(o, "........"));
    oracle_free(o);
}

static void test_fua_makes_its_sectors_durable(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    write_done(o, 2, 2, B, true);
    EXPECT(cut_reads(o, "..bb...."));
    EXPECT(cut_reads(o, "aabbaaaa"));
    EXPECT(!cut_reads(o, "aaaaaaaa"));
    EXPECT(!cut_reads(o, "........"));
    EXPECT(!cut_reads(o, "a.bbaaaa")); /* half of the first write */
    oracle_free(o);
}

static void test_write_in_flight(void)
{
    struct oracle *o = story();
    unsigned write = begin_write(o, 0, 4, A, true);
    EXPECT(cut_reads(o, "........"));
    EXPECT(cut_reads(o, "aaaa...."));
    EXPECT(!cut_reads(o, "aa......"));
    oracle_end(o, write, -EIO);
    EXPECT(cut_reads(o, "........"));
    EXPECT(cut_reads(o, "aaaa...."));
    EXPECT(!cut_reads(o, "...a...."));
    oracle_free(o);
}

static void test_records_are_whole_one_by_one(void)
{
    struct oracle *o = story();
    write_done(o, 4, 8, A, false);
    EXPECT(cut_reads(o, "....aaaa...."));
    EXPECT(cut_reads(o, "........aaaa"));
    EXPECT(cut_reads(o, "....aaaaaaaa"));
    EXPECT(!cut_reads(o, "....aa..aaaa"));
    EXPECT(!cut_reads(o, "....aaaaaa.."));
    oracle_free(o);
}

static void test_torn_under_a_later_write(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    write_done(o, 0, 2, B, false);
    write_done(o, 4, 2, C, false);
    EXPECT(cut_reads(o, "bb......")); /* only the second */
    EXPECT(cut_reads(o, "bbaaaaaa"));
    EXPECT(cut_reads(o, "bb..cc.."));
    EXPECT(cut_reads(o, "bbaaccaa"));
    EXPECT(!cut_reads(o, "bbaacc..")); /* half of the first */
    EXPECT(!cut_reads(o, "b.aaaaaa")); /* half of the second */
    EXPECT(!cut_reads(o, "bbaa..aa"));
    oracle_free(o);
}

static void test_zeroes_are_ambiguous(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, true);
    write_done(o, 0, 4, 0, false);
    write_done(o, 2, 4, 0, false);
    write_done(o, 0, 1, B, false);
    EXPECT(cut_reads(o, "aaaaaaaa"));
    EXPECT(cut_reads(o, "....aaaa"));
    EXPECT(cut_reads(o, "aa....aa"));
    EXPECT(cut_reads(o, "......aa"));
    EXPECT(cut_reads(o, "b.....aa"));
    EXPECT(cut_reads(o, "ba....aa"));
    EXPECT(!cut_reads(o, "..aaaaaa"));
    EXPECT(!cut_reads(o, "a.....aa"));
    EXPECT(!cut_reads(o, "bc....aa"));
    struct oracle_stats stats;
    oracle_get_stats(o, &stats);
    EXPECT_EQ(stats.undecided, 0);
    EXPECT_EQ(stats.longest_list, 3);
    oracle_free(o);
}

static void test_trim_flushed_stays_trimmed(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, true);
    write_done(o, 0, 8, 0, false);
    flush_done(o);
    EXPECT(cut_reads(o, "........"));
    EXPECT(!cut_reads(o, "aaaaaaaa"));
    oracle_free(o);
}

static void test_running_reads(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    EXPECT(now_reads(o, oracle_read_begin(o), 0, A));
    EXPECT(!now_reads(o, oracle_read_begin(o), 0, 0));
    unsigned write = begin_write(o, 0, 8, B, false);
    uint64_t began = oracle_read_begin(o);
    EXPECT(now_reads(o, began, 0, A));
    EXPECT(now_reads(o, began, 1, B));
    oracle_end(o, write, 0);
    EXPECT(now_reads(o, began, 2, A)); /* it began before the write ended */
    EXPECT(!now_reads(o, oracle_read_begin(o), 3, A));
    EXPECT(now_reads(o, oracle_read_begin(o), 3, B));
    oracle_free(o);
}

static void test_overlapping_writes_take_one_order(void)
{
    struct oracle *o = story();
    unsigned first = begin_write(o, 0, 8, A, false), second = begin_write(o, 0, 8, B, false);
    oracle_end(o, second, 0);
    oracle_end(o, first, 0);
    flush_done(o);
    EXPECT(cut_reads(o, "aaaaaaaa"));
    EXPECT(cut_reads(o, "bbbbbbbb"));
    EXPECT(!cut_reads(o, "aaaabbbb")); /* two orders in one record */
    EXPECT(!cut_reads(o, "........"));
    EXPECT(now_reads(o, oracle_read_begin(o), 0, B)); /* from now on B is the later one */
    EXPECT(!now_reads(o, oracle_read_begin(o), 0, A));
    EXPECT(!cut_reads(o, "aaaaaaaa"));
    EXPECT(cut_reads(o, "bbbbbbbb"));
    oracle_free(o);
}

static void test_read_that_began_before_the_flush(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, true);
    uint64_t began = oracle_read_begin(o);
    write_done(o, 0, 8, B, true);
    uint64_t late = oracle_read_begin(o);
    EXPECT(now_reads(o, began, 0, A)); /* it may have looked before the write */
    EXPECT(now_reads(o, began, 1, B));
    EXPECT(!now_reads(o, late, 0, A));
    EXPECT(!now_reads(o, began, 0, C));
    EXPECT(!cut_reads(o, "aaaaaaaa"));
    oracle_free(o);
}

static void test_failed_write_may_have_happened(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    oracle_end(o, begin_write(o, 0, 8, B, false), -EIO);
    uint64_t began = oracle_read_begin(o);
    EXPECT(now_reads(o, began, 0, A));
    EXPECT(now_reads(o, began, 1, B));
    write_done(o, 0, 8, C, true);
    EXPECT(!now_reads(o, oracle_read_begin(o), 1, B));
    EXPECT(!cut_reads(o, "bbbbbbbb"));
    oracle_free(o);
}

static void test_lost_sectors_only_where_allowed(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, true);
    EXPECT(cut_reads(o, "aaaa????"));
    EXPECT(!cut_reads(o, "aaa.????"));
    uint64_t values[16] = {A, A, A, A, A, A, A, ORACLE_LOST};
    struct text why = {0};
    EXPECT(!oracle_check_volume(o, 1, values, 16, false, &why));
    text_free(&why);
    oracle_free(o);
}

static bool catalog_is(struct oracle *o, size_t count, const char *name, uint64_t size)
{
    struct oracle_found list[1] = {{.size_bytes = size, .record_bytes = 4096}};
    memcpy(list[0].name, name, strlen(name) + 1);
    struct text why = {0};
    bool good = oracle_check_catalog(o, list, count, &why);
    text_free(&why);
    return good && (count == 0 || list[0].volume == 1);
}

static void test_catalog(void)
{
    struct oracle *o = oracle_new();
    unsigned n =
        oracle_begin(o, &(struct oracle_args){
                            .kind = ORACLE_CREATE, .volume = 1, .name = "v", .size_bytes = 8192, .record_bytes = 4096});
    EXPECT(catalog_is(o, 0, "", 0));
    EXPECT(catalog_is(o, 1, "v", 8192));
    oracle_end(o, n, 0);
    EXPECT(!catalog_is(o, 0, "", 0));
    EXPECT(!catalog_is(o, 1, "w", 8192));
    EXPECT(!catalog_is(o, 1, "v", 4096));
    n = oracle_begin(o, &(struct oracle_args){.kind = ORACLE_RENAME, .volume = 1, .name = "w"});
    EXPECT(catalog_is(o, 1, "v", 8192));
    EXPECT(catalog_is(o, 1, "w", 8192));
    oracle_end(o, n, 0);
    EXPECT(!catalog_is(o, 1, "v", 8192));
    n = oracle_begin(o, &(struct oracle_args){.kind = ORACLE_RESIZE, .volume = 1, .size_bytes = 4096});
    EXPECT(catalog_is(o, 1, "w", 8192));
    EXPECT(catalog_is(o, 1, "w", 4096));
    oracle_end(o, n, 0);
    EXPECT(!catalog_is(o, 1, "w", 8192));
    n = oracle_begin(o, &(struct oracle_args){.kind = ORACLE_DESTROY, .volume = 1});
    EXPECT(catalog_is(o, 0, "", 0));
    EXPECT(catalog_is(o, 1, "w", 4096));
    oracle_end(o, n, -EIO);
    EXPECT(catalog_is(o, 1, "w", 4096));
    oracle_end(o, oracle_begin(o, &(struct oracle_args){.kind = ORACLE_DESTROY, .volume = 1}), 0);
    EXPECT(!catalog_is(o, 1, "w", 4096));
    oracle_free(o);
}

static void test_shrink_and_grow(void)
{
    struct oracle *o = story();
    write_done(o, 0, 16, A, true);
    oracle_end(o, oracle_begin(o, &(struct oracle_args){.kind = ORACLE_RESIZE, .volume = 1, .size_bytes = 2048}), 0);
    oracle_end(o, oracle_begin(o, &(struct oracle_args){.kind = ORACLE_RESIZE, .volume = 1, .size_bytes = 8192}), 0);
    EXPECT(cut_reads(o, "aaaa...."));
    EXPECT(!cut_reads(o, "aaaaaaaa"));
    oracle_free(o);
}

static void test_replay_reaches_the_same_state(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, false);
    size_t before = oracle_position(o);
    flush_done(o);
    unsigned open = begin_write(o, 0, 8, B, false);
    size_t during = oracle_position(o);
    oracle_end(o, open, 0);
    flush_done(o);
    struct oracle *twin = oracle_new();
    oracle_replay(twin, o, before);
    EXPECT(cut_reads(twin, "........"));
    oracle_replay(twin, o, during);
    EXPECT(!cut_reads(twin, "........"));
    EXPECT(cut_reads(twin, "aaaaaaaa"));
    EXPECT(cut_reads(twin, "bbbbbbbb"));
    oracle_replay(twin, o, oracle_position(o));
    EXPECT(!cut_reads(twin, "aaaaaaaa"));
    EXPECT_EQ(oracle_position(twin), oracle_position(o));
    oracle_free(twin);
    oracle_free(o);
}

static void test_rebase(void)
{
    struct oracle *o = story();
    write_done(o, 0, 8, A, true);
    write_done(o, 0, 8, B, false);
    uint64_t values[16] = {A, A, A, A, A, A, A, A};
    oracle_rebase(o, 1, &(struct oracle_found){.name = "v", .size_bytes = 8192, .record_bytes = 4096}, values);
    EXPECT(cut_reads(o, "aaaaaaaa"));
    EXPECT(!cut_reads(o, "bbbbbbbb"));
    oracle_rebase(o, 1, NULL, NULL);
    EXPECT(catalog_is(o, 0, "", 0));
    oracle_free(o);
}

int main(void)
{
    RUN(test_flush_makes_durable);
    RUN(test_flush_covers_only_what_ended_before);
    RUN(test_flush_of_another_volume);
    RUN(test_fua_makes_its_sectors_durable);
    RUN(test_write_in_flight);
    RUN(test_records_are_whole_one_by_one);
    RUN(test_torn_under_a_later_write);
    RUN(test_zeroes_are_ambiguous);
    RUN(test_trim_flushed_stays_trimmed);
    RUN(test_running_reads);
    RUN(test_overlapping_writes_take_one_order);
    RUN(test_read_that_began_before_the_flush);
    RUN(test_failed_write_may_have_happened);
    RUN(test_lost_sectors_only_where_allowed);
    RUN(test_catalog);
    RUN(test_shrink_and_grow);
    RUN(test_replay_reaches_the_same_state);
    RUN(test_rebase);
    return tap_done();
}
