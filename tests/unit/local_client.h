/* SPDX-License-Identifier: Apache-2.0
 *
 * local_client.h - the engine local alone, driven through src/engine.h by a loop of its own, so
 * that processes can be killed and stopped at every instruction of the engine.
 *
 * A client belongs to one thread. The engine runs only inside client_start, client_run and the
 * functions that call these. No thread runs in the background, so a forked process may open clients
 * of its own.
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

/* The folder of this case, which exists and is empty at first. All processes of a case get the same
 * folder. */
const char *client_folder(void);

int client_open(struct client *c); /* in client_folder() */
int client_open_url(struct client *c, const char *rest, pawl_param *params, size_t nparams,
                    pawl_error *err);
void client_close(struct client *c);

/* Let the engine do its pending work, without waiting. */
void client_run(struct client *c);
/* Sleep until the engine has work, at most until `due`; client_run then does the work. */
void client_sleep(struct client *c, int64_t due);

/* ---- Requests: op->arg is set when an op is done --------------------------------------------- */

pawl_op op_of(struct client *c, int kind, const char *name);
pawl_op op_acquire(struct client *c, const char *name, int mode, bool queue);

void client_start(struct client *c, pawl_op *op);
/* True if the op was done in time. */
bool client_await(struct client *c, pawl_op *op, int64_t ns);
/* The code of the op, which is cancelled if it is not done in time. */
int client_finish(struct client *c, pawl_op *op, int64_t ns);
/* Submit an op that is done at once, and return its code. */
int client_simple(struct client *c, int kind, const char *name);
int client_release(struct client *c, const pawl_op *acquired);

/* As check_main; also makes the folder for the folders of the cases. */
int client_main(int argc, char **argv);

#endif
