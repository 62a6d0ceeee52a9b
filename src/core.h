/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h - declarations that the files of the core share.
 *
 * ONE MUTEX per client (`mu`) guards the client, all objects that belong to the client, its libuv
 * loop and its engine. The mutex is never locked while user code runs and never while a thread
 * waits. Functions here expect the mutex locked unless they say otherwise.
 *
 * From top to bottom (docs/glossary.md explains the terms):
 *   lock, multi, semaphore, latch, inspect   the public calls
 *   hold.h     one owner's relation to one name; the table of states
 *   cohort     the holds of one name inside this process (struct name_state)
 *   lease      the leases of holds: renewal, deadline, loss
 *   request.h  one op with its time limit: repeated while the outcome is unknown, then cancelled
 *   driver.h   the thread that runs the loop; the background thread; user callbacks
 *   client     opening, closing, the env that engines see
 */
#ifndef PAWL_CORE_H
#define PAWL_CORE_H

#include "driver.h"
#include "engine.h"
#include "fork.h"
#include "hold.h"
#include "list.h"
#include "pawl-observe.h"
#include "request.h"
#include "template.h"
#include "timers.h"

/* ---- lease.c -------------------------------------------------------------------------------- */

/* When the leases of a client are renewed. */
struct leases {
    struct timers due; /* the renew_timer of each hold */
    pawl_timer timer;  /* set for the earliest of these */
};

void pawl__leases_init(pawl_client *client);
/* A hold was granted: watch the lease that is given in the answer of its op. */
void pawl__lease_begin(struct hold *hold);
void pawl__lease_end(struct hold *hold);
/* The grant passes from one hold to another inside the process. */
void pawl__lease_move(struct hold *from, struct hold *to);
/* A lease of lease_ms from `from` on is confirmed. */
void pawl__lease_confirm(struct hold *hold, int64_t from, int64_t lease_ms);
/* A lease of lease_ms was requested, and given_ms of it (0: all) are confirmed. */
void pawl__lease_extend(struct hold *hold, int64_t from, int64_t lease_ms, int64_t given_ms);
void pawl__lease_stop_renewing(struct hold *hold);
/* A hold whose thread has ended belongs to no thread any more: renew its lease. */
void pawl__lease_renew_again(struct hold *hold);
void pawl__leases_verify(pawl_client *client, const pawl_op *event);
/* The instant until which a lease of lease_ms from `from` on is certainly valid. */
int64_t pawl__valid_until(int64_t from, int64_t lease_ms);
/* The lease to request: the handle's lease, but not past max_hold_ms. */
int64_t pawl__lease_wanted(const struct hold *hold, int64_t now);
/* The deadline has passed: the reason why the lease was not renewed. */
int pawl__lease_lost_why(const struct hold *hold, int64_t now);

/* ---- cohort.c ------------------------------------------------------------------------------- */

/* The state of one name in one client. */
struct name_state {
    struct name_state *next; /* in its hash bucket */
    struct list holds; /* of every state */
    struct list queue; /* HOLD_WAITING, in order of arrival */
    struct hold *front;
    uint32_t refs;
    bool contended;    /* threads of this process compete: reserve token ranges */
    struct series *series;
    uint64_t hash;
    char name[];
};

/* The hash table of a client's names. */
struct names {
    struct name_state **buckets;
    size_t n, room;
};

struct name_state *pawl__name_get(pawl_client *client, const char *name); /* NULL: no memory */
void pawl__name_put(pawl_client *client, struct name_state *name_state);
void pawl__names_free(pawl_client *client);
/* Does the front hold the name, or has the service said that another owner does? A request without
 * an answer does not count. */
bool pawl__name_held(const struct name_state *name_state);
/* May this hold be submitted to the engine now? If not, the hold is queued. */
bool pawl__cohort_enter(struct hold *hold);
/* Pass the grant on to the next hold in the process. Returns false if no hold waits, or if it is
 * the turn of other processes. */
bool pawl__cohort_pass(struct hold *hold);
/* The hold is no longer the front: submit the next one to the engine. */
void pawl__cohort_leave(struct hold *hold);
void pawl__cohort_leave_soon(struct hold *hold); /* its thread ends */
uint32_t pawl__cohort_tokens(const struct hold *hold); /* how many to reserve */

/* ---- stats.c, trace.c, slow.c ---------------------------------------------------------------- */

/* The counters of all names with the same template. Counters that belong to no name are in
 * counters.other. A series stays as long as its client. */
struct series {
    pawl_stats stats;
    uint64_t wait_ns, hold_ns; /* sums, for the averages */
    char template[PAWL_TEMPLATE_SIZE];
};

#define PAWL_SERIES_MAX 64 /* without `other` */

struct counters {
    struct series other;
    struct series *series[PAWL_SERIES_MAX];
    uint64_t hash[PAWL_SERIES_MAX]; /* of the templates */
    size_t n;
};

void pawl__stats_init(pawl_client *client);
void pawl__stats_free(pawl_client *client);
/* Count a duration in its bucket. Returns the duration, at least 0. */
uint64_t pawl__histogram_add(uint64_t *buckets, int64_t ns);
/* The series of a name: a new one if there is room and memory, else `other`. */
struct series *pawl__series_of(pawl_client *client, const char *name);
/* Count, and report to the program's trace function: the start of a wait, its end (code 0: with a
 * grant, and a hold begins), the end of a hold. */
void pawl__wait_begins(struct hold *hold);
void pawl__wait_ends(struct hold *hold, int code);
void pawl__hold_ends(struct hold *hold, int code);
/* The program's log function, and the lines and trace events that pawl__unlock will deliver. */
struct log {
    pawl_log_fn *fn;
    void *arg;
    int level;
    struct log_line *lines, **end;
};

void pawl__trace(struct hold *hold, int event, int64_t lasted_ns, int code);
/* For pawl__unlock, if there are lines. */
void pawl__unlock_and_deliver(pawl_client *client);

/* The warning about long waits: at most one INSPECT at a time. */
struct slow {
    int64_t after_ns; /* warn of waits longer than this; 0: never */
    pawl_timer timer;
    struct request request;
    struct name_state *name_state; /* the name that is inspected, with a reference; NULL: none */
    int64_t asked;      /* since when its longest waiter waits */
    uint32_t attempt;   /* the attempt that `holder` is from */
    char holder[320];
};

void pawl__slow_init(pawl_client *client);
/* A hold waits, and after_ns is set: make sure that the log will name the holder if the wait
 * lasts. */
void pawl__slow_watch(struct hold *hold);

/* ---- options.c, url.c, modules.c, env.c ------------------------------------------------------ */

/* Copy a caller's option struct into ours (zeroed first); NULL is all defaults. */
int pawl__options_copy(void *to, size_t size, const void *from, const char *what, pawl_error *err);
int pawl__name_check(const char *name, pawl_error *err);
#define PAWL_MS_MAX (1000LL * 3600 * 24 * 365 * 10)
bool pawl__bad_ms(int64_t ms); /* negative, or above ten years */
/* A name or label in an error text: whole, or its first characters and "...", so that the reason
 * fits into the text. */
#define PAWL_SHOWN_SIZE 84
const char *pawl__shown(char buf[PAWL_SHOWN_SIZE], const char *text);
#define SHOWN(text) pawl__shown((char[PAWL_SHOWN_SIZE]){0}, text)
/* Set err to "'name': words"; NULL words: the text of the code. Returns the code. */
int pawl__error_about(pawl_error *err, int code, const char *name, const char *words);

int pawl__url_parse(pawl_url *ret, const char *text, pawl_error *err);
void pawl__url_free(pawl_url *url);
/* Read a whole number of milliseconds from a parameter; *ret is unchanged if there is none. */
int pawl__url_ms(const pawl_url *url, const char *key, int64_t *ret, pawl_error *err);
int pawl__url_all_used(const pawl_url *url, pawl_error *err);

int pawl__engine_find(const pawl_engine **ret, const char *scheme, pawl_error *err);

int pawl__instance_open(pawl_env *env, pawl_instance *ret, const pawl_url *url, pawl_error *err);
int pawl__env_init(pawl_client *client); /* -1: no random numbers available */
void pawl__states_free(pawl_client *client);
void pawl__wakes_run(pawl_client *client);
int64_t pawl__clock_ns(void);

/* ---- client.c ------------------------------------------------------------------------------- */

/* The simulator's clock and random source. With a world no thread waits and none is started. */
struct pawl_world {
    int64_t (*now)(void *arg);
    uint64_t (*random)(void *arg);
    void (*idle)(void *arg); /* nothing is ready: let time pass; called without the mutex */
    void *arg;
};

/* pawl_close: waits until there are no live holds, no requests and no other active calls. */
struct closing {
    struct waiter_thread *thread; /* the thread in pawl_close, or NULL */
    bool late;            /* no longer wait for background work of the engine */
    int code;             /* the result of pawl_close */
    int64_t linger_until; /* locks kept by at_least_ms are released by then */
};

enum client_state { CLIENT_OPEN, CLIENT_CLOSING, CLIENT_CLOSED };

#define PAWL_HANDLE_BIT (1ull << 63) /* tells handles' numbers from threads' */

/* Members that belong to no part of the core come first, then one struct for each part. */
struct pawl_client {
    pawl_env env; /* first: an env is its client */
    pthread_mutex_t mu;
    pawl_instance engine;
    uint32_t caps;       /* enum pawl_caps of the engine */
    int state;           /* enum client_state */
    uint32_t refs;       /* one for the open client, one for each handle */
    uint32_t active;     /* blocking calls that wait */
    pthread_cond_t idle; /* a dispatch or an active call has ended */
    uint64_t generation; /* of the process that opened the client (fork.h) */
    struct list registered;
    pawl_client_options options; /* as given; the texts are the copies below */
    char *host, *program, *label, *user, *password;
    char client_info[PAWL_BY_MAX]; /* as text, for the holders whose locks this client breaks */
    char *identity;      /* the service's identity, for ordering multi-locks */
    int64_t cohort;      /* how many grants in a row stay inside the process */
    uint64_t last_seq, last_handle;
    struct state_box *states; /* the memory of the engine and its inner engines */
    const struct pawl_world *world;

    struct names names;
    struct holds holds;
    struct leases leases;
    struct requests requests;
    struct timers timers;
    struct driver driver;
    struct closing closing;
    struct counters counters;
    struct slow slow;
    struct log log;
};

static inline int64_t pawl__now(pawl_client *client)
{
    return client->env.now(&client->env);
}

/* Defer: between begin and end no request is submitted or cancelled, because the engine is on the
 * stack, or the caller walks a list, or the order of two requests matters. Afterwards
 * pawl__requests_flush submits and cancels the deferred requests. The pairs nest. */
static inline void pawl__defer_begin(pawl_client *client)
{
    client->requests.deferring++;
}

static inline void pawl__defer_end(pawl_client *client)
{
    client->requests.deferring--;
}

/* No public call is a cancellation point: a thread that ended inside of one would leave mutexes
 * locked, and pointers to its stack in the driver and the engine. pawl__enter and pawl__leave, and
 * public functions without these, call this pair, which nests. */
void pawl__cancellation_off(void);
void pawl__cancellation_back(void);
/* Lock the mutex; unlock the mutex, and deliver the collected log lines and trace events. */
void pawl__lock(pawl_client *client);
void pawl__unlock(pawl_client *client);
/* Lock the client for a public call. Returns 0, or PAWL_EFORK, PAWL_ESTATE (closed), PAWL_EDEADLK
 * (blocking call in a callback). pawl__leave does the deferred work and unlocks. */
int pawl__enter(pawl_client *client, bool blocking, pawl_error *err);
void pawl__leave(pawl_client *client);
/* Apply the core's options in a URL, also in a wrapper's inner URL; the program's options override
 * them. */
int pawl__url_options(pawl_client *client, const pawl_url *url, pawl_error *err);
void pawl__client_unref(pawl_client *client); /* without the mutex */
void pawl__log(pawl_client *client, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void pawl__log_args(pawl_client *client, int level, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int pawl__open_in(pawl_client **ret, const char *url, const pawl_client_options *options,
                  const struct pawl_world *world, pawl_error *err);

/* Check whether pawl_close can return; a no-op unless a thread is in pawl_close. */
void pawl__close_check(pawl_client *client);
/* A release has failed. While the client closes: record that a lock may stay behind, and why. */
void pawl__close_failed(pawl_client *client, int code);

/* Send one op and wait for the result: inspection, latches, counts. wait_ms 0: the timeout. */
void pawl__exchange_init(struct request *request, pawl_client *client, int kind, int mode,
                         const char *name);
int pawl__exchange(struct request *request, int64_t wait_ms, pawl_error *err);
/* Cancel the exchanges of this handle; returns their number. */
int pawl__exchanges_cancel(pawl_client *client, const void *handle);

/* ---- lock.c --------------------------------------------------------------------------------- */

struct pawl_lock {
    uint32_t refs; /* the handle's own, one per callback on its way, one per multi-lock */
    bool freed;    /* pawl_lock_free was called */
    pawl_client *client;
    struct name_state *name_state;
    struct terms terms;
    uint64_t handle; /* holder of handle-owned locks */
    bool by_thread;
    struct multi *multi; /* NULL: an ordinary lock */
};

/* Called with the mutex locked. The last unref drops the lock's reference to the client. The
 * client's memory stays valid, because the caller, or the client being open, holds another
 * reference. */
void pawl__lock_unref(pawl_lock *lock);
void pawl__semaphore_ref(pawl_semaphore *sem);
void pawl__semaphore_unref(pawl_semaphore *sem);
/* Release the acquires of `holder` through this lock `times` times, in the background. */
void pawl__lock_release_times(pawl_lock *lock, uint64_t holder, unsigned times);
int pawl__lock_acquire(pawl_lock *lock, const struct group *group, unsigned cancels,
                       int64_t wait_ms, pawl_error *err);
int pawl__lock_acquire_start(pawl_lock *lock, const struct group *group, unsigned cancels,
                             int64_t wait_ms, pawl_done_fn *done, void *arg);
/* Would pawl_lock_release of the calling owner release a hold? */
bool pawl__lock_releasable(const pawl_lock *lock);
/* 0: the calling owner holds the lock. Else PAWL_ELOST, with a text. */
int pawl__lock_check_held(const pawl_lock *lock, pawl_error *err);
/* Cancel the waits on this handle: the waits of this group, or all if NULL. */
int pawl__lock_cancel(pawl_lock *lock, const struct group *group);
/* The hold that a query on the lock refers to, or NULL. */
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
/* `cause` is NULL, or has room for LOST_CAUSE_MAX bytes. */
int pawl__multi_lost_reason(const pawl_lock *lock, char *cause);
int pawl__lost_reason(const pawl_lock *lock, char *cause);
void pawl__multi_free(pawl_lock *lock);

#endif
