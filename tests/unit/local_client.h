/* SPDX-License-Identifier: Apache-2.0
 *
 * local_client.h - the engine local alone, driven through the engine door by a loop of its own, so
 * that processes can be killed and stopped at every instruction of it.
 *
 * A client belongs to one thread. Nothing happens to it but in client_start, client_run and what is
 * built on them: no thread stands behind it, so a forked process may open clients of its own.
 */
#ifndef PAWL_TEST_LOCAL_CLIENT_H
#define PAWL_TEST_LOCAL_CLIENT_H

#include <uv.h>

#include "engine.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

struct client {
    pawl_env env;
    uv_loop_t loop;
    pawl_timer *timers;
    void *self;
    uint64_t seq;
};

int64_t clock_now(void);
uint64_t random_number(void);

/* The folder of this case, which is there and empty at first; the same in its processes. */
const char *client_folder(void);

int client_open(struct client *c); /* in client_folder() */
int client_open_url(struct client *c, const char *rest, pawl_param *params, size_t nparams,
                    pawl_error *err);
void client_close(struct client *c);

/* Let the engine do what it has to, without waiting. */
void client_run(struct client *c);
/* Sleep until something happens, no longer than until `due`; client_run deals with it. */
void client_sleep(struct client *c, int64_t due);

/* ---- Requests: op->arg is set when one is done ----------------------------------------------- */

pawl_op op_of(struct client *c, int kind, const char *name);
pawl_op op_acquire(struct client *c, const char *name, int mode, bool queue);

void client_start(struct client *c, pawl_op *op);
/* True if the op was done in time. */
bool client_await(struct client *c, pawl_op *op, int64_t ns);
/* Its code; it is cancelled if it was not done in time. */
int client_finish(struct client *c, pawl_op *op, int64_t ns);
/* Of one that is done at once: its code. */
int client_simple(struct client *c, int kind, const char *name);
int client_release(struct client *c, const pawl_op *acquired);

/* check_main, with a folder for the folders of the cases. */
int client_main(int argc, char **argv);

#endif
