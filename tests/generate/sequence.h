/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence.h - what sequence.c, rest.c and excuse.c share.
 */
#ifndef PAWL_GENERATE_SEQUENCE_H
#define PAWL_GENERATE_SEQUENCE_H

#include "run.h"

/* One operation through each client, from start to done. False: one does not end. */
bool barrier_pass(struct run *run);
void barrier_end(void); /* before the clients are closed */
int waiting_at_clients(struct run *run);
int holders_of(struct run *run, int64_t name); /* at the service; 0: no client is open */
bool told_beside_grant(const struct run *run, const int *done_step, int number);
bool was_disturbed(const struct run *run);     /* a difference is excused: docs/testing.md */

#endif
