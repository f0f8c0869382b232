/*
 * See image_builder.h. The order of things in a checkpoint is the engine's: leaves, roots, catalog objects and their
 * leaf, table records and their leaf, each kind in a chunk (written twice) of its own, so that addresses fall from
 * parent to child; then the label.
 */
#include "image_builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"

#define OPEN_PAYLOAD_BYTES (100u * 1024)
#define OPEN_ENTRIES 512u

static void tamper(struct image *img, enum image_object object, unsigned number, void *value)
{
    if (img->tamper != NULL)
        img->tamper(img, object, number, value);
}

uint64_t image_offset(const struct image *img, uint64_t address)
{
    for (uint32_t slot = 0; slot < IMAGE_SLOTS; slot++)
        if (img->slots[slot].state >= SLOT_NEXT && img->slots[slot].segment == address / IMAGE_SEGMENT_BYTES)
            return IMAGE_RING_BYTES + (uint64_t)slot * IMAGE_SEGMENT_BYTES + address % IMAGE_SEGMENT_BYTES;
    check_failed(__FILE__, __LINE__, "a log address in no slot");
}

/* ---- slots ---- */

static uint32_t take_slot(struct image *img, uint8_t head, uint64_t *ret_segment)
{
    for (uint32_t slot = 0; slot < IMAGE_SLOTS; slot++) {
        if (img->slots[slot].state > SLOT_READY)
            continue;
        *ret_segment = img->next_segment++;
        img->slots[slot] =
            (struct slot){.state = SLOT_NEXT, .head = head, .segment = *ret_segment, .since = img->checkpoint};
        return slot;
    }
    check_failed(__FILE__, __LINE__, "the image is full");
}

static void open_segment(struct image *img, struct image_head *h, uint32_t slot, uint64_t segment)
{
    if (h->slot != SLOT_NONE) {
        img->slots[h->slot].state = SLOT_CLOSED;
        img->slots[h->slot].used_bytes = h->position_bytes;
        img->slots[h->slot].since = img->checkpoint;
    }
    h->slot = slot;
    h->segment = segment;
    h->position_bytes = 0;
    img->slots[slot].state = SLOT_OPEN;
    img->slots[slot].since = img->checkpoint;
}

static void advance(struct image *img, struct image_head *h)
{
    uint64_t segment = img->next_slot_segment;
    uint32_t slot = img->next_slot;
    if (h->head == CHUNK_HEAD_NODE)
        slot = take_slot(img, CHUNK_HEAD_NODE, &segment);
    open_segment(img, h, slot, segment);
    if (h->head == CHUNK_HEAD_DATA)
        img->next_slot = take_slot(img, CHUNK_HEAD_DATA, &img->next_slot_segment);
}

static uint64_t head_address(const struct image_head *h)
{
    return h->segment * IMAGE_SEGMENT_BYTES + h->position_bytes;
}

static uint8_t *head_bytes(struct image *img, const struct image_head *h)
{
    return img->bytes + IMAGE_RING_BYTES + (size_t)h->slot * IMAGE_SEGMENT_BYTES + h->position_bytes;
}

/* ---- chunks ---- */

static void chunk_begin(struct image_chunk *c)
{
    *c = (struct image_chunk){.entries = calloc(OPEN_ENTRIES, sizeof(*c->entries)),
                              .payload = malloc(OPEN_PAYLOAD_BYTES),
                              .payload_capacity = OPEN_PAYLOAD_BYTES};
    CHECK(c->entries != NULL && c->payload != NULL);
}

static void chunk_end(struct image_chunk *c)
{
    free(c->entries);
    free(c->payload);
    memset(c, 0, sizeof(*c));
}

static struct chunk_entry *chunk_add(struct image_chunk *c, const struct chunk_entry *e, const void *bytes)
{
    CHECK_LT(c->entry_count, OPEN_ENTRIES);
    CHECK_LE(c->payload_bytes + e->length, c->payload_capacity);
    struct chunk_entry *added = &c->entries[c->entry_count++];
    *added = *e;
    if (e->length != 0) {
        memcpy(c->payload + c->payload_bytes, bytes, e->length);
        added->checksum = checksum_of(bytes, e->length);
    }
    c->payload_bytes += e->length;
    return added;
}

/* Encodes the chunk where the head stands; payload offsets are filled into the entries. */
static void chunk_write(struct image *img, struct image_head *h, struct image_chunk *c, uint32_t flags,
                        enum image_object object, unsigned number)
{
    const size_t table_bytes = chunk_table_bytes(c->entries, c->entry_count);
    uint8_t *buf = head_bytes(img, h);
    uint32_t offset = CHUNK_HEADER_BYTES + (uint32_t)table_bytes;
    memcpy(buf + offset, c->payload, c->payload_bytes);
    for (uint32_t i = 0; i < c->entry_count; i++) {
        c->entries[i].payload_offset = c->entries[i].length != 0 ? offset : 0;
        offset += c->entries[i].length;
    }
    c->header = (struct chunk_header){.head = h->head,
                                      .flags = flags,
                                      .address = head_address(h),
                                      .incarnation = img->incarnation,
                                      .wall_ns = 1,
                                      .sequence = h->sequence + ((flags & CHUNK_FLAG_COPY) == 0)};
    h->sequence = c->header.sequence;
    memcpy(c->header.pool_uuid, img->pool_uuid, sizeof(img->pool_uuid));
    for (unsigned k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        c->header.next_slots[k] = SLOT_NONE;
    if (h->head == CHUNK_HEAD_DATA) {
        c->header.previous_chain = h->chain;
        c->header.durable_to = img->durable_to;
        c->header.next_slots[0] = img->next_slot;
        c->header.next_segments_first = img->next_slot_segment;
    }
    tamper(img, object, number, c);
    chunk_encode(&c->header, c->entries, c->entry_count, buf, IMAGE_UNIT_BYTES);
    h->chain = c->header.chain;
    img->last_chunk_bytes = c->header.chunk_bytes;
}

static uint32_t chunk_bytes(const struct image_chunk *c, bool with_trailer)
{
    return chunk_size_bytes(chunk_table_bytes(c->entries, c->entry_count), c->payload_bytes, IMAGE_UNIT_BYTES,
                            with_trailer);
}

/* Both copies of a node chunk. Physical: pointers of the slot table, which hold places instead of log addresses. */
static void node_chunk_write(struct image *img, struct image_chunk *c, struct pointer *const *pointers, bool physical)
{
    const uint32_t n = chunk_bytes(c, false);
    if (c->entry_count == 0)
        return;
    if (img->node.slot == SLOT_NONE || IMAGE_SEGMENT_BYTES - img->node.position_bytes <= 2 * n)
        advance(img, &img->node);
    img->last_node_chunk = (uint64_t)(head_bytes(img, &img->node) - img->bytes);
    const uint64_t base =
        physical ? (uint64_t)img->node.slot * IMAGE_SEGMENT_BYTES + img->node.position_bytes : head_address(&img->node);
    for (unsigned copy = 0; copy < 2; copy++) {
        chunk_write(img, &img->node, c, copy == 1 ? CHUNK_FLAG_COPY : 0, IMAGE_NODE_CHUNK, copy);
        for (uint32_t i = 0; i < c->entry_count && copy == 0; i++)
            pointers[i]->address = base + c->entries[i].payload_offset;
        img->node.position_bytes += n;
    }
}

/* Adds an object to a node chunk; its pointer is complete but for the address. */
static void node_chunk_add(struct image_chunk *c, const struct chunk_entry *e, const void *bytes,
                           struct pointer *ret_pointer)
{
    const struct chunk_entry *added = chunk_add(c, e, bytes);
    *ret_pointer = (struct pointer){.length = e->length,
                                    .kind = e->kind == ENTRY_NODE ? POINTER_NODE : POINTER_DATA,
                                    .codec = e->codec,
                                    .checksum_kind = CHECKSUM_KIND_XXH3_128,
                                    .checksum = added->checksum};
}

/* ---- data ---- */

static struct image_record *record_of(struct image *img, unsigned v, uint64_t index)
{
    CHECK_LT(v, img->volume_count);
    CHECK_LT(index, IMAGE_RECORDS_MAX);
    img->volumes[v].leaf_changed[index >> MAP_LEAF_BITS] = true;
    return &img->volumes[v].records[index];
}

/* Bytes that compress, but not to nothing. */
static void fill(uint8_t *bytes, size_t n, int seed)
{
    struct prng r;
    prng_seed(&r, (uint64_t)seed);
    memset(bytes, seed, n);
    for (size_t i = 0; i + 16 <= n; i += 16)
        prng_fill(&r, bytes + i, 5);
}

/* Adds an entry with bytes; what it will be pointed to by. */
static struct pointer add_bytes(struct image *img, struct chunk_entry *e, size_t raw_bytes, int seed)
{
    uint8_t *raw = malloc(raw_bytes), *packed = malloc(raw_bytes);
    CHECK(raw != NULL && packed != NULL);
    fill(raw, raw_bytes, seed);
    size_t length = 0;
    if (e->codec != CODEC_OFF)
        length =
            codec_compress(img->codec, (struct codec_choice){.id = e->codec, .level = e->codec == CODEC_ZSTD ? 3 : 0},
                           raw, raw_bytes, packed, raw_bytes);
    if (length == 0)
        e->codec = CODEC_OFF;
    e->length = (uint32_t)(length != 0 ? length : raw_bytes);
    const struct chunk_entry *added = chunk_add(&img->open, e, length != 0 ? packed : raw);
    struct pointer p = {.length = e->length,
                        .kind = e->kind == ENTRY_PATCH ? POINTER_PATCH : POINTER_DATA,
                        .codec = e->codec,
                        .checksum_kind = CHECKSUM_KIND_XXH3_128,
                        .checksum = added->checksum,
                        /* For now the number of the entry; image_seal knows the address. */
                        .address = img->open.entry_count - 1};
    free(raw);
    free(packed);
    return p;
}

void image_write_codec(struct image *img, unsigned v, uint64_t index, int seed, uint8_t codec)
{
    struct image_record *r = record_of(img, v, index);
    const struct catalog_volume *c = &img->volumes[v].catalog;
    struct chunk_entry e = {.kind = ENTRY_DATA, .branch = c->branch, .index = index, .count = 1, .codec = codec};
    r->base = add_bytes(img, &e, c->record_bytes, seed);
    r->base.address |= UINT64_C(1) << 63;
    r->patch_count = 0;
}

void image_write_lossy(struct image *img, unsigned v, uint64_t index, int seed)
{
    struct image_record *r = record_of(img, v, index);
    const struct catalog_volume *c = &img->volumes[v].catalog;
    struct chunk_entry e = {
        .kind = ENTRY_DATA, .branch = c->branch, .index = index, .count = 1, .flags = POINTER_LOSSY};
    r->base = add_bytes(img, &e, c->record_bytes + RECORD_LOSS_MAP_BYTES(c->record_bytes), seed);
    r->base.flags = POINTER_LOSSY;
    r->base.address |= UINT64_C(1) << 63;
    r->patch_count = 0;
}

void image_write(struct image *img, unsigned v, uint64_t index, int seed)
{
    image_write_codec(img, v, index, seed, CODEC_LZ4);
}

void image_patch(struct image *img, unsigned v, uint64_t index, uint16_t first_sector, uint16_t sector_count, int seed)
{
    struct image_record *r = record_of(img, v, index);
    struct chunk_entry e = {.kind = ENTRY_PATCH,
                            .branch = img->volumes[v].catalog.branch,
                            .index = index,
                            .count = 1,
                            .first_sector = first_sector,
                            .sector_count = sector_count};
    CHECK_LT(r->patch_count, PATCHES_PER_RECORD_MAX);
    struct patch *p = &r->patches[r->patch_count++];
    *p = (struct patch){.first_sector = first_sector,
                        .sector_count = sector_count,
                        .pointer = add_bytes(img, &e, (size_t)sector_count * SECTOR_BYTES, seed)};
    p->pointer.address |= UINT64_C(1) << 63;
}

static void add_range(struct image *img, unsigned v, uint64_t index, uint64_t count, uint8_t kind)
{
    const struct chunk_entry e = {
        .kind = kind, .branch = img->volumes[v].catalog.branch, .index = index, .count = count};
    chunk_add(&img->open, &e, NULL);
    for (uint64_t i = index; i < index + count; i++) {
        struct image_record *r = record_of(img, v, i);
        r->base = (struct pointer){.kind = kind == ENTRY_TRIM ? POINTER_HOLE : POINTER_PROVISIONED,
                                   .address = UINT64_C(1) << 63 | (img->open.entry_count - 1)};
        r->patch_count = 0;
    }
}

void image_trim(struct image *img, unsigned v, uint64_t index, uint64_t count)
{
    add_range(img, v, index, count, ENTRY_TRIM);
}

void image_zero(struct image *img, unsigned v, uint64_t index, uint64_t count)
{
    add_range(img, v, index, count, ENTRY_ZERO);
}

/* Pointers made since the last seal learn their addresses. */
static void settle_pointer(const struct image_chunk *c, struct pointer *p)
{
    if ((p->address >> 63) == 0)
        return;
    const struct chunk_entry *e = &c->entries[p->address & UINT32_MAX];
    p->address = c->header.address + e->payload_offset;
}

static void settle(struct image *img)
{
    for (unsigned v = 0; v < img->volume_count; v++)
        for (unsigned i = 0; i < IMAGE_RECORDS_MAX; i++) {
            struct image_record *r = &img->volumes[v].records[i];
            settle_pointer(&img->open, &r->base);
            for (unsigned k = 0; k < r->patch_count; k++)
                settle_pointer(&img->open, &r->patches[k].pointer);
        }
}

static uint64_t seal(struct image *img, uint32_t flags)
{
    const uint32_t n = chunk_bytes(&img->open, true);
    /* The last unit is kept for a bridge. */
    if (flags == 0 && IMAGE_SEGMENT_BYTES - img->data.position_bytes <= n)
        advance(img, &img->data);
    const uint64_t offset = (uint64_t)(head_bytes(img, &img->data) - img->bytes);
    chunk_write(img, &img->data, &img->open, flags, IMAGE_DATA_CHUNK, 0);
    img->data.position_bytes += n;
    settle(img);
    chunk_end(&img->open);
    chunk_begin(&img->open);
    img->last_data_chunk = offset;
    return offset;
}

uint64_t image_seal(struct image *img)
{
    return seal(img, 0);
}

void image_bridge(struct image *img)
{
    CHECK_EQ(img->open.entry_count, 0);
    img->incarnation++;
    img->durable_to = head_address(&img->data);
    img->next_segment += 10;
    /* What was chosen ahead is chosen anew, so that segment numbers grow along the log. */
    const uint32_t forgotten = img->next_slot;
    img->next_slot = take_slot(img, CHUNK_HEAD_DATA, &img->next_slot_segment);
    img->slots[forgotten] = (struct slot){.state = SLOT_READY};
    const struct chunk_entry e = {.kind = ENTRY_BRIDGE, .index = img->next_slot_segment, .count = img->next_slot};
    chunk_add(&img->open, &e, NULL);
    seal(img, CHUNK_FLAG_BRIDGE);
    advance(img, &img->data);
}

/* ---- checkpoint ---- */

static void write_leaf(struct image *img, struct image_chunk *c, unsigned v, unsigned number,
                       struct pointer *ret_pointer)
{
    struct image_volume *vol = &img->volumes[v];
    struct node *n = calloc(1, sizeof(*n));
    struct node_patch *patches = calloc(NODE_PATCHES_MAX, sizeof(*patches));
    CHECK(n != NULL && patches != NULL);
    *n = (struct node){.branch = vol->catalog.branch, .number = number, .patches = patches};
    for (unsigned i = 0; i < map_fanout(0); i++) {
        const struct image_record *r = &vol->records[(number << MAP_LEAF_BITS) + i];
        n->children[i] = r->base;
        for (unsigned k = 0; k < r->patch_count; k++)
            patches[n->patch_count++] = (struct node_patch){.child = (uint8_t)i, .patch = r->patches[k]};
    }
    tamper(img, IMAGE_LEAF, number, n);
    const size_t room = node_encoded_bytes_max(0, n->patch_count);
    uint8_t *buf = malloc(room);
    CHECK(buf != NULL);
    const struct chunk_entry e = {.kind = ENTRY_NODE,
                                  .branch = n->branch,
                                  .index = number,
                                  .count = 1,
                                  .length = (uint32_t)node_encode(n, buf, room)};
    node_chunk_add(c, &e, buf, ret_pointer);
    free(buf);
    free(n);
    free(patches);
}

/* A node above leaves (or, for the pool's own trees, a leaf of record pointers). */
static void write_node(struct image *img, struct image_chunk *c, uint64_t branch, uint8_t level,
                       const struct pointer *children, unsigned count, struct pointer *ret_pointer)
{
    struct node *n = calloc(1, sizeof(*n));
    CHECK(n != NULL);
    *n = (struct node){.branch = branch, .level = level};
    memcpy(n->children, children, count * sizeof(*children));
    if (level > 0)
        tamper(img, IMAGE_INNER, 0, n);
    const size_t room = node_encoded_bytes_max(level, 0);
    uint8_t *buf = malloc(room);
    CHECK(buf != NULL);
    const struct chunk_entry e = {.kind = ENTRY_NODE,
                                  .level = level,
                                  .branch = branch,
                                  .count = 1,
                                  .length = (uint32_t)node_encode(n, buf, room)};
    node_chunk_add(c, &e, buf, ret_pointer);
    free(buf);
    free(n);
}

static unsigned leaf_count(const struct image_volume *v)
{
    const uint64_t records = div_ceil(v->catalog.size_bytes, v->catalog.record_bytes);
    return (unsigned)div_ceil(records, map_fanout(0));
}

static bool leaf_empty(const struct image_volume *v, unsigned number)
{
    for (unsigned i = 0; i < map_fanout(0); i++)
        if (v->records[(number << MAP_LEAF_BITS) + i].base.kind != POINTER_ABSENT ||
            v->records[(number << MAP_LEAF_BITS) + i].patch_count != 0)
            return false;
    return true;
}

static void write_maps(struct image *img)
{
    struct image_chunk leaves, roots;
    struct pointer *leaf_pointers[OPEN_ENTRIES], *root_pointers[OPEN_ENTRIES];
    bool changed[IMAGE_VOLUMES_MAX] = {false};
    chunk_begin(&leaves);
    for (unsigned v = 0; v < img->volume_count; v++)
        for (unsigned i = 0; i < leaf_count(&img->volumes[v]); i++) {
            struct image_volume *vol = &img->volumes[v];
            if (!vol->leaf_changed[i] || leaf_empty(vol, i) || vol->gone)
                continue;
            changed[v] = true;
            vol->leaf_changed[i] = false;
            leaf_pointers[leaves.entry_count] = &vol->leaves[i];
            write_leaf(img, &leaves, v, i, &vol->leaves[i]);
        }
    node_chunk_write(img, &leaves, leaf_pointers, false);
    chunk_end(&leaves);
    chunk_begin(&roots);
    for (unsigned v = 0; v < img->volume_count; v++) {
        struct image_volume *vol = &img->volumes[v];
        if (!changed[v])
            continue;
        if (vol->catalog.height == 1) {
            vol->catalog.root = vol->leaves[0];
            continue;
        }
        root_pointers[roots.entry_count] = &vol->catalog.root;
        write_node(img, &roots, vol->catalog.branch, 1, vol->leaves, leaf_count(vol), &vol->catalog.root);
    }
    node_chunk_write(img, &roots, root_pointers, false);
    chunk_end(&roots);
}

static void count_live(struct image *img, uint64_t address, uint32_t length)
{
    for (uint32_t slot = 0; slot < IMAGE_SLOTS; slot++)
        if (img->slots[slot].state >= SLOT_NEXT && img->slots[slot].segment == address / IMAGE_SEGMENT_BYTES)
            img->slots[slot].live_bytes += length;
}

static void count_volume(struct image *img, struct image_volume *vol)
{
    struct catalog_volume *c = &vol->catalog;
    c->mapped_records = c->stored_bytes = c->node_bytes = c->provisioned_records = 0;
    for (unsigned i = 0; i < IMAGE_RECORDS_MAX; i++) {
        const struct image_record *r = &vol->records[i];
        c->mapped_records += r->base.kind == POINTER_DATA || r->patch_count != 0;
        c->provisioned_records += r->base.kind == POINTER_PROVISIONED;
        c->stored_bytes += r->base.length;
        if (r->base.kind == POINTER_DATA)
            count_live(img, r->base.address, r->base.length);
        for (unsigned k = 0; k < r->patch_count; k++) {
            c->stored_bytes += r->patches[k].pointer.length;
            count_live(img, r->patches[k].pointer.address, r->patches[k].pointer.length);
        }
    }
    for (unsigned i = 0; i < leaf_count(vol); i++) {
        if (vol->leaves[i].kind != POINTER_NODE)
            continue;
        c->node_bytes += vol->leaves[i].length;
        count_live(img, vol->leaves[i].address, vol->leaves[i].length);
    }
    if (c->height > 1 && c->root.kind == POINTER_NODE) {
        c->node_bytes += c->root.length;
        count_live(img, c->root.address, c->root.length);
    }
}

static void write_catalog(struct image *img)
{
    struct image_chunk objects, leaf;
    struct pointer children[IMAGE_VOLUMES_MAX + BRANCH_FIRST_USER] = {0}, *pointers[OPEN_ENTRIES];
    for (uint32_t slot = 0; slot < IMAGE_SLOTS; slot++)
        img->slots[slot].live_bytes = 0;
    chunk_begin(&objects);
    for (unsigned v = 0; v < img->volume_count; v++) {
        uint8_t buf[CATALOG_OBJECT_BYTES_MAX] = {0};
        if (img->volumes[v].gone)
            continue;
        count_volume(img, &img->volumes[v]);
        struct catalog_volume c = img->volumes[v].catalog;
        tamper(img, IMAGE_CATALOG, v, &c);
        catalog_volume_encode(&c, buf, sizeof(buf));
        uint8_t packed[CATALOG_OBJECT_BYTES_MAX];
        const uint64_t id = img->volumes[v].catalog.object_id;
        struct chunk_entry e = {.kind = ENTRY_DATA, .branch = BRANCH_CATALOG, .index = id, .count = 1};
        e.codec = CODEC_LZ4;
        e.length = (uint32_t)codec_compress(img->codec, (struct codec_choice){.id = CODEC_LZ4}, buf, sizeof(buf),
                                            packed, sizeof(packed));
        CHECK_GT(e.length, 0);
        pointers[objects.entry_count] = &children[id];
        node_chunk_add(&objects, &e, packed, &children[id]);
    }
    img->catalog_root = (struct pointer){0};
    if (objects.entry_count > 0) {
        node_chunk_write(img, &objects, pointers, false);
        chunk_begin(&leaf);
        pointers[0] = &img->catalog_root;
        write_node(img, &leaf, BRANCH_CATALOG, 0, children, sizeof(children) / sizeof(children[0]), &img->catalog_root);
        node_chunk_write(img, &leaf, pointers, false);
        chunk_end(&leaf);
    }
    chunk_end(&objects);
}

/* true if the pool's own trees have something in the slot. */
static bool holds_own(const struct image *img, uint32_t slot)
{
    /* The catalog and the table are written whole at each checkpoint, so they are where the node head stands now or
     * began this checkpoint; a little more is kept than need be. */
    return img->slots[slot].head == CHUNK_HEAD_NODE && img->slots[slot].since >= img->checkpoint;
}

static void retire_slots(struct image *img)
{
    for (uint32_t slot = 0; slot < IMAGE_SLOTS; slot++) {
        struct slot *s = &img->slots[slot];
        if (s->state == SLOT_QUARANTINED && s->since + 2 <= img->checkpoint)
            *s = (struct slot){.state = SLOT_READY, .since = img->checkpoint};
        if (s->state != SLOT_CLOSED || s->live_bytes != 0 || holds_own(img, slot))
            continue;
        if (s->head == CHUNK_HEAD_DATA && s->segment >= img->data.segment)
            continue;
        s->state = SLOT_QUARANTINED;
        s->since = img->checkpoint;
    }
}

static void write_table(struct image *img)
{
    struct image_chunk record, leaf;
    struct pointer child, *pointers[1] = {&child};
    /* The table must know the segment it lies in: it goes on to the next one before it is made. */
    if (img->node.slot == SLOT_NONE || IMAGE_SEGMENT_BYTES - img->node.position_bytes < 4 * 2 * IMAGE_UNIT_BYTES)
        advance(img, &img->node);
    retire_slots(img);
    struct slot slots[SLOTS_PER_TABLE_RECORD] = {0};
    uint8_t raw[TABLE_RECORD_BYTES];
    memcpy(slots, img->slots, sizeof(img->slots));
    tamper(img, IMAGE_TABLE, 0, slots);
    table_record_encode(slots, 0, raw);
    const struct chunk_entry e = {.kind = ENTRY_DATA, .branch = BRANCH_SLOT_TABLE, .count = 1, .length = sizeof(raw)};
    chunk_begin(&record);
    node_chunk_add(&record, &e, raw, &child);
    node_chunk_write(img, &record, pointers, true);
    chunk_end(&record);
    chunk_begin(&leaf);
    pointers[0] = &img->table_root;
    write_node(img, &leaf, BRANCH_SLOT_TABLE, 0, &child, 1, &img->table_root);
    node_chunk_write(img, &leaf, pointers, true);
    chunk_end(&leaf);
}

static void fill_label(const struct image *img, struct label *l)
{
    *l = (struct label){.device_count = 1,
                        .sequence = img->sequence,
                        .oldest_intact = max_u64(img->sequence, 2) - 1,
                        .checkpoint = img->checkpoint,
                        .incarnation = img->incarnation,
                        .flags = img->label_flags,
                        .write_unit_bytes = IMAGE_UNIT_BYTES,
                        .segment_bytes = IMAGE_SEGMENT_BYTES,
                        .lookahead_count = 1,
                        .next_segment = img->next_segment,
                        .next_branch = img->next_branch,
                        .replay_address = head_address(&img->data),
                        .replay_chain = img->data.chain,
                        .replay_slot = img->data.slot,
                        .node_slot = img->node.slot,
                        .node_address = head_address(&img->node),
                        .root_count = 2};
    memcpy(l->pool_uuid, img->pool_uuid, sizeof(l->pool_uuid));
    l->devices[0] = (struct label_device){.state = LABEL_DEVICE_ACTIVE,
                                          .size_bytes = IMAGE_BYTES,
                                          .data_start_bytes = IMAGE_RING_BYTES,
                                          .slot_count = IMAGE_SLOTS};
    for (unsigned k = 0; k < LOOKAHEAD_SLOTS_MAX; k++)
        l->replay_next_slots[k] = SLOT_NONE;
    l->replay_next_slots[0] = img->next_slot;
    l->replay_next_segments[0] = img->next_slot_segment;
    l->roots[0] = (struct label_root){
        .kind = ROOT_CATALOG, .height = img->catalog_root.kind == POINTER_NODE, .pointer = img->catalog_root};
    l->roots[1] = (struct label_root){.kind = ROOT_SLOT_TABLE, .height = 1, .pointer = img->table_root};
}

void image_label(struct image *img)
{
    img->sequence++;
    for (unsigned back = 0; back <= (img->front_only ? 0u : 1u); back++) {
        struct label l;
        fill_label(img, &l);
        l.in_back_ring = back != 0;
        tamper(img, IMAGE_LABEL, back, &l);
        const uint64_t offset =
            label_offset_bytes(IMAGE_BYTES, IMAGE_UNIT_BYTES, back != 0, (uint32_t)(l.sequence % LABEL_RING_SLOTS));
        label_encode(&l, img->bytes + offset, IMAGE_UNIT_BYTES);
        *(back != 0 ? &img->last_label_back : &img->last_label_front) = offset;
    }
}

void image_checkpoint(struct image *img)
{
    CHECK_EQ(img->open.entry_count, 0);
    img->checkpoint++;
    write_maps(img);
    write_catalog(img);
    write_table(img);
    img->durable_to = head_address(&img->data);
    image_label(img);
}

/* ---- life ---- */

unsigned image_volume(struct image *img, const char *name, uint64_t size_bytes, uint32_t record_bytes)
{
    CHECK_LT(img->volume_count, IMAGE_VOLUMES_MAX);
    struct image_volume *v = &img->volumes[img->volume_count];
    struct catalog_volume *c = &v->catalog;
    *c = (struct catalog_volume){.object_id = img->next_branch,
                                 .branch = img->next_branch,
                                 .size_bytes = size_bytes,
                                 .record_bytes = record_bytes,
                                 .codec = {.id = CODEC_LZ4},
                                 .created_wall_ns = 1,
                                 .height = map_height_for(div_ceil(size_bytes, record_bytes))};
    CHECK_LE(c->height, 2);
    CHECK_LE(leaf_count(v), IMAGE_LEAVES_MAX);
    memset(c->guid, (int)img->next_branch, sizeof(c->guid));
    CHECK_LT(strlen(name), sizeof(c->name));
    memcpy(c->name, name, strlen(name));
    img->next_branch++;
    return img->volume_count++;
}

struct image *image_new(void)
{
    struct image *img = calloc(1, sizeof(*img));
    CHECK(img != NULL);
    img->bytes = calloc(1, IMAGE_BYTES);
    img->volumes = calloc(IMAGE_VOLUMES_MAX, sizeof(*img->volumes));
    img->codec = codec_context_new();
    CHECK(img->bytes != NULL && img->volumes != NULL && img->codec != NULL);
    memset(img->pool_uuid, 0xa5, sizeof(img->pool_uuid));
    img->incarnation = 1000;
    img->next_segment = 1;
    img->next_branch = BRANCH_FIRST_USER;
    img->data = (struct image_head){.head = CHUNK_HEAD_DATA, .slot = SLOT_NONE};
    img->node = (struct image_head){.head = CHUNK_HEAD_NODE, .slot = SLOT_NONE};
    chunk_begin(&img->open);
    uint64_t segment;
    const uint32_t slot = take_slot(img, CHUNK_HEAD_DATA, &segment);
    open_segment(img, &img->data, slot, segment);
    img->next_slot = take_slot(img, CHUNK_HEAD_DATA, &img->next_slot_segment);
    return img;
}

static void close_disk(struct image *img)
{
    if (img->disk == NULL)
        return;
    device_close(img->dev);
    sim_disk_free(img->disk);
    sim_free(img->sim);
    img->disk = NULL;
}

struct device *image_device(struct image *img)
{
    close_disk(img);
    img->sim = sim_new(1);
    img->disk = sim_disk_new(img->sim, IMAGE_BYTES, 4096);
    img->dev = sim_disk_open(img->disk, false);
    CHECK(img->dev != NULL);
    uint8_t *buffer = device_buffer_new(IMAGE_BYTES);
    CHECK(buffer != NULL);
    memcpy(buffer, img->bytes, IMAGE_BYTES);
    CHECK_EQ(device_write(img->dev, 0, buffer, IMAGE_BYTES), 0);
    CHECK_EQ(device_flush(img->dev), 0);
    device_buffer_free(buffer);
    return img->dev;
}

void image_reload(struct image *img)
{
    sim_disk_peek(img->disk, 0, img->bytes, IMAGE_BYTES);
}

void image_damage(struct image *img, uint64_t offset, uint64_t length)
{
    struct prng r;
    prng_seed(&r, offset ^ length);
    CHECK(range_inside(offset, length, IMAGE_BYTES));
    prng_fill(&r, img->bytes + offset, length);
}

void image_free(struct image *img)
{
    close_disk(img);
    chunk_end(&img->open);
    codec_context_free(img->codec);
    free(img->volumes);
    free(img->bytes);
    free(img);
}
