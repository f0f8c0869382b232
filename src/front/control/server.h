/*
 * The control server: answers the verbs of execute.h over a unix socket beside the pool, for the owner of this process
 * and root.
 */
#ifndef ASHLAR_FRONT_CONTROL_SERVER_H
#define ASHLAR_FRONT_CONTROL_SERVER_H

#include "front/control/execute.h"

struct control_server;

/*
 * Listens beside host->path's pool (pool_path: as the user gave it) and starts the threads. host must outlive the
 * server. -EADDRINUSE: served already; others with text.
 */
int control_server_start(const struct control_host *host, const char *pool_path, struct control_server **ret_server,
                         struct error *err) __attribute__((warn_unused_result));

const char *control_server_path(const struct control_server *server);

/*
 * Ends service: no new connection, running imports and exports are given up, everything else is finished and answered.
 * The socket is gone when this returns. Who asked to stop is still connected and told that the process lives.
 */
void control_server_end(struct control_server *server);
/* After control_server_end: tells who asked to stop how it went (err NULL or code 0: well), and frees everything. The
 * connections of those close when the process ends. NULL is fine. */
void control_server_free(struct control_server *server, const struct error *err);

#endif
