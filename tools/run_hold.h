/* SPDX-License-Identifier: Apache-2.0
 *
 * run_hold.h - the lock or permit that `pawl run` holds, behind one interface.
 *
 * A lock is acquired asynchronously through the client's descriptor; a permit by a blocking call on
 * a thread, because semaphores have no asynchronous call. `lost` may be set by any thread of Pawl's
 * and is never cleared; the descriptor `event` is readable from then on.
 */
#ifndef PAWL_RUN_HOLD_H
#define PAWL_RUN_HOLD_H

#include "await.h"
#include "run_options.h"

typedef struct hold {
    call call; /* first: passed to the task functions; a lock uses only call.task */
    const tool *tool;
    const run_options *options;
    pawl_client *client;
    pawl_lock *lock;     /* this one or `sem` is set */
    pawl_semaphore *sem;
    int event;           /* eventfd: readable when the lock is lost */
    atomic_bool lost;
    atomic_int why;      /* enum pawl_lost_reason, set before `lost`; 0: not known */
    char cause[256];     /* pawl_lock_lost_cause, set before `why` */
    int64_t deadline, contact; /* the latest deadline, and when it was seen (boot_now) */
    bool done;           /* a lock's acquire was answered with `code` */
    int code;
    bool silent;         /* the service did not answer the last inspection */
    int64_t waiting_since;
    pawl_error err;
} hold;

/* Open the client and make the handle. Returns 0, or the exit status after the message. */
int hold_open(hold *, const tool *, const run_options *);

/* Wait for the lock. Returns HELD, or the exit status (without a message if the lock is not
 * free). */
enum { HELD = -1 };
int hold_acquire(hold *, const signals *);

/* A descriptor to poll for input besides hold.event (-1: none), and the call to make then. */
int hold_fd(const hold *);
void hold_process(hold *);

/* An instant (boot_now) until which the lock is certainly held; 0: not held. */
int64_t hold_deadline(const hold *);
uint64_t hold_token(const hold *);

/* `deadline` is from hold_deadline; a later deadline than before shows that the service answered.
 * */
void hold_note_contact(hold *, int64_t deadline);

/* Release the lock. Returns a Pawl code; hold.err has the text. */
int hold_release(hold *);
/* Write the cause of the loss, for people, into buf. Returns buf. */
const char *hold_lost_cause(const hold *, char *buf, size_t size);
void hold_close(hold *);

/* run_metrics.c: write the file of --metrics, if there is one. `status` is used for RUN_ENDED
 * only. */
enum { RUN_WAITS, RUN_HOLDS, RUN_ENDED };
typedef struct run_metrics {
    double started, acquired, ended; /* seconds of the wall clock; 0: not yet */
    bool complained;
} run_metrics;
void run_metrics_write(run_metrics *, const hold *, int phase, int status);

/* waiting.c: choose how and how often the holder is shown during the wait. A wait that has nothing
 * to show sets no timer. */
void waiting_begin(hold *);
/* Print the holder and the age of the hold, once, as an ordinary line. */
void waiting_say(hold *, const char *prefix);

#endif
