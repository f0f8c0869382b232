/*
 * Making, printing and shortening histories. Running them is driver.c's.
 *
 * Shortening is the usual one: leave out runs of operations, half of them first, ever shorter runs, as long as what is
 * left still fails. Each try runs on a fresh store.
 */
#include "model/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/prng.h"
#include "model/pattern.h"

static const char *const op_names[OP_KIND_COUNT] = {
    "write",      "read",    "flush",  "flush-all", "trim",       "zero",       "extents",   "resize",
    "create",     "destroy", "rename", "codec",     "checkpoint", "verify",     "reopen",    "crash",
    "write-back", "seal",    "evict",  "reap",      "sleep",      "fail-flush", "cut-later",
};

static const char *const style_names[PATTERN_STYLE_COUNT] = {"noise", "text", "zero", "mixed", "constant"};

static enum op_kind kind_choose(struct prng *random, const struct profile *profile)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        sum += profile->weights[i];
    CHECK(sum > 0);
    uint64_t at = prng_below(random, sum);
    size_t kind = 0;
    while (at >= profile->weights[kind])
        at -= profile->weights[kind++];
    return (enum op_kind)kind;
}

static enum op_shape shape_choose(struct prng *random, const struct profile *profile)
{
    if (prng_chance(random, profile->unaligned_per_mille))
        return SHAPE_BYTES;
    if (prng_chance(random, profile->half_record_per_mille))
        return SHAPE_HALF;
    return (enum op_shape)(SHAPE_SECTORS + prng_below(random, 3));
}

static struct op op_make(struct prng *random, const struct profile *profile)
{
    struct op op = {.kind = kind_choose(random, profile),
                    .volume = (uint8_t)prng_below(random, profile->volume_count),
                    .style = (uint8_t)prng_below(random, PATTERN_STYLE_COUNT),
                    .shape = (uint8_t)shape_choose(random, profile),
                    .a = prng_u64(random),
                    .b = prng_u64(random),
                    .stamp = prng_u64(random) >> 16};
    if (prng_chance(random, profile->same_data_per_mille)) {
        op.style = PATTERN_CONSTANT;
        op.stamp &= 1;
    }
    if (prng_chance(random, profile->fua_per_mille))
        op.flags |= VOLUME_FUA;
    if (op.kind == OP_ZERO && prng_chance(random, 400))
        op.flags |= VOLUME_PROVISION;
    return op;
}

void history_make(struct history *h, const struct profile *profile, uint64_t seed, size_t count)
{
    *h = (struct history){.profile = profile, .seed = seed, .count = count};
    h->ops = calloc(count == 0 ? 1 : count, sizeof(*h->ops));
    CHECK(h->ops != NULL);
    struct prng random;
    prng_seed(&random, seed);
    for (size_t i = 0; i < count; i++)
        h->ops[i] = op_make(&random, profile);
}

void history_free(struct history *h)
{
    free(h->ops);
    *h = (struct history){0};
}

void op_print(const struct op *op, const struct profile *profile, struct text *out)
{
    text_printf(out, "%s v%u", op_names[op->kind], op->volume);
    if (op->kind <= OP_EXTENTS && op->kind != OP_FLUSH && op->kind != OP_FLUSH_ALL) {
        struct op_range r =
            op_fit(op, profile->record_bytes[op->volume], profile->size_bytes[op->volume], profile->length_max_bytes);
        text_printf(out, " %llu+%llu", (unsigned long long)r.offset_bytes, (unsigned long long)r.length_bytes);
    } else if (op->kind > OP_EXTENTS) {
        text_printf(out, " %llu", (unsigned long long)(op->a & 0xffff));
    }
    if (op->kind == OP_WRITE)
        text_printf(out, " %s %llx", style_names[op->style], (unsigned long long)op->stamp);
    if ((op->flags & VOLUME_FUA) != 0)
        text_printf(out, " fua");
    if ((op->flags & VOLUME_PROVISION) != 0)
        text_printf(out, " provision");
}

void history_print(const struct history *h, struct text *out)
{
    for (size_t i = 0; i < h->count; i++) {
        text_printf(out, "%4zu ", i);
        op_print(&h->ops[i], h->profile, out);
        text_printf(out, "\n");
    }
}

static uint64_t range_count(const struct op *op, uint64_t units_max)
{
    /* Mostly short: a random number of bits, then a number of so many bits. */
    uint64_t bits = op->b >> 56 & 0xf;
    uint64_t n = 1 + ((op->b & 0xffffffff) & ((UINT64_C(1) << bits) - 1));
    return n < units_max ? n : units_max;
}

struct op_range op_fit(const struct op *op, uint32_t record_bytes, uint64_t size_bytes, uint64_t length_max_bytes)
{
    static const uint32_t unit_of[] = {[SHAPE_BYTES] = 1, [SHAPE_SECTORS] = 512, [SHAPE_PAGES] = 4096};
    uint64_t unit = op->shape == SHAPE_HALF     ? record_bytes / 2
                    : op->shape == SHAPE_RECORD ? record_bytes
                                                : unit_of[op->shape];
    if (unit > size_bytes)
        unit = 512;
    struct op_range r;
    r.offset_bytes = op->a % (size_bytes / unit) * unit;
    uint64_t units_max = length_max_bytes / unit == 0 ? 1 : length_max_bytes / unit;
    uint64_t units = op->shape == SHAPE_HALF ? 1 : range_count(op, units_max);
    r.length_bytes = units * unit;
    if (r.length_bytes > size_bytes - r.offset_bytes)
        r.length_bytes = size_bytes - r.offset_bytes;
    return r;
}

static bool history_fails(const struct history *h, const struct store_maker *maker, size_t *ret_ran)
{
    struct store *s = maker->make(maker->arg);
    struct history_stats stats = {0};
    struct text why = {0};
    bool good = history_run(h, s, &stats, &why, ret_ran);
    s->ops->free(s);
    text_free(&why);
    return !good;
}

void history_shrink(struct history *h, const struct store_maker *maker, size_t tries)
{
    struct history part = *h;
    part.ops = calloc(h->count + 1, sizeof(*part.ops));
    CHECK(part.ops != NULL);
    size_t ran = 0;
    if (tries > 0 && history_fails(h, maker, &ran) && ran < h->count)
        h->count = ran;
    size_t run = h->count / 2 + 1;
    while (run > 0 && tries > 0) {
        bool shorter = false;
        for (size_t at = 0; at < h->count && tries > 0; tries--) {
            size_t left_out = run < h->count - at ? run : h->count - at;
            part.count = h->count - left_out;
            memcpy(part.ops, h->ops, at * sizeof(*part.ops));
            memcpy(part.ops + at, h->ops + at + left_out, (part.count - at) * sizeof(*part.ops));
            if (part.count > 0 && history_fails(&part, maker, &ran)) {
                memcpy(h->ops, part.ops, part.count * sizeof(*part.ops));
                h->count = part.count;
                shorter = true;
            } else {
                at += left_out;
            }
        }
        if (run > 1 || !shorter)
            run /= 2;
    }
    free(part.ops);
}

void history_report(struct history *h, const struct store_maker *maker, const char *title)
{
    size_t before = h->count;
    history_shrink(h, maker, 400);
    struct store *s = maker->make(maker->arg);
    struct history_stats stats = {0};
    struct text why = {0}, list = {0};
    bool good = history_run(h, s, &stats, &why, NULL);
    s->ops->free(s);
    history_print(h, &list);
    printf("# %s: seed %llu, shortened from %zu to %zu operations\n", title, (unsigned long long)h->seed, before,
           h->count);
    for (char *rest = list.bytes, *line = strsep(&rest, "\n"); line != NULL && *line; line = strsep(&rest, "\n"))
        printf("#   %s\n", line);
    printf("# => %s\n", good ? "did not fail again: not deterministic" : why.bytes);
    fflush(stdout);
    text_free(&why);
    text_free(&list);
}
