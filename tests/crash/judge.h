/*
 * The judge of a crash point: cuts the power on a picture, opens the pool, and asks whether every promise holds.
 *
 * - the pool opens, and check is clean before (on the cut disk) and after;
 * - volumes, sizes, names and every sector are as the oracle allows;
 * - a second cut right after the opening, before any client did anything, changes nothing of what was read;
 * - the recovered pool takes writes, closes, is clean, and still holds what it held;
 * - all of it again at device steps inside the recovery.
 */
#ifndef ASHLAR_TESTS_CRASH_JUDGE_H
#define ASHLAR_TESTS_CRASH_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "crash/points.h"
#include "model/driver.h"
#include "model/store_pool.h"

#define LOSS_PROCESS (-1) /* no cut: the process ended, the disk's cache lives on */
#define LOSS_COUNT 7      /* of loss_list */
/* What is tried at a point: two random seeds, and each of the other kinds. */
extern const int loss_list[LOSS_COUNT];
const char *loss_name(int loss);

struct judge {
    struct store_pool_options options;
    bool check_before; /* check the cut disk as well, before it is opened */
    bool check_after;
    bool stay;  /* cut again after the opening and compare */
    bool go_on; /* write, close, open and compare */
    /* Steps inside the recovery at which the power goes again: 0 none, 1 all, n: about one in n. */
    unsigned nested_one_in;
    bool nested_every_loss; /* there every loss is tried; otherwise one, in turn */
    bool nested_check;      /* check after each of those recoveries too; otherwise after about one in four */
    bool nested_deeper;     /* and at the steps of that second recovery too */
    /* judge_points: only points whose index is `part` modulo `parts`; 0: all. Progress is printed if `loud`. */
    unsigned part, parts;
    bool loud;
    /* Counters. A point counts once for each loss that is tried there. */
    uint64_t points, openings, recovery_steps, nested_points, checks;
    /* Of each opening: the trace hash of its simulation, in order. The same for the same seed and code. */
    uint64_t trace;
};

/* The oracle stands at the point's position. true: all promises hold; otherwise the reason is added to why. */
bool judge_image(struct judge *j, const struct sim_image *image, struct oracle *o, int loss, uint64_t seed,
                 struct text *why);

/*
 * Judges every point of the list, in order, with each loss of loss_list or, if losses_each is not 0, with that many of
 * them in turn. `history` is the finished oracle. Stops at the first failure; the reason says which point.
 */
bool judge_points(struct judge *j, const struct points *points, const struct oracle *history, unsigned losses_each,
                  uint64_t seed, struct text *why);

#endif
