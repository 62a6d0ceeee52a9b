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

void etcd_waiter_enter_order(etcd_waiter *s)
{
    if (list_empty(&s->asking))
        list_append(asking_bucket(s->e, s->name), &s->asking);
}

/* Must an earlier waiter of the same name go first? */
bool etcd_waiter_behind(const etcd_waiter *s)
{
    struct list *bucket = asking_bucket(s->e, s->name);

    list_each(const etcd_waiter, other, bucket, asking) {
        if (other == s)
            return false;
        if (!strcmp(other->name, s->name) &&
            (other->state == WAITER_ASKS || (other->state == WAITER_LEAVES && !s->queue)))
            return true;
    }
    return false;
}

void etcd_waiter_next(const etcd_waiter *s)
{
    struct list *bucket = asking_bucket(s->e, s->name);

    list_each(etcd_waiter, other, bucket, asking) {
        if (other->state == WAITER_ASKS && !strcmp(other->name, s->name)) {
            etcd_waiter_step(other);
            return;
        }
    }
}

void etcd_waiter_leave_order(etcd_waiter *s)
{
    list_remove(&s->asking);
    etcd_waiter_next(s);
}

/* ---- watching -------------------------------------------------------------------------------- */

static void see_again(etcd_waiter *s, enum etcd_recheck read)
{
    if (s->state != WAITER_QUEUED)
        return;
    etcd_waiter_due(s, read);
    etcd_waiter_step(s);
}

static void ahead_started(etcd_watch *w, int64_t revision)
{
    etcd_waiter *s = w->arg;

    if (revision == s->revision)
        return;
    /* there may have been changes before the watch began */
    see_again(s, s->ahead_is ? RECHECK_AHEAD : RECHECK_QUEUE);
}

static void ahead_event(etcd_watch *w, const etcd_event *event)
{
    etcd_waiter *s = w->arg;

    if (s->mode == PAWL_MODE_LATCH && !event->deleted && etcd_latch_left(&event->kv) > 0)
        return;
    /* in a range, keys behind the own one don't matter */
    if (event->deleted || (event->kv.created < s->created && !etcd_same(event->kv.key,
                                                                        etcd_span(s->key))))
        see_again(s, RECHECK_TAKE);
}

static void ahead_missed(etcd_watch *w)
{
    see_again(w->arg, RECHECK_QUEUE);
}

/* The key was deleted while the lease was valid: by a break, or by hand. */
static bool was_broken(const etcd_waiter *s)
{
    const etcd_lease *lease = (s->base ? s->base : s)->lease;

    return s->state == WAITER_HOLDS && lease &&
           s->e->env->now(s->e->env) < lease->from + lease->ttl;
}

void etcd_waiter_vanished(etcd_waiter *s)
{
    etcd *e = s->e;
    uint64_t seq = s->by_seq.seq;
    bool broken = was_broken(s);

    etcd_waiter_lost(s);
    s = etcd_waiter_find(e, seq);
    if (s && s->state == WAITER_ASKS) {
        etcd_waiter_step(s); /* a waiter: queue again */
        return;
    }
    pawl_events_report(&e->events, PAWL_EVENT_VERIFY, broken ? PAWL_LOST_BROKEN : 0);
    etcd_renewals_check(e);
}

static void own_event(etcd_watch *w, const etcd_event *event)
{
    if (event->deleted)
        etcd_waiter_vanished(w->arg);
}

/* Compacted away: writing or reading the key shows whether the key exists, and at which
 * revision. */
static void own_missed(etcd_watch *w)
{
    etcd_waiter *s = w->arg;

    s->rewrite |= s->state == WAITER_HOLDS || s->state == WAITER_SHELL;
    if (s->state == WAITER_QUEUED)
        etcd_waiter_due(s, RECHECK_QUEUE);
    etcd_waiter_step(s);
}

/* Watch the waiter's own key after a delay. */
void etcd_waiter_watch_soon(etcd_waiter *s, etcd_soon *soon)
{
    pawl_env *env = s->e->env;

    s->began = env->now(env);
    list_remove(&s->fresh);
    list_append(&soon->waiters, &s->fresh);
    if (!soon->timer.armed) {
        soon->timer.arg = s->e;
        env->timer_set(env, &soon->timer, s->began + soon->delay);
    }
}

static void watch_own(etcd_waiter *s)
{
    bool holds = s->state == WAITER_HOLDS;

    list_remove(&s->fresh);
    if (!s->own.id)
        etcd_watch_start(&s->own, s->e, s->key, "",
                         (holds ? (int64_t)s->token : s->revision) + 1);
    s->rewrite |= holds && s->waited && s->mode == PAWL_MODE_EXCLUSIVE; /* show since when */
    etcd_waiter_step(s);
}

static void soon_fired(pawl_timer *timer)
{
    etcd *e = timer->arg;
    etcd_soon *soon = list_entry(timer, etcd_soon, timer);
    int64_t now = e->env->now(e->env);

    while (!list_empty(&soon->waiters)) {
        etcd_waiter *s = list_entry(soon->waiters.next, etcd_waiter, fresh);

        if (s->began + soon->delay > now) {
            e->env->timer_set(e->env, timer, s->began + soon->delay);
            return;
        }
        watch_own(s);
    }
}

void etcd_soon_init(etcd_soon *soon, int64_t delay_ms)
{
    list_init(&soon->waiters);
    soon->timer = (pawl_timer){.fire = soon_fired};
    soon->delay = delay_ms * PAWL_NS_PER_MS;
}

void etcd_waiter_queue(etcd_waiter *s, const etcd_range *range, int64_t is, int64_t revision)
{
    pb_span key = range->key, end = range->end;
    size_t room = key.length + end.length + 2;
    char *text = malloc(room);

    s->state = WAITER_QUEUED;
    s->waited = true;
    for (pawl_op *op = s->acquires; op; op = op->engine[1])
        pawl_op_waits(op);
    s->revision = revision;
    s->ahead_is = is;
    if (s->cancelled) {
        free(text);
        etcd_waiter_leave(s, PAWL_ECANCELED);
        return;
    }
    if (!text) {
        etcd_waiter_due(s, RECHECK_QUEUE);
        kit_timer_ms(s->e->env, &s->timer, RETRY_MS);
        return;
    }
    snprintf(text, room, "%.*s%c%.*s", (int)key.length, (const char *)key.data, 0, (int)end.length,
             (const char *)end.data);
    if (s->ahead.id && !strcmp(s->ahead.key, text)) { /* the same key as before */
        free(text);
    } else {
        etcd_watch_stop(&s->ahead);
        free(s->ahead_key);
        s->ahead_key = text;
        s->ahead.deletes_only = s->mode == PAWL_MODE_EXCLUSIVE;
        etcd_watch_start(&s->ahead, s->e, text, text + strlen(text) + 1, 0);
    }
    etcd_waiter_leave_order(s);
    if (!s->own.id && list_empty(&s->fresh))
        etcd_waiter_watch_soon(s, &s->e->unwatched_waiters);
    if (s->recheck) /* something changed before the answer came */
        etcd_waiter_step(s);
}

void etcd_waiter_watches(etcd_waiter *s)
{
    s->ahead = (etcd_watch){.arg = s, .from_now = true, .started = ahead_started,
                            .event = ahead_event, .missed = ahead_missed};
    s->own = (etcd_watch){.arg = s, .deletes_only = true, .event = own_event,
                          .missed = own_missed};
}
