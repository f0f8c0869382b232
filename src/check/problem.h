/*
 * The kinds of problem `ashlar check` knows. An id is stable: it is printed, listed in ashlar-check(8), and matched by
 * tests and scripts; it is never given another meaning. Severity:
 *
 * WRONG       something that was stored does not verify, or two things that must agree do not;
 * SUSPICIOUS  nothing is lost, and a power cut can leave it behind in an honest pool;
 * LEAK        space that nothing refers to and that is not on its way to be free.
 */
#ifndef ASHLAR_CHECK_PROBLEM_H
#define ASHLAR_CHECK_PROBLEM_H

enum check_severity { CHECK_WRONG, CHECK_SUSPICIOUS, CHECK_LEAK, CHECK_SEVERITY_COUNT };

/* X(name, id, severity, text) */
#define CHECK_PROBLEMS(X)                                                                                              \
    X(DEVICE_SHORT, "DEVICE-SHORT", WRONG, "the device is smaller than the pool on it")                                \
    X(READ_ERROR, "READ-ERROR", WRONG, "the device cannot read this range")                                            \
    X(LABEL_DAMAGED, "LABEL-DAMAGED", WRONG, "a copy of a label does not verify")                                      \
    X(LABEL_TORN, "LABEL-TORN", SUSPICIOUS, "a copy of a label was torn by a power cut; the other copy is intact")     \
    X(LABEL_STALE, "LABEL-STALE", WRONG, "a ring slot does not hold the label that was written there")                 \
    X(LABEL_CONFLICT, "LABEL-CONFLICT", WRONG, "the two copies of a label differ")                                     \
    X(LABEL_FOREIGN, "LABEL-FOREIGN", SUSPICIOUS, "a ring slot holds a label of another pool")                         \
    X(CLEAN_LABEL_LOG, "CLEAN-LABEL-LOG", SUSPICIOUS, "the label says closed cleanly, but the log goes on behind it")  \
    X(LOG_DAMAGED, "LOG-DAMAGED", WRONG, "flushed log is damaged: the chain breaks below what is known durable")       \
    X(LOG_UNREACHED, "LOG-UNREACHED", WRONG, "flushed, but behind damaged log: it cannot be replayed")                 \
    X(LOG_SLOT_CONFLICT, "LOG-SLOT-CONFLICT", WRONG, "the log to replay runs through a slot that is in use otherwise") \
    X(LOG_ENTRY_RANGE, "LOG-ENTRY-RANGE", WRONG, "an entry of the log to replay lies outside its volume")              \
    X(CHUNK_HEADER_DAMAGED, "CHUNK-HEADER-DAMAGED", WRONG, "a chunk's header or table is damaged, the copy intact")    \
    X(CHUNK_TRAILER_DAMAGED, "CHUNK-TRAILER-DAMAGED", WRONG, "a chunk's trailer is damaged, its header intact")        \
    X(CHUNK_ECHO_DAMAGED, "CHUNK-ECHO-DAMAGED", WRONG, "the echo of a chunk's header and table is damaged")            \
    X(CHUNK_TORN, "CHUNK-TORN", SUSPICIOUS, "a chunk that was never known durable lacks one of its headers")           \
    X(CHUNK_DAMAGED, "CHUNK-DAMAGED", WRONG, "a chunk's header and its copy are damaged: its entries are unknown")     \
    X(CHAIN_MISMATCH, "CHAIN-MISMATCH", WRONG, "a chunk does not follow from the one before it")                       \
    X(NODE_COPY_DAMAGED, "NODE-COPY-DAMAGED", WRONG, "one of the two copies of a node chunk is damaged")               \
    X(NODE_DAMAGED, "NODE-DAMAGED", WRONG, "both copies of a map node are damaged: what is below it is unreachable")   \
    X(NODE_INVALID, "NODE-INVALID", WRONG, "a map node verifies, but its content breaks the format's rules")           \
    X(MAP_ADDRESS, "MAP-ADDRESS", WRONG, "a pointer names an address it must not name")                                \
    X(MAP_BEYOND_END, "MAP-BEYOND-END", WRONG, "a map holds data past the end of its volume")                          \
    X(SEGMENT_LOST, "SEGMENT-LOST", WRONG, "a pointer names a segment that lies in no slot")                           \
    X(ENTRY_MISSING, "ENTRY-MISSING", WRONG, "no chunk has an entry for what a pointer names")                         \
    X(ENTRY_MISMATCH, "ENTRY-MISMATCH", WRONG, "the chunk's entry says otherwise than the pointer")                    \
    X(OVERLAP, "OVERLAP", WRONG, "two live objects share bytes")                                                       \
    X(RECORD_DAMAGED, "RECORD-DAMAGED", WRONG, "a record does not match its checksum")                                 \
    X(PATCH_DAMAGED, "PATCH-DAMAGED", WRONG, "a patch does not match its checksum")                                    \
    X(RECORD_UNPACKABLE, "RECORD-UNPACKABLE", WRONG, "stored bytes match their checksum but do not decompress")        \
    X(RECORD_LOSSY, "RECORD-LOSSY", WRONG, "sectors of this record were lost before and read as errors")               \
    X(RANGE_LOST, "RANGE-LOST", WRONG, "this range was lost before, with its map node, and reads as errors")           \
    X(DEAD_DAMAGED, "DEAD-DAMAGED", SUSPICIOUS, "stored bytes that nothing refers to any more do not verify")          \
    X(CATALOG_INVALID, "CATALOG-INVALID", WRONG, "a catalog object breaks the format's rules")                         \
    X(NAME_DUPLICATE, "NAME-DUPLICATE", WRONG, "two volumes have one name")                                            \
    X(BRANCH_DUPLICATE, "BRANCH-DUPLICATE", WRONG, "two volumes have one branch")                                      \
    X(GUID_DUPLICATE, "GUID-DUPLICATE", WRONG, "two volumes have one guid")                                            \
    X(COUNTER_BEHIND, "COUNTER-BEHIND", WRONG, "a number is in use that the label says was never issued")              \
    X(VOLUME_ACCOUNT_MISMATCH, "VOLUME-ACCOUNT-MISMATCH", WRONG, "a volume's account differs from its map")            \
    X(TABLE_INVALID, "TABLE-INVALID", WRONG, "a slot table record breaks the format's rules")                          \
    X(SLOT_STATE_MISMATCH, "SLOT-STATE-MISMATCH", WRONG, "slot table and label disagree")                              \
    X(SLOT_SEGMENT_MISMATCH, "SLOT-SEGMENT-MISMATCH", WRONG, "a slot holds another segment than the table says")       \
    X(SLOT_SEGMENT_DUPLICATE, "SLOT-SEGMENT-DUPLICATE", WRONG, "two slots claim one segment")                          \
    X(SLOT_FREE_LIVE, "SLOT-FREE-LIVE", WRONG, "something live lies in a slot that is free or about to be")            \
    X(SLOT_LIVE_MISMATCH, "SLOT-LIVE-MISMATCH", WRONG, "a slot's count of live bytes is wrong")                        \
    X(SLOT_USED_MISMATCH, "SLOT-USED-MISMATCH", WRONG, "a slot's segment ends elsewhere than the table says")          \
    X(SLOT_LEAKED, "SLOT-LEAKED", LEAK, "a slot is kept although nothing in it is referred to")                        \
    X(QUARANTINE_STUCK, "QUARANTINE-STUCK", LEAK, "a slot stays in quarantine longer than its rule asks")

enum check_problem_id {
#define CHECK_PROBLEM_ENUM(name, id, severity, text) CHECK_PROBLEM_##name,
    CHECK_PROBLEMS(CHECK_PROBLEM_ENUM)
#undef CHECK_PROBLEM_ENUM
        CHECK_PROBLEM_COUNT
};

/* "LABEL-DAMAGED" and so on. */
const char *check_problem_name(enum check_problem_id id);
/* One line for people, the same for every problem of that id. */
const char *check_problem_text(enum check_problem_id id);
enum check_severity check_problem_severity(enum check_problem_id id);
/* "wrong", "suspicious", "leak". */
const char *check_severity_name(enum check_severity severity);

#endif
