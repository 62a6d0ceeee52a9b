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
    const zk_waiter *p = zk_waiter_find(z, seq);

    return p && zk_waiter_holds(p);
}

static void timer_fired(pawl_timer *timer);

static zk_waiter *zk_waiter_new(zk *z, pawl_op *op)
{
    zk_waiter *p = calloc(1, sizeof *p + strlen(op->name) + 1);

    if (!p)
        return NULL;
    zk_task_begin(&p->task, z, &zk_waiter_type);
    list_append(&z->waiters[op->owner.seq % ZK_BUCKETS], &p->in_table);
    list_init(&p->ops);
    list_init(&p->releases);
    p->kind = op->mode == PAWL_MODE_PERMITS ? &zk_waiter_permits
              : op->mode == PAWL_MODE_LATCH ? &zk_waiter_latch : &zk_waiter_lock;
    p->timer = (pawl_timer){.fire = timer_fired, .arg = p};
    p->seq = op->owner.seq;
    p->with_seq = op->with_seq;
    p->count = op->count;
    p->permits = op->permits;
    p->mode = op->mode;
    p->lock_kind = op->lock_kind;
    p->queue = op->queue;
    strcpy(p->name, op->name);
    return p;
}

void zk_waiter_finish(struct list *ops, int code, const char *words)
{
    struct list *l;

    while ((l = list_take(ops)))
        pawl_op_finish_with(zk_waiter_op(l), code, words && words[0] ? words : NULL);
}

void zk_waiter_answer(zk_waiter *p)
{
    struct list *l;

    while ((l = list_take(&p->ops))) {
        pawl_op *op = zk_waiter_op(l);

        op->token = p->token;
        op->ntokens = 1;
        op->waited = p->waited;
        zk_session_lease(p->task.zk, op);
        pawl_op_finish(op, 0);
    }
}

void zk_waiter_end(zk_waiter *p, int release_code)
{
    struct list ops, releases;
    int code = p->code;
    char words[ZK_WORDS];

    memcpy(words, p->words, sizeof words);
    list_init(&ops);
    list_init(&releases);
    for (struct list *l; (l = list_take(&p->ops));)
        list_append(&ops, l);
    for (struct list *l; (l = list_take(&p->releases));)
        list_append(&releases, l);
    p->task.zk->env->timer_clear(p->task.zk->env, &p->timer);
    zk_watch_clear(&p->ahead);
    zk_watch_clear(&p->own);
    zk_task_end(&p->task);
    list_remove(&p->in_table);
    zk_queue_clear(&p->list);
    free(p->leases);
    free(p);
    zk_waiter_finish(&ops, code, words);
    zk_waiter_finish(&releases, release_code, NULL);
}

void zk_waiter_timer(zk_waiter *p, int64_t ms)
{
    kit_timer_ms(p->task.zk->env, &p->timer, ms);
}

/* Does the server have a node of the waiter, or may have one? */
static bool has_nodes(const zk_waiter *p)
{
    return p->node_is != NODE_NONE || p->leases_are != NODE_NONE;
}

/* ---- the ops --------------------------------------------------------------------------------- */

void zk_acquire(zk *z, pawl_op *op)
{
    zk_waiter *p = zk_waiter_find(z, op->owner.seq);

    if (p && p->state == WAITER_LEAVES) { /* a late retry; a leaving waiter keeps leaving */
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ECONN, "the last one is being given back"));
        return;
    }
    if (p) {
        list_append(&p->ops, zk_waiter_link(op));
        if (p->state == WAITER_HOLDS)
            zk_waiter_answer(p);
        return;
    }
    p = zk_waiter_new(z, op);
    if (!p) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    list_append(&p->ops, zk_waiter_link(op));
    zk_task_go(&p->task);
}

/* Finish the ACQUIRE ops now. With a connection the deletes are on their way, ahead of this
 * client's next requests; without a connection, or if no answer ever came, the outcome is
 * unknown. */
static void give_up(zk_waiter *p)
{
    zk *z = p->task.zk;
    struct list *l;

    if (z->link.state == LINK_READY && (p->waited || p->code != PAWL_ECANCELED))
        zk_waiter_finish(&p->ops, p->code, p->words);
    while ((l = list_take(&p->ops)))
        zk_give_up(z, zk_waiter_op(l), true);
}

static void timer_fired(pawl_timer *timer)
{
    zk_waiter *p = timer->arg;

    if (p->state == WAITER_LEAVES)
        give_up(p);
    else if (p->own_is != OWN_UNWATCHED || p->task.zk->link.state != LINK_READY)
        return; /* the next connection reads the node anyway */
    else if (p->task.out)
        zk_waiter_timer(p, WAITER_WATCH_MS);
    else if (p->state == WAITER_HOLDS || p->node_is == NODE_EXISTS) {
        p->step = p->state == WAITER_HOLDS ? STEP_VERIFY : STEP_WATCH;
        zk_waiter_ask_own(p);
    }
}

void zk_acquire_cancel(zk *z, pawl_op *op)
{
    zk_waiter *p = zk_waiter_find(z, op->owner.seq);

    if (p->state == WAITER_LEAVES) {
        zk_waiter_timer(p, CANCEL_MS);
        return;
    }
    if (!has_nodes(p) && !p->task.out) {
        list_remove(zk_waiter_link(op));
        if (list_empty(&p->ops))
            zk_waiter_end(p, PAWL_ENOTHELD);
        zk_give_up(z, op, false);
        return;
    }
    p->state = WAITER_LEAVES;
    p->code = PAWL_ECANCELED;
    p->words[0] = 0;
    zk_waiter_timer(p, z->link.state != LINK_READY ? 0 : p->waited ? CANCEL_MS : ANSWER_MS);
    zk_task_go(&p->task);
}

void zk_release(zk *z, pawl_op *op)
{
    zk_waiter *p = zk_waiter_find(z, op->owner.seq);
    bool part = op->mode == PAWL_MODE_PERMITS && op->permits > 0;

    if (!p || (p->state == WAITER_HOLDS && !zk_waiter_holds(p) && part)) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        return;
    }
    list_append(&p->releases, zk_waiter_link(op));
    if (part && p->state != WAITER_LEAVES) {
        p->keep = op->permits;
    } else {
        p->state = WAITER_LEAVES;
        z->env->timer_clear(z->env, &p->timer);
    }
    zk_task_go(&p->task);
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
    zk_waiter *p = zk_waiter_of(task);

    p->node_is = p->leases_are = NODE_NONE;
    p->own_is = OWN_UNWATCHED;
    p->nleases = 0;
    p->watches_leases = false;
    p->token = 0;
    zk_watch_clear(&p->ahead);
    zk_watch_clear(&p->own);
    if (p->state != WAITER_ASKS)
        zk_waiter_end(p, PAWL_ENOTHELD);
}

void zk_waiter_refused(zk_task *task, int code, const char *words)
{
    zk_waiter *p = zk_waiter_of(task);

    if (has_nodes(p))
        return;
    p->code = code;
    snprintf(p->words, sizeof p->words, "%s", words);
    zk_waiter_end(p, code);
}
