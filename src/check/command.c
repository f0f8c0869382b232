/*
 * The command lines of `ashlar check` and `ashlar dump`.
 */
#include "check/command.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Reads the option at argv[*at], which begins with "--"; *at is left on the last word it used. */
static int take_flag(int argc, char **argv, int *at, const struct check_flag *flags, struct error *err)
{
    const char *word = argv[*at] + 2, *equals = strchr(word, '=');
    const size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
    for (; flags->name != NULL; flags++) {
        if (strlen(flags->name) != length || memcmp(flags->name, word, length) != 0)
            continue;
        *flags->is_set = true;
        if (flags->value == NULL && equals != NULL)
            return error_set(err, -EINVAL, "option --%s takes no value", flags->name);
        if (flags->value == NULL)
            return 0;
        if (equals == NULL && *at + 1 >= argc)
            return error_set(err, -EINVAL, "option --%s needs a value", flags->name);
        *flags->value = equals != NULL ? equals + 1 : argv[++*at];
        return 0;
    }
    return error_set(err, -EINVAL, "%s has no option --%.*s; see: ashlar help %s", argv[0], (int)length, word, argv[0]);
}

int check_words_parse(int argc, char **argv, const struct check_flag *flags, struct check_words *ret_words,
                      struct error *err)
{
    struct check_words w = {0};
    bool options_ended = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            if (w.operand_count == CHECK_OPERANDS_MAX)
                return error_set(err, -EINVAL, "%s: '%.64s' is one word too many", argv[0], word);
            w.operands[w.operand_count++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            w.help = true;
        } else if (word[1] != '-') {
            return error_set(err, -EINVAL, "%s has no option %.32s; see: ashlar help %s", argv[0], word, argv[0]);
        } else {
            const int result = take_flag(argc, argv, &i, flags, err);
            if (result != 0)
                return result;
        }
    }
    *ret_words = w;
    return 0;
}

int check_number_parse(const char *word, const char *what, uint64_t *ret_number, struct error *err)
{
    char *end;
    errno = 0;
    const uint64_t number = strtoull(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != '\0' || errno != 0)
        return error_set(err, -EINVAL, "%s '%.64s': a decimal number is needed", what, word);
    *ret_number = number;
    return 0;
}

int check_open_for_reading(const char *path, struct device **ret_dev, bool *ret_served, struct error *err)
{
    struct error locked = {0};
    *ret_served = false;
    int result = device_open(env_os(), path, DEVICE_OPEN_READ_ONLY, 0, ret_dev, &locked);
    if (result == -EBUSY) {
        *ret_served = true;
        result = device_open(env_os(), path, DEVICE_OPEN_READ_ONLY | DEVICE_OPEN_NO_LOCK, 0, ret_dev, err);
    } else if (result != 0) {
        *err = locked;
    }
    return result;
}

int check_fail(bool json, int status, const struct error *err)
{
    fprintf(stderr, "ashlar: %s\n", err->text);
    if (json) {
        json_t *o = json_pack("{s:s}", "error", err->text);
        char *text = o != NULL ? json_dumps(o, JSON_INDENT(2)) : NULL;
        if (text != NULL)
            puts(text);
        free(text);
        json_decref(o);
    }
    return status;
}
