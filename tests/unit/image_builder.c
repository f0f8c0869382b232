/*
 * Segments, chunks and data of an image. See image_builder.h.
 */
#include "image_builder_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"

void image_tamper(struct image *img, enum image_object object, unsigned number, void *value)
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

void image_advance(struct image *img, struct image_head *h)
{
    uint64_t segment = img->next_slot_segment;
    uint32_t slot = img->next_slot;
    if (h->head == CHUNK_HEAD_NODE)
        slot = take_slot(img, CHUNK_HEAD_NODE, &segment);
    open_segment(img, h, slot, segment);
    if (h->head == CHUNK_HEAD_DATA)
        img->next_slot = take_slot(img, CHUNK_HEAD_DATA, &img->next_slot_segment);
}

uint64_t image_head_address(const struct image_head *h)
{
    return h->segment * IMAGE_SEGMENT_BYTES + h->position_bytes;
}

uint8_t *image_head_bytes(struct image *img, const struct image_head *h)
{
    return img->bytes + IMAGE_RING_BYTES + (size_t)h->slot * IMAGE_SEGMENT_BYTES + h->position_bytes;
}

/* ---- chunks ---- */

void image_chunk_begin(struct image_chunk *c)
{
    *c = (struct image_chunk){.entries = calloc(OPEN_ENTRIES, sizeof(*c->entries)),
                              .payload = malloc(OPEN_PAYLOAD_BYTES),
                              .payload_capacity = OPEN_PAYLOAD_BYTES};
    CHECK(c->entries != NULL && c->payload != NULL);
}

void image_chunk_end(struct image_chunk *c)
{
    free(c->entries);
    free(c->payload);
    memset(c, 0, sizeof(*c));
}

struct chunk_entry *image_chunk_add(struct image_chunk *c, const struct chunk_entry *e, const void *bytes)
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
void image_chunk_write(struct image *img, struct image_head *h, struct image_chunk *c, uint32_t flags,
                       enum image_object object, unsigned number)
{
    const size_t table_bytes = chunk_table_bytes(c->entries, c->entry_count);
    uint8_t *buf = image_head_bytes(img, h);
    const uint32_t echo_bytes = h->head == CHUNK_HEAD_DATA ? img->echo_bytes : 0;
    uint32_t offset = CHUNK_HEADER_BYTES + (uint32_t)table_bytes + echo_bytes;
    memcpy(buf + offset - echo_bytes, img->echo, echo_bytes);
    memcpy(buf + offset, c->payload, c->payload_bytes);
    for (uint32_t i = 0; i < c->entry_count; i++) {
        c->entries[i].payload_offset = c->entries[i].length != 0 ? offset : 0;
        offset += c->entries[i].length;
    }
    c->header = (struct chunk_header){.head = h->head,
                                      .flags = flags,
                                      .address = image_head_address(h),
                                      .incarnation = img->incarnation,
                                      .wall_ns = 1,
                                      .echo_bytes = echo_bytes,
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
    image_tamper(img, object, number, c);
    chunk_encode(&c->header, c->entries, c->entry_count, buf, IMAGE_UNIT_BYTES);
    h->chain = c->header.chain;
    if (h->head == CHUNK_HEAD_DATA) {
        img->echo_bytes = c->header.chunk_bytes == IMAGE_UNIT_BYTES ? CHUNK_HEADER_BYTES + (uint32_t)table_bytes : 0;
        memcpy(img->echo, buf, img->echo_bytes);
    }
    img->last_chunk_bytes = c->header.chunk_bytes;
}

uint32_t image_chunk_bytes(const struct image *img, const struct image_chunk *c, enum chunk_copy copy)
{
    return chunk_size_bytes(chunk_table_bytes(c->entries, c->entry_count),
                            c->payload_bytes + (copy == CHUNK_COPY_NONE ? 0 : img->echo_bytes), IMAGE_UNIT_BYTES, copy);
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
    const struct chunk_entry *added = image_chunk_add(&img->open, e, length != 0 ? packed : raw);
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
    image_chunk_add(&img->open, &e, NULL);
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
    const uint32_t n = image_chunk_bytes(img, &img->open, chunk_copy_of(CHUNK_HEAD_DATA, flags));
    /* The last two units are kept for a bridge. */
    if (flags == 0 && IMAGE_SEGMENT_BYTES - img->data.position_bytes < n + 2 * IMAGE_UNIT_BYTES)
        image_advance(img, &img->data);
    const uint64_t offset = (uint64_t)(image_head_bytes(img, &img->data) - img->bytes);
    image_chunk_write(img, &img->data, &img->open, flags, IMAGE_DATA_CHUNK, 0);
    img->data.position_bytes += n;
    settle(img);
    image_chunk_end(&img->open);
    image_chunk_begin(&img->open);
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
    img->durable_to = image_head_address(&img->data);
    img->next_segment += 10;
    /* What was chosen ahead is chosen anew, so that segment numbers grow along the log. */
    const uint32_t forgotten = img->next_slot;
    img->next_slot = take_slot(img, CHUNK_HEAD_DATA, &img->next_slot_segment);
    img->slots[forgotten] = (struct slot){.state = SLOT_READY};
    const struct chunk_entry e = {.kind = ENTRY_BRIDGE, .index = img->next_slot_segment, .count = img->next_slot};
    image_chunk_add(&img->open, &e, NULL);
    seal(img, CHUNK_FLAG_BRIDGE);
    image_advance(img, &img->data);
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
    CHECK_LE(image_leaf_count(v), IMAGE_LEAVES_MAX);
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
    image_chunk_begin(&img->open);
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
    image_chunk_end(&img->open);
    codec_context_free(img->codec);
    free(img->volumes);
    free(img->bytes);
    free(img);
}
