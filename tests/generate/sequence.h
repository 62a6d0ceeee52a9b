/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence.h - functions that sequence.c, ambiguous.c, rest.c and excuse.c share.
 */
#ifndef PAWL_GENERATE_SEQUENCE_H
#define PAWL_GENERATE_SEQUENCE_H

#include "run.h"

/* Run one asynchronous operation through each client. False: an operation did not end. */
bool barrier_pass(struct run *run);
void barrier_end(void); /* before the clients are closed */
int waiting_at_clients(struct run *run);
int waits_under_way(struct run *run); /* calls that have not returned, without latches */
int holders_of(struct run *run, int64_t name); /* at the service; 0: no client is open */
/* Until the service shows a waiter for each call under way, or `until`. */
void await_waiters(struct run *run, int64_t name, int64_t until);
/* Whether the result of the step would depend on threads. `ordered`: the service under test serves
 * waiters of all kinds in order. */
bool is_ambiguous(struct run *run, const struct step *s, bool ordered);
void pin_handles(struct run *run, const struct op *beginning);
bool told_beside_grant(const struct run *run, const int *done_step, int number);
bool was_disturbed(const struct run *run);     /* a difference is excused: docs/testing.md */
/* An acquire that a callback started is refused with PAWL_ESTATE while an earlier acquire of the
 * same kind is under way. On memory: the earlier acquire ended at once, and the lock is busy. */
bool is_under_way(const struct op *want, const struct op *got);
bool is_read(const struct op *op);
/* Readers that one step lets in together may return in any order. */
bool is_among_readers(const struct op *op, const int *done_step);
/* Put the operations that on_lost callbacks started in an order that does not depend on the run. */
void order_losses(struct run *run, const int *done_step);

#endif
