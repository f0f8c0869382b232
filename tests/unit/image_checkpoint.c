/*
 * Checkpoints of an image. See image_builder.h. The order of things is the engine's: leaves, roots, catalog objects and
 * their leaf, table records and their leaf, each kind in a chunk (written twice) of its own, so that addresses fall
 * from parent to child; then the label.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "image_builder_impl.h"

/* Both copies of a node chunk. Physical: pointers of the slot table, which hold places instead of log addresses. */
static void node_chunk_write(struct image *img, struct image_chunk *c, struct pointer *const *pointers, bool physical)
{
    const uint32_t n = image_chunk_bytes(img, c, CHUNK_COPY_NONE);
    if (c->entry_count == 0)
        return;
    if (img->node.slot == SLOT_NONE || IMAGE_SEGMENT_BYTES - img->node.position_bytes <= 2 * n)
        image_advance(img, &img->node);
    img->last_node_chunk = (uint64_t)(image_head_bytes(img, &img->node) - img->bytes);
    const uint64_t base = physical ? (uint64_t)img->node.slot * IMAGE_SEGMENT_BYTES + img->node.position_bytes
                                   : image_head_address(&img->node);
    for (unsigned copy = 0; copy < 2; copy++) {
        image_chunk_write(img, &img->node, c, copy == 1 ? CHUNK_FLAG_COPY : 0, IMAGE_NODE_CHUNK, copy);
        for (uint32_t i = 0; i < c->entry_count && copy == 0; i++)
            pointers[i]->address = base + c->entries[i].payload_offset;
        img->node.position_bytes += n;
    }
}

/* Adds an object to a node chunk; its pointer is complete but for the address. */
static void node_chunk_add(struct image_chunk *c, const struct chunk_entry *e, const void *bytes,
                           struct pointer *ret_pointer)
{
    const struct chunk_entry *added = image_chunk_add(c, e, bytes);
    *ret_pointer = (struct pointer){.length = e->length,
                                    .kind = e->kind == ENTRY_NODE ? POINTER_NODE : POINTER_DATA,
                                    .codec = e->codec,
                                    .checksum_kind = CHECKSUM_KIND_XXH3_128,
                                    .checksum = added->checksum};
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
    image_tamper(img, IMAGE_LEAF, number, n);
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
        image_tamper(img, IMAGE_INNER, 0, n);
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

unsigned image_leaf_count(const struct image_volume *v)
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
    image_chunk_begin(&leaves);
    for (unsigned v = 0; v < img->volume_count; v++)
        for (unsigned i = 0; i < image_leaf_count(&img->volumes[v]); i++) {
            struct image_volume *vol = &img->volumes[v];
            if (!vol->leaf_changed[i] || leaf_empty(vol, i) || vol->gone)
                continue;
            changed[v] = true;
            vol->leaf_changed[i] = false;
            leaf_pointers[leaves.entry_count] = &vol->leaves[i];
            write_leaf(img, &leaves, v, i, &vol->leaves[i]);
        }
    node_chunk_write(img, &leaves, leaf_pointers, false);
    image_chunk_end(&leaves);
    image_chunk_begin(&roots);
    for (unsigned v = 0; v < img->volume_count; v++) {
        struct image_volume *vol = &img->volumes[v];
        if (!changed[v])
            continue;
        if (vol->catalog.height == 1) {
            vol->catalog.root = vol->leaves[0];
            continue;
        }
        root_pointers[roots.entry_count] = &vol->catalog.root;
        write_node(img, &roots, vol->catalog.branch, 1, vol->leaves, image_leaf_count(vol), &vol->catalog.root);
    }
    node_chunk_write(img, &roots, root_pointers, false);
    image_chunk_end(&roots);
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
    for (unsigned i = 0; i < image_leaf_count(vol); i++) {
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
    image_chunk_begin(&objects);
    for (unsigned v = 0; v < img->volume_count; v++) {
        uint8_t buf[CATALOG_OBJECT_BYTES_MAX] = {0};
        if (img->volumes[v].gone)
            continue;
        count_volume(img, &img->volumes[v]);
        struct catalog_volume c = img->volumes[v].catalog;
        image_tamper(img, IMAGE_CATALOG, v, &c);
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
        image_chunk_begin(&leaf);
        pointers[0] = &img->catalog_root;
        write_node(img, &leaf, BRANCH_CATALOG, 0, children, sizeof(children) / sizeof(children[0]), &img->catalog_root);
        node_chunk_write(img, &leaf, pointers, false);
        image_chunk_end(&leaf);
    }
    image_chunk_end(&objects);
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
        image_advance(img, &img->node);
    retire_slots(img);
    struct slot slots[SLOTS_PER_TABLE_RECORD] = {0};
    uint8_t raw[TABLE_RECORD_BYTES];
    memcpy(slots, img->slots, sizeof(img->slots));
    image_tamper(img, IMAGE_TABLE, 0, slots);
    table_record_encode(slots, 0, raw);
    const struct chunk_entry e = {.kind = ENTRY_DATA, .branch = BRANCH_SLOT_TABLE, .count = 1, .length = sizeof(raw)};
    image_chunk_begin(&record);
    node_chunk_add(&record, &e, raw, &child);
    node_chunk_write(img, &record, pointers, true);
    image_chunk_end(&record);
    image_chunk_begin(&leaf);
    pointers[0] = &img->table_root;
    write_node(img, &leaf, BRANCH_SLOT_TABLE, 0, &child, 1, &img->table_root);
    node_chunk_write(img, &leaf, pointers, true);
    image_chunk_end(&leaf);
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
                        .replay_address = image_head_address(&img->data),
                        .replay_chain = img->data.chain,
                        .replay_slot = img->data.slot,
                        .node_slot = img->node.slot,
                        .node_address = image_head_address(&img->node),
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
        image_tamper(img, IMAGE_LABEL, back, &l);
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
    img->durable_to = image_head_address(&img->data);
    image_label(img);
}
