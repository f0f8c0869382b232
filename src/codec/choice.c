/*
 * The names of codec choices, as zfs has them.
 */
#include "codec/codec.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"

#define ZSTD_LEVEL_DEFAULT 3
#define ZSTD_LEVEL_MIN (-5)
#define ZSTD_LEVEL_MAX 19

bool codec_choice_valid(struct codec_choice choice)
{
    if (choice.id == CODEC_OFF || choice.id == CODEC_LZ4)
        return choice.level == 0;
    return choice.id == CODEC_ZSTD && choice.level >= ZSTD_LEVEL_MIN && choice.level <= ZSTD_LEVEL_MAX &&
           choice.level != 0;
}

/* "1" to "99" without leading zero; 0 for anything else. */
static int level_parse(const char *digits)
{
    int level = 0;
    if (digits[0] < '1' || digits[0] > '9' || strlen(digits) > 2)
        return 0;
    for (; *digits != '\0'; digits++) {
        if (*digits < '0' || *digits > '9')
            return 0;
        level = level * 10 + (*digits - '0');
    }
    return level;
}

/* The level that follows "zstd" in a name; 0 (no level) if it is none. */
static int zstd_level_parse(const char *rest)
{
    if (rest[0] == '\0')
        return ZSTD_LEVEL_DEFAULT;
    if (strcmp(rest, "-fast") == 0)
        return -1;
    if (strncmp(rest, "-fast-", 6) == 0)
        return -level_parse(rest + 6);
    return rest[0] == '-' ? level_parse(rest + 1) : 0;
}

int codec_choice_parse(const char *name, struct codec_choice *ret_choice, struct error *err)
{
    struct codec_choice choice = {.id = CODEC_OFF};
    bool known = true;
    if (strcmp(name, "lz4") == 0) {
        choice.id = CODEC_LZ4;
    } else if (strncmp(name, "zstd", 4) == 0) {
        choice.id = CODEC_ZSTD;
        choice.level = (int8_t)zstd_level_parse(name + 4);
    } else {
        known = strcmp(name, "off") == 0;
    }
    if (!known || !codec_choice_valid(choice))
        return error_set(
            err, -EINVAL,
            "compression '%s' is not known; it can be off, lz4, zstd (level 3), zstd-1 to zstd-19, zstd-fast-1 "
            "to zstd-fast-5",
            name);
    *ret_choice = choice;
    return 0;
}

char *codec_choice_format(struct codec_choice choice, char *buf, size_t buf_bytes)
{
    CHECK(codec_choice_valid(choice));
    int length;
    if (choice.id == CODEC_ZSTD)
        length = snprintf(buf, buf_bytes, choice.level < 0 ? "zstd-fast-%d" : "zstd-%d",
                          choice.level < 0 ? -choice.level : choice.level);
    else
        length = snprintf(buf, buf_bytes, "%s", choice.id == CODEC_LZ4 ? "lz4" : "off");
    CHECK(length > 0 && (size_t)length < buf_bytes);
    return buf;
}
