/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c - the order of waiters: which of one client's waiters asks first, and which keys are
 * watched.
 *
 * ASKING IN ORDER. The server carries out concurrent requests in any order. So of one client's
 * waiters for a name only the first asks; and a try waits until leaving waiters have left.
 *
 * WATCHED KEYS. A waiter watches the key ahead, from the moment the waiter knows that key, and its
 * own key, so that no deletion goes unnoticed; but the own key only after a delay. The watch begins
 * at a revision at which the key existed, so no event is missed, and short holds cost no more than
 * two requests.
 */
#include <stdlib.h>

#include "etcd.h"
#include "kit/hash.h"

#define RETRY_MS 1000

/* ---- asking in order ------------------------------------------------------------------------- */

static struct list *asking_bucket(etcd *e, const char *name)
{
    return &e->asking[kit_hash_text(name) % ETCD_ASKING_BUCKETS];
}

void etcd_waiter_enter_order(etcd_waiter *w)
{
    if (list_empty(&w->asking))
        list_append(asking_bucket(w->e, w->name), &w->asking);
}

/* Must an earlier waiter of the same name go first? */
bool etcd_waiter_behind(const etcd_waiter *w)
{
    struct list *bucket = asking_bucket(w->e, w->name);

    list_each(const etcd_waiter, other, bucket, asking) {
        if (other == w)
            return false;
        if (!strcmp(other->name, w->name) &&
            (other->state == WAITER_ASKS || (other->state == WAITER_LEAVES && !w->queue)))
            return true;
    }
    return false;
}

void etcd_waiter_next(const etcd_waiter *w)
{
    struct list *bucket = asking_bucket(w->e, w->name);

    list_each(etcd_waiter, other, bucket, asking) {
        if (other->state == WAITER_ASKS && !strcmp(other->name, w->name)) {
            etcd_waiter_step(other);
            return;
        }
    }
}

void etcd_waiter_leave_order(etcd_waiter *w)
{
    list_remove(&w->asking);
    etcd_waiter_next(w);
}

/* ---- watching -------------------------------------------------------------------------------- */

static void see_again(etcd_waiter *w, enum etcd_recheck read)
{
    if (w->state != WAITER_QUEUED)
        return;
    etcd_waiter_due(w, read);
    etcd_waiter_step(w);
}

static void ahead_started(etcd_watch *watch, int64_t revision)
{
    etcd_waiter *w = watch->arg;

    if (revision == w->revision)
        return;
    /* there may have been changes before the watch began */
    see_again(w, w->ahead_is ? RECHECK_AHEAD : RECHECK_QUEUE);
}

static void ahead_event(etcd_watch *watch, const etcd_event *event)
{
    etcd_waiter *w = watch->arg;

    if (w->mode == PAWL_MODE_LATCH && !event->deleted && etcd_latch_left(&event->kv) > 0)
        return;
    /* in a range, keys behind the own one don't matter */
    if (event->deleted || (event->kv.created < w->created && !etcd_same(event->kv.key,
                                                                        etcd_span(w->key))))
        see_again(w, RECHECK_TAKE);
}

static void ahead_missed(etcd_watch *watch)
{
    see_again(watch->arg, RECHECK_QUEUE);
}

/* The key was deleted while the lease was valid: by a break, or by hand. */
static bool was_broken(const etcd_waiter *w)
{
    const etcd_lease *lease = (w->base ? w->base : w)->lease;

    return w->state == WAITER_HOLDS && lease &&
           w->e->env->now(w->e->env) < lease->from + lease->ttl;
}

void etcd_waiter_vanished(etcd_waiter *w)
{
    etcd *e = w->e;
    uint64_t seq = w->by_seq.seq;
    bool broken = was_broken(w);

    etcd_waiter_lost(w);
    w = etcd_waiter_find(e, seq);
    if (w && w->state == WAITER_ASKS) {
        etcd_waiter_step(w); /* a waiter: queue again */
        return;
    }
    pawl_events_report(&e->events, PAWL_EVENT_VERIFY, broken ? PAWL_LOST_BROKEN : 0);
    etcd_renewals_check(e);
}

static void own_event(etcd_watch *watch, const etcd_event *event)
{
    if (event->deleted)
        etcd_waiter_vanished(watch->arg);
}

/* Compacted away: writing or reading the key shows whether the key exists, and at which
 * revision. */
static void own_missed(etcd_watch *watch)
{
    etcd_waiter *w = watch->arg;

    w->rewrite |= w->state == WAITER_HOLDS || w->state == WAITER_SHELL;
    if (w->state == WAITER_QUEUED)
        etcd_waiter_due(w, RECHECK_QUEUE);
    etcd_waiter_step(w);
}

/* Watch the waiter's own key after a delay. */
void etcd_waiter_watch_soon(etcd_waiter *w, etcd_soon *soon)
{
    pawl_env *env = w->e->env;

    w->began = env->now(env);
    list_remove(&w->fresh);
    list_append(&soon->waiters, &w->fresh);
    if (!soon->timer.armed) {
        soon->timer.arg = w->e;
        env->timer_set(env, &soon->timer, w->began + soon->delay);
    }
}

static void watch_own(etcd_waiter *w)
{
    bool holds = w->state == WAITER_HOLDS;

    list_remove(&w->fresh);
    if (!w->own.id)
        etcd_watch_start(&w->own, w->e, w->key, "",
                         (holds ? (int64_t)w->token : w->revision) + 1);
    w->rewrite |= holds && w->waited && w->mode == PAWL_MODE_EXCLUSIVE; /* show since when */
    etcd_waiter_step(w);
}

static void soon_fired(pawl_timer *timer)
{
    etcd *e = timer->arg;
    etcd_soon *soon = list_entry(timer, etcd_soon, timer);
    int64_t now = e->env->now(e->env);

    while (!list_empty(&soon->waiters)) {
        etcd_waiter *w = list_entry(soon->waiters.next, etcd_waiter, fresh);

        if (w->began + soon->delay > now) {
            e->env->timer_set(e->env, timer, w->began + soon->delay);
            return;
        }
        watch_own(w);
    }
}

void etcd_soon_init(etcd_soon *soon, int64_t delay_ms)
{
    list_init(&soon->waiters);
    soon->timer = (pawl_timer){.fire = soon_fired};
    soon->delay = delay_ms * PAWL_NS_PER_MS;
}

void etcd_waiter_queue(etcd_waiter *w, const etcd_range *range, int64_t is, int64_t revision)
{
    pb_span key = range->key, end = range->end;
    size_t room = key.length + end.length + 2;
    char *text = malloc(room);

    w->state = WAITER_QUEUED;
    w->waited = true;
    for (pawl_op *op = w->acquires; op; op = op->engine[1])
        pawl_op_waits(op);
    w->revision = revision;
    w->ahead_is = is;
    if (w->cancelled) {
        free(text);
        etcd_waiter_leave(w, PAWL_ECANCELED);
        return;
    }
    if (!text) {
        etcd_waiter_due(w, RECHECK_QUEUE);
        kit_timer_ms(w->e->env, &w->timer, RETRY_MS);
        return;
    }
    snprintf(text, room, "%.*s%c%.*s", (int)key.length, (const char *)key.data, 0, (int)end.length,
             (const char *)end.data);
    if (w->ahead.id && !strcmp(w->ahead.key, text)) { /* the same key as before */
        free(text);
    } else {
        etcd_watch_stop(&w->ahead);
        free(w->ahead_key);
        w->ahead_key = text;
        w->ahead.deletes_only = w->mode == PAWL_MODE_EXCLUSIVE;
        etcd_watch_start(&w->ahead, w->e, text, text + strlen(text) + 1, 0);
    }
    etcd_waiter_leave_order(w);
    if (!w->own.id && list_empty(&w->fresh))
        etcd_waiter_watch_soon(w, &w->e->unwatched_waiters);
    if (w->recheck) /* something changed before the answer came */
        etcd_waiter_step(w);
}

void etcd_waiter_watches(etcd_waiter *w)
{
    w->ahead = (etcd_watch){.arg = w, .from_now = true, .started = ahead_started,
                            .event = ahead_event, .missed = ahead_missed};
    w->own = (etcd_watch){.arg = w, .deletes_only = true, .event = own_event,
                          .missed = own_missed};
}
