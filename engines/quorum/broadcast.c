/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast.c - one request to all nodes at once: RENEW, BREAK, INSPECT, LIST, EXAMINE.
 *
 * A broadcast owns copies of all data: nodes may answer long after the outer op was completed.
 *
 *     asked       judge checks every answer, and completes the outer op when the answers suffice
 *     answered    (outer == NULL) late answers are recorded; overdue ones are cancelled
 *     (freed)     when no answer is awaited
 *
 * A peek is a broadcast for an acquire that waits (acquire.c); the outer op is part of the
 * broadcast.
 *
 * A broadcast does not wait for a node that exceeds its time limit (node.c), so a broadcast always
 * ends.
 */
#include <stdlib.h>

#include "kit/rows.h"
#include "quorum.h"

static void broadcast_run(quorum_task *task);

quorum_broadcast *quorum_broadcast_new(quorum *q, pawl_op *op, uint8_t kind)
{
    quorum_broadcast *s = calloc(1, sizeof *s + q->n * sizeof s->answers[0]);

    if (!s) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return NULL;
    }
    list_append(&q->broadcasts, &s->link);
    list_init(&s->task.link);
    s->task.run = broadcast_run;
    s->quorum = q;
    s->outer = op;
    s->kind = kind;
    if (op->name)
        memcpy(s->name, op->name, strlen(op->name) + 1);
    op->engine[0] = op->engine[1] = s;
    for (size_t i = 0; i < q->n; i++) {
        s->answers[i].broadcast = s;
        s->answers[i].code = QUORUM_SILENT;
        s->answers[i].rows_end = &s->answers[i].rows;
    }
    return s;
}

void quorum_broadcast_free(quorum_broadcast *s)
{
    s->quorum->env->timer_clear(s->quorum->env, &s->timer);
    quorum_forget_task(&s->task);
    list_remove(&s->link);
    if (s->forget)
        s->forget(s);
    free(s);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void answered(pawl_op *op)
{
    quorum_answer *a = op->arg;
    quorum_broadcast *s = a->broadcast;

    a->out = false;
    a->code = op->code;
    quorum_node_answered(&s->quorum->nodes[a - s->answers], op, s->sent);
    quorum_later(s->quorum, &s->task);
}

static void ask(quorum_broadcast *s, size_t i, const pawl_op *like)
{
    quorum_answer *a = &s->answers[i];

    a->op = *like;
    memset(a->op.engine, 0, sizeof a->op.engine);
    a->op.kind = s->kind;
    a->op.tokens = 1;
    a->op.name = s->name;
    a->op.batch = a->batch;
    a->op.batch_len = s->nitems;
    a->op.row = s->row;
    a->op.finding = s->finding;
    a->op.row_arg = a;
    a->op.done = answered;
    a->op.arg = a;
    a->op.err = &a->err;
    a->op.lease_from = a->op.granted_ms = 0;
    a->out = true;
    quorum_node_submit(&s->quorum->nodes[i], &a->op);
}

static void timer_fired(pawl_timer *timer)
{
    quorum_broadcast *s = timer->arg;

    quorum_later(s->quorum, &s->task);
    quorum_pump(s->quorum);
}

static void send_all(quorum_task *task)
{
    quorum_broadcast *s = list_entry(task, quorum_broadcast, task);
    pawl_op like = *s->outer;

    task->run = broadcast_run;
    s->sent = quorum_now(s->quorum);
    for (size_t i = 0; i < s->quorum->n; i++)
        ask(s, i, &like);
    quorum_later(s->quorum, task);
}

void quorum_broadcast_send(quorum_broadcast *s)
{
    s->timer = (pawl_timer){.fire = timer_fired, .arg = s};
    s->task.run = send_all;
    quorum_later(s->quorum, &s->task);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The number of answers that are awaited and not overdue; sets the timer to the next time limit. */
static size_t count_pending(quorum_broadcast *s, size_t *out)
{
    quorum *q = s->quorum;
    int64_t now = quorum_now(q), first = PAWL_NEVER;
    size_t pending = 0;

    for (size_t i = 0; i < q->n; i++) {
        quorum_answer *a = &s->answers[i];
        int64_t limit = quorum_node_patience(&q->nodes[i], s->sent);

        *out += a->out;
        if (!a->out || a->given_up)
            continue;
        if (now >= limit) {
            a->given_up = true;
            quorum_node_is_down(&q->nodes[i]);
            continue;
        }
        pending++;
        if (limit < first)
            first = limit;
    }
    if (pending)
        q->env->timer_set(q->env, &s->timer, first);
    return pending;
}

static void cancel_overdue(quorum_broadcast *s)
{
    for (size_t i = 0; i < s->quorum->n; i++) {
        quorum_answer *a = &s->answers[i];

        if (a->out && a->given_up && !a->canceled) {
            a->canceled = true;
            quorum_node_cancel(&s->quorum->nodes[i], &a->op);
        }
    }
}

static void broadcast_run(quorum_task *task)
{
    quorum_broadcast *s = list_entry(task, quorum_broadcast, task);
    size_t out = 0, pending = count_pending(s, &out);

    cancel_overdue(s); /* a cancelled op gets the reason for the missing answer */
    if (s->outer)
        s->judge(s, pending);
    if (s->after)
        s->after(s);
    for (size_t i = out = 0; i < s->quorum->n; i++)
        out += s->answers[i].out;
    if (!out && !s->outer)
        quorum_broadcast_free(s);
}

void quorum_broadcast_cancel(quorum *q, pawl_op *op)
{
    quorum_broadcast *s = op->engine[0];

    s->canceled = true;
    for (size_t i = 0; i < q->n; i++)
        s->answers[i].given_up |= s->answers[i].out;
    s->judge(s, 0);
    quorum_later(q, &s->task);
}

/* ---- BREAK ----------------------------------------------------------------------------------- */

static void judge_break(quorum_broadcast *s, size_t pending)
{
    pawl_op *op = s->outer;
    size_t ended = 0, none = 0;
    int code;

    for (size_t i = 0; i < s->quorum->n; i++) {
        ended += s->answers[i].code == 0;
        none += s->answers[i].code == PAWL_ENOTHELD;
    }
    if (pending && ended < s->quorum->majority)
        return;
    code = ended ? 0 : PAWL_ENOTHELD;
    if (ended + none < s->quorum->majority)
        code = PAWL_EQUORUM;
    if (code == PAWL_EQUORUM)
        quorum_broadcast_error(s, op->err, code);
    s->outer = NULL;
    pawl_op_finish(op, code);
}

void quorum_break(quorum *q, pawl_op *op)
{
    quorum_broadcast *s = quorum_broadcast_new(q, op, PAWL_OP_BREAK);

    if (!s)
        return;
    s->judge = judge_break;
    quorum_broadcast_send(s);
}

/* ---- peeks ----------------------------------------------------------------------------------- */

/* The rows come in order. A service may show owners in its own way, or not all rows: then the first
 * reader that waits counts as the acquire's own row. */
static int note_row(void *arg, const pawl_info *info)
{
    quorum_answer *a = arg;
    bool holder = info->role == PAWL_ROLE_HOLDER || info->holders;
    char id[KIT_ID_MAX];

    a->held |= holder;
    a->held_alone |= holder && !info->shared;
    a->queued |= info->role == PAWL_ROLE_WAITER || info->waiters;
    if (info->role != PAWL_ROLE_WAITER || a->own)
        return 0;
    kit_owner_id(id, a->broadcast->owner.client, a->broadcast->owner.seq);
    a->own = info->owner && !strcmp(info->owner, id);
    a->writer |= !info->shared;
    a->writer_first |= !info->shared && !a->reader;
    a->reader |= info->shared;
    return 0;
}

static void peek_over(pawl_op *op)
{
    (void)op;
}

static void judge_peek(quorum_broadcast *s, size_t pending)
{
    void (*told)(quorum_acquire *, const quorum_broadcast *) = s->told;
    quorum_acquire *acquire = s->acquire;

    if (pending && told)
        return;
    s->outer = NULL;
    if (!told)
        return;
    s->told = NULL;
    acquire->peek = NULL;
    told(acquire, s);
}

size_t quorum_peek_vacant(const quorum_broadcast *s, size_t but)
{
    size_t vacant = 0;

    for (size_t i = 0; i < s->quorum->n; i++)
        vacant += i != but && s->answers[i].code == 0 && !s->answers[i].held &&
                  !quorum_node_young(&s->quorum->nodes[i], quorum_now(s->quorum));
    return vacant;
}

size_t quorum_peek_readable(const quorum_broadcast *s, size_t gate)
{
    const quorum_answer *g = &s->answers[gate];
    size_t open = 0;

    if (g->code || !g->held_alone || (g->own ? g->writer : g->writer_first))
        return 0;
    for (size_t i = 0; i < s->quorum->n; i++) {
        const quorum_answer *a = &s->answers[i];

        open += i != gate && a->code == 0 && !a->held_alone && !a->queued &&
                !quorum_node_young(&s->quorum->nodes[i], quorum_now(s->quorum));
    }
    return open;
}

size_t quorum_peek_there(const quorum_broadcast *s)
{
    size_t held = 0;

    for (size_t i = 0; i < s->quorum->n; i++)
        held += s->answers[i].code == 0 && s->answers[i].held;
    return held + quorum_peek_vacant(s, s->quorum->n);
}

quorum_broadcast *quorum_peek(quorum *q, const char *name,
                              void (*told)(quorum_acquire *acquire, const quorum_broadcast *peek),
                              quorum_acquire *acquire)
{
    pawl_op op = {.kind = PAWL_OP_INSPECT, .name = name, .done = peek_over,
                  .deadline = PAWL_NEVER};
    quorum_broadcast *s = quorum_broadcast_new(q, &op, PAWL_OP_INSPECT);

    if (!s)
        return NULL;
    s->is_peek = true;
    s->peek = op;
    s->peek.name = s->name;
    s->outer = &s->peek;
    s->judge = judge_peek;
    s->row = note_row;
    s->told = told;
    s->acquire = acquire;
    s->owner = acquire->attempt->owner;
    quorum_broadcast_send(s);
    return s;
}

void quorum_peek_forget(quorum_broadcast *s)
{
    s->told = NULL;
    s->acquire = NULL;
}
