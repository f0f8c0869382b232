/*
 * What the programs of the benchmark share (common.h): a clock, the corpus, the one write stream, the yardstick file.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define YARDSTICK_BYTES (256u << 20)
#define PIECE_BYTES (1u << 20)

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    _exit(1);
}

double bench_seconds(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        bench_die("clock_gettime: %s", strerror(errno));
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *aligned_zeroes(size_t length_bytes)
{
    void *p = aligned_alloc(BLOCK_BYTES, length_bytes);
    if (p == NULL)
        bench_die("no memory for %zu bytes", length_bytes);
    memset(p, 0, length_bytes);
    return p;
}

void corpus_load(struct corpus *c, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        bench_die("%s: %s", path, strerror(errno));
    c->length_bytes = (uint64_t)st.st_size;
    c->block_count = (c->length_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    if (c->block_count == 0)
        bench_die("%s: empty", path);
    c->bytes = aligned_zeroes(c->block_count * BLOCK_BYTES);
    for (uint64_t done = 0; done < c->length_bytes;) {
        ssize_t n = pread(fd, c->bytes + done, c->length_bytes - done, (off_t)done);
        if (n <= 0)
            bench_die("%s: short read", path);
        done += (uint64_t)n;
    }
    (void)close(fd);
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void stream_init(struct stream *s, const struct corpus *corpus, uint64_t volume_bytes, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->corpus = corpus;
    s->block_count = volume_bytes / BLOCK_BYTES;
    s->holds = calloc(s->block_count, sizeof *s->holds);
    if (s->holds == NULL)
        bench_die("no memory for %llu blocks", (unsigned long long)s->block_count);
    for (unsigned i = 0; i < THREADS_MAX; i++)
        s->random[i] = seed * THREADS_MAX + i;
}

const uint8_t *stream_next(struct stream *s, unsigned lane, unsigned lanes, uint64_t *ret_offset_bytes)
{
    uint64_t block = random_next(&s->random[lane]) % (s->block_count / lanes) * lanes + lane;
    uint64_t from = random_next(&s->random[lane]) % s->corpus->block_count;
    s->holds[block] = (uint32_t)from + 1;
    *ret_offset_bytes = block * BLOCK_BYTES;
    return s->corpus->bytes + from * BLOCK_BYTES;
}

const uint8_t *stream_expected(const struct stream *s, uint64_t block)
{
    return s->holds[block] == 0 ? NULL : s->corpus->bytes + (uint64_t)(s->holds[block] - 1) * BLOCK_BYTES;
}

static void write_whole_file(int fd, const char *path, const struct corpus *corpus, uint64_t length_bytes)
{
    for (uint64_t at = 0; at < length_bytes;) {
        uint64_t from = at % (corpus->block_count * BLOCK_BYTES);
        uint64_t room = corpus->block_count * BLOCK_BYTES - from;
        size_t n = room < PIECE_BYTES ? room : PIECE_BYTES;
        n = length_bytes - at < n ? length_bytes - at : n;
        if (pwrite(fd, corpus->bytes + from, n, (off_t)at) != (ssize_t)n)
            bench_die("%s: write: %s", path, strerror(errno));
        at += n;
    }
    if (fsync(fd) != 0)
        bench_die("%s: fsync: %s", path, strerror(errno));
}

void yardstick_open(struct yardstick *y, const char *path, const struct corpus *corpus)
{
    y->corpus = corpus;
    y->blocks = YARDSTICK_BYTES / BLOCK_BYTES;
    y->at = 0;
    y->fd[0] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (y->fd[0] < 0)
        bench_die("%s: %s", path, strerror(errno));
    if (ftruncate(y->fd[0], YARDSTICK_BYTES) != 0)
        bench_die("%s: ftruncate: %s", path, strerror(errno));
    write_whole_file(y->fd[0], path, corpus, YARDSTICK_BYTES);
    y->fd[1] = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (y->fd[1] < 0)
        bench_die("%s: O_DIRECT: %s", path, strerror(errno));
}

uint64_t yardstick_run(struct yardstick *y, double seconds, bool direct)
{
    int fd = y->fd[direct];
    uint64_t done = 0;
    for (double end = bench_seconds() + seconds; bench_seconds() < end; done++) {
        const uint8_t *from = y->corpus->bytes + done % y->corpus->block_count * BLOCK_BYTES;
        if (pwrite(fd, from, BLOCK_BYTES, (off_t)(y->at * BLOCK_BYTES)) != BLOCK_BYTES || fdatasync(fd) != 0)
            bench_die("yardstick: %s", strerror(errno));
        y->at = (y->at + 1) % y->blocks;
    }
    return done;
}
