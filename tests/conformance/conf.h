/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.h - what the conformance cases share.
 *
 * The cases know pawl.h and the URL of an engine. Cases that the service can't do, according to
 * pawl_client_can, are skipped. Two clients of one process stand for two processes, so that an
 * engine that lives in one process is measured too; cases that need real processes say so first
 * (need_processes). Clients and handles made through the helpers are
 * freed at the end of the case, handles first.
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

/* A lease that ends while the test watches: long enough that a busy machine keeps it alive for as
 * long as a case needs it. One for processes that die. And one that never ends during a case. */
enum { SHORT_LEASE = 700, DEATH_LEASE = 2000, LONG_LEASE = 600000 };

extern const char *conf_url;

/* What the service can do: pawl_client_can of a client that was opened before the first case. */
bool can(enum pawl_can what);
/* Skip the case unless the service can do that. The reason of the skip names the capability, and
 * the summary at the end counts the skipped cases by reason. */
void need_named(enum pawl_can what, const char *name, const char *otherwise);
#define need(what, otherwise) need_named(what, #what, otherwise)
/* The same, with the text: other processes share the names; */
void need_processes(void);
/* a grant can reserve tokens for other threads of the process; */
void need_ranges(void);
/* the service keeps a lock for at_least_ms after its client was closed; */
void need_linger(void);
/* all kinds of locks have an order of waiters. */
void need_order(void);
/* Is `token` larger than the token of an earlier grant, or 0 where grants carry no tokens? */
bool newer(uint64_t token, uint64_t than);
/* How much of a lease of `ms` is given at once: of a session, no more than about half. */
int64_t lease_given(int64_t ms);
/* A kind of lock whose waiters have an order and are shown: PAWL_MUTEX if possible, else PAWL_FAIR.
 * Skips the case if there is none. */
uint64_t ordered_kind(void);
#define ORDERED LOCK_OPTIONS(.kind = ordered_kind())
/* The reason that the holder of a broken lock gets. */
int broken_reason(void);

/* ---- Making things --------------------------------------------------------------------------- */

#define CLIENT_OPTIONS(...)                                                                        \
    (&(pawl_client_options){.size = sizeof(pawl_client_options), __VA_ARGS__})
#define LOCK_OPTIONS(...) (&(pawl_lock_options){.size = sizeof(pawl_lock_options), __VA_ARGS__})
#define SEM_OPTIONS(...)                                                                           \
    (&(pawl_semaphore_options){.size = sizeof(pawl_semaphore_options), __VA_ARGS__})

pawl_client *client_open(const pawl_client_options *options); /* NULL: the defaults */
pawl_client *client_open_with(const char *parameter);         /* a "key=value" for the URL */
/* Through trace: and fault: with these faults. Each line of the log that begins with `line`, such
 * as "> release", raises `heard`: the op is on its way. The ear must outlive the case. */
typedef struct ear {
    const char *line;
    event heard;
} ear;
pawl_client *client_open_heard(const char *faults, ear *e, const pawl_client_options *options);
pawl_lock *lock_new(pawl_client *client, const char *name, const pawl_lock_options *options);
pawl_lock *multi_new(pawl_lock *a, pawl_lock *b, pawl_lock *c); /* b, c may be NULL */
pawl_semaphore *sem_new(pawl_client *client, const char *name,
                        const pawl_semaphore_options *options);
pawl_latch *latch_new(pawl_client *client, const char *name);

/* Free or close now what the helpers made. */
void client_close(pawl_client *client);
void lock_free(pawl_lock *lock);
void sem_free(pawl_semaphore *sem);
void latch_free(pawl_latch *latch);
void forget(void *object); /* the case frees it itself */
void end_everything(void);

/* ---- Waiting for things to happen ------------------------------------------------------------ */

/* Until n waiters of `name` are queued in the service, which shows them all: for fair locks. */
void await_queued(pawl_client *client, const char *name, uint64_t n);
/* The same for all kinds. Where the service shows no waiters: until n calls and operations of all
 * clients have started to wait, though the service may not have answered their first requests. */
void await_waiters(pawl_client *client, const char *name, uint64_t n);
/* Until n waiters of a latch are shown, or where the service does not know them, until an ear that
 * listens for "> acquire" has heard n times that somebody asks. */
void await_latch_waiters(pawl_client *client, const char *name, int n, ear *e);
/* Until the lease of the only holder was renewed; the case fails if it ends instead. `client` is
 * one that does not hold it: its calls must not drive the holder's. */
void await_renewal(pawl_client *client, const char *name);
/* Until nobody holds it. */
void await_free(pawl_client *client, const char *name);
/* Until n calls or operations of this client wait. */
void await_waiting(pawl_client *client, uint64_t n);
/* Until this client was granted n locks since it was opened; each member of a multi-lock counts.
 * Where no waiters are shown, await_waiters may return while a first member is asked for. */
void await_acquired(pawl_client *client, uint64_t n);
pawl_stats stats_of(pawl_client *client);
/* How many calls and operations of all open clients of this process wait. */
uint64_t all_waiting(void);

/* ---- A thread that acquires a lock, keeps it until told, and releases it -------------------- */

typedef struct waiter {
    pawl_lock *lock;
    int64_t wait_ms;
    bool brief;        /* releases at once */
    int code;          /* the acquire's */
    int release_code;
    uint64_t token;
    int turn;          /* 1 for the first grant of the case, 2 for the second... */
    int64_t at_ms;     /* when the acquire returned */
    event decided, leave;
    actor actor;
} waiter;

void waiter_start(waiter *w, pawl_lock *lock, int64_t wait_ms);
void waiter_start_brief(waiter *w, pawl_lock *lock, int64_t wait_ms);
int waiter_code(waiter *w);    /* waits for the outcome of the acquire */
void waiter_leave(waiter *w);  /* release, which must go well, and end */
void waiter_join(waiter *w);   /* of a brief one, or one that was not granted */

/* The result of fn in a thread of its own. */
int in_thread(int (*fn)(void *arg), void *arg);
int try_in_thread(pawl_lock *lock);      /* acquire at once; what was got is released again */
int release_in_thread(pawl_lock *lock);

/* What a client of its own gets at the first try; what it got is given back. */
int try_as_stranger(const char *name, uint64_t kind);

/* A wait of `limit_ms` must time out, not before its time. PAWL_ETIMEDOUT promises that the service
 * has answered; a service that is too slow for that ends the call with a code of its own, and the
 * call is then repeated with a longer limit. */
#define CHECK_TIMES_OUT(call) \
    do { \
        int64_t limit_ms = 300, began_ms = now_ms(); \
        int code_; \
        while ((code_ = (call)) == PAWL_ECONN || code_ == PAWL_EUNKNOWN) { \
            CHECK(limit_ms < 10000); \
            limit_ms *= 4; \
            began_ms = now_ms(); \
        } \
        CHECK_CODE(code_, PAWL_ETIMEDOUT); \
        CHECK(now_ms() - began_ms >= limit_ms - 1); \
    } while (0)

/* A peer that acquires check_name("p") when told, reports the token, and releases when told. Its
 * arg is the kind, a uint64_t; its lease is DEATH_LEASE. */
void hold_until_told(peer *parent, void *arg);

/* ---- on_lost and done callbacks that count -------------------------------------------------- */

typedef struct calls {
    event event;
    pawl_lock *lock; /* of the latest call */
    int code;
    int held;        /* what pawl_lock_held said inside it */
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
