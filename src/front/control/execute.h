/*
 * The verbs that work on an open pool. One code path for both ways to a pool: the server runs it for who asks over the
 * control socket, and the command runs it itself on a pool that nobody serves. Requests and results are JSON.
 *
 * Arguments of the verbs (? optional), and what the result holds:
 *
 *   list                                              {"pool", "volumes": [{each property}]}
 *   get      volume?                                  {"pool", "volume"?, "properties": {name: value}}
 *   set      volume, properties                       {"volume", "properties"}
 *   create   volume, size, properties?                {"volume", "properties"}
 *   rename   volume, to                               {"volume", "from"}
 *   resize   volume, size, force?                     {"volume", "size", "before"}
 *   destroy  volume                                   {"volume"}
 *   import   volume, properties?, force? + descriptor {"volume", "created", "bytes", "data-bytes", "seconds"}
 *   export   volume + descriptor                      {"volume", "bytes", "data-bytes", "seconds", "users"}
 *   status                                            see status.c
 */
#ifndef ASHLAR_FRONT_CONTROL_EXECUTE_H
#define ASHLAR_FRONT_CONTROL_EXECUTE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "front/control/message.h"

struct env;
struct error;
struct pool;
struct text;

/* What a server adds to a pool; all may be called from any thread. */
struct control_host_ops {
    /* The "server" object of status. NULL: no memory. */
    json_t *(*status)(void *arg);
    /* Appends who uses a volume ("127.0.0.1:4711, pid 812"), for errors; nothing if it does not know. */
    void (*describe_users)(void *arg, const char *volume, struct text *ret_text);
    /* Begins to stop. The control server keeps who asked informed. */
    void (*stop)(void *arg);
};

/* A pool that verbs work on. Immutable while in use. */
struct control_host {
    struct env *env;
    struct pool *pool;
    const char *path;                   /* for messages; UTF-8 (control_text_clean) */
    const struct control_host_ops *ops; /* NULL: no server, the pool was opened for one command */
    void *arg;
};

struct control_call {
    struct control_request request;
    int fd; /* import and export: -1 if none came. Stays the caller's. */
    /* Called now and then with how far it is (total 0: unknown); nonzero: give up, with -ECANCELED. May be NULL. */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    /*
     * Called once where the end of a stream could also be the end of who filled it: in a pipeline that the user
     * interrupts the source may go a moment before the command does. Nonzero: whoever asked is gone or gave up. May be
     * NULL.
     */
    int (*confirm)(void *arg);
    void *arg; /* of both */
};

struct control_verb {
    const char *name;
    bool changes_pool; /* needs the pool open for writing */
    int (*run)(const struct control_host *host, struct control_call *call, struct arguments *a, json_t **ret_result,
               struct error *err);
};

/* NULL if there is none of that name. */
const struct control_verb *control_verb_find(const char *name);

/* Runs a request. 0 and *ret_result (a JSON object, the caller's), or negative errno and text; -ENOSYS: unknown verb.
 */
int control_execute(const struct control_host *host, struct control_call *call, json_t **ret_result, struct error *err)
    __attribute__((warn_unused_result));

#endif
