/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters_table.c - the waiters there are: in order of arrival, and by their number, for the
 * messages that name one. Those that are over are kept for the next, up to some.
 */
#include <stdlib.h>

#include "waiters.h"

#define SPARE_MAX 256

static redis_waiter **bucket_of(redis *r, uint64_t seq)
{
    return &r->table[seq & (r->table_room - 1)]; /* seq counts up: no hash does better */
}

static bool grow(redis *r)
{
    size_t room = r->table_room ? r->table_room * 2 : 64;
    redis_waiter **old = r->table, **table = calloc(room, sizeof *table);
    size_t old_room = r->table_room;

    if (!table)
        return old != NULL; /* longer chains, no harm */
    r->table = table;
    r->table_room = room;
    for (size_t i = 0; i < old_room; i++)
        while (old[i]) {
            redis_waiter *w = old[i];

            old[i] = w->next;
            w->next = *bucket_of(r, w->seq);
            *bucket_of(r, w->seq) = w;
        }
    free(old);
    return true;
}

redis_waiter *redis_waiter_find(redis *r, uint64_t seq)
{
    redis_waiter *w = r->table ? *bucket_of(r, seq) : NULL;

    while (w && w->seq != seq)
        w = w->next;
    return w;
}

redis_waiter *redis_waiter_new(redis *r, pawl_op *op)
{
    struct list *spare = list_take(&r->spare_waiters);
    redis_waiter *w = spare ? list_entry(spare, redis_waiter, link) : malloc(sizeof *w);

    r->nspare_waiters -= spare != NULL;
    if (!w)
        return NULL;
    if (r->nwaiters >= r->table_room && !grow(r)) {
        free(w);
        return NULL;
    }
    w->redis = r;
    w->op = op;
    w->call = w->overtaken = NULL;
    w->on = NULL;
    list_init(&w->proof.link);
    w->timer = (pawl_timer){0};
    w->seq = op->owner.seq;
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
    w->next = *bucket_of(r, w->seq);
    *bucket_of(r, w->seq) = w;
    list_append(&r->waiters, &w->link);
    r->nwaiters++;
    return w;
}

void redis_waiter_free(redis_waiter *w)
{
    redis *r = w->redis;
    redis_waiter **at = bucket_of(r, w->seq);

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    r->nwaiters--;
    list_remove(&w->link);
    r->env->timer_clear(r->env, &w->timer);
    if (w->call && !redis_call_withdraw(w->call))
        w->call->about = NULL;
    if (w->overtaken)
        w->overtaken->about = NULL;
    list_remove(&w->proof.link);
    redis_unlisten(w);
    if (r->nspare_waiters >= SPARE_MAX) {
        free(w);
        return;
    }
    list_append(&r->spare_waiters, &w->link);
    r->nspare_waiters++;
}
