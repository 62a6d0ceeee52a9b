/* SPDX-License-Identifier: Apache-2.0
 *
 * acquire.c - ACQUIRE: one attempt after the other, until one wins or the op is cancelled.
 *
 *     TRY    all nodes are asked at once, not queued. A majority decides, for or against; but one
 *            node, the gate, has a veto. The gate is the first node that is up and not much slower
 *            than the rest; so all clients have the same gate if they see the same nodes.
 *     WAIT   nothing is held; the acquire stands in the gate's queue.
 *     CLAIM  the gate has granted: the others are asked, queued now, and the gate once more.
 *     PAUSE  nothing is held, no answer is awaited.
 *     END    the answer is certain; grants are being given back.
 *
 *     (new) -> TRY -> won
 *              TRY -> lost, not queued -> END; or PAUSE and TRY, if perhaps no owner has won
 *              TRY -> lost, the gate granted -> CLAIM;  gate not granted -> WAIT
 *              WAIT -> granted -> CLAIM;  the gate is down -> PAUSE -> TRY
 *              CLAIM -> won;  not won in time -> everything given back, PAUSE -> TRY
 *              any -> cancel -> END
 *
 * THE VETO keeps the order: all waiters stand in the gate's queue, and while there are waiters, the
 * gate grants nothing past them. So a TRY overtakes no waiter, though the other nodes would grant
 * the name. A gate that keeps a majority waiting for too long (node.c) loses its veto, and is no
 * gate until it answers. The gate decides only the order; exclusion depends on the majority alone.
 *
 * A STALE GRANT at the gate (of a client that ended, or whose release was lost there) must not
 * delay an acquire while a majority is free. During a hand-over the other nodes are free for a
 * moment while the gate is not; so an acquire overrules the gate only if a majority without the
 * gate was free twice, BRIEF apart. An acquire in TRY tries a second time after BRIEF. An acquire
 * in WAIT keeps its place in the gate's queue and peeks (INSPECT) at the nodes BRIEF after a try
 * that found them free, else every one to two timeouts; if the nodes are free twice, the acquire
 * continues with CLAIM without the gate. So a stale grant delays a waiter for two timeouts and two
 * BRIEFs at most, not for the rest of the grant's lease.
 *     For a reader, nodes at which only readers hold the name are free, too. But then the gate may
 * refuse in favour of a writer. So a peek must also find an exclusive grant at the gate, no writer
 * before the reader in the gate's queue, and no waiter at the other nodes: a writer in CLAIM has a
 * grant at the gate and waits at the others. A try can't see all this, and a reader that is not
 * queued does not overrule. The veto does not apply to an owner that has the name and asks for a
 * shared grant in addition: that owner overtakes nobody.
 *
 * NO MAJORITY. The gate says nothing about the other nodes. So each peek also counts the nodes that
 * answer, and sets the code with which the acquire ends at its limit: PAWL_EQUORUM, if too few
 * nodes answer. The last peek is sent three eighths of a timeout before the limit.
 *
 * WHY ONE ACQUIRE ALWAYS WINS. Only one acquire per gate is in CLAIM, and only in CLAIM does an
 * acquire hold something while waiting. An acquire in TRY gives its grants back as soon as a
 * majority is out of reach, which is bounded by the nodes' patience. So if all clients have one
 * gate, the acquire that has the gate meets only holders, which release or whose lease ends, and
 * tries of other acquires, which end. This acquire stands in all queues, and no acquire behind it
 * is granted there: it wins. Waiting costs the service one place in one queue, and a hand-over one
 * message to one waiter, without polling. If nodes come and go there may be several gates, and the
 * acquires that have them may each have a minority. Then each gives everything back after a time
 * that is random and doubles with every failure, and pauses likewise. A claim among free nodes
 * takes a bounded time; as soon as the random times are larger than that, there is a fixed chance
 * in every round that one acquire claims while all others pause. So with probability one an acquire
 * wins.
 */
#include <stdlib.h>

#include "quorum.h"

#define TRIES_MOST 5 /* attempts of an ACQUIRE that is not queued */

static void acquire_run(quorum_task *task);

/* A time that is longer than a hand-over or a release takes to reach all nodes. */
static int64_t brief(const quorum *q)
{
    int64_t least = q->env->timeout_ms * PAWL_NS_PER_MS / 8, usual = 4 * quorum_pace(q);

    return usual > least ? usual : least;
}

int64_t quorum_random(quorum *q, int64_t most)
{
    return most > 0 ? (int64_t)(q->env->random(q->env) % (uint64_t)(most + 1)) : 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    quorum_acquire *acquire = timer->arg;

    acquire->over = true;
    quorum_later(acquire->quorum, &acquire->task);
    quorum_pump(acquire->quorum);
}

static void enter(quorum_acquire *acquire, enum quorum_phase phase, int64_t due)
{
    quorum *q = acquire->quorum;

    if (acquire->phase == ACQUIRE_WAIT)
        quorum_node_unwait(&q->nodes[acquire->gate]);
    if (acquire->peek)
        quorum_peek_forget(acquire->peek);
    acquire->peek = NULL;
    acquire->phase = phase;
    acquire->over = acquire->gate_left = false;
    if (due == PAWL_NEVER)
        q->env->timer_clear(q->env, &acquire->timer);
    else
        q->env->timer_set(q->env, &acquire->timer, due);
}

static void drop_attempt(quorum_acquire *acquire)
{
    if (!acquire->attempt)
        return;
    acquire->attempt->acquire = NULL;
    quorum_void(acquire->attempt);
    acquire->attempt = NULL;
}

/* Complete the op, and free the acquire. */
static void finish(quorum_acquire *acquire, int code)
{
    pawl_op *op = acquire->op;

    enter(acquire, ACQUIRE_END, PAWL_NEVER);
    quorum_forget_task(&acquire->task);
    list_remove(&acquire->link);
    if (code && code != PAWL_ECANCELED)
        pawl_error_set(op->err, code, "%s", acquire->error.text);
    free(acquire);
    pawl_op_finish(op, code);
}

/* The answer is certain. END first waits a moment until the grants are given back; an acquire that
 * only tried, and stands in no queue, does not wait for slow nodes. */
static void end(quorum_acquire *acquire, int code)
{
    int64_t wait = acquire->quorum->env->timeout_ms * PAWL_NS_PER_MS / 20;
    int64_t pace = quorum_pace(acquire->quorum);

    if (acquire->phase == ACQUIRE_TRY && pace && 2 * (pace + PAWL_NS_PER_MS) < wait)
        wait = 2 * (pace + PAWL_NS_PER_MS);
    acquire->code = code;
    acquire->whole = acquire->phase == ACQUIRE_TRY || acquire->phase == ACQUIRE_CLAIM;
    if (!acquire->attempt) {
        finish(acquire, code);
        return;
    }
    enter(acquire, ACQUIRE_END, quorum_now(acquire->quorum) + wait);
    quorum_void(acquire->attempt);
}

static void end_now(quorum_acquire *acquire)
{
    quorum_attempt *a = acquire->attempt;

    if (a && acquire->whole)
        quorum_attempt_error(a, &acquire->error, acquire->code); /* also of cancelled acquires */
    if (a)
        a->acquire = NULL;
    acquire->attempt = NULL;
    finish(acquire, acquire->code);
}

void quorum_acquire_given_back(quorum_acquire *acquire)
{
    end_now(acquire);
}

static void no_memory(quorum_acquire *acquire)
{
    pawl_error_set(&acquire->error, PAWL_ENOMEM, "out of memory");
    finish(acquire, PAWL_ENOMEM);
}

static void pause_acquire(quorum_acquire *acquire)
{
    quorum *q = acquire->quorum;
    uint32_t doublings = acquire->tries < 8 ? acquire->tries : 8;
    int64_t most = (4 * quorum_pace(q) + PAWL_NS_PER_MS) << doublings;
    int64_t limit = q->env->timeout_ms * PAWL_NS_PER_MS;

    drop_attempt(acquire);
    acquire->free_since = 0; /* the next try may have another gate */
    enter(acquire, ACQUIRE_PAUSE,
          quorum_now(q) + 1 + quorum_random(q, most < limit ? most : limit));
}

/* Only the gate refuses: try once more, when a hand-over can no longer be the reason. */
static void try_later(quorum_acquire *acquire, int64_t due)
{
    drop_attempt(acquire);
    enter(acquire, ACQUIRE_PAUSE, due);
}

static bool open_attempt(quorum_acquire *acquire)
{
    drop_attempt(acquire);
    acquire->attempt = quorum_attempt_new(acquire);
    if (!acquire->attempt) {
        no_memory(acquire);
        return false;
    }
    acquire->attempt->floor = quorum_floor(acquire->quorum);
    return true;
}

/* ---- TRY ------------------------------------------------------------------------------------- */

static void try_all(quorum_acquire *acquire)
{
    quorum *q = acquire->quorum;

    if (!open_attempt(acquire))
        return;
    acquire->tries++;
    acquire->sure = 0;
    acquire->gate = quorum_gate(q);
    enter(acquire, ACQUIRE_TRY, PAWL_NEVER);
    for (size_t i = 0; i < q->n; i++)
        quorum_attempt_ask(acquire->attempt, i, false, acquire->attempt->floor);
    quorum_later(q, &acquire->task);
}

/* ---- WAIT and CLAIM -------------------------------------------------------------------------- */

static void peek_later(quorum_acquire *acquire)
{
    quorum *q = acquire->quorum;
    int64_t now = quorum_now(q), usual = q->env->timeout_ms * PAWL_NS_PER_MS;
    int64_t due = acquire->free_since ? now + brief(q) : now + usual + quorum_random(q, usual);
    int64_t last = acquire->op->deadline - usual * 3 / 8;

    acquire->over = false;
    q->env->timer_set(q->env, &acquire->timer, last > now && last < due ? last : due);
}

static void wait_at_gate(quorum_acquire *acquire)
{
    quorum *q = acquire->quorum;
    size_t gate = quorum_gate(q);

    acquire->waited = true;
    if (gate == q->n) {
        pause_acquire(acquire);
        return;
    }
    if (!open_attempt(acquire))
        return;
    enter(acquire, ACQUIRE_WAIT, PAWL_NEVER);
    acquire->gate = gate;
    quorum_node_wait(&q->nodes[gate], acquire->attempt->name);
    peek_later(acquire);
    quorum_attempt_ask(acquire->attempt, gate, true, acquire->attempt->floor);
    quorum_later(q, &acquire->task);
}

/* Ask all nodes. Nodes that have granted already are asked again, so that the lease is whole and
 * the counter is at the floor from which the tokens of the other nodes will begin. */
static void claim(quorum_acquire *acquire)
{
    quorum *q = acquire->quorum;
    quorum_attempt *a = acquire->attempt;
    uint32_t doublings = acquire->failed < 5 ? acquire->failed : 5;
    int64_t least = q->env->timeout_ms * PAWL_NS_PER_MS / 20;
    int64_t usual = 20 * quorum_pace(q), patience = (usual > least ? usual : least) << doublings;

    enter(acquire, ACQUIRE_CLAIM, quorum_now(q) + patience / 2 + quorum_random(q, patience / 2));
    acquire->waited = true;
    a->floor = quorum_floor(q);
    for (size_t i = 0; i < q->n; i++)
        if (!a->node_states[i].out && !a->node_states[i].ours)
            quorum_attempt_ask(a, i, true, a->floor);
    for (size_t i = 0; i < q->n && q->fences; i++)
        if (!a->node_states[i].out && a->node_states[i].ours &&
            a->node_states[i].mark < a->floor + a->tokens)
            quorum_attempt_ask(a, i, false, a->floor + a->tokens);
    quorum_later(q, &acquire->task);
}

/* ---- running the phases ---------------------------------------------------------------------- */

static void win(quorum_acquire *acquire)
{
    quorum_attempt *a = acquire->attempt;
    pawl_op *op = acquire->op;
    int64_t last = 0;

    op->waited = acquire->waited;
    a->acquire = NULL;
    a->state = ATTEMPT_HELD;
    if (op->ntokens)
        a->tokens = op->ntokens; /* as many as a majority reserved */
    quorum_held_add(a);
    for (size_t i = 0; i < acquire->quorum->n; i++)
        if (a->node_states[i].ours && a->node_states[i].end > last)
            last = a->node_states[i].end;
    quorum_hold_until(a, last);
    acquire->attempt = NULL;
    finish(acquire, 0);
}

static bool vetoed(const quorum_acquire *acquire)
{
    const quorum_attempt *a = acquire->attempt;
    const quorum_node_state *s = &a->node_states[acquire->gate];

    return acquire->gate < acquire->quorum->n && !a->with_seq && !s->out && !s->ours &&
           s->said == PAWL_EBUSY;
}

/* Does another owner hold the name, or try to, while a majority answers? Otherwise too few nodes
 * answer. */
static bool is_busy(const quorum_acquire *acquire, const quorum_tally *t)
{
    return t->busy && t->busy + t->votes >= acquire->quorum->majority;
}

/* Has the gate refused for BRIEF while a majority was free? Then the gate's grant is stale. */
static bool overrules(const quorum_acquire *acquire, int64_t now)
{
    return acquire->free_since && now - acquire->free_since >= brief(acquire->quorum);
}

/* Record why the attempt failed, for the end of the acquire. */
static void note_failure(quorum_acquire *acquire, const quorum_tally *t)
{
    acquire->code = is_busy(acquire, t) ? PAWL_EBUSY : PAWL_EQUORUM;
    if (acquire->code == PAWL_EBUSY)
        pawl_op_waits(acquire->op);
    quorum_attempt_error(acquire->attempt, &acquire->error, acquire->code);
}

static void lost_try(quorum_acquire *acquire, const quorum_tally *t, int64_t now)
{
    quorum *q = acquire->quorum;
    bool veto = vetoed(acquire), free = veto && t->votes >= q->majority;

    if (!free)
        acquire->free_since = 0;
    else if (!acquire->free_since)
        acquire->free_since = now;
    quorum_attempt_overdue(acquire->attempt, now);
    note_failure(acquire, t);
    if (t->hopeless > q->n - q->majority) {
        end(acquire, t->reason);
    } else if (acquire->op->queue && acquire->gate < q->n &&
               acquire->attempt->node_states[acquire->gate].ours) {
        claim(acquire);
    } else if (acquire->op->queue && acquire->code == PAWL_EBUSY) {
        wait_at_gate(acquire);
    } else if (acquire->op->queue) {
        pause_acquire(acquire);
    } else if (free && acquire->op->mode == PAWL_MODE_EXCLUSIVE) {
        try_later(acquire, acquire->free_since + brief(q));
    } else if (acquire->code == PAWL_EBUSY && !veto && t->busy <= q->n - q->majority &&
               acquire->tries < TRIES_MOST) {
        pause_acquire(acquire); /* several tried at once, and perhaps none won */
    } else {
        end(acquire, acquire->code);
    }
}

/* A majority has granted. Returns the instant until which to wait for the gate's answer; 0: the
 * answer has come, or will not come. */
static int64_t gate_patience(quorum_acquire *acquire, int64_t now)
{
    const quorum *q = acquire->quorum;
    const quorum_node_state *s = &acquire->attempt->node_states[acquire->gate];
    int64_t limit;

    if (acquire->gate == q->n || !s->out || s->ours)
        return 0;
    if (!acquire->sure)
        acquire->sure = now;
    limit = quorum_gate_patience(q, s->sent, acquire->sure);
    if (now >= limit)
        quorum_node_is_down(&q->nodes[acquire->gate]);
    return limit;
}

static void run_try(quorum_acquire *acquire, int64_t now)
{
    quorum *q = acquire->quorum;
    quorum_tally t = quorum_attempt_count(acquire->attempt, now);
    int64_t due = quorum_attempt_patience(acquire->attempt, now), gate;

    if ((t.possible < q->majority && (is_busy(acquire, &t) || !t.pending)) ||
        (vetoed(acquire) && t.votes >= q->majority && !overrules(acquire, now))) {
        lost_try(acquire, &t, now);
        return;
    }
    if (t.possible < q->majority || (vetoed(acquire) && !overrules(acquire, now))) {
        ; /* lost; but the error text is best when all nodes have answered */
    } else if (quorum_attempt_won(acquire->attempt, now, acquire->op)) {
        gate = gate_patience(acquire, now);
        if (now >= gate) {
            win(acquire);
            return;
        }
        due = gate < due ? gate : due;
    } else {
        quorum_attempt_raise(acquire->attempt, now);
        due = quorum_attempt_patience(acquire->attempt, now);
    }
    if (due != PAWL_NEVER)
        q->env->timer_set(q->env, &acquire->timer, due);
}

/* Record whether a majority answers, for an acquire that reaches its limit. */
static void note_peek(quorum_acquire *acquire, const quorum_broadcast *peek)
{
    acquire->code = quorum_peek_there(peek) < acquire->quorum->majority ? PAWL_EQUORUM : PAWL_EBUSY;
    if (acquire->code == PAWL_EQUORUM)
        quorum_broadcast_error(peek, &acquire->error, acquire->code);
}

static void peeked(quorum_acquire *acquire, const quorum_broadcast *peek)
{
    int64_t now = quorum_now(acquire->quorum);
    size_t majority = acquire->quorum->majority;
    bool free = quorum_peek_vacant(peek, acquire->gate) >= majority ||
                (acquire->op->mode == PAWL_MODE_SHARED &&
                 quorum_peek_readable(peek, acquire->gate) >= majority);

    if (acquire->phase != ACQUIRE_WAIT)
        return;
    note_peek(acquire, peek);
    if (free && acquire->free_since && now - acquire->free_since >= brief(acquire->quorum)) {
        acquire->free_since = 0;
        claim(acquire); /* its place in the gate's queue stays */
        return;
    }
    if (!free)
        acquire->free_since = 0;
    else if (!acquire->free_since)
        acquire->free_since = now;
    peek_later(acquire);
}

static void peek(quorum_acquire *acquire)
{
    acquire->over = false;
    if (!acquire->peek)
        acquire->peek = quorum_peek(acquire->quorum, acquire->attempt->name, peeked, acquire);
    if (!acquire->peek)
        peek_later(acquire);
}

static void run_wait(quorum_acquire *acquire)
{
    const quorum_node_state *s = &acquire->attempt->node_states[acquire->gate];

    if (s->ours)
        claim(acquire);
    else if (!s->out || acquire->gate_left)
        pause_acquire(acquire);
    else if (acquire->over)
        peek(acquire);
}

static void run_claim(quorum_acquire *acquire, int64_t now)
{
    quorum_tally t = quorum_attempt_count(acquire->attempt, now);

    if (quorum_attempt_won(acquire->attempt, now, acquire->op)) {
        win(acquire);
        return;
    }
    if (acquire->over || t.possible < acquire->quorum->majority) {
        note_failure(acquire, &t);
        acquire->failed++;
        acquire->tries++;
        pause_acquire(acquire);
        return;
    }
    quorum_attempt_raise(acquire->attempt, now);
}

static void acquire_run(quorum_task *task)
{
    quorum_acquire *acquire = list_entry(task, quorum_acquire, task);
    int64_t now = quorum_now(acquire->quorum);

    switch (acquire->phase) {
    case ACQUIRE_TRY:
        run_try(acquire, now);
        break;
    case ACQUIRE_WAIT:
        run_wait(acquire);
        break;
    case ACQUIRE_CLAIM:
        run_claim(acquire, now);
        break;
    case ACQUIRE_PAUSE:
        if (acquire->over)
            try_all(acquire);
        break;
    case ACQUIRE_END:
        if (acquire->over)
            end_now(acquire);
        break;
    }
}

void quorum_acquires_leave(quorum *q, const quorum_node *n)
{
    list_each(quorum_acquire, acquire, &q->acquires, link) {
        if (acquire->phase == ACQUIRE_WAIT && &q->nodes[acquire->gate] == n) {
            acquire->gate_left = true;
            quorum_later(q, &acquire->task);
        }
    }
}

/* ---- the functions --------------------------------------------------------------------------- */

static void begin(quorum_task *task)
{
    quorum_acquire *acquire = list_entry(task, quorum_acquire, task);

    task->run = acquire_run;
    try_all(acquire);
}

void quorum_acquire_start(quorum *q, pawl_op *op)
{
    quorum_acquire *acquire = calloc(1, sizeof *acquire);

    if (!acquire) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    acquire->quorum = q;
    acquire->op = op;
    acquire->task.run = begin;
    acquire->timer = (pawl_timer){.fire = timer_fired, .arg = acquire};
    acquire->phase = ACQUIRE_PAUSE;
    list_init(&acquire->task.link);
    list_append(&q->acquires, &acquire->link);
    op->engine[0] = acquire;
    quorum_later(q, &acquire->task);
}

void quorum_acquire_submit(quorum *q, pawl_op *op)
{
    const quorum_attempt *a = quorum_held_find(q, op->owner.seq);

    if (op->mode != PAWL_MODE_EXCLUSIVE && op->mode != PAWL_MODE_SHARED)
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOTSUP,
                                          "a quorum has locks only: no majority can agree on a "
                                          "number of permits or the count of a latch"));
    else if (op->lease_ms <= 0)
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must be longer than 0"));
    else if (a && a->state == ATTEMPT_HELD)
        quorum_confirm(q, op, a);
    else
        quorum_acquire_start(q, op);
}

/* The limit is reached while nodes have not answered. Such nodes count as missing if they had some
 * time to answer, or if nothing is known from an earlier try. */
static void note_at_limit(quorum_acquire *acquire, int64_t now)
{
    int64_t before = now - acquire->quorum->env->timeout_ms * PAWL_NS_PER_MS / 4;

    if (acquire->phase == ACQUIRE_WAIT && acquire->peek && acquire->peek->sent &&
        acquire->peek->sent <= before)
        note_peek(acquire, acquire->peek);
    if (acquire->phase == ACQUIRE_TRY || acquire->phase == ACQUIRE_CLAIM) {
        quorum_tally t = quorum_attempt_count(acquire->attempt, now);

        if (is_busy(acquire, &t) || (acquire->phase == ACQUIRE_TRY &&
                                     (!acquire->code ||
                                      acquire->attempt->node_states[0].sent <= before)))
            note_failure(acquire, &t);
    }
}

void quorum_acquire_cancel(quorum *q, pawl_op *op)
{
    quorum_acquire *acquire = op->engine[0];

    if (quorum_now(q) >= op->deadline)
        note_at_limit(acquire, quorum_now(q));
    if (acquire->phase == ACQUIRE_END)
        end_now(acquire);
    else if (acquire->code == PAWL_EQUORUM && quorum_now(q) >= op->deadline)
        end(acquire, PAWL_EQUORUM);
    else
        end(acquire, PAWL_ECANCELED);
}
