/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h - the engine door: ops in, completions out.
 *
 * An engine stores locks in some service. It is a const struct of four functions and some facts.
 * The core hands it ops; the engine completes each op exactly once by calling op->done. It knows
 * nothing of threads, re-entrancy, renewal timers, retries, deadlines or callbacks: that is the
 * core's. The core knows nothing of wire formats: that is the engine's.
 *
 * THREADS. Everything here (the four slots, timers, wakes, loop callbacks, op->done) happens under
 * the client's mutex, one call at a time, on whatever thread happens to drive. The one exception
 * is pawl_env.wake_send, which any thread may call.
 *
 * RE-ENTRANCE. An engine may complete an op inside submit or cancel, or later from a loop, timer
 * or wake callback. op->done never calls back into the engine (the core defers what follows), and
 * after op->done the op's memory is no longer the engine's.
 *
 * OUTCOMES. 0: done. PAWL_EBUSY, PAWL_ENOTHELD, PAWL_ESTATE ...: refused, nothing changed.
 * PAWL_ECONN: surely not sent. PAWL_EUNKNOWN: sent, no answer: it may have happened. An engine
 * never turns "unknown" into anything else, and silence never looks like a refusal (op->waited).
 * The core then submits the same op again (same owner, same sequence number), so the engine must
 * make repetition harmless, as each kind states.
 *
 * TIME. Nanoseconds of CLOCK_BOOTTIME from env->now, or virtual time in the simulator. Engines set
 * timers only through env; loop timers and sleeping are forbidden.
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

#include "pawl.h"

struct uv_loop_s;

#define PAWL_ENGINE_ABI 2u
#define PAWL_NEVER INT64_MAX
#define PAWL_NAME_MAX 255
#define PAWL_NS_PER_MS 1000000

typedef struct pawl_op pawl_op;
typedef struct pawl_env pawl_env;
typedef struct pawl_engine pawl_engine;

/* What an engine can do, so that the core asks instead of probing. */
enum pawl_caps {
    PAWL_CAP_FENCE = 1 << 0,         /* grants carry tokens that rise per name */
    PAWL_CAP_QUEUE = 1 << 1,         /* op->queue works: first come, first served in the service,
                                        unless CAP_FAIR_ONLY */
    PAWL_CAP_RANGE = 1 << 2,         /* op->tokens > 1 works: a grant reserves a range of tokens */
    PAWL_CAP_SHARED = 1 << 3,        /* PAWL_MODE_SHARED */
    PAWL_CAP_PERMITS = 1 << 4,       /* PAWL_MODE_PERMITS */
    PAWL_CAP_LATCH = 1 << 5,         /* PAWL_MODE_LATCH and the latch ops */
    PAWL_CAP_SESSION_LEASE = 1 << 6, /* one lease for all grants of the client; RENEW confirms it */
    PAWL_CAP_LINGER = 1 << 7,        /* op->linger_ms works: a released lock can stay taken a while,
                                        even if the process ends; else the core holds on itself */
    PAWL_CAP_LIST = 1 << 8,          /* LIST */
    PAWL_CAP_COUNTS = 1 << 9,        /* the service counts re-entries, too (a foreign layout): see
                                        ACQUIRE and RELEASE */
    PAWL_CAP_FLOOR = 1 << 10,        /* op->floor works */
    PAWL_CAP_LASTING = 1 << 11,      /* permits have no lease: they last until they are released */
    PAWL_CAP_LINGER_CLOSING = 1 << 12, /* as CAP_LINGER, but no waiter is notified when the lock
                                          ends: used only when the client closes */
    PAWL_CAP_OUTLASTS = 1 << 13,     /* a lock may outlast its lease while its client is there: a
                                        RELEASE follows when the lease is over */
    PAWL_CAP_FAIR_ONLY = 1 << 14     /* only fair locks have an order (a foreign layout); of others
                                        INSPECT shows neither waiters nor since when they are held,
                                        and semaphores and latches are bare numbers */
};

/* ---- Ops ------------------------------------------------------------------------------------- */

enum pawl_op_kind {
    /* Take `name` in `mode` for `owner`, leased for lease_ms from the grant.
     * queue == 0: complete at once with 0 or PAWL_EBUSY. queue == 1: complete with 0 when granted;
     * until then the op is out, and only cancel or a failure of the service ends it.
     * PERMITS: `permits` of a semaphore with capacity `count` (0: as already set). PAWL_EINVAL if
     * more than the capacity, PAWL_ESTATE if it is not known or another one is in force.
     * LATCH: granted when the latch's count is 0; nothing is held afterwards.
     * with_seq != 0: the same owner.client already holds `name` exclusively under that number and
     * now wants it shared too (downgrade): granted at once, past the queue.
     * CAP_COUNTS: `count` says how often this owner holds it already; above 0 it enters once more,
     * or PAWL_ENOTHELD if it does not hold it; its token stays the same. A shared grant beside an
     * exclusive one then has the same owner.seq.
     * PAWL_ESTATE: the name is in use as another type (lock, semaphore, latch).
     * Again with the same owner: if granted, the same grant; if queued, it stays in place. */
    PAWL_OP_ACQUIRE,
    /* End the grant of `owner`. PERMITS: keep `permits` of its `count` (0: none), so that repeating
     * it does no harm. CAP_COUNTS: likewise of the counts, which stay leased for lease_ms at least.
     * linger_ms > 0 (with CAP_LINGER, or CAP_LINGER_CLOSING and the client closes): let the lease
     * end in so many ms instead of now.
     * PAWL_ENOTHELD: this owner has no grant (or waits); nothing changed. */
    PAWL_OP_RELEASE,
    /* batch[0..batch_len): make each lease last its lease_ms from now, or longer if it does already
     * (a request that was overtaken must not shorten it), each with its own result: 0, or
     * PAWL_ENOTHELD if that owner has no grant: it must not be created again. The op's own code is
     * 0 if the items' codes are valid. A session engine confirms its session instead. */
    PAWL_OP_RENEW,
    /* End every grant of `name`, tell the holders' clients, and pass it on. PAWL_ENOTHELD: none. */
    PAWL_OP_BREAK,
    /* Call op->row for a summary row, then for each holder and waiter in order. */
    PAWL_OP_INSPECT,
    /* Call op->row with a summary row per name in use that matches the glob `name`. */
    PAWL_OP_LIST,
    /* value := free permits (mode PERMITS; `count` is the caller's capacity, 0 unknown) or the
     * latch's count (mode LATCH). PAWL_ESTATE: no capacity known. */
    PAWL_OP_COUNT,
    /* Set the latch to `count`. PAWL_ESTATE if set and above 0. Again with the same owner: 0. */
    PAWL_OP_LATCH_SET,
    /* Count down by one, never below 0. Again with the same owner: counted once. */
    PAWL_OP_LATCH_DOWN,
    /* Stays out until the engine has an event to tell; the core submits it again after each.
     * code 0: `event` says which. An engine without events simply keeps it until cancel. */
    PAWL_OP_EVENT
};

enum pawl_mode { PAWL_MODE_EXCLUSIVE, PAWL_MODE_SHARED, PAWL_MODE_PERMITS, PAWL_MODE_LATCH };

enum pawl_event {
    PAWL_EVENT_NONE,
    PAWL_EVENT_VERIFY,    /* something happened to grants of this client: confirm all of them now */
    PAWL_EVENT_RECONNECT, /* a new connection: the same, and count it */
    PAWL_EVENT_FAILOVER,  /* another server serves them now: the same, and count that */
    PAWL_EVENT_LOST       /* the session is gone with every grant of this client */
};

/* Who asks. `client` is random per client; `seq` is new for every acquire and is what a grant
 * belongs to; `holder` stays the same for one thread or handle (foreign layouts show it). */
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
                       0: the one of the event that it follows, else PAWL_LOST_GONE */
    void *arg;    /* the submitter's */
} pawl_renewal;

struct pawl_op {
    /* The request: set by the submitter, unchanged while the op is out. */
    uint8_t kind;
    uint8_t mode;
    uint8_t queue;
    uint8_t lock_kind; /* enum pawl_kind, for layouts that store kinds differently */
    uint32_t permits;
    uint32_t tokens; /* ACQUIRE: how many tokens to reserve, at least 1 */
    uint64_t floor;  /* ACQUIRE with CAP_FLOOR: raise the name's counter to this at least, also when
                        the grant is a repetition (a quorum writes its token back). Not 0 also
                        means: the store's age is wanted, see `value` */
    const char *name;
    pawl_owner owner;
    uint64_t with_seq;
    int64_t lease_ms;
    int64_t linger_ms;
    int64_t count;
    int64_t deadline; /* when the submitter will cancel, for services that keep their own queue */
    pawl_renewal *batch;
    size_t batch_len;
    pawl_info_fn *row;
    void *row_arg;
    void (*done)(pawl_op *op);
    void *arg; /* the submitter's */

    /* The answer: set by the engine before done. */
    int code;
    pawl_error *err;    /* where to put words, or NULL */
    uint64_t token;     /* first of the reserved range; 0: the engine has none */
    uint32_t ntokens;   /* how many were reserved */
    /* ACQUIRE and RENEW (there: of all items whose code is 0): */
    int64_t lease_from; /* an instant not after the grant; 0: that of the first submit is used */
    int64_t granted_ms; /* the lease given, if shorter than asked (a claim); 0: as asked */
    int64_t value; /* COUNT; ACQUIRE: the store's age in ms, where it can tell, else 0 */
    int event;
    uint8_t reason; /* EVENT: why grants may be gone (enum pawl_lost_reason), or 0. VERIFY that
                       follows a break says PAWL_LOST_BROKEN: it is the reason of every grant that
                       is then found missing, unless its pawl_renewal has one of its own */
    bool waited; /* ACQUIRE: the service has said that somebody else has it. Set by pawl_op_waits
                    as soon as the service has said so, and kept if the op ends without a grant:
                    without this word a time limit that passes is "no answer", never "busy" */
    pawl_op *outer; /* a wrapper's: the op that this one stands for */

    /* The engine's own while the op is out; zeroed by the submitter. */
    void *engine[4];
};

/* Make a service's text fit to be shown to people: control characters (C0, DEL, C1), and bytes that
 * are not UTF-8, which a terminal may take for control characters, become '?'. */
static inline void pawl_text_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        int more = *c < 0x80 ? 0 : *c >= 0xc2 && *c < 0xe0 ? 1 : *c >= 0xe0 && *c < 0xf0 ? 2 :
                   *c >= 0xf0 && *c < 0xf5 ? 3 : -1;
        bool good = more >= 0 && *c >= 0x20 && *c != 0x7f && !(*c == 0xc2 && c[1] < 0xa0);

        for (int i = 1; good && i <= more; i++)
            good = (c[i] & 0xc0) == 0x80;
        if (good)
            c += more;
        else
            *c = '?';
    }
}

/* Fill `err` (which may be NULL: nothing happens) and return the code. */
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

/* The service has queued the ACQUIRE, or has refused a try of it: somebody else has the name. */
static inline void pawl_op_waits(pawl_op *op)
{
    for (; op; op = op->outer)
        op->waited = true;
}

static inline void pawl_op_finish(pawl_op *op, int code)
{
    op->code = code;
    op->done(op);
}

/* ---- What an engine gets --------------------------------------------------------------------- */

/* A timer, embedded in whatever needs it. fire() is called once, at or after `due`. Zero it before
 * first use; free to set again (also inside fire) and to clear at any time. */
typedef struct pawl_timer {
    int64_t due;
    void (*fire)(struct pawl_timer *timer);
    void *arg;
    struct pawl_timer *child, *next, *prev; /* the heap's */
    bool armed;
} pawl_timer;

/* A way for other threads to reach this client: after wake_send, fn runs soon under this client's
 * mutex. Sends coalesce. Embedded; gone after wake_end (on the client's own side). */
typedef struct pawl_wake {
    void (*fn)(struct pawl_wake *wake);
    void *arg;
    pawl_env *env;
    struct pawl_wake *next;
    atomic_bool sent;
} pawl_wake;

/* A parsed URL: scheme ":" rest ["?" key "=" value {"&" key "=" value}]. `rest` is as written (an
 * engine of engines finds its inner URLs there); decoded on demand by url_text. */
typedef struct pawl_param {
    char *key;
    char *value; /* decoded */
    bool used;
} pawl_param;

typedef struct pawl_url {
    char *scheme;
    char *rest;
    pawl_param *params;
    size_t nparams;
} pawl_url;

/* The parameter's value, or NULL. One that nobody asked for is an error after open. */
static inline const char *pawl_url_param(const pawl_url *url, const char *key)
{
    for (size_t i = 0; i < url->nparams; i++)
        if (!strcmp(url->params[i].key, key)) {
            url->params[i].used = true;
            return url->params[i].value;
        }
    return NULL;
}

/* An opened engine: what the core has, and what an engine around engines has for each inner one. */
typedef struct pawl_instance {
    const pawl_engine *engine;
    void *state;
} pawl_instance;

struct pawl_env {
    struct uv_loop_s *loop; /* for I/O, never for timers; NULL in the simulator */
    uint64_t client_id;
    const char *label;
    const char *user, *password; /* from options or environment, or NULL; the URL's come first */
    int64_t timeout_ms;          /* for one exchange */
    int64_t watchdog_ms;         /* lease of renewed locks: how long a session should last */

    int64_t (*now)(pawl_env *);       /* boot-time clock, ns */
    int64_t (*wall_ms)(pawl_env *);   /* Unix time, ms: to show, never to decide */
    uint64_t (*random)(pawl_env *);   /* jitter and ids; seeded in the simulator */
    void (*timer_set)(pawl_env *, pawl_timer *, int64_t due);
    void (*timer_clear)(pawl_env *, pawl_timer *);
    void (*wake_begin)(pawl_env *, pawl_wake *);
    void (*wake_end)(pawl_env *, pawl_wake *);
    void (*wake_send)(pawl_wake *);   /* any thread */
    /* A handle of the loop was started or changed, or there is something for a prepare handle to
     * do: the loop is turned once more before anybody waits. Not needed inside open and submit. */
    void (*loop_changed)(pawl_env *);
    void (*log)(pawl_env *, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Open and close an inner engine by URL (trace, fault, quorum). It shares this env. Close it
     * also after a failed open; its state is freed with the client. */
    int (*instance_open)(pawl_env *, pawl_instance *ret, const char *url, pawl_error *);
    void (*instance_close)(pawl_instance *);

    /* Forks, as in src/fork.h, which a module can't see: a descriptor that a forked child must not
     * keep open, and a mutex of something that all clients of the process share. */
    void (*fork_guard_add)(int fd);
    void (*fork_guard_remove)(int fd);
    void (*fork_mutex_add)(pthread_mutex_t *mutex);
};

/* ---- The engine ------------------------------------------------------------------------------ */

struct pawl_engine {
    uint32_t abi;        /* PAWL_ENGINE_ABI; the core refuses others */
    uint32_t caps;       /* enum pawl_caps; a wrapper's are its inner engine's: see `caps_of` */
    const char *scheme;  /* "redis" */
    size_t state_size;   /* the core allocates and zeroes so much for each instance */

    /* Parse the URL, set up, and return: 0 or a code with words in err. Reaching the service may
     * go on in the background; ops submitted meanwhile wait for it. `self` may keep env and must
     * not keep url. On failure the core still calls close. */
    int (*open)(void *self, pawl_env *env, const pawl_url *url, pawl_error *err);

    /* Let go of everything: descriptors, timers, wakes, loop handles (closed by uv_close; the core
     * runs the loop until they are gone, and frees `self` after that). The core has seen every op
     * completed, except EVENT, which is completed here with PAWL_ECANCELED. Accepts what a failed
     * open left, and zeroes. Grants are not touched: the core released what it wanted released. */
    void (*close)(void *self);

    /* Begin an op; it is the engine's until op->done. Never blocks. */
    void (*submit)(void *self, pawl_op *op);

    /* Give up an op that is out. The engine still completes it exactly once, now or soon:
     * PAWL_ECANCELED: not granted and out of the queue; 0: the grant was faster, the core gives it
     * back; PAWL_EUNKNOWN: can't tell, the core will send a RELEASE for its owner. Any other code
     * if it failed anyway. */
    void (*cancel)(void *self, pawl_op *op);

    /* What this instance can do, where it depends on the inner engine; NULL: `caps`. */
    uint32_t (*caps_of)(void *self);

    /* Write what submit and cancel have left in buffers; called before anybody waits. NULL: the
     * loop is turned instead, if an op stayed out. */
    void (*flush)(void *self);

    /* Which service this is, in words that are the same for all spellings of its URL, and differ
     * for services that do not share their names: "local 2049:131" (device and inode of the
     * folder), "redis localhost:6379 0 pawl:". Returns the length as snprintf does; called after
     * open. It orders multi-locks and finds a name that is a member twice, so clients in all
     * processes must come to the same words. NULL: the URL's text stands for it. */
    int (*identity)(void *self, char *ret, size_t size);

    /* Is something under way that nobody waits for, but that close would leave behind at the
     * service (a grant that was given up, a release that is being repeated)? The core lets it go on
     * while the client closes, for one time-out at most, and asks again after every turn of the
     * loop. NULL: never. A wrapper asks its inner engines. */
    bool (*unfinished)(void *self);
};

static inline bool pawl_instance_unfinished(const pawl_instance *i)
{
    return i->engine && i->engine->unfinished && i->engine->unfinished(i->state);
}

static inline uint32_t pawl_instance_caps(const pawl_instance *i)
{
    return i->engine->caps_of ? i->engine->caps_of(i->state) : i->engine->caps;
}

/* As the slot; below 0: the engine has none. For an engine around another one. */
static inline int pawl_instance_identity(const pawl_instance *i, char *ret, size_t size)
{
    return i->engine && i->engine->identity ? i->engine->identity(i->state, ret, size) : -1;
}

/* A module "pawl-SCHEME.so" exports this; libpawl loads it by the URL's scheme. */
#define PAWL_ENGINE_SYMBOL "pawl_engine_module"
typedef const pawl_engine *pawl_engine_module_fn(void);

/* The engines inside libpawl. */
extern const pawl_engine pawl_engine_memory, pawl_engine_local, pawl_engine_redis,
    pawl_engine_rediss, pawl_engine_redis_unix, pawl_engine_redis_sentinel,
    pawl_engine_redis_cluster, pawl_engine_trace, pawl_engine_fault,
    pawl_engine_quorum;

#endif
