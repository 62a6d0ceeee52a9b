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
static quorum_attempt *find_attempt(const quorum_broadcast *b, size_t item)
{
    quorum_attempt *a = quorum_held_find(b->quorum, b->seqs[item]);

    return a && a->state == ATTEMPT_HELD && a->owner.seq == b->items[item].owner.seq ? a : NULL;
}

/* ---- healing --------------------------------------------------------------------------------- */

static void heal(const quorum_broadcast *b, size_t node, size_t item)
{
    const quorum *q = b->quorum;
    quorum_attempt *a = find_attempt(b, item);
    quorum_node_state *state = a ? &a->node_states[node] : NULL;
    int64_t now = quorum_now(q);
    int code = b->answers[node].batch[item].code;

    if (!state || state->out || q->closed || (code && code != PAWL_ENOTHELD))
        return;
    if (code == 0) {
        state->missed = 0;
    } else if (!state->missed) {
        state->missed = now;
    } else if (now - state->missed >= q->env->timeout_ms * PAWL_NS_PER_MS) {
        state->ours = state->doubt = false;
        state->missed = 0;
        quorum_attempt_ask(a, node, false, a->token + a->tokens - 1);
    }
}

static void heal_all(quorum_broadcast *b)
{
    if (b->outer) /* no verdict yet */
        return;
    for (size_t i = 0; i < b->quorum->n; i++) {
        quorum_answer *answer = &b->answers[i];

        if (answer->out || answer->healed)
            continue;
        answer->healed = true;
        for (size_t k = 0; answer->code == 0 && k < b->nitems; k++)
            if (b->items[k].code == 0)
                heal(b, i, k);
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static int verdict(const quorum_broadcast *b, size_t item, size_t pending, int64_t now)
{
    const quorum *q = b->quorum;
    size_t yes = 0, no = 0;

    for (size_t i = 0; i < q->n; i++) {
        const quorum_answer *answer = &b->answers[i];

        if (answer->code != 0)
            continue;
        yes += answer->batch[item].code == 0 && !quorum_node_young(&q->nodes[i], now);
        no += answer->batch[item].code == PAWL_ENOTHELD;
    }
    if (yes >= q->majority)
        return 0;
    if (no > q->n - q->majority)
        return PAWL_ENOTHELD;
    return pending ? QUORUM_SILENT : PAWL_EUNKNOWN;
}

static void set_lease(const quorum_broadcast *b, pawl_op *op)
{
    op->lease_from = b->sent;
    op->granted_ms = 0;
    for (size_t i = 0; i < b->quorum->n; i++) {
        const quorum_answer *answer = &b->answers[i];

        if (answer->code != 0)
            continue;
        if (answer->op.lease_from && answer->op.lease_from < op->lease_from)
            op->lease_from = answer->op.lease_from;
        if (answer->op.granted_ms && (!op->granted_ms || answer->op.granted_ms < op->granted_ms))
            op->granted_ms = answer->op.granted_ms;
    }
}

static void apply(const quorum_broadcast *b, size_t item)
{
    quorum_attempt *a = find_attempt(b, item);
    int64_t ms = b->items[item].lease_ms;

    if (a && b->items[item].code == PAWL_ENOTHELD)
        quorum_void(a);
    else if (a && b->items[item].code == 0)
        quorum_hold_until(a, ms > (PAWL_NEVER - b->sent) / PAWL_NS_PER_MS
                                 ? PAWL_NEVER : b->sent + ms * PAWL_NS_PER_MS);
}

static bool judge_items(quorum_broadcast *b, size_t pending)
{
    int64_t now = quorum_now(b->quorum);
    bool certain = true;

    for (size_t k = 0; k < b->nitems; k++) {
        if (b->items[k].code == QUORUM_SILENT)
            b->items[k].code = verdict(b, k, pending, now);
        certain &= b->items[k].code != QUORUM_SILENT;
    }
    if (!certain)
        return false;
    for (size_t k = 0; k < b->nitems; k++)
        apply(b, k);
    return true;
}

static void judge_renew(quorum_broadcast *b, size_t pending)
{
    pawl_op *op = b->outer;

    if (!judge_items(b, pending))
        return;
    for (size_t k = 0; k < b->nitems; k++)
        op->batch[b->place[k]].code = b->items[k].code;
    set_lease(b, op);
    b->outer = NULL;
    pawl_op_finish(op, 0);
}

/* A repeated ACQUIRE by the holder: the same grant, with a fresh lease; if the grant is gone, a new
 * acquire. */
static void judge_confirm(quorum_broadcast *b, size_t pending)
{
    quorum_attempt *a;
    pawl_op *op = b->outer;

    if (!judge_items(b, pending))
        return;
    a = find_attempt(b, 0);
    b->outer = NULL;
    op->engine[1] = NULL;
    if (b->items[0].code == 0 && a) {
        op->token = a->token;
        op->ntokens = b->quorum->fences ? a->tokens : 0;
        set_lease(b, op);
        pawl_op_finish(op, 0);
        return;
    }
    if (b->items[0].code != PAWL_ENOTHELD)
        pawl_op_finish(op, PAWL_EUNKNOWN);
    else if (b->canceled)
        pawl_op_finish(op, PAWL_ECANCELED);
    else
        quorum_acquire_start(b->quorum, op);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void forget_items(quorum_broadcast *b)
{
    free(b->items);
    free(b->seqs);
    free(b->place);
    free(b->texts);
}

/* Room for n items, once for the broadcast and once for each node, and for the names. */
static bool make_room(quorum_broadcast *b, size_t n, size_t text)
{
    size_t nodes = b->quorum->n;

    b->items = calloc((nodes + 1) * n + 1, sizeof *b->items);
    b->seqs = calloc(n + 1, sizeof *b->seqs);
    b->place = calloc(n + 1, sizeof *b->place);
    b->texts = malloc(text + 1);
    b->forget = forget_items;
    for (size_t i = 0; b->items && i < nodes; i++)
        b->answers[i].batch = b->items + (i + 1) * n;
    return b->items && b->seqs && b->place && b->texts;
}

static char *add_item(quorum_broadcast *b, const pawl_renewal *from, size_t place, char *text)
{
    const quorum_attempt *a = quorum_held_find(b->quorum, from->owner.seq);
    pawl_renewal *item = &b->items[b->nitems];
    size_t size = strlen(from->name) + 1;

    if (!a || a->state != ATTEMPT_HELD)
        return text;
    *item = *from;
    item->name = memcpy(text, from->name, size);
    item->owner = a->owner;
    item->arg = NULL;
    item->code = QUORUM_SILENT;
    b->seqs[b->nitems] = from->owner.seq;
    b->place[b->nitems++] = (int32_t)place;
    return text + size;
}

static bool fill(quorum_broadcast *b, const pawl_renewal *batch, size_t n)
{
    size_t size = 0;
    char *text;

    for (size_t k = 0; k < n; k++)
        size += strlen(batch[k].name) + 1;
    if (!make_room(b, n, size))
        return false;
    text = b->texts;
    for (size_t k = 0; k < n; k++)
        text = add_item(b, &batch[k], k, text);
    for (size_t i = 0; i < b->quorum->n; i++)
        memcpy(b->answers[i].batch, b->items, b->nitems * sizeof *b->items);
    return true;
}

static void give_up(quorum_broadcast *b, int code)
{
    pawl_op *op = b->outer;

    quorum_broadcast_free(b);
    if (code)
        pawl_error_set(op->err, code, "out of memory");
    pawl_op_finish(op, code);
}

void quorum_renew(quorum *q, pawl_op *op)
{
    quorum_broadcast *b = quorum_broadcast_new(q, op, PAWL_OP_RENEW);

    if (!b)
        return;
    b->judge = judge_renew;
    b->after = heal_all;
    for (size_t k = 0; k < op->batch_len; k++)
        op->batch[k].code = PAWL_ENOTHELD;
    if (!fill(b, op->batch, op->batch_len))
        give_up(b, PAWL_ENOMEM);
    else if (!b->nitems)
        give_up(b, 0);
    else
        quorum_broadcast_send(b);
}

void quorum_confirm(quorum *q, pawl_op *op, const quorum_attempt *a)
{
    pawl_renewal item = {.name = a->name, .owner = op->owner, .lease_ms = op->lease_ms,
                         .mode = op->mode, .lock_kind = op->lock_kind};
    quorum_broadcast *b = quorum_broadcast_new(q, op, PAWL_OP_RENEW);

    if (!b)
        return;
    b->judge = judge_confirm;
    b->after = heal_all;
    if (!fill(b, &item, 1))
        give_up(b, PAWL_ENOMEM);
    else
        quorum_broadcast_send(b);
}
