/*
 * Names of codecs: every choice there is, and names that are none.
 */
#include <string.h>

#include "base/error.h"
#include "codec/codec.h"
#include "tap.h"

static void expect_parses(const char *name, unsigned id, int level)
{
    struct codec_choice choice = {.id = 99, .level = 99};
    struct error err = {0};
    EXPECT_EQ(codec_choice_parse(name, &choice, &err), 0);
    EXPECT_EQ(choice.id, id);
    EXPECT_EQ(choice.level, level);
    EXPECT_EQ(err.code, 0);
}

static void expect_refused(const char *name)
{
    struct codec_choice choice = {.id = 99, .level = 99};
    struct error err = {0};
    EXPECT_EQ(codec_choice_parse(name, &choice, &err), -EINVAL);
    EXPECT(choice.id == 99 && choice.level == 99);
    EXPECT_EQ(err.code, -EINVAL);
    bool fine = strstr(err.text, name) != NULL && strstr(err.text, "zstd-fast-5") != NULL;
    if (!fine)
        printf("# '%s': \"%s\"\n", name, err.text);
    EXPECT(fine);
    EXPECT_EQ(codec_choice_parse(name, &choice, NULL), -EINVAL);
}

static void test_names(void)
{
    expect_parses("off", CODEC_OFF, 0);
    expect_parses("lz4", CODEC_LZ4, 0);
    expect_parses("zstd", CODEC_ZSTD, 3);
    expect_parses("zstd-1", CODEC_ZSTD, 1);
    expect_parses("zstd-19", CODEC_ZSTD, 19);
    expect_parses("zstd-fast", CODEC_ZSTD, -1);
    expect_parses("zstd-fast-1", CODEC_ZSTD, -1);
    expect_parses("zstd-fast-5", CODEC_ZSTD, -5);
}

static void test_refused(void)
{
    static const char *const names[] = {
        "",           "on",       "OFF",      "gzip",         "lz",          "lz4 ",         "lz4-1",
        "zstd-",      "zstd-0",   "zstd-20",  "zstd-03",      "zstd-3 ",     "zstd-3x",      "zstd--1",
        "zstd3",      "zstdx",    "zstd-+3",  "zstd-fast-0",  "zstd-fast-6", "zstd-fast-",   "zstd-fast--1",
        "zstd-fast3", "zstd-100", "zstd-259", "zstd-fast-10", "zst",         "zstd-fast-251"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        expect_refused(names[i]);
}

/* All pairs of an id and a level: valid ones are written and read back, and there are 26 of them. */
static void test_every_choice(void)
{
    unsigned valid = 0;
    for (unsigned id = 0; id < 256; id++) {
        for (int level = INT8_MIN; level <= INT8_MAX; level++) {
            struct codec_choice choice = {.id = (uint8_t)id, .level = (int8_t)level};
            if (!codec_choice_valid(choice))
                continue;
            char name[16];
            valid++;
            expect_parses(codec_choice_format(choice, name, sizeof(name)), id, level);
        }
    }
    EXPECT_EQ(valid, 2 + 5 + 19);
}

int main(void)
{
    RUN(test_names);
    RUN(test_refused);
    RUN(test_every_choice);
    return tap_done();
}
