/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.h - distributed locks for C.
 *
 * A lock is a name in a service that several programs share: a Redis server, an etcd cluster, a
 * database or, with "local:", a folder on this machine. At most one owner holds an exclusive lock
 * at a time. A grant lasts for a *lease*. Pawl renews the lease in the background until the owner
 * releases the lock. If renewals fail, Pawl notifies the owner before anyone else can get the lock.
 *
 *     pawl_client *client;
 *     pawl_lock *lock;
 *     pawl_error err;
 *
 *     if (pawl_open(&client, "local:", NULL, &err) ||
 *         pawl_lock_new(&lock, client, "stock:42", NULL, &err) ||
 *         pawl_lock_acquire(lock, 5000, &err)) {
 *         fprintf(stderr, "%s\n", err.text);
 *         return 1;
 *     }
 *     sell_one(pawl_lock_token(lock));      // pass the fencing token on with each write
 *     pawl_lock_release(lock, &err);
 *     pawl_lock_free(lock);
 *     pawl_close(client);
 *
 * No lock with a lease can stop a process that was paused (SIGSTOP, swapping, a suspended machine)
 * past the end of its lease from waking up and writing. To be safe, pass pawl_lock_token() along
 * with every write and let the resource reject tokens smaller than the largest one seen so far.
 *
 * Terms:
 *  - client: an open service (pawl_open). handle: a pawl_lock, pawl_semaphore or pawl_latch.
 *  - owner: the thread or the handle on whose behalf a lock is acquired (enum pawl_owner_kind).
 *  - watchdog lease: a lease that Pawl renews. fixed lease: a lease that Pawl does not renew.
 *  - time-out: the limit of one exchange with the service (timeout_ms, 2 seconds by default).
 *
 * Rules for every function:
 *  - int results are 0 or a negative PAWL_E... code. On failure *ret is unchanged. The pawl_error
 *    is optional (NULL) and is written only on failure.
 *  - Each comment lists the codes that are specific to its function. Every function that sends a
 *    request to the service may also return PAWL_ECONN, PAWL_EAUTH, PAWL_EPROTO, PAWL_EBACKEND,
 *    PAWL_EQUORUM (several servers), PAWL_EUNKNOWN (no answer), PAWL_ESTATE (the client is closed,
 *    or the name is in use as another type: lock, semaphore, latch), PAWL_EFORK and PAWL_ENOMEM.
 *    Every function with arguments may return PAWL_EINVAL.
 *  - Times are int64_t milliseconds. A wait of 0 is one try; PAWL_FOREVER is a wait without limit.
 *  - Input strings are copied. Pointers from getters stay valid as long as the object.
 *  - Any thread may call any function unless the comment says otherwise. Each comment ends with a
 *    line that says which threads may call the function, whether the function blocks, and whether
 *    callbacks may call the function.
 *  - After fork() the child's calls on the parent's objects return PAWL_EFORK: a child never
 *    renews or releases its parent's locks. exec() after fork() is fine.
 *  - The library never prints, exits, aborts or installs a signal handler.
 */
#ifndef PAWL_H
#define PAWL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PAWL_API __attribute__((visibility("default")))
#else
#define PAWL_API
#endif

#define PAWL_VERSION_MAJOR 0
#define PAWL_VERSION_MINOR 1
#define PAWL_VERSION_PATCH 0

typedef struct pawl_client pawl_client;
typedef struct pawl_lock pawl_lock;
typedef struct pawl_semaphore pawl_semaphore;
typedef struct pawl_latch pawl_latch;

/* ---- Errors --------------------------------------------------------------------------------- */

/* Every error code, grouped by the caller's next step. This list generates the enum, the names and
 * the texts. */
#define PAWL_ERRORS(X)                                                                             \
    /* the lock is not yours */                                                                    \
    X(EBUSY, -1, "held by somebody else")                                                          \
    X(ETIMEDOUT, -2, "not acquired within the given time")                                         \
    X(ECANCELED, -3, "the wait was cancelled")                                                     \
    /* the lock was yours */                                                                       \
    X(ELOST, -10, "the lock was lost: its lease ended or it was broken")                           \
    X(ENOTHELD, -11, "not held by this owner")                                                     \
    /* the outcome is unknown */                                                                   \
    X(EUNKNOWN, -20, "no answer came: the request may or may not have been carried out")           \
    /* the service failed */                                                                       \
    X(ECONN, -30, "the service can't be reached")                                                  \
    X(EAUTH, -31, "the service refused the credentials or the rights are missing")                 \
    X(EPROTO, -32, "the service's answer can't be understood")                                     \
    X(EBACKEND, -33, "the service reported an error")                                              \
    X(EQUORUM, -34, "too few servers agreed")                                                      \
    /* the call or the process is at fault */                                                      \
    X(EINVAL, -40, "invalid argument")                                                             \
    X(ESTATE, -41, "not possible in the present state")                                            \
    X(ENOTSUP, -42, "the engine can't do this")                                                    \
    X(EDEADLK, -43, "this call would wait for itself")                                             \
    X(EFORK, -44, "the client belongs to the parent process")                                      \
    X(ENOMEM, -45, "out of memory")

enum {
#define PAWL_X(name, value, text) PAWL_##name = value,
    PAWL_ERRORS(PAWL_X)
#undef PAWL_X
        PAWL_OK = 0
};

/* Details of a failure. `code` is the PAWL_E... code. `backend` is the error number of the service
 * or the system (an errno, for example), or 0. `text` is one line and never holds a password. */
typedef struct pawl_error {
    int32_t code;
    int32_t backend;
    char text[248];
} pawl_error;

#define PAWL_FOREVER (-1)

/* The code as a sentence ("held by somebody else"); never NULL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_strerror(int code);

/* The code's name ("PAWL_EBUSY"); never NULL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_errname(int code);

/* The version of the running library, "0.1.0".
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_version(void);

/* ---- Client --------------------------------------------------------------------------------- */

enum { PAWL_LOG_ERROR = 3, PAWL_LOG_WARNING = 4, PAWL_LOG_INFO = 6, PAWL_LOG_DEBUG = 7 };

/* Receives events that no return value reports: a reconnect, a late renewal, a thread that ended
 * while holding a lock. `text` is valid only during the call and contains no secrets. Pawl calls
 * the function from any thread that is inside a Pawl call and from its own thread, with no mutex of
 * Pawl's locked. The function must not call Pawl. */
typedef void pawl_log_fn(void *arg, int level, const char *text);

/* Receives the start and the end of each wait and each hold, for tracing: see pawl-observe.h. */
typedef struct pawl_trace pawl_trace;
typedef void pawl_trace_fn(void *arg, const pawl_trace *event);

/* Option structs: set `size` to sizeof the struct and leave unneeded fields 0. The library refuses
 * a struct with a field that is not 0 and that this version doesn't know. */
typedef struct pawl_client_options {
    uint64_t size;
    pawl_log_fn *log;    /* default: no log */
    void *log_arg;
    uint64_t log_level;  /* the most detailed level to report; default PAWL_LOG_WARNING */
    const char *label;   /* free text, shown by pawl_inspect and `pawl show`; default: none */
    int64_t watchdog_ms; /* lease of locks with lease_ms 0; default: URL `watchdog`, else 30000 */
    int64_t timeout_ms;  /* limit of one exchange; default: URL `timeout`, else 2000 */
    uint64_t cohort;     /* grants in a row within this process; default: URL `cohort`, else 32 */
    const char *user;     /* used if the URL has none; default: $PAWL_USER */
    const char *password; /* used if the URL has none; default: $PAWL_PASSWORD */
    pawl_trace_fn *trace; /* default: none */
    void *trace_arg;
    int64_t slow_wait_ms; /* a longer wait is logged as a warning that names the holder; default
                             30000; PAWL_FOREVER: no such warning */
} pawl_client_options;

/* Open the service that `url` names: "local:", "local:/var/lock/shop", "memory:", ... (pawl(7)).
 * NULL options are the defaults. Returns 0, PAWL_EINVAL (the text says which part of the URL or the
 * options is wrong, and how to correct the mistake), PAWL_ECONN, PAWL_EAUTH, PAWL_EBACKEND,
 * PAWL_ENOTSUP (no such engine on this machine), PAWL_ENOMEM.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_open(pawl_client **ret, const char *url, const pawl_client_options *options,
                       pawl_error *err);

/* Release all locks of this client, cancel its waits (PAWL_ECANCELED), and close the client.
 * Handles of the client can still be freed; other calls on them return PAWL_ESTATE. NULL is a
 * no-op. Releases that failed earlier are tried once more. If the service can't keep locks for
 * at_least_ms by itself, the client keeps such locks up to the time-out and then releases them; a
 * lease that would end before at_least_ms has passed is left to expire.
 * Returns 0: the service has no lock of this client any more. PAWL_EUNKNOWN: a release got no
 * answer. Any other code: the service refused a release with that code (PAWL_EBACKEND, for
 * example). A lock that could not be released stays until its lease ends. The place of a wait in a
 * queue, if the service did not answer when the wait was cancelled, expires by itself. The client
 * is closed in each of these cases.
 * Thread: any. Blocks: up to the time-out; with at_least_ms up to twice that. In callbacks:
 * PAWL_EDEADLK, nothing is closed. */
PAWL_API int pawl_close(pawl_client *client);

/* Features of a service. The answers depend on the type of service and on its layout, not on the
 * state of the service: ask the client instead of deciding by its URL. */
enum pawl_can {
    PAWL_CAN_FENCE = 0,     /* grants carry fencing tokens; else pawl_lock_token is 0 */
    PAWL_CAN_READ,          /* PAWL_READ */
    PAWL_CAN_FAIR,          /* PAWL_FAIR */
    PAWL_CAN_QUEUE,         /* all kinds but PAWL_SPIN are served in order, and pawl_inspect shows
                               the waiters; else only PAWL_FAIR has an order, or clients poll */
    PAWL_CAN_HAND_OVER,     /* threads of one process pass a PAWL_MUTEX on (`cohort`) */
    PAWL_CAN_SEMAPHORE,     /* pawl_semaphore_new */
    PAWL_CAN_LATCH,         /* pawl_latch_new */
    PAWL_CAN_LIST,          /* pawl_list */
    PAWL_CAN_DETAIL,        /* the service knows since when, the type of a name, and capacities */
    PAWL_CAN_LEASE,         /* each grant has a lease of its own; else all share a session's */
    PAWL_CAN_LINGER,        /* the service itself keeps a released lock for at_least_ms */
    PAWL_CAN_LINGER_CLOSED, /* a lock is kept for at_least_ms after pawl_close, too */
    PAWL_CAN_BREAK_AT_ONCE, /* a break can't end a grant that is made while the break goes on */
    PAWL_CAN_TELL_BROKEN,   /* a break is PAWL_LOST_BROKEN; else PAWL_LOST_GONE */
    PAWL_CAN_SHARE,         /* other processes share the names */
    PAWL_CAN_BE_DOWN,       /* the service is a server; else this machine alone keeps the locks */
    PAWL_CAN_NAME_BREAKER   /* the cause of a break names the breaker (pawl_lock_lost_cause) */
};

/* Does the service have the feature `what` (enum pawl_can)? Returns 1, 0, or PAWL_EINVAL (unknown
 * feature). No I/O; also allowed after fork(). Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_client_can(const pawl_client *client, int what);

/* The lease of locks with lease_ms 0 (`watchdog_ms` of the options, `watchdog` of the URL, or the
 * default), in ms. Without PAWL_CAN_LEASE a grant may be valid for less. No I/O; also allowed after
 * fork(). Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int64_t pawl_client_lease_ms(const pawl_client *client);

/* ---- Locks ---------------------------------------------------------------------------------- */

enum pawl_kind {
    PAWL_MUTEX = 0, /* exclusive; threads of one process may pass the lock on (cohort) */
    PAWL_FAIR = 1,  /* exclusive, strictly first come first served, no cohort */
    PAWL_READ = 2,  /* shared; excludes every exclusive kind of the same name */
    PAWL_WRITE = 3, /* exclusive, the partner of PAWL_READ */
    PAWL_SPIN = 4   /* exclusive, not queued: retries at random, growing intervals */
};

enum pawl_owner_kind {
    PAWL_OWNER_THREAD = 0, /* the calling thread owns the lock; re-entrant. If the thread ends,
                              Pawl stops renewing, and the lock ends with its lease */
    PAWL_OWNER_HANDLE = 1  /* the pawl_lock owns the lock, in any thread; not re-entrant */
};

/* The lock was lost. Called once per loss: if renewals fail, before the service can grant the lock
 * to anyone else; after a break, data loss or a stop of this process, at once. code is PAWL_ELOST.
 * Pawl calls the function from its own thread, never from a thread of yours, which may hold a mutex
 * that the function needs. Once pawl_client_fd() was called, the function runs only inside
 * pawl_client_process(). Remaining notifications are delivered inside pawl_close(). Be short: the
 * renewal of other leases waits. The function may call every function that doesn't block. */
typedef void pawl_lost_fn(void *arg, pawl_lock *lock, int code);

/* Why a lock was lost, as far as this client can tell. This list generates enum and texts. */
#define PAWL_LOST_REASONS(X)                                                                       \
    X(BROKEN, 1, "it was broken (pawl_lock_break, pawl break)")                                    \
    X(GONE, 2, "the service no longer has it: deleted, ended there, or its data were lost")        \
    X(SILENCE, 3, "the service did not confirm its renewal before the lease ended")                \
    X(STOPPED, 4, "this process was stopped or too busy to renew it before the lease ended")       \
    X(ENDED, 5, "its fixed lease or max_hold_ms was over")                                         \
    X(SESSION, 6, "the service ended this client's session")

enum pawl_lost_reason {
#define PAWL_X(name, value, text) PAWL_LOST_##name = value,
    PAWL_LOST_REASONS(PAWL_X)
#undef PAWL_X
        PAWL_LOST_NOT = 0
};

typedef struct pawl_lock_options {
    uint64_t size;
    uint64_t kind;         /* enum pawl_kind; default PAWL_MUTEX */
    int64_t lease_ms;      /* 0: watchdog, renewed until released; > 0: fixed, never renewed */
    int64_t max_hold_ms;   /* 0: no limit; else the lease ends at the latest this long after the
                              acquire */
    uint64_t owner;        /* enum pawl_owner_kind; default PAWL_OWNER_THREAD */
    pawl_lost_fn *on_lost; /* default: none; the next call reports the loss */
    void *arg;             /* first argument of on_lost */
    int64_t at_least_ms;   /* keep the lock at least this long after the acquire, even if the
                              owner releases the lock and the process ends. Without
                              PAWL_CAN_LINGER: only while the client is open; then see
                              PAWL_CAN_LINGER_CLOSED and pawl_close */
} pawl_lock_options;

/* A handle on the lock `name` (1 to 255 bytes, no control characters). No I/O: nothing is acquired.
 * MUTEX, FAIR, WRITE and SPIN handles of one name exclude each other and READ handles.
 * Returns 0, PAWL_EINVAL, PAWL_ENOTSUP (the engine doesn't support the kind), PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_new(pawl_lock **ret, pawl_client *client, const char *name,
                           const pawl_lock_options *options, pawl_error *err);

/* One lock made of several: all members are acquired or none, always in one global order, so that
 * two multi-locks never wait for each other in a circle. Members may belong to different clients.
 * The caller still owns the members; two members must not have the same name in one service. A
 * member may be freed first, but then the multi-lock can't be acquired any more (PAWL_ESTATE).
 * Services are told apart by folder (local:), and by hosts, ports, database, prefix and layout,
 * whatever the spelling; localhost, 127.0.0.1 and ::1 are the same host. Pawl can't know that two
 * host names, or two lists of hosts, are one service: use one spelling in all programs.
 * Acquiring returns PAWL_ELOST, with nothing held, if a member was lost during the wait for another
 * member. Releasing releases every member that is held, and returns the first failure. Freeing
 * releases the members that any thread holds through this multi-lock.
 * Returns 0, PAWL_EINVAL, PAWL_EFORK, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_multi_new(pawl_lock **ret, pawl_lock *const *members, size_t n, pawl_error *err);

/* Free the handle. A grant that was acquired through this handle is released in the background. (A
 * re-entrant acquire of a lock that another handle of the name acquired does not count.) Waiting
 * acquires are cancelled, and so is a grant that was not reported yet (done gets PAWL_ECANCELED).
 * The owner may acquire the name through another handle at once. NULL is a no-op.
 * Thread: any, but no other call on this handle may be under way or follow; only an on_lost that
 * runs already may use the handle until it returns. Blocks: no. In callbacks: yes. */
PAWL_API void pawl_lock_free(pawl_lock *lock);

/* Acquire the lock, waiting at most wait_ms. If the owner already holds the lock, a thread owner
 * acquires the lock once more (the hold count rises) and a handle owner gets PAWL_ESTATE.
 * Returns 0: held. Not held: PAWL_EBUSY (wait_ms 0), PAWL_ETIMEDOUT, PAWL_ECANCELED, PAWL_EDEADLK
 * (a reader asks to write), PAWL_ELOST (an earlier hold was lost: release it first), service
 * errors. PAWL_ETIMEDOUT and PAWL_EBUSY mean that the service has said that another owner holds the
 * lock. If the service said nothing in that time, the code is PAWL_ECONN, or PAWL_EUNKNOWN: the
 * service may have granted the lock, and Pawl takes such a grant back in the background.
 * No Pawl call is a cancellation point: pthread_cancel takes effect after the call.
 * Thread: any. Blocks: up to wait_ms; a wait of 0 up to the time-out, if the service is silent. In
 * callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_acquire(pawl_lock *lock, int64_t wait_ms, pawl_error *err);

/* Release one hold; releasing the last hold frees the lock.
 * Returns 0; PAWL_ENOTHELD: not held by this owner, nothing changed; PAWL_ELOST: the lock was lost
 * earlier, and no other owner's lock was touched; PAWL_EUNKNOWN: no answer; or the code with which
 * the service refused. After the last two the owner no longer holds the lock, but the service may
 * keep the grant until the lease ends. Until then the release can be repeated, and acquiring the
 * lock again releases the old grant first.
 * Thread: the owner's. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_release(pawl_lock *lock, pawl_error *err);

/* Make the lease last lease_ms from now (0: the handle's own lease). For fixed leases; Pawl renews
 * watchdog leases automatically. The service's lease can't be shortened: asking for less than the
 * remaining time only makes this owner lose the lock earlier. A lease never lasts longer than
 * max_hold_ms from the acquire. Returns 0, PAWL_ENOTHELD, PAWL_ELOST, PAWL_EUNKNOWN.
 * Thread: the owner's. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_renew(pawl_lock *lock, int64_t lease_ms, pawl_error *err);

/* Take the lock away from its holder, or from all readers; the first waiter in the queue gets the
 * lock. For operators: the old holder is notified (on_lost) but may be writing at this moment.
 * Returns 0, PAWL_ENOTHELD (nobody held the lock), service errors.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_break(pawl_lock *lock, pawl_error *err);

/* Cancel every acquire that waits on this handle: the acquire returns PAWL_ECANCELED. An acquire
 * that is granted at the same moment may still return 0. Returns the number of cancelled acquires.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_cancel(pawl_lock *lock);

/* 1 if the calling owner holds the lock and the lease is certainly still valid, else 0. No I/O.
 * Inside on_lost and done callbacks the calling owner is the owner whose lock the callback reports.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_held(const pawl_lock *lock);

/* How many acquires of the calling owner have not been released; 0 if not held. No I/O.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_hold_count(const pawl_lock *lock);

/* For how many more ms the lease is certainly valid, as far as this process knows. The time counts
 * from before the request was sent, on a clock that continues while the machine sleeps, less a
 * margin for clock drift. 0: not held, or no longer. No I/O: check before each write.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int64_t pawl_lock_valid_ms(const pawl_lock *lock);

/* The fencing token of the calling owner's hold: larger than every earlier token of this name. The
 * token stays the same when the hold is re-entered or renewed. A lost hold keeps its token until
 * the owner releases the hold; pawl_lock_held tells the difference. 0: not held, or a multi-lock
 * (ask its members). Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API uint64_t pawl_lock_token(const pawl_lock *lock);

/* Why the calling owner's hold was lost (enum pawl_lost_reason), until the owner releases the hold;
 * for a multi-lock, the reason of its first lost member. 0: not lost. The text of every PAWL_ELOST
 * and the log give the same reason. If a service can't tell a break from a record of the lock that
 * was deleted by hand, PAWL_LOST_BROKEN covers both. Without PAWL_CAN_TELL_BROKEN the reason of a
 * break is PAWL_LOST_GONE. No I/O. Inside on_lost the calling owner is the owner whose lock was
 * lost.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_lost_reason(const pawl_lock *lock);

/* The reason as a sentence; "not lost" for 0. Never NULL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_lost_text(int reason);

/* The name; for a multi-lock, the name of its first member in acquiring order.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_lock_name(const pawl_lock *lock);

/* The stripe name of `key`: "base#k" with 0 <= k < n, the same for equal keys in every process and
 * version. One lock per stripe bounds the number of lock names that a large key space needs.
 * Writes at most `size` bytes, the final NUL included. Returns 0, PAWL_EINVAL (n is 0, or the name
 * doesn't fit).
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_stripe(char *ret, size_t size, const char *base, const void *key, size_t key_len,
                         uint32_t n);

/* ---- Asynchronous ---------------------------------------------------------------------------- */

/* Reports the end of an operation that was started. code is the result of the blocking call.
 * Called exactly once per successful start, never from inside the start itself, also on cancel and
 * close (PAWL_ECANCELED), and from the same threads as on_lost. The function may start operations
 * and free the lock; it must not call functions that block. */
typedef void pawl_done_fn(void *arg, pawl_lock *lock, int code);

/* Start to acquire; `done` (not NULL) receives the result. The owner is the calling thread or the
 * handle; use PAWL_OWNER_HANDLE in programs with an event loop. A multi-lock needs handle-owned
 * members. Returns 0 (done will be called), or an immediate error (done is not called):
 * PAWL_EINVAL, PAWL_ESTATE, PAWL_EDEADLK, PAWL_ELOST (an earlier hold was lost), PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_acquire_start(pawl_lock *lock, int64_t wait_ms, pawl_done_fn *done,
                                     void *arg);

/* Start to release; `done` receives the result. Returns 0, or an immediate error: PAWL_ENOTHELD,
 * PAWL_ESTATE (the owner's last call is still under way).
 * Thread: the owner's. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_release_start(pawl_lock *lock, pawl_done_fn *done, void *arg);

/* One descriptor for your event loop: readable when pawl_client_process() has work to do. The
 * descriptor stays the same for the client's whole life. Poll for input, level-triggered; never
 * read or close the descriptor. From the first call on, done and on_lost callbacks run only inside
 * pawl_client_process(), so on_lost is only as prompt as your loop. Pawl's own thread still renews
 * leases when your loop is late. Returns the descriptor or a PAWL_E... code.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_client_fd(pawl_client *client);

/* Process pending events and run the callbacks. Returns the number of callbacks that ran, or
 * PAWL_EDEADLK (called from a callback), PAWL_ESTATE (closing), PAWL_EFORK. Don't call the function
 * after pawl_close() has returned: the client's memory is freed, with its last handle at the
 * latest.
 * Thread: any, one at a time. Blocks: no. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_client_process(pawl_client *client);

/* ---- Semaphore ------------------------------------------------------------------------------- */

typedef struct pawl_semaphore_options {
    uint64_t size;
    uint64_t permits;      /* the capacity, set by the first user; 0: as set by others */
    int64_t lease_ms;      /* as in pawl_lock_options */
    pawl_lost_fn *on_lost; /* called with a NULL lock */
    void *arg;
} pawl_semaphore_options;

/* A handle on the semaphore `name`. Permits are leased: the permits of a process that dies become
 * free. The capacity applies while anyone holds or waits for a permit; in that time an acquire with
 * a different capacity returns PAWL_ESTATE. Returns 0, PAWL_EINVAL, PAWL_ENOTSUP, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_semaphore_new(pawl_semaphore **ret, pawl_client *client, const char *name,
                                const pawl_semaphore_options *options, pawl_error *err);

/* Acquire `permits` permits at once, or none, first come first served. The handle owns the permits.
 * Returns as pawl_lock_acquire; PAWL_EINVAL if `permits` exceeds the capacity, PAWL_ESTATE if no
 * capacity or a different capacity is set (without PAWL_CAN_DETAIL: the first capacity stays, and
 * others are ignored).
 * Thread: any. Blocks: up to wait_ms; a wait of 0 up to the time-out, if the service is silent. In
 * callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_semaphore_acquire(pawl_semaphore *sem, uint32_t permits, int64_t wait_ms,
                                    pawl_error *err);

/* Release `permits` of the permits acquired through this handle, the newest first.
 * Returns 0; PAWL_ENOTHELD: the handle holds fewer, nothing changed; PAWL_ELOST: some of the
 * permits were lost earlier; PAWL_EUNKNOWN. A failed release can be repeated, as with a lock.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_semaphore_release(pawl_semaphore *sem, uint32_t permits, pawl_error *err);

/* The number of permits that are free now. Returns 0, PAWL_ESTATE (no capacity known).
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_semaphore_available(pawl_semaphore *sem, int64_t *ret, pawl_error *err);

/* The fencing token of the newest permits that this handle holds; 0: none. No I/O.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API uint64_t pawl_semaphore_token(const pawl_semaphore *sem);

/* For how many more ms all permits of this handle are certainly valid; 0: the handle holds no
 * permits, or some were lost.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int64_t pawl_semaphore_valid_ms(const pawl_semaphore *sem);

/* Why permits of this handle were lost (enum pawl_lost_reason): the reason of the newest permits
 * that were lost and not released; 0: no permits were lost. No I/O.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_semaphore_lost_reason(const pawl_semaphore *sem);

/* Cancel the acquires that wait on this handle (PAWL_ECANCELED). Returns their number.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_semaphore_cancel(pawl_semaphore *sem);

/* Free the handle. Its permits are released in the background. NULL is a no-op.
 * Thread: any, as pawl_lock_free. Blocks: no. In callbacks: yes. */
PAWL_API void pawl_semaphore_free(pawl_semaphore *sem);

/* ---- Latch ----------------------------------------------------------------------------------- */

/* A handle on the count-down latch `name`. The count of a latch that was never set is 0, so waiting
 * for such a latch returns at once. A latch has no lease: the count stays until the latch is
 * counted down.
 * Returns 0, PAWL_EINVAL, PAWL_ENOTSUP, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_latch_new(pawl_latch **ret, pawl_client *client, const char *name,
                            pawl_error *err);

/* Set the count (1 or more). Returns 0, PAWL_ESTATE if the count is already above 0.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_set(pawl_latch *latch, int64_t count, pawl_error *err);

/* Count down by one; at 0 all waiters return. If the count is already 0, returns 0 and changes
 * nothing.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_count_down(pawl_latch *latch, pawl_error *err);

/* Read the count. Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_count(pawl_latch *latch, int64_t *ret, pawl_error *err);

/* Wait until the count is 0. Returns 0, PAWL_EBUSY (wait_ms 0), PAWL_ETIMEDOUT, PAWL_ECANCELED.
 * Thread, Blocks, In callbacks: as pawl_lock_acquire. */
PAWL_API int pawl_latch_wait(pawl_latch *latch, int64_t wait_ms, pawl_error *err);

/* Cancel the waits on this handle (PAWL_ECANCELED). Returns their number.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_latch_cancel(pawl_latch *latch);

/* Free the handle. NULL is a no-op.
 * Thread: any, as pawl_lock_free. Blocks: no. In callbacks: yes. */
PAWL_API void pawl_latch_free(pawl_latch *latch);

/* ---- Holders and waiters --------------------------------------------------------------------- */

enum pawl_role { PAWL_ROLE_HOLDER = 0, PAWL_ROLE_WAITER = 1, PAWL_ROLE_SUMMARY = 2 };
enum pawl_type { PAWL_TYPE_LOCK = 0, PAWL_TYPE_SEMAPHORE = 1, PAWL_TYPE_LATCH = 2 };

/* One row of a listing. pawl_inspect gives a SUMMARY row and then a row for each holder and each
 * waiter in order; pawl_list gives a SUMMARY row per name. Strings are valid during the call, ""
 * if unknown. */
typedef struct pawl_info {
    uint64_t size;
    const char *name;
    uint64_t role;       /* enum pawl_role */
    uint64_t type;       /* enum pawl_type */
    uint64_t shared;     /* 1 if shared; SUMMARY: 1 if all holders are shared */
    uint64_t holders;    /* SUMMARY: their number */
    uint64_t waiters;    /* SUMMARY: their number */
    int64_t count;       /* SUMMARY: semaphore's capacity, latch's count */
    int64_t available;   /* SUMMARY: semaphore's free permits */
    uint64_t permits;    /* holder, waiter: permits held or asked for */
    uint64_t token;      /* HOLDER: fencing token; SUMMARY: the newest holder's; else 0 */
    int64_t since_ms;    /* HOLDER, WAITER: time since the grant or the request; SUMMARY: of the
                            oldest holder; -1 unknown */
    int64_t lease_ms;    /* HOLDER: remaining lease if not renewed; SUMMARY: of the first holder;
                            -1 unknown (pawl_list on etcd: always) */
    int64_t pid;         /* 0 if unknown. SUMMARY: the first holder's, like the next four */
    const char *host;
    const char *program;
    const char *label;
    const char *owner;   /* a short id to tell owners apart; not sufficient for a release */
    int64_t wait_ms;     /* SUMMARY: time since the oldest request of a waiter; -1 if nobody waits
                            or the time is unknown. HOLDER, WAITER: -1 */
} pawl_info;

/* Receives each row; a result other than 0 ends the listing, and pawl_inspect or pawl_list returns
 * that result. The function runs in the calling thread, after the listing is complete, and may call
 * Pawl. */
typedef int pawl_info_fn(void *arg, const pawl_info *info);

/* List the holders and waiters of `name`. An unused name gives one SUMMARY row with 0 holders.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_inspect(pawl_client *client, const char *name, pawl_info_fn *fn, void *arg,
                          pawl_error *err);

/* List the names in use that match `pattern` (a glob with * ? [..]; NULL: all), in no set order.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_list(pawl_client *client, const char *pattern, pawl_info_fn *fn, void *arg,
                       pawl_error *err);

/* ---- Counters -------------------------------------------------------------------------------- */

/* Histograms: bucket i counts durations of [2^i, 2^(i+1)) microseconds. Bucket 0 also counts
 * shorter durations, and the last bucket longer ones. */
#define PAWL_BUCKETS 32

typedef struct pawl_stats {
    uint64_t size;
    uint64_t acquired;    /* grants of locks and permits */
    uint64_t waited;      /* grants that were not given at the first try */
    uint64_t handed_over; /* grants passed on inside this process, without the service */
    uint64_t released;
    uint64_t renewed;     /* leases confirmed by renewal */
    uint64_t lost;
    uint64_t unknown;     /* requests that got no answer */
    uint64_t repeated;    /* requests sent again for that reason */
    uint64_t reconnects;
    uint64_t orphaned;    /* holds whose thread ended */
    uint64_t held;        /* held at this moment */
    uint64_t waiting;     /* waiting at this moment */
    uint64_t wait_us[PAWL_BUCKETS]; /* from the call to the grant */
    uint64_t hold_us[PAWL_BUCKETS]; /* from the grant to the release or loss */
    uint64_t failovers;   /* times that another server took over. Locks still held afterwards were
                             known to the new server, too; tokens reveal other grants made there */
    uint64_t not_acquired; /* acquires that ended without a grant: busy, timed out, failed */
} pawl_stats;

/* The client's counters since pawl_open; set ret->size first. Returns 0, PAWL_EINVAL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_client_stats(pawl_client *client, pawl_stats *ret);

#ifdef __cplusplus
}
#endif
#endif
