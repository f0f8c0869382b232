/*
 * Selections (selection.h): by an estimate first, then to the byte.
 */
#include "pool/selection.h"

#include <stdlib.h>

#include "base/math.h"

/* A batch is one chunk, as a rule: each costs a header and half a write unit of padding. */
#define CHUNK_PAYLOAD_TARGET_BYTES (CHUNK_BYTES_MAX - 256 * 1024)
#define CHUNK_ITEMS_MAX 8192
#define ENTRY_BYTES_TYPICAL 24

struct selection *selection_new(const struct item_list *items)
{
    size_t room = min_u64(items->count, CHUNK_ITEMS_MAX);
    struct selection *s =
        malloc(sizeof *s + room * (sizeof(struct chunk_entry) + sizeof(struct item *) + sizeof(const uint8_t *)));
    if (s == NULL)
        return NULL;
    s->entries = (void *)(s + 1);
    s->items = (void *)(s->entries + room);
    s->bytes = (void *)(s->items + room);
    return s;
}

static void select_item(struct selection *s, struct item *item)
{
    s->items[s->count] = item;
    s->entries[s->count] = item->entry;
    s->bytes[s->count] = item->capture != NULL ? capture_bytes(item->capture) : NULL;
    s->payload_bytes += item->entry.length;
    s->count++;
}

static void unselect_last(struct selection *s)
{
    s->count--;
    s->payload_bytes -= s->entries[s->count].length;
}

void selection_fill(struct selection *s, const struct item_list *items, const struct data_head *h)
{
    uint64_t estimate = CHUNK_HEADER_BYTES + CHUNK_FOOTER_BYTES + h->echo_bytes;
    uint32_t room = (uint32_t)min_u64(data_head_room(h), CHUNK_BYTES_MAX);
    s->count = 0;
    s->payload_bytes = 0;
    for (uint32_t i = items->first_unsealed; i < items->count && s->count < CHUNK_ITEMS_MAX; i++) {
        struct item *item = &items->list[i];
        if (item->sealed)
            continue;
        uint64_t cost = item->entry.length + 2 * ENTRY_BYTES_TYPICAL;
        bool fits = estimate + cost <= room &&
                    (s->count == 0 || s->payload_bytes + item->entry.length <= CHUNK_PAYLOAD_TARGET_BYTES);
        if (!fits && i < items->ordered_count)
            break;
        if (!fits)
            continue;
        select_item(s, item);
        estimate += cost;
        if (s->payload_bytes >= CHUNK_PAYLOAD_TARGET_BYTES)
            break;
    }
    while (s->count > 0 && data_head_chunk_bytes(h, chunk_table_bytes(s->entries, s->count), s->payload_bytes) > room)
        unselect_last(s);
}
