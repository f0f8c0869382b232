/*
 * The independent witness: reads a pool from its durable bytes alone, recounts everything the engine keeps count of,
 * and says what does not agree. It shares base/, env/, codec/ and format/ with the engine and nothing above, so that a
 * fault of the engine is not repeated here.
 *
 * check_run works on any struct device, the simulation's included. It writes nothing unless options.repair is set.
 * Memory: about 100 bytes a slot, one window of a few MiB, and CHECK_OBJECTS_MAX live objects at a time; pools with
 * more are gone through in several passes over their maps. Hostile images cost no more than that: every loop is bounded
 * by the device's size.
 */
#ifndef ASHLAR_CHECK_CHECK_H
#define ASHLAR_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "check/problem.h"
#include "format/limits.h"

struct device;
struct env;
struct error;
struct check_report;

#define CHECK_NOWHERE UINT64_MAX

struct check_options {
    bool quick;              /* metadata only: no payload of a volume is read (but for the tail of the log) */
    bool all;                /* payload that nothing refers to any more is verified as well */
    bool repair;             /* write back what an intact copy, or the log, still knows; the device must be writable */
    uint64_t label_sequence; /* check the state this label names, as if all newer ones were lost; 0: the newest */
    uint64_t objects_max;    /* live objects kept in memory at a time; 0: CHECK_OBJECTS_MAX */
    uint64_t found_max;      /* entries kept in memory for lost map nodes; 0: CHECK_FOUND_MAX */
    /* Called now and then with how many bytes of segments were looked at, of how many; total 0: not known yet, and
     * done is what was read. May be NULL. */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
};

#define CHECK_OBJECTS_MAX (4u * 1024 * 1024) /* 64 bytes each */
#define CHECK_FOUND_MAX (256u * 1024)        /* 120 bytes each */
#define CHECK_PROBLEMS_LISTED_MAX 16384      /* more are counted, not listed */

struct check_problem {
    enum check_problem_id id;
    char volume[VOLUME_NAME_BYTES_MAX + 1]; /* "" where none is concerned; "(catalog)", "(slot table)" */
    uint64_t offset_bytes, length_bytes;    /* in the volume; length 0: not about a range */
    uint64_t device_offset_bytes;           /* CHECK_NOWHERE: not about a place on the device */
    uint64_t address;                       /* in the log; CHECK_NOWHERE likewise */
    char detail[200];                       /* values; "" if the id says it all */
};

/* One write that a repair made. */
struct check_repair {
    uint64_t device_offset_bytes, length_bytes;
    char what[120];
};

struct check_summary {
    uint8_t pool_uuid[16];
    uint64_t label_sequence, checkpoint;
    bool clean; /* the label says closed cleanly */
    uint64_t volumes, nodes, records, patches, stored_bytes;
    uint64_t chunks;                                   /* of closed and open segments, below the replay start */
    uint64_t replay_from, replay_to;                   /* data-head addresses of the log behind the checkpoint */
    uint64_t replay_chunks, replay_bytes;              /* that a recovery would read */
    uint64_t replay_entries;                           /* and apply */
    uint64_t skipped_entries;                          /* of branches that the checkpoint does not know */
    uint64_t slots_free, slots_used, slots_quarantine; /* by the slot table */
    uint64_t read_bytes;
};

/*
 * Checks, and repairs if asked to (then everything is checked once more and the report is of that second look, with the
 * list of what was written). 0 with *ret_report, however damaged the pool is; an error if it could not be looked at:
 * -EINVAL no pool there (or no such label), -EOPNOTSUPP newer version or unknown features, -EIO the device cannot read
 * or write, -ESTALE the pool changed meanwhile (another process writes to it), -EROFS repair of a read-only device,
 * -ENOMEM. Blocks.
 */
int check_run(struct device *dev, const struct check_options *options, struct check_report **ret_report,
              struct error *err) __attribute__((warn_unused_result));

void check_report_free(struct check_report *report);
/* All problems of that severity, listed or not. */
uint64_t check_report_count(const struct check_report *report, enum check_severity severity);
uint64_t check_report_count_of(const struct check_report *report, enum check_problem_id id);
/* Nothing wrong and nothing leaked: exit status 0. */
bool check_report_is_clean(const struct check_report *report);
const struct check_problem *check_report_problems(const struct check_report *report, size_t *ret_count);
const struct check_repair *check_report_repairs(const struct check_report *report, size_t *ret_count);
const struct check_summary *check_report_summary(const struct check_report *report);
/* Appends the report as people read it: one line a problem, then the repairs, then the counts. */
void check_report_print(const struct check_report *report, struct text *out);
/* The same as one JSON object; the caller frees it. NULL: no memory. */
char *check_report_json(const struct check_report *report);

/* Opens a pool's file for reading, without a lock if another process has it: *ret_served. Errors of device_open. */
int check_open_for_reading(struct env *env, const char *path, struct device **ret_dev, bool *ret_served,
                           struct error *err) __attribute__((warn_unused_result));
/*
 * check_run on a pool that is open elsewhere and may be written to meanwhile: looks again until it is clean, or two
 * looks one after the other agree. -EAGAIN: they never do. No repair.
 */
int check_run_served(struct device *dev, const struct check_options *options, struct check_report **ret_report,
                     struct error *err) __attribute__((warn_unused_result));

#endif
