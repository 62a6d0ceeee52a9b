/* SPDX-License-Identifier: Apache-2.0
 *
 * waiter.h - a waiter: one acquire and its nodes in the server, from the first request to the end
 * of the grant. Locks, semaphores and latches share the code in waiter.c; a zk_waiter_kind has the
 * differences.
 *
 * STATES. `state` is the purpose of a waiter. The table lists every event that changes `state`.
 *
 *   state   event                                          next state   function
 *   ------  ---------------------------------------------  -----------  ---------------------------
 *   (new)   ACQUIRE                                        ASKS         zk_acquire
 *   ASKS    granted                                        HOLDS        grant
 *           granted, of a latch: nothing is held           LEAVES       grant
 *           refused: busy, another use of the name, error  LEAVES       refuse
 *           the own node was deleted by somebody           ASKS, anew   begin_anew
 *           cancelled, and no node can exist               over         zk_acquire_cancel
 *           cancelled, or RELEASE                          LEAVES       zk_acquire_cancel,
 *                                                                       zk_release
 *           the session has ended                          ASKS, anew   zk_waiter_expired
 *   HOLDS   RELEASE of some permits                        HOLDS        zk_release
 *           RELEASE                                        LEAVES       zk_release
 *           the session has ended                          over         zk_waiter_expired
 *   LEAVES  the server confirmed that all nodes are gone   over         zk_waiter_next, leave
 *           the session has ended                          over         zk_waiter_expired
 *   any     no connection is possible, no node can exist   over         zk_waiter_refused
 *           the client is closed                           over         zk_waiters_end
 *
 * `step` is the request that a waiter has out. A lost connection changes none of the states; the
 * next connection starts the step that fits the states (zk_waiter_go).
 *
 * `node_is` and `leases_are` say what the server has of the waiter:
 *
 *   NONE    the create is sent                             UNSURE       enter; take
 *   UNSURE  the create is answered                         NONE,        created, created_beside;
 *                                                          EXISTS       one_taken, all_taken
 *           a search after a lost answer                   NONE,        zk_queue_found;
 *                                                          EXISTS       leases_found
 *   EXISTS  a delete by the waiter is answered             NONE         deleted, mutex_left
 *           the waiter starts over                         NONE         begin_anew
 *   any     the session has ended                          NONE         zk_waiter_expired
 *
 * The leases stay EXISTS while the waiter leaves; the waiter ends after their deletes.
 *
 * `own_is` is what the waiter has heard of its node, or of its first lease:
 *
 *   UNWATCHED  the node was read, with a watch             WATCHED      own_read
 *   WATCHED    an event, a new connection, new leases      UNWATCHED    zk_waiter_woken,
 *                                                                       zk_waiter_go, take
 *   any        somebody else deleted the node or a lease   GONE         own_read, zk_waiter_woken,
 *                                                                       deleted, lease_deleted
 *   any        a new node; the session has ended           UNWATCHED    enter, zk_waiter_expired
 *
 * GONE in HOLDS is a lost lock: zk_holds denies the grant, and the waiter stays until the RELEASE.
 */
#ifndef PAWL_ZK_WAITER_H
#define PAWL_ZK_WAITER_H

#include "kit/waiter.h"
#include "zk.h"

#define WAITER_WATCH_MS 100 /* the own node is watched after this time */

typedef struct zk_waiter zk_waiter;

enum zk_waiter_state { WAITER_ASKS, WAITER_HOLDS, WAITER_LEAVES };

/* The waiter's node, or its leases, in the server. */
enum zk_node_state {
    NODE_NONE,
    NODE_UNSURE, /* a create was sent and not answered */
    NODE_EXISTS
};

/* The node, or the first lease, as last heard of. */
enum zk_own_state {
    OWN_UNWATCHED,
    OWN_WATCHED,
    OWN_GONE /* the server does not have the node any more */
};

/* The folders above the node. */
enum zk_folders {
    FOLDERS_EXIST,   /* as far as is known */
    FOLDERS_MISSING, /* to be created together with the node */
    FOLDERS_DENIED   /* also, the right to create one of the folders is perhaps missing */
};

/* The request that a waiter has out, or the event that the waiter waits for. */
enum zk_waiter_step {
    STEP_IDLE,   /* nothing: waits for a watch to fire, or is held */
    STEP_PEEK,   /* reads the queue, before the waiter has a node */
    STEP_ENTER,  /* creates the node, and reads the queue after that */
    STEP_FIND,   /* searches for the node of a create that got no answer */
    STEP_STAT,   /* ... and reads when the node that was found was created */
    STEP_RECHECK, /* reads the queue again, with the own node in it */
    STEP_WATCH,  /* asks for an event when the node ahead is deleted */
    STEP_MORE,   /* a request of the waiter's kind */
    STEP_VERIFY, /* held: reads the own node, and asks for an event when it is deleted */
    STEP_TRIM,   /* held: gives some permits back */
    STEP_LEAVE,  /* leaving: searches for nodes that may have to be deleted */
    STEP_GONE    /* leaving: deletes all nodes */
};

/* The decision of a kind. A PAWL_E... code means instead: refused. */
enum zk_waiter_verdict {
    WAITER_GRANTED = 0,
    WAITER_BLOCKED = 1, /* by the node `list.ahead`, or until the watch `ahead` fires */
    WAITER_GOES_ON = 2, /* more requests were sent and the step was set, mostly to STEP_MORE */
    WAITER_ANEW = 3     /* the own node is gone: the waiter must start over */
};

typedef struct zk_waiter_kind {
    const char *dir;  /* folder below the name for the nodes; NULL: the name itself */
    bool peeks;       /* peek first, even if the waiter may queue */
    /* Send the requests that read the queue. */
    void (*query)(zk_waiter *w);
    int (*decide)(zk_waiter *w);
    /* STEP_MORE was answered: decide again. NULL: this kind never sends more requests. */
    int (*more)(zk_waiter *w);
} zk_waiter_kind;

extern const zk_waiter_kind zk_waiter_lock, zk_waiter_permits, zk_waiter_latch;

/* The contents of a list of children (queue.c). */
typedef struct zk_waiter_queue {
    int error;
    bool own;             /* the waiter's own node is in the list */
    bool locks, latch, semaphore; /* uses of the name; semaphore: perhaps a former use */
    size_t others;        /* contenders besides this waiter */
    char *ahead, *first;  /* nodes: the one to wait for, and the first of the queue */
    int32_t ahead_sequence, first_sequence;
} zk_waiter_queue;

struct zk_waiter {
    zk_task task;
    struct list in_table;
    const zk_waiter_kind *kind;
    struct list ops;      /* waiting ACQUIRE ops; several if the core repeated the op */
    struct list releases; /* waiting RELEASE ops */
    zk_watch ahead, own;
    pawl_timer timer;     /* time to watch the own node. Leaving: finish the ops anyway */
    uint64_t seq, token;
    uint64_t with_seq;
    int64_t count;        /* the capacity that the acquire asked for */
    uint32_t permits;
    enum zk_waiter_state state;
    enum zk_waiter_step step;
    enum zk_node_state node_is, leases_are;
    enum zk_own_state own_is;
    enum zk_folders folders;
    uint8_t mode, lock_kind;
    uint16_t epoch;       /* number of the session that the nodes belong to */
    bool queue;
    bool sure;            /* peeks behind a write of its own: sees all finished writes */
    bool made_leases;     /* created a semaphore's folder, perhaps for nothing */
    bool waited, again;   /* again: something changed while requests were out */
    bool repeated;        /* a delete got no answer: "no such node" may be its effect */
    int code;             /* of the last request that failed; leaving: the op's result */
    char words[ZK_WORDS];
    unsigned tries;
    int32_t sequence;
    zk_waiter_queue list; /* the result of the last query */
    char node[ZK_NODE_MAX]; /* NODE_EXISTS: name of the own node with the sequence */

    /* permits.c */
    bool watches_leases, not_semaphore;
    uint8_t asked;        /* in STEP_MORE: enum asked */
    int64_t capacity;     /* as written in the node of the name; 0: unknown */
    int64_t in_use;       /* number of leases that exist */
    int64_t first_wants;
    int32_t *leases;      /* sequences of this waiter's leases */
    uint32_t nleases;
    uint32_t keep, trim;  /* keep: permits that a release keeps; trim: `keep` as sent */

    char name[];
};

static inline zk_waiter *zk_waiter_of(zk_task *task)
{
    return (zk_waiter *)(void *)((char *)task - offsetof(zk_waiter, task));
}

/* Does the grant still exist, as far as is known? */
static inline bool zk_waiter_holds(const zk_waiter *w)
{
    return w->state == WAITER_HOLDS && w->own_is != OWN_GONE;
}

/* The link of an op in the lists of a waiter. */
static inline struct list *zk_waiter_link(pawl_op *op)
{
    return (struct list *)(void *)op->engine;
}

static inline pawl_op *zk_waiter_op(struct list *link)
{
    return (pawl_op *)(void *)((char *)link - offsetof(pawl_op, engine));
}

/* ---- waiters.c ------------------------------------------------------------------------------- */

zk_waiter *zk_waiter_find(zk *z, uint64_t seq);
void zk_waiter_finish(struct list *ops, int code, const char *words);
/* The lock is held: finish the waiting ACQUIRE ops. */
void zk_waiter_answer(zk_waiter *w);
/* The server has no node of the waiter any more: free the waiter and finish its ops. */
void zk_waiter_end(zk_waiter *w, int release_code);
void zk_waiter_timer(zk_waiter *w, int64_t ms);
/* The task's reactions when the session has ended, and when no connection is possible. */
void zk_waiter_expired(zk_task *task);
void zk_waiter_refused(zk_task *task, int code, const char *words);

/* ---- waiter.c -------------------------------------------------------------------------------- */

extern const zk_task_type zk_waiter_type;

/* The waiter's node exists and has this name. False: not the name of one of our nodes. */
bool zk_waiter_keep_node(zk_waiter *w, jute_bytes name);
/* A zk_answer_fn that only records errors. */
bool zk_waiter_noted(zk_task *task, int64_t tag, int error, jute_reader *body);
void zk_waiter_note(zk_waiter *w, int error);
/* Read the queue again. */
void zk_waiter_recheck(zk_waiter *w);
/* Read again the node that the waiter waits for or holds. */
void zk_waiter_check(zk_waiter *w);
/* Read and watch the waiter's own node, or the first lease. */
void zk_waiter_ask_own(zk_waiter *w);
const char *zk_waiter_node_path(zk_waiter *w, const char *node);

/* ---- queue.c --------------------------------------------------------------------------------- */

void zk_queue_clear(zk_waiter_queue *q);
int zk_waiter_in_use(zk_waiter *w); /* returns PAWL_ESTATE and sets the error text */
/* The name of the waiter's node without the sequence. */
void zk_waiter_node_id(const zk_waiter *w, char ret[ZK_NODE_MAX]);
/* A zk_answer_fn: reads the children of the folder that has the waiter's node. */
bool zk_queue_answered(zk_task *task, int64_t tag, int error, jute_reader *body);
/* A zk_answer_fn: searches these children for the waiter's node, by the node's id. */
bool zk_queue_found(zk_task *task, int64_t tag, int error, jute_reader *body);
/* A zk_answer_fn: reads the children of the name, if that is another folder, for the uses of the
 * name. */
bool zk_queue_types(zk_task *task, int64_t tag, int error, jute_reader *body);

/* ---- permits.c ------------------------------------------------------------------------------- */

/* Delete the leases from index `keep` on. */
void zk_permits_give_back(zk_waiter *w, uint32_t keep);
/* Search for leases whose create was not answered. */
void zk_permits_find(zk_waiter *w);
/* Delete the waiter's node in the semaphore's own mutex. */
void zk_permits_leave_mutex(zk_waiter *w);
const char *zk_permits_lease_path(zk_waiter *w, uint32_t i);

#endif
