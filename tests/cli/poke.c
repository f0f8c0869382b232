/*
 * Makes a pool look as if a newer program had made it: poke POOL version|feature. Every label that is there gets a
 * higher format version, or an incompatible feature bit that nobody knows, and the checksum that belongs to it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "format/label_impl.h"

enum { UNIT = WRITE_UNIT_BYTES_MIN, VERSION_OFFSET = 8, FEATURES_OFFSET = 16 };

static int poke(int fd, uint64_t device_bytes, bool back_ring, uint32_t ring_slot, bool version)
{
    uint8_t label[UNIT];
    const off_t offset = (off_t)label_offset_bytes(device_bytes, UNIT, back_ring, ring_slot);
    if (pread(fd, label, UNIT, offset) != UNIT || memcmp(label, LABEL_MAGIC, LABEL_MAGIC_BYTES) != 0)
        return 0;
    struct sink out = sink_of(label, UNIT);
    out.position = version ? VERSION_OFFSET : FEATURES_OFFSET;
    if (version)
        sink_u32(&out, FORMAT_VERSION + 1);
    else
        sink_u64(&out, UINT64_C(1) << 40);
    const struct checksum sum = label_checksum(label, UNIT, back_ring, ring_slot);
    out.position = UNIT - LABEL_CHECKSUM_BYTES;
    sink_u64(&out, sum.low);
    sink_u64(&out, sum.high);
    return pwrite(fd, label, UNIT, offset) == UNIT;
}

int main(int argc, char **argv)
{
    struct stat st;
    int count = 0;
    if (argc != 3)
        return 2;
    const int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return 1;
    for (uint32_t slot = 0; slot < LABEL_RING_SLOTS; slot++)
        for (int back = 0; back < 2; back++)
            count += poke(fd, (uint64_t)st.st_size, back == 1, slot, strcmp(argv[2], "version") == 0);
    printf("# %d labels changed\n", count);
    return close(fd) == 0 && count > 0 ? 0 : 1;
}
