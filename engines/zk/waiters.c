/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters.c - the waiters of a client, by the sequence number of their acquire, and the ops that
 * begin and end them: ACQUIRE and RELEASE. waiter.c has the steps in between.
 *
 * A cancelled acquire is finished when the server has confirmed that the node is deleted, or after
 * CANCEL_MS or ANSWER_MS in any case. The waiter itself stays until the server has confirmed the
 * delete. A RELEASE that comes meanwhile joins the waiter.
 */
#include <stdlib.h>

#include "waiter.h"

#define CANCEL_MS 100 /* how long to wait for the confirmation of a delete */
#define ANSWER_MS 400 /* how long to wait for the first answer, if none has come */

/* ---- the table ------------------------------------------------------------------------------- */

zk_waiter *zk_waiter_find(zk *z, uint64_t seq)
{
    struct list *bucket = &z->waiters[seq % ZK_BUCKETS];

    list_each(zk_waiter, l, bucket, in_table)
        if (l->seq == seq)
            return l;
    return NULL;
}

bool zk_holds(zk *z, uint64_t seq)
{
    const zk_waiter *w = zk_waiter_find(z, seq);

    return w && zk_waiter_holds(w);
}

static void timer_fired(pawl_timer *timer);

static zk_waiter *zk_waiter_new(zk *z, pawl_op *op)
{
    zk_waiter *w = calloc(1, sizeof *w + strlen(op->name) + 1);

    if (!w)
        return NULL;
    zk_task_begin(&w->task, z, &zk_waiter_type);
    list_append(&z->waiters[op->owner.seq % ZK_BUCKETS], &w->in_table);
    list_init(&w->ops);
    list_init(&w->releases);
    w->kind = op->mode == PAWL_MODE_PERMITS ? &zk_waiter_permits
              : op->mode == PAWL_MODE_LATCH ? &zk_waiter_latch : &zk_waiter_lock;
    w->timer = (pawl_timer){.fire = timer_fired, .arg = w};
    w->seq = op->owner.seq;
    w->with_seq = op->with_seq;
    w->count = op->count;
    w->permits = op->permits;
    w->mode = op->mode;
    w->lock_kind = op->lock_kind;
    w->queue = op->queue;
    strcpy(w->name, op->name);
    return w;
}

void zk_waiter_finish(struct list *ops, int code, const char *words)
{
    struct list *l;

    while ((l = list_take(ops)))
        pawl_op_finish_with(zk_waiter_op(l), code, words && words[0] ? words : NULL);
}

void zk_waiter_answer(zk_waiter *w)
{
    struct list *l;

    while ((l = list_take(&w->ops))) {
        pawl_op *op = zk_waiter_op(l);

        op->token = w->token;
        op->ntokens = 1;
        op->waited = w->waited;
        zk_session_lease(w->task.zk, op);
        pawl_op_finish(op, 0);
    }
}

void zk_waiter_end(zk_waiter *w, int release_code)
{
    struct list ops, releases;
    int code = w->code;
    char words[ZK_WORDS];

    memcpy(words, w->words, sizeof words);
    list_init(&ops);
    list_init(&releases);
    for (struct list *l; (l = list_take(&w->ops));)
        list_append(&ops, l);
    for (struct list *l; (l = list_take(&w->releases));)
        list_append(&releases, l);
    w->task.zk->env->timer_clear(w->task.zk->env, &w->timer);
    zk_watch_clear(&w->ahead);
    zk_watch_clear(&w->own);
    zk_task_end(&w->task);
    list_remove(&w->in_table);
    zk_queue_clear(&w->list);
    free(w->leases);
    free(w);
    zk_waiter_finish(&ops, code, words);
    zk_waiter_finish(&releases, release_code, NULL);
}

void zk_waiter_timer(zk_waiter *w, int64_t ms)
{
    kit_timer_ms(w->task.zk->env, &w->timer, ms);
}

/* Does the server have a node of the waiter, or may have one? */
static bool has_nodes(const zk_waiter *w)
{
    return w->node_is != NODE_NONE || w->leases_are != NODE_NONE;
}

/* ---- the ops --------------------------------------------------------------------------------- */

void zk_acquire(zk *z, pawl_op *op)
{
    zk_waiter *w = zk_waiter_find(z, op->owner.seq);

    if (w && w->state == WAITER_LEAVES) { /* a late retry; a leaving waiter keeps leaving */
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ECONN, "the last one is being given back"));
        return;
    }
    if (w) {
        list_append(&w->ops, zk_waiter_link(op));
        if (w->state == WAITER_HOLDS)
            zk_waiter_answer(w);
        return;
    }
    w = zk_waiter_new(z, op);
    if (!w) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    list_append(&w->ops, zk_waiter_link(op));
    zk_task_go(&w->task);
}

/* Finish the ACQUIRE ops now. With a connection the deletes are on their way, ahead of this
 * client's next requests; without a connection, or if no answer ever came, the outcome is
 * unknown. */
static void give_up(zk_waiter *w)
{
    zk *z = w->task.zk;
    struct list *l;

    if (z->link.state == LINK_READY && (w->waited || w->code != PAWL_ECANCELED))
        zk_waiter_finish(&w->ops, w->code, w->words);
    while ((l = list_take(&w->ops)))
        zk_give_up(z, zk_waiter_op(l), true);
}

static void timer_fired(pawl_timer *timer)
{
    zk_waiter *w = timer->arg;

    if (w->state == WAITER_LEAVES)
        give_up(w);
    else if (w->own_is != OWN_UNWATCHED || w->task.zk->link.state != LINK_READY)
        return; /* the next connection reads the node anyway */
    else if (w->task.out)
        zk_waiter_timer(w, WAITER_WATCH_MS);
    else if (w->state == WAITER_HOLDS || w->node_is == NODE_EXISTS) {
        w->step = w->state == WAITER_HOLDS ? STEP_VERIFY : STEP_WATCH;
        zk_waiter_ask_own(w);
    }
}

void zk_acquire_cancel(zk *z, pawl_op *op)
{
    zk_waiter *w = zk_waiter_find(z, op->owner.seq);

    if (w->state == WAITER_LEAVES) {
        zk_waiter_timer(w, CANCEL_MS);
        return;
    }
    if (!has_nodes(w) && !w->task.out) {
        list_remove(zk_waiter_link(op));
        if (list_empty(&w->ops))
            zk_waiter_end(w, PAWL_ENOTHELD);
        zk_give_up(z, op, false);
        return;
    }
    w->state = WAITER_LEAVES;
    w->code = PAWL_ECANCELED;
    w->words[0] = 0;
    zk_waiter_timer(w, z->link.state != LINK_READY ? 0 : w->waited ? CANCEL_MS : ANSWER_MS);
    zk_task_go(&w->task);
}

void zk_release(zk *z, pawl_op *op)
{
    zk_waiter *w = zk_waiter_find(z, op->owner.seq);
    bool part = op->mode == PAWL_MODE_PERMITS && op->permits > 0;

    if (!w || (w->state == WAITER_HOLDS && !zk_waiter_holds(w) && part)) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        return;
    }
    list_append(&w->releases, zk_waiter_link(op));
    if (part && w->state != WAITER_LEAVES) {
        w->keep = op->permits;
    } else {
        w->state = WAITER_LEAVES;
        z->env->timer_clear(z->env, &w->timer);
    }
    zk_task_go(&w->task);
}

void zk_release_cancel(zk *z, pawl_op *op)
{
    list_remove(zk_waiter_link(op));
    zk_give_up(z, op, true);
}

void zk_waiters_check(zk *z)
{
    for (size_t i = 0; i < ZK_BUCKETS; i++)
        list_each(zk_waiter, l, &z->waiters[i], in_table)
            zk_waiter_check(l);
}

void zk_waiters_end(zk *z)
{
    for (size_t i = 0; i < ZK_BUCKETS; i++)
        while (!list_empty(&z->waiters[i]))
            zk_waiter_end(list_entry(z->waiters[i].next, zk_waiter, in_table), PAWL_ECANCELED);
}

/* The nodes ended with the session. Waiters queue again in the new session. */
void zk_waiter_expired(zk_task *task)
{
    zk_waiter *w = zk_waiter_of(task);

    w->node_is = w->leases_are = NODE_NONE;
    w->own_is = OWN_UNWATCHED;
    w->nleases = 0;
    w->watches_leases = false;
    w->token = 0;
    zk_watch_clear(&w->ahead);
    zk_watch_clear(&w->own);
    if (w->state != WAITER_ASKS)
        zk_waiter_end(w, PAWL_ENOTHELD);
}

void zk_waiter_refused(zk_task *task, int code, const char *words)
{
    zk_waiter *w = zk_waiter_of(task);

    if (has_nodes(w))
        return;
    w->code = code;
    snprintf(w->words, sizeof w->words, "%s", words);
    zk_waiter_end(w, code);
}
