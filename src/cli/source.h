/*
 * What a volume is imported from: a file that is what it seems to be.
 */
#ifndef ASHLAR_CLI_SOURCE_H
#define ASHLAR_CLI_SOURCE_H

#include <stdbool.h>

struct error;

/*
 * 0, or why the file behind fd is not imported byte for byte: -EINVAL it is the pool itself, or (unless raw) what it
 * begins with is that of an image or compressed format, whose bytes are no disk's. Of a pipe nothing is read. `file`:
 * its name as the user gave it.
 */
int source_check(int fd, const char *file, const char *pool_path, bool raw, struct error *err)
    __attribute__((warn_unused_result));

#endif
