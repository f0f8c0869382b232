/*
 * What the programs of the benchmark share: real data, a clock, one 4 KiB write stream whose result can be verified.
 *
 * Every program here is a worker: it reads one command a line and answers each with one line of JSON. bench/run decides
 * the order, so that subject and yardstick alternate within the same minute.
 */
#ifndef ASHLAR_BENCH_COMMON_H
#define ASHLAR_BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_BYTES 4096
#define THREADS_MAX 64

/* Prints to standard error and ends the program with status 1. */
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
double bench_seconds(void); /* monotonic */

/* A file held in memory, aligned to BLOCK_BYTES; the last block is padded with zeroes. */
struct corpus {
    uint8_t *bytes;
    uint64_t length_bytes; /* as the file has */
    uint64_t block_count;
};
void corpus_load(struct corpus *c, const char *path);

uint64_t random_next(uint64_t *state); /* splitmix64 */

/*
 * Random writes of one block each, and what each block must hold afterwards. Blocks are dealt out to lanes (block %
 * lanes), so that no two writes to one block are ever under way at once and the last one is known.
 */
struct stream {
    const struct corpus *corpus;
    uint64_t block_count;
    uint32_t *holds; /* corpus block + 1 by volume block; 0: never written by this stream */
    uint64_t random[THREADS_MAX];
};
void stream_init(struct stream *s, const struct corpus *corpus, uint64_t volume_bytes, uint64_t seed);
/* The next write of a lane: volume offset and bytes. */
const uint8_t *stream_next(struct stream *s, unsigned lane, unsigned lanes, uint64_t *ret_offset_bytes);
/* What the block must hold, NULL if it was never written. */
const uint8_t *stream_expected(const struct stream *s, uint64_t block);

/* The yardstick of S9: pwrite and fdatasync of 4 KiB at ascending offsets over blocks already written. Returns writes
 * done. `direct`: with O_DIRECT. */
struct yardstick {
    int fd[2]; /* through the page cache, O_DIRECT */
    const struct corpus *corpus;
    uint64_t blocks, at;
};
void yardstick_open(struct yardstick *y, const char *path, const struct corpus *corpus);
uint64_t yardstick_run(struct yardstick *y, double seconds, bool direct);

#endif
