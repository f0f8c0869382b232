/*
 * The oracle: what a store may answer, now and after a power cut, when it keeps its promises.
 *
 * Its user tells it when each operation begins and ends (a list of events); it keeps for each 512-byte sector every
 * value that may still be read, and judges what the store answers. The promises it judges by:
 *
 * 1. A running read returns, sector by sector, the newest acknowledged value or one of an operation still under way.
 * Two operations that overlap in time take effect in some order; once a read has shown the order it stays.
 * 2. After a power cut a sector has its value at the last completed flush or FUA that covers it, or a later one:
 *    acknowledged, under way, or failed (an operation that failed may have happened).
 * 3. One operation inside one record happened whole or not at all, as far as later operations do not cover it.
 * 4. A volume exists, with its size and name, as the last completed create, destroy, rename or resize left it; one
 * under way may have happened.
 *
 * Values are named by sector_value (pattern.h). All ranges are in sectors. Not thread safe.
 */
#ifndef ASHLAR_TESTS_MODEL_ORACLE_H
#define ASHLAR_TESTS_MODEL_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define ORACLE_VOLUMES 8
#define ORACLE_NAME_BYTES 24

enum oracle_kind {
    ORACLE_WRITE,
    ORACLE_ZERO,  /* trim and zero: every value is 0, cut edges apart, whose values are given */
    ORACLE_FLUSH, /* covers every operation on its volume that ended before it began */
    ORACLE_FLUSH_ALL,
    ORACLE_CREATE,
    ORACLE_DESTROY,
    ORACLE_RENAME,
    ORACLE_RESIZE,
};

struct oracle;

struct oracle *oracle_new(void);
void oracle_free(struct oracle *o);

/*
 * The events so far are a position in time. oracle_replay applies the events [number applied, position) of `from` to
 * `to`, which began empty: so a second oracle can be brought to any moment of the first one's life.
 */
size_t oracle_position(const struct oracle *o);
void oracle_replay(struct oracle *to, const struct oracle *from, size_t position);

struct oracle_args {
    enum oracle_kind kind;
    unsigned volume;        /* below ORACLE_VOLUMES; not for FLUSH_ALL */
    bool durable;           /* WRITE, ZERO: FUA */
    uint64_t first, count;  /* WRITE, ZERO: sectors */
    const uint64_t *values; /* WRITE: count of them; ZERO: NULL, or count of them */
    uint64_t size_bytes;    /* CREATE, RESIZE: multiple of 512 */
    uint32_t record_bytes;  /* CREATE */
    const char *name;       /* CREATE, RENAME (the new one) */
};
/* Returns the operation's number, for oracle_end. */
unsigned oracle_begin(struct oracle *o, const struct oracle_args *args);
/* result: 0, or the error it ended with. After an error the operation may or may not have happened. */
void oracle_end(struct oracle *o, unsigned operation, int result);

/*
 * A read of the running store. Take oracle_read_begin before the read; afterwards oracle_read_end judges the values and
 * learns from them. false: not allowed, and the reason is added to why. count is at least 1.
 */
uint64_t oracle_read_begin(const struct oracle *o);
bool oracle_read_end(struct oracle *o, uint64_t began, unsigned volume, uint64_t first, uint64_t count,
                     const uint64_t *values, struct text *why);

/* What a store shows after a power cut. */
struct oracle_found {
    char name[ORACLE_NAME_BYTES];
    uint64_t size_bytes;
    uint32_t record_bytes;
    int volume; /* out: which volume of the oracle it is; -1 if it may not exist */
};
/* Judges the list of volumes. */
bool oracle_check_catalog(const struct oracle *o, struct oracle_found *list, size_t count, struct text *why);

/* A value that could not be read: an I/O error. */
#define ORACLE_LOST UINT64_MAX
/*
 * Judges the content of a volume: count values from sector 0, as many as its size says. With lost_allowed a sector may
 * be ORACLE_LOST and is left out of the judgement.
 */
bool oracle_check_volume(struct oracle *o, unsigned volume, const uint64_t *values, uint64_t count, bool lost_allowed,
                         struct text *why);
/* Adds the sector's life, for people: each operation that touched it, when it began and ended, and what it left. */
void oracle_tell_sector(const struct oracle *o, unsigned volume, uint64_t sector, struct text *out);
/* Did the sector ever have that value, by any operation that began? (Of the volume's present number, whatever its
 * name.) */
bool oracle_was_ever(const struct oracle *o, unsigned volume, uint64_t sector, uint64_t value);
/*
 * From now on the store is exactly as found and read: all of it durable, nothing under way. Call once for each volume
 * of the oracle: found NULL if it is not there.
 */
void oracle_rebase(struct oracle *o, unsigned volume, const struct oracle_found *found, const uint64_t *values);

/* For people: sectors with more than one possible value now, the longest list of them, and how often the search for
 * whole operations gave up undecided (must stay 0). */
struct oracle_stats {
    uint64_t open_sectors, longest_list, undecided;
};
void oracle_get_stats(const struct oracle *o, struct oracle_stats *ret_stats);

#endif
