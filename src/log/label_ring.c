/*
 * The label rings (label_ring.h): at open every slot of both rings is looked at, for one write unit size after the
 * other, and the newest label that verifies wins.
 */
#include "log/label_ring.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

/* What a pass over the rings found. */
struct search {
    struct label best;
    bool found;
    bool damaged; /* something with a label's magic that does not verify */
    int refused;  /* -EOPNOTSUPP of a label that verified but is not ours to open */
    struct error reason;
};

static void look_at(struct search *search, const uint8_t *buf, uint32_t write_unit_bytes, bool back_ring,
                    uint32_t ring_slot)
{
    struct label label;
    struct error err = {0};
    int result = label_decode(buf, write_unit_bytes, back_ring, ring_slot, &label, &err);
    if (result == 0 && label.write_unit_bytes != write_unit_bytes)
        result = -EBADMSG;
    if (result == 0 && (!search->found || label.sequence > search->best.sequence)) {
        search->best = label;
        search->found = true;
    }
    if (result == -EOPNOTSUPP && search->refused == 0) {
        search->refused = result;
        search->reason = err;
    }
    if (result == -EBADMSG)
        search->damaged = true;
}

/* One ring, write unit given. The device is at least that long. */
static int search_ring(struct device *dev, uint64_t device_bytes, uint32_t write_unit_bytes, bool back_ring,
                       uint8_t *buf, struct search *search)
{
    uint64_t offset = label_offset_bytes(device_bytes, write_unit_bytes, back_ring, 0);
    size_t ring_bytes = label_ring_bytes(write_unit_bytes);
    if (!range_inside(offset, ring_bytes, dev->info.size_bytes))
        return 0;
    int result = device_read(dev, offset, buf, ring_bytes);
    if (result != 0) {
        /* One bad sector must not hide the other labels: read them one by one, and let the bad ones be. */
        memset(buf, 0, ring_bytes);
        for (uint32_t i = 0; i < LABEL_RING_SLOTS; i++) {
            uint8_t *one = buf + (size_t)i * write_unit_bytes;
            if (device_read(dev, offset + (uint64_t)i * write_unit_bytes, one, write_unit_bytes) != 0)
                memset(one, 0, write_unit_bytes);
        }
    }
    for (uint32_t i = 0; i < LABEL_RING_SLOTS; i++)
        look_at(search, buf + (size_t)i * write_unit_bytes, write_unit_bytes, back_ring, i);
    return 0;
}

static int search_device(struct device *dev, uint8_t *buf, struct search *search)
{
    for (uint32_t unit = WRITE_UNIT_BYTES_MIN; unit <= WRITE_UNIT_BYTES_MAX && !search->found; unit *= 2) {
        int result = search_ring(dev, dev->info.size_bytes, unit, false, buf, search);
        if (result == 0)
            result = search_ring(dev, dev->info.size_bytes, unit, true, buf, search);
        if (result != 0)
            return result;
        /* A device that grew since: the back ring lies where the label says the device ended. */
        if (search->found && search->best.devices[0].size_bytes != dev->info.size_bytes) {
            result = search_ring(dev, search->best.devices[0].size_bytes, unit, true, buf, search);
            if (result != 0)
                return result;
        }
    }
    return 0;
}

int label_ring_read(struct device *dev, struct label *ret_label, struct error *err)
{
    struct search search = {0};
    uint64_t size = dev->info.size_bytes;
    if (size < 2 * label_ring_bytes(WRITE_UNIT_BYTES_MIN))
        return error_set(err, -EINVAL, "%s: no pool here: %llu bytes are too few to hold one", dev->name,
                         (unsigned long long)size);
    uint8_t *buf = device_buffer_new(label_ring_bytes(WRITE_UNIT_BYTES_MAX));
    if (buf == NULL)
        return error_set(err, -ENOMEM, "%s: out of memory reading labels", dev->name);
    int result = search_device(dev, buf, &search);
    device_buffer_free(buf);
    if (result != 0)
        return error_set(err, result, "%s: reading the labels failed: %s", dev->name, strerror(-result));
    /* A label this version must not read may well be the newest: then an older one would show the pool as it was. */
    if (search.refused != 0)
        return error_set(err, search.refused, "%s: %s", dev->name, search.reason.text);
    if (!search.found && search.damaged)
        return error_set(err, -EBADMSG, "%s: there are labels of a pool, but none is intact; 'ashlar check' tells more",
                         dev->name);
    if (!search.found)
        return error_set(err, -EINVAL,
                         "%s: not an Ashlar pool (no label at its front or end); 'ashlar create' makes one", dev->name);
    if (search.best.devices[0].size_bytes > size)
        return error_set(err, -EBADMSG,
                         "%s: truncated: the pool is %llu bytes long, the device only %llu; restore its full length",
                         dev->name, (unsigned long long)search.best.devices[0].size_bytes, (unsigned long long)size);
    *ret_label = search.best;
    return 0;
}

int label_ring_write(struct device *dev, const struct label *l)
{
    uint32_t unit = l->write_unit_bytes;
    uint8_t *buf = device_buffer_new(unit);
    int result = buf == NULL ? -ENOMEM : 0;
    for (int back = 0; back <= 1 && result == 0; back++) {
        struct label copy = *l;
        copy.in_back_ring = back != 0;
        label_encode(&copy, buf, unit);
        uint64_t offset =
            label_offset_bytes(l->devices[0].size_bytes, unit, back != 0, (uint32_t)(l->sequence % LABEL_RING_SLOTS));
        struct iovec iov = {.iov_base = buf, .iov_len = unit};
        struct device_io ios[2] = {
            {.kind = DEVICE_WRITE, .offset_bytes = offset, .length_bytes = unit, .iov = &iov, .iov_count = 1},
            {.kind = DEVICE_FLUSH, .after_previous = true},
        };
        result = device_run(dev, ios, 2);
    }
    device_buffer_free(buf);
    return result;
}
