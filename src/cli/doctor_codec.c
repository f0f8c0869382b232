/*
 * Our codecs against the bare libraries on the same real data, in alternation, best of several rounds; and the
 * libraries against a plain loop over bytes. The first comparison shows what we cost, the second a library that was
 * built badly: a distribution once shipped a zstd at an eighth of its speed, and nobody saw. (memcpy would be no
 * yardstick for that: how fast it is depends on which cache the data is in, a loop whose every step waits for the one
 * before on the clock alone.)
 *
 * The checksum is compared with the function of libxxhash that codec/checksum.c calls too: where the library has one
 * that looks for the best vector unit when it runs, that one. How fast the plain one is stands beside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
/* The function for any processor of this kind, before the header below gives its name to the one that looks first. */
static XXH128_hash_t (*const plain_hash)(const void *, size_t) = XXH3_128bits;
#ifdef ASHLAR_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#endif
#include <zstd.h>

#include "base/math.h"
#include "cli/doctor.h"
#include "codec/checksum.h"
#include "codec/codec.h"
#include "env/env.h"

#define DATA_BYTES_MAX (4 * MIB)
#define DATA_BYTES_MIN (256 * KIB)
#define ROUND_NS UINT64_C(25000000)
enum { ROUNDS = 3, OUTPUT_SLACK_BYTES = 4096 };
/* Sound builds decompress 6 to 10 (lz4) and 1.5 to 3 (zstd) times as fast as the plain loop; these are far below. */
#define LZ4_TO_LOOP_LEAST 2.0
#define ZSTD_TO_LOOP_LEAST 0.5
#define OURS_TO_BARE_LEAST 0.85

struct bench {
    uint8_t *data, *packed, *out;
    size_t data_bytes, record_bytes, record_count;
    size_t *packed_bytes; /* of each record; 0: did not shrink */
    size_t packed_stride;
    struct codec_choice choice;
    struct codec_context *ours;
    ZSTD_CCtx *cctx;
    ZSTD_DCtx *dctx;
    void *lz4_state;
    volatile uint64_t sink; /* results of what would otherwise be computed for nothing */
};

typedef void record_work(struct bench *b, size_t record);

static void ours_compress(struct bench *b, size_t i)
{
    b->packed_bytes[i] = codec_compress(b->ours, b->choice, b->data + i * b->record_bytes, b->record_bytes,
                                        b->packed + i * b->packed_stride, b->packed_stride);
}

static void bare_compress(struct bench *b, size_t i)
{
    void *out = b->packed + i * b->packed_stride;
    const void *in = b->data + i * b->record_bytes;
    if (b->choice.id == CODEC_LZ4) {
        int n = LZ4_compress_fast_extState(b->lz4_state, in, out, (int)b->record_bytes, (int)b->packed_stride, 1);
        b->packed_bytes[i] = (size_t)n;
    } else {
        size_t n = ZSTD_compressCCtx(b->cctx, out, b->packed_stride, in, b->record_bytes, b->choice.level);
        b->packed_bytes[i] = ZSTD_isError(n) ? 0 : n;
    }
}

static void ours_decompress(struct bench *b, size_t i)
{
    if (b->packed_bytes[i] > 0)
        b->sink += (uint64_t)codec_decompress(b->ours, b->choice.id, b->packed + i * b->packed_stride,
                                              b->packed_bytes[i], b->out, b->record_bytes);
}

static void bare_decompress(struct bench *b, size_t i)
{
    const void *in = b->packed + i * b->packed_stride;
    if (b->packed_bytes[i] == 0)
        return;
    if (b->choice.id == CODEC_LZ4)
        b->sink += (uint64_t)LZ4_decompress_safe(in, (char *)b->out, (int)b->packed_bytes[i], (int)b->record_bytes);
    else
        b->sink += ZSTD_decompressDCtx(b->dctx, b->out, b->record_bytes, in, b->packed_bytes[i]);
}

/* One multiplication a byte, each waiting for the one before: about five clocks, whoever compiled it. */
static void plain_loop(struct bench *b, size_t i)
{
    const uint8_t *bytes = b->data + i * b->record_bytes;
    uint64_t h = b->sink;
    for (size_t k = 0; k < b->record_bytes; k++)
        h = (h ^ bytes[k]) * 1099511628211u;
    b->sink = h;
}

static void ours_checksum(struct bench *b, size_t i)
{
    b->sink += checksum_of(b->data + i * b->record_bytes, b->record_bytes).low;
}

static void bare_checksum(struct bench *b, size_t i)
{
    b->sink += XXH3_128bits(b->data + i * b->record_bytes, b->record_bytes).low64;
}

static void plain_checksum(struct bench *b, size_t i)
{
    b->sink += plain_hash(b->data + i * b->record_bytes, b->record_bytes).low64;
}

/* Bytes a second of one pass after another over all records, for a round. */
static double rate_once(struct bench *b, record_work *work)
{
    uint64_t begin_ns = env_now_ns(env_os()), now_ns = begin_ns, bytes = 0;
    while (now_ns - begin_ns < ROUND_NS) {
        for (size_t i = 0; i < b->record_count; i++)
            work(b, i);
        bytes += b->record_count * b->record_bytes;
        now_ns = env_now_ns(env_os());
    }
    return (double)bytes * 1e9 / (double)(now_ns - begin_ns);
}

static void rates(struct bench *b, record_work *one, record_work *other, double *ret_one, double *ret_other)
{
    *ret_one = *ret_other = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double a = rate_once(b, one), c = rate_once(b, other);
        *ret_one = a > *ret_one ? a : *ret_one;
        *ret_other = c > *ret_other ? c : *ret_other;
    }
}

static void report(struct doctor *d, const char *name, double ours, double bare, const char *suffix)
{
    double share = bare > 0 ? ours / bare : 1;
    json_t *figures =
        json_pack("{s:f, s:f, s:f}", "ours-bytes-per-second", ours, "bare-bytes-per-second", bare, "ratio", share);
    doctor_add(d, share < OURS_TO_BARE_LEAST ? VERDICT_WARN : VERDICT_OK, name, figures,
               "%.0f MB/s, the bare library %.0f (%.2f)%s", ours / 1e6, bare / 1e6, share, suffix);
}

static void report_build(struct doctor *d, const char *library, double rate, double loop_rate, double least)
{
    double share = loop_rate > 0 ? rate / loop_rate : least;
    if (share < least)
        doctor_add(d, VERDICT_WARN, library, NULL,
                   "decompresses %.2f times as fast as a plain loop over bytes, at least %.1f is usual: a bad build?",
                   share, least);
}

static void bench_codec(struct doctor *d, struct bench *b, struct codec_choice choice, double loop_rate)
{
    char name[64], codec[16], suffix[48];
    double ours, bare;
    size_t packed = 0, shrunk = 0;
    b->choice = choice;
    codec_choice_format(choice, codec, sizeof(codec));
    rates(b, bare_compress, ours_compress, &bare, &ours); /* ours last: its lengths are what is decompressed */
    for (size_t i = 0; i < b->record_count; i++) {
        packed += b->packed_bytes[i] > 0 ? b->packed_bytes[i] : b->record_bytes;
        shrunk += b->packed_bytes[i] > 0;
    }
    snprintf(suffix, sizeof(suffix), "; shrinks to 1/%.2f",
             (double)(b->record_count * b->record_bytes) / (double)max_u64(packed, 1));
    snprintf(name, sizeof(name), "%s, %zuK, compress", codec, b->record_bytes / 1024);
    report(d, name, ours, bare, suffix);
    if (shrunk * 2 < b->record_count)
        return; /* too little to decompress */
    rates(b, ours_decompress, bare_decompress, &ours, &bare);
    snprintf(name, sizeof(name), "%s, %zuK, decompress", codec, b->record_bytes / 1024);
    report(d, name, ours, bare, "");
    report_build(d, choice.id == CODEC_LZ4 ? "liblz4" : "libzstd", bare, loop_rate,
                 choice.id == CODEC_LZ4 ? LZ4_TO_LOOP_LEAST : ZSTD_TO_LOOP_LEAST);
}

static void bench_checksum(struct doctor *d, struct bench *b)
{
    char name[64], suffix[80] = ", the same function for all processors of this kind";
    double ours, bare, plain, again;
    rates(b, ours_checksum, bare_checksum, &ours, &bare);
    if (XXH3_128bits != plain_hash) {
        rates(b, plain_checksum, plain_checksum, &plain, &again);
        snprintf(suffix, sizeof(suffix), ", both by the vector unit found here; %.0f without looking for one",
                 (plain > again ? plain : again) / 1e6);
    }
    snprintf(name, sizeof(name), "xxh3-128, %zuK", b->record_bytes / 1024);
    report(d, name, ours, bare, suffix);
}

static void bench_records(struct doctor *d, struct bench *b, size_t record_bytes)
{
    static const struct codec_choice choices[] = {{CODEC_LZ4, 0}, {CODEC_ZSTD, 1}, {CODEC_ZSTD, 3}};
    double loop, again;
    b->record_bytes = record_bytes;
    b->record_count = b->data_bytes / record_bytes;
    b->packed_stride = record_bytes + record_bytes / 64 + OUTPUT_SLACK_BYTES;
    rates(b, plain_loop, plain_loop, &loop, &again);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++)
        bench_codec(d, b, choices[i], loop > again ? loop : again);
    bench_checksum(d, b);
}

static bool bench_new(struct bench *b)
{
    size_t packed_room = DATA_BYTES_MAX + DATA_BYTES_MAX / 64 + DATA_BYTES_MAX / 16384 * OUTPUT_SLACK_BYTES;
    b->data = malloc(DATA_BYTES_MAX);
    b->packed = malloc(packed_room);
    b->out = malloc(128 * KIB);
    b->packed_bytes = calloc(DATA_BYTES_MAX / 16384, sizeof(size_t));
    b->ours = codec_context_new();
    b->cctx = ZSTD_createCCtx();
    b->dctx = ZSTD_createDCtx();
    b->lz4_state = malloc((size_t)LZ4_sizeofState());
    return b->data != NULL && b->packed != NULL && b->out != NULL && b->packed_bytes != NULL && b->ours != NULL &&
           b->cctx != NULL && b->dctx != NULL && b->lz4_state != NULL;
}

static void bench_free(struct bench *b)
{
    free(b->data);
    free(b->packed);
    free(b->out);
    free(b->packed_bytes);
    codec_context_free(b->ours);
    ZSTD_freeCCtx(b->cctx);
    ZSTD_freeDCtx(b->dctx);
    free(b->lz4_state);
}

/* Appends a file to what was read; returns the new length. */
static size_t data_read(const char *path, uint8_t *bytes, size_t length)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && length < DATA_BYTES_MAX) {
        ssize_t now = read(fd, bytes + length, DATA_BYTES_MAX - length);
        if (now <= 0)
            break;
        length += (size_t)now;
    }
    if (fd >= 0)
        close(fd);
    return length;
}

/* This program and the libraries it uses: real data that is there on every machine. */
static size_t data_read_self(uint8_t *bytes)
{
    char line[512], path[512], mode[8];
    size_t length = data_read("/proc/self/exe", bytes, 0);
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (sscanf(line, "%*s %7s %*s %*s %*s %511s", mode, path) == 2 && strcmp(mode, "r-xp") == 0 &&
            strstr(path, ".so") != NULL)
            length = data_read(path, bytes, length);
    if (maps != NULL)
        (void)fclose(maps);
    return length;
}

void doctor_codec(struct doctor *d, const char *data_path)
{
    struct bench b = {0};
    if (!bench_new(&b)) {
        doctor_add(d, VERDICT_WARN, "codecs", NULL, "no memory to measure them");
    } else {
        b.data_bytes = data_path != NULL ? data_read(data_path, b.data, 0) : data_read_self(b.data);
        if (b.data_bytes < DATA_BYTES_MIN) {
            doctor_add(d, VERDICT_WARN, "codecs", NULL, "not measured: '%s' gave %zu bytes, 256K are needed",
                       data_path != NULL ? data_path : "this program", b.data_bytes);
        } else {
            bench_records(d, &b, 16 * KIB);
            bench_records(d, &b, 128 * KIB);
        }
    }
    bench_free(&b);
}
