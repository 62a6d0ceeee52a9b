/* SPDX-License-Identifier: Apache-2.0
 *
 * shelf_engine.h - the engine that memory: and local: share: locks on shelves.
 *
 * A *store* has a number of buckets. Each bucket has one shelf with all names that hash to the
 * bucket. The store knows how to edit a shelf so that all clients see one edit after the other,
 * which clients are dead, and how to notify a client. The *shelf engine* is everything else, one
 * per client: it turns ops into edits (lockstate.h), keeps the waiters, and checks a waiter again
 * when something has happened.
 *
 * The states of a waiter:
 *
 *     op submitted -> edit -> granted or refused: the op finishes inside submit
 *                          -> queued: a shelf_waiter. The front of the queue watches the processes
 *                             of all holders and has a timer on the earliest end of their leases.
 *                             Every other waiter watches the process of the waiter before it.
 *     notice, dead process, timer -> the same edit again, which is idempotent
 *                          -> granted: claimed in the same edit; the op finishes
 *                          -> still queued: watches and timer are set anew
 *                          -> no longer on the shelf (this process was stopped, and the claim ran
 *                             out): queued again at the end
 *
 * Everything runs under the client's mutex. The shelf engine never blocks, and calls only env, the
 * store and op->done.
 */
#ifndef PAWL_SHELF_ENGINE_H
#define PAWL_SHELF_ENGINE_H

#include "list.h"
#include "lockstate.h"

typedef struct shelf_engine shelf_engine;

/* Edit the shelf. True: publish the shelf. May be called several times, each time with a fresh
 * copy. */
typedef bool shelf_edit_fn(void *arg, lockstate_shelf *shelf);

enum shelf_watched { SHELF_WATCHED, SHELF_DEAD, SHELF_BLIND };

struct shelf_peer {
    uint64_t seq; /* the owner; 0: several owners of the client */
    uint16_t peer;
    uint32_t gen;
    enum lockstate_why why;
};

/* A notice to a client. An owner that finds its grant must know whether the other owners have been
 * notified of the same edit; if not, that owner notifies them (lockstate_retell). An earlier notice
 * about the bucket is no proof, so each notice says which tokens its edit drew. */
struct shelf_told {
    uint64_t seq;          /* as in shelf_peer */
    uint64_t first, last;  /* the tokens of the edit; 0: none */
    uint32_t bucket, unused;
};

typedef struct shelf_store {
    /* Run fn on the bucket's shelf and publish the new shelf, as one step. 0, or a code. */
    int (*edit)(void *store, uint32_t bucket, shelf_edit_fn *fn, void *arg, pawl_error *err);
    /* A copy of the bucket's shelf, valid until the next call. NULL: none. */
    lockstate_shelf *(*read)(void *store, uint32_t bucket);
    uint64_t (*fence)(void *store, uint32_t n);
    /* Make all later tokens larger than `floor`. Optional: PAWL_CAP_FLOOR. */
    void (*raise)(void *store, uint64_t floor);
    /* Is the client dead? If `thorough`, ask the operating system; else only use facts that are
     * already known. Never called for the client itself. */
    bool (*dead)(void *store, uint16_t peer, uint32_t gen, bool thorough);
    /* Make another client check its waiters (shelf_told, shelf_check), or notify that client of an
     * eviction. */
    void (*tell)(void *store, const struct shelf_peer *to, const struct shelf_told *what);
    /* Take the name of the client that has evicted grants of this client since the last call: its
     * text as pawl_client_info_text, "" if there were two clients, or if the client can't be
     * found. */
    void (*breaker)(void *store, char by[PAWL_BY_MAX]);
    /* Fill in pid, host, program and label. */
    void (*describe)(void *store, uint16_t peer, uint32_t gen, pawl_info *row);

    /* Optional, for stores whose clients can die at any moment. watch: call shelf_check when the
     * process ends. SHELF_DEAD: the process has ended, and `dead` says so. SHELF_BLIND: the process
     * can't be watched now. */
    enum shelf_watched (*watch)(void *store, uint16_t peer, uint32_t gen);
    void (*unwatch)(void *store, uint16_t peer, uint32_t gen);
    /* Called before an edit by a client that has no part in the lock is published: the client
     * `peer` is notified after the publishing, and must watch this client until then. */
    void (*announce)(void *store, uint16_t peer, uint32_t gen);
    /* Called before a timer of the shelf engine uses the store. */
    void (*begin)(void *store);
} shelf_store;

struct shelf_peers {
    struct shelf_peer *list;
    size_t n, room;
    bool missing; /* memory ran out */
};

#define SHELF_CHAINS 1024

typedef struct shelf_waiter {
    struct list link;     /* of all waiters */
    struct list due;      /* of the waiters to check; empty: not due */
    struct list chain;    /* of the waiters with the same hash of seq */
    shelf_engine *engine;
    pawl_op *op;
    uint32_t bucket;
    unsigned causes;      /* enum shelf_cause, why the waiter is due */
    uint64_t first, last; /* the tokens of the edit that the notice was about */
    pawl_timer timer;
    struct shelf_peers watched;
} shelf_waiter;

enum shelf_cause {
    SHELF_TOLD = 1, /* a notice came: the author of the edit has notified the others before */
    SHELF_SEEN = 2  /* no notice came, so perhaps no other owner was notified */
};

struct shelf_engine {
    pawl_env *env;
    const shelf_store *store;
    void *arg; /* the store's */
    uint32_t nbuckets; /* a power of two */
    uint32_t gen;      /* with `peer`: this client, in the store's terms */
    uint16_t peer;
    bool checking;
    int64_t safety_ms; /* > 0: the interval in which all waiters are checked in any case */
    struct list waiters, due;
    struct list *chains; /* SHELF_CHAINS */
    shelf_waiter *spare;
    pawl_events events;
    struct shelf_peers tells, blockers;
    pawl_timer safety;
};

/* The bit of a bucket in a mask of hints; SHELF_EVICTED stands for an eviction. */
#define SHELF_BIT(bucket) (UINT64_C(1) << ((bucket) % 63))
#define SHELF_EVICTED (UINT64_C(1) << 63)

/* 0 or PAWL_ENOMEM. */
int shelf_engine_init(shelf_engine *se, pawl_env *env, const shelf_store *store, void *arg,
                      uint32_t nbuckets, uint16_t peer, uint32_t gen);
/* Finish the remaining ops with PAWL_ECANCELED. Accepts zeroes. The store may be half open. */
void shelf_engine_end(shelf_engine *se);
void shelf_engine_submit(shelf_engine *se, pawl_op *op);
void shelf_engine_cancel(shelf_engine *se, pawl_op *op);
/* A notice came: mark the waiters that the notice is for. shelf_check then checks them. */
void shelf_told(shelf_engine *se, const struct shelf_told *what);
/* Check the waiters in the buckets of the mask, and the waiters that shelf_told has marked. */
void shelf_check(shelf_engine *se, uint64_t mask, enum shelf_cause cause);

uint32_t shelf_bucket(const shelf_engine *se, const char *name);

/* inspect.c: the ops that only read. */
void shelf_inspect(shelf_engine *se, pawl_op *op);

#endif
