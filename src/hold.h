/* SPDX-License-Identifier: Apache-2.0
 *
 * hold.h - a hold: one owner's relation to one name, from the acquire to the end.
 *
 * The table lists all states, and all events that a hold reacts to in each state. The functions are
 * in hold.c (up to the grant) and hold_end.c (from the release or the loss on). RELEASING* and
 * HELD* mean that the hold is also `finished`: its owner has finished with the hold,
 * pawl__hold_find no longer returns the hold, and the owner may acquire the name anew while the old
 * grant is still being released. Free and close (pawl__hold_abandon) make every hold finished.
 *
 *   state       event                                    next state    function
 *   ----------  ---------------------------------------  ------------  ---------------------------
 *   (new)       acquire; another hold is the front of    WAITING       pawl__hold_acquire,
 *               the name (cohort.c)                                    pawl__cohort_enter
 *               acquire; no cohort, or no front yet      ACQUIRING     pawl__hold_start
 *   WAITING     becomes the front of its name            ACQUIRING     pawl__hold_start
 *               the front passes its grant on            HELD          pawl__hold_granted
 *               time limit, cancel, free, close          OVER          pawl__hold_cancel
 *   ACQUIRING   cancel, free, close: the request is      ACQUIRING     pawl__hold_cancel
 *               cancelled, and its answer decides
 *               granted                                  HELD          pawl__hold_granted
 *               granted after free or close, or the      RELEASING*    release_unwanted
 *               outcome is unknown
 *               granted after the end of the lease       ACQUIRING,    granted_too_late
 *                                                        no time: OVER
 *               refused, cancelled, time limit           OVER          not_acquired
 *   HELD        the owner acquires again                 HELD          reenter
 *               release, but not the last one; release   HELD          pawl__hold_release
 *               of some permits
 *               last release, free, close:               RELEASING     release_whole
 *                 - the cohort takes the grant           OVER          release_whole
 *                 - at_least_ms have not passed          HELD*         begin_linger
 *                 - close, and the lease ends before     OVER          leave_to_lease
 *               lingered for at_least_ms                 RELEASING*    linger_over
 *               deadline passed, a renewal was refused,  LOST,         pawl__hold_lost
 *               session lost                             no owner: OVER
 *   RELEASING   released, or the grant was gone          OVER          release_answered
 *               failed                                   UNRELEASED,   release_failed
 *                                                        closing: OVER
 *   UNRELEASED  release                                  RELEASING     pawl__hold_release
 *               the owner acquires, free, close          RELEASING*    pawl__hold_release_unowned
 *               the lease has ended                      OVER          unreleased_expired
 *                 - but the grant can outlast its lease  RELEASING*    unreleased_expired
 *   LOST        released as often as acquired            OVER          release_lost
 *               free, close, the owner's thread ends     OVER          pawl__hold_over
 *   OVER        nothing refers to the hold any more      (reused)      pawl__hold_over
 *
 * EVENTS. Every change happens under the client's mutex: by the owner's call, by the answer to the
 * hold's one request, by the hold's timers, by the answer to a renewal (lease.c), by freeing the
 * handle, by the end of the owner's thread, or by closing the client.
 *
 * REQUESTS. A hold has at most one request at a time: ACQUIRE while ACQUIRING, RELEASE while
 * RELEASING. (Renewals are requests of lease.c.) So a release can't overtake its acquire. A hold
 * that leaves HELD ends its lease in the same step, so no renewal outlives the hold.
 *
 * PARTIAL. A HELD hold has a request while the service counts a re-entry or a release, or while
 * some permits are released (`partial`). The hold may be LOST or OVER when the answer comes. Until
 * then further calls of the owner get PAWL_ESTATE, and free and close only set `abandoned`. If the
 * service may still have a grant after that, a hold of its own releases that grant
 * (pawl__hold_release_leftover).
 *
 * RESULTS. Each caller gets its result exactly once. `thread` (a blocking caller) or `done_cb.fn`
 * (until its callback runs) is set with the request, or when the hold is queued, and only
 * pawl__hold_report clears or queues it. A hold takes no second caller while a result is due.
 *
 * MEMORY. An OVER hold goes to holds.spare and is reused when nothing refers to the hold: its
 * request is IDLE, no result is due, and none of its callbacks is queued or running. Each of these
 * ends in pawl__hold_over, which checks all of them. The memory is freed with the client.
 *
 * NUMBERS. Each acquire has a number of its own (owner.seq), and the engine's grant belongs to that
 * number. A late or repeated request of an earlier acquire can therefore never touch a later one.
 */
#ifndef PAWL_HOLD_H
#define PAWL_HOLD_H

#include "driver.h"
#include "engine.h"
#include "list.h"
#include "request.h"

enum hold_state {
    HOLD_WAITING,   /* in the queue of its name, not at the engine */
    HOLD_ACQUIRING, /* the ACQUIRE is at the engine */
    HOLD_HELD,
    HOLD_RELEASING, /* the RELEASE is at the engine */
    HOLD_UNRELEASED, /* the release failed and may be repeated until the lease has ended */
    HOLD_LOST,      /* lost, and the owner has not released the hold yet */
    HOLD_OVER       /* ended; the memory is reused when nothing refers to the hold any more */
};

/* The options of a handle, as far as its holds need them. */
struct terms {
    uint8_t mode;
    uint8_t kind;  /* enum pawl_kind */
    bool queue;    /* wait in the service's queue; else poll */
    bool cohort;   /* the grant may be passed on inside the process */
    bool reentrant;
    int64_t lease_ms; /* 0: watchdog */
    int64_t max_hold_ms;
    int64_t at_least_ms;
    uint64_t count; /* semaphore's capacity */
    pawl_lost_fn *on_lost;
    void *arg;
};

struct hold {
    struct request request;
    pawl_client *client;
    struct name_state *name_state;
    struct list in_client, in_name, in_queue;
    struct terms terms;        /* the handle's */
    pawl_lock *lock;           /* the handle of the acquire; NULL once freed */
    pawl_semaphore *sem;
    pawl_owner owner; /* owner.seq identifies the engine's grant */
    uint64_t id;      /* unique per use: the memory of a hold is reused */
    const struct group *group; /* the multi-lock that acquires, or NULL */
    uint8_t state;
    uint8_t why;      /* LOST: enum pawl_lost_reason */
    uint8_t verify_why; /* why the engine asked to verify the hold, or 0 */
    char *by;         /* the breaker of the lock; "": two reports differ; NULL: not known */
    bool is_front;    /* the one hold of its name's cohort that the engine knows */
    bool orphan;      /* its thread has ended */
    bool finished;    /* its owner has finished with the hold, and may acquire anew */
    bool abandoned;   /* free or close: release as soon as the pending request is answered */
    unsigned releases_due; /* how often to release when the pending request is answered */
    bool acquires;    /* done_cb reports, or last reported, an acquire */
    bool maybe_released; /* a release got no answer */
    int count;
    uint32_t permits;
    struct waiter_thread *thread; /* the blocking caller of the current transition, or NULL */
    struct callback done_cb, lost_cb;

    int64_t asked;      /* when the owner asked */
    int64_t wait_until;
    pawl_timer wait_timer; /* WAITING: time limit; HELD: the thread has ended (cohort.c); HELD*:
                              at_least_ms; UNRELEASED: the lease */
    uint64_t with_seq; /* the exclusive hold beside this shared one */
    bool waited, try_once;
    bool warned;       /* the log has a warning about this wait */
    bool partial;      /* HELD or LOST with a pending request that changes permits or counts */
    uint32_t keep;     /* the permits or counts that a partial release keeps */

    /* the grant */
    uint64_t token, token_end; /* own token; end of the reserved range */
    int64_t since;
    int64_t deadline; /* until this instant the grant is certainly valid */
    int64_t lease_from, lease_len; /* the last confirmed lease, ns */
    int64_t ends;                  /* when the requested lease ends */
    int64_t renewal_late;          /* how much later than due the latest renewal was sent, ns */
    bool claim;                    /* the lease is shorter than requested: renew soon */
    pawl_timer lost_timer;
    pawl_timer renew_timer; /* in client->leases.due */
    pawl_renewal *renewing; /* the hold's item in a submitted batch */
    bool verify;            /* verify again when the submitted renewal is answered */
};

/* The holds of one client. */
struct holds {
    struct list all;   /* every hold that is not OVER */
    size_t live;       /* their number */
    struct list spare; /* OVER and unused: memory for new holds */
    uint64_t last_id;
};

/* The receiver of a result: exactly one of thread (blocking) and done (asynchronous) is set. */
struct asker {
    pawl_lock *lock;
    pawl_semaphore *sem;
    struct waiter_thread *thread;
    pawl_done_fn *done;
    void *arg;
    uint64_t holder;
    const struct group *group; /* the multi-lock that asks, or NULL */
};

/* The part of a multi-lock that its members' holds use. `cancels` is incremented under a member's
 * mutex before the member's holds are cancelled, so an acquire either sees the change or is found
 * by the cancel. */
struct group {
    atomic_uint cancels;
};

/* ---- hold.c: up to the grant ----------------------------------------------------------------- */

/* NULL: no memory. */
struct hold *pawl__hold_new(pawl_client *client, struct name_state *name_state);
/* The hold of this owner in this mode that is not finished, or NULL. */
struct hold *pawl__hold_find(struct name_state *name_state, uint64_t holder, int mode);
/* Acquire. Returns 0 if the asker will receive (or has received) the result, else an error. */
int pawl__hold_acquire(pawl_client *client, struct name_state *name_state,
                       const struct terms *terms,
                       const struct asker *asker, uint32_t permits, int64_t wait_ms,
                       pawl_error *err);
void pawl__hold_start(struct hold *hold); /* submit the ACQUIRE to the engine */
void pawl__hold_granted(struct hold *hold);
/* End a wait; `why` is the result. No effect in other states than WAITING and ACQUIRING. */
void pawl__hold_cancel(struct hold *hold, int why);
/* Set the receiver of the next result. NULL: none; a result that is already due to an earlier asker
 * is still delivered. */
void pawl__hold_set_asker(struct hold *hold, const struct asker *asker);
void pawl__hold_report(struct hold *hold, int code); /* deliver the result to the asker */
/* Set the state OVER. The memory is reused when nothing refers to the hold (see MEMORY). */
void pawl__hold_over(struct hold *hold);

/* ---- hold_end.c: from the release or the loss on --------------------------------------------- */

/* Release one count, or all permits but `keep`. Returns 0 if the asker will receive (or has
 * received) the result. Without an asker nobody receives the result. */
int pawl__hold_release(struct hold *hold, uint32_t keep, const struct asker *asker,
                       pawl_error *err);
/* Release a HELD or LOST hold `times` times, without an asker. */
void pawl__hold_release_times(struct hold *hold, unsigned times);
/* Release the grant of this hold, which the service may or may not have, without an asker. The hold
 * is finished from now on. */
void pawl__hold_release_unowned(struct hold *hold);
/* Let a new hold release the grant of this hold, which is useless and which the service may or may
 * not still have. */
void pawl__hold_release_leftover(const struct hold *hold, int64_t lease_ms);
/* The handle is freed, or the client closes: cancel a wait, release a grant. forget: don't call
 * on_lost any more. */
void pawl__hold_abandon(struct hold *hold, bool forget);
/* The grant is lost. why: enum pawl_lost_reason; 0: the deadline has passed. */
void pawl__hold_lost(struct hold *hold, int why);
#define LOST_CAUSE_MAX 256 /* the reason, and the breaker or the time without contact */
const char *pawl__hold_lost_cause(const struct hold *hold, char cause[LOST_CAUSE_MAX]);
/* Returns PAWL_ELOST, and puts the reason of the loss into `err`. */
int pawl__hold_error_lost(const struct hold *hold, pawl_error *err);
/* The request of a partial hold was answered: deliver the result, and release if that is due. */
void pawl__hold_partial_answered(struct hold *hold, int code);

#endif
