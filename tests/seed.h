/*
 * The seed of a random test: taken from ASHLAR_SEED if that is set (to replay a failure), else from clock and process
 * id, and always printed as a TAP comment.
 */
#ifndef ASHLAR_TESTS_SEED_H
#define ASHLAR_TESTS_SEED_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* For a test that does the same each time unless it is told otherwise. */
static inline uint64_t seed_choose_or(uint64_t usual)
{
    const char *text = getenv("ASHLAR_SEED");
    uint64_t seed = text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : usual;
    printf("# ASHLAR_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

static inline uint64_t seed_choose(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return seed_choose_or(((uint64_t)now.tv_sec << 30) ^ (uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 48));
}

#endif
