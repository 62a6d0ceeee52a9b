/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h - what the files of the core share.
 *
 * ONE MUTEX per client (`mu`) guards the client, everything that hangs on it, its libuv loop and
 * its engine. It is never held while user code runs and never while anybody waits. Functions here
 * expect it held unless they say otherwise.
 *
 * From top to bottom:
 *   lock, multi, semaphore, latch, inspect   the public calls
 *   hold     one owner's relation to one name: waiting, acquiring, held, releasing, lost
 *   cohort   holds of one name inside this process (struct site)
 *   keeper   leases of holds: renewal, deadline, loss
 *   request  one op on its way: repeated while the outcome is unknown, cancelled at its deadline
 *   driver   who runs the loop; the keeper thread; user callbacks
 *   client   opening, closing, the env that engines see
 */
#ifndef PAWL_CORE_H
#define PAWL_CORE_H

#include <pthread.h>
#include <uv.h>

#include "engine.h"
#include "fork.h"
#include "list.h"
#include "timers.h"

struct hold;

/* ---- request.c ------------------------------------------------------------------------------ */

enum request_phase {
    REQUEST_IDLE,   /* not begun, or finished */
    REQUEST_DUE,   /* to be submitted when the engine has returned */
    REQUEST_OUT,    /* the engine has it */
    REQUEST_PAUSED  /* waits before it is submitted again */
};

struct request {
    pawl_op op;
    pawl_client *client;
    struct list todo;
    pawl_timer pause, limit;
    int64_t started;    /* now() at the start */
    int64_t first_sent; /* now() before the first submit */
    int64_t sent;       /* now() before the latest submit */
    uint8_t phase;
    bool once;          /* don't repeat: finish with whatever the first answer is */
    bool poll;          /* PAWL_EBUSY is not an answer but a reason to try again */
    bool unknown;       /* an earlier answer never came */
    bool held;          /* ACQUIRE: an answer said that somebody else has it */
    bool cancel_todo;
    int giving_up;      /* why it was cancelled (PAWL_ETIMEDOUT, PAWL_ECANCELED), or 0 */
    uint32_t attempts;
    pawl_error err;
    void (*finish)(struct request *request, int code);
    struct list all;    /* in client->requests while it is not IDLE */
    void *owner;        /* the starter's */
    const void *handle; /* what a cancel may name, or NULL */
};

/* Prepare; the caller then fills in op.kind and the rest of the request part. */
void pawl__request_init(struct request *request, pawl_client *client,
                        void (*finish)(struct request *, int code));

/* Send it; finish() is called exactly once, maybe before this returns. At `deadline` it is given up
 * (PAWL_NEVER: no limit). */
void pawl__request_start(struct request *request, int64_t deadline);

/* Give up before the deadline; finish() gets `why`, unless the answer is faster. */
void pawl__request_cancel(struct request *request, int why);

/* Has the service said, by now, that somebody else has it? */
static inline bool pawl__request_heard_held(const struct request *request)
{
    return request->held || request->op.waited;
}

/* Submit what was put off. Called wherever the engine has returned. */
void pawl__requests_flush(pawl_client *client);

/* ---- driver.c ------------------------------------------------------------------------------- */

/* Somebody who waits for an outcome: a thread in a blocking call, or a user's callback. */
struct call {
    bool done;
    int code;
    /* blocking */
    bool blocking;
    bool local; /* waits for another thread of this process: nothing in the loop is for it */
    struct list sleeping;
    pthread_cond_t wake;
    pawl_error *err;
};

/* A user callback on its way; lives in the hold or the multi-lock it is about. */
struct callback {
    struct list queued;
    bool pending, running;
    pawl_done_fn *fn; /* pawl_lost_fn has the same shape; NULL: nobody to tell */
    void *arg;
    pawl_lock *lock; /* a reference from when it is certain to be queued, or NULL */
    int code;
    const struct hold *hold; /* whom queries inside the callback are about, or NULL */
    void (*gone)(struct callback *callback); /* with the mutex, afterwards */
};

/* Blocking calls: begin, start something that ends in pawl__call_done, wait. */
void pawl__call_begin(struct call *call, pawl_error *err);
void pawl__call_done(pawl_client *client, struct call *call, int code);
/* What it waits for is in the loop from now on: let it drive. */
void pawl__call_drive(struct call *call);
int pawl__call_wait(pawl_client *client, struct call *call);
void pawl__call_end(struct call *call); /* instead of waiting, if nothing was started */

void pawl__callback_queue(pawl_client *client, struct callback *callback, int code);

/* Whom the callback is about that the calling thread is in; NULL outside callbacks. */
const struct hold *pawl__acting(void);

/* Is the calling thread inside a user callback? */
bool pawl__in_callback(void);

int pawl__driver_init(pawl_client *client, pawl_error *err);
void pawl__driver_end(pawl_client *client);
/* The keeper thread runs from here on; PAWL_ENOMEM if it can't be started. */
int pawl__keeper_thread_start(pawl_client *client);
void pawl__keeper_thread_stop(pawl_client *client); /* drops and retakes the mutex */
/* Before the mutex is let go: do what was put off, and see that somebody will be woken in time. */
void pawl__settle(pawl_client *client);
/* Run what is ready: loop, wakes, due timers. */
void pawl__turn(pawl_client *client);
void pawl__signals_forget(pawl_client *client);
/* Wake whoever sits in the outer epoll_wait. */
void pawl__kick(pawl_client *client);
/* Tell who runs callbacks (a foreign loop, or the keeper in its poll); callers never read it. */
void pawl__tell(pawl_client *client);
/* Make the timer descriptor ring no later than the earliest timer; it may ring for nothing. */
void pawl__arm(pawl_client *client);
void pawl__forget(pawl_client *client); /* what the outer descriptor has rung for */
/* Nobody drives: the keeper will when it has rested, or a timer is due. */
void pawl__rest_end(pawl_client *client);
/* Something may be under way that no caller waits for: the keeper is not to rest over it. */
void pawl__keeper_need(pawl_client *client);
int pawl__user_fd(pawl_client *client); /* the foreign loop's descriptor; -1: none to be had */
/* Run queued callbacks; returns how many, or PAWL_EFORK: one forked and this is the child, which
 * must touch nothing of the client any more. */
int pawl__dispatch(pawl_client *client, bool by_keeper);

/* ---- keeper.c ------------------------------------------------------------------------------- */

void pawl__keeper_init(pawl_client *client);
/* A hold was granted: watch its lease. Its op's answer gives the lease. */
void pawl__keeper_add(struct hold *hold);
void pawl__keeper_remove(struct hold *hold);
/* A grant changes hands inside the process. */
void pawl__keeper_move(struct hold *from, struct hold *to);
/* A confirmed lease of lease_ms that began at `from`. */
void pawl__keeper_confirm(struct hold *hold, int64_t from, int64_t lease_ms);
/* A lease of lease_ms was asked for, and given_ms of it (0: all) were confirmed. */
void pawl__keeper_extend(struct hold *hold, int64_t from, int64_t lease_ms, int64_t given_ms);
void pawl__keeper_stop_renewing(struct hold *hold);
void pawl__keeper_verify_all(pawl_client *client, int why); /* why: as in pawl_op.reason */
/* Until when a lease of lease_ms that began at `from` is surely good. */
int64_t pawl__valid_until(int64_t from, int64_t lease_ms);
/* The lease to ask for: the handle's, not past max_hold. */
int64_t pawl__lease_wanted(const struct hold *hold, int64_t now);
/* The deadline has passed: why was the lease not renewed? */
int pawl__keeper_why(const struct hold *hold, int64_t now);

/* ---- hold.c, hold_end.c ---------------------------------------------------------------------- */

enum hold_state {
    HOLD_WAITING,   /* in its site's queue, not at the engine */
    HOLD_ACQUIRING, /* at the engine */
    HOLD_HELD,
    HOLD_RELEASING, /* at the engine */
    HOLD_UNRELEASED, /* the release failed and may be repeated until the lease has ended */
    HOLD_LOST,      /* the owner has not released it yet */
    HOLD_OVER       /* nobody's; used again when nothing refers to it any more */
};

/* What a hold needs to know about its handle. */
struct terms {
    uint8_t mode;
    uint8_t kind;  /* enum pawl_kind */
    bool queue;    /* wait in the service's queue; else try again and again */
    bool cohort;   /* may be handed on inside the process */
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
    struct site *site;
    struct list in_client, in_site, in_queue;
    struct terms terms;        /* the handle's */
    pawl_lock *lock;           /* the handle it was acquired through; NULL once that is freed */
    pawl_semaphore *sem;
    pawl_owner owner; /* owner.seq is what the engine's grant belongs to */
    uint64_t id;      /* of this life: a hold is used again */
    const struct group *group; /* the multi-lock that asked for it, or NULL */
    uint8_t state;
    uint8_t why;      /* LOST: enum pawl_lost_reason */
    uint8_t verify_why; /* why the engine wants it verified, or 0 */
    bool is_front;    /* the one hold of its site's cohort that the engine knows of */
    bool orphan;      /* its thread has ended */
    bool ghost;       /* its owner is through with it, and may ask anew */
    bool give_back;   /* release as soon as its request is answered */
    unsigned owed;    /* pawl__hold_leave came while a request was out: so many times */
    bool acquires;    /* done_cb is, or was last, about an acquire */
    bool maybe_released; /* a release of it got no answer */
    int count;
    uint32_t permits;
    struct call *call; /* the blocking caller who waits for the present transition, or NULL */
    struct callback done_cb, lost_cb;

    int64_t asked;      /* when the owner asked */
    int64_t wait_until;
    pawl_timer wait_timer; /* HOLD_WAITING */
    uint64_t with_seq; /* the exclusive hold that this shared one goes with */
    bool waited, try_once;
    bool partial;      /* HELD or LOST, and its request is out: permits or counts come or go */
    uint32_t keep;     /* a partial release (permits, counts) keeps so many */

    /* the grant */
    uint64_t token, token_end; /* own token; end of the reserved range */
    int64_t since;
    int64_t deadline; /* surely good until then */
    int64_t lease_from, lease_len; /* the last confirmed lease, ns */
    int64_t ends;                  /* when the lease that was asked for is over */
    int64_t renewal_late;          /* how much later than due its latest renewal was sent, ns */
    bool claim;                    /* it is shorter than asked for, and to be renewed soon */
    pawl_timer lost_timer;
    pawl_timer renew_timer; /* in client->renewals */
    pawl_renewal *renewing; /* its item in a batch that is out */
    bool verify;            /* something happened meanwhile: ask again after that */
};

/* Who asks: exactly one of call (blocking) and done (asynchronous) is set. */
struct asker {
    pawl_lock *lock;
    pawl_semaphore *sem;
    struct call *call;
    pawl_done_fn *done;
    void *arg;
    uint64_t holder;
    const struct group *group; /* the multi-lock that asks, or NULL */
};

/* A multi-lock, as far as its members' holds know it. Under a member's mutex: `cancels` is raised
 * before the member's holds are cancelled. So an acquire either sees that it changed or is found
 * by the cancel. */
struct group {
    atomic_uint cancels;
};

/* Acquire. Returns 0 if the asker will be told (or has been), else what is wrong. */
int pawl__hold_acquire(pawl_client *client, struct site *site, const struct terms *terms,
                       const struct asker *asker, uint32_t permits, int64_t wait_ms,
                       pawl_error *err);
struct hold *pawl__hold_new(pawl_client *client, struct site *site); /* NULL: no memory */
/* Who is to be told of the next outcome. NULL: nobody, and who is owed one already still is. */
void pawl__hold_set_asker(struct hold *hold, const struct asker *asker);
/* A grant may have been given to us, or was and is not wanted: release it, telling nobody. */
void pawl__hold_give_back(struct hold *hold);
/* Release a HELD or LOST hold so many times, without anybody who waits for the outcome. */
void pawl__hold_leave(struct hold *hold, unsigned times);
/* End what the service may still have of a grant of this hold that is of no use. */
void pawl__hold_let_go(const struct hold *hold, int64_t lease_ms);
struct hold *pawl__hold_find(struct site *site, uint64_t holder, int mode);
/* Give back one count, or for permits all but `keep`. Returns 0 if the asker will be told (or has
 * been). No asker: nobody is told. */
int pawl__hold_release(struct hold *hold, uint32_t keep, const struct asker *asker,
                       pawl_error *err);
/* End a hold in whatever state it is: waiting is cancelled, held is released. */
void pawl__hold_discard(struct hold *hold, bool forget); /* forget: on_lost is not wanted, either */
void pawl__hold_cancel(struct hold *hold, int why);
/* why: enum pawl_lost_reason; 0: its deadline has passed. */
void pawl__hold_lost(struct hold *hold, int why);
/* PAWL_ELOST, and in `err` why this hold was lost. */
int pawl__hold_error_lost(const struct hold *hold, pawl_error *err);
void pawl__hold_start(struct hold *hold); /* send the acquire to the engine */
void pawl__hold_finish(struct hold *hold, int code); /* tell the caller */
void pawl__hold_granted(struct hold *hold);
/* The request of a partial hold is answered: tell, and go on with what was put off. */
void pawl__hold_partial_over(struct hold *hold, int code);
/* State OVER. Used again when its request is answered, its asker told and its callbacks over. */
void pawl__hold_drop(struct hold *hold);

/* ---- cohort.c ------------------------------------------------------------------------------- */

/* One name in one client. */
struct site {
    struct site *next; /* in its hash bucket */
    struct list holds; /* of every state */
    struct list queue; /* HOLD_WAITING, in order of arrival */
    struct hold *front;
    uint32_t refs;
    bool contended;    /* threads of this process have met here: reserve token ranges */
    uint64_t hash;
    char name[];
};

struct site *pawl__site_get(pawl_client *client, const char *name); /* NULL: no memory */
void pawl__site_put(pawl_client *client, struct site *site);
void pawl__sites_free(pawl_client *client);
/* The front has the name, or was told that somebody else has it: not just asked. */
bool pawl__site_held(const struct site *site);
/* May this hold go to the engine now? If not it is queued. */
bool pawl__cohort_enter(struct hold *hold);
/* Hand the grant on to the next in the process. False: there is none, or it is others' turn. */
bool pawl__cohort_pass(struct hold *hold);
/* The hold is no longer the front: the next one goes to the engine. */
void pawl__cohort_leave(struct hold *hold);
uint32_t pawl__cohort_tokens(const struct hold *hold); /* how many to reserve */

/* ---- stats.c -------------------------------------------------------------------------------- */

void pawl__histogram_add(uint64_t *buckets, int64_t ns);

/* ---- options.c, url.c, modules.c, env.c ------------------------------------------------------ */

/* Copy a caller's option struct into ours (zeroed first); NULL is all defaults. */
int pawl__options_copy(void *to, size_t size, const void *from, const char *what, pawl_error *err);
int pawl__name_check(const char *name, pawl_error *err);
#define PAWL_MS_MAX (1000LL * 3600 * 24 * 365 * 10)
bool pawl__bad_ms(int64_t ms); /* negative, or above ten years */
/* "'name': words"; NULL words: the code's own. Returns the code. */
int pawl__error_about(pawl_error *err, int code, const char *name, const char *words);

int pawl__url_parse(pawl_url *ret, const char *text, pawl_error *err);
void pawl__url_free(pawl_url *url);
/* A whole number of milliseconds from a parameter; *ret untouched if it is not given. */
int pawl__url_ms(const pawl_url *url, const char *key, int64_t *ret, pawl_error *err);
int pawl__url_all_used(const pawl_url *url, pawl_error *err);

int pawl__engine_find(const pawl_engine **ret, const char *scheme, pawl_error *err);

int pawl__instance_open(pawl_env *env, pawl_instance *ret, const pawl_url *url, pawl_error *err);
int pawl__env_init(pawl_client *client); /* -1: no random numbers to be had */
void pawl__states_free(pawl_client *client);
void pawl__wakes_run(pawl_client *client);
/* Let go of the mutex and deliver the log lines that were kept. */
void pawl__unlock(pawl_client *client);
int64_t pawl__clock_ns(void);

/* ---- client.c ------------------------------------------------------------------------------- */

/* A clock and a random source of the simulator; then nothing waits and no thread runs. */
struct pawl_world {
    int64_t (*now)(void *arg);
    uint64_t (*random)(void *arg);
    void (*idle)(void *arg); /* nothing is ready: let time pass until something is; no mutex held */
    void *arg;
};

enum client_state { CLIENT_OPEN, CLIENT_CLOSING, CLIENT_CLOSED };

#define PAWL_HANDLE_BIT (1ull << 63) /* tells handles' numbers from threads' */
#define DRIVER_KEEPER ((struct call *)-1)

struct pawl_client {
    pawl_env env; /* first: an env is its client */
    pthread_mutex_t mu;
    pawl_instance engine;
    uint32_t caps;
    uint64_t generation; /* of the process it was opened in */
    struct list registered;
    uint32_t refs;
    uint32_t active;     /* blocking calls that wait */
    int state;
    char *identity;      /* of the service, for ordering multi-locks */
    char *label;
    char *user, *password;
    const struct pawl_world *world;

    struct state_box *states;
    struct log_line *log_lines;
    pawl_log_fn *log;
    void *log_arg;
    int log_level;
    pawl_client_options options; /* as given */
    int64_t cohort;

    uint64_t last_seq, last_handle, last_hold;
    struct request event; /* the standing EVENT op */
    bool in_submit; /* or in cancel: the engine may leave things to be flushed */
    bool unflushed; /* an op stayed out, or was cancelled */
    bool dirty;     /* the loop must be turned before a wait */

    struct site **sites;
    size_t nsites, site_room;
    struct list holds; /* all that are not OVER */
    size_t live;       /* how many */
    struct list requests; /* all that are under way, except `event` */
    struct call *closing; /* pawl_close waits for live, requests and active to be gone */
    bool close_late;      /* it waits no longer for what the engine does in the background */
    int close_code;       /* what pawl_close returns */
    int64_t linger_until; /* what at_least_ms keeps while the client closes is released by then */
    struct list spare; /* holds to use again */

    struct timers timers;
    struct timers renewals;
    pawl_timer renew_timer;

    struct list todo;  /* requests to submit or cancel */
    int in_engine;
    struct request *submitting; /* the one inside the engine's submit, until it is answered */
    pawl_wake *wakes;
    atomic_bool woken;

    uv_loop_t loop;
    bool loop_open;
    int epoll_fd, timer_fd, kick_fd;
    int tell_fd; /* only for who runs callbacks */
    int rest_fd; /* only for the keeper: it has rested enough */
    int user_fd; /* all of the above, for a foreign loop; -1 until it is asked for */
    int64_t armed;
    bool stepped_in;   /* fd_mode: the foreign loop was late, the keeper drives */
    int64_t backed_up; /* fd_mode: the keeper sleeps until (a little after) then */
    struct call *driver;
    struct list sleepers;
    uint64_t activity;
    bool asked;         /* something was sent since the last wait */
    bool contended;     /* the last acquire had to wait for others */
    unsigned in_vain;   /* spins in a row that did not see the answer */
    unsigned spin_rest; /* waits to come that do without */

    pthread_t keeper;
    pthread_cond_t keeper_wake;
    bool keeper_runs, keeper_stops;
    bool keeper_polls;  /* it sits in poll(): a signal of the condition would be lost */
    bool keeper_rests;  /* it lets callers drive */
    bool keeper_needed; /* something is under way that no caller waits for */
    int64_t rest_until; /* when rest_fd rings, or PAWL_NEVER */

    struct list callbacks;
    bool dispatching, fd_mode;
    pthread_cond_t settled; /* a dispatch or an active call has ended */

    pawl_stats stats;
};

static inline int64_t pawl__now(pawl_client *client)
{
    return client->env.now(&client->env);
}

/* Lock the client for a public call; 0, or PAWL_EFORK, PAWL_ESTATE (closed), PAWL_EDEADLK (blocking
 * call in a callback). pawl__leave does what was put off and unlocks. */
int pawl__enter(pawl_client *client, bool blocking, pawl_error *err);
void pawl__leave(pawl_client *client);
/* What a URL, also one inside a wrapper's, says to the core; the program's options come first. */
int pawl__url_options(pawl_client *client, const pawl_url *url, pawl_error *err);
void pawl__client_unref(pawl_client *client); /* without the mutex */
void pawl__log(pawl_client *client, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int pawl__open_in(pawl_client **ret, const char *url, const pawl_client_options *options,
                  const struct pawl_world *world, pawl_error *err);

/* Something that pawl_close waits for may be over. */
void pawl__close_check(pawl_client *client);
/* While the client closes: a lock may stay behind, this is why. */
void pawl__close_failed(pawl_client *client, int code);

/* Send one op and wait for its outcome: inspection, latches, counts. wait_ms 0: the time-out. */
void pawl__exchange_init(struct request *request, pawl_client *client, int kind, int mode,
                         const char *name);
int pawl__exchange(struct request *request, int64_t wait_ms, pawl_error *err);
/* Cancel the exchanges that name this handle; how many. */
int pawl__exchanges_cancel(pawl_client *client, const void *handle);

/* ---- lock.c --------------------------------------------------------------------------------- */

struct pawl_lock {
    uint32_t refs; /* the handle's own, one per callback on its way, one per multi-lock */
    bool freed;    /* pawl_lock_free was called */
    pawl_client *client;
    struct site *site;
    struct terms terms;
    uint64_t handle; /* holder of handle-owned locks */
    bool by_thread;
    struct multi *multi; /* NULL: an ordinary lock */
};

/* With the mutex. The last one lets go of the client, whose memory stays: the caller, or the
 * client's being open, has a reference to it. */
void pawl__lock_unref(pawl_lock *lock);
/* Release what `holder` acquired through the lock so many times, in the background. */
void pawl__lock_give_back(pawl_lock *lock, uint64_t holder, unsigned times);
int pawl__lock_acquire(pawl_lock *lock, const struct group *group, unsigned cancels,
                       int64_t wait_ms, pawl_error *err);
int pawl__lock_acquire_start(pawl_lock *lock, const struct group *group, unsigned cancels,
                             int64_t wait_ms, pawl_done_fn *done, void *arg);
/* Has the calling owner something that pawl_lock_release would give back? */
bool pawl__lock_releasable(const pawl_lock *lock);
/* 0: the calling owner holds it. Else PAWL_ELOST, with words. */
int pawl__lock_check_held(const pawl_lock *lock, pawl_error *err);
/* Cancel what waits through this handle, for this group or (NULL) for any and none. */
int pawl__lock_cancel(pawl_lock *lock, const struct group *group);
/* The hold that a query on the lock is about, or NULL. */
struct hold *pawl__lock_hold(const pawl_lock *lock);

int pawl__multi_acquire(pawl_lock *lock, int64_t wait_ms, pawl_error *err);
int pawl__multi_release(pawl_lock *lock, pawl_error *err);
int pawl__multi_each(pawl_lock *lock, int (*fn)(pawl_lock *, int64_t, pawl_error *), int64_t arg,
                     pawl_error *err);
int pawl__multi_cancel(pawl_lock *lock);
int pawl__multi_acquire_start(pawl_lock *lock, int64_t wait_ms, pawl_done_fn *done, void *arg);
int pawl__multi_release_start(pawl_lock *lock, pawl_done_fn *done, void *arg);
int64_t pawl__multi_valid_ms(const pawl_lock *lock);
int pawl__multi_hold_count(const pawl_lock *lock);
int pawl__multi_lost_reason(const pawl_lock *lock);
void pawl__multi_free(pawl_lock *lock);

#endif
