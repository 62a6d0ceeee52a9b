/* SPDX-License-Identifier: Apache-2.0
 *
 * guardian.h - the process that ends the command when `pawl run` can't.
 *
 * A command must not continue when another owner may have the lock. `pawl run` may be killed or
 * stopped, so a second process, the guardian, watches the deadline. Both share one page of memory
 * and a socket, whose end-of-file tells the guardian that `pawl run` is gone. Only the guardian
 * sends signals because of a deadline or a loss:
 *
 *     deadline - kill_after     SIGTERM to the command's process group, at the deadline SIGKILL
 *                               (both a little earlier: see margin() in guardian.c)
 *     the lock was lost         SIGTERM now, SIGKILL after kill_after
 *     `pawl run` is gone        SIGTERM now, SIGKILL after kill_after or at the deadline
 *
 * _Fork() makes the guardian, without Pawl's own fork handlers, so the engine's descriptors stay
 * open in the guardian. The engine local:, which the kernel tells of a holder's death, therefore
 * keeps the lock of a killed `pawl run` until the guardian ends, and the guardian ends after the
 * command. Between _Fork() and _exit() the guardian calls async-signal-safe functions only: other
 * threads of `pawl run` may have held any mutex at that moment.
 *
 * STATES (guard_page.state), each step by compare-and-swap, so that the two never disagree:
 *     GUARD_WATCH -> GUARD_KILL   by the guardian, which ends the group; the lock counts as lost
 *     GUARD_WATCH -> GUARD_DONE   by `pawl run`: the command ended, no signal will be sent any more
 * The command stays unreaped until GUARD_DONE or until the guardian is gone, so the number of the
 * process group can't belong to another group when the guardian sends a signal.
 */
#ifndef PAWL_GUARDIAN_H
#define PAWL_GUARDIAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { GUARD_WATCH, GUARD_KILL, GUARD_DONE };

typedef struct guard_page {
    _Atomic int64_t deadline; /* ns of CLOCK_BOOTTIME; set by `pawl run` only */
    int64_t kill_after;       /* ns; set before the guardian starts */
    _Atomic int32_t state;
    _Atomic int32_t lost;
    _Atomic int32_t group;    /* the command's process group; 0 before the start */
} guard_page;

typedef struct guardian {
    guard_page *page;
    pid_t pid; /* 0: no guardian at the moment */
    int link;  /* our end of the socket */
    bool over; /* the guardian ended by itself: nothing is left to guard */
} guardian;

/* Tell the guardian code where this process's arguments are, so that the guardian can show a title
 * of its own in ps(1) instead of a second "pawl run". main calls this function first. */
void guardian_title_area(int argc, char **argv);

/* Start guarding. `deadline` is an instant (boot_now) until which the lock is surely held.
 * Returns 0 or an errno. */
int guardian_open(guardian *, int64_t deadline, int64_t kill_after_ms);

/* How long before the deadline the guardian begins to end the command. Both times are in ns. */
int64_t guardian_needs(int64_t kill_after);

/* The lock was renewed until `deadline`. */
void guardian_deadline(guardian *, int64_t deadline);

/* The lock is lost: end the command now. */
void guardian_lost(guardian *);

/* Called in the forked child, in its own process group and before exec. Returns false if it is too
 * late to start the command. */
bool guardian_enlist(guardian *);

/* If somebody killed the guardian, start another. Returns 0 or an errno. */
int guardian_check(guardian *);

/* The command has ended (and is not yet reaped). Returns true if it ended in time. False: the
 * guardian ended the command or should have, and no process of the group is left. */
bool guardian_finish(guardian *);

void guardian_close(guardian *);

#endif
