/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h - the interface between the core and an engine: ops in, completions out.
 *
 * An engine stores locks in one type of service. An engine is a const struct of functions and facts
 * (struct pawl_engine). The core submits ops; the engine completes each op exactly once by calling
 * op->done. The core handles threads, re-entrancy, renewal timers, retries, deadlines and
 * callbacks; the engine handles the wire format and the rules of its service. docs/engine.md
 * explains how to write an engine, examples/engine/ has a complete one, and docs/glossary.md
 * explains the terms. An engine needs no other header of Pawl than this one, pawl.h and
 * pawl-observe.h.
 *
 * THREADS. Every call across this interface (engine functions, timers, wakes, loop callbacks,
 * op->done) happens under the client's mutex, one call at a time, on any thread. The only exception
 * is pawl_env.wake_send, which any thread may call without the mutex. No function of an engine may
 * block: not for the network, not for a file on a network, not for a name lookup.
 *
 * RE-ENTRANCE. An engine may complete an op inside submit or cancel, or later from a loop, timer
 * or wake callback. op->done never calls back into the engine (the core defers follow-up work).
 * After op->done the engine must not touch the op any more: the core may already have submitted the
 * same memory again, or freed it. So the engine removes the op from its own lists first.
 *
 * OUTCOMES. 0: done. PAWL_EBUSY, PAWL_ENOTHELD, PAWL_ESTATE ...: refused, nothing changed.
 * PAWL_ECONN: certainly not sent. PAWL_EUNKNOWN: sent, no answer; the request may have been carried
 * out. An engine never reports an unknown outcome as anything else, and never reports silence of
 * the service as a refusal (op->waited). After PAWL_EUNKNOWN and PAWL_ECONN the core submits the
 * same op again (same owner, same sequence number) until the op's deadline, so repeating an op must
 * be harmless, as each kind states. Every other code ends the request of the caller. A code speaks
 * of this submit alone: the core remembers that an earlier submit of the op had no answer. With a
 * code other than 0 the engine puts one line of text into op->err (pawl_error_set): the mistake and
 * its remedy, without a password. PAWL_EBUSY, PAWL_ENOTHELD and PAWL_ECANCELED need no
 * text.
 *
 * CONNECTING. open does not wait for the service. Ops that are submitted while there is no
 * connection stay in the engine until there is one, or until they are cancelled. A cancelled op
 * that was not sent ends with PAWL_ECONN and the reason why there is no connection, or with
 * PAWL_ECANCELED if no attempt has failed yet. An error that only a person can mend (a wrong
 * password, a missing right, another protocol) ends the ops that wait for the connection at once:
 * PAWL_EAUTH, PAWL_EPROTO, PAWL_EBACKEND. The engine reconnects by itself, with growing pauses.
 *
 * SILENCE. The core cancels every op at its deadline, but an ACQUIRE may have none. So the engine
 * itself limits each exchange to env->timeout_ms. After that an op that was sent ends with
 * PAWL_EUNKNOWN, and the engine drops the connection, unless it knows otherwise that the service is
 * alive. (An ACQUIRE that waits in the service's queue has had its answer, "queued".)
 *
 * EVENTS. The core keeps one EVENT op submitted. An engine completes the EVENT op to report an
 * event (enum pawl_event). If an event happens while no EVENT op is submitted, the engine keeps the
 * event until the next EVENT op; of several, the engine keeps the one with the largest number.
 * struct pawl_events does all this. After each new connection but the first an engine reports
 * PAWL_EVENT_RECONNECT, because messages and grants may have been lost in between.
 *
 * QUEUES. With PAWL_CAP_QUEUE an ACQUIRE with op->queue waits in the service, and the service
 * serves its waiters in order. Without that capability op->queue is always 0, and the core
 * polls: an ACQUIRE that was answered PAWL_EBUSY is submitted again after a random pause that grows
 * from 1 to 50 ms. PAWL_SPIN is polled with every engine.
 *
 * CANCEL. The core calls cancel when the caller gives up or the deadline passes, at most once for
 * each submit, and never after op->done. See pawl_engine.cancel for the answers.
 *
 * LEASES. A grant ends when lease_ms have passed since it was made or renewed, also if no client
 * asks. A service whose clock has coarse steps may end a grant later, never earlier. The client
 * counts its deadline from before the request was sent (op->lease_from), so an answer that was long
 * on its way never makes a lease longer.
 *
 * OWNERS. owner.client and owner.seq together identify one acquire for ever. An engine stores both,
 * and a RELEASE or RENEW of another pair never touches the grant: a request that was delayed by the
 * network can't end the grant of a later acquire.
 *
 * REQUIRED. Every engine answers ACQUIRE (mode EXCLUSIVE), RELEASE, RENEW, BREAK, INSPECT, EVENT.
 * The core submits other modes and kinds only with their capability: SHARED with CAP_SHARED,
 * PERMITS and COUNT with CAP_PERMITS, LATCH, LATCH_SET, LATCH_DOWN and COUNT with CAP_LATCH, LIST
 * with CAP_LIST. An engine answers a kind that it does not know with PAWL_ENOTSUP.
 *
 * CLOSING. The core cancels all waits and releases all grants first, lets background work continue
 * as long as `unfinished` says (at most one time-out), and then calls close.
 *
 * FORK. A forked child never calls the engine of its parent's client. Descriptors that a child must
 * close, because both processes would use them, are registered by env->fork_guard_add.
 *
 * TIME. Nanoseconds of CLOCK_BOOTTIME from env->now, or virtual time in the simulator. Engines set
 * timers only through env; libuv timers and sleeping are forbidden. While a client has no op under
 * way and holds nothing, there may be no thread that runs the loop: callbacks and timers are then
 * late by any time, until the next call. So a limit that fires long after its `due` proves nothing.
 */
#ifndef PAWL_ENGINE_H
#define PAWL_ENGINE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "pawl-observe.h"

struct uv_loop_s;

#define PAWL_ENGINE_ABI 2u
#define PAWL_NEVER INT64_MAX
#define PAWL_NAME_MAX 255
#define PAWL_BY_MAX 128 /* bytes of pawl_op.by, with the 0 at the end */
#define PAWL_NS_PER_MS 1000000

typedef struct pawl_op pawl_op;
typedef struct pawl_env pawl_env;
typedef struct pawl_engine pawl_engine;

/* Optional features of an engine, so that the core can ask instead of trying. pawl_client_can
 * answers the questions of programs from the same bits (src/can.c). */
enum pawl_caps {
    PAWL_CAP_FENCE = 1 << 0,         /* grants carry tokens that rise per name */
    PAWL_CAP_QUEUE = 1 << 1,         /* op->queue works: first come, first served in the service,
                                        unless CAP_FAIR_ONLY */
    PAWL_CAP_RANGE = 1 << 2,         /* op->tokens > 1 works: a grant reserves a range of tokens */
    PAWL_CAP_SHARED = 1 << 3,        /* PAWL_MODE_SHARED */
    PAWL_CAP_PERMITS = 1 << 4,       /* PAWL_MODE_PERMITS */
    PAWL_CAP_LATCH = 1 << 5,         /* PAWL_MODE_LATCH and the latch ops */
    PAWL_CAP_SESSION_LEASE = 1 << 6, /* one lease for all grants of the client; RENEW confirms it */
    PAWL_CAP_LINGER = 1 << 7,        /* op->linger_ms works: the service keeps a released lock for a
                                        while, even if the process ends; else the core does */
    PAWL_CAP_LIST = 1 << 8,          /* LIST */
    PAWL_CAP_COUNTS = 1 << 9,        /* the service counts re-entries, too (a foreign layout): see
                                        ACQUIRE and RELEASE */
    PAWL_CAP_FLOOR = 1 << 10,        /* op->floor works */
    PAWL_CAP_LASTING = 1 << 11,      /* permits have no lease: they last until they are released */
    PAWL_CAP_LINGER_CLOSING = 1 << 12, /* as CAP_LINGER, but no waiter is notified when the lock
                                          ends: used only when the client closes */
    PAWL_CAP_OUTLASTS = 1 << 13,     /* a lock may outlast its lease while its client is there: a
                                        RELEASE follows when the lease is over */
    PAWL_CAP_FAIR_ONLY = 1 << 14,    /* only fair locks have an order (a foreign layout); of others
                                        INSPECT shows neither waiters nor since when they are held,
                                        and semaphores and latches are bare numbers */
    PAWL_CAP_HERE = 1 << 15,         /* no server: ops need nothing but this machine */
    PAWL_CAP_PRIVATE = 1 << 16,      /* only clients of this process share the names */
    PAWL_CAP_BREAKS_LATE = 1 << 17,  /* BREAK is not one step, and may also end a grant that was
                                        made after the BREAK was submitted */
    PAWL_CAP_BREAKS_UNSEEN = 1 << 18, /* the holder can't tell a BREAK from another loss: the reason
                                        is PAWL_LOST_GONE instead of PAWL_LOST_BROKEN */
    PAWL_CAP_EXAMINE = 1 << 19,      /* EXAMINE */
    PAWL_CAP_BREAKER_UNNAMED = 1 << 20 /* the holder learns of a BREAK, but not of the breaker:
                                        op->by of an EVENT is NULL */
};

/* ---- Ops ------------------------------------------------------------------------------------- */

enum pawl_op_kind {
    /* Take `name` in `mode` for `owner`, leased for lease_ms from the grant.
     * queue == 0: complete at once with 0 or PAWL_EBUSY. queue == 1: complete with 0 when granted;
     * until then only cancel or a failure of the service ends the op.
     * PERMITS: take `permits` of a semaphore with capacity `count` (0: as already set). PAWL_EINVAL
     * if `permits` exceeds the capacity, PAWL_ESTATE if no capacity or another one is set.
     * LATCH: granted when the latch's count is 0; nothing is held afterwards.
     * with_seq != 0: the same owner.client already holds `name` exclusively under that number and
     * asks for a shared grant in addition (downgrade): granted at once, past the queue.
     * CAP_COUNTS: `count` says how many times this owner holds the lock already. Above 0 the owner
     * enters once more and keeps its token; PAWL_ENOTHELD if the owner does not hold the lock. A
     * shared grant beside an exclusive one has the same owner.seq.
     * PAWL_ESTATE: the name is in use as another type (lock, semaphore, latch).
     * Repeated with the same owner: a granted owner gets the same grant with the same token, and
     * its lease begins anew (else lease_from is 0, or an instant before the first copy was sent); a
     * queued owner keeps its place. */
    PAWL_OP_ACQUIRE,
    /* End the grant of `owner`. PERMITS: keep `permits` of its `count` (0: none); naming the number
     * to keep makes repetition harmless. CAP_COUNTS: likewise for the counts, which stay leased for
     * at least lease_ms.
     * linger_ms > 0 (with CAP_LINGER, or with CAP_LINGER_CLOSING while the client closes): end the
     * lease in linger_ms instead of now.
     * PAWL_ENOTHELD: this owner has no grant (or waits); nothing changed. */
    PAWL_OP_RELEASE,
    /* For each item of batch[0..batch_len): make the lease last lease_ms from now, or longer if the
     * lease already does (a late request must not shorten the lease). Each item has its own result:
     * 0, or PAWL_ENOTHELD if that owner has no grant; the engine must not create the grant again.
     * The op's own code is 0 if the items' codes are valid. An engine with CAP_SESSION_LEASE
     * confirms its session instead. */
    PAWL_OP_RENEW,
    /* End every grant of `name`, notify the holders' clients, and grant `name` to the next waiter.
     * The notice carries op->by, if the service can pass a text on.
     * PAWL_ENOTHELD: there was no grant. The core never repeats this op. */
    PAWL_OP_BREAK,
    /* Call op->row for a summary row, then for each holder and waiter in order. */
    PAWL_OP_INSPECT,
    /* Call op->row with a summary row per name in use that matches the glob `name`, as fnmatch(3)
     * matches without flags. */
    PAWL_OP_LIST,
    /* value := free permits (mode PERMITS; `count` is the caller's capacity, 0 unknown) or the
     * latch's count (mode LATCH). PAWL_ESTATE: no capacity known. */
    PAWL_OP_COUNT,
    /* Set the latch to `count`. PAWL_ESTATE if set and above 0. Again with the same owner: 0. */
    PAWL_OP_LATCH_SET,
    /* Count down by one, never below 0. Again with the same owner: counted once. */
    PAWL_OP_LATCH_DOWN,
    /* Stays submitted until the engine reports an event; the core submits the op again after each.
     * code 0: `event` says which. An engine without events keeps the op until cancel or close. */
    PAWL_OP_EVENT,
    /* CAP_EXAMINE: call op->finding for each fact and each defect of the service that matters to
     * locks (docs/doctor.md). Changes nothing in the service. */
    PAWL_OP_EXAMINE
};

enum pawl_mode { PAWL_MODE_EXCLUSIVE, PAWL_MODE_SHARED, PAWL_MODE_PERMITS, PAWL_MODE_LATCH };

enum pawl_event {
    PAWL_EVENT_NONE,
    PAWL_EVENT_VERIFY,    /* grants of this client may have ended: confirm all of them now */
    PAWL_EVENT_RECONNECT, /* a new connection: as VERIFY, and counted */
    PAWL_EVENT_FAILOVER,  /* another server took over: as VERIFY, and counted */
    PAWL_EVENT_LOST       /* the session has ended, and with it every grant of this client */
};

/* The owner of a grant. `client` is a random number per client. `seq` is new for every acquire and
 * identifies the grant. `holder` stays the same for one thread or handle (foreign layouts show
 * this number). */
typedef struct pawl_owner {
    uint64_t client;
    uint64_t holder;
    uint64_t seq;
} pawl_owner;

typedef struct pawl_renewal {
    const char *name;
    pawl_owner owner;
    int64_t lease_ms;
    uint32_t permits;
    uint8_t mode;
    uint8_t lock_kind;
    int32_t code; /* the answer */
    uint8_t reason; /* with PAWL_ENOTHELD: enum pawl_lost_reason, as far as the service can tell;
                       0: the reason of the event that the RENEW follows, else PAWL_LOST_GONE */
    void *arg;    /* the submitter's */
} pawl_renewal;

struct pawl_op {
    /* The request: set by the submitter, unchanged until op->done. */
    uint8_t kind;
    uint8_t mode;
    uint8_t queue;
    uint8_t lock_kind; /* enum pawl_kind, for layouts that store kinds differently */
    uint32_t permits;
    uint32_t tokens; /* ACQUIRE: how many tokens to reserve, at least 1 */
    uint64_t floor;  /* ACQUIRE with CAP_FLOOR: raise the name's token counter to at least
                        this number, also if the grant is a repetition (a quorum writes its
                        token back). If not 0, the engine also returns the store's age in
                        `value` */
    const char *name;
    pawl_owner owner;
    uint64_t with_seq;
    int64_t lease_ms;
    int64_t linger_ms;
    int64_t count;
    int64_t deadline; /* when the submitter will cancel, for services with their own queue */
    pawl_renewal *batch;
    size_t batch_len;
    pawl_info_fn *row;
    void *row_arg;
    void (*done)(pawl_op *op);
    void *arg; /* the submitter's */

    /* The answer: set by the engine before done. */
    int code;
    pawl_error *err;    /* receives the error text, or NULL */
    uint64_t token;     /* first of the reserved range; 0: the engine has none */
    uint32_t ntokens;   /* the number of reserved tokens: 1 to op->tokens */
    /* ACQUIRE and RENEW (in a RENEW for all items whose code is 0): */
    int64_t lease_from; /* an instant not after the grant; 0: the instant of the first submit that
                           may have made the grant */
    int64_t granted_ms; /* the lease granted, if shorter than lease_ms (a claim); 0: lease_ms. In a
                           RENEW: of each item whose lease_ms is larger */
    int64_t value; /* COUNT; ACQUIRE: the store's age in ms if known, else 0 */
    int event;
    uint8_t reason; /* EVENT: why grants may be gone (enum pawl_lost_reason), or 0. A VERIFY that
                       follows a break has PAWL_LOST_BROKEN, which becomes the reason of every
                       grant that is then found missing, unless its pawl_renewal has another */
    bool waited; /* ACQUIRE: the service has said that another owner has the name. An engine
                    calls pawl_op_waits as soon as the service says so; the field stays set if
                    the op ends without a grant. If the field is not set when a time limit
                    passes, the core reports "no answer", never "busy" */
    pawl_op *outer; /* set by a wrapper: the op that this op stands for */

    /* For the engine's own use until op->done; zeroed by the submitter. */
    void *engine[4];

    pawl_finding_fn *finding; /* EXAMINE: receives each finding, with row_arg */

    /* BREAK: the breaker as text ("pid 4711 pawl (deploy) on web1"); lives as long as the client.
     * EVENT with PAWL_LOST_BROKEN: the breaker if the notice names one, else NULL; needs to live
     * only until op->done returns, and may be any text, because others have written the text. */
    const char *by;
    uint64_t by_seq; /* EVENT: owner.seq of the broken grant; 0: any grant of this client */
};

/* Is the character at `c`, of two to four bytes, one that no text should have? Overlong forms,
 * surrogates, numbers beyond Unicode; C1; line separators and marks that change the direction of
 * the text, which can make a text look like another one (U+061C, U+200E, U+200F, U+2028 to U+202E,
 * U+2066 to U+2069). The first byte and the number of continuation bytes must have been checked. */
static inline bool pawl_text_harmful(const unsigned char *c)
{
    switch (c[0]) {
    case 0xc2:
        return c[1] < 0xa0;
    case 0xd8:
        return c[1] == 0x9c;
    case 0xe0:
        return c[1] < 0xa0;
    case 0xe2:
        return (c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae))) ||
               (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
    case 0xed:
        return c[1] >= 0xa0;
    case 0xf0:
        return c[1] < 0x90;
    case 0xf4:
        return c[1] >= 0x90;
    default:
        return false;
    }
}

/* Make a text of others safe to print: control characters (C0, DEL, C1), bytes that are not UTF-8,
 * which a terminal may take for control characters, and characters that mislead become '?'. */
static inline void pawl_text_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        int more = *c < 0x80 ? 0 : *c >= 0xc2 && *c < 0xe0 ? 1 : *c >= 0xe0 && *c < 0xf0 ? 2 :
                   *c >= 0xf0 && *c < 0xf5 ? 3 : -1;
        bool good = more >= 0 && *c >= 0x20 && *c != 0x7f;

        for (int i = 1; good && i <= more; i++)
            good = (c[i] & 0xc0) == 0x80;
        if (good && !(more && pawl_text_harmful(c)))
            c += more;
        else
            *c = '?';
    }
}

/* Fill in `err` (NULL: no effect) and return the code. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline int pawl_error_set(pawl_error *err, int code, const char *format, ...)
{
    va_list args;

    if (!err)
        return code;
    err->code = code;
    err->backend = 0;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    pawl_text_clean(err->text);
    return code;
}

/* EXAMINE: report one finding. The strings need to be valid only during the call. */
static inline void pawl_op_found(pawl_op *op, uint64_t level, const char *id, const char *where,
                                 const char *what, const char *why, const char *remedy)
{
    pawl_finding f = {.size = sizeof f, .level = level, .id = id, .where = where, .what = what,
                      .why = why, .remedy = remedy};

    op->finding(op->row_arg, &f);
}

/* EXAMINE: report a fact with a number ("clock": the server's Unix time minus ours, in ms). */
static inline void pawl_op_fact(pawl_op *op, const char *id, const char *where, const char *what,
                                int64_t value)
{
    pawl_finding f = {.size = sizeof f, .level = PAWL_FINDING_FACT, .id = id, .where = where,
                      .what = what, .why = "", .remedy = "", .value = value};

    op->finding(op->row_arg, &f);
}

/* Record that another owner has the name: the service has queued the ACQUIRE or refused a try. */
static inline void pawl_op_waits(pawl_op *op)
{
    for (; op; op = op->outer)
        op->waited = true;
}

/* Complete the op. The engine must not touch the op afterwards. */
static inline void pawl_op_finish(pawl_op *op, int code)
{
    op->code = code;
    op->done(op);
}

/* Complete the op; the error text is `text` if neither it nor the code is 0. */
static inline void pawl_op_finish_with(pawl_op *op, int code, const char *text)
{
    if (code && text)
        pawl_error_set(op->err, code, "%s", text);
    pawl_op_finish(op, code);
}

#include "events.h"

/* ---- Services for an engine ------------------------------------------------------------------ */

/* A timer, embedded in another struct. fire() is called once, at or after `due`. Zero the timer
 * before first use. A timer may be set again (also inside fire) and cleared at any time. */
typedef struct pawl_timer {
    int64_t due;
    void (*fire)(struct pawl_timer *timer);
    void *arg;
    struct pawl_timer *child, *next, *prev; /* the heap's */
    bool armed;
} pawl_timer;

/* Lets other threads reach this client: after wake_send, fn runs soon under this client's mutex.
 * Several sends may result in one call of fn. Embedded in another struct; must not be used after
 * wake_end, which is called under the client's mutex. */
typedef struct pawl_wake {
    void (*fn)(struct pawl_wake *wake);
    void *arg;
    pawl_env *env;
    struct pawl_wake *next;
    atomic_bool sent;
} pawl_wake;

/* A parsed URL: scheme ":" rest ["?" key "=" value {"&" key "=" value}]. `rest` is the text as
 * written, not decoded (a wrapper finds its inner URLs there). */
typedef struct pawl_param {
    char *key;
    char *value; /* decoded */
    bool used;
} pawl_param;

/* The keys that were asked for, whether the URL has them or not; from these the suggestion for a
 * misspelt parameter is chosen. The keys must live as long as the url; string literals do. */
#define PAWL_ASKED_MAX 64
typedef struct pawl_asked {
    const char *key[PAWL_ASKED_MAX];
    size_t n;
} pawl_asked;

typedef struct pawl_url {
    char *scheme;
    char *rest;
    pawl_param *params;
    size_t nparams;
    pawl_asked *asked; /* or NULL */
} pawl_url;

/* The parameter's value, or NULL. After open, a parameter that no engine has read is an error. */
static inline const char *pawl_url_param(const pawl_url *url, const char *key)
{
    if (url->asked && url->asked->n < PAWL_ASKED_MAX)
        url->asked->key[url->asked->n++] = key;
    for (size_t i = 0; i < url->nparams; i++)
        if (!strcmp(url->params[i].key, key)) {
            url->params[i].used = true;
            return url->params[i].value;
        }
    return NULL;
}

/* An open engine. The core has one; a wrapper has one for each inner engine. */
typedef struct pawl_instance {
    const pawl_engine *engine;
    void *state;
} pawl_instance;

struct pawl_env {
    struct uv_loop_s *loop; /* for I/O, never for timers; NULL in the simulator */
    uint64_t client_id;
    /* The client information that others may see, read once when the client opens. */
    const char *host;    /* the name of this machine; "": not known */
    const char *program; /* the short name of this program */
    const char *label;   /* "" if none */
    const char *user, *password; /* from options or environment, or NULL; the URL overrides them */
    int64_t timeout_ms;          /* for one exchange */
    int64_t watchdog_ms;         /* lease of renewed locks: how long a session should last */

    int64_t (*now)(pawl_env *);       /* boot-time clock, ns */
    int64_t (*wall_ms)(pawl_env *);   /* Unix time, ms: for display only, never for decisions */
    uint64_t (*random)(pawl_env *);   /* jitter and ids; seeded in the simulator */
    void (*timer_set)(pawl_env *, pawl_timer *, int64_t due);
    void (*timer_clear)(pawl_env *, pawl_timer *);
    void (*wake_begin)(pawl_env *, pawl_wake *);
    void (*wake_end)(pawl_env *, pawl_wake *);
    void (*wake_send)(pawl_wake *);   /* any thread */
    /* Call this after starting or changing a handle of the loop, or if a prepare handle has work to
     * do: the core then runs the loop once more before any thread waits. Not needed inside open and
     * submit. */
    void (*loop_changed)(pawl_env *);
    void (*log)(pawl_env *, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Open and close an inner engine by URL (trace, fault, quorum). Both share this env. Close the
     * instance also after a failed open; its state is freed with the client. */
    int (*instance_open)(pawl_env *, pawl_instance *ret, const char *url, pawl_error *);
    void (*instance_close)(pawl_instance *);

    /* As in src/fork.h, which a module can't see: register a descriptor that a forked child must
     * close, and a mutex of data that all clients of the process share. */
    void (*fork_guard_add)(int fd);
    void (*fork_guard_remove)(int fd);
    void (*fork_mutex_add)(pthread_mutex_t *mutex);

    int log_level; /* `log` drops messages above this level; 0: all messages */
};

/* ---- The engine ------------------------------------------------------------------------------ */

struct pawl_engine {
    uint32_t abi;        /* PAWL_ENGINE_ABI; the core refuses others */
    uint32_t caps;       /* enum pawl_caps; for a wrapper see `caps_of` */
    const char *scheme;  /* "redis" */
    size_t state_size;   /* the core allocates and zeroes this many bytes for each instance */

    /* Parse the URL and set up. Returns 0 or a code with a text in err. Connecting may continue in
     * the background; ops submitted meanwhile wait for the connection. `self` may keep env and must
     * not keep url. On failure the core still calls close. */
    int (*open)(void *self, pawl_env *env, const pawl_url *url, pawl_error *err);

    /* Free everything: descriptors, timers, wakes, loop handles (by uv_close; the core runs the
     * loop until the handles are closed, and then frees `self`). All ops except EVENT were
     * completed before; close completes EVENT with PAWL_ECANCELED. Must accept the state after a
     * failed open, and a zeroed state. Grants stay in the service: the core has already released
     * the grants that must end. */
    void (*close)(void *self);

    /* Begin an op. The op belongs to the engine until op->done; op->engine is free for the
     * engine's use. Never blocks. */
    void (*submit)(void *self, pawl_op *op);

    /* Give up a submitted op. The engine still completes the op exactly once, now or soon (within
     * about 100 ms, or a caller's time limit is exceeded):
     * PAWL_ECANCELED: certainly not carried out, and an ACQUIRE is removed from the queue.
     * 0 or a refusal: the answer came first. The core gives back a grant that nobody wants.
     * PAWL_ECONN: certainly not sent, and the text says why there is no connection.
     * PAWL_EUNKNOWN: sent, and the engine can't tell. For an ACQUIRE the core then sends a RELEASE
     * for the owner, which must also find a grant that is made after the cancel: the engine sends
     * both on one connection in order, or removes the owner from the queue itself.
     * The engine ignores an answer that arrives after the op was completed. */
    void (*cancel)(void *self, pawl_op *op);

    /* The capabilities of this instance if they depend on the inner engine. NULL: `caps`. */
    uint32_t (*caps_of)(void *self);

    /* Write the data that submit and cancel have left in buffers; called before any thread waits.
     * NULL: the core runs the loop instead, if an op was not completed inside submit. */
    void (*flush)(void *self);

    /* A text that identifies the service: the same for all spellings of its URL, and different for
     * services that do not share their names: "local 2049:131" (device and inode of the folder),
     * "redis localhost:6379 0 pawl:". Returns the length as snprintf does; called after open. The
     * text orders multi-locks and detects a name that is a member twice, so clients in all
     * processes must compute the same text. NULL: the core uses the URL's text. */
    int (*identity)(void *self, char *ret, size_t size);

    /* Is background work pending that close would cut off (giving back an unwanted grant, repeating
     * a release)? While the client closes, the core lets such work continue for at most one
     * time-out, and asks again after every run of the loop. NULL: never. A wrapper asks its inner
     * engines. */
    bool (*unfinished)(void *self);

    /* The client libraries of the engine with their versions, "libpq 15.3", for pawl_engines.
     * Called under the mutex of the loader. NULL: none. */
    const char *(*libraries)(void);
};

static inline bool pawl_instance_unfinished(const pawl_instance *i)
{
    return i->engine && i->engine->unfinished && i->engine->unfinished(i->state);
}

static inline uint32_t pawl_instance_caps(const pawl_instance *i)
{
    return i->engine->caps_of ? i->engine->caps_of(i->state) : i->engine->caps;
}

/* Like the function `identity`, for wrappers. Returns a value below 0 if the engine has none. */
static inline int pawl_instance_identity(const pawl_instance *i, char *ret, size_t size)
{
    return i->engine && i->engine->identity ? i->engine->identity(i->state, ret, size) : -1;
}

/* A module "pawl-SCHEME.so" exports this; libpawl loads it by the URL's scheme. */
#define PAWL_ENGINE_SYMBOL "pawl_engine_module"
typedef const pawl_engine *pawl_engine_module_fn(void);

#endif
