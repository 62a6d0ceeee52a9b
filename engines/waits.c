/* SPDX-License-Identifier: Apache-2.0
 *
 * waits.c - acquire, and the ops that wait for their turn. The life of a wait is drawn in desk.h.
 */
#include "job.h"

#include <stdlib.h>

#define LOOKS 100000 /* at most, before others have their turn */
#define BLIND_MS 100 /* look so often where a process can't be watched */

/* ---- acquire --------------------------------------------------------------------------------- */

static void block_on(desk_job *job, const lockstate_entry *e)
{
    desk *d = job->desk;
    lockstate_entry process = {.peer = e->peer, .gen = e->gen}; /* whichever of its owners */

    if (!(e->flags & LOCKSTATE_LINGER) && (e->peer != d->peer || e->gen != d->gen))
        desk_add(&d->blockers, &process, LOCKSTATE_LOOK);
}

/* What a queued owner must watch. */
static void find_blockers(desk_job *job)
{
    lockstate_lock *lock = lockstate_find(job->edit.shelf, job->edit.name, job->edit.name_len);
    lockstate_entry *e = lockstate_entries(lock);
    int64_t i = lockstate_index(lock, job->owner.client, job->owner.seq);

    if (lock->type == PAWL_TYPE_LATCH)
        return;
    if (i > (int64_t)lock->holders) {
        block_on(job, &e[i - 1]);
        return;
    }
    job->due = lockstate_look(lock).due;
    for (size_t k = 0; k < lock->holders; k++)
        block_on(job, &e[k]);
}

/* A waiter that is gone from a latch saw it open, whatever its count is now. */
static bool latch_opened(const desk_job *job)
{
    lockstate_lock *lock = lockstate_find(job->edit.shelf, job->edit.name, job->edit.name_len);

    return !lock || lockstate_index(lock, job->owner.client, job->owner.seq) < 0;
}

static void work_acquire(desk_job *job)
{
    const pawl_op *op = job->op;
    lockstate_ask ask = {.with_seq = op->with_seq, .capacity = op->count};

    job->want = desk_entry(job->desk, op);
    job->asked = job->want.ntokens;
    if (job->again && op->mode == PAWL_MODE_LATCH) {
        job->code = latch_opened(job) ? 0 : LOCKSTATE_QUEUED;
        return;
    }
    job->code = lockstate_acquire(&job->edit, &job->want, &ask);
    if (job->code == PAWL_EBUSY || job->code == PAWL_ESTATE || job->code == LOCKSTATE_QUEUED) {
        lockstate_settle(&job->edit, job->owner.client, job->owner.seq);
        ask.queue = op->queue;
        job->code = lockstate_acquire(&job->edit, &job->want, &ask);
    }
    if (job->code == LOCKSTATE_QUEUED)
        find_blockers(job);
    else if (job->code == 0 && job->again &&
             ((job->cause & DESK_SEEN) || job->want.token < job->told_first ||
              job->want.token > job->told_last))
        lockstate_retell(&job->edit, job->owner.client, job->owner.seq);
}

static void finish_acquire(desk_job *job)
{
    pawl_op *op = job->op;

    if (job->code == 0 && op->mode != PAWL_MODE_LATCH) {
        op->token = job->want.token;
        op->ntokens = job->want.ntokens < job->asked ? job->want.ntokens : job->asked;
        op->lease_from = job->edit.now;
        op->waited = job->again;
    }
    pawl_op_finish(op, desk_words(job));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void unwatch_all(desk_wait *w, size_t n)
{
    desk *d = w->desk;

    for (size_t i = 0; i < n && d->store->unwatch; i++)
        d->store->unwatch(d->arg, w->watched.list[i].peer, w->watched.list[i].gen);
}

void desk_free_wait(desk_wait *w)
{
    desk *d = w->desk;

    d->env->timer_clear(d->env, &w->timer);
    unwatch_all(w, w->watched.n);
    list_remove(&w->link);
    list_remove(&w->due);
    list_remove(&w->chain);
    if (!d->spare) {
        w->watched.n = 0;
        w->look = 0;
        d->spare = w;
        return;
    }
    free(w->watched.list);
    free(w);
}

/* Watch the new ones before the old ones are let go: most stay the same. */
static void arm(desk_wait *w, const desk_job *job)
{
    desk *d = w->desk;
    size_t old = w->watched.n;
    int64_t due = job->due, soon = job->edit.now + (int64_t)BLIND_MS * PAWL_NS_PER_MS;
    bool blind = d->blockers.missing;

    pawl_op_waits(w->op);
    for (size_t i = 0; i < d->blockers.n && d->store->watch; i++) {
        struct desk_peer *p = &d->blockers.list[i];
        enum desk_watched result = d->store->watch(d->arg, p->peer, p->gen);

        if (result == DESK_DEAD)
            desk_mark(w, DESK_SEEN);
        else if (result == DESK_BLIND)
            blind = true;
        else if (!desk_push(&w->watched, *p))
            d->store->unwatch(d->arg, p->peer, p->gen);
    }
    blind |= w->watched.missing;
    w->watched.missing = d->blockers.missing = false;
    unwatch_all(w, old);
    w->watched.n -= old;
    if (old)
        memmove(w->watched.list, w->watched.list + old, w->watched.n * sizeof *w->watched.list);
    if (blind && soon < due)
        due = soon;
    if (due == PAWL_NEVER)
        d->env->timer_clear(d->env, &w->timer);
    else
        d->env->timer_set(d->env, &w->timer, due);
}

static void look_again(desk_wait *w)
{
    desk_job job = {.desk = w->desk, .op = w->op, .owner = w->op->owner, .work = work_acquire,
                    .again = true, .thorough = true, .cause = w->look,
                    .told_first = w->first, .told_last = w->last};

    w->look = 0;
    w->first = w->last = 0;
    desk_perform(&job, w->op->name);
    if (job.code == LOCKSTATE_QUEUED) {
        arm(w, &job);
    } else if (job.code == PAWL_ENOMEM || job.code == PAWL_EBACKEND) { /* its place is safe */
        w->desk->env->timer_set(w->desk->env, &w->timer,
                                job.edit.now + (int64_t)BLIND_MS * PAWL_NS_PER_MS);
    } else {
        desk_free_wait(w);
        finish_acquire(&job);
    }
}

void desk_mark(desk_wait *w, enum desk_cause cause)
{
    if (!w->look)
        list_append(&w->desk->due, &w->due);
    w->look |= cause;
}

/* Looking at one may give another one a reason; it ends because each reason is a change. Whoever
 * makes changes without end, to do harm, keeps us here for so many looks. */
void desk_look_around(desk *d)
{
    int64_t wait = d->safety_ms * PAWL_NS_PER_MS;
    int rounds = 0;

    if (!d->looking) {
        d->looking = true;
        for (; !list_empty(&d->due) && rounds < LOOKS; rounds++) {
            desk_wait *w = list_entry(d->due.next, desk_wait, due);

            list_remove(&w->due);
            look_again(w);
        }
        d->looking = false;
    }
    if (rounds == LOOKS) {
        d->env->timer_set(d->env, &d->safety, d->env->now(d->env));
        return;
    }
    if (d->safety_ms > 0 && !d->safety.armed && !list_empty(&d->waits))
        d->env->timer_set(d->env, &d->safety, d->env->now(d->env) + wait);
}

static void timer_fired(pawl_timer *timer)
{
    desk_wait *w = timer->arg;

    desk_mark(w, DESK_SEEN);
    desk_look_around(w->desk);
}

void desk_safety(pawl_timer *timer)
{
    desk_look(timer->arg, UINT64_MAX, DESK_SEEN);
}

void desk_told(desk *d, const struct desk_told *what)
{
    struct list *head = what->seq ? &d->chains[what->seq % DESK_CHAINS] : &d->waits;

    for (struct list *l = head->next; l != head; l = l->next) {
        desk_wait *w = what->seq ? list_entry(l, desk_wait, chain) : list_entry(l, desk_wait, link);

        if (w->bucket != what->bucket || (what->seq && w->op->owner.seq != what->seq))
            continue;
        w->first = what->first;
        w->last = what->last;
        desk_mark(w, DESK_TOLD);
    }
}

void desk_look(desk *d, uint64_t mask, enum desk_cause cause)
{
    for (struct list *l = d->waits.next; mask && l != &d->waits; l = l->next) {
        desk_wait *w = list_entry(l, desk_wait, link);

        if (mask & DESK_BIT(w->bucket))
            desk_mark(w, cause);
    }
    if (cause == DESK_TOLD && (mask & DESK_EVICTED))
        desk_broken(d);
    desk_look_around(d);
}

void desk_acquire(desk *d, pawl_op *op)
{
    desk_job job = {.desk = d, .op = op, .owner = op->owner, .work = work_acquire,
                    .thorough = true};
    desk_wait *w;

    if (op->mode != PAWL_MODE_LATCH && op->lease_ms <= 0) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must last longer than 0"));
        return;
    }
    if (op->queue && !d->spare && !(d->spare = calloc(1, sizeof *d->spare))) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    desk_perform(&job, op->name);
    if (job.code != LOCKSTATE_QUEUED) {
        finish_acquire(&job);
        return;
    }
    w = d->spare;
    d->spare = NULL;
    w->desk = d;
    w->op = op;
    w->bucket = desk_bucket(d, op->name);
    w->timer.fire = timer_fired;
    w->timer.arg = w;
    op->engine[0] = w;
    w->first = w->last = 0;
    list_append(&d->waits, &w->link);
    list_append(&d->chains[op->owner.seq % DESK_CHAINS], &w->chain);
    list_init(&w->due);
    arm(w, &job);
}
