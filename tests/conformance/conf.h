/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.h - helpers of the conformance cases.
 *
 * The cases use pawl.h and the URL of an engine, and nothing else. Cases that need something that
 * the service can't do, according to pawl_client_can, are skipped. Two clients of one process stand
 * for two processes, so that an engine inside one process is tested too; cases that need real
 * processes call need_processes first. Clients and handles made by the helpers are freed at the end
 * of the case, handles first.
 */
#ifndef PAWL_TEST_CONF_H
#define PAWL_TEST_CONF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "actors.h"
#include "check.h"
#include "pawl.h"

/* SHORT_LEASE ends while the test waits, but is long enough for the calls of a case on a busy
 * machine. DEATH_LEASE is for processes that die. RENEWED_LEASE is for locks that must stay held by
 * renewals for RENEWED_PAUSE: a renewal is due after a third of the lease, so the client and a busy
 * server have two seconds to carry it out. LONG_LEASE never ends during a case. */
enum {
    SHORT_LEASE = 1000,
    DEATH_LEASE = 2000,
    RENEWED_LEASE = 3000,
    RENEWED_PAUSE = 4000,
    LONG_LEASE = 600000
};

extern const char *conf_url;

/* The result of pawl_client_can, for a client that was opened before the first case. */
bool can(enum pawl_can what);
/* Skip the case, with the text `otherwise`, unless the service can do this. The reason of the skip
 * names the capability, and the summary at the end counts the skipped cases by reason. */
void need_named(enum pawl_can what, const char *name, const char *otherwise);
#define need(what, otherwise) need_named(what, #what, otherwise)
/* Skip the case unless other processes share the names; */
void need_processes(void);
/* unless a grant can reserve tokens for other threads of the process; */
void need_ranges(void);
/* unless the service keeps a lock for at_least_ms after its client was closed; */
void need_linger(void);
/* unless the waiters of all kinds of locks have an order. */
void need_order(void);
/* Whether `token` is larger than the token of an earlier grant; or 0 if grants have no tokens. */
bool newer(uint64_t token, uint64_t than);
/* How long a new grant with a lease of `ms` is valid. A service whose locks end with a session
 * gives no more than 12 s. */
int64_t lease_given(int64_t ms);
/* A kind of lock whose waiters have an order and are shown: PAWL_MUTEX if possible, else PAWL_FAIR.
 * Skips the case if the service has no such kind. */
uint64_t ordered_kind(void);
#define ORDERED LOCK_OPTIONS(.kind = ordered_kind())
/* The reason that the holder of a broken lock gets. */
int broken_reason(void);

/* ---- Making objects -------------------------------------------------------------------------- */

#define CLIENT_OPTIONS(...)                                                                        \
    (&(pawl_client_options){.size = sizeof(pawl_client_options), __VA_ARGS__})
#define LOCK_OPTIONS(...) (&(pawl_lock_options){.size = sizeof(pawl_lock_options), __VA_ARGS__})
#define SEM_OPTIONS(...)                                                                           \
    (&(pawl_semaphore_options){.size = sizeof(pawl_semaphore_options), __VA_ARGS__})

pawl_client *client_open(const pawl_client_options *options); /* NULL: the defaults */
pawl_client *client_open_with(const char *parameter);         /* a "key=value" for the URL */
/* Open a client through trace: and fault: with these faults. Each log line that begins with `line`,
 * such as "> release", raises `heard`: the op has been sent. The listener must outlive the case. */
typedef struct listener {
    const char *line;
    event heard;
} listener;
pawl_client *client_open_heard(const char *faults, listener *e, const pawl_client_options *options);
pawl_lock *lock_new(pawl_client *client, const char *name, const pawl_lock_options *options);
pawl_lock *multi_new(pawl_lock *a, pawl_lock *b, pawl_lock *c); /* b, c may be NULL */
pawl_semaphore *sem_new(pawl_client *client, const char *name,
                        const pawl_semaphore_options *options);
pawl_latch *latch_new(pawl_client *client, const char *name);

/* Free or close an object now that a helper made. */
void client_close(pawl_client *client);
void lock_free(pawl_lock *lock);
void sem_free(pawl_semaphore *sem);
void latch_free(pawl_latch *latch);
void forget(void *object); /* the case frees the object itself */
void end_everything(void);

/* ---- Waiting for events ---------------------------------------------------------------------- */

/* Wait until the service shows n waiters of `name`. For fair locks, whose waiters are all shown. */
void await_queued(pawl_client *client, const char *name, uint64_t n);
/* The same for all kinds of locks. If the service shows no waiters: wait until n calls and
 * operations of all clients have begun to wait. The service may not yet have answered them. */
void await_waiters(pawl_client *client, const char *name, uint64_t n);
/* Wait until n waiters of a latch are shown. If the service does not know the waiters: wait until
 * a listener for "> acquire" has been raised n times. */
void await_latch_waiters(pawl_client *client, const char *name, int n, listener *e);
/* Wait until the lease of the only holder was renewed; the case fails if the lease ends instead.
 * `client` must not be the holder's: its calls must not drive the holder's client. */
void await_renewal(pawl_client *client, const char *name);
/* Wait until `name` has no holder. */
void await_free(pawl_client *client, const char *name);
/* Wait until n calls or operations of this client are waiting. */
void await_waiting(pawl_client *client, uint64_t n);
/* Wait until this client has been granted n locks since it was opened; each member of a multi-lock
 * counts. If no waiters are shown, await_waiters may return before the first member is granted. */
void await_acquired(pawl_client *client, uint64_t n);
pawl_stats stats_of(pawl_client *client);
/* How many calls and operations of all open clients of this process wait. */
uint64_t all_waiting(void);

/* ---- A thread that acquires a lock, and releases the lock when told -------------------------- */

typedef struct waiter {
    pawl_lock *lock;
    int64_t wait_ms;
    bool brief;        /* releases the lock at once */
    int code;          /* result of the acquire */
    int release_code;
    uint64_t token;
    int turn;          /* 1 for the first grant of the case, 2 for the second... */
    int64_t at_ms;     /* when the acquire returned */
    event decided, leave;
    actor actor;
} waiter;

void waiter_start(waiter *w, pawl_lock *lock, int64_t wait_ms);
void waiter_start_brief(waiter *w, pawl_lock *lock, int64_t wait_ms);
int waiter_code(waiter *w);    /* waits for the result of the acquire */
void waiter_leave(waiter *w);  /* release, which must succeed, and end the thread */
void waiter_join(waiter *w);   /* for a brief waiter, or one that was not granted */

/* Run fn in a new thread and return the result. */
int in_thread(int (*fn)(void *arg), void *arg);
/* The thread ends without a release. */
int acquire_in_thread(pawl_lock *lock); /* without a wait */
int start_in_thread(pawl_lock *lock, pawl_done_fn *done, void *arg);
int try_in_thread(pawl_lock *lock);      /* try to acquire; a lock that was got is released again */
int release_in_thread(pawl_lock *lock);

/* The result of a try by a new client; a lock that was got is released again. */
int try_as_stranger(const char *name, uint64_t kind);
/* Check that the lock is held; if not, print the cause of the loss. */
void check_held(const pawl_lock *lock);

/* A wait of `limit_ms` must time out, and not earlier. PAWL_ETIMEDOUT promises that the service has
 * answered. If the service is too slow, the call ends with another code, and is then repeated with
 * a longer limit. */
#define CHECK_TIMES_OUT(call) \
    do { \
        int64_t limit_ms = 300, began_ms = now_ms(); \
        int code_; \
        while ((code_ = (call)) == PAWL_ECONN || code_ == PAWL_EUNKNOWN || \
               code_ == PAWL_EQUORUM) { /* of a quorum: no majority has answered */ \
            CHECK(limit_ms < 10000); \
            limit_ms *= 4; \
            began_ms = now_ms(); \
        } \
        CHECK_CODE(code_, PAWL_ETIMEDOUT); \
        CHECK(now_ms() - began_ms >= limit_ms - 1); \
    } while (0)

/* A peer that acquires check_name("p") when told, reports the token, and releases when told. `arg`
 * points to the kind, a uint64_t; the lease is DEATH_LEASE. */
void hold_until_told(peer *parent, void *arg);

/* ---- on_lost and done callbacks that count -------------------------------------------------- */

typedef struct calls {
    event event;
    pawl_lock *lock; /* of the latest call */
    int code;
    int held;        /* result of pawl_lock_held inside the callback */
    uint64_t token;
    pthread_t thread;
} calls;

#define CALLS_INIT {.event = EVENT_INIT}
void count_call(void *arg, pawl_lock *lock, int code); /* arg: a calls */

/* ---- Rows of pawl_inspect and pawl_list ----------------------------------------------------- */

typedef struct row {
    pawl_info info;
    char name[256], host[128], program[128], label[128], owner[128];
} row;

typedef struct rows {
    size_t n;
    row row[64];
} rows;

int collect_row(void *arg, const pawl_info *info); /* arg: a rows */
void inspect_rows(pawl_client *client, const char *name, rows *ret);

#endif
