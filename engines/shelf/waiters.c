/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters.c - acquire, and the acquires that wait. shelf_engine.h shows the states of a waiter.
 */
#include "edit.h"

#include <stdlib.h>

#define CHECKS_MAX 100000 /* waiters to check before the loop runs other work */
#define BLIND_MS 100      /* interval of checks where a process can't be watched */

/* ---- acquire --------------------------------------------------------------------------------- */

static void block_on(shelf_edit *edit, const lockstate_entry *e)
{
    shelf_engine *se = edit->engine;
    lockstate_entry process = {.peer = e->peer, .gen = e->gen}; /* for any owner of the client */

    if (!(e->flags & LOCKSTATE_LINGER) && (e->peer != se->peer || e->gen != se->gen))
        shelf_peers_add(&se->blockers, &process, LOCKSTATE_CHECK);
}

/* Find the processes and the time that a queued owner must watch. */
static void find_blockers(shelf_edit *edit)
{
    lockstate_lock *lock = lockstate_find(edit->state.shelf, edit->state.name,
                                          edit->state.name_len);
    lockstate_entry *e = lockstate_entries(lock);
    int64_t i = lockstate_index(lock, edit->owner.client, edit->owner.seq);

    if (lock->type == PAWL_TYPE_LATCH)
        return;
    if (i > (int64_t)lock->holders) {
        block_on(edit, &e[i - 1]);
        return;
    }
    edit->due = lockstate_front_of(lock).due;
    for (size_t k = 0; k < lock->holders; k++)
        block_on(edit, &e[k]);
}

/* If a waiter is no longer in the record of a latch, the latch has opened since. */
static bool latch_opened(const shelf_edit *edit)
{
    lockstate_lock *lock = lockstate_find(edit->state.shelf, edit->state.name,
                                          edit->state.name_len);

    return !lock || lockstate_index(lock, edit->owner.client, edit->owner.seq) < 0;
}

static void work_acquire(shelf_edit *edit)
{
    const pawl_op *op = edit->op;
    lockstate_ask ask = {.with_seq = op->with_seq, .capacity = op->count};

    edit->want = shelf_entry(edit->engine, op);
    edit->asked = edit->want.ntokens;
    if (edit->again && op->mode == PAWL_MODE_LATCH) {
        edit->code = latch_opened(edit) ? 0 : LOCKSTATE_QUEUED;
        return;
    }
    edit->code = lockstate_acquire(&edit->state, &edit->want, &ask);
    if (edit->code == PAWL_EBUSY || edit->code == PAWL_ESTATE || edit->code == LOCKSTATE_QUEUED) {
        lockstate_expire(&edit->state, edit->owner.client, edit->owner.seq);
        ask.queue = op->queue;
        edit->code = lockstate_acquire(&edit->state, &edit->want, &ask);
    }
    if (edit->code == LOCKSTATE_QUEUED && !op->queue) { /* a damaged or forged shelf says so */
        (void)lockstate_cancel(&edit->state, edit->owner.client, edit->owner.seq);
        edit->code = PAWL_EBUSY;
    }
    if (edit->code == LOCKSTATE_QUEUED)
        find_blockers(edit);
    else if (edit->code == 0 && edit->again &&
             ((edit->cause & SHELF_SEEN) || edit->want.token < edit->told_first ||
              edit->want.token > edit->told_last))
        lockstate_retell(&edit->state, edit->owner.client, edit->owner.seq);
}

static void finish_acquire(shelf_edit *edit)
{
    pawl_op *op = edit->op;

    if (edit->code == 0 && op->mode != PAWL_MODE_LATCH) {
        op->token = edit->want.token;
        op->ntokens = edit->want.ntokens < edit->asked ? edit->want.ntokens : edit->asked;
        op->lease_from = edit->state.now;
        op->waited = edit->again;
    }
    pawl_op_finish(op, shelf_edit_error(edit));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void unwatch_all(shelf_waiter *w, size_t n)
{
    shelf_engine *se = w->engine;

    for (size_t i = 0; i < n && se->store->unwatch; i++)
        se->store->unwatch(se->arg, w->watched.list[i].peer, w->watched.list[i].gen);
}

void shelf_waiter_free(shelf_waiter *w)
{
    shelf_engine *se = w->engine;

    se->env->timer_clear(se->env, &w->timer);
    unwatch_all(w, w->watched.n);
    list_remove(&w->link);
    list_remove(&w->due);
    list_remove(&w->chain);
    if (!se->spare) {
        w->watched.n = 0;
        w->causes = 0;
        se->spare = w;
        return;
    }
    free(w->watched.list);
    free(w);
}

/* Start the new watches before the old ones are stopped, because most of them are the same. */
static void arm(shelf_waiter *w, const shelf_edit *edit)
{
    shelf_engine *se = w->engine;
    size_t old = w->watched.n;
    int64_t due = edit->due, soon = edit->state.now + (int64_t)BLIND_MS * PAWL_NS_PER_MS;
    bool blind = se->blockers.missing;

    pawl_op_waits(w->op);
    for (size_t i = 0; i < se->blockers.n && se->store->watch; i++) {
        struct shelf_peer *p = &se->blockers.list[i];
        enum shelf_watched result = se->store->watch(se->arg, p->peer, p->gen);

        if (result == SHELF_DEAD)
            shelf_waiter_mark(w, SHELF_SEEN);
        else if (result == SHELF_BLIND)
            blind = true;
        else if (!shelf_peers_push(&w->watched, *p))
            se->store->unwatch(se->arg, p->peer, p->gen);
    }
    blind |= w->watched.missing;
    w->watched.missing = se->blockers.missing = false;
    unwatch_all(w, old);
    w->watched.n -= old;
    if (old)
        memmove(w->watched.list, w->watched.list + old, w->watched.n * sizeof *w->watched.list);
    if (blind && soon < due)
        due = soon;
    if (due == PAWL_NEVER)
        se->env->timer_clear(se->env, &w->timer);
    else
        se->env->timer_set(se->env, &w->timer, due);
}

static void check(shelf_waiter *w)
{
    shelf_edit edit = {.engine = w->engine, .op = w->op, .owner = w->op->owner,
                       .work = work_acquire, .again = true, .thorough = true, .cause = w->causes,
                       .told_first = w->first, .told_last = w->last};

    w->causes = 0;
    w->first = w->last = 0;
    shelf_edit_run(&edit, w->op->name);
    if (edit.code == LOCKSTATE_QUEUED) {
        arm(w, &edit);
    } else if (edit.code == PAWL_ENOMEM || edit.code == PAWL_EBACKEND) { /* still queued */
        pawl_env *env = w->engine->env;

        env->timer_set(env, &w->timer, env->now(env) + (int64_t)BLIND_MS * PAWL_NS_PER_MS);
    } else {
        shelf_waiter_free(w);
        finish_acquire(&edit);
    }
}

void shelf_waiter_mark(shelf_waiter *w, enum shelf_cause cause)
{
    if (!w->causes)
        list_append(&w->engine->due, &w->due);
    w->causes |= cause;
}

/* Checking one waiter may make another waiter due. The loop ends because a waiter becomes due only
 * by a change on a shelf. CHECKS_MAX limits the loop for the case that a hostile client makes
 * changes without end. */
void shelf_check_due(shelf_engine *se)
{
    int64_t wait = se->safety_ms * PAWL_NS_PER_MS;
    int rounds = 0;

    if (!se->checking) {
        se->checking = true;
        for (; !list_empty(&se->due) && rounds < CHECKS_MAX; rounds++) {
            shelf_waiter *w = list_entry(se->due.next, shelf_waiter, due);

            list_remove(&w->due);
            check(w);
        }
        se->checking = false;
    }
    if (rounds == CHECKS_MAX) {
        se->env->timer_set(se->env, &se->safety, se->env->now(se->env));
        return;
    }
    if (se->safety_ms > 0 && !se->safety.armed && !list_empty(&se->waiters))
        se->env->timer_set(se->env, &se->safety, se->env->now(se->env) + wait);
}

static void begin(shelf_engine *se)
{
    if (se->store->begin)
        se->store->begin(se->arg);
}

static void timer_fired(pawl_timer *timer)
{
    shelf_waiter *w = timer->arg;

    begin(w->engine);
    shelf_waiter_mark(w, SHELF_SEEN);
    shelf_check_due(w->engine);
}

void shelf_safety_fired(pawl_timer *timer)
{
    begin(timer->arg);
    shelf_check(timer->arg, UINT64_MAX, SHELF_SEEN);
}

void shelf_told(shelf_engine *se, const struct shelf_told *what)
{
    struct list *head = what->seq ? &se->chains[what->seq % SHELF_CHAINS] : &se->waiters;

    for (struct list *l = head->next; l != head; l = l->next) {
        shelf_waiter *w = what->seq ? list_entry(l, shelf_waiter, chain)
                                    : list_entry(l, shelf_waiter, link);

        if (w->bucket != what->bucket || (what->seq && w->op->owner.seq != what->seq))
            continue;
        w->first = what->first;
        w->last = what->last;
        shelf_waiter_mark(w, SHELF_TOLD);
    }
}

void shelf_check(shelf_engine *se, uint64_t mask, enum shelf_cause cause)
{
    char by[PAWL_BY_MAX];

    for (struct list *l = se->waiters.next; mask && l != &se->waiters; l = l->next) {
        shelf_waiter *w = list_entry(l, shelf_waiter, link);

        if (mask & SHELF_BIT(w->bucket))
            shelf_waiter_mark(w, cause);
    }
    if (cause == SHELF_TOLD && (mask & SHELF_EVICTED)) {
        se->store->breaker(se->arg, by);
        pawl_events_broken(&se->events, 0, by, strlen(by));
    }
    shelf_check_due(se);
}

void shelf_acquire(shelf_engine *se, pawl_op *op)
{
    shelf_edit edit = {.engine = se, .op = op, .owner = op->owner, .work = work_acquire,
                       .thorough = true};
    shelf_waiter *w;

    if (op->mode != PAWL_MODE_LATCH && op->lease_ms <= 0) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must last longer than 0"));
        return;
    }
    if (op->queue && !se->spare && !(se->spare = calloc(1, sizeof *se->spare))) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    shelf_edit_run(&edit, op->name);
    if (edit.code != LOCKSTATE_QUEUED) {
        finish_acquire(&edit);
        return;
    }
    w = se->spare;
    se->spare = NULL;
    w->engine = se;
    w->op = op;
    w->bucket = shelf_bucket(se, op->name);
    w->timer.fire = timer_fired;
    w->timer.arg = w;
    op->engine[0] = w;
    w->first = w->last = 0;
    list_append(&se->waiters, &w->link);
    list_append(&se->chains[op->owner.seq % SHELF_CHAINS], &w->chain);
    list_init(&w->due);
    arm(w, &edit);
}
