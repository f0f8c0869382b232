/*
 * Encoders refuse what decoders would refuse: an object that is not valid is our own fault, and must stop the program
 * before it reaches a disk. Each change to a valid object is encoded in a child process, which must die by abort();
 * change 0 is none, and must not.
 */
#include "tap.h"
#include "seed.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format_objects.h"

#define UNIT 4096

static struct prng r;
static uint8_t buf[CHUNK_BYTES_MAX];

static bool aborts(void (*encode)(int change), int change)
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        encode(change);
        _exit(0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return false;
    const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (aborted != (change != 0))
        printf("# change %d: status 0x%x\n", change, (unsigned)status);
    return aborted;
}

static void expect_aborts(void (*encode)(int change), int change_count)
{
    EXPECT(!aborts(encode, 0));
    for (int change = 1; change <= change_count; change++)
        EXPECT(aborts(encode, change));
}

#define LABEL_CHANGES 6
static void encode_label(int change)
{
    struct label l;
    do
        l = random_label(&r);
    while (l.root_count != 2);
    uint32_t unit = l.write_unit_bytes;
    if (change == 1)
        l.devices[0].slot_count = UINT32_MAX;
    if (change == 2)
        l.roots[1].height = MAP_LEVELS_MAX + 1;
    if (change == 3)
        l.root_count = LABEL_ROOTS_MAX + 1;
    if (change == 4)
        l.roots[0].kind = ROOT_KEYS;
    if (change == 5)
        l.sequence = 0;
    if (change == 6)
        unit *= 2;
    label_encode(&l, buf, unit);
}

#define ENTRY_CHANGES 8
static void encode_entry(int change)
{
    struct chunk_entry e = {.kind = ENTRY_DATA, .branch = 16, .count = 1, .length = 100};
    if (change == 1)
        e.sector_count = 1;
    if (change == 2)
        e.level = 1;
    if (change == 3)
        e.count = 2;
    if (change == 4)
        e.kind = ENTRY_TRIM; /* with bytes */
    if (change == 5)
        e.kind = 0;
    if (change == 6)
        e = (struct chunk_entry){.kind = ENTRY_BRIDGE}; /* in a chunk that is no bridge */
    if (change == 7)
        e.kind = ENTRY_NODE; /* in the data head */
    if (change == 8)
        e = (struct chunk_entry){.kind = ENTRY_TRIM, .branch = 16, .count = 1, .checksum = {.high = 1}};
    struct chunk_header h = random_chunk_header(&r, CHUNK_HEAD_DATA, 0, UNIT);
    chunk_encode(&h, &e, 1, buf, UNIT);
}

#define CHUNK_CHANGES 4
static void encode_chunk(int change)
{
    static struct chunk_entry entries[CHUNK_ENTRIES_MAX + 1];
    const size_t count = change == 1 ? CHUNK_ENTRIES_MAX + 1 : 2;
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct chunk_entry){.kind = ENTRY_TRIM, .branch = 16, .count = 1};
    struct chunk_header h = random_chunk_header(&r, CHUNK_HEAD_DATA, 0, UNIT);
    if (change == 2)
        h.address += 512;
    if (change == 3)
        h.flags = CHUNK_FLAG_COPY;
    if (change == 4)
        h.next_slots[7] = SLOT_COUNT_MAX;
    chunk_encode(&h, entries, count, buf, UNIT);
}

#define NODE_CHANGES 7
static void encode_node(int change)
{
    static struct node n;
    static struct node_patch patches[NODE_PATCHES_MAX];
    random_node(&r, NODE_STYLE_ORDERED, 0, 500, 9, patches, &n);
    if (change == 1)
        n.level = MAP_LEVELS_MAX;
    if (change == 2)
        n.number = UINT64_C(1) << 48;
    if (change == 3)
        n.branch = 0;
    if (change == 4)
        n.children[5] = random_pointer(&r, POINTER_NODE);
    if (change == 5)
        n.patches[0].child = 127; /* before others */
    if (change == 6) {
        memset(n.children, 0, sizeof(n.children)); /* an inner node with patches */
        n.level = 1;
        n.number = 0;
    }
    (void)node_encode(&n, buf, change == 7 ? 50 : sizeof(buf));
}

#define VOLUME_CHANGES 4
static void encode_volume(int change)
{
    struct catalog_volume v = random_volume(&r);
    if (change == 1)
        v.name[0] = '/';
    if (change == 2)
        v.object_id = UINT64_C(1) << 55;
    if (change == 3)
        v.height = 0;
    (void)catalog_volume_encode(&v, buf, change == 4 ? 100 : sizeof(buf));
}

#define TABLE_CHANGES 3
static void encode_table(int change)
{
    struct slot slots[SLOTS_PER_TABLE_RECORD] = {{.state = SLOT_OPEN}};
    if (change == 1)
        slots[0].state = SLOT_DAMAGED;
    const uint32_t first_slots[] = {128, 128, 100, SLOT_COUNT_MAX};
    table_record_encode(slots, first_slots[change], buf);
}

#define POINTER_CHANGES 2
static void encode_pointer(int change)
{
    const struct pointer p = {.kind = change == 1 ? POINTER_ABSENT : POINTER_HOLE, .address = 1};
    struct sink out = sink_of(buf, change == 2 ? POINTER_BYTES - 1 : POINTER_BYTES);
    pointer_encode(&out, &p);
}

static void test_labels(void)
{
    expect_aborts(encode_label, LABEL_CHANGES);
}

static void test_chunks(void)
{
    expect_aborts(encode_entry, ENTRY_CHANGES);
    expect_aborts(encode_chunk, CHUNK_CHANGES);
}

static void test_nodes(void)
{
    expect_aborts(encode_node, NODE_CHANGES);
}

static void test_the_rest(void)
{
    expect_aborts(encode_volume, VOLUME_CHANGES);
    expect_aborts(encode_table, TABLE_CHANGES);
    expect_aborts(encode_pointer, POINTER_CHANGES);
}

int main(void)
{
    prng_seed(&r, seed_choose());
    RUN(test_labels);
    RUN(test_chunks);
    RUN(test_nodes);
    RUN(test_the_rest);
    return tap_done();
}
