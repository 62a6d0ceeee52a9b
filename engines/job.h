/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h - inside the desk: one edit and what came of it.
 *
 * The work of a job may run several times (the store starts over when another client was faster),
 * so it sets everything anew each time; only what the last run left counts. Tokens drawn by a run
 * that was in vain are lost: a gap in the numbers.
 */
#ifndef PAWL_JOB_H
#define PAWL_JOB_H

#include "desk.h"

typedef struct desk_job desk_job;

struct desk_job {
    desk *desk;
    pawl_op *op;
    pawl_owner owner;
    void (*work)(desk_job *job);
    pawl_renewal *renewal;
    lockstate_entry want;
    uint32_t asked; /* tokens; what comes back from the shelf is not more */
    lockstate_edit edit;
    unsigned cause;
    bool again, thorough, announce;
    uint64_t told_first, told_last; /* tokens of the edit that we were told of */
    uint64_t first, last;           /* tokens that this edit drew; 0: none */
    bool full; /* refused because the shelf has no room */
    int type;  /* refused: what the name is in use as, or -1 */
    int64_t value; /* refused: the capacity or count in force */
    int code;
    int64_t due; /* queued: when the first of the leases ahead ends */
};

/* job.c. Run the job on the shelf of `name`, publish, and tell who is to be told. */
void desk_perform(desk_job *job, const char *name);
/* False: out of memory, and peers->missing says so. */
bool desk_push(struct desk_peers *peers, struct desk_peer peer);
/* The same, or move the owner to the end if it is there already; seq 0: all of the client's. */
void desk_add(struct desk_peers *peers, const lockstate_entry *e, enum lockstate_why why);
/* What the op's owner would be on the shelf. */
lockstate_entry desk_entry(const desk *d, const pawl_op *op);
/* Put the refusal into words; returns the code to complete the op with. */
int desk_words(const desk_job *job);

/* waits.c */
void desk_acquire(desk *d, pawl_op *op);
void desk_look_around(desk *d);
void desk_mark(desk_wait *w, enum desk_cause cause); /* it must be looked at */
void desk_free_wait(desk_wait *w);
void desk_safety(pawl_timer *timer); /* the timer of safety_ms */

#endif
