/*
 * The other end of the control socket: asks the server of a pool.
 */
#ifndef ASHLAR_FRONT_CONTROL_CLIENT_H
#define ASHLAR_FRONT_CONTROL_CLIENT_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

struct control_client;
struct error;

/*
 * Connects to the server of the pool at path. -ENOENT: nobody serves it (no socket, or one that a dead server left; no
 * text); -EPERM: something else listens there, or another user; others with text. No waiting beyond a moment.
 */
int control_client_open(const char *pool_path, struct control_client **ret_client, struct error *err);
void control_client_close(struct control_client *client); /* NULL is fine */
pid_t control_client_server_pid(const struct control_client *client);

/*
 * Runs a verb in the server. fd (-1: none) goes along and stays the caller's. progress as in struct control_call:
 * called with each progress line, and at least every 200 ms with what was known last; nonzero: hang up, which makes the
 * server give up what can be given up; -ECANCELED. -ETIMEDOUT: the server said nothing, not even "alive", for
 * timeout_seconds. Other errors are the server's own, with its text.
 */
int control_client_call(struct control_client *client, const char *verb, const json_t *arguments, int fd,
                        unsigned timeout_seconds, int (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                        json_t **ret_result, struct error *err);

/* After a stop that was answered: waits until the server's process is gone. 0, -ETIMEDOUT. */
int control_client_wait_gone(struct control_client *client, unsigned timeout_seconds);

#endif
