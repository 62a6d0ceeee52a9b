/* SPDX-License-Identifier: Apache-2.0
 *
 * attempt.c - one try to acquire one name at all nodes.
 *
 * An attempt has an owner number of its own. So a late message (a RELEASE of an earlier try, an
 * ACQUIRE that was given up) can't affect another attempt. The submitter's number is only used to
 * find the attempt (quorum.held).
 *
 *     OPEN  --won--> HELD --released, or the lease over--> VOID --nothing left--> (freed)
 *     OPEN  --given up--> VOID
 *
 * acquire.c opens attempts and decides, token.c says which attempt has won, giveback.c ends
 * attempts. A late answer changes its node state alone: in HELD a late grant adds to the grants
 * held, in VOID the late grant is given back.
 */
#include <stdlib.h>

#include "quorum.h"

#define SPARE_MOST 16

/* ---- life ------------------------------------------------------------------------------------ */

static size_t size_of(const quorum *q)
{
    return sizeof(quorum_attempt) + q->n * sizeof(quorum_node_state);
}

quorum_attempt *quorum_attempt_new(quorum_acquire *acquire)
{
    quorum *q = acquire->quorum;
    const pawl_op *op = acquire->op;
    struct list *spare = list_take(&q->spare);
    quorum_attempt *a = spare ? list_entry(spare, quorum_attempt, link) : malloc(size_of(q));
    const quorum_attempt *with = op->with_seq ? quorum_held_find(q, op->with_seq) : NULL;

    if (!a)
        return NULL;
    q->nspare -= spare != NULL;
    memset(a, 0, size_of(q));
    list_append(&q->attempts, &a->link);
    list_init(&a->task.link);
    a->task.run = quorum_give_back_run;
    a->quorum = q;
    a->acquire = acquire;
    a->seq = op->owner.seq;
    a->owner = (pawl_owner){op->owner.client, op->owner.holder, ++q->last_seq};
    a->with_seq = with ? with->owner.seq : 0;
    a->lease_ms = op->lease_ms;
    a->deadline = op->deadline;
    a->tokens = op->tokens ? op->tokens : 1;
    a->mode = op->mode;
    a->lock_kind = op->lock_kind;
    memcpy(a->name, op->name, strlen(op->name) + 1);
    for (size_t i = 0; i < q->n; i++) {
        a->node_states[i].attempt = a;
        a->node_states[i].said = QUORUM_SILENT;
    }
    if (a->lease_ms > q->longest_ms)
        q->longest_ms = a->lease_ms;
    return a;
}

void quorum_attempt_free(quorum_attempt *a)
{
    quorum *q = a->quorum;
    quorum_attempt **at = &q->held[a->seq % QUORUM_HASH];

    q->env->timer_clear(q->env, &a->timer);
    quorum_forget_task(&a->task);
    list_remove(&a->link);
    if (a->listed) {
        while (*at != a)
            at = &(*at)->next;
        *at = a->next;
    }
    if (q->nspare < SPARE_MOST && !q->closed) {
        list_append(&q->spare, &a->link);
        q->nspare++;
    } else {
        free(a);
    }
}

void quorum_held_add(quorum_attempt *a)
{
    quorum_attempt **at = &a->quorum->held[a->seq % QUORUM_HASH];

    a->next = *at;
    *at = a;
    a->listed = true;
}

quorum_attempt *quorum_held_find(const quorum *q, uint64_t seq)
{
    quorum_attempt *a = q->held[seq % QUORUM_HASH];

    while (a && a->seq != seq)
        a = a->next;
    return a;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void take_grant(quorum_node_state *s, const pawl_op *op)
{
    const quorum_attempt *a = s->attempt;
    uint32_t n = op->ntokens ? op->ntokens : 1;
    int64_t ms = op->granted_ms ? op->granted_ms : a->lease_ms;

    if (!s->again || op->token != s->token) {
        s->token = op->token;
        s->mark = op->token + n - 1;
    } else if (op->floor > s->mark) {
        s->mark = op->floor; /* the same grant, and the counter was raised */
    }
    s->ours = true;
    s->doubt = false;
    s->from = op->lease_from ? op->lease_from : s->sent;
    s->end = ms > (PAWL_NEVER - s->from) / PAWL_NS_PER_MS ? PAWL_NEVER
                                                          : s->from + ms * PAWL_NS_PER_MS;
}

static void acquired(pawl_op *op)
{
    quorum_node_state *s = op->arg;
    quorum_attempt *a = s->attempt;
    quorum_node *node = &a->quorum->nodes[s - a->node_states];

    s->out = false;
    s->said = op->code;
    quorum_node_answered(node, op, op->queue ? 0 : s->sent);
    if (op->code == 0) {
        if (op->value > 0)
            node->born = quorum_now(a->quorum) - op->value * PAWL_NS_PER_MS;
        take_grant(s, op);
    } else { /* a grant to be raised may still exist, unless the node said no */
        s->ours = false;
        s->doubt = op->code == PAWL_EUNKNOWN ||
                   (s->again && op->code != PAWL_EBUSY && op->code != PAWL_ENOTHELD);
    }
    if (a->acquire)
        quorum_later(a->quorum, &a->acquire->task);
    if (a->state == ATTEMPT_HELD && s->ours)
        quorum_hold_until(a, s->end);
    if (a->state == ATTEMPT_VOID)
        quorum_later(a->quorum, &a->task);
}

void quorum_attempt_ask(quorum_attempt *a, size_t node, bool queue, uint64_t floor)
{
    quorum_node_state *s = &a->node_states[node];

    s->op = (pawl_op){.kind = PAWL_OP_ACQUIRE,
                      .mode = a->mode,
                      .queue = queue,
                      .lock_kind = a->lock_kind,
                      .tokens = a->tokens,
                      .floor = floor,
                      .name = a->name,
                      .owner = a->owner,
                      .with_seq = a->with_seq,
                      .lease_ms = a->lease_ms,
                      .deadline = a->deadline,
                      .done = acquired,
                      .arg = s,
                      .err = &s->err};
    s->sent = quorum_now(a->quorum);
    s->out = true;
    s->again = s->ours;
    s->canceled = false;
    s->err.text[0] = 0;
    quorum_node_submit(&a->quorum->nodes[node], &s->op);
}

/* ---- counting -------------------------------------------------------------------------------- */

bool quorum_attempt_votes(const quorum_attempt *a, size_t i, int64_t now)
{
    const quorum_node_state *s = &a->node_states[i];

    return s->ours && s->end > now && !quorum_node_young(&a->quorum->nodes[i], now);
}

/* The instant until which to wait for the answer of this node. In a queue there is no limit. */
static int64_t patience(const quorum_attempt *a, size_t i)
{
    const quorum_node_state *s = &a->node_states[i];
    int64_t limit = quorum_node_patience(&a->quorum->nodes[i], s->sent);
    int64_t third = a->lease_ms / 3 + 1;

    if (s->op.queue)
        return PAWL_NEVER;
    if (third < (limit - s->sent) / PAWL_NS_PER_MS)
        limit = s->sent + third * PAWL_NS_PER_MS;
    return limit;
}

static bool passes(int code)
{
    return code == PAWL_EBUSY || code == PAWL_ECONN || code == PAWL_EUNKNOWN ||
           code == PAWL_ECANCELED || code == PAWL_ENOMEM || code == PAWL_EBACKEND;
}

quorum_tally quorum_attempt_count(const quorum_attempt *a, int64_t now)
{
    quorum_tally t = {.reason = 0};

    for (size_t i = 0; i < a->quorum->n; i++) {
        const quorum_node_state *s = &a->node_states[i];
        bool vote = quorum_attempt_votes(a, i, now);

        t.votes += vote;
        t.possible += vote || (s->out && now < patience(a, i));
        t.pending += s->out && !a->quorum->nodes[i].down && now < patience(a, i);
        if (s->ours || s->out || s->said == QUORUM_SILENT || s->said == 0)
            continue;
        t.busy += s->said == PAWL_EBUSY;
        if (!passes(s->said)) {
            t.reason = t.hopeless++ && t.reason != s->said ? PAWL_EQUORUM : s->said;
        }
    }
    return t;
}

int64_t quorum_attempt_patience(const quorum_attempt *a, int64_t now)
{
    int64_t first = PAWL_NEVER;

    for (size_t i = 0; i < a->quorum->n; i++)
        if (a->node_states[i].out) {
            int64_t limit = patience(a, i);

            if (limit > now && limit < first)
                first = limit;
        }
    return first;
}

void quorum_attempt_overdue(const quorum_attempt *a, int64_t now)
{
    for (size_t i = 0; i < a->quorum->n; i++)
        if (a->node_states[i].out && !a->node_states[i].op.queue &&
            now >= quorum_node_patience(&a->quorum->nodes[i], a->node_states[i].sent))
            quorum_node_is_down(&a->quorum->nodes[i]);
}
