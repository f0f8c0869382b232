/*
 * A pool in a directory of its own, for tests of libashlar from outside: only the public header is used.
 */
#ifndef ASHLAR_TESTS_UNIT_LIBRARY_FIXTURE_H
#define ASHLAR_TESTS_UNIT_LIBRARY_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ashlar.h"
#include "tap.h"

#define MIB_BYTES ((uint64_t)1 << 20)
#define POOL_SIZE (256 * MIB_BYTES)

struct fixture {
    char directory[64], path[128];
    struct ashlar_pool *pool;
    struct ashlar_volume *volume; /* "disk", 64 MiB */
    struct ashlar_error error;
};

static inline void fixture_report(const struct fixture *f, const char *what)
{
    printf("# %s: %s\n", what, f->error.text);
}

static inline bool fixture_directory(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->directory, sizeof(f->directory), "/tmp/ashlar-library-XXXXXX");
    if (mkdtemp(f->directory) == NULL)
        return false;
    snprintf(f->path, sizeof(f->path), "%s/pool", f->directory);
    return true;
}

static inline bool fixture_open(struct fixture *f, unsigned flags)
{
    if (ashlar_pool_open(f->path, NULL, flags, &f->pool, &f->error) == 0 &&
        ashlar_volume_open(f->pool, "disk", 0, &f->volume, &f->error) == 0)
        return true;
    fixture_report(f, "open");
    return false;
}

/* A new pool with a volume whose records are stored with this compression. */
static inline bool fixture_new(struct fixture *f, const char *compression)
{
    struct ashlar_volume_options options = ASHLAR_VOLUME_OPTIONS_INIT;
    options.size_bytes = 64 * MIB_BYTES;
    options.compression = compression;
    if (fixture_directory(f) && ashlar_pool_create(f->path, POOL_SIZE, NULL, 0, &f->error) == 0 &&
        ashlar_pool_open(f->path, NULL, 0, &f->pool, &f->error) == 0 &&
        ashlar_volume_create(f->pool, "disk", &options, 0, &f->error) == 0 &&
        ashlar_volume_open(f->pool, "disk", 0, &f->volume, &f->error) == 0)
        return true;
    fixture_report(f, "new");
    return false;
}

static inline void fixture_close(struct fixture *f)
{
    EXPECT_EQ(ashlar_volume_close(f->volume), 0);
    EXPECT_EQ(ashlar_pool_close(f->pool, &f->error), 0);
    f->volume = NULL;
    f->pool = NULL;
}

static inline void fixture_remove(struct fixture *f)
{
    if (f->pool != NULL)
        fixture_close(f);
    unlink(f->path);
    rmdir(f->directory);
}

/* Bytes that do not compress, the same for the same seed. */
static inline void fill(unsigned char *bytes, size_t n, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(x >> 56);
    }
}

#endif
