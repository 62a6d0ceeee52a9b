/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.h - functions that steps.c and callbacks.c share.
 */
#ifndef PAWL_GENERATE_STEPS_H
#define PAWL_GENERATE_STEPS_H

#include "run.h"

/* Owners that are no thread of the program: the thread that runs callbacks, and the unknown owner
 * of a lost lock. */
enum { CALLBACK_THREAD = 90, UNKNOWN_THREAD = 91 };

void steps_done(void *arg, pawl_lock *lock, int code);
void steps_lost(void *arg, pawl_lock *lock, int code);
void steps_start(struct op *op, struct object *o); /* acquire_start or release_start */
bool steps_free(struct object *o);                 /* false: a thread is inside a call on `o` */
void steps_observe(struct op *op);                 /* read the state of the handle */
bool may_last(const struct step *s); /* may wait for another owner, and so without an end */
int steps_fork(struct object *o);                  /* fork.c: how many calls were not refused */

#endif
