/* SPDX-License-Identifier: Apache-2.0
 *
 * giveback.c - giving an attempt back.
 *
 * A VOID attempt sends RELEASE to each node with state `ours` or `doubt`, until the node has
 * answered "released" or "not held": in the background, with growing pauses, until the lease must
 * have ended by itself. Then the attempt is freed. A VOID attempt never becomes HELD again.
 *
 * An ACQUIRE without an answer is cancelled if it stands in a queue, or if the node is down. Else
 * the answer comes soon and the grant is then released; if the attempt was HELD, the RELEASE is
 * sent right after the ACQUIRE. If the node carries out the two in the wrong order, the answer to
 * the ACQUIRE comes after the answer to the RELEASE, and the RELEASE is sent once more.
 *
 * RELEASE makes a HELD attempt VOID and is answered
 *     0               when a majority has released, and also the gate (acquire.c: the gate could
 *                     refuse the next owner), unless the gate takes much longer; or when all nodes
 *                     that answer in time have answered, a majority has nothing left, and the rest
 *                     may have held the lock
 *     PAWL_ENOTHELD   when too few nodes had a grant, or may have one, for a majority
 *     PAWL_EUNKNOWN   when less than a majority could be reached: the grants may block other
 *                     owners for a lease
 * Nodes that did not answer get the RELEASE in the background; at last their lease ends.
 */
#include "quorum.h"

#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000

static void timer_fired(pawl_timer *timer)
{
    quorum_attempt *a = timer->arg;

    if (a->state == ATTEMPT_HELD)
        quorum_void(a); /* the lease was not renewed */
    quorum_later(a->quorum, &a->task);
    quorum_pump(a->quorum);
}

static void set_timer(quorum_attempt *a, int64_t due)
{
    a->timer.fire = timer_fired;
    a->timer.arg = a;
    a->quorum->env->timer_set(a->quorum->env, &a->timer, due);
}

void quorum_hold_until(quorum_attempt *a, int64_t end)
{
    if (end <= a->until || a->state != ATTEMPT_HELD)
        return;
    a->until = end;
    if (end < PAWL_NEVER - 1000LL * PAWL_NS_PER_MS)
        set_timer(a, end + 1000LL * PAWL_NS_PER_MS);
    else
        a->quorum->env->timer_clear(a->quorum->env, &a->timer);
}

void quorum_void(quorum_attempt *a)
{
    quorum *q = a->quorum;
    int64_t now = quorum_now(q), lease = a->lease_ms;

    if (a->state == ATTEMPT_VOID)
        return;
    a->state = ATTEMPT_VOID;
    a->until = lease > (PAWL_NEVER - now) / PAWL_NS_PER_MS / 2 ? PAWL_NEVER
                                                               : now + lease * PAWL_NS_PER_MS;
    q->env->timer_clear(q->env, &a->timer);
    quorum_later(q, &a->task);
}

bool quorum_node_state_quiet(const quorum_node_state *s)
{
    return !s->out && !s->back_out && !s->ours && !s->doubt;
}

/* ---- at each node ---------------------------------------------------------------------------- */

static void released(pawl_op *op)
{
    quorum_node_state *s = op->arg;
    quorum_attempt *a = s->attempt;
    bool certain = op->code == 0 || op->code == PAWL_ENOTHELD;

    s->back_out = false;
    quorum_node_answered(&a->quorum->nodes[s - a->node_states], op, s->back_sent);
    s->freed |= op->code == 0;
    s->ours = false;
    s->doubt = !certain;
    quorum_later(a->quorum, &a->task);
}

static void give_back(quorum_attempt *a, size_t i)
{
    quorum_node_state *s = &a->node_states[i];

    s->back = (pawl_op){.kind = PAWL_OP_RELEASE,
                        .mode = a->mode,
                        .lock_kind = a->lock_kind,
                        .tokens = 1,
                        .name = a->name,
                        .owner = a->owner,
                        .lease_ms = a->lease_ms,
                        .linger_ms = a->linger_ms,
                        .deadline = a->until,
                        .done = released,
                        .arg = s};
    s->back_sent = quorum_now(a->quorum);
    s->back_out = true;
    s->back_canceled = false;
    quorum_node_submit(&a->quorum->nodes[i], &s->back);
}

static void cancel_acquire(quorum_attempt *a, size_t i)
{
    quorum_node_state *s = &a->node_states[i];

    if (!s->out || s->canceled)
        return;
    s->canceled = true;
    quorum_node_cancel(&a->quorum->nodes[i], &s->op);
}

static void cancel_release(quorum_attempt *a, size_t i)
{
    quorum_node_state *s = &a->node_states[i];

    if (!s->back_out || s->back_canceled)
        return;
    s->back_canceled = true;
    quorum_node_cancel(&a->quorum->nodes[i], &s->back);
}

static bool overdue(const quorum_attempt *a, size_t i, int64_t sent, int64_t now)
{
    return now >= quorum_node_patience(&a->quorum->nodes[i], sent);
}

static void give_back_at(quorum_attempt *a, size_t i, int64_t now, bool retry)
{
    quorum_node *node = &a->quorum->nodes[i];
    quorum_node_state *s = &a->node_states[i];
    bool first = !s->back.kind; /* no RELEASE has been sent */

    if (s->out && (s->op.queue || node->down || overdue(a, i, s->sent, now)))
        cancel_acquire(a, i);
    if (s->back_out && overdue(a, i, s->back_sent, now))
        quorum_node_is_down(node);
    if (now >= a->until) {
        cancel_acquire(a, i);
        cancel_release(a, i);
        s->ours = s->doubt = false;
    }
    if (!s->back_out && ((s->out && !s->canceled && a->listed && first) ||
                         (!s->out && (s->ours || (s->doubt && (first || retry))))))
        give_back(a, i);
}

void quorum_give_back_now(quorum_attempt *a)
{
    for (size_t i = 0; i < a->quorum->n; i++) {
        quorum_node_state *s = &a->node_states[i];

        if (s->out && s->op.queue)
            cancel_acquire(a, i);
        if (!s->back_out && (s->out || s->ours || s->doubt))
            give_back(a, i);
    }
}

/* ---- the RELEASE ----------------------------------------------------------------------------- */

/* The instant until which to wait for the gate after a majority has released; 0: no need to
 * wait. */
static int64_t gate_patience(quorum_attempt *a, int64_t now)
{
    const quorum *q = a->quorum;
    size_t gate = quorum_gate(q);
    const quorum_node_state *s = &a->node_states[gate];
    int64_t limit;

    if (gate == q->n || quorum_node_state_quiet(s))
        return 0;
    if (!a->sure)
        a->sure = now;
    limit = quorum_gate_patience(q, s->back_out ? s->back_sent : a->sure, a->sure);
    if (now >= limit)
        quorum_node_is_down(&q->nodes[gate]);
    return limit;
}

/* Complete the RELEASE if the answers suffice; if `now` is PAWL_NEVER, in any case. */
static void judge_release(quorum_attempt *a, int64_t now)
{
    const quorum *q = a->quorum;
    size_t freed = 0, doubt = 0, nothing = 0, pending = 0;
    pawl_op *op = a->release;
    int code = PAWL_EUNKNOWN;

    for (size_t i = 0; i < q->n; i++) {
        const quorum_node_state *s = &a->node_states[i];

        freed += s->freed;
        nothing += quorum_node_state_quiet(s);
        doubt += !quorum_node_state_quiet(s) && !s->freed;
        pending += s->back_out ? !overdue(a, i, s->back_sent, now)
                               : s->out && !overdue(a, i, s->sent, now);
    }
    if (freed >= q->majority && now != PAWL_NEVER && now < gate_patience(a, now)) {
        set_timer(a, gate_patience(a, now));
        return;
    }
    if (freed >= q->majority)
        code = 0;
    else if (freed + doubt < q->majority)
        code = PAWL_ENOTHELD;
    else if (pending)
        return;
    else if (nothing >= q->majority)
        code = 0;
    a->release = NULL;
    if (code == PAWL_EUNKNOWN)
        pawl_error_set(op->err, code, "only %zu of %zu nodes answered", nothing, q->n);
    pawl_op_finish(op, code);
}

static void plan(quorum_attempt *a, int64_t now)
{
    quorum *q = a->quorum;
    int64_t pause = (int64_t)PAUSE_MIN_MS << (a->tries < 5 ? a->tries : 5), due;

    if (pause > PAUSE_MAX_MS)
        pause = PAUSE_MAX_MS;
    due = now + pause * PAWL_NS_PER_MS;
    a->tries++;
    if (a->until > now && a->until < due)
        due = a->until;
    for (size_t i = 0; i < q->n; i++) {
        const quorum_node_state *s = &a->node_states[i];
        int64_t limit = quorum_node_patience(&q->nodes[i], s->back_out ? s->back_sent : s->sent);

        if ((s->out || s->back_out) && limit > now && limit < due)
            due = limit;
    }
    set_timer(a, due);
}

void quorum_give_back_run(quorum_task *task)
{
    quorum_attempt *a = list_entry(task, quorum_attempt, task);
    quorum *q = a->quorum;
    int64_t now = quorum_now(q);
    bool retry = !a->timer.armed;
    size_t left = 0;

    if (a->state != ATTEMPT_VOID)
        return;
    for (size_t i = 0; i < q->n; i++) /* answers during this loop run this task again */
        give_back_at(a, i, now, retry);
    for (size_t i = 0; i < q->n; i++)
        left += !quorum_node_state_quiet(&a->node_states[i]);
    if (left && retry)
        plan(a, now);
    if (a->release)
        judge_release(a, now);
    if (left)
        return;
    if (a->acquire)
        quorum_acquire_given_back(a->acquire);
    quorum_attempt_free(a);
}

void quorum_release(quorum *q, pawl_op *op)
{
    quorum_attempt *a = quorum_held_find(q, op->owner.seq);

    if (!a || a->release) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        return;
    }
    op->engine[0] = a;
    a->release = op;
    a->linger_ms = op->linger_ms;
    a->sure = 0;
    q->env->timer_clear(q->env, &a->timer);
    a->tries = 0;
    quorum_void(a);
    quorum_later(q, &a->task);
}

void quorum_release_cancel(quorum *q, pawl_op *op)
{
    (void)q;
    judge_release(op->engine[0], PAWL_NEVER);
}
