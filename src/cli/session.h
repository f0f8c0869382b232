/*
 * One request to a pool, whoever has it open: its server, or this process for the time of the request.
 */
#ifndef ASHLAR_CLI_SESSION_H
#define ASHLAR_CLI_SESSION_H

#include <jansson.h>
#include <stdbool.h>

struct error;
struct invocation;
struct progress;

/*
 * Runs verb (execute.h) on the pool. arguments are taken over, NULL counts as none. fd: for import and export, else -1.
 * progress: begun and ended by the caller; NULL: this call has its own, and a signal ends the process. A pool that
 * another command has open for a moment is waited for, up to 3 seconds.
 */
int session_run(const struct invocation *in, const char *pool_path, const char *verb, json_t *arguments, int fd,
                struct progress *progress, json_t **ret_result, struct error *err);

/* Runs a request, prints the result as JSON or by print, and returns the exit status. */
int session_show(const struct invocation *in, const char *pool_path, const char *verb, json_t *arguments,
                 void (*print)(const struct invocation *in, const json_t *result));

/* 0 if something is at path, else an error that says how to make a pool. */
int session_check_path(const char *pool_path, struct error *err);

#endif
