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
    quorum_broadcast *b = calloc(1, sizeof *b + q->n * sizeof b->answers[0]);

    if (!b) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return NULL;
    }
    list_append(&q->broadcasts, &b->link);
    list_init(&b->task.link);
    b->task.run = broadcast_run;
    b->quorum = q;
    b->outer = op;
    b->kind = kind;
    if (op->name)
        memcpy(b->name, op->name, strlen(op->name) + 1);
    op->engine[0] = op->engine[1] = b;
    for (size_t i = 0; i < q->n; i++) {
        b->answers[i].broadcast = b;
        b->answers[i].code = QUORUM_SILENT;
        b->answers[i].rows_end = &b->answers[i].rows;
    }
    return b;
}

void quorum_broadcast_free(quorum_broadcast *b)
{
    b->quorum->env->timer_clear(b->quorum->env, &b->timer);
    quorum_forget_task(&b->task);
    list_remove(&b->link);
    if (b->forget)
        b->forget(b);
    free(b);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void answered(pawl_op *op)
{
    quorum_answer *answer = op->arg;
    quorum_broadcast *b = answer->broadcast;

    answer->out = false;
    answer->code = op->code;
    quorum_node_answered(&b->quorum->nodes[answer - b->answers], op, b->sent);
    quorum_later(b->quorum, &b->task);
}

static void ask(quorum_broadcast *b, size_t i, const pawl_op *like)
{
    quorum_answer *answer = &b->answers[i];

    answer->op = *like;
    memset(answer->op.engine, 0, sizeof answer->op.engine);
    answer->op.kind = b->kind;
    answer->op.tokens = 1;
    answer->op.name = b->name;
    answer->op.batch = answer->batch;
    answer->op.batch_len = b->nitems;
    answer->op.row = b->row;
    answer->op.finding = b->finding;
    answer->op.row_arg = answer;
    answer->op.done = answered;
    answer->op.arg = answer;
    answer->op.err = &answer->err;
    answer->op.lease_from = answer->op.granted_ms = 0;
    answer->out = true;
    quorum_node_submit(&b->quorum->nodes[i], &answer->op);
}

static void timer_fired(pawl_timer *timer)
{
    quorum_broadcast *b = timer->arg;

    quorum_later(b->quorum, &b->task);
    quorum_pump(b->quorum);
}

static void send_all(quorum_task *task)
{
    quorum_broadcast *b = list_entry(task, quorum_broadcast, task);
    pawl_op like = *b->outer;

    task->run = broadcast_run;
    b->sent = quorum_now(b->quorum);
    for (size_t i = 0; i < b->quorum->n; i++)
        ask(b, i, &like);
    quorum_later(b->quorum, task);
}

void quorum_broadcast_send(quorum_broadcast *b)
{
    b->timer = (pawl_timer){.fire = timer_fired, .arg = b};
    b->task.run = send_all;
    quorum_later(b->quorum, &b->task);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The number of answers that are awaited and not overdue; sets the timer to the next time limit. */
static size_t count_pending(quorum_broadcast *b, size_t *out)
{
    quorum *q = b->quorum;
    int64_t now = quorum_now(q), first = PAWL_NEVER;
    size_t pending = 0;

    for (size_t i = 0; i < q->n; i++) {
        quorum_answer *answer = &b->answers[i];
        int64_t limit = quorum_node_patience(&q->nodes[i], b->sent);

        *out += answer->out;
        if (!answer->out || answer->given_up)
            continue;
        if (now >= limit) {
            answer->given_up = true;
            quorum_node_is_down(&q->nodes[i]);
            continue;
        }
        pending++;
        if (limit < first)
            first = limit;
    }
    if (pending)
        q->env->timer_set(q->env, &b->timer, first);
    return pending;
}

static void cancel_overdue(quorum_broadcast *b)
{
    for (size_t i = 0; i < b->quorum->n; i++) {
        quorum_answer *answer = &b->answers[i];

        if (answer->out && answer->given_up && !answer->canceled) {
            answer->canceled = true;
            quorum_node_cancel(&b->quorum->nodes[i], &answer->op);
        }
    }
}

static void broadcast_run(quorum_task *task)
{
    quorum_broadcast *b = list_entry(task, quorum_broadcast, task);
    size_t out = 0, pending = count_pending(b, &out);

    cancel_overdue(b); /* a cancelled op gets the reason for the missing answer */
    if (b->outer)
        b->judge(b, pending);
    if (b->after)
        b->after(b);
    for (size_t i = out = 0; i < b->quorum->n; i++)
        out += b->answers[i].out;
    if (!out && !b->outer)
        quorum_broadcast_free(b);
}

void quorum_broadcast_cancel(quorum *q, pawl_op *op)
{
    quorum_broadcast *b = op->engine[0];

    b->canceled = true;
    for (size_t i = 0; i < q->n; i++)
        b->answers[i].given_up |= b->answers[i].out;
    b->judge(b, 0);
    quorum_later(q, &b->task);
}

/* ---- BREAK ----------------------------------------------------------------------------------- */

static void judge_break(quorum_broadcast *b, size_t pending)
{
    pawl_op *op = b->outer;
    size_t ended = 0, none = 0;
    int code;

    for (size_t i = 0; i < b->quorum->n; i++) {
        ended += b->answers[i].code == 0;
        none += b->answers[i].code == PAWL_ENOTHELD;
    }
    if (pending && ended < b->quorum->majority)
        return;
    code = ended ? 0 : PAWL_ENOTHELD;
    if (ended + none < b->quorum->majority)
        code = PAWL_EQUORUM;
    if (code == PAWL_EQUORUM)
        quorum_broadcast_error(b, op->err, code);
    b->outer = NULL;
    pawl_op_finish(op, code);
}

void quorum_break(quorum *q, pawl_op *op)
{
    quorum_broadcast *b = quorum_broadcast_new(q, op, PAWL_OP_BREAK);

    if (!b)
        return;
    b->judge = judge_break;
    quorum_broadcast_send(b);
}

/* ---- peeks ----------------------------------------------------------------------------------- */

/* The rows come in order. A service may show owners in its own way, or not all rows: then the first
 * reader that waits counts as the acquire's own row. */
static int note_row(void *arg, const pawl_info *info)
{
    quorum_answer *answer = arg;
    bool holder = info->role == PAWL_ROLE_HOLDER || info->holders;
    char id[KIT_ID_MAX];

    answer->held |= holder;
    answer->held_alone |= holder && !info->shared;
    answer->queued |= info->role == PAWL_ROLE_WAITER || info->waiters;
    if (info->role != PAWL_ROLE_WAITER || answer->own)
        return 0;
    kit_owner_id(id, answer->broadcast->owner.client, answer->broadcast->owner.seq);
    answer->own = info->owner && !strcmp(info->owner, id);
    answer->writer |= !info->shared;
    answer->writer_first |= !info->shared && !answer->reader;
    answer->reader |= info->shared;
    return 0;
}

static void peek_over(pawl_op *op)
{
    (void)op;
}

static void judge_peek(quorum_broadcast *b, size_t pending)
{
    void (*told)(quorum_acquire *, const quorum_broadcast *) = b->told;
    quorum_acquire *acquire = b->acquire;

    if (pending && told)
        return;
    b->outer = NULL;
    if (!told)
        return;
    b->told = NULL;
    acquire->peek = NULL;
    told(acquire, b);
}

size_t quorum_peek_vacant(const quorum_broadcast *b, size_t but)
{
    size_t vacant = 0;

    for (size_t i = 0; i < b->quorum->n; i++)
        vacant += i != but && b->answers[i].code == 0 && !b->answers[i].held &&
                  !quorum_node_young(&b->quorum->nodes[i], quorum_now(b->quorum));
    return vacant;
}

size_t quorum_peek_readable(const quorum_broadcast *b, size_t gate)
{
    const quorum_answer *g = &b->answers[gate];
    size_t open = 0;

    if (g->code || !g->held_alone || (g->own ? g->writer : g->writer_first))
        return 0;
    for (size_t i = 0; i < b->quorum->n; i++) {
        const quorum_answer *answer = &b->answers[i];

        open += i != gate && answer->code == 0 && !answer->held_alone && !answer->queued &&
                !quorum_node_young(&b->quorum->nodes[i], quorum_now(b->quorum));
    }
    return open;
}

size_t quorum_peek_there(const quorum_broadcast *b)
{
    size_t held = 0;

    for (size_t i = 0; i < b->quorum->n; i++)
        held += b->answers[i].code == 0 && b->answers[i].held;
    return held + quorum_peek_vacant(b, b->quorum->n);
}

quorum_broadcast *quorum_peek(quorum *q, const char *name,
                              void (*told)(quorum_acquire *acquire, const quorum_broadcast *peek),
                              quorum_acquire *acquire)
{
    pawl_op op = {.kind = PAWL_OP_INSPECT, .name = name, .done = peek_over,
                  .deadline = PAWL_NEVER};
    quorum_broadcast *b = quorum_broadcast_new(q, &op, PAWL_OP_INSPECT);

    if (!b)
        return NULL;
    b->is_peek = true;
    b->peek = op;
    b->peek.name = b->name;
    b->outer = &b->peek;
    b->judge = judge_peek;
    b->row = note_row;
    b->told = told;
    b->acquire = acquire;
    b->owner = acquire->attempt->owner;
    quorum_broadcast_send(b);
    return b;
}

void quorum_peek_forget(quorum_broadcast *b)
{
    b->told = NULL;
    b->acquire = NULL;
}
