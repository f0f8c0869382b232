/*
 * libashlar, synchronous calls: life of pools and volumes, data, errors and their texts, growth of structs, and that
 * the library keeps to itself.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "library_fixture.h"

static bool says(const struct fixture *f, const char *text)
{
    if (strstr(f->error.text, text) != NULL && strchr(f->error.text, '\n') == NULL)
        return true;
    fixture_report(f, "it says");
    return false;
}

static void test_version(void)
{
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", ASHLAR_VERSION_MAJOR, ASHLAR_VERSION_MINOR, ASHLAR_VERSION_PATCH);
    EXPECT_TEXT(ashlar_version_text(), text);
    EXPECT_EQ(ashlar_version(), ASHLAR_VERSION);
}

static void test_pool_life(void)
{
    struct fixture f;
    struct stat st;
    struct ashlar_pool_info info = ASHLAR_POOL_INFO_INIT;
    REQUIRE(fixture_new(&f, "lz4"));
    EXPECT_EQ(ashlar_pool_get_info(f.pool, &info), 0);
    EXPECT_EQ(info.size_bytes, POOL_SIZE);
    EXPECT_EQ(info.volume_count, 1);
    EXPECT_EQ(info.failed, 0);
    EXPECT(info.free_bytes > 0 && info.free_bytes <= info.usable_bytes);
    fixture_close(&f);
    EXPECT(stat(f.path, &st) == 0 && st.st_size == (off_t)POOL_SIZE);
    EXPECT(fixture_open(&f, 0));
    fixture_remove(&f);
}

static void test_pool_refused(void)
{
    struct fixture f;
    struct ashlar_pool *other = NULL;
    REQUIRE(fixture_new(&f, NULL));
    EXPECT_EQ(ashlar_pool_create(f.path, POOL_SIZE, NULL, 0, &f.error), -EEXIST);
    EXPECT_EQ(f.error.code, -EEXIST);
    EXPECT(says(&f, f.path));
    /* Open already, in this very process. */
    EXPECT_EQ(ashlar_pool_open(f.path, NULL, 0, &other, &f.error), -EBUSY);
    EXPECT(says(&f, "in use"));
    EXPECT_EQ(ashlar_pool_open("/nowhere/pool", NULL, 0, &other, &f.error), -ENOENT);
    EXPECT(says(&f, "/nowhere/pool"));
    EXPECT_EQ(ashlar_pool_open("/dev/null", NULL, 0, &other, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_pool_open(f.path, NULL, 0x4000, &other, &f.error), -EINVAL);
    EXPECT(says(&f, "unknown flags 0x4000"));
    EXPECT(other == NULL);
    char small[160];
    snprintf(small, sizeof(small), "%s/small", f.directory);
    EXPECT_EQ(ashlar_pool_create(small, MIB_BYTES, NULL, 0, &f.error), -EINVAL);
    EXPECT(access(small, F_OK) < 0);
    EXPECT_EQ(ashlar_pool_create(small, UINT64_MAX, NULL, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_pool_create(NULL, MIB_BYTES, NULL, 0, NULL), -EINVAL);
    fixture_remove(&f);
}

static void test_busy(void)
{
    struct fixture f;
    REQUIRE(fixture_new(&f, NULL));
    EXPECT_EQ(ashlar_pool_close(f.pool, &f.error), -EBUSY);
    EXPECT(says(&f, "1 open volumes"));
    EXPECT_EQ(ashlar_volume_destroy(f.pool, "disk", 0, &f.error), -EBUSY);
    EXPECT_EQ(ashlar_volume_close(f.volume), 0);
    EXPECT_EQ(ashlar_volume_destroy(f.pool, "disk", 0, &f.error), 0);
    EXPECT_EQ(ashlar_pool_close(f.pool, &f.error), 0);
    f.pool = NULL;
    fixture_remove(&f);
}

static int collect(void *user, const struct ashlar_volume_info *info)
{
    char *names = user;
    size_t n = strlen(names);
    snprintf(names + n, 256 - n, "%s ", info->name);
    return 0;
}

struct reentering {
    struct fixture *f;
    int calls;
};

static int reenter(void *user, const struct ashlar_volume_info *info)
{
    struct reentering *r = user;
    struct ashlar_volume *v;
    r->calls++;
    if (ashlar_volume_open(r->f->pool, info->name, 0, &v, NULL) < 0)
        return -1;
    return ashlar_volume_close(v) == 0 ? 7 : -2; /* 7: stop here */
}

static void test_volumes(void)
{
    struct fixture f;
    struct ashlar_volume_options options = ASHLAR_VOLUME_OPTIONS_INIT;
    struct ashlar_volume_info info = ASHLAR_VOLUME_INFO_INIT;
    char names[256] = "";
    REQUIRE(fixture_new(&f, "zstd-7"));
    options.size_bytes = MIB_BYTES;
    options.record_bytes = 4096;
    EXPECT_EQ(ashlar_volume_create(f.pool, "b", &options, 0, &f.error), 0);
    EXPECT_EQ(ashlar_volume_create(f.pool, "b", &options, 0, &f.error), -EEXIST);
    EXPECT_EQ(ashlar_volume_create(f.pool, "a/b", &options, 0, &f.error), -EINVAL);
    options.size_bytes = 1000;
    EXPECT_EQ(ashlar_volume_create(f.pool, "c", &options, 0, &f.error), -EINVAL);
    options.size_bytes = MIB_BYTES;
    options.compression = "gzip";
    EXPECT_EQ(ashlar_volume_create(f.pool, "c", &options, 0, &f.error), -EINVAL);
    EXPECT(says(&f, "gzip"));
    EXPECT_EQ(ashlar_volume_rename(f.pool, "b", "a", 0, &f.error), 0);
    EXPECT_EQ(ashlar_volume_list(f.pool, collect, names), 0);
    EXPECT_TEXT(names, "a disk ");
    struct reentering r = {.f = &f};
    EXPECT_EQ(ashlar_volume_list(f.pool, reenter, &r), 7);
    EXPECT_EQ(r.calls, 1);
    EXPECT_EQ(ashlar_volume_get_info(f.volume, &info), 0);
    EXPECT_TEXT(info.name, "disk");
    EXPECT_TEXT(info.compression, "zstd-7");
    EXPECT_EQ(info.record_bytes, 16384);
    EXPECT(info.created_seconds > 1700000000);
    EXPECT_EQ(ashlar_volume_set_compression(f.pool, "disk", "off", 0, &f.error), 0);
    EXPECT_EQ(ashlar_volume_get_info(f.volume, &info), 0);
    EXPECT_TEXT(info.compression, "off");
    EXPECT_EQ(ashlar_volume_resize(f.pool, "disk", 128 * MIB_BYTES, 0, &f.error), 0);
    EXPECT_EQ(ashlar_volume_size(f.volume), 128 * MIB_BYTES); /* open handles see it at once */
    EXPECT_EQ(ashlar_volume_destroy(f.pool, "a", 0, &f.error), 0);
    EXPECT_EQ(ashlar_volume_destroy(f.pool, "a", 0, &f.error), -ENOENT);
    fixture_remove(&f);
}

static void test_data(void)
{
    struct fixture f;
    static unsigned char in[300000], back[300000];
    REQUIRE(fixture_new(&f, NULL));
    fill(in, sizeof(in), 1);
    EXPECT_EQ(ashlar_write(f.volume, in, sizeof(in), 12345, ASHLAR_FUA, &f.error), 0);
    EXPECT_EQ(ashlar_read(f.volume, back, sizeof(back), 12345, 0, &f.error), 0);
    EXPECT(memcmp(in, back, sizeof(in)) == 0);

    struct iovec iov[3] = {{back, 1000}, {back + 1000, 0}, {back + 1000, 200000}};
    memset(back, 0xee, sizeof(back));
    EXPECT_EQ(ashlar_readv(f.volume, iov, 3, 12345, 0, &f.error), 0);
    EXPECT(memcmp(in, back, 201000) == 0);
    EXPECT_EQ(back[201000], 0xee);
    EXPECT_EQ(ashlar_writev(f.volume, iov, 3, 10 * MIB_BYTES, 0, &f.error), 0);

    EXPECT_EQ(ashlar_trim(f.volume, 1000, 20000, 0, &f.error), 0);
    EXPECT_EQ(ashlar_zero(f.volume, 1000, 30000, ASHLAR_PROVISION | ASHLAR_FUA, &f.error), 0);
    memset(in + 20000 - 12345, 0, 1000);
    memset(in + 30000 - 12345, 0, 1000);
    EXPECT_EQ(ashlar_flush(f.volume, 0, &f.error), 0);
    EXPECT_EQ(ashlar_pool_flush(f.pool, 0, &f.error), 0);
    fixture_close(&f);
    REQUIRE(fixture_open(&f, 0));
    EXPECT_EQ(ashlar_read(f.volume, back, sizeof(back), 12345, 0, &f.error), 0);
    EXPECT(memcmp(in, back, sizeof(in)) == 0);
    fixture_remove(&f);
}

static void test_extents(void)
{
    struct fixture f;
    struct ashlar_extent extents[16];
    size_t count = 0;
    static unsigned char in[MIB_BYTES];
    REQUIRE(fixture_new(&f, NULL));
    fill(in, sizeof(in), 2);
    EXPECT_EQ(ashlar_write(f.volume, in, sizeof(in), MIB_BYTES, 0, &f.error), 0);
    EXPECT_EQ(ashlar_extents(f.volume, 4 * MIB_BYTES, 0, 0, extents, 16, &count, &f.error), 0);
    uint64_t at = 0, data = 0;
    for (size_t i = 0; i < count; i++) {
        if (extents[i].kind == ASHLAR_EXTENT_DATA)
            data += extents[i].length_bytes;
        at += extents[i].length_bytes;
    }
    EXPECT(at <= 4 * MIB_BYTES && at > 0);
    if (at == 4 * MIB_BYTES)
        EXPECT_EQ(data, MIB_BYTES);
    EXPECT_EQ(ashlar_extents(f.volume, MIB_BYTES, 0, 0, extents, 0, &count, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_extents(f.volume, MIB_BYTES, 64 * MIB_BYTES, 0, extents, 1, &count, &f.error), -EINVAL);
    fixture_remove(&f);
}

static void test_data_refused(void)
{
    struct fixture f;
    char b[16] = "";
    struct iovec bad[2] = {{b, SIZE_MAX / 2 + 1}, {b, SIZE_MAX / 2 + 1}}, null = {NULL, 1};
    REQUIRE(fixture_new(&f, NULL));
    EXPECT_EQ(ashlar_read(f.volume, b, sizeof(b), 64 * MIB_BYTES - 15, 0, &f.error), -EINVAL);
    EXPECT(says(&f, "reading volume 'disk': 16 bytes at 67108849 leave its 67108864 bytes"));
    EXPECT_EQ(ashlar_write(f.volume, b, sizeof(b), UINT64_MAX, 0, &f.error), -EINVAL);
    EXPECT(says(&f, "writing volume 'disk'"));
    EXPECT_EQ(ashlar_trim(f.volume, UINT64_MAX, 1, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_read(f.volume, b, sizeof(b), 0, ASHLAR_FUA, &f.error), -EINVAL);
    EXPECT(says(&f, "ashlar_read: unknown flags 0x1"));
    EXPECT_EQ(ashlar_write(f.volume, b, sizeof(b), 0, ASHLAR_PROVISION, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_readv(f.volume, bad, 2, 0, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_readv(f.volume, &null, 1, 0, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_readv(f.volume, bad, -1, 0, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_readv(f.volume, bad, 5000, 0, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_read(NULL, b, 1, 0, 0, &f.error), -EINVAL);
    EXPECT_EQ(ashlar_flush(NULL, 0, NULL), -EINVAL);
    EXPECT_EQ(ashlar_volume_close(NULL), 0);
    EXPECT_EQ(ashlar_pool_close(NULL, NULL), 0);
    /* On success the error is left alone. */
    struct ashlar_error untouched = {5, "as it was"};
    EXPECT_EQ(ashlar_read(f.volume, b, sizeof(b), 0, 0, &untouched), 0);
    EXPECT_EQ(untouched.code, 5);
    EXPECT_TEXT(untouched.text, "as it was");
    fixture_remove(&f);
}

static void test_read_only(void)
{
    struct fixture f;
    struct ashlar_pool *second = NULL;
    char b[512] = "";
    REQUIRE(fixture_new(&f, NULL));
    fixture_close(&f);
    REQUIRE(fixture_open(&f, ASHLAR_READ_ONLY));
    EXPECT_EQ(ashlar_pool_open(f.path, NULL, ASHLAR_READ_ONLY, &second, &f.error), 0); /* readers share */
    EXPECT_EQ(ashlar_pool_close(second, &f.error), 0);
    EXPECT_EQ(ashlar_read(f.volume, b, sizeof(b), 0, 0, &f.error), 0);
    EXPECT_EQ(ashlar_write(f.volume, b, sizeof(b), 0, 0, &f.error), -EROFS);
    EXPECT_EQ(ashlar_volume_resize(f.pool, "disk", MIB_BYTES, 0, &f.error), -EROFS);
    fixture_remove(&f);
}

static void test_full(void)
{
    struct fixture f;
    static unsigned char in[MIB_BYTES], back[MIB_BYTES];
    int r = 0;
    REQUIRE(fixture_new(&f, "off"));
    EXPECT_EQ(ashlar_volume_resize(f.pool, "disk", 1024 * MIB_BYTES, 0, &f.error), 0);
    uint64_t written = 0;
    for (; written < 512 && r == 0; written++) {
        fill(in, sizeof(in), written);
        r = ashlar_write(f.volume, in, sizeof(in), written * MIB_BYTES, 0, &f.error);
    }
    EXPECT_EQ(r, -ENOSPC);
    EXPECT(says(&f, "the pool is full"));
    EXPECT(written > 128);
    EXPECT_EQ(ashlar_flush(f.volume, 0, &f.error), 0); /* what was acknowledged can be stored */
    for (uint64_t i = 0; i + 1 < written; i += 13) {
        fill(in, sizeof(in), i);
        EXPECT_EQ(ashlar_read(f.volume, back, sizeof(back), i * MIB_BYTES, 0, &f.error), 0);
        EXPECT(memcmp(in, back, sizeof(in)) == 0);
    }
    EXPECT_EQ(ashlar_trim(f.volume, written * MIB_BYTES, 0, 0, &f.error), 0);
    EXPECT_EQ(ashlar_flush(f.volume, 0, &f.error), 0);
    fixture_remove(&f);
}

/* Finds 16 bytes of the volume in the pool file and spoils them. */
static bool spoil(const char *path, const unsigned char *wanted)
{
    bool found = false;
    unsigned char *bytes = malloc(POOL_SIZE);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (bytes != NULL && fd >= 0 && pread(fd, bytes, POOL_SIZE, 0) == (ssize_t)POOL_SIZE) {
        unsigned char *at = bytes;
        while ((at = memmem(at, POOL_SIZE - (size_t)(at - bytes), wanted, 16)) != NULL) {
            at[3] ^= 0x40;
            found |= pwrite(fd, at, 16, at - bytes) == 16;
            at++;
        }
    }
    free(bytes);
    close(fd);
    return found;
}

static void test_damage(void)
{
    struct fixture f;
    static unsigned char in[4 * 16384], back[4 * 16384];
    REQUIRE(fixture_new(&f, "off"));
    fill(in, sizeof(in), 9);
    EXPECT_EQ(ashlar_write(f.volume, in, sizeof(in), 0, ASHLAR_FUA, &f.error), 0);
    fixture_close(&f);
    EXPECT(spoil(f.path, in + 2 * 16384 + 100));
    REQUIRE(fixture_open(&f, 0));
    EXPECT_EQ(ashlar_read(f.volume, back, sizeof(back), 0, 0, &f.error), -EIO);
    EXPECT(says(&f, "reading volume 'disk': the record of 16384 bytes at 32768 is damaged"));
    EXPECT_EQ(ashlar_read(f.volume, back, 2 * 16384, 0, 0, &f.error), 0); /* the rest reads */
    EXPECT(memcmp(in, back, 2 * 16384) == 0);
    EXPECT_EQ(ashlar_read(f.volume, back, 16384, 3 * 16384, 0, &f.error), 0);
    EXPECT(memcmp(in + 3 * 16384, back, 16384) == 0);
    struct ashlar_pool_info info = ASHLAR_POOL_INFO_INIT;
    EXPECT_EQ(ashlar_pool_get_info(f.pool, &info), 0);
    EXPECT(info.corrupt_reads > 0);
    fixture_remove(&f);
}

/* A struct of a program that knows more fields than the library, or fewer. */
static void test_struct_growth(void)
{
    struct fixture f;
    struct {
        struct ashlar_open_options options;
        uint64_t future[4];
    } newer = {.options = ASHLAR_OPEN_OPTIONS_INIT};
    REQUIRE(fixture_new(&f, NULL));
    fixture_close(&f);
    newer.options.struct_bytes = sizeof(newer);
    EXPECT_EQ(ashlar_pool_open(f.path, &newer.options, 0, &f.pool, &f.error), 0);
    EXPECT_EQ(ashlar_pool_close(f.pool, &f.error), 0);
    f.pool = NULL;
    newer.future[2] = 1;
    EXPECT_EQ(ashlar_pool_open(f.path, &newer.options, 0, &f.pool, &f.error), -EINVAL);
    EXPECT(says(&f, "does not know"));
    newer.options.struct_bytes = 0;
    EXPECT_EQ(ashlar_pool_open(f.path, &newer.options, 0, &f.pool, &f.error), -EINVAL);
    EXPECT(says(&f, "struct_bytes is 0"));
    struct { /* an older program's: it ends before worker_count */
        size_t struct_bytes;
        uint64_t cache_bytes;
    } older = {sizeof(older), 64 * MIB_BYTES};
    EXPECT_EQ(ashlar_pool_open(f.path, (const struct ashlar_open_options *)(const void *)&older, 0, &f.pool, &f.error),
              0);
    struct {
        size_t struct_bytes;
        uint8_t uuid[16];
        uint64_t canary;
    } info = {offsetof(struct ashlar_pool_info, size_bytes), {0}, 0x1122334455667788};
    EXPECT_EQ(ashlar_pool_get_info(f.pool, (struct ashlar_pool_info *)(void *)&info), 0);
    EXPECT_EQ(info.canary, 0x1122334455667788);
    EXPECT_EQ(info.struct_bytes, offsetof(struct ashlar_pool_info, size_bytes));
    EXPECT_EQ(ashlar_pool_close(f.pool, &f.error), 0);
    f.pool = NULL;
    fixture_remove(&f);
}

static unsigned descriptors_without_cloexec(void)
{
    unsigned count = 0;
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        int flags = e->d_name[0] == '.' ? FD_CLOEXEC : fcntl(fd, F_GETFD);
        if (fd > 2 && fd != dirfd(d) && flags >= 0 && (flags & FD_CLOEXEC) == 0)
            count++;
    }
    if (d != NULL)
        closedir(d);
    return count;
}

/* Threads other than this one in which some signal that can be blocked is not. */
static unsigned threads_that_take_signals(unsigned *ret_threads)
{
    unsigned count = 0, threads = 0;
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL) {
        char path[300], line[256], name[64] = "";
        unsigned long long blocked = 0;
        if (e->d_name[0] == '.' || strtol(e->d_name, NULL, 10) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
            sscanf(line, "Name: %63s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (f != NULL)
            fclose(f);
        threads++;
        /* SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGALRM */
        unsigned long long wanted = 1u << 14 | 1u << 1 | 1u << 9 | 1u << 16 | 1u << 13;
        if ((blocked & wanted) != wanted)
            count++;
    }
    if (d != NULL)
        closedir(d);
    *ret_threads = threads;
    return count;
}

static void test_keeps_to_itself(void)
{
    struct fixture f;
    unsigned threads;
    unsigned before = descriptors_without_cloexec();
    REQUIRE(fixture_new(&f, NULL));
    EXPECT_EQ(descriptors_without_cloexec(), before);
    EXPECT_EQ(threads_that_take_signals(&threads), 0);
    EXPECT(threads > 0);
    fixture_remove(&f);
}

static void test_two_pools(void)
{
    struct fixture f, g;
    char a[512] = "a", b[512] = "b", back[512];
    REQUIRE(fixture_new(&f, NULL));
    REQUIRE(fixture_new(&g, NULL));
    EXPECT_EQ(ashlar_write(f.volume, a, sizeof(a), 0, 0, NULL), 0);
    EXPECT_EQ(ashlar_write(g.volume, b, sizeof(b), 0, 0, NULL), 0);
    EXPECT_EQ(ashlar_read(f.volume, back, sizeof(back), 0, 0, NULL), 0);
    EXPECT_TEXT(back, "a");
    EXPECT_EQ(ashlar_read(g.volume, back, sizeof(back), 0, 0, NULL), 0);
    EXPECT_TEXT(back, "b");
    fixture_remove(&f);
    fixture_remove(&g);
}

int main(void)
{
    RUN(test_version);
    RUN(test_pool_life);
    RUN(test_pool_refused);
    RUN(test_busy);
    RUN(test_volumes);
    RUN(test_data);
    RUN(test_extents);
    RUN(test_data_refused);
    RUN(test_read_only);
    RUN(test_full);
    RUN(test_damage);
    RUN(test_struct_growth);
    RUN(test_keeps_to_itself);
    RUN(test_two_pools);
    return tap_done();
}
