/* SPDX-License-Identifier: Apache-2.0
 *
 * waiter.h - one acquire and what it has in the server, from its first request to the end of its
 * grant. What locks, semaphores and latches have in common is in waiter.c; what differs is a
 * zk_waiter_kind.
 */
#ifndef PAWL_ZK_WAITER_H
#define PAWL_ZK_WAITER_H

#include "kit/waiter.h"
#include "zk.h"

#define WAITER_WATCH_MS 100 /* so long its own node is not watched */

typedef struct zk_waiter zk_waiter;

/* What a waiter has asked for, or waits for. */
enum zk_waiter_step {
    STEP_IDLE,   /* nothing: it waits for a watch, or is held */
    STEP_PEEK,   /* how things stand, before it has a node */
    STEP_ENTER,  /* to create its node, and how things stand then */
    STEP_FIND,   /* whether a create whose answer was lost was carried out */
    STEP_STAT,   /* ... of the node that was found: when it was created */
    STEP_RECHECK, /* how things stand, and whether its node is still there */
    STEP_WATCH,  /* to be told when the one ahead goes */
    STEP_MORE,   /* something of its kind's own */
    STEP_VERIFY, /* held: whether its node is still there; and to be told when it goes */
    STEP_TRIM,   /* held: some permits go back */
    STEP_LEAVE,  /* leaving: what there may be to delete */
    STEP_GONE    /* leaving: to delete everything */
};

/* What a kind decides. Else a PAWL_E... code: refused. */
enum zk_waiter_verdict {
    WAITER_GRANTED = 0,
    WAITER_BLOCKED = 1, /* by the node `ahead_node`, or by what the watch `ahead` is about */
    WAITER_GOES_ON = 2, /* more was asked, and the step set: STEP_MORE mostly */
    WAITER_ANEW = 3     /* its node is gone: it must begin again */
};

typedef struct zk_waiter_kind {
    const char *dir;  /* below the name, where its node is; NULL: there itself */
    bool peeks;       /* also if it may queue */
    /* Ask how things stand. */
    void (*query)(zk_waiter *p);
    int (*decide)(zk_waiter *p);
    /* STEP_MORE was answered: another verdict. NULL: it never goes on. */
    int (*more)(zk_waiter *p);
} zk_waiter_kind;

extern const zk_waiter_kind zk_waiter_lock, zk_waiter_permits, zk_waiter_latch;

/* What a list of children said (queue.c). */
typedef struct zk_waiter_queue {
    int error;
    bool own;             /* its own node is there */
    bool locks, latch, semaphore; /* what the name is in use as; semaphore: only has been, maybe */
    size_t others;        /* contenders beside it */
    char *ahead, *first;  /* nodes: who must go before it, and who is at the front */
    int32_t ahead_sequence, first_sequence;
} zk_waiter_queue;

struct zk_waiter {
    zk_task task;
    struct list in_table;
    const zk_waiter_kind *kind;
    struct list ops;      /* ACQUIRE ops that wait: one, or it was repeated */
    struct list releases; /* RELEASE ops that wait */
    zk_watch ahead, own;
    pawl_timer timer;     /* HELD: to be watched. Leaving: its op is told in any case */
    uint64_t seq, token;
    uint64_t with_seq;
    int64_t count;        /* the capacity that was asked for */
    uint32_t permits;
    uint8_t mode, lock_kind, step;
    uint16_t epoch;       /* of the session that its nodes belong to */
    bool queue;
    bool sure;            /* it peeks in its turn: no write of others that is over is missing */
    bool unsure;          /* a create of its node was sent and not answered */
    bool folders;         /* the folders are missing */
    bool denied;          /* the right to make one of them is, maybe */
    bool made_leases;     /* a semaphore's folder, which nobody may ever use */
    bool held, gone;      /* gone: the server no longer has the node */
    bool watched;         /* its own node is */
    bool waited, again;   /* again: something happened while it was asking */
    bool recheck;         /* there is a new connection: its own node is to be read */
    bool leaving, repeated;
    int code;             /* of the last request that failed; leaving: what the op gets */
    char words[ZK_WORDS];
    unsigned tries;
    int32_t sequence;
    zk_waiter_queue list; /* what the last query said */
    char node[ZK_NODE_MAX]; /* its node's name with the sequence, or "" */

    /* permits.c */
    bool taking;          /* leases were asked for and not answered */
    bool watches_leases, not_semaphore;
    uint8_t asked;        /* in STEP_MORE: enum asked */
    int64_t capacity;     /* as written at the name, 0 unknown */
    int64_t in_use;       /* leases that exist */
    int64_t first_wants;
    int32_t *leases;      /* their sequences */
    uint32_t nleases;
    uint32_t keep, trim;  /* a release wants to keep so many; so many are being kept */

    char name[];
};

static inline zk_waiter *zk_waiter_of(zk_task *task)
{
    return (zk_waiter *)(void *)((char *)task - offsetof(zk_waiter, task));
}

/* The link of an op in a list of a waiter's. */
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
/* The server has nothing of it any more. */
void zk_waiter_end(zk_waiter *p, int release_code);
void zk_waiter_timer(zk_waiter *p, int64_t ms);
/* The session is over, or no connection can be had: what that means for a waiter. */
void zk_waiter_expired(zk_task *task);
void zk_waiter_refused(zk_task *task, int code, const char *words);

/* ---- waiter.c -------------------------------------------------------------------------------- */

extern const zk_task_type zk_waiter_type;

/* It is granted, or was: tell those who wait. */
void zk_waiter_grant(zk_waiter *p);
/* An answer that only matters if it is an error. */
bool zk_waiter_noted(zk_task *task, int64_t tag, int error, jute_reader *body);
void zk_waiter_note(zk_waiter *p, int error);
/* Ask again how things stand. */
void zk_waiter_recheck(zk_waiter *p);
/* Ask again for what it waits for, or holds. */
void zk_waiter_check(zk_waiter *p);
/* Ask for its own node, or its first lease, and to be told when that goes. */
void zk_waiter_ask_own(zk_waiter *p);
int zk_waiter_in_use(zk_waiter *p); /* PAWL_ESTATE, with words */
const char *zk_waiter_node_path(zk_waiter *p, const char *node);

/* ---- queue.c --------------------------------------------------------------------------------- */

void zk_queue_clear(zk_waiter_queue *q);
/* A zk_answer_fn: the children of the folder that its node is in. */
bool zk_queue_answered(zk_task *task, int64_t tag, int error, jute_reader *body);
/* ... whether its node is among them, by its id. */
bool zk_queue_found(zk_task *task, int64_t tag, int error, jute_reader *body);
/* ... of the name, if that is another folder: what it is in use as. */
bool zk_queue_types(zk_task *task, int64_t tag, int error, jute_reader *body);

/* ---- permits.c ------------------------------------------------------------------------------- */

/* Delete the leases from number `keep` on. */
void zk_permits_give_back(zk_waiter *p, uint32_t keep);
/* Find those that may exist. */
void zk_permits_find(zk_waiter *p);
/* Delete the node in the semaphore's own mutex. */
void zk_permits_leave_mutex(zk_waiter *p);
const char *zk_permits_lease_path(zk_waiter *p, uint32_t i);

#endif
