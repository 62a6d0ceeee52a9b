/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h - one acquire and what it has in the server, from its first request to the end of its
 * grant. What locks, semaphores and latches have in common is in place.c; what differs is a
 * place_kind.
 */
#ifndef PAWL_ZK_PLACE_H
#define PAWL_ZK_PLACE_H

#include "zk.h"

#define PLACE_WATCH_MS 100 /* so long its own node is not watched */

typedef struct zk_place zk_place;

/* What a place has asked for, or waits for. */
enum place_step {
    STEP_IDLE,   /* nothing: it waits for a watch, or is held */
    STEP_PEEK,   /* how things stand, before it has a node */
    STEP_ENTER,  /* to create its node, and how things stand then */
    STEP_FIND,   /* whether a create whose answer was lost was carried out */
    STEP_STAT,   /* ... of the node that was found: when it was created */
    STEP_LOOK,   /* how things stand, and whether its node is still there */
    STEP_WATCH,  /* to be told when the one ahead goes */
    STEP_MORE,   /* something of its kind's own */
    STEP_VERIFY, /* held: whether its node is still there; and to be told when it goes */
    STEP_TRIM,   /* held: some permits go back */
    STEP_LEAVE,  /* leaving: what there may be to delete */
    STEP_GONE    /* leaving: to delete everything */
};

/* What a kind decides. Else a PAWL_E... code: refused. */
enum place_verdict {
    PLACE_GRANTED = 0,
    PLACE_BLOCKED = 1, /* by the node `ahead_node`, or by what the watch `ahead` is about */
    PLACE_GOES_ON = 2, /* more was asked, and the step set: STEP_MORE mostly */
    PLACE_ANEW = 3     /* its node is gone: it must begin again */
};

typedef struct place_kind {
    const char *dir;  /* below the name, where its node is; NULL: there itself */
    bool peeks;       /* also if it may queue */
    /* Ask how things stand. */
    void (*look)(zk_place *p);
    int (*decide)(zk_place *p);
    /* STEP_MORE was answered: another verdict. NULL: it never goes on. */
    int (*more)(zk_place *p);
} place_kind;

extern const place_kind place_lock, place_permits, place_latch;

/* What a list of children said (queue.c). */
typedef struct place_queue {
    int error;
    bool own;             /* its own node is there */
    bool locks, latch, semaphore; /* what the name is in use as; semaphore: only has been, maybe */
    size_t others;        /* contenders beside it */
    char *ahead, *first;  /* nodes: who must go before it, and who is at the front */
    int32_t ahead_sequence, first_sequence;
} place_queue;

struct zk_place {
    zk_task task;
    struct list in_table;
    const place_kind *kind;
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
    place_queue list;     /* what the last look said */
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

static inline zk_place *place_of(zk_task *task)
{
    return (zk_place *)(void *)((char *)task - offsetof(zk_place, task));
}

/* The link of an op in a list of a place's. */
static inline struct list *place_link(pawl_op *op)
{
    return (struct list *)(void *)op->engine;
}

static inline pawl_op *place_op(struct list *link)
{
    return (pawl_op *)(void *)((char *)link - offsetof(pawl_op, engine));
}

/* ---- places.c -------------------------------------------------------------------------------- */

zk_place *place_find(zk *z, uint64_t seq);
void place_finish(struct list *ops, int code, const char *words);
/* The server has nothing of it any more. */
void place_end(zk_place *p, int release_code);
void place_timer(zk_place *p, int64_t ms);
/* The session is over, or no connection can be had: what that means for a place. */
void place_expired(zk_task *task);
void place_refused(zk_task *task, int code, const char *words);

/* ---- place.c --------------------------------------------------------------------------------- */

extern const zk_task_type place_type;

/* It is granted, or was: tell those who wait. */
void place_grant(zk_place *p);
/* An answer that only matters if it is an error. */
bool place_noted(zk_task *task, int64_t tag, int error, jute_reader *body);
void place_note(zk_place *p, int error);
/* Ask again how things stand. */
void place_look(zk_place *p);
/* Ask again for what it waits for, or holds. */
void place_check(zk_place *p);
/* Ask for its own node, or its first lease, and to be told when that goes. */
void place_ask_own(zk_place *p);
int place_in_use(zk_place *p); /* PAWL_ESTATE, with words */
const char *place_node_path(zk_place *p, const char *node);

/* ---- queue.c --------------------------------------------------------------------------------- */

void zk_queue_clear(place_queue *q);
/* A zk_answer_fn: the children of the folder that its node is in. */
bool zk_queue_answered(zk_task *task, int64_t tag, int error, jute_reader *body);
/* ... whether its node is among them, by its id. */
bool zk_queue_found(zk_task *task, int64_t tag, int error, jute_reader *body);
/* ... of the name, if that is another folder: what it is in use as. */
bool zk_queue_types(zk_task *task, int64_t tag, int error, jute_reader *body);

/* ---- permits.c ------------------------------------------------------------------------------- */

/* Delete the leases from number `keep` on. */
void zk_permits_give_back(zk_place *p, uint32_t keep);
/* Find those that may exist. */
void zk_permits_find(zk_place *p);
/* Delete the node in the semaphore's own mutex. */
void zk_permits_leave_mutex(zk_place *p);
const char *zk_permits_lease_path(zk_place *p, uint32_t i);

#endif
