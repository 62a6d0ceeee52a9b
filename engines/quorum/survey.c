/* SPDX-License-Identifier: Apache-2.0
 *
 * survey.c - one question to all nodes at once: RENEW, BREAK, INSPECT, LIST.
 *
 * A survey owns copies of all it needs: nodes may answer long after the submitter was told.
 *
 *     asked       judge looks at every answer, and says when there is enough to tell
 *     answered    (outer == NULL) late answers are noted; who takes too long is cancelled
 *     (freed)     when no op is out
 *
 * A look is a survey for a bid that waits (bid.c): its outer op is its own.
 *
 * A node that does not answer in its time (node.c) is not waited for, so a survey always ends.
 */
#include <stdlib.h>

#include "quorum.h"

static void survey_run(quorum_task *task);

quorum_survey *quorum_survey_new(quorum *q, pawl_op *op, uint8_t kind)
{
    quorum_survey *s = calloc(1, sizeof *s + q->n * sizeof s->answers[0]);

    if (!s) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return NULL;
    }
    list_append(&q->surveys, &s->link);
    list_init(&s->task.link);
    s->task.run = survey_run;
    s->quorum = q;
    s->outer = op;
    s->kind = kind;
    if (op->name)
        memcpy(s->name, op->name, strlen(op->name) + 1);
    op->engine[0] = op->engine[1] = s;
    for (size_t i = 0; i < q->n; i++) {
        s->answers[i].survey = s;
        s->answers[i].code = QUORUM_SILENT;
        s->answers[i].rows_end = &s->answers[i].rows;
    }
    return s;
}

void quorum_survey_free(quorum_survey *s)
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
    quorum_survey *s = a->survey;

    a->out = false;
    a->code = op->code;
    quorum_node_answered(&s->quorum->nodes[a - s->answers], op, s->sent);
    quorum_later(s->quorum, &s->task);
}

static void ask(quorum_survey *s, size_t i, const pawl_op *like)
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
    quorum_survey *s = timer->arg;

    quorum_later(s->quorum, &s->task);
    quorum_pump(s->quorum);
}

static void send_all(quorum_task *task)
{
    quorum_survey *s = list_entry(task, quorum_survey, task);
    pawl_op like = *s->outer;

    task->run = survey_run;
    s->sent = quorum_now(s->quorum);
    for (size_t i = 0; i < s->quorum->n; i++)
        ask(s, i, &like);
    quorum_later(s->quorum, task);
}

void quorum_survey_send(quorum_survey *s)
{
    s->timer = (pawl_timer){.fire = timer_fired, .arg = s};
    s->task.run = send_all;
    quorum_later(s->quorum, &s->task);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Who is still worth waiting for; sets the timer to when the next one is not. */
static size_t count_pending(quorum_survey *s, size_t *out)
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

static void cancel_overdue(quorum_survey *s)
{
    for (size_t i = 0; i < s->quorum->n; i++) {
        quorum_answer *a = &s->answers[i];

        if (a->out && a->given_up && !a->canceled) {
            a->canceled = true;
            quorum_node_cancel(&s->quorum->nodes[i], &a->op);
        }
    }
}

static void survey_run(quorum_task *task)
{
    quorum_survey *s = list_entry(task, quorum_survey, task);
    size_t out = 0, pending = count_pending(s, &out);

    cancel_overdue(s); /* it then says why it did not answer */
    if (s->outer)
        s->judge(s, pending);
    if (s->after)
        s->after(s);
    for (size_t i = out = 0; i < s->quorum->n; i++)
        out += s->answers[i].out;
    if (!out && !s->outer)
        quorum_survey_free(s);
}

void quorum_survey_cancel(quorum *q, pawl_op *op)
{
    quorum_survey *s = op->engine[0];

    s->canceled = true;
    for (size_t i = 0; i < q->n; i++)
        s->answers[i].given_up |= s->answers[i].out;
    s->judge(s, 0);
    quorum_later(q, &s->task);
}

/* ---- BREAK ----------------------------------------------------------------------------------- */

static void judge_break(quorum_survey *s, size_t pending)
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
        quorum_survey_words(s, op->err, code);
    s->outer = NULL;
    pawl_op_finish(op, code);
}

void quorum_break(quorum *q, pawl_op *op)
{
    quorum_survey *s = quorum_survey_new(q, op, PAWL_OP_BREAK);

    if (!s)
        return;
    s->judge = judge_break;
    quorum_survey_send(s);
}

/* ---- looks ----------------------------------------------------------------------------------- */

static int note_holder(void *arg, const pawl_info *info)
{
    quorum_answer *a = arg;

    a->held |= info->role == PAWL_ROLE_HOLDER || info->holders;
    return 0;
}

static void look_over(pawl_op *op)
{
    (void)op;
}

static void judge_look(quorum_survey *s, size_t pending)
{
    void (*told)(quorum_bid *, const quorum_survey *) = s->told;
    quorum_bid *bid = s->bid;

    if (pending && told)
        return;
    s->outer = NULL;
    if (!told)
        return;
    s->told = NULL;
    bid->look = NULL;
    told(bid, s);
}

size_t quorum_look_vacant(const quorum_survey *s, size_t but)
{
    size_t vacant = 0;

    for (size_t i = 0; i < s->quorum->n; i++)
        vacant += i != but && s->answers[i].code == 0 && !s->answers[i].held &&
                  !quorum_node_young(&s->quorum->nodes[i], quorum_now(s->quorum));
    return vacant;
}

size_t quorum_look_there(const quorum_survey *s)
{
    size_t held = 0;

    for (size_t i = 0; i < s->quorum->n; i++)
        held += s->answers[i].code == 0 && s->answers[i].held;
    return held + quorum_look_vacant(s, s->quorum->n);
}

quorum_survey *quorum_look(quorum *q, const char *name,
                           void (*told)(quorum_bid *bid, const quorum_survey *look),
                           quorum_bid *bid)
{
    pawl_op op = {.kind = PAWL_OP_INSPECT, .name = name, .done = look_over,
                  .deadline = PAWL_NEVER};
    quorum_survey *s = quorum_survey_new(q, &op, PAWL_OP_INSPECT);

    if (!s)
        return NULL;
    s->is_look = true;
    s->look = op;
    s->look.name = s->name;
    s->outer = &s->look;
    s->judge = judge_look;
    s->row = note_holder;
    s->told = told;
    s->bid = bid;
    quorum_survey_send(s);
    return s;
}

void quorum_look_forget(quorum_survey *s)
{
    s->told = NULL;
    s->bid = NULL;
}
