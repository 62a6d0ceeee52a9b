/* SPDX-License-Identifier: Apache-2.0
 *
 * renew.c - RENEW by majority, and healing.
 *
 * Each item's verdict: 0 if a majority of nodes that vote renewed the lease; PAWL_ENOTHELD if too
 * many nodes lack the grant for a majority; PAWL_EUNKNOWN otherwise, when all nodes that answer in
 * time have answered. The lease counts from before the first request was sent, or from the instant
 * that a node with a session reports, and is as short as the shortest lease that a node gave. The
 * remaining grants of an item that is not held are given back: the core will not release them, and
 * they would block the next owner.
 *
 * HEALING. If a node answers "not held" for a grant that a majority has confirmed, the node has
 * lost the grant (by restarting empty), or never had the grant (the node was down). If the node
 * answers so again, and the first time was a timeout ago, the node is asked to grant the lock, not
 * queued, with the token as a floor. That is always safe: healing only adds a node to a grant that
 * is valid without the node. Whether the node votes from then on depends on its age, as everywhere.
 * Healing at once would be too early: a BREAK may be on its way from node to node.
 */
#include <stdlib.h>

#include "quorum.h"

/* The attempt of the item, if it is still HELD. */
static quorum_attempt *find_attempt(const quorum_broadcast *s, size_t item)
{
    quorum_attempt *b = quorum_held_find(s->quorum, s->seqs[item]);

    return b && b->state == ATTEMPT_HELD && b->owner.seq == s->items[item].owner.seq ? b : NULL;
}

/* ---- healing --------------------------------------------------------------------------------- */

static void heal(const quorum_broadcast *s, size_t node, size_t item)
{
    const quorum *q = s->quorum;
    quorum_attempt *b = find_attempt(s, item);
    quorum_node_state *state = b ? &b->node_states[node] : NULL;
    int64_t now = quorum_now(q);
    int code = s->answers[node].batch[item].code;

    if (!state || state->out || q->closed || (code && code != PAWL_ENOTHELD))
        return;
    if (code == 0) {
        state->missed = 0;
    } else if (!state->missed) {
        state->missed = now;
    } else if (now - state->missed >= q->env->timeout_ms * PAWL_NS_PER_MS) {
        state->ours = state->doubt = false;
        state->missed = 0;
        quorum_attempt_ask(b, node, false, b->token + b->tokens - 1);
    }
}

static void heal_all(quorum_broadcast *s)
{
    if (s->outer) /* no verdict yet */
        return;
    for (size_t i = 0; i < s->quorum->n; i++) {
        quorum_answer *a = &s->answers[i];

        if (a->out || a->healed)
            continue;
        a->healed = true;
        for (size_t k = 0; a->code == 0 && k < s->nitems; k++)
            if (s->items[k].code == 0)
                heal(s, i, k);
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static int verdict(const quorum_broadcast *s, size_t item, size_t pending, int64_t now)
{
    const quorum *q = s->quorum;
    size_t yes = 0, no = 0;

    for (size_t i = 0; i < q->n; i++) {
        const quorum_answer *a = &s->answers[i];

        if (a->code != 0)
            continue;
        yes += a->batch[item].code == 0 && !quorum_node_young(&q->nodes[i], now);
        no += a->batch[item].code == PAWL_ENOTHELD;
    }
    if (yes >= q->majority)
        return 0;
    if (no > q->n - q->majority)
        return PAWL_ENOTHELD;
    return pending ? QUORUM_SILENT : PAWL_EUNKNOWN;
}

static void set_lease(const quorum_broadcast *s, pawl_op *op)
{
    op->lease_from = s->sent;
    op->granted_ms = 0;
    for (size_t i = 0; i < s->quorum->n; i++) {
        const quorum_answer *a = &s->answers[i];

        if (a->code != 0)
            continue;
        if (a->op.lease_from && a->op.lease_from < op->lease_from)
            op->lease_from = a->op.lease_from;
        if (a->op.granted_ms && (!op->granted_ms || a->op.granted_ms < op->granted_ms))
            op->granted_ms = a->op.granted_ms;
    }
}

static void apply(const quorum_broadcast *s, size_t item)
{
    quorum_attempt *b = find_attempt(s, item);
    int64_t ms = s->items[item].lease_ms;

    if (b && s->items[item].code == PAWL_ENOTHELD)
        quorum_void(b);
    else if (b && s->items[item].code == 0)
        quorum_hold_until(b, ms > (PAWL_NEVER - s->sent) / PAWL_NS_PER_MS
                                 ? PAWL_NEVER : s->sent + ms * PAWL_NS_PER_MS);
}

static bool judge_items(quorum_broadcast *s, size_t pending)
{
    int64_t now = quorum_now(s->quorum);
    bool certain = true;

    for (size_t k = 0; k < s->nitems; k++) {
        if (s->items[k].code == QUORUM_SILENT)
            s->items[k].code = verdict(s, k, pending, now);
        certain &= s->items[k].code != QUORUM_SILENT;
    }
    if (!certain)
        return false;
    for (size_t k = 0; k < s->nitems; k++)
        apply(s, k);
    return true;
}

static void judge_renew(quorum_broadcast *s, size_t pending)
{
    pawl_op *op = s->outer;

    if (!judge_items(s, pending))
        return;
    for (size_t k = 0; k < s->nitems; k++)
        op->batch[s->place[k]].code = s->items[k].code;
    set_lease(s, op);
    s->outer = NULL;
    pawl_op_finish(op, 0);
}

/* A repeated ACQUIRE by the holder: the same grant, with a fresh lease; if the grant is gone, a new
 * acquire. */
static void judge_confirm(quorum_broadcast *s, size_t pending)
{
    quorum_attempt *b;
    pawl_op *op = s->outer;

    if (!judge_items(s, pending))
        return;
    b = find_attempt(s, 0);
    s->outer = NULL;
    op->engine[1] = NULL;
    if (s->items[0].code == 0 && b) {
        op->token = b->token;
        op->ntokens = s->quorum->fences ? b->tokens : 0;
        set_lease(s, op);
        pawl_op_finish(op, 0);
        return;
    }
    if (s->items[0].code != PAWL_ENOTHELD)
        pawl_op_finish(op, PAWL_EUNKNOWN);
    else if (s->canceled)
        pawl_op_finish(op, PAWL_ECANCELED);
    else
        quorum_acquire_start(s->quorum, op);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void forget_items(quorum_broadcast *s)
{
    free(s->items);
    free(s->seqs);
    free(s->place);
    free(s->texts);
}

/* Room for n items, once for the broadcast and once for each node, and for the names. */
static bool make_room(quorum_broadcast *s, size_t n, size_t text)
{
    size_t nodes = s->quorum->n;

    s->items = calloc((nodes + 1) * n + 1, sizeof *s->items);
    s->seqs = calloc(n + 1, sizeof *s->seqs);
    s->place = calloc(n + 1, sizeof *s->place);
    s->texts = malloc(text + 1);
    s->forget = forget_items;
    for (size_t i = 0; s->items && i < nodes; i++)
        s->answers[i].batch = s->items + (i + 1) * n;
    return s->items && s->seqs && s->place && s->texts;
}

static char *add_item(quorum_broadcast *s, const pawl_renewal *from, size_t place, char *text)
{
    const quorum_attempt *b = quorum_held_find(s->quorum, from->owner.seq);
    pawl_renewal *item = &s->items[s->nitems];
    size_t size = strlen(from->name) + 1;

    if (!b || b->state != ATTEMPT_HELD)
        return text;
    *item = *from;
    item->name = memcpy(text, from->name, size);
    item->owner = b->owner;
    item->arg = NULL;
    item->code = QUORUM_SILENT;
    s->seqs[s->nitems] = from->owner.seq;
    s->place[s->nitems++] = (int32_t)place;
    return text + size;
}

static bool fill(quorum_broadcast *s, const pawl_renewal *batch, size_t n)
{
    size_t size = 0;
    char *text;

    for (size_t k = 0; k < n; k++)
        size += strlen(batch[k].name) + 1;
    if (!make_room(s, n, size))
        return false;
    text = s->texts;
    for (size_t k = 0; k < n; k++)
        text = add_item(s, &batch[k], k, text);
    for (size_t i = 0; i < s->quorum->n; i++)
        memcpy(s->answers[i].batch, s->items, s->nitems * sizeof *s->items);
    return true;
}

static void give_up(quorum_broadcast *s, int code)
{
    pawl_op *op = s->outer;

    quorum_broadcast_free(s);
    if (code)
        pawl_error_set(op->err, code, "out of memory");
    pawl_op_finish(op, code);
}

void quorum_renew(quorum *q, pawl_op *op)
{
    quorum_broadcast *s = quorum_broadcast_new(q, op, PAWL_OP_RENEW);

    if (!s)
        return;
    s->judge = judge_renew;
    s->after = heal_all;
    for (size_t k = 0; k < op->batch_len; k++)
        op->batch[k].code = PAWL_ENOTHELD;
    if (!fill(s, op->batch, op->batch_len))
        give_up(s, PAWL_ENOMEM);
    else if (!s->nitems)
        give_up(s, 0);
    else
        quorum_broadcast_send(s);
}

void quorum_confirm(quorum *q, pawl_op *op, const quorum_attempt *b)
{
    pawl_renewal item = {.name = b->name, .owner = op->owner, .lease_ms = op->lease_ms,
                         .mode = op->mode, .lock_kind = op->lock_kind};
    quorum_broadcast *s = quorum_broadcast_new(q, op, PAWL_OP_RENEW);

    if (!s)
        return;
    s->judge = judge_confirm;
    s->after = heal_all;
    if (!fill(s, &item, 1))
        give_up(s, PAWL_ENOMEM);
    else
        quorum_broadcast_send(s);
}
