/* SPDX-License-Identifier: Apache-2.0
 *
 * desk.h - the engine slots of engines that keep their locks on shelves (memory, local).
 *
 * A *store* has a number of buckets, each with one shelf on which all names lie that hash there. It
 * knows how to edit a shelf so that all clients see one edit after the other, who of them is dead,
 * and how to reach them. The *desk* is the rest, one per client: it turns ops into edits
 * (lockstate.h), keeps the ops that wait, and looks at them again when something happened.
 *
 * A wait and what brings it on:
 *
 *     op submitted -> edit -> granted or refused: done inside submit
 *                          -> queued: a desk_wait, armed: the front of the queue watches the
 *                             processes of all holders and has a timer on the end of the first of
 *                             their leases; the others watch the process of who is next before them
 *     told, hang-up, timer -> the same edit again (it is idempotent) -> granted: claimed in the
 *                             same edit, done; still queued: armed anew; no longer on the shelf
 *                             (it was stopped and its claim ran out): queued again at the end
 *
 * All under the client's mutex. The desk never blocks and calls nobody but env, store and op->done.
 */
#ifndef PAWL_DESK_H
#define PAWL_DESK_H

#include "list.h"
#include "lockstate.h"

typedef struct desk desk;

/* Edit the shelf; true: publish it. May be called several times, each time with a fresh copy. */
typedef bool desk_edit_fn(void *arg, lockstate_shelf *shelf);

enum desk_watched { DESK_WATCHED, DESK_DEAD, DESK_BLIND };

struct desk_peer {
    uint64_t seq; /* of the owner that is meant; 0: several */
    uint16_t peer;
    uint32_t gen;
    enum lockstate_why why;
};

/* What one who is told is told. Whoever finds his grant must know whether the others have been told
 * of the same edit, or tell them himself (lockstate_retell): an earlier message about the bucket is
 * no proof, so each says which tokens its edit drew. */
struct desk_told {
    uint64_t seq;          /* as in desk_peer */
    uint64_t first, last;  /* the tokens; 0: none */
    uint32_t bucket, unused;
};

typedef struct desk_store {
    /* Run fn on the bucket's shelf and publish what it made, as one step. 0, or a code. */
    int (*edit)(void *store, uint32_t bucket, desk_edit_fn *fn, void *arg, pawl_error *err);
    /* A copy of the bucket's shelf to look at and change, good until the next call. NULL: none. */
    lockstate_shelf *(*read)(void *store, uint32_t bucket);
    uint64_t (*fence)(void *store, uint32_t n);
    /* No token from here on is as small as `floor`. Optional: PAWL_CAP_FLOOR. */
    void (*raise)(void *store, uint64_t floor);
    /* thorough: ask the system; else only what is known without. Never asked about the client. */
    bool (*dead)(void *store, uint16_t peer, uint32_t gen, bool thorough);
    /* Make the other client look (desk_told or desk_look), or tell it of an eviction. */
    void (*tell)(void *store, const struct desk_peer *to, const struct desk_told *what);
    /* Fill in pid, host, program and label. */
    void (*describe)(void *store, uint16_t peer, uint32_t gen, pawl_info *row);

    /* Optional, for stores whose clients can die at any moment. watch: call desk_look when the
     * process ends. DESK_DEAD: it has, and `dead` knows; DESK_BLIND: can't be watched now. */
    enum desk_watched (*watch)(void *store, uint16_t peer, uint32_t gen);
    void (*unwatch)(void *store, uint16_t peer, uint32_t gen);
    /* Called before an edit by an outsider is published: whoever is told of it afterwards should
     * watch this client until then. */
    void (*announce)(void *store, uint16_t peer, uint32_t gen);
} desk_store;

struct desk_peers {
    struct desk_peer *list;
    size_t n, room;
    bool missing; /* memory ran out */
};

#define DESK_CHAINS 1024

typedef struct desk_wait {
    struct list link;     /* of all waits */
    struct list due;      /* of those that must be looked at; or alone */
    struct list chain;    /* of those with such a seq */
    desk *desk;
    pawl_op *op;
    uint32_t bucket;
    unsigned look; /* enum desk_cause, why it must be looked at */
    uint64_t first, last; /* the tokens of the edit that we were told of */
    pawl_timer timer;
    struct desk_peers watched;
} desk_wait;

enum desk_cause {
    DESK_TOLD = 1, /* somebody who changed something told us, and the others before us */
    DESK_SEEN = 2  /* we found out by ourselves: perhaps nobody told anybody */
};

struct desk {
    pawl_env *env;
    const desk_store *store;
    void *arg; /* the store's */
    uint32_t nbuckets; /* a power of two */
    uint32_t gen;      /* with `peer`: this client, in the store's terms */
    uint16_t peer;
    bool looking;
    int64_t safety_ms; /* > 0: look at everything that waits so often, whatever happens */
    struct list waits, due;
    struct list *chains; /* DESK_CHAINS */
    desk_wait *spare;
    pawl_op *event;
    int untold; /* an event that came while no EVENT op was out */
    bool broken; /* grants of this client were broken, and no EVENT has said so yet */
    struct desk_peers tells, blockers;
    pawl_timer safety;
};

/* The bit of a bucket in a mask of hints; DESK_EVICTED stands for an eviction. */
#define DESK_BIT(bucket) (UINT64_C(1) << ((bucket) % 63))
#define DESK_EVICTED (UINT64_C(1) << 63)

/* 0 or PAWL_ENOMEM. */
int desk_init(desk *d, pawl_env *env, const desk_store *store, void *arg, uint32_t nbuckets,
              uint16_t peer, uint32_t gen);
/* Ends what is still out with PAWL_ECANCELED. Accepts zeroes. The store may be half open. */
void desk_end(desk *d);
void desk_submit(desk *d, pawl_op *op);
void desk_cancel(desk *d, pawl_op *op);
/* We were told: take down who is meant. desk_look goes on from there. */
void desk_told(desk *d, const struct desk_told *what);
/* Look at what waits in the buckets of the mask, and at who is meant by what we were told. */
void desk_look(desk *d, uint64_t mask, enum desk_cause cause);
void desk_event(desk *d, int event);
/* Grants of this client were broken. */
void desk_broken(desk *d);

uint32_t desk_bucket(const desk *d, const char *name);

/* view.c: the ops that only look. */
void desk_view(desk *d, pawl_op *op);

#endif
