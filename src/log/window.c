/*
 * The window (window.h): one buffer, loaded in a few parallel reads at the place that is asked for.
 */
#include "log/window.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "format/limits.h"

#define PIECES 4 /* reads in flight at once */

int window_init(struct window *w, struct device *dev, struct slots *slots, const struct geometry *geometry)
{
    memset(w, 0, sizeof *w);
    w->dev = dev;
    w->slots = slots;
    w->segment_bytes = geometry->segment_bytes;
    w->slot = SLOT_NONE;
    w->buffer = device_buffer_new(min_u64(WINDOW_BYTES, w->segment_bytes));
    return w->buffer == NULL ? -ENOMEM : 0;
}

void window_fini(struct window *w)
{
    device_buffer_free(w->buffer);
    w->buffer = NULL;
}

static int load(struct window *w, uint32_t slot, uint32_t first)
{
    uint32_t length = (uint32_t)min_u64(WINDOW_BYTES, w->segment_bytes - first);
    uint32_t piece = (uint32_t)round_up(div_ceil(length, PIECES), DEVICE_ALIGN_BYTES);
    struct device_io ios[PIECES];
    struct iovec iov[PIECES];
    uint32_t n = 0;
    memset(ios, 0, sizeof ios);
    for (uint32_t at = 0; at < length; at += piece, n++) {
        uint32_t bytes = (uint32_t)min_u64(piece, length - at);
        iov[n] = (struct iovec){.iov_base = w->buffer + at, .iov_len = bytes};
        ios[n] = (struct device_io){.kind = DEVICE_READ,
                                    .offset_bytes = slots_device_offset(w->slots, slot, first + at),
                                    .length_bytes = bytes,
                                    .iov = &iov[n],
                                    .iov_count = 1};
    }
    w->slot = SLOT_NONE;
    int result = device_run(w->dev, ios, n);
    if (result != 0)
        return result;
    w->slot = slot;
    w->first = first;
    w->length = length;
    return 0;
}

const uint8_t *window_get(struct window *w, uint32_t slot, uint32_t position, uint32_t length)
{
    CHECK_EQ(position % DEVICE_ALIGN_BYTES, 0);
    CHECK_LE(length, CHUNK_BYTES_MAX);
    CHECK(range_inside(position, length, w->segment_bytes));
    if (w->slot != slot || position < w->first || position + length > w->first + w->length) {
        /* A small segment is kept whole, so that looks to and fro cost nothing. */
        w->error = load(w, slot, w->segment_bytes <= WINDOW_BYTES ? 0 : position);
        if (w->error != 0)
            return NULL;
    }
    return w->buffer + (position - w->first);
}
