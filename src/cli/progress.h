/*
 * A progress bar on standard error, and the user's wish to stop. For whatever takes over a second; nothing is drawn
 * where standard error is no terminal.
 */
#ifndef ASHLAR_CLI_PROGRESS_H
#define ASHLAR_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "import disk" */
    bool terminal;
    bool drawn;
    uint64_t started_ns, drawn_ns;
    int signal_fd; /* readable once SIGINT, SIGTERM or SIGHUP came; -1: not watched */
};

/* Blocks those signals until the end of the process, before any thread is started: they end the work, which then cleans
 * up. */
void progress_begin(struct progress *p, const char *what);
/* struct control_call's progress: draws, and is nonzero when a signal came. */
int progress_tell(void *progress, uint64_t done, uint64_t total);
/* struct control_call's confirm: nonzero when a signal came. */
int progress_confirm(void *progress);
void progress_end(struct progress *p); /* clears the line */

#endif
