/*
 * A progress bar on standard error, and the user's wish to stop. For whatever takes over a second; nothing is drawn
 * where standard error is no terminal.
 *
 * A thread draws, so that a step that reports nothing (an open that replays, a checkpoint) still shows that time
 * passes. It is there only on a terminal. `done`, `total` and `ending` are guarded by lock; all else belongs to the
 * thread that called progress_begin, `drawn` to the drawing thread until that has ended.
 */
#ifndef ASHLAR_CLI_PROGRESS_H
#define ASHLAR_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"

struct progress {
    const char *what; /* "import disk"; borrowed */
    uint64_t started_ns;
    int signal_fd; /* readable once SIGINT, SIGTERM or SIGHUP came; -1: not watched */
    bool drawn;
    struct env_thread *thread; /* NULL: nothing is drawn */
    struct env_mutex lock;
    struct env_cond ended;
    uint64_t done, total; /* bytes; total 0: not known; both 0: only the time is shown */
    bool ending;
};

enum progress_signals {
    PROGRESS_SIGNALS_KILL,  /* a signal ends the process, as ever */
    PROGRESS_SIGNALS_WATCH, /* SIGINT, SIGTERM, SIGHUP are blocked until the end of the process, before any thread is
                               started: they end the work, which then cleans up */
};

void progress_begin(struct progress *p, const char *what, enum progress_signals signals);
/* struct control_call's progress: notes how far the work is, in bytes, and is nonzero when a signal came. */
int progress_tell(void *progress, uint64_t done, uint64_t total);
/* struct control_call's confirm: nonzero when a signal came. */
int progress_confirm(void *progress);
void progress_end(struct progress *p); /* clears the line */

#endif
