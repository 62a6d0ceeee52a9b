/* SPDX-License-Identifier: Apache-2.0
 *
 * edit.h - inside the shelf engine: one edit of a shelf and its result.
 *
 * The function `work` of an edit may run several times, because the store starts over when another
 * client has published a new shelf in between. So `work` sets every result anew each time, and
 * only the results of the last run count. Tokens that an earlier run has drawn are lost, which
 * leaves a gap in the sequence of tokens.
 */
#ifndef PAWL_SHELF_EDIT_H
#define PAWL_SHELF_EDIT_H

#include "shelf_engine.h"

typedef struct shelf_edit shelf_edit;

struct shelf_edit {
    shelf_engine *engine;
    pawl_op *op;
    pawl_owner owner;
    void (*work)(shelf_edit *edit);
    pawl_renewal *renewal;
    lockstate_entry want;
    uint32_t asked; /* the number of tokens; an entry from the shelf never gets more */
    lockstate_edit state; /* input and output of the rules (lockstate.h) */
    unsigned cause;
    bool again, thorough, announce;
    uint64_t told_first, told_last; /* tokens of the edit that we were told of */
    uint64_t first, last;           /* tokens that this edit drew; 0: none */
    bool full; /* refused because the shelf has no room */
    int type;  /* refused: the type that the name is in use as, or -1 */
    int64_t value; /* refused: the capacity or count in force */
    int code;
    int64_t due; /* queued: when the first of the leases ahead ends */
};

/* edit.c. Run the edit on the shelf of `name`, publish the shelf, and notify the owners that the
 * edit concerns. */
void shelf_edit_run(shelf_edit *edit, const char *name);
/* Returns false if out of memory; peers->missing is set then. */
bool shelf_peers_push(struct shelf_peers *peers, struct shelf_peer peer);
/* The same, but an owner that is already in the list moves to the end. Seq 0 stands for all owners
 * of the client. */
void shelf_peers_add(struct shelf_peers *peers, const lockstate_entry *e, enum lockstate_why why);
/* The entry of the op's owner, as the entry would stand on the shelf. */
lockstate_entry shelf_entry(const shelf_engine *se, const pawl_op *op);
/* Write the error text of a refusal. Returns the code to finish the op with. */
int shelf_edit_error(const shelf_edit *edit);

/* waiters.c */
void shelf_acquire(shelf_engine *se, pawl_op *op);
void shelf_check_due(shelf_engine *se);
void shelf_waiter_mark(shelf_waiter *w, enum shelf_cause cause); /* must be checked */
void shelf_waiter_free(shelf_waiter *w);
void shelf_safety_fired(pawl_timer *timer); /* the timer of safety_ms */

#endif
