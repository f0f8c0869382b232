/*
 * Anonymous mappings. See pages.h.
 */
#include "env/pages.h"

#include <sys/mman.h>

#include "base/check.h"

uint8_t *pages_new(size_t length_bytes)
{
    void *p = mmap(NULL, length_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void pages_free(uint8_t *pages, size_t length_bytes)
{
    if (pages == NULL)
        return;
    int result = munmap(pages, length_bytes);
    CHECK_EQ(result, 0);
}
