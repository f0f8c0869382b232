/*
 * What a disk's log holds, found from outside with the format's decoders alone: every chunk in every slot, live or not.
 */
#ifndef ASHLAR_TESTS_SIM_LOG_SCAN_H
#define ASHLAR_TESTS_SIM_LOG_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/sim.h"
#include "format/chunk.h"

struct scanned_chunk {
    uint64_t offset_bytes; /* on the disk */
    struct chunk_header header;
    struct chunk_entry *entries;
};

struct log_scan {
    struct scanned_chunk *chunks; /* by place on the disk */
    size_t count, room;
};

void log_scan_disk(struct log_scan *scan, const struct sim_disk *disk, uint64_t disk_bytes);
void log_scan_free(struct log_scan *scan);

/* Was (part of) a stored version of record `index` of the branch in that range of the disk? */
bool log_scan_holds(const struct log_scan *scan, uint64_t offset_bytes, uint64_t length_bytes, uint64_t branch,
                    uint64_t index);
/* The data-head chunks with addresses at or above `address`, in address order; returns how many (at most room). */
size_t log_scan_data_chunks(const struct log_scan *scan, uint64_t address, const struct scanned_chunk **ret_list,
                            size_t room);

#endif
