/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.h - distributed locks for C.
 *
 * A lock lives in a service that your programs share (or, with "local:", in a folder of this
 * machine). Whoever acquires it holds it for a *lease*; Pawl renews the lease until it is released,
 * and tells the holder when that stops working, before anybody else can get the lock.
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
 *     sell_one(pawl_lock_token(lock));      // hand the token to whatever you write to
 *     pawl_lock_release(lock, &err);
 *     pawl_lock_free(lock);
 *     pawl_close(client);
 *
 * What no lease lock can promise: that a process which was paused (SIGSTOP, swapping, a suspended
 * machine) past the end of its lease does not wake up and write. Give pawl_lock_token() along with
 * every write and let the resource refuse a token smaller than the largest it has seen.
 *
 * Rules that hold for every function:
 *  - int results are 0 or a negative PAWL_E... code; what is returned through `ret` is untouched on
 *    failure. The pawl_error is always optional (NULL); it is written only on failure.
 *  - Each comment lists the codes that are particular to its function. Every function that asks the
 *    service may also return PAWL_ECONN, PAWL_EAUTH, PAWL_EPROTO, PAWL_EBACKEND, PAWL_EQUORUM (a
 *    quorum), PAWL_EUNKNOWN (no answer), PAWL_ESTATE (the client is closed, or the name is in use
 *    as something else: lock, semaphore, latch), PAWL_EFORK and PAWL_ENOMEM; every function with
 *    arguments PAWL_EINVAL.
 *  - Times are int64_t milliseconds. A wait of 0 is one try, PAWL_FOREVER has no limit.
 *  - Input strings are copied. Getters return what stays valid as long as the object.
 *  - Any thread may call any function unless its comment says otherwise. Each comment ends with a
 *    line of duties: which threads, whether it blocks, whether callbacks may call it.
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

/* Every code, in groups of "what do I do next". One list makes enum, names and texts. */
#define PAWL_ERRORS(X)                                                                             \
    /* not yours */                                                                                \
    X(EBUSY, -1, "held by somebody else")                                                          \
    X(ETIMEDOUT, -2, "not acquired within the given time")                                         \
    X(ECANCELED, -3, "the wait was cancelled")                                                     \
    /* was yours */                                                                                \
    X(ELOST, -10, "the lock was lost: its lease ended or it was broken")                           \
    X(ENOTHELD, -11, "not held by this owner")                                                     \
    /* don't know */                                                                               \
    X(EUNKNOWN, -20, "no answer came: the request may or may not have been carried out")           \
    /* service */                                                                                  \
    X(ECONN, -30, "the service can't be reached")                                                  \
    X(EAUTH, -31, "the service refused the credentials or the rights are missing")                 \
    X(EPROTO, -32, "the service's answer can't be understood")                                     \
    X(EBACKEND, -33, "the service reported an error")                                              \
    X(EQUORUM, -34, "too few servers agreed")                                                      \
    /* you */                                                                                      \
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

/* What went wrong, in words. `backend` is the service's or the system's own number (an errno, say),
 * or 0. The text is one line and never holds a password. */
typedef struct pawl_error {
    int32_t code;
    int32_t backend;
    char text[248];
} pawl_error;

#define PAWL_FOREVER (-1)

/* The code in words ("held by somebody else"); never NULL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_strerror(int code);

/* The code's name ("PAWL_EBUSY"); never NULL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_errname(int code);

/* The version of the library that is running, "0.1.0".
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_version(void);

/* ---- Client --------------------------------------------------------------------------------- */

enum { PAWL_LOG_ERROR = 3, PAWL_LOG_WARNING = 4, PAWL_LOG_INFO = 6, PAWL_LOG_DEBUG = 7 };

/* Told what no return value can tell: a reconnect, a late renewal, a thread that ended while it
 * held a lock. `text` is valid during the call only and holds no secrets. May be called from any
 * thread that is inside a Pawl call and from Pawl's own, with no mutex of Pawl's held; it must not
 * call Pawl. */
typedef void pawl_log_fn(void *arg, int level, const char *text);

/* Option structs: set `size` to sizeof the struct, leave what you don't need 0. A field that this
 * version of the library doesn't know is refused unless it is 0. */
typedef struct pawl_client_options {
    uint64_t size;
    pawl_log_fn *log;    /* default: silence */
    void *log_arg;
    uint64_t log_level;  /* the most talkative level wanted; default PAWL_LOG_WARNING */
    const char *label;   /* shown to whoever asks who holds a lock; default: none */
    int64_t watchdog_ms; /* lease of locks with lease_ms 0; default: URL `watchdog`, else 30000 */
    int64_t timeout_ms;  /* limit of one exchange; default: URL `timeout`, else 2000 */
    uint64_t cohort;     /* grants inside the process in a row; default: URL `cohort`, else 32 */
    const char *user;     /* where the URL has none; default: $PAWL_USER */
    const char *password; /* where the URL has none; default: $PAWL_PASSWORD */
} pawl_client_options;

/* Open the service that `url` names: "local:", "local:/var/lock/shop", "memory:", ... (pawl(7)).
 * NULL options are the defaults. Returns 0, PAWL_EINVAL (the text says what is wrong with the URL
 * or the options and what would be right), PAWL_ECONN, PAWL_EAUTH, PAWL_EBACKEND, PAWL_ENOTSUP (no
 * such engine on this machine), PAWL_ENOMEM.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_open(pawl_client **ret, const char *url, const pawl_client_options *options,
                       pawl_error *err);

/* Release what this client holds, cancel what waits (PAWL_ECANCELED), and end the client. Handles
 * made from it stay valid to free; other calls on them return PAWL_ESTATE. NULL is a no-op.
 * Releases that failed before are tried once more. Locks that at_least_ms keeps, where the service
 * can't do that itself, are kept up to the time-out and then released; a lease that would end
 * before at_least_ms is over ends by itself instead.
 * Returns 0: nothing of this client is left. PAWL_EUNKNOWN: a release got no answer; else the code
 * with which the service refused a release (PAWL_EBACKEND, say). Such a lock stays until its lease
 * ends by itself. The client is closed in each case.
 * Thread: any. Blocks: up to the time-out; with at_least_ms up to twice that. In callbacks:
 * PAWL_EDEADLK, nothing is closed. */
PAWL_API int pawl_close(pawl_client *client);

/* ---- Locks ---------------------------------------------------------------------------------- */

enum pawl_kind {
    PAWL_MUTEX = 0, /* exclusive; threads of one process may hand it on among themselves (cohort) */
    PAWL_FAIR = 1,  /* exclusive, strictly first come first served, no cohort */
    PAWL_READ = 2,  /* shared; excludes every exclusive kind of the same name */
    PAWL_WRITE = 3, /* exclusive, the partner of PAWL_READ */
    PAWL_SPIN = 4   /* exclusive, not queued: tries again at random, growing intervals */
};

enum pawl_owner_kind {
    PAWL_OWNER_THREAD = 0, /* the calling thread owns it; re-entrant. If the thread ends, the lock
                              is no longer renewed and ends with its lease */
    PAWL_OWNER_HANDLE = 1  /* the pawl_lock owns it, whichever thread calls; not re-entrant */
};

/* The lock was lost: called once per loss, before anybody else can be given the lock (if the
 * process was stopped: before any call says it is still held). code is PAWL_ELOST.
 * Called from Pawl's own thread (never from yours: it may hold a mutex that you want), or, once
 * pawl_client_fd() was called, inside pawl_client_process(); what is left at the end, inside
 * pawl_close(). Be short: other leases wait. May call every function that doesn't block. */
typedef void pawl_lost_fn(void *arg, pawl_lock *lock, int code);

/* Why a lock was lost, as far as this client can tell. One list makes enum and texts. */
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
    int64_t max_hold_ms;   /* 0: no limit; else the lease ends then at the latest */
    uint64_t owner;        /* enum pawl_owner_kind; default PAWL_OWNER_THREAD */
    pawl_lost_fn *on_lost; /* default: none; the next call tells */
    void *arg;             /* first argument of on_lost */
    int64_t at_least_ms;   /* stay held at least so long after the acquire, even if released and
                              the process has ended. zk:, layout=advisory: while the client is
                              open, and then up to its time-out (see pawl_close).
                              layout=redisson: also if the client was closed, but a process that is
                              killed leaves the lock until its lease ends */
} pawl_lock_options;

/* A handle on the lock `name` (1 to 255 bytes, no control characters). No I/O: nothing is acquired.
 * MUTEX, FAIR, WRITE and SPIN handles of one name exclude each other and READ ones.
 * Returns 0, PAWL_EINVAL, PAWL_ENOTSUP (kind unknown to this engine), PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_new(pawl_lock **ret, pawl_client *client, const char *name,
                           const pawl_lock_options *options, pawl_error *err);

/* One lock made of several: acquired all or not at all, always in one global order, so that two
 * multi-locks never wait for each other in a circle. Members may be of different clients; they stay
 * the caller's and must not repeat a name of one service. Freeing a member first is no error, but
 * the multi-lock then can't be acquired any more (PAWL_ESTATE). Services are told apart by folder
 * (local:), and by hosts, ports, database, prefix and layout, whatever the spelling; localhost,
 * 127.0.0.1 and ::1 are one. Pawl can't know that two host names, or two lists of hosts, are one
 * service: use one spelling for it in all programs. Acquiring returns PAWL_ELOST, with nothing
 * held, if a member was lost while another was waited for. Releasing gives back every member that
 * is held, and returns the first failure. Freeing gives back what any thread holds through it.
 * Returns 0, PAWL_EINVAL, PAWL_EFORK, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_multi_new(pawl_lock **ret, pawl_lock *const *members, size_t n, pawl_error *err);

/* End the handle. What was acquired through it and is still held is released in the background
 * (entering once more what was acquired through another handle of the name does not count); what
 * waits is cancelled, and so is what was granted but not told yet (done gets PAWL_ECANCELED). The
 * owner may acquire the name through another handle at once. NULL is a no-op.
 * Thread: any, but no other call on this handle may be under way or follow. Blocks: no.
 * In callbacks: yes. */
PAWL_API void pawl_lock_free(pawl_lock *lock);

/* Take the lock, waiting at most wait_ms. An owner that holds it already gets it once more (thread
 * owner: the hold count rises) or PAWL_ESTATE (handle owner).
 * Returns 0: held. Not held: PAWL_EBUSY (wait_ms 0), PAWL_ETIMEDOUT, PAWL_ECANCELED, PAWL_EDEADLK
 * (asks to write while it reads), PAWL_ELOST (an earlier hold was lost: release it first), service
 * errors. PAWL_ETIMEDOUT and PAWL_EBUSY are the service's word that somebody else has it; a service
 * that has said nothing in that time is PAWL_ECONN, or PAWL_EUNKNOWN: the request may have been
 * carried out, and Pawl takes it back in the background.
 * No call of Pawl is a cancellation point: pthread_cancel takes effect after a call that blocks.
 * Thread: any. Blocks: up to wait_ms; a wait of 0 up to the time-out, if the service is silent. In
 * callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_acquire(pawl_lock *lock, int64_t wait_ms, pawl_error *err);

/* Give back one hold; the last one frees the lock.
 * Returns 0; PAWL_ENOTHELD: not held by this owner, nothing changed; PAWL_ELOST: it had been lost
 * before, nobody's lock was touched; PAWL_EUNKNOWN: no answer; or the service's refusal. After the
 * last two the owner no longer holds the lock, but the service may have it until the lease ends by
 * itself. Until then the release can be repeated, and acquiring the lock again first gives it back.
 * Thread: the owner's. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_release(pawl_lock *lock, pawl_error *err);

/* Make the lease last lease_ms from now (0: the handle's own lease). For fixed leases; watchdog
 * leases are renewed by themselves. A lease can't be shortened for others: asking for less than is
 * left only makes this owner lose it earlier. It never lasts longer than max_hold_ms from the
 * acquire. Returns 0, PAWL_ENOTHELD, PAWL_ELOST, PAWL_EUNKNOWN.
 * Thread: the owner's. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_renew(pawl_lock *lock, int64_t lease_ms, pawl_error *err);

/* Take the lock away from whoever holds it, all readers included; the next in the queue gets it.
 * For operators: the old holder is told (on_lost) but may be writing at this moment.
 * Returns 0, PAWL_ENOTHELD (nobody held it), service errors.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_lock_break(pawl_lock *lock, pawl_error *err);

/* Make every acquire that waits on this handle return PAWL_ECANCELED. One that is granted in the
 * same moment may still return 0. Returns how many were asked to end.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_cancel(pawl_lock *lock);

/* 1 if the calling owner holds the lock and the lease is surely still good, else 0. No I/O. Inside
 * on_lost and done callbacks the owner is the one that the callback is about.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_held(const pawl_lock *lock);

/* How many times the calling owner has acquired it and not released; 0 if not held. No I/O.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_hold_count(const pawl_lock *lock);

/* How long the lease is surely good from now, as far as this process knows: counted from before the
 * request was sent, on a clock that runs on while the machine sleeps, less a margin for clock
 * drift. 0: not held, or no longer. No I/O: check it before each write.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int64_t pawl_lock_valid_ms(const pawl_lock *lock);

/* The fencing token of the calling owner's hold: larger than every earlier one of this name. It
 * stays the same when the hold is re-entered or renewed. A hold that was lost keeps its token until
 * it is released: pawl_lock_held tells the difference. 0: not held, or a multi-lock (ask its
 * members). Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API uint64_t pawl_lock_token(const pawl_lock *lock);

/* Why the calling owner's hold was lost (enum pawl_lost_reason), until the hold is released; of a
 * multi-lock, the reason of its first lost member. 0: not lost. The same words are in the text of
 * every PAWL_ELOST and in the log. PAWL_LOST_BROKEN also says that a key or node of the lock was
 * deleted by hand (etcd, ZooKeeper); PostgreSQL's layout=advisory, where a break ends the holder's
 * connection as a restart does, says PAWL_LOST_GONE. No I/O. Inside on_lost the owner is the one
 * that on_lost is about.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_lost_reason(const pawl_lock *lock);

/* The reason in words; "not lost" for 0. Never NULL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_lost_text(int reason);

/* The name; of a multi-lock, that of its first member in acquiring order.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_lock_name(const pawl_lock *lock);

/* The stripe name that `key` belongs to: "base#k" with 0 <= k < n, the same for equal keys in every
 * process and version. Locks per stripe bound how many lock names a large key space makes.
 * Writes at most `size` bytes with the final NUL. Returns 0, PAWL_EINVAL (n is 0, or no room).
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_stripe(char *ret, size_t size, const char *base, const void *key, size_t key_len,
                         uint32_t n);

/* ---- Asynchronous ---------------------------------------------------------------------------- */

/* An operation that was started is done. code is what the blocking call would have returned.
 * Called exactly once per successful start, never from inside the start itself, also on cancel and
 * close (PAWL_ECANCELED); from the same threads as on_lost. May start operations and free the
 * lock; may not call what blocks. */
typedef void pawl_done_fn(void *arg, pawl_lock *lock, int code);

/* Start to acquire; `done` (not NULL) tells the outcome. The owner is the calling thread, or the
 * handle: programs with an event loop want PAWL_OWNER_HANDLE. A multi-lock needs handle-owned
 * members. Returns 0 (done will be called) or what is wrong at once: PAWL_EINVAL, PAWL_ESTATE,
 * PAWL_EDEADLK, PAWL_ELOST (an earlier hold was lost), PAWL_ENOMEM (done is not called).
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_acquire_start(pawl_lock *lock, int64_t wait_ms, pawl_done_fn *done,
                                     void *arg);

/* Start to release; `done` tells the outcome. Returns 0, or at once PAWL_ENOTHELD, PAWL_ESTATE (the
 * owner's last call is still under way).
 * Thread: the owner's. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_lock_release_start(pawl_lock *lock, pawl_done_fn *done, void *arg);

/* One descriptor for your event loop: readable when pawl_client_process() has something to do.
 * The same for the client's whole life; poll it for input, level-triggered, never read or close it.
 * From the first call on, done and on_lost callbacks come only inside pawl_client_process(), so
 * on_lost is only as prompt as your loop. Leases are still renewed by Pawl's own thread when your
 * loop is late. Returns it, or a PAWL_E... code.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_client_fd(pawl_client *client);

/* Do what is due and run the callbacks. Returns how many callbacks ran, or PAWL_EDEADLK (called
 * from a callback), PAWL_ESTATE (closing), PAWL_EFORK. Not after pawl_close() has returned: the
 * client is gone then, with its last handle at the latest.
 * Thread: any, one at a time. Blocks: no. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_client_process(pawl_client *client);

/* ---- Semaphore ------------------------------------------------------------------------------- */

typedef struct pawl_semaphore_options {
    uint64_t size;
    uint64_t permits;      /* the capacity, set by the first user; 0: whatever is set already */
    int64_t lease_ms;      /* as in pawl_lock_options */
    pawl_lost_fn *on_lost; /* its lock argument is NULL: it is about a semaphore */
    void *arg;
} pawl_semaphore_options;

/* A handle on the semaphore `name`. Permits are leased: those of a process that dies come back.
 * The capacity counts while anybody holds or waits for a permit; who then comes with a different
 * one gets PAWL_ESTATE from acquire. Returns 0, PAWL_EINVAL, PAWL_ENOTSUP, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_semaphore_new(pawl_semaphore **ret, pawl_client *client, const char *name,
                                const pawl_semaphore_options *options, pawl_error *err);

/* Take `permits` permits at once, or none, first come first served. The handle owns them.
 * Returns as pawl_lock_acquire; PAWL_EINVAL if more than the capacity are asked for, PAWL_ESTATE if
 * no capacity is set or a different one (layout=redisson: the first one stays, others are ignored).
 * Thread: any. Blocks: up to wait_ms.
 * In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_semaphore_acquire(pawl_semaphore *sem, uint32_t permits, int64_t wait_ms,
                                    pawl_error *err);

/* Give back `permits` of the permits acquired through this handle, the newest first.
 * Returns 0; PAWL_ENOTHELD: the handle holds fewer, nothing changed; PAWL_ELOST: some of them had
 * been lost; PAWL_EUNKNOWN. A release that failed can be repeated, as that of a lock.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_semaphore_release(pawl_semaphore *sem, uint32_t permits, pawl_error *err);

/* How many permits are free now, whoever asks. Returns 0, PAWL_ESTATE (no capacity known).
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_semaphore_available(pawl_semaphore *sem, int64_t *ret, pawl_error *err);

/* The fencing token of the newest permits this handle holds; 0: none. No I/O.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API uint64_t pawl_semaphore_token(const pawl_semaphore *sem);

/* How long all permits of this handle are surely good from now; 0: it holds none, or one was lost.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int64_t pawl_semaphore_valid_ms(const pawl_semaphore *sem);

/* Why the newest of this handle's permits that were lost and not released were lost (enum
 * pawl_lost_reason); 0: none were. No I/O.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_semaphore_lost_reason(const pawl_semaphore *sem);

/* Make acquires that wait on this handle return PAWL_ECANCELED. Returns how many.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_semaphore_cancel(pawl_semaphore *sem);

/* End the handle; permits it still holds are given back in the background. NULL is a no-op.
 * Thread: any, as pawl_lock_free. Blocks: no. In callbacks: yes. */
PAWL_API void pawl_semaphore_free(pawl_semaphore *sem);

/* ---- Latch ----------------------------------------------------------------------------------- */

/* A handle on the count-down latch `name`. A latch that is not set counts 0, so waiting for it
 * returns at once. It has no lease: it stays until it is counted down.
 * Returns 0, PAWL_EINVAL, PAWL_ENOTSUP, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_latch_new(pawl_latch **ret, pawl_client *client, const char *name,
                            pawl_error *err);

/* Set the count (1 or more). Returns 0, PAWL_ESTATE if it is already set and above 0.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_set(pawl_latch *latch, int64_t count, pawl_error *err);

/* Count down by one; at 0 all waiters return. At 0 already: 0, nothing changes.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_count_down(pawl_latch *latch, pawl_error *err);

/* The count now. Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_count(pawl_latch *latch, int64_t *ret, pawl_error *err);

/* Wait until the count is 0. Returns 0, PAWL_EBUSY (wait_ms 0), PAWL_ETIMEDOUT, PAWL_ECANCELED.
 * Thread: any. Blocks: up to wait_ms. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_latch_wait(pawl_latch *latch, int64_t wait_ms, pawl_error *err);

/* Make waits on this handle return PAWL_ECANCELED. Returns how many.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_latch_cancel(pawl_latch *latch);

/* End the handle. NULL is a no-op.
 * Thread: any, as pawl_lock_free. Blocks: no. In callbacks: yes. */
PAWL_API void pawl_latch_free(pawl_latch *latch);

/* ---- Who holds it? --------------------------------------------------------------------------- */

enum pawl_role { PAWL_ROLE_HOLDER = 0, PAWL_ROLE_WAITER = 1, PAWL_ROLE_SUMMARY = 2 };
enum pawl_type { PAWL_TYPE_LOCK = 0, PAWL_TYPE_SEMAPHORE = 1, PAWL_TYPE_LATCH = 2 };

/* One row. pawl_inspect gives a SUMMARY row and then each holder and each waiter in order;
 * pawl_list gives a SUMMARY row per name. Strings are valid during the call, "" if unknown. */
typedef struct pawl_info {
    uint64_t size;
    const char *name;
    uint64_t role;       /* enum pawl_role */
    uint64_t type;       /* enum pawl_type */
    uint64_t shared;     /* holder or waiter, or all holders of a summary: 1 if shared */
    uint64_t holders;    /* SUMMARY: how many */
    uint64_t waiters;    /* SUMMARY: how many */
    int64_t count;       /* SUMMARY: semaphore's capacity, latch's count */
    int64_t available;   /* SUMMARY: semaphore's free permits */
    uint64_t permits;    /* holder, waiter: permits held or asked for */
    uint64_t token;      /* HOLDER: fencing token; SUMMARY: the newest holder's; else 0 */
    int64_t since_ms;    /* HOLDER, WAITER: how long ago it began; SUMMARY: oldest holder's; -1 */
    int64_t lease_ms;    /* HOLDER: how long the lease still lasts if not renewed; -1 unknown */
    int64_t pid;         /* 0 if unknown. SUMMARY: the first holder's, like the next four */
    const char *host;
    const char *program;
    const char *label;
    const char *owner;   /* a short id to tell owners apart; not enough to release with */
} pawl_info;

/* Told each row; a result other than 0 ends the listing, and the call returns it. It runs in the
 * calling thread, after the listing is complete, and may call Pawl. */
typedef int pawl_info_fn(void *arg, const pawl_info *info);

/* Who holds `name` and who waits for it. A name that nobody uses: one SUMMARY row with 0 holders.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_inspect(pawl_client *client, const char *name, pawl_info_fn *fn, void *arg,
                          pawl_error *err);

/* The names in use that match `pattern` (a glob with * ? [..]; NULL: all), in no set order.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_list(pawl_client *client, const char *pattern, pawl_info_fn *fn, void *arg,
                       pawl_error *err);

/* ---- Counters -------------------------------------------------------------------------------- */

/* Histograms: bucket i counts durations of [2^i, 2^(i+1)) microseconds; bucket 0 also those below,
 * the last also those above. */
#define PAWL_BUCKETS 32

typedef struct pawl_stats {
    uint64_t size;
    uint64_t acquired;    /* grants of locks and permits */
    uint64_t waited;      /* of them: not granted at the first try */
    uint64_t handed_over; /* of them: passed on inside this process, without the service */
    uint64_t released;
    uint64_t renewed;     /* leases confirmed by renewal */
    uint64_t lost;
    uint64_t unknown;     /* answers that never came */
    uint64_t repeated;    /* requests sent again because of that */
    uint64_t reconnects;
    uint64_t orphaned;    /* holds whose thread ended */
    uint64_t held;        /* held at this moment */
    uint64_t waiting;     /* waiting at this moment */
    uint64_t wait_us[PAWL_BUCKETS]; /* from the call to the grant */
    uint64_t hold_us[PAWL_BUCKETS]; /* from the grant to the release or loss */
    uint64_t failovers;   /* another server took over: what is still held afterwards was there, too;
                             what else was granted there meanwhile, the tokens tell */
} pawl_stats;

/* The client's counters since it was opened; set ret->size first. Returns 0, PAWL_EINVAL.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_client_stats(pawl_client *client, pawl_stats *ret);

#ifdef __cplusplus
}
#endif
#endif
