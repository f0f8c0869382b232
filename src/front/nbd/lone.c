/*
 * A client that waits for each reply before it sends the next request gains nothing from the queue's threads: handing
 * its request over costs a wake-up, and so does the way back to waiting for the socket. So a request that is all of its
 * command and the only one under way on its connection is held back until the turn ends, and if no more input is there
 * then, the loop's thread carries it out itself (loop.c has how others are served meanwhile, the same connection's next
 * request among them). Anything else goes to the queue, in order of arrival: a request held back is submitted before
 * the next one of its connection is.
 *
 * Only a connection that has shown to be of that kind is treated so: the requests of a deep queue that happen to meet
 * nobody are better off in the queue, where they batch.
 *
 * The command of the request holds a reference to the connection, which therefore lives until complete() is called, and
 * the connection's last use of `request` is before that.
 */
#include "front/nbd/lone.h"

#include "base/check.h"
#include "base/tree.h"
#include "front/nbd/connection.h"
#include "front/nbd/server_impl.h"
#include "queue/queue.h"

#define STREAK_MIN 3

static void work(struct nbd_aside *aside)
{
    struct nbd_connection *c = CONTAINER_OF(aside, struct nbd_connection, lone.aside);
    c->server->ops->run(c->export, c->lone.request);
}

static void done(struct nbd_aside *aside)
{
    struct request *r = CONTAINER_OF(aside, struct nbd_connection, lone.aside)->lone.request;
    r->complete(r);
}

static void submit_held(struct nbd_connection *c)
{
    struct request *r = c->lone.request;
    c->lone.held = false;
    c->server->ops->submit(c->export, r);
}

static void pass_on(struct nbd_aside *aside)
{
    submit_held(CONTAINER_OF(aside, struct nbd_connection, lone.aside));
}

void nbd_lone_init(struct nbd_lone *lone)
{
    *lone = (struct nbd_lone){.aside = {.work = work, .done = done, .pass_on = pass_on}};
}

void nbd_lone_submit(struct nbd_connection *c, struct request *r, bool whole)
{
    struct nbd_lone *lone = &c->lone;
    env_mutex_lock(&c->sender.lock);
    bool alone = c->sender.command_count == 1;
    env_mutex_unlock(&c->sender.lock);
    if (lone->held)
        submit_held(c);
    lone->streak = !alone || !whole ? 0 : lone->streak < STREAK_MIN ? lone->streak + 1 : STREAK_MIN;
    if (lone->streak == STREAK_MIN && c->server->ops->run != NULL) {
        lone->request = r;
        lone->held = true;
    } else {
        c->server->ops->submit(c->export, r);
    }
}

void nbd_lone_settle(struct nbd_connection *c, bool quiet)
{
    if (!c->lone.held)
        return;
    if (quiet && nbd_loop_set_aside(c->server->loop, &c->lone.aside))
        c->lone.held = false;
    else
        submit_held(c);
}
