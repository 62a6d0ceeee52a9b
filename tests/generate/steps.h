/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.h - what steps.c and callbacks.c share.
 */
#ifndef PAWL_GENERATE_STEPS_H
#define PAWL_GENERATE_STEPS_H

#include "run.h"

/* Owners that are no thread of the program: who runs callbacks, and whoever lost a lock. */
enum { CALLBACK_THREAD = 90, UNKNOWN_THREAD = 91 };

void steps_done(void *arg, pawl_lock *lock, int code);
void steps_lost(void *arg, pawl_lock *lock, int code);
void steps_start(struct op *op, struct object *o); /* acquire_start or release_start */
bool steps_free(struct object *o);                 /* false: somebody is inside a call on it */
void steps_observe(struct op *op);                 /* what the handle says now */
int steps_fork(struct object *o);                  /* fork.c: how many calls went wrong */

#endif
