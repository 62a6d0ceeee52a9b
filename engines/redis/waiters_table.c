/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters_table.c - the waiters of a client: in order of arrival, and by sequence number, so that a
 * message finds its waiter. Finished waiters are pooled for reuse, up to SPARE_MAX.
 */
#include <stdlib.h>

#include "waiters.h"

#define SPARE_MAX 256

redis_waiter *redis_waiter_find(redis *r, uint64_t seq)
{
    kit_seq *s = kit_seqs_find(&r->table, seq);

    return s ? list_entry(s, redis_waiter, by_seq) : NULL;
}

redis_waiter *redis_waiter_new(redis *r, pawl_op *op)
{
    struct list *spare = list_take(&r->spare_waiters);
    redis_waiter *w = spare ? list_entry(spare, redis_waiter, link) : malloc(sizeof *w);

    r->nspare_waiters -= spare != NULL;
    if (!w)
        return NULL;
    w->by_seq.seq = op->owner.seq;
    if (!kit_seqs_add(&r->table, &w->by_seq)) {
        free(w);
        return NULL;
    }
    w->redis = r;
    w->op = op;
    w->call = w->overtaken = NULL;
    w->on = NULL;
    list_init(&w->proof.link);
    w->timer = (pawl_timer){0};
    w->secret = op->queue ? r->env->random(r->env) : 0;
    w->rechecks = 0;
    w->trouble = 0;
    w->unsure = w->nothing = false;
    w->state = WAITER_ASKING;
    w->asked = r->env->now(r->env);
    w->mode = op->mode;
    w->lock_kind = op->lock_kind;
    w->permits = op->permits;
    w->held = op->mode == PAWL_MODE_PERMITS ? 0 : op->count;
    w->lease_ms = op->lease_ms;
    w->channel = NULL;
    list_init(&w->in_channel);
    w->fair_wait = 0;
    w->round[0] = 0;
    strcpy(w->name, op->name);
    list_append(&r->waiters, &w->link);
    return w;
}

void redis_waiter_free(redis_waiter *w)
{
    redis *r = w->redis;

    kit_seqs_remove(&r->table, &w->by_seq);
    list_remove(&w->link);
    r->env->timer_clear(r->env, &w->timer);
    if (w->call && !redis_call_withdraw(w->call))
        w->call->about = NULL;
    if (w->overtaken)
        w->overtaken->about = NULL;
    list_remove(&w->proof.link);
    if (w->channel)
        redis_unlisten(w);
    if (r->nspare_waiters >= SPARE_MAX) {
        free(w);
        return;
    }
    list_append(&r->spare_waiters, &w->link);
    r->nspare_waiters++;
}
