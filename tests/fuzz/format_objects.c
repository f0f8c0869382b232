/*
 * Random valid objects. Values are drawn so that the edges of each range occur often: lengths and counts of random
 * magnitude, addresses near 0 and near 2^64, full and empty tables.
 */
#include "format_objects.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"

#define RECORD_INDEX_LIMIT (UINT64_C(1) << (MAP_LEAF_BITS + (MAP_LEVELS_MAX - 1) * MAP_INNER_BITS))

uint64_t random_between(struct prng *r, uint64_t low, uint64_t high)
{
    return low + prng_below(r, high - low + 1);
}

uint64_t random_magnitude(struct prng *r, unsigned bits)
{
    const unsigned n = (unsigned)prng_below(r, bits + 1u);
    if (n == 0)
        return 0;
    const uint64_t v = prng_u64(r) >> (64 - n);
    return prng_chance(r, 50) ? UINT64_MAX >> (64 - n) : v;
}

struct checksum random_checksum(struct prng *r)
{
    struct checksum c;
    c.low = prng_u64(r);
    c.high = prng_u64(r);
    return c;
}

uint32_t random_write_unit(struct prng *r)
{
    return WRITE_UNIT_BYTES_MIN << prng_below(r, 5);
}

static uint8_t random_codec(struct prng *r)
{
    return (uint8_t)prng_below(r, CODEC_ZSTD + 1);
}

struct patch random_patch(struct prng *r)
{
    const uint32_t sectors = RECORD_BYTES_MAX / SECTOR_BYTES;
    struct patch p = {.pointer = {.kind = POINTER_PATCH, .checksum_kind = CHECKSUM_KIND_XXH3_128}};
    p.first_sector = (uint16_t)min_u64(random_magnitude(r, 11), sectors - 1);
    p.sector_count = (uint16_t)random_between(r, 1, min_u64(sectors - p.first_sector, 1u << prng_below(r, 12)));
    const uint32_t raw_bytes = p.sector_count * (uint32_t)SECTOR_BYTES;
    p.pointer.codec = random_codec(r);
    p.pointer.length = p.pointer.codec == CODEC_OFF ? raw_bytes : (uint32_t)random_between(r, 1, raw_bytes - 1);
    p.pointer.address = min_u64(random_magnitude(r, 64), UINT64_MAX - p.pointer.length);
    p.pointer.checksum = random_checksum(r);
    return p;
}

enum pointer_kind random_pointer_kind(struct prng *r)
{
    static const enum pointer_kind kinds[] = {POINTER_ABSENT, POINTER_HOLE,  POINTER_PROVISIONED, POINTER_DATA,
                                              POINTER_NODE,   POINTER_PATCH, POINTER_LOST};
    return kinds[prng_below(r, sizeof(kinds) / sizeof(kinds[0]))];
}

struct pointer random_pointer(struct prng *r, enum pointer_kind kind)
{
    struct pointer p = {.kind = (uint8_t)kind};
    if (kind == POINTER_PATCH)
        return random_patch(r).pointer;
    if (kind == POINTER_ABSENT)
        return p;
    if (pointer_has_bytes(&p)) {
        if (kind == POINTER_DATA) {
            p.codec = random_codec(r);
            p.flags = prng_chance(r, 50) ? POINTER_LOSSY : 0;
        }
        const uint32_t extra = p.flags != 0 ? RECORD_LOSS_MAP_BYTES(RECORD_BYTES_MAX) : 0;
        p.length = (uint32_t)min_u64(1 + random_magnitude(r, 21), RECORD_BYTES_MAX + extra);
        p.checksum_kind = CHECKSUM_KIND_XXH3_128;
        p.checksum = random_checksum(r);
    }
    p.address = min_u64(random_magnitude(r, 64), UINT64_MAX - p.length);
    return p;
}

/* ---- labels ---- */

static void fill_geometry(struct prng *r, struct label *l)
{
    const uint64_t unit = random_write_unit(r);
    l->write_unit_bytes = (uint32_t)unit;
    l->segment_bytes =
        (uint32_t)(unit * min_u64(SEGMENT_BYTES_MIN / unit + random_magnitude(r, 16), SEGMENT_BYTES_MAX / unit));
    l->lookahead_count = (uint32_t)random_between(r, 1, LOOKAHEAD_SLOTS_MAX);
    l->device_count = 1;
    struct label_device *d = &l->devices[0];
    d->state = LABEL_DEVICE_ACTIVE;
    d->slot_count = (uint32_t)min_u64(LOOKAHEAD_SLOTS_MAX + 2 + random_magnitude(r, 20), SLOT_COUNT_MAX);
    d->data_start_bytes = unit * (LABEL_RING_SLOTS + random_magnitude(r, 10));
    d->size_bytes = d->data_start_bytes + (uint64_t)d->slot_count * l->segment_bytes + unit * LABEL_RING_SLOTS +
                    random_magnitude(r, 24);
    prng_fill(r, d->uuid, sizeof(d->uuid));
}

/* A write unit somewhere in a segment. */
static uint64_t random_place(struct prng *r, const struct label *l, uint64_t segment)
{
    const uint64_t units = l->segment_bytes / l->write_unit_bytes;
    return segment * l->segment_bytes + prng_below(r, units) * l->write_unit_bytes;
}

/* Distinct slots: a random place in the table and up, wrapping round. */
static void fill_positions(struct prng *r, struct label *l)
{
    const uint32_t slots = l->devices[0].slot_count;
    uint32_t slot = (uint32_t)prng_below(r, slots);
    uint64_t segment = random_magnitude(r, 34);
    l->replay_slot = slot;
    l->replay_address = random_place(r, l, segment);
    const uint64_t next_count = random_between(r, 0, l->lookahead_count);
    for (uint32_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++) {
        l->replay_next_slots[k] = SLOT_NONE;
        if (k < next_count) {
            slot = (slot + 1) % slots;
            segment += 1 + random_magnitude(r, 8);
            l->replay_next_slots[k] = slot;
            l->replay_next_segments[k] = segment;
        }
    }
    l->node_slot = SLOT_NONE;
    if (prng_chance(r, 700)) {
        l->node_slot = (slot + 1) % slots;
        l->node_address = random_place(r, l, ++segment);
    }
    l->next_segment = segment + 1 + random_magnitude(r, 10);
    l->next_branch = BRANCH_FIRST_USER + random_magnitude(r, 40);
}

static void add_root(struct prng *r, struct label *l, uint16_t kind)
{
    struct label_root *root = &l->roots[l->root_count++];
    root->kind = kind;
    root->height = (uint8_t)prng_below(r, MAP_LEVELS_MAX + 1);
    if (root->height == 0)
        return;
    root->pointer = random_pointer(r, prng_chance(r, 900) ? POINTER_NODE : POINTER_HOLE);
    if (root->pointer.kind == POINTER_NODE) {
        root->pointer.length = (uint32_t)random_between(r, 1, min_u64(l->segment_bytes, 32768));
        const uint64_t place_count = kind == ROOT_SLOT_TABLE ? l->devices[0].slot_count : l->next_segment;
        root->pointer.address =
            prng_below(r, place_count) * l->segment_bytes + prng_below(r, l->segment_bytes - root->pointer.length + 1);
    }
}

struct label random_label(struct prng *r)
{
    struct label l = {0};
    fill_geometry(r, &l);
    fill_positions(r, &l);
    l.features_read_only_compatible = prng_chance(r, 100) ? prng_u64(r) : 0;
    l.features_compatible = prng_chance(r, 100) ? prng_u64(r) : 0;
    prng_fill(r, l.pool_uuid, sizeof(l.pool_uuid));
    l.sequence = 1 + random_magnitude(r, 40);
    l.oldest_intact = random_between(r, 1, l.sequence);
    l.checkpoint = random_magnitude(r, 40);
    l.incarnation = prng_u64(r);
    l.flags = prng_chance(r, 500) ? LABEL_CLEAN : 0;
    l.created_wall_ns = prng_u64(r);
    l.written_wall_ns = prng_u64(r);
    l.replay_chain = random_checksum(r);
    if (prng_chance(r, 900))
        add_root(r, &l, ROOT_CATALOG);
    if (prng_chance(r, 900))
        add_root(r, &l, ROOT_SLOT_TABLE);
    l.in_back_ring = prng_chance(r, 500);
    return l;
}

/* ---- chunks ---- */

struct chunk_header random_chunk_header(struct prng *r, enum chunk_head head, uint32_t flags, uint32_t write_unit_bytes)
{
    struct chunk_header h = {.head = (uint8_t)head, .flags = flags};
    prng_fill(r, h.pool_uuid, sizeof(h.pool_uuid));
    h.address = round_down(min_u64(random_magnitude(r, 64), UINT64_MAX - CHUNK_BYTES_MAX), write_unit_bytes);
    h.incarnation = prng_u64(r);
    h.durable_to = random_between(r, 0, h.address);
    h.wall_ns = prng_u64(r);
    h.sequence = random_magnitude(r, 64);
    for (size_t k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        h.next_slots[k] = SLOT_NONE;
    if (head != CHUNK_HEAD_DATA)
        return h;
    h.previous_chain = random_checksum(r);
    if (prng_chance(r, 400))
        h.echo_bytes = (uint32_t)random_between(r, CHUNK_HEADER_BYTES, chunk_echo_bytes_max(write_unit_bytes));
    const uint64_t next_count = prng_below(r, LOOKAHEAD_SLOTS_MAX + 1);
    for (size_t k = 0; k < next_count; k++) {
        h.next_slots[k] = (uint32_t)prng_below(r, SLOT_COUNT_MAX);
        if (k == 0)
            h.next_segments_first = random_magnitude(r, 50);
        else
            h.next_segment_deltas[k] = (uint8_t)random_between(r, 1, UINT8_MAX);
    }
    return h;
}

/* An entry that begins a run of its own, most likely. */
static struct chunk_entry random_entry(struct prng *r, enum chunk_head head)
{
    static const uint8_t data_kinds[] = {ENTRY_DATA, ENTRY_DATA, ENTRY_PATCH, ENTRY_PATCH, ENTRY_TRIM, ENTRY_ZERO};
    struct chunk_entry e = {.count = 1};
    e.kind = head == CHUNK_HEAD_NODE ? (prng_chance(r, 700) ? ENTRY_NODE : ENTRY_DATA)
                                     : data_kinds[prng_below(r, sizeof(data_kinds))];
    e.branch = 1 + random_magnitude(r, prng_chance(r, 900) ? 7 : 63);
    e.index = min_u64(random_magnitude(r, 55), RECORD_INDEX_LIMIT - 1);
    if (e.kind == ENTRY_NODE) {
        e.level = (uint8_t)prng_below(r, MAP_LEVELS_MAX);
        e.index >>= map_level_bits(e.level);
    }
    if (e.kind == ENTRY_TRIM || e.kind == ENTRY_ZERO)
        e.count = min_u64(1 + random_magnitude(r, 55), RECORD_INDEX_LIMIT - e.index);
    return e;
}

/* Gives an entry of a kind with bytes bytes: a codec, a length, a checksum. */
static void fill_entry_bytes(struct prng *r, struct chunk_entry *e)
{
    struct pointer p;
    if (e->kind == ENTRY_PATCH) {
        const struct patch patch = random_patch(r);
        e->first_sector = patch.first_sector;
        e->sector_count = patch.sector_count;
        p = patch.pointer;
    } else {
        p = random_pointer(r, e->kind == ENTRY_DATA ? POINTER_DATA : POINTER_NODE);
    }
    e->codec = p.codec;
    e->flags = p.flags;
    e->length = p.length;
    e->checksum = p.checksum;
}

/* The entry that a run with `last` would go on with. */
static struct chunk_entry following_entry(const struct chunk_entry *last)
{
    struct chunk_entry e = *last;
    if (e.kind != ENTRY_PATCH)
        e.index += e.count;
    return e;
}

static bool index_fits(const struct chunk_entry *e)
{
    const uint64_t limit = e->kind == ENTRY_NODE ? RECORD_INDEX_LIMIT >> map_level_bits(e->level) : RECORD_INDEX_LIMIT;
    return e->index < limit && e->count <= limit - e->index;
}

size_t random_chunk_entries(struct prng *r, enum chunk_head head, uint32_t flags, size_t count_max, size_t payload_max,
                            struct chunk_entry *entries)
{
    if ((flags & CHUNK_FLAG_BRIDGE) != 0) {
        entries[0] = (struct chunk_entry){
            .kind = ENTRY_BRIDGE, .index = random_magnitude(r, 64), .count = prng_below(r, SLOT_COUNT_MAX)};
        return 1;
    }
    size_t payload = 0, count = 0;
    while (count < count_max) {
        struct chunk_entry e = random_entry(r, head);
        if (count > 0 && prng_chance(r, 600)) {
            const struct chunk_entry next = following_entry(&entries[count - 1]);
            if (index_fits(&next))
                e = next;
        }
        if (e.kind != ENTRY_TRIM && e.kind != ENTRY_ZERO)
            fill_entry_bytes(r, &e);
        if (e.length > payload_max - payload)
            break;
        payload += e.length;
        entries[count++] = e;
    }
    return count;
}

/* ---- nodes ---- */

static enum pointer_kind random_child_kind(struct prng *r, enum node_style style, uint8_t level)
{
    static const enum pointer_kind nothing[] = {POINTER_HOLE, POINTER_PROVISIONED, POINTER_LOST};
    if (style == NODE_STYLE_WILD && prng_chance(r, 400))
        return nothing[prng_below(r, sizeof(nothing) / sizeof(nothing[0]))];
    return level == 0 ? POINTER_DATA : POINTER_NODE;
}

static void add_patches(struct prng *r, struct node *n, uint32_t patches_max)
{
    while (n->patch_count < patches_max) {
        const uint64_t least = n->patch_count > 0 ? n->patches[n->patch_count - 1].child + 1u : 0;
        if (least >= map_fanout(0))
            return;
        const uint8_t child = (uint8_t)random_between(r, least, min_u64(least + 8, map_fanout(0) - 1));
        uint64_t address = random_magnitude(r, 60);
        const uint64_t count = min_u64(random_between(r, 1, PATCHES_PER_RECORD_MAX), patches_max - n->patch_count);
        for (uint64_t i = 0; i < count; i++) {
            struct node_patch *p = &n->patches[n->patch_count++];
            p->child = child;
            p->patch = random_patch(r);
            p->patch.pointer.address = address;
            address += p->patch.pointer.length + random_magnitude(r, 40);
        }
    }
}

void random_node(struct prng *r, enum node_style style, uint8_t level, unsigned per_mille, uint32_t patches_max,
                 struct node_patch *patches, struct node *ret_node)
{
    struct node *n = ret_node;
    memset(n, 0, sizeof(*n));
    n->branch = BRANCH_FIRST_USER + random_magnitude(r, 10);
    n->level = level;
    n->number = min_u64(random_magnitude(r, 55), RECORD_INDEX_LIMIT - 1) >> map_level_bits(level);
    n->patches = patches;
    uint64_t address = prng_u64(r) >> 24;
    for (uint32_t i = 0; i < map_fanout(level); i++) {
        if (!prng_chance(r, per_mille))
            continue;
        struct pointer p = random_pointer(r, random_child_kind(r, style, level));
        if (style != NODE_STYLE_WILD) {
            p.codec = level == 0 ? CODEC_LZ4 : CODEC_OFF;
            p.flags = 0;
            p.length = (uint32_t)random_between(r, 2000, 16383);
            p.address = style == NODE_STYLE_ORDERED ? address : prng_u64(r) >> 24;
            address += p.length;
        }
        n->children[i] = p;
    }
    if (level == 0)
        add_patches(r, n, patches_max);
}

/* ---- catalog and slot table ---- */

void random_volume_name(struct prng *r, char name[VOLUME_NAME_BYTES_MAX + 1])
{
    static const char bytes[] = "ABCXYZabcxyz0189._:+-";
    const size_t length = (size_t)random_between(r, 1, min_u64(VOLUME_NAME_BYTES_MAX, 1u << prng_below(r, 9)));
    for (size_t i = 0; i < length; i++)
        name[i] = bytes[prng_below(r, sizeof(bytes) - 1)];
    name[length] = '\0';
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        name[0] = 'v';
}

struct catalog_volume random_volume(struct prng *r)
{
    struct catalog_volume v = {0};
    v.object_id = random_magnitude(r, 54);
    v.branch = BRANCH_FIRST_USER + random_magnitude(r, 60);
    prng_fill(r, v.guid, sizeof(v.guid));
    random_volume_name(r, v.name);
    v.size_bytes = min_u64(1 + random_magnitude(r, 53), VOLUME_BYTES_MAX / SECTOR_BYTES) * SECTOR_BYTES;
    v.record_bytes = RECORD_BYTES_MIN << prng_below(r, 9);
    v.codec.id = random_codec(r);
    if (v.codec.id == CODEC_ZSTD) {
        v.codec.level = (int8_t)((int)prng_below(r, 25) - 5);
        if (v.codec.level == 0)
            v.codec.level = 3;
    }
    v.created_wall_ns = prng_u64(r);
    const uint8_t height = map_height_for(div_ceil(v.size_bytes, v.record_bytes));
    v.height = (uint8_t)random_between(r, height, MAP_LEVELS_MAX);
    static const enum pointer_kind kinds[] = {POINTER_NODE,        POINTER_NODE, POINTER_HOLE,
                                              POINTER_PROVISIONED, POINTER_LOST, POINTER_ABSENT};
    v.root = random_pointer(r, kinds[prng_below(r, sizeof(kinds) / sizeof(kinds[0]))]);
    v.mapped_records = random_magnitude(r, 55);
    v.stored_bytes = random_magnitude(r, 64);
    v.node_bytes = random_magnitude(r, 64);
    v.provisioned_records = random_magnitude(r, 55);
    return v;
}

void random_slots(struct prng *r, uint32_t segment_bytes, struct slot slots[SLOTS_PER_TABLE_RECORD])
{
    for (size_t i = 0; i < SLOTS_PER_TABLE_RECORD; i++) {
        struct slot s = {.since = random_magnitude(r, 40)};
        s.state = (uint8_t)prng_below(r, SLOT_QUARANTINED + 1);
        if (s.state != SLOT_BARE && s.state != SLOT_READY) {
            s.head = (uint8_t)prng_below(r, CHUNK_HEAD_NODE + 1);
            s.used_bytes = (uint32_t)random_between(r, 0, segment_bytes);
            s.live_bytes = s.state == SLOT_QUARANTINED ? 0 : (uint32_t)random_between(r, 0, segment_bytes);
            s.segment = random_magnitude(r, 40);
        }
        slots[i] = s;
    }
}
