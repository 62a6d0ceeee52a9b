/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd.h - the etcd engine, inside.
 *
 *     etcd.c      the functions of the engine, events, close
 *     settings.c  the parameters of the URL
 *     link.c      the one connection: HTTP/2 by nghttp2, on top of ../kit/link.c
 *     calls.c     gRPC calls on the link
 *     memory.c    memory that is wiped when freed
 *     login.c     the first calls on the link: user and password for a token, the version
 *     proto.c, messages.c   protobuf, and etcd's messages in protobuf
 *     keys.c      names to keys, and client information in the value of a key
 *     leases.c    leases: granted, kept alive, fenced, revoked
 *     watches.c   the watch stream
 *     waiters.c   acquire: an owner's key, from its creation until the key is certainly gone
 *     order.c     the order of waiters: which waiter asks first, and which keys are watched
 *     requests.c  the requests of a waiter, and the meaning of the answers
 *     leave.c     release, cancel, and keys that are rewritten
 *     move.c      keys that move to another lease: a longer one, or one that ends by itself
 *     renew.c     renewals, answered from the leases
 *     jobs.c      ops that are a few calls one after the other
 *     latch.c     latches
 *     inspect.c   inspect, count, list, break
 *     examine.c   findings about the servers; rights.c: about the user's rights
 *
 * One connection carries everything. Nothing here blocks, and everything runs under the client's
 * mutex. The server carries out the requests of one connection in any order, because HTTP/2 streams
 * are independent. Code that depends on an order therefore waits for the answer in between: a
 * waiter has one call out at a time.
 *
 * FENCED REQUESTS. A connection may end with requests on it that the server carries out later, when
 * their owner has long given up. A key that such a request creates would be kept alive for no
 * owner. So every request that creates something compares the revision of its lease's *fence*, a
 * key that is written anew, under the same lease, with each new connection. Once the fence is
 * written, no request of an earlier connection can succeed any more, and the server's answer about
 * a key is final.
 */
#ifndef PAWL_ETCD_H
#define PAWL_ETCD_H

#include <nghttp2/nghttp2.h>
#include <uv.h>

#include "engine.h"
#include "kit/link.h"
#include "kit/waiter.h"
#include "messages.h"

#define ETCD_PREFIX_MAX 255
#define ETCD_KEY_MAX (ETCD_PREFIX_MAX + 3 * PAWL_NAME_MAX + 64)
#define ETCD_WORDS NET_WORDS
#define ETCD_NO_LEASE (-1000) /* a failed call: the lease is gone; nothing was done */

typedef struct etcd etcd;
typedef struct etcd_call etcd_call;
typedef struct etcd_lease etcd_lease;
typedef struct etcd_waiter etcd_waiter;
typedef struct etcd_job etcd_job;

/* ---- settings.c ------------------------------------------------------------------------------ */

typedef struct etcd_settings {
    net_addresses endpoints;
    net_login login;
    char *prefix;
    bool tls;
    net_tls_settings tls_settings; /* host and protocol are in the link */
    int64_t session_ms;    /* length of every lease; 0: each lock's own lease time */
} etcd_settings;

int etcd_settings_read(etcd_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err);
/* Wipes the secrets. Accepts zeroes. */
void etcd_settings_free(etcd_settings *s);

/* ---- keys.c ---------------------------------------------------------------------------------- */

static inline pb_span etcd_span(const char *text)
{
    return (pb_span){(const uint8_t *)text, strlen(text)};
}

static inline bool etcd_same(pb_span a, pb_span b)
{
    return a.length == b.length && !memcmp(a.data, b.data, a.length);
}

/* The sections below <prefix><name>/ , in the order of the keys. */
enum etcd_section {
    ETCD_ALL,       /* all keys of the name */
    ETCD_LOCKS,     /* exclusive: our keys, keys of Go programs, and any other key there */
    ETCD_LATCH,
    ETCD_PERMITS,
    ETCD_READS,
    ETCD_WAITS,     /* waiters of a latch: stored under <prefix>/wait/, not below the name */
    ETCD_NO_LOCKS,  /* latch and permits: the name is not a lock */
    ETCD_LOW        /* everything that sorts before the permits */
};

typedef struct etcd_bounds {
    char key[ETCD_KEY_MAX], end[ETCD_KEY_MAX];
    etcd_range range;
} etcd_bounds;

/* The bounds of a section of a name. If name is NULL: of all names and sections. */
const etcd_range *etcd_bounds_of(etcd_bounds *b, const etcd *e, const char *name,
                                 enum etcd_section section);
/* The key of an owner. */
void etcd_key(char key[ETCD_KEY_MAX], const etcd *e, const char *name, enum etcd_section section,
              int64_t lease, uint64_t seq);
/* <prefix>/WORD/<lease>[-<seq>]: a key that is not a lock's. seq 0: without -<seq>. */
void etcd_helper(char key[ETCD_KEY_MAX], const etcd *e, const char *word, int64_t lease,
                 uint64_t seq);
/* Find the decoded name that a key belongs to, and the rest of the key. Returns false if the key
 * belongs to no name. */
bool etcd_key_name(const etcd *e, pb_span key, char name[PAWL_NAME_MAX + 1], pb_span *tail);

#define ETCD_VALUE_MAX 1536
#define ETCD_TEXT_MAX 128

/* The value of a key: client information, and the request. A key of another program has pid 0 and
 * no texts. Anybody can write anything into a key: numbers are limited when they are read, so that
 * the sum over all keys of an answer can't overflow. */
typedef struct etcd_value {
    int64_t since;        /* Unix time, ms; 0 unknown */
    int64_t pid;
    int64_t permits, capacity;
    int64_t readers;      /* an exclusive key: number of downgraded readers that use the key */
    uint64_t token;       /* 0: the key's modification revision */
    bool shared;          /* an exclusive key whose owner by now only reads */
    bool ours;
    char host[ETCD_TEXT_MAX], program[ETCD_TEXT_MAX], label[ETCD_TEXT_MAX];
} etcd_value;

void etcd_value_read(pb_span text, etcd_value *ret);
size_t etcd_value_write(char text[ETCD_VALUE_MAX], const etcd_value *v);

/* ---- link.c ---------------------------------------------------------------------------------- */

typedef struct etcd_call_type {
    const char *path; /* "/etcdserverpb.KV/Txn" */
    bool streams;     /* many messages both ways; otherwise one each */
    bool optional;    /* a server that does not know the call can be used */
    /* A message came. False: malformed. */
    bool (*answer)(etcd_call *call, pb_span message);
    /* No answer will come. PAWL_EUNKNOWN: the request may have been carried out; any other code: it
     * was not. The end of a stream is reported here, too, and drops the link. */
    void (*failed)(etcd_call *call, int code, const char *words);
} etcd_call_type;

struct etcd_call {
    struct list link; /* in the link's calls */
    const etcd_call_type *type;
    etcd *e;
    void *about;      /* the caller's; NULL: the answer is ignored */
    int64_t tag;      /* the caller's */
    int64_t fence;    /* the revision of the fence in the request's condition */
    int64_t sent;     /* an instant before the call was written */
    pb_buf body;
    size_t written, sealed; /* bytes of body sent; where the next message begins */
    int32_t stream;
    bool deferred;    /* nothing to write now */
    int http, status; /* the server's status codes; -1: none yet */
    bool answered;
    grpc_reader in;
    char words[ETCD_WORDS];
};

typedef struct etcd_link {
    KIT_WIRE;            /* link->calls: all calls except streams */
    etcd *e;
    void *tls_context;
    nghttp2_session *h2;
    struct list streams; /* calls that are streams */
    size_t endpoint;     /* index of the endpoint in use */
    int64_t heard;       /* when the server last sent anything */
    int64_t pinged;      /* when a ping was sent; 0: no ping is outstanding */
    char *token;         /* the user's token for this connection */
    bool in_h2;          /* inside nghttp2: the session can't be freed now */
    bool parting;        /* the server sent GOAWAY: start no new calls */
    int doomed;          /* error code found inside nghttp2; the link is dropped after */
} etcd_link;

int etcd_link_open(etcd_link *link, etcd *e, pawl_error *err);
void etcd_link_close(etcd_link *link);
void etcd_link_flush(etcd_link *link);
#define etcd_link_drop(link, ...) kit_link_drop(&(link)->kit, __VA_ARGS__)
/* The greeting has finished. */
void etcd_link_greeted(etcd_link *link);
static inline bool etcd_link_ready(const etcd_link *link)
{
    return link->state == LINK_READY && !link->parting && !link->doomed;
}

/* Put the server's address in front of an error text. */
void etcd_add_where(const etcd_link *link, char words[ETCD_WORDS]);
/* A call to be filled (call->body, behind the prefix) and sent; NULL: out of memory. */
etcd_call *etcd_call_new(etcd *e, const etcd_call_type *type, void *about);
/* Send a call. The link must be ready (or greeting). `failed` is called later, never inside. False:
 * out of memory; the call is freed. */
bool etcd_call_send(etcd_call *call);
/* Another message on a stream: begin, fill, send. False: out of memory. */
pb_buf *etcd_call_begin(etcd_call *call);
bool etcd_call_more(etcd_call *call);

/* ---- memory.c ------------------------------------------------------------------------------- */

nghttp2_mem etcd_wiped_memory(void);

/* ---- login.c --------------------------------------------------------------------------------- */

void etcd_login(etcd_link *link);

/* ---- leases.c -------------------------------------------------------------------------------- */

enum etcd_lease_state {
    LEASE_WANTED,   /* the server does not know the lease */
    LEASE_GRANTING,
    LEASE_STALE,    /* from an earlier connection: must be confirmed and fenced */
    LEASE_CHECKING, /* the confirmation is outstanding */
    LEASE_FENCING,  /* the fence is being written */
    LEASE_READY
};

struct etcd_lease {
    struct list link;   /* in e->leases */
    etcd *e;
    enum etcd_lease_state state;
    int64_t id;
    int64_t asked;      /* s, the length requested */
    int64_t ttl;        /* ns, the length granted */
    int64_t from;       /* an instant before the last confirmed renewal was sent */
    int64_t sent;       /* when the outstanding renewal was sent; 0: none */
    int64_t used;       /* when the lease last had a waiter */
    int64_t fence;      /* the revision of the lease's fence; 0: never written */
    pawl_timer timer;
    struct list waiters;
    unsigned confirmed; /* number of confirmed renewals */
    bool ends;          /* never kept alive: a released lock lingers under this lease (move.c) */
};

/* The lease for locks that ask for lease_ms; NULL: out of memory. */
etcd_lease *etcd_lease_for(etcd *e, int64_t lease_ms);
/* A separate lease that is not kept alive and ends after `ms` or a little later; NULL: out of
 * memory. */
etcd_lease *etcd_lease_that_ends(etcd *e, int64_t ms);
void etcd_lease_free(etcd_lease *lease);
/* Would a lease for lease_ms be longer than this lease? */
bool etcd_lease_is_shorter(const etcd_lease *lease, int64_t lease_ms);
/* How long the lease is surely valid from the instant `from` on, in ms, at least 1. */
int64_t etcd_lease_left(const etcd_lease *lease, int64_t from);
/* Is most of the lease's time still to come? */
bool etcd_lease_fresh(const etcd_lease *lease);
/* Confirm the lease now, if possible. */
void etcd_lease_poke(etcd_lease *lease);
/* The server does not know the lease any more. */
void etcd_lease_gone(etcd_lease *lease);
/* A request failed because the fence is no longer at revision `fence`, which the request named. The
 * caller then steps its waiter or job, which sends again as soon as the lease is ready. */
void etcd_lease_unfenced(etcd_lease *lease, int64_t fence);
/* Add the condition on the lease's fence to a transaction. */
void etcd_if_fenced(etcd_call *call, const etcd_lease *lease);
void etcd_leases_connected(etcd *e);
void etcd_leases_dropped(etcd *e);
/* Send revocations of all leases on which no lock lingers. Returns how many. */
size_t etcd_leases_revoke(etcd *e);
void etcd_leases_free(etcd *e);

#define ETCD_WATCH_BUCKETS 256

/* ---- watches.c ------------------------------------------------------------------------------- */

typedef struct etcd_watch {
    struct list link; /* in a bucket of e->watches */
    etcd *e;
    uint64_t id;      /* 0: the watch is not in use */
    const char *key, *end; /* the caller's memory; end "": one key */
    int64_t next;     /* the first revision not seen; 0: from now on */
    bool deletes_only;
    bool from_now;    /* the caller checks earlier changes itself */
    void *arg;
    /* The caller must check the state up to `revision` itself. */
    void (*started)(struct etcd_watch *w, int64_t revision);
    void (*event)(struct etcd_watch *w, const etcd_event *event);
    void (*missed)(struct etcd_watch *w); /* the watch has ended; events may be lost */
} etcd_watch;

/* Watch a key (end "") or a range from a revision on, or from now on (0, with from_now). The caller
 * keeps the memory of key and end. */
void etcd_watch_start(etcd_watch *w, etcd *e, const char *key, const char *end, int64_t from);
void etcd_watch_stop(etcd_watch *w);
void etcd_watches_connected(etcd *e);
void etcd_watches_dropped(etcd *e);

/* ---- waiters.c, order.c, requests.c, leave.c ------------------------------------------------ */

/* waiters.c has the table of these states. */
enum etcd_waiter_state {
    WAITER_ASKS,    /* the acquire is out or to be sent */
    WAITER_QUEUED,  /* the key exists, and another key is ahead */
    WAITER_HOLDS,
    WAITER_SHELL,   /* released, but a downgraded reader still uses the key */
    WAITER_LINGERS, /* released, but the key stays until waiter->linger */
    WAITER_LEAVES,  /* the key is to be deleted */
    WAITER_GONE     /* was held, but the key is gone */
};

/* QUEUED: the read that is due; a later one includes the earlier ones. */
enum etcd_recheck {
    RECHECK_NONE,
    RECHECK_AHEAD, /* is the key ahead unchanged? The cheapest read */
    RECHECK_QUEUE, /* which key is ahead? */
    RECHECK_TAKE   /* as RECHECK_QUEUE, after a change of the queue: take the lock if it is free */
};

/* What the client knows about the waiter's key. */
enum etcd_key_state {
    KEY_KNOWN,   /* waiter->created: the key exists; 0: the key does not exist */
    KEY_MAYBE,   /* a request got no answer: the key may exist, or be created late */
    KEY_MOVED    /* the lease ended during a move: the key may be gone; the next rewrite shows */
};

struct etcd_waiter {
    struct list link;      /* in e->waiters, in order of arrival */
    struct list in_lease;
    struct list fresh;     /* in e->unwatched_holders or e->unwatched_waiters */
    struct list asking;    /* in e->asking: the states ASKS or LEAVES */
    kit_seq by_seq;
    etcd *e;
    etcd_lease *lease;     /* NULL: GONE */
    etcd_lease *target;    /* the lease that the key is to be moved to; NULL: none */
    etcd_lease *moving;    /* the lease that the key may have been moved to; NULL: none */
    enum etcd_waiter_state state;
    enum etcd_key_state key_is;
    enum etcd_recheck recheck;
    pawl_op *acquires;     /* chained by engine[1] */
    pawl_op *releases;
    etcd_call *call;       /* the outstanding call */
    etcd_watch ahead;      /* the key or range that the waiter waits for */
    etcd_watch own;        /* the waiter's own key */
    char *ahead_key;       /* watched key and end of the range, one after the other */
    char *key;
    etcd_waiter *base;     /* of a downgraded reader: the exclusive grant that owns the key */
    uint32_t downgraded;
    pawl_timer timer;      /* leaving: finish the acquires when it fires. Otherwise: retry */
    uint64_t token;
    int64_t created;       /* creation revision of the key; 0: unknown */
    int64_t since;         /* Unix time, ms */
    int64_t began;         /* when the waiter was granted or queued */
    int64_t linger;        /* keep the key until then, even after the release; 0: no */
    int64_t capacity, lease_ms;
    int64_t revision;      /* of the answer that showed which key is ahead ... */
    int64_t ahead_is;      /* ... and that key's creation or modification; 0: a range */
    uint32_t permits;
    uint8_t mode;
    bool queue;
    bool cancelled;        /* the acquire was cancelled */
    bool waited;
    bool past_readers;     /* a shared try: pass a lock whose owner only reads */
    bool rewrite;          /* the key must be written: wrong value or lease */
    bool only_reads;       /* released, while a downgraded reader goes on */
    bool peeked;           /* the capacity in force is known */
    int refused;           /* LEAVES: the result of the acquires */
    char name[];
};

/* Waiters in the order in which their own keys are to be watched. */
typedef struct etcd_soon {
    struct list waiters;
    pawl_timer timer;
    int64_t delay;
} etcd_soon;

/* waiters.c */
etcd_waiter *etcd_waiter_find(etcd *e, uint64_t seq);
void etcd_acquire(etcd *e, pawl_op *op);
/* Do the next step of the waiter, if it is possible now. */
void etcd_waiter_step(etcd_waiter *w);
void etcd_waiter_granted(etcd_waiter *w, uint64_t token, int64_t from);
/* The latch is open: nothing is held. */
void etcd_waiter_opened(etcd_waiter *w);
/* No key exists: finish the acquires with `code`, and free the waiter. */
void etcd_waiter_end(etcd_waiter *w, int code);
/* The key is gone, or the lease is (then w->lease is NULL). */
void etcd_waiter_lost(etcd_waiter *w);
/* The key alone is gone, because of a break or somebody's delete; the core is notified. */
void etcd_waiter_vanished(etcd_waiter *w);
/* A call of a waiter failed. */
void etcd_waiter_failed(etcd_call *call, int code, const char *words);
void etcd_waiters_step(etcd *e);
/* Fail the acquires that were not sent yet. */
void etcd_waiters_refuse(etcd *e, int code, const char *words);
void etcd_waiters_free(etcd *e);

/* order.c */
void etcd_soon_init(etcd_soon *soon, int64_t delay_ms);
void etcd_waiter_watches(etcd_waiter *w); /* set up, not started */
/* Join the order, so that later waiters of the same name wait. */
void etcd_waiter_enter_order(etcd_waiter *w);
/* Must another waiter of the same name ask first? */
bool etcd_waiter_behind(const etcd_waiter *w);
/* Let the next waiter of the same name ask. */
void etcd_waiter_next(const etcd_waiter *w);
void etcd_waiter_leave_order(etcd_waiter *w);
/* Enter the queue: wait until something happens to a key (or a range; then `is` is 0). The key was
 * created (for an exclusive owner) or modified (for others) at revision `is`, as seen at
 * `revision`. */
void etcd_waiter_queue(etcd_waiter *w, const etcd_range *range, int64_t is, int64_t revision);
/* Watch the waiter's own key after a delay. */
void etcd_waiter_watch_soon(etcd_waiter *w, etcd_soon *soon);

/* requests.c: send the next request of a waiter in ASKS or QUEUED. */
void etcd_waiter_ask(etcd_waiter *w);
/* Note that a read of this kind, or of a later one, is due. */
static inline void etcd_waiter_due(etcd_waiter *w, enum etcd_recheck read)
{
    w->recheck = w->recheck < read ? read : w->recheck;
}

/* leave.c */
void etcd_acquire_cancel(etcd *e, pawl_op *op);
void etcd_release(etcd *e, pawl_op *op);
void etcd_release_cancel(etcd *e, pawl_op *op);
/* Delete the key, then finish the acquires with `code`. */
void etcd_waiter_leave(etcd_waiter *w, int code);
/* The key is gone; `was`: the key existed until now. */
void etcd_waiter_left(etcd_waiter *w, bool was);
void etcd_waiter_delete(etcd_waiter *w);
void etcd_waiter_rewrite(etcd_waiter *w);
void etcd_answer_releases(etcd_waiter *w, int code);
size_t etcd_waiter_value(const etcd_waiter *w, char text[ETCD_VALUE_MAX]);

/* move.c */
/* The key is now under another lease. */
void etcd_waiter_moved(etcd_waiter *w, etcd_lease *lease);
/* The waiter's lease has ended. Returns false if the key may be under another lease, under which
 * the waiter goes on. */
bool etcd_waiter_ended_with(etcd_waiter *w, const etcd_lease *lease);
/* Released: keep the key until w->linger, even if the process ends. */
void etcd_waiter_linger(etcd_waiter *w);
/* Must the key of a released lock still stay? */
bool etcd_waiter_lingers(const etcd_waiter *w);
/* The server refuses the lease for a lingering lock. */
void etcd_linger_refused(etcd_lease *lease);

/* ---- renew.c --------------------------------------------------------------------------------- */

void etcd_renew(etcd *e, pawl_op *op);
void etcd_renew_cancel(etcd *e, pawl_op *op);
/* A lease was confirmed, or a grant is gone: answer the renewals that can be answered now. */
void etcd_renewals_check(etcd *e);

/* ---- jobs.c, latch.c, inspect.c -------------------------------------------------------------- */

struct etcd_job {
    struct list link; /* in e->jobs */
    etcd *e;
    pawl_op *op;
    etcd_call *call;  /* the outstanding call */
    void (*start)(etcd_job *job);  /* starts or restarts the job when the link is ready */
    void (*finish)(etcd_job *job); /* frees the job's resources; NULL: none */
    bool reads;       /* changes nothing: retried if no answer came */
    bool waits;       /* waits for something other than an answer */
    void *data;       /* `extra` bytes for the job, zeroed */
};

/* For submit: run `start` as soon as the link is ready. NULL: out of memory; the op is finished. */
etcd_job *etcd_job_new(etcd *e, pawl_op *op, void (*start)(etcd_job *), size_t extra);
void etcd_job_start(etcd_job *job);
/* A call of the job, to be filled and then sent by etcd_job_send. NULL: the job is finished. */
etcd_call *etcd_job_call(etcd_job *job, const etcd_call_type *type);
void etcd_job_send(etcd_job *job, etcd_call *call);
/* The job of an answered call; the job then has no outstanding call. */
etcd_job *etcd_job_of(etcd_call *call);
void etcd_job_failed(etcd_call *call, int code, const char *words);
void etcd_job_done(etcd_job *job, int code, const char *words);
void etcd_job_cancel(etcd *e, pawl_op *op);
void etcd_jobs_start(etcd *e);
void etcd_jobs_refuse(etcd *e, int code, const char *words);
void etcd_jobs_free(etcd *e);

#define ETCD_HELPERS_MS 60000 /* the lease of receipts and latch waiters */

void etcd_latch(etcd *e, pawl_op *op); /* set, down */
void etcd_examine(etcd *e, pawl_op *op); /* examine.c */
/* For a waiter of a latch. */
void etcd_latch_query(pb_buf *b, const etcd *e, const char *name, enum etcd_branch branch);
bool etcd_latch_see(etcd_waiter *w, const etcd_txn *txn);
void etcd_waiter_refuse(etcd_waiter *w, int code, const char *why);
/* Another key, or a range, blocks the waiter. */
void etcd_waiter_blocked(etcd_waiter *w, const etcd_kv *by, const etcd_range *range,
                         int64_t revision);
/* The remaining count of the latch in this key. */
int64_t etcd_latch_left(const etcd_kv *kv);
void etcd_inspect(etcd *e, pawl_op *op); /* inspect, count, list, break */

/* ---- etcd.c ---------------------------------------------------------------------------------- */

#define ETCD_RECEIPTS 32
#define ETCD_ASKING_BUCKETS 64

struct etcd {
    pawl_env *env;
    etcd_settings settings;
    etcd_link link;
    uv_prepare_t prepare; /* writes requests before the loop polls */
    bool prepared;
    pawl_events events;

    struct list leases;
    int64_t revision;     /* the largest in any answer, as long as leases exist */
    etcd_call *keepalive; /* the stream; NULL: not open */

    struct list watches[ETCD_WATCH_BUCKETS];
    etcd_call *watching;  /* the stream; NULL: not open */
    uint64_t last_watch;

    struct list waiters;
    kit_seqs table;       /* the same waiters by owner.seq */
    etcd_soon unwatched_holders, unwatched_waiters; /* the own keys are not watched yet */
    struct list asking[ETCD_ASKING_BUCKETS]; /* by name, in order of arrival */

    pawl_op *renewals;    /* chained by engine[1] */
    pawl_timer renew_timer;
    struct list jobs;

    struct {
        int64_t lease;
        uint64_t seq;
    } receipts[ETCD_RECEIPTS]; /* of the last latch ops, in a ring */
    size_t nreceipts;

    uv_timer_t close_timer; /* limits the wait for the last answers */
    bool closing;
    size_t revokes_out; /* while closing: revocations without an answer */
};

void etcd_connected(etcd *e);
void etcd_dropped(etcd *e, int code, const char *words, bool refused);
/* Fill in `err`: no answer came in time. `code`: PAWL_ECONN (not sent) or PAWL_EUNKNOWN. */
int etcd_no_answer(const etcd *e, pawl_error *err, int code);

#endif
