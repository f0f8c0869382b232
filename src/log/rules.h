/*
 * The protocol's rules (design rules R14-R30), one bit each, so that the test build can take one away and show that a
 * history then breaks a promise. All on (0) in production.
 */
#ifndef ASHLAR_LOG_RULES_H
#define ASHLAR_LOG_RULES_H

enum pool_rule_off {
    RULE_OFF_QUARANTINE = 1 << 0,       /* slots reused as soon as nothing in them is live (R20) */
    RULE_OFF_QUARANTINE_2 = 1 << 1,     /* quarantine of one label instead of two (R20) */
    RULE_OFF_PIN_REPLAY = 1 << 2,       /* slots of the replay range reusable (R21); implies no quarantine */
    RULE_OFF_PATCH_ORDER = 1 << 3,      /* patches may overtake a record in write-out (R17) */
    RULE_OFF_TRIM_ORDER = 1 << 4,       /* trims may overtake a record in write-out (R17) */
    RULE_OFF_PATCH_CHECKPOINT = 1 << 5, /* checkpoints forget patches (R19) */
    RULE_OFF_FLUSH_ALL = 1 << 6,        /* flush waits for its own chunk only (R18) */
    RULE_OFF_FLUSH_AFTER = 1 << 7,      /* joins a device flush already under way (R18) */
    RULE_OFF_INCARNATION = 1 << 8,      /* the same incarnation at every open (R14) */
    RULE_OFF_BRIDGE = 1 << 9,           /* recovery goes on in place (R15) */
    RULE_OFF_DURABLE_TO = 1 << 10,      /* a chunk that does not verify is always the end of the log (R16) */
    RULE_OFF_LABEL_ORDER = 1 << 11,     /* label written before the data flush (R25) */
    RULE_OFF_STICKY_FAILURE = 1 << 12,  /* a failed flush is tried again (R30) */
};

#endif
