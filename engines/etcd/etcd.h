/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd.h - the etcd engine, inside.
 *
 *     etcd.c      the functions of the engine, events, close
 *     settings.c  the parameters of the URL
 *     link.c      the one connection: HTTP/2 by nghttp2, on top of ../kit/link.c
 *     calls.c     gRPC calls on the link
 *     memory.c    memory that is wiped when it is freed
 *     login.c     the first call on the link: user and password for a token
 *     proto.c, messages.c   protobuf, and etcd's messages in protobuf
 *     keys.c      names to keys, and client information in the value of a key
 *     leases.c    leases: granted, kept alive, fenced, revoked
 *     watches.c   the watch stream
 *     waiters.c   acquire: an owner's key, from its creation until the key is certainly gone
 *     order.c     the order of waiters: which waiter asks first, and what is watched
 *     requests.c  the requests of a waiter, and the meaning of the answers
 *     leave.c     release, cancel, and keys that are rewritten
 *     move.c      keys that move to another lease: a longer one, or one that ends by itself
 *     renew.c     renewals, answered from the leases
 *     jobs.c      ops that are a few calls one after the other
 *     latch.c     latches
 *     inspect.c   inspect, count, list, break
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
    net_tls_settings tls_settings; /* host and protocol are the link's */
    int64_t session_ms;    /* every lease is so long; 0: as long as the lock's */
} etcd_settings;

int etcd_settings_read(etcd_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err);
/* Wipes what is secret. Accepts zeroes. */
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
    ETCD_ALL,       /* everything of the name */
    ETCD_LOCKS,     /* exclusive: ours, those of Go programs, and whatever else is there */
    ETCD_LATCH,
    ETCD_PERMITS,
    ETCD_READS,
    ETCD_WAITS,     /* waiters of a latch: not among the name's keys, but in a place of their own */
    ETCD_NO_LOCKS,  /* latch and permits: the name is not a lock */
    ETCD_LOW        /* all that comes before the permits */
};

typedef struct etcd_bounds {
    char key[ETCD_KEY_MAX], end[ETCD_KEY_MAX];
    etcd_range range;
} etcd_bounds;

/* The bounds of a section of a name; NULL name: of all names, whatever the section. */
const etcd_range *etcd_bounds_of(etcd_bounds *b, const etcd *e, const char *name,
                                 enum etcd_section section);
/* The key of an owner. */
void etcd_key(char key[ETCD_KEY_MAX], const etcd *e, const char *name, enum etcd_section section,
              int64_t lease, uint64_t seq);
/* <prefix>/WORD/<lease>[-<seq>]: what is no lock. seq 0: without. */
void etcd_helper(char key[ETCD_KEY_MAX], const etcd *e, const char *word, int64_t lease,
                 uint64_t seq);
/* The name that a key belongs to, decoded, and what follows it; false: none. */
bool etcd_key_name(const etcd *e, pb_span key, char name[PAWL_NAME_MAX + 1], pb_span *tail);

#define ETCD_VALUE_MAX 1536
#define ETCD_TEXT_MAX 128

/* What stands in a key: who it is, and what it wants. A stranger's has pid 0 and no texts. Anybody
 * may write anything there: numbers are brought within bounds when they are read, so that sums of
 * as many as fit into an answer can't overflow. */
typedef struct etcd_value {
    int64_t since;        /* Unix time, ms; 0 unknown */
    int64_t pid;
    int64_t permits, capacity;
    int64_t readers;      /* an exclusive key: its owner reads too, so many times */
    uint64_t token;       /* 0: the key's own modification */
    bool shared;          /* an exclusive key whose owner only reads by now */
    bool ours;
    char host[ETCD_TEXT_MAX], program[ETCD_TEXT_MAX], label[ETCD_TEXT_MAX];
} etcd_value;

void etcd_value_read(pb_span text, etcd_value *ret);
size_t etcd_value_write(char text[ETCD_VALUE_MAX], const etcd_value *v);

/* ---- link.c ---------------------------------------------------------------------------------- */

typedef struct etcd_call_type {
    const char *path; /* "/etcdserverpb.KV/Txn" */
    bool streams;     /* many messages both ways; else one each */
    /* A message came. False: it makes no sense. */
    bool (*answer)(etcd_call *call, pb_span message);
    /* There is none: PAWL_EUNKNOWN it may have been carried out; else it was not. A stream that has
     * ended brings the link down, and is told so here. */
    void (*failed)(etcd_call *call, int code, const char *words);
} etcd_call_type;

struct etcd_call {
    struct list link; /* in the link's calls */
    const etcd_call_type *type;
    etcd *e;
    void *about;      /* the maker's; NULL: nobody wants the answer */
    int64_t tag;      /* the maker's */
    int64_t fence;    /* the revision of the fence that its condition names */
    int64_t sent;     /* an instant before it was written */
    pb_buf body;
    size_t written, sealed; /* bytes of body that are out; where the next message begins */
    int32_t stream;
    bool deferred;    /* nothing to write now */
    int http, status; /* what the server said; -1: nothing yet */
    bool answered;
    grpc_reader in;
    char words[ETCD_WORDS];
};

typedef struct etcd_link {
    KIT_WIRE;            /* link->calls: without streams */
    etcd *e;
    void *tls_context;
    nghttp2_session *h2;
    struct list streams; /* calls that are streams */
    size_t endpoint;     /* which one */
    int64_t heard;       /* when the server last sent anything */
    int64_t pinged;      /* 0: no ping is out */
    char *token;         /* of the user's, for this connection */
    bool in_h2;          /* inside nghttp2: it can't be freed now */
    bool parting;        /* the server says good-bye: nothing new */
    int doomed;          /* what is wrong with it, found inside nghttp2 */
} etcd_link;

int etcd_link_open(etcd_link *link, etcd *e, pawl_error *err);
void etcd_link_close(etcd_link *link);
void etcd_link_flush(etcd_link *link);
#define etcd_link_drop(link, ...) kit_link_drop(&(link)->kit, __VA_ARGS__)
/* The greeting is over. */
void etcd_link_greeted(etcd_link *link);
static inline bool etcd_link_ready(const etcd_link *link)
{
    return link->state == LINK_READY && !link->parting && !link->doomed;
}

/* A call to be filled (call->body, behind its prefix) and sent; NULL: no memory. */
/* Put the server in front of what it said. */
void etcd_add_where(const etcd_link *link, char words[ETCD_WORDS]);
etcd_call *etcd_call_new(etcd *e, const etcd_call_type *type, void *about);
/* The link must be ready (or greeting). It fails later, if at all, never inside. False: no memory;
 * the call is gone. */
bool etcd_call_send(etcd_call *call);
/* Another message on a stream: begin, fill, send. False: no memory. */
pb_buf *etcd_call_begin(etcd_call *call);
bool etcd_call_more(etcd_call *call);

/* ---- memory.c ------------------------------------------------------------------------------- */

nghttp2_mem etcd_wiped_memory(void);

/* ---- login.c --------------------------------------------------------------------------------- */

void etcd_login(etcd_link *link);

/* ---- leases.c -------------------------------------------------------------------------------- */

enum etcd_lease_state {
    LEASE_WANTED,   /* nothing of it is known to the server */
    LEASE_GRANTING,
    LEASE_STALE,    /* from an earlier connection: must be confirmed and fenced */
    LEASE_CHECKING, /* the confirmation is out */
    LEASE_FENCING,  /* the fence is being written */
    LEASE_READY
};

struct etcd_lease {
    struct list link;   /* in e->leases */
    etcd *e;
    enum etcd_lease_state state;
    int64_t id;
    int64_t asked;      /* s, as wanted */
    int64_t ttl;        /* ns, as granted */
    int64_t from;       /* an instant before the last confirmed renewal was sent */
    int64_t sent;       /* of the renewal that is out; 0: none */
    int64_t used;       /* when it last had a waiter */
    int64_t fence;      /* the revision of its fence; 0: never written */
    pawl_timer timer;
    struct list waiters;
    unsigned confirmed; /* how often */
    bool ends;          /* never kept alive: a released lock lingers on it (move.c) */
};

/* A lease for locks that ask for lease_ms; NULL: no memory. */
etcd_lease *etcd_lease_for(etcd *e, int64_t lease_ms);
/* One of its own that is not kept alive and ends in so many ms or a little later; NULL: no
 * memory. */
etcd_lease *etcd_lease_that_ends(etcd *e, int64_t ms);
void etcd_lease_free(etcd_lease *lease);
/* Would that be a longer one than this? */
bool etcd_lease_is_shorter(const etcd_lease *lease, int64_t lease_ms);
/* So long is it surely good from `from`, in ms, at least 1. */
int64_t etcd_lease_left(const etcd_lease *lease, int64_t from);
/* Most of it is still to come. */
bool etcd_lease_fresh(const etcd_lease *lease);
/* Confirm it soon. */
void etcd_lease_poke(etcd_lease *lease);
/* The server does not know it. */
void etcd_lease_gone(etcd_lease *lease);
/* A request failed because the fence is no longer at revision `fence`, which the request named. The
 * caller then steps its waiter or job, which sends again as soon as the lease is ready. */
void etcd_lease_unfenced(etcd_lease *lease, int64_t fence);
/* Add the condition on the lease's fence to a transaction. */
void etcd_if_fenced(etcd_call *call, const etcd_lease *lease);
void etcd_leases_connected(etcd *e);
void etcd_leases_dropped(etcd *e);
/* Send the revocations of all that have no waiter. How many. */
size_t etcd_leases_revoke(etcd *e);
void etcd_leases_free(etcd *e);

#define ETCD_WATCH_BUCKETS 256

/* ---- watches.c ------------------------------------------------------------------------------- */

typedef struct etcd_watch {
    struct list link; /* in e->watches */
    etcd *e;
    uint64_t id;      /* 0: not in use */
    const char *key, *end; /* the owner's; "": one key */
    int64_t next;     /* the first revision that was not seen; 0: from now on */
    bool deletes_only;
    bool from_now;    /* what was before is looked at by other means */
    void *arg;
    /* `revision`: all up to it must be looked at by other means. */
    void (*started)(struct etcd_watch *w, int64_t revision);
    void (*event)(struct etcd_watch *w, const etcd_event *event);
    void (*missed)(struct etcd_watch *w); /* it has ended; something may have been missed */
} etcd_watch;

/* Watch a key (end "") or a range, which stay the caller's, from a revision, or from now on (0,
 * with from_now). */
void etcd_watch_start(etcd_watch *w, etcd *e, const char *key, const char *end, int64_t from);
void etcd_watch_stop(etcd_watch *w);
void etcd_watches_connected(etcd *e);
void etcd_watches_dropped(etcd *e);

/* ---- waiters.c, order.c, requests.c, leave.c ------------------------------------------------ */

enum etcd_waiter_state {
    WAITER_ASKS,    /* the acquire is out or to be sent; waiter->maybe: the key may exist */
    WAITER_QUEUED,  /* the key exists, and another key is ahead */
    WAITER_HOLDS,
    WAITER_SHELL,   /* released, but a downgraded reader still uses the key */
    WAITER_LINGERS, /* released, but the key stays until waiter->linger */
    WAITER_LEAVES,  /* the key is to be deleted */
    WAITER_GONE     /* held, and then the key has vanished */
};

struct etcd_waiter {
    struct list link;      /* in e->waiters, in order of arrival */
    struct list in_lease;
    struct list fresh;     /* in e->unwatched_holders or e->unwatched_waiters */
    struct list asking;    /* in e->asking: ASKS or LEAVES */
    kit_seq by_seq;
    etcd *e;
    etcd_lease *lease;     /* NULL: GONE */
    etcd_lease *target;    /* the lease that its key is to be moved to; NULL: none */
    etcd_lease *moving;    /* the lease that its key may have been moved to; NULL: none */
    enum etcd_waiter_state state;
    pawl_op *acquires;     /* chained by engine[1] */
    pawl_op *releases;
    etcd_call *call;       /* the one that is out */
    etcd_watch ahead;      /* what it waits for */
    etcd_watch own;        /* its own key, while it is held */
    char *ahead_key;       /* that and the end of the range, one after the other */
    char *key;
    etcd_waiter *base;     /* of a downgraded reader: the exclusive grant whose key it shares */
    uint32_t downgraded;
    pawl_timer timer;      /* leaving: so long the acquire waits for it. Else: try again */
    uint64_t token;
    int64_t created;       /* its key's creation, a revision; 0: none is known */
    int64_t since;         /* Unix time, ms */
    int64_t began;         /* when it was granted */
    int64_t linger;        /* its key is to stay until then, also when it is released; 0: no */
    int64_t capacity, lease_ms;
    int64_t revision;      /* of the answer by which it knows what is ahead ... */
    int64_t ahead_is;      /* ... and that key's creation or modification; 0: it is a range */
    uint32_t permits;
    uint8_t mode;
    bool queue;
    bool maybe;            /* a request got no answer: there may be a key or not */
    bool cancelled;        /* nobody wants it any more */
    bool recheck;          /* QUEUED: read again what is ahead ... */
    bool woken;            /* ... because something there has changed */
    bool check;            /* see whether what is ahead is still as it was */
    bool waited;
    bool past_readers;     /* a shared try: go past a lock that is only read by now */
    bool rewrite;          /* its key's value or lease is not what it should be */
    bool only_reads;       /* released, while a downgraded reader went on reading */
    bool unsure;           /* HOLDS: whether its key is still there, until it is written again */
    bool peeked;           /* the capacity in force is known */
    int refused;           /* LEAVES: what the acquires are told */
    char name[];
};

/* Waiters in the order in which something is due with them. */
typedef struct etcd_soon {
    struct list waiters;
    pawl_timer timer;
    int64_t delay;
} etcd_soon;

/* waiters.c */
etcd_waiter *etcd_waiter_find(etcd *e, uint64_t seq);
void etcd_acquire(etcd *e, pawl_op *op);
/* Do what is to be done next, if it can be done. */
void etcd_waiter_step(etcd_waiter *s);
void etcd_waiter_granted(etcd_waiter *s, uint64_t token, int64_t from);
/* A latch is open: nothing is held. */
void etcd_waiter_opened(etcd_waiter *s);
/* There is no key: the acquires are told, and the waiter is over. */
void etcd_waiter_end(etcd_waiter *s, int code);
/* The key has vanished, or its lease has (s->lease is NULL). */
void etcd_waiter_lost(etcd_waiter *s);
/* The same of the key alone, which a break or somebody deleted; the core is told. */
void etcd_waiter_vanished(etcd_waiter *s);
/* A call of its came to nothing. */
void etcd_waiter_failed(etcd_call *call, int code, const char *words);
void etcd_waiters_step(etcd *e);
/* Those who were not heard yet are told that they won't be. */
void etcd_waiters_refuse(etcd *e, int code, const char *words);
void etcd_waiters_free(etcd *e);

/* order.c */
void etcd_soon_init(etcd_soon *soon, int64_t delay_ms);
void etcd_waiter_watches(etcd_waiter *s); /* set them up */
/* Let those of the same name that come later wait for it. */
void etcd_waiter_enter_order(etcd_waiter *s);
/* Is there one of the same name that must be asked for first? */
bool etcd_waiter_behind(const etcd_waiter *s);
/* The next of the same name may ask; in_line: and this one does no more. */
void etcd_waiter_next(const etcd_waiter *s);
void etcd_waiter_leave_order(etcd_waiter *s);
/* In line: wait until something happens to a key (or a range; then `is` is 0), which was created
 * (for an exclusive owner) or modified (for others) at revision `is`, as seen at a revision. */
void etcd_waiter_queue(etcd_waiter *s, const etcd_range *range, int64_t is, int64_t revision);
/* In a while its own key is watched. */
void etcd_waiter_watch_soon(etcd_waiter *s, etcd_soon *soon);

/* requests.c: send the next request of a waiter in ASKS or QUEUED. */
void etcd_waiter_ask(etcd_waiter *s);

/* leave.c */
void etcd_acquire_cancel(etcd *e, pawl_op *op);
void etcd_release(etcd *e, pawl_op *op);
void etcd_release_cancel(etcd *e, pawl_op *op);
/* Its key is to go; then the acquires are told `code`. */
void etcd_waiter_leave(etcd_waiter *s, int code);
/* Its key is gone; `was`: it was there until now. */
void etcd_waiter_left(etcd_waiter *s, bool was);
void etcd_waiter_delete(etcd_waiter *s);
void etcd_waiter_rewrite(etcd_waiter *s);
void etcd_answer_releases(etcd_waiter *s, int code);
size_t etcd_waiter_value(const etcd_waiter *s, char text[ETCD_VALUE_MAX]);

/* move.c */
/* The key is under another lease now. */
void etcd_waiter_moved(etcd_waiter *s, etcd_lease *lease);
/* Its lease has ended. False: its key may be under another one; the waiter goes on there. */
bool etcd_waiter_ended_with(etcd_waiter *s, const etcd_lease *lease);
/* Released: the key stays until s->linger, also if the process ends. */
void etcd_waiter_linger(etcd_waiter *s);
/* True: it has to. */
bool etcd_waiter_lingers(const etcd_waiter *s);
/* The server gives no lease to linger on. */
void etcd_linger_refused(etcd_lease *lease);

/* ---- renew.c --------------------------------------------------------------------------------- */

void etcd_renew(etcd *e, pawl_op *op);
void etcd_renew_cancel(etcd *e, pawl_op *op);
/* A lease was confirmed, or a grant is gone: see which renewals can be answered. */
void etcd_renewals_check(etcd *e);

/* ---- jobs.c, latch.c, inspect.c -------------------------------------------------------------- */

struct etcd_job {
    struct list link; /* in e->jobs */
    etcd *e;
    pawl_op *op;
    etcd_call *call;  /* the one that is out */
    void (*start)(etcd_job *job);  /* from the beginning, when the link is ready */
    void (*finish)(etcd_job *job); /* let go of what it has; NULL: nothing */
    bool reads;       /* it changes nothing: what got no answer is asked again */
    bool waits;       /* for something else than an answer */
    void *data;       /* `extra` bytes of its own, zeroed */
};

/* For submit: run `start` as soon as the link is ready. NULL: no memory; the op is done. */
etcd_job *etcd_job_new(etcd *e, pawl_op *op, void (*start)(etcd_job *), size_t extra);
void etcd_job_start(etcd_job *job);
/* A call of the job's, to be filled and then sent by etcd_job_send. NULL: the job is done. */
etcd_call *etcd_job_call(etcd_job *job, const etcd_call_type *type);
void etcd_job_send(etcd_job *job, etcd_call *call);
/* The job of a call that was answered; it has no call any more. */
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
/* For a waiter that waits for one. */
void etcd_latch_query(pb_buf *b, const etcd *e, const char *name, enum etcd_branch branch);
bool etcd_latch_see(etcd_waiter *s, const etcd_txn *txn);
void etcd_waiter_refuse(etcd_waiter *s, int code, const char *why);
/* By this key, or by a range. */
void etcd_waiter_blocked(etcd_waiter *s, const etcd_kv *by, const etcd_range *range,
                         int64_t revision);
/* The latch that this key is: how much is left. */
int64_t etcd_latch_left(const etcd_kv *kv);
void etcd_inspect(etcd *e, pawl_op *op); /* inspect, count, list, break */

/* ---- etcd.c ---------------------------------------------------------------------------------- */

#define ETCD_RECEIPTS 32
#define ETCD_ASKING_BUCKETS 64

struct etcd {
    pawl_env *env;
    etcd_settings settings;
    etcd_link link;
    uv_prepare_t prepare; /* before the loop polls: write */
    bool prepared;
    pawl_events events;

    struct list leases;
    int64_t revision;     /* the largest that an answer had, as long as leases are known */
    etcd_call *keepalive; /* the stream; NULL: not open */

    struct list watches[ETCD_WATCH_BUCKETS];
    etcd_call *watching;  /* the stream; NULL: not open */
    uint64_t last_watch;

    struct list waiters;
    kit_seqs table;       /* of the same, by owner.seq */
    etcd_soon unwatched_holders, unwatched_waiters; /* whose own keys are not watched yet */
    struct list asking[ETCD_ASKING_BUCKETS]; /* by name, in order of arrival */

    pawl_op *renewals;    /* chained by engine[1] */
    pawl_timer renew_timer;
    struct list jobs;

    struct {
        int64_t lease;
        uint64_t seq;
    } receipts[ETCD_RECEIPTS]; /* of the last latch ops, in a ring */
    size_t nreceipts;

    uv_timer_t close_timer; /* how long the last words may take */
    bool closing;
    size_t last_words;
};

void etcd_connected(etcd *e);
void etcd_dropped(etcd *e, int code, const char *words, bool refused);
/* Fill `err`: nothing answered in time. `code`: PAWL_ECONN (not sent) or PAWL_EUNKNOWN. */
int etcd_no_answer(const etcd *e, pawl_error *err, int code);

#endif
