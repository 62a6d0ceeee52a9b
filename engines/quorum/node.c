/* SPDX-License-Identifier: Apache-2.0
 *
 * node.c - one inner engine: up or down, the age of its store, its events.
 *
 * DOWN. An engine may keep an op for as long as the service can't be reached. So every answer has a
 * time limit: half of env->timeout_ms, or, if the node is known to be down, a fraction of that. A
 * node that exceeds the limit, or answers with an error, is down until it answers without an error.
 * A gate (acquire.c) is also down if it takes twice as long as a majority plus an eighth of the
 * timeout. Being down decides only how long other code waits for the node, never the meaning of an
 * answer.
 *
 * YOUNG. A store that lost its data has forgotten grants on which holders still rely. All of these
 * grants end within one lease of the store's start (a holder that renews does so at a majority
 * without this node, since the node answers "not held"). So a node's grants count only when the
 * store is older than a lease. The leases of other clients are not known here; so the age is
 * settle= of the URL, or else the longest lease that this client has asked for, and at least the
 * default lease, 30 s.
 *
 * PROBE. An acquire that waits in a node's queue gets no message while waiting, and none if the
 * node dies. While there are such acquires, the node is asked now and then to renew a grant that
 * never existed; if the answer is not "not held", the acquires leave this node.
 */
#include "quorum.h"

#define USUAL_MS 30000 /* the default of a lease */

void quorum_node_submit(quorum_node *n, pawl_op *op)
{
    n->quorum->moved = true;
    n->inner.engine->submit(n->inner.state, op);
}

void quorum_node_cancel(quorum_node *n, pawl_op *op)
{
    n->quorum->moved = true;
    n->inner.engine->cancel(n->inner.state, op);
}

/* ---- up or down ------------------------------------------------------------------------------ */

/* Does this answer show that the node works? */
static bool sound(int code)
{
    return code == 0 || code == PAWL_EBUSY || code == PAWL_ENOTHELD || code == PAWL_ESTATE ||
           code == PAWL_EINVAL || code == PAWL_ENOTSUP;
}

/* The pace is the shortest of the last response times: a busy machine delays some answers, a slow
 * node delays all. */
static void note_pace(quorum_node *n, int64_t took)
{
    n->took[n->answers++ % QUORUM_PACES] = took;
    n->pace = PAWL_NEVER;
    for (uint32_t i = 0; i < n->answers && i < QUORUM_PACES; i++)
        if (n->took[i] < n->pace)
            n->pace = n->took[i];
    if (n->answers == 2 * QUORUM_PACES)
        n->answers = QUORUM_PACES;
}

void quorum_node_answered(quorum_node *n, const pawl_op *op, int64_t asked)
{
    int64_t now = quorum_now(n->quorum);

    if (op->code == PAWL_ECANCELED) /* says nothing about the node */
        return;
    n->down = !sound(op->code);
    if (n->down && op->err && op->code != PAWL_EUNKNOWN)
        snprintf(n->why, sizeof n->why, "%.79s", op->err->text);
    if (n->down)
        return;
    n->why[0] = 0;
    n->heard = now;
    if (asked)
        note_pace(n, now - asked);
}

int64_t quorum_pace(const quorum *q)
{
    int64_t sorted[QUORUM_MOST];
    size_t n = 0, k;

    for (size_t i = 0; i < q->n; i++) {
        int64_t pace = q->nodes[i].pace;

        if (!pace)
            continue;
        for (k = n++; k > 0 && sorted[k - 1] > pace; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = pace;
    }
    return n ? sorted[(n < q->majority ? n : q->majority) - 1] : 0;
}

size_t quorum_gate(const quorum *q)
{
    int64_t slow = 4 * quorum_pace(q) + 10 * PAWL_NS_PER_MS;
    size_t i = 0;

    while (i < q->n && (q->nodes[i].down || q->nodes[i].pace > slow))
        i++;
    return i;
}

int64_t quorum_gate_patience(const quorum *q, int64_t sent, int64_t sure)
{
    return sure + (sure - sent) + q->env->timeout_ms * PAWL_NS_PER_MS / 8;
}

void quorum_node_is_down(quorum_node *n)
{
    n->down = true;
}

int64_t quorum_settle_ms(const quorum *q)
{
    return q->settle_ms ? q->settle_ms : q->longest_ms > USUAL_MS ? q->longest_ms : USUAL_MS;
}

bool quorum_node_young(const quorum_node *n, int64_t now)
{
    int64_t settle = quorum_settle_ms(n->quorum);

    if (!n->born)
        return false;
    return settle > (PAWL_NEVER - n->born) / PAWL_NS_PER_MS ||
           now < n->born + settle * PAWL_NS_PER_MS;
}

int64_t quorum_node_patience(const quorum_node *n, int64_t sent)
{
    int64_t ms = n->quorum->env->timeout_ms;

    ms = n->down ? ms / 40 : ms / 2;
    return sent + (ms < 10 ? 10 : ms) * PAWL_NS_PER_MS;
}

/* ---- probes ---------------------------------------------------------------------------------- */

static void plan_probe(quorum_node *n)
{
    quorum *q = n->quorum;
    int64_t every = q->env->timeout_ms * PAWL_NS_PER_MS / 4;

    q->env->timer_set(q->env, &n->probe_timer,
                      quorum_now(q) + every / 2 + quorum_random(q, every / 2));
}

static void probed(pawl_op *op)
{
    quorum_node *n = op->arg;

    n->probe_out = false;
    quorum_node_answered(n, op, 0);
}

static void probe(quorum_node *n)
{
    quorum *q = n->quorum;

    n->probe_item = (pawl_renewal){.name = n->probe_name,
                                   .owner = {q->env->client_id, 0, ++q->last_seq},
                                   .lease_ms = 1,
                                   .mode = PAWL_MODE_EXCLUSIVE};
    n->probe = (pawl_op){.kind = PAWL_OP_RENEW,
                         .tokens = 1,
                         .batch = &n->probe_item,
                         .batch_len = 1,
                         .deadline = quorum_node_patience(n, quorum_now(q)),
                         .done = probed,
                         .arg = n};
    n->probe_sent = quorum_now(q);
    n->probe_out = true;
    n->probe_canceled = false;
    quorum_node_submit(n, &n->probe);
}

static void probe_due(pawl_timer *timer)
{
    quorum_node *n = timer->arg;
    quorum *q = n->quorum;
    int64_t now = quorum_now(q), overdue = quorum_node_patience(n, n->probe_sent);

    if (n->probe_out && now >= overdue) {
        quorum_node_is_down(n);
        if (!n->probe_canceled) {
            n->probe_canceled = true;
            quorum_node_cancel(n, &n->probe);
        }
    } else if (!n->probe_out && now - n->heard >= q->env->timeout_ms * PAWL_NS_PER_MS / 4) {
        probe(n);
    }
    if (n->down && (!n->probe_out || n->probe_canceled))
        quorum_acquires_leave(q, n);
    if (n->waiters && n->probe_out && !n->probe_canceled)
        q->env->timer_set(q->env, timer, quorum_node_patience(n, n->probe_sent));
    else if (n->waiters)
        plan_probe(n);
    quorum_pump(q);
}

void quorum_node_wait(quorum_node *n, const char *name)
{
    n->probe_timer.fire = probe_due;
    n->probe_timer.arg = n;
    if (n->waiters++)
        return;
    if (!n->probe_out)
        memcpy(n->probe_name, name, strlen(name) + 1);
    n->quorum->env->timer_set(n->quorum->env, &n->probe_timer, 0);
}

void quorum_node_unwait(quorum_node *n)
{
    if (--n->waiters == 0)
        n->quorum->env->timer_clear(n->quorum->env, &n->probe_timer);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void told(pawl_op *op)
{
    quorum_node *n = op->arg;

    n->event_out = false;
    if (op->code || n->quorum->closed)
        return;
    if (op->event == PAWL_EVENT_RECONNECT)
        n->down = false;
    if (op->event != PAWL_EVENT_NONE && op->reason == PAWL_LOST_BROKEN)
        pawl_events_broken(&n->quorum->events, 0, op->by, op->by ? strlen(op->by) : 0);
    else if (op->event != PAWL_EVENT_NONE)
        pawl_events_report(&n->quorum->events, PAWL_EVENT_VERIFY, 0);
    quorum_later(n->quorum, &n->event_again);
}

static void listen_again(quorum_task *task)
{
    quorum_node_listen(list_entry(task, quorum_node, event_again));
}

void quorum_node_listen(quorum_node *n)
{
    n->event_again.run = listen_again;
    n->event = (pawl_op){.kind = PAWL_OP_EVENT, .deadline = PAWL_NEVER, .done = told, .arg = n};
    n->event_out = true;
    quorum_node_submit(n, &n->event);
}

void quorum_node_end(quorum_node *n)
{
    if (n->probe_timer.armed)
        n->quorum->env->timer_clear(n->quorum->env, &n->probe_timer);
    quorum_forget_task(&n->event_again);
    if (n->inner.engine)
        n->quorum->env->instance_close(&n->inner);
    n->inner = (pawl_instance){0};
}
