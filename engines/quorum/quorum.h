/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum.h - the parts of the engine "quorum:" (quorum.c explains how and why the engine works).
 *
 *     node.c        one inner engine: up or down, age of the store, events
 *     attempt.c     one try to acquire one name at all nodes
 *     token.c       whether an attempt has won
 *     giveback.c    giving back an attempt at each node that has or may have a grant; RELEASE
 *     acquire.c     ACQUIRE: one attempt after the other, until one wins
 *     broadcast.c   one request to all nodes; BREAK
 *     renew.c       RENEW, and repairing a grant that a node has lost
 *     inspect.c     INSPECT and LIST
 *     error_text.c  the answers of the nodes, as an error text
 *
 * Only tasks call inner engines: an inner engine's op->done only records the answer and puts a task
 * on a list. The list is processed when no inner engine is on the stack (quorum_later).
 */
#ifndef PAWL_QUORUM_H
#define PAWL_QUORUM_H

#include "engine.h"
#include "list.h"

#define QUORUM_MOST 31 /* nodes */
#define QUORUM_HASH 1024
#define QUORUM_PACES 8

typedef struct quorum quorum;
typedef struct quorum_attempt quorum_attempt;
typedef struct quorum_acquire quorum_acquire;
typedef struct quorum_broadcast quorum_broadcast;

typedef struct quorum_task {
    struct list link; /* in quorum.todo */
    void (*run)(struct quorum_task *task);
} quorum_task;

/* ---- node.c ---------------------------------------------------------------------------------- */

typedef struct quorum_node {
    quorum *quorum;
    pawl_instance inner;
    bool down;     /* the last answer was an error or is overdue: don't wait for this node */
    char why[80];  /* down: the error text, or "" */
    int64_t heard; /* when the node last answered */
    int64_t pace;  /* the time of an answer, ns; 0: there was none yet */
    int64_t took[QUORUM_PACES];
    uint32_t answers;
    int64_t born;  /* the store started at this instant or earlier; 0: unknown, counts as old */

    pawl_op event;
    bool event_out;
    quorum_task event_again;

    /* While acquires wait in the node's queue, a probe from time to time checks the node. */
    size_t waiters;
    pawl_op probe;
    pawl_renewal probe_item;
    int64_t probe_sent;
    bool probe_out, probe_canceled;
    pawl_timer probe_timer;
    char probe_name[PAWL_NAME_MAX + 1];
} quorum_node;

void quorum_node_submit(quorum_node *n, pawl_op *op);
void quorum_node_cancel(quorum_node *n, pawl_op *op);
/* The node has answered `op`: update `down`. asked: when the op was sent, for the pace; or 0. */
void quorum_node_answered(quorum_node *n, const pawl_op *op, int64_t asked);
/* The node's answer is overdue: don't wait for the node any longer. */
void quorum_node_is_down(quorum_node *n);
/* The age that a store must have for its grants to count. */
int64_t quorum_settle_ms(const quorum *q);
/* Is the store younger than that? Then the node's grants don't count. */
bool quorum_node_young(const quorum_node *n, int64_t now);
/* The instant until which to wait for the answer to an op that was sent at `sent`. */
int64_t quorum_node_patience(const quorum_node *n, int64_t sent);
/* The time that the answers of a majority take, ns. */
int64_t quorum_pace(const quorum *q);
/* The first node that is up and not much slower than a majority; q->n: none. */
size_t quorum_gate(const quorum *q);
/* The instant until which to wait for the gate, which was asked at `sent`; a majority had answered
 * at `sure`. */
int64_t quorum_gate_patience(const quorum *q, int64_t sent, int64_t sure);
/* An acquire begins (or ends) to wait in this node's queue. */
void quorum_node_wait(quorum_node *n, const char *name);
void quorum_node_unwait(quorum_node *n);
void quorum_node_listen(quorum_node *n);
void quorum_node_end(quorum_node *n);

/* ---- attempt.c ------------------------------------------------------------------------------- */

/* The state of an attempt at one node.
 *     ours   the node has granted the name, and the grant has not been given back
 *     doubt  the outcome is unknown: counts as not granted, and is given back later
 *     out    an ACQUIRE has no answer yet; back_out: a RELEASE has none. Both: the RELEASE was
 *            sent after the ACQUIRE
 */
typedef struct quorum_node_state {
    quorum_attempt *attempt;
    pawl_op op, back;
    pawl_error err;
    bool out, again, canceled; /* again: ours when the ACQUIRE was sent */
    bool back_out, back_canceled;
    bool ours, doubt, freed;   /* freed: a RELEASE has ended the grant */
    int said;         /* the answer to the last ACQUIRE; QUORUM_SILENT: none */
    uint64_t token;   /* the grant's token */
    uint64_t mark;    /* the node's counter was at least this high while the grant was ours */
    int64_t sent, back_sent;
    int64_t from;     /* an instant not after the lease began */
    int64_t end;      /* from + lease */
    int64_t missed;   /* HELD: since when the node is known to lack the grant; 0: not lacking */
} quorum_node_state;

#define QUORUM_SILENT 1 /* no answer; positive, unlike all codes */

enum quorum_attempt_state { ATTEMPT_OPEN, ATTEMPT_HELD, ATTEMPT_VOID };

struct quorum_attempt {
    struct list link;           /* in quorum.attempts */
    quorum_attempt *next;       /* in quorum.held: same hash */
    quorum_task task;           /* VOID: gives the grants back */
    quorum *quorum;
    quorum_acquire *acquire;    /* OPEN: its acquire. VOID: an acquire that waits for the end */
    pawl_op *release;           /* VOID: the RELEASE that waits for the end */
    enum quorum_attempt_state state;
    uint64_t seq;               /* the submitter's number; owner.seq is this attempt's own */
    pawl_owner owner;
    uint64_t with_seq;
    uint64_t token;             /* HELD */
    uint64_t floor;             /* the floor in the first request */
    uint64_t goal;              /* the token to which the nodes are being raised */
    int64_t lease_ms, linger_ms;
    int64_t deadline;
    int64_t sure;               /* VOID: when a majority had released */
    int64_t until;              /* HELD: end of the last lease; VOID: when to give up */
    uint32_t tokens, tries;
    uint8_t mode, lock_kind;
    bool listed;                /* in quorum.held */
    pawl_timer timer;
    char name[PAWL_NAME_MAX + 1];
    quorum_node_state node_states[];
};

typedef struct quorum_tally {
    size_t votes;    /* nodes with state `ours` that vote */
    size_t possible; /* votes, and nodes that may still become one */
    size_t busy;     /* nodes where another owner holds the name */
    size_t hopeless; /* refused for a permanent reason */
    size_t pending;  /* no answer yet from nodes that are up */
    int reason;      /* of the hopeless nodes, if all have the same; else PAWL_EQUORUM */
} quorum_tally;

/* NULL: no memory. */
quorum_attempt *quorum_attempt_new(quorum_acquire *acquire);
void quorum_attempt_free(quorum_attempt *a);
void quorum_attempt_ask(quorum_attempt *a, size_t node, bool queue, uint64_t floor);
/* Does the node's grant count? */
bool quorum_attempt_votes(const quorum_attempt *a, size_t node, int64_t now);
quorum_tally quorum_attempt_count(const quorum_attempt *a, int64_t now);
/* The next instant when an answer becomes overdue; PAWL_NEVER: no answer is awaited. */
int64_t quorum_attempt_patience(const quorum_attempt *a, int64_t now);
/* Mark the nodes whose answers are overdue as down. */
void quorum_attempt_overdue(const quorum_attempt *a, int64_t now);
/* Has the attempt won? Then op's answer is filled in. */
bool quorum_attempt_won(quorum_attempt *a, int64_t now, pawl_op *op);
/* A majority has granted, but with different tokens: raise the nodes to the largest token. */
void quorum_attempt_raise(quorum_attempt *a, int64_t now);
/* Set the error text: "2 of 5: node 1 ok, 2 ok, 3 busy, ..." */
void quorum_attempt_error(const quorum_attempt *a, pawl_error *err, int code);
/* A floor that is probably above the counters of the nodes. */
uint64_t quorum_floor(const quorum *q);
void quorum_held_add(quorum_attempt *a);
quorum_attempt *quorum_held_find(const quorum *q, uint64_t seq);

/* ---- giveback.c ------------------------------------------------------------------------------ */

/* Give back all grants of the attempt, late ones too; then the attempt frees itself. */
void quorum_void(quorum_attempt *a);
/* Give back as much as possible at once, because the engine closes. */
void quorum_give_back_now(quorum_attempt *a);
/* Is no answer awaited, and is nothing left to be given back? */
bool quorum_node_state_quiet(const quorum_node_state *s);
void quorum_release(quorum *q, pawl_op *op);
void quorum_release_cancel(quorum *q, pawl_op *op);
void quorum_give_back_run(quorum_task *task);
/* The attempt became HELD, or its lease was extended to `end`. */
void quorum_hold_until(quorum_attempt *a, int64_t end);

/* ---- acquire.c ------------------------------------------------------------------------------- */

enum quorum_phase { ACQUIRE_TRY, ACQUIRE_WAIT, ACQUIRE_CLAIM, ACQUIRE_PAUSE, ACQUIRE_END };

struct quorum_acquire {
    struct list link; /* in quorum.acquires */
    quorum_task task;
    quorum *quorum;
    pawl_op *op;
    quorum_attempt *attempt; /* NULL in PAUSE */
    pawl_timer timer;
    enum quorum_phase phase;
    size_t gate;           /* see acquire.c; quorum.n: none */
    int64_t sure;          /* TRY: when a majority had granted */
    uint32_t tries;
    uint32_t failed;       /* CLAIMs that failed */
    bool waited, over;     /* over: the timer has fired */
    bool gate_left;        /* WAIT: the gate is down */
    bool whole;            /* END: the attempt had asked all nodes, so their error texts are
                              known */
    int64_t free_since;    /* since when only the gate refuses; 0: unknown, or it does not */
    quorum_broadcast *peek; /* WAIT: the peek that has no answer yet, or NULL */
    int code;              /* END: the answer; before: why the last try failed */
    pawl_error error;
};

void quorum_acquire_submit(quorum *q, pawl_op *op);
void quorum_acquire_cancel(quorum *q, pawl_op *op);
void quorum_acquire_start(quorum *q, pawl_op *op);
/* The attempt of an acquire in END is given back. */
void quorum_acquire_given_back(quorum_acquire *acquire);
/* The node is down: acquires in WAIT at this node must leave. */
void quorum_acquires_leave(quorum *q, const quorum_node *n);

/* ---- broadcast.c ----------------------------------------------------------------------------- */

typedef struct quorum_row {
    struct quorum_row *next;
    pawl_info info;
    char text[];
} quorum_row;

typedef struct quorum_answer {
    quorum_broadcast *broadcast;
    pawl_op op;
    pawl_error err;
    bool out, canceled, given_up, healed;
    /* A peek: the node reports a holder, an exclusive one, a waiter. Waiters, up to the acquire's
     * own row: a reader, a writer, a writer before the first reader; the own row itself. */
    bool held, held_alone, queued;
    bool reader, writer, writer_first, own;
    int code; /* QUORUM_SILENT: none yet */
    pawl_renewal *batch;
    quorum_row *rows, **rows_end;
} quorum_answer;

struct quorum_broadcast {
    struct list link; /* in quorum.broadcasts */
    quorum_task task;
    quorum *quorum;
    pawl_op *outer; /* NULL: answered, or given up */
    uint8_t kind;
    bool no_memory, canceled;
    int64_t sent;
    pawl_timer timer;
    pawl_finding_fn *finding; /* EXAMINE: called for each finding; arg: the answer */
    pawl_info_fn *row; /* called for each row of a node; arg: the answer */
    /* Complete the outer op, if the answers suffice; with `pending` 0 in any case. */
    void (*judge)(quorum_broadcast *b, size_t pending);
    /* Called after each answer, also late ones; or NULL. */
    void (*after)(quorum_broadcast *b);
    void (*forget)(quorum_broadcast *b); /* frees the broadcast's data, or NULL */
    /* A peek, for an acquire: */
    bool is_peek;
    pawl_op peek; /* the outer op of a peek */
    /* NULL: no peek, or the peek was reported or forgotten. */
    void (*told)(quorum_acquire *acquire, const quorum_broadcast *peek);
    quorum_acquire *acquire;
    pawl_owner owner; /* of the acquire's attempt */
    /* RENEW */
    size_t nitems;
    pawl_renewal *items; /* with the attempts' owners; code: the verdict, or QUORUM_SILENT */
    uint64_t *seqs;      /* the submitter's numbers */
    int32_t *place;      /* in the submitter's batch */
    char *texts;
    char name[PAWL_NAME_MAX + 1];
    quorum_answer answers[];
};

/* A broadcast for op, not sent yet. NULL: no memory, and op was completed with PAWL_ENOMEM. */
quorum_broadcast *quorum_broadcast_new(quorum *q, pawl_op *op, uint8_t kind);
void quorum_broadcast_send(quorum_broadcast *b);
void quorum_broadcast_cancel(quorum *q, pawl_op *op);
void quorum_broadcast_free(quorum_broadcast *b);
void quorum_broadcast_error(const quorum_broadcast *b, pawl_error *err, int code);
void quorum_break(quorum *q, pawl_op *op);
/* Ask all nodes for the holders of `name`. told() is called once, from a task, unless the peek is
 * forgotten before. NULL: no memory. */
quorum_broadcast *quorum_peek(quorum *q, const char *name,
                              void (*told)(quorum_acquire *acquire, const quorum_broadcast *peek),
                              quorum_acquire *acquire);
/* The number of nodes that vote and report no holder; the node `but` is not counted. */
size_t quorum_peek_vacant(const quorum_broadcast *b, size_t but);
/* The number of nodes that vote, report no exclusive holder, and no waiter; the gate is not
 * counted. 0 if the gate has no exclusive holder, or if a writer waits there before the acquire. */
size_t quorum_peek_readable(const quorum_broadcast *b, size_t gate);
/* The number of nodes whose answer counts: a holder, or a vote. */
size_t quorum_peek_there(const quorum_broadcast *b);
void quorum_peek_forget(quorum_broadcast *b);

/* renew.c, inspect.c */
void quorum_renew(quorum *q, pawl_op *op);
/* Answer a repeated ACQUIRE of the holder. */
void quorum_confirm(quorum *q, pawl_op *op, const quorum_attempt *a);
void quorum_inspect(quorum *q, pawl_op *op);
void quorum_examine(quorum *q, pawl_op *op); /* examine.c */

/* ---- quorum.c -------------------------------------------------------------------------------- */

struct quorum {
    pawl_env *env;
    size_t n, majority;
    quorum_node *nodes;
    uint32_t caps;
    bool fences, closed, pumping, moved;
    int64_t settle_ms;  /* settle= of the URL; 0: see node.c */
    int64_t longest_ms; /* the longest requested lease */
    uint64_t last_seq;
    struct list todo, attempts, acquires, broadcasts, spare;
    size_t nspare;
    quorum_attempt *held[QUORUM_HASH];
    pawl_timer soon;
    pawl_events events;
};

/* Run the task when no inner engine is on the stack, soon. */
void quorum_later(quorum *q, quorum_task *task);
void quorum_pump(quorum *q);
void quorum_forget_task(quorum_task *task);
/* A random number from 0 to most. */
int64_t quorum_random(quorum *q, int64_t most);

static inline int64_t quorum_now(const quorum *q)
{
    return q->env->now(q->env);
}

/* ---- identity.c ------------------------------------------------------------------------------ */

int quorum_identity(void *self, char *ret, size_t size);

#endif
