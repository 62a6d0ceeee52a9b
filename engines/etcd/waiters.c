/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters.c - acquire: an owner's key, from its creation until the key is certainly gone.
 *
 * The table lists every event that changes the state of a waiter. *Over*: the waiter is freed.
 *
 *   state    event                                         next state    function
 *   -------  --------------------------------------------  ------------  --------------------------
 *   (new)    ACQUIRE                                       ASKS          etcd_acquire
 *   ASKS     the key was created, and no key is ahead      HOLDS         etcd_waiter_granted
 *            a downgraded reader, and the base key counts  HOLDS         admit_downgraded
 *            the reader
 *            another key is ahead                          QUEUED        etcd_waiter_queue
 *            a request without an answer created the key   QUEUED        not_made
 *            another key is ahead of a try                 LEAVES        etcd_waiter_blocked
 *            - and no key was created                      over          not_made
 *            another use of the name, wrong capacity       LEAVES        etcd_waiter_refuse
 *            - and no key was created                      over          etcd_waiter_refuse
 *            the request fails                             LEAVES        etcd_waiter_failed
 *            cancelled, and no request was sent            over          give_up
 *            no connection, and no request was sent        over          etcd_waiters_refuse
 *   ASKS,    the latch is open                             LEAVES, over  etcd_waiter_opened
 *   QUEUED   cancelled, and no call is out                 LEAVES        etcd_acquire_cancel
 *            cancelled, and the call was answered          LEAVES        etcd_waiter_queue,
 *                                                                        answer_check
 *            - or failed, or took too long                 LEAVES        etcd_waiter_failed,
 *                                                                        try_again
 *            a cancelled downgraded reader                 over          downgraded_leaves
 *            the own key or its lease is gone              ASKS          etcd_waiter_lost
 *   QUEUED   the key ahead is gone, the own key exists     HOLDS         etcd_waiter_granted
 *   HOLDS    granted, but no op waits any more             LEAVES        etcd_waiter_granted
 *            RELEASE of some permits                       HOLDS         etcd_release
 *            RELEASE                                       LEAVES        etcd_release
 *            - and a downgraded reader uses the key        SHELL         etcd_release
 *            - and the lock is to linger                   LINGERS       etcd_waiter_linger
 *            - of a downgraded reader                      over          downgraded_leaves
 *            the key or its lease is gone                  GONE          etcd_waiter_lost,
 *                                                                        downgraded_lost
 *   SHELL    the last downgraded reader leaves             LEAVES        shell_ends
 *            - and the lock is to linger                   LINGERS       shell_ends
 *            the key or its lease is gone                  over          etcd_waiter_lost
 *   LINGERS  the time is over                              LEAVES        try_again
 *            the key or its lease is gone                  over          etcd_waiter_lost
 *   LEAVES   the key is deleted, or can't exist            over          etcd_waiter_left
 *            the key or its lease is gone                  over          etcd_waiter_lost
 *   GONE     RELEASE                                       over          etcd_release
 *   any      the client is closed                          over          etcd_waiters_free
 *
 * `key_is` says what is known of the key:
 *
 *   KNOWN    a request got no answer                       MAYBE         etcd_waiter_failed
 *   MAYBE    an acquire or recheck was answered            KNOWN         answer_ask
 *   KNOWN,   the lease ended while the key was being       MOVED         etcd_waiter_ended_with,
 *   MAYBE    moved to or from it                                         etcd_lease_free
 *   MOVED    a rewrite was answered                        KNOWN         answer_rewrite
 *   any      the key is gone                               KNOWN         etcd_waiter_lost
 *
 * `recheck` is the read that a QUEUED waiter has to send. Events of watches, answers and confirmed
 * leases raise `recheck` (etcd_waiter_due). Sending the read sets RECHECK_NONE (etcd_waiter_ask),
 * and so does leaving the queue.
 *
 * A waiter has at most one call out. After an answer, an event of a watch, or a reconnect,
 * etcd_waiter_step decides the next step. An acquire that got no answer is sent again on the next
 * connection, once the lease is fenced (etcd.h); the key's name is made of the owner, so the second
 * request finds the key of the first. A waiter whose key was deleted queues again, at the end. A
 * cancelled waiter stays, without an op, until the key is certainly gone.
 *
 * A DOWNGRADED READER has a shared grant by downgrade: the client holds the name exclusively and
 * now reads, too. A key of the reader's own would be behind all waiters, so the reader shares the
 * key of the base grant; the value of that key counts the readers.
 *
 * order.c decides which keys are watched, and which of several waiters of one name asks first.
 */
#include <stdlib.h>

#include "etcd.h"

#define RETRY_MS 1000

/* ---- the table ------------------------------------------------------------------------------- */

etcd_waiter *etcd_waiter_find(etcd *e, uint64_t seq)
{
    kit_seq *s = kit_seqs_find(&e->table, seq);

    return s ? list_entry(s, etcd_waiter, by_seq) : NULL;
}

static void forget_call(etcd_waiter *w)
{
    if (w->call)
        w->call->about = NULL;
    w->call = NULL;
}

static void waiter_free(etcd_waiter *w)
{
    etcd *e = w->e;

    kit_seqs_remove(&e->table, &w->by_seq);
    forget_call(w);
    e->env->timer_clear(e->env, &w->timer);
    etcd_watch_stop(&w->ahead);
    etcd_watch_stop(&w->own);
    list_remove(&w->link);
    list_remove(&w->in_lease);
    list_remove(&w->fresh);
    etcd_waiter_leave_order(w);
    if (w->lease)
        w->lease->used = e->env->now(e->env);
    if (w->target && w->target->ends)
        etcd_lease_free(w->target);
    if (w->lease && w->lease->ends && list_empty(&w->lease->waiters))
        etcd_lease_free(w->lease);
    free(w->ahead_key);
    free(w->key);
    free(w);
}

/* ---- creating and ending a waiter ------------------------------------------------------------ */

static bool take_lease(etcd_waiter *w)
{
    w->lease = etcd_lease_for(w->e, w->lease_ms);
    if (!w->lease)
        return false;
    list_append(&w->lease->waiters, &w->in_lease);
    return true;
}

static void try_again(pawl_timer *timer);

static etcd_waiter *waiter_new(etcd *e, pawl_op *op)
{
    etcd_waiter *w = calloc(1, sizeof *w + strlen(op->name) + 1);

    if (!w)
        return NULL;
    w->e = e;
    w->by_seq.seq = op->owner.seq;
    w->mode = op->mode;
    w->queue = op->queue;
    w->permits = op->permits;
    w->capacity = op->count;
    w->lease_ms = op->mode == PAWL_MODE_LATCH ? ETCD_HELPERS_MS : op->lease_ms;
    w->since = e->env->wall_ms(e->env);
    w->timer = (pawl_timer){.fire = try_again, .arg = w};
    strcpy(w->name, op->name);
    etcd_waiter_watches(w);
    list_init(&w->in_lease);
    list_init(&w->fresh);
    list_init(&w->asking);
    if (!kit_seqs_add(&e->table, &w->by_seq)) {
        free(w);
        return NULL;
    }
    if (!take_lease(w)) {
        kit_seqs_remove(&e->table, &w->by_seq);
        free(w);
        return NULL;
    }
    list_append(&e->waiters, &w->link);
    etcd_waiter_enter_order(w);
    return w;
}

static void tell(pawl_op *op, const etcd_waiter *w, int64_t from)
{
    int64_t left = etcd_lease_left(w->lease, from);

    op->token = w->token;
    op->ntokens = 1;
    op->lease_from = from;
    op->granted_ms = left < op->lease_ms ? left : 0;
    op->waited = w->waited;
    pawl_op_finish(op, 0);
}

static void end_acquires(etcd_waiter *w, int code)
{
    pawl_op *op = w->acquires, *next;

    w->acquires = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        pawl_op_finish(op, code);
    }
}

void etcd_waiter_granted(etcd_waiter *w, uint64_t token, int64_t from)
{
    pawl_env *env = w->e->env;
    pawl_op *op = w->acquires, *next;

    etcd_watch_stop(&w->ahead);
    w->state = WAITER_HOLDS;
    etcd_waiter_leave_order(w);
    w->token = token;
    w->since = env->wall_ms(env);
    w->recheck = RECHECK_NONE;
    w->key_is = KEY_KNOWN;
    env->timer_clear(env, &w->timer);
    if (!op) {
        etcd_waiter_leave(w, PAWL_ECANCELED);
        return;
    }
    if (!w->base)
        etcd_waiter_watch_soon(w, &w->e->unwatched_holders);
    w->acquires = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        tell(op, w, from);
    }
}

void etcd_waiter_opened(etcd_waiter *w)
{
    for (pawl_op *op = w->acquires; op; op = op->engine[1])
        op->waited = w->waited;
    end_acquires(w, 0);
    if (w->created)
        etcd_waiter_leave(w, PAWL_ECANCELED);
    else
        etcd_waiter_end(w, PAWL_ECANCELED);
}

void etcd_waiter_end(etcd_waiter *w, int code)
{
    end_acquires(w, code);
    etcd_answer_releases(w, PAWL_ENOTHELD);
    waiter_free(w);
}

/* The key of the base grant is gone: the downgraded readers lose their grants, or ask for keys. */
static void downgraded_lost(etcd_waiter *base)
{
    list_each_safe(etcd_waiter, w, &base->e->waiters, link) {
        if (w->base != base)
            continue;
        w->base = NULL;
        if (w->state == WAITER_HOLDS) {
            w->state = WAITER_GONE;
        } else if (w->lease) {
            etcd_waiter_enter_order(w);
            etcd_waiter_step(w); /* asks for a key of its own */
        }
    }
    base->downgraded = 0;
}

void etcd_waiter_lost(etcd_waiter *w)
{
    enum etcd_waiter_state state = w->state;

    forget_call(w);
    etcd_watch_stop(&w->ahead);
    etcd_watch_stop(&w->own);
    list_remove(&w->fresh);
    w->created = 0;
    w->key_is = KEY_KNOWN;
    w->recheck = RECHECK_NONE;
    w->rewrite = false;
    w->moving = NULL;
    if (!w->target || !w->target->ends)
        w->target = NULL;
    if (state == WAITER_HOLDS || state == WAITER_GONE) {
        w->state = WAITER_GONE;
        w->base = NULL;
        downgraded_lost(w);
        etcd_answer_releases(w, PAWL_ENOTHELD);
    } else if (state == WAITER_SHELL) {
        downgraded_lost(w);
        etcd_waiter_end(w, PAWL_ECANCELED);
    } else if (state == WAITER_LEAVES || state == WAITER_LINGERS) {
        etcd_waiter_left(w, false);
    } else {
        w->state = WAITER_ASKS;
        w->base = NULL;
        etcd_waiter_enter_order(w);
        if (!w->lease) {
            free(w->key);
            w->key = NULL;
        }
        if (!w->lease && !take_lease(w))
            etcd_waiter_end(w, PAWL_ENOMEM);
    }
}

/* ---- the next step --------------------------------------------------------------------------- */

static bool have_key(etcd_waiter *w)
{
    static const enum etcd_section sections[] = {
        [PAWL_MODE_EXCLUSIVE] = ETCD_LOCKS, [PAWL_MODE_SHARED] = ETCD_READS,
        [PAWL_MODE_PERMITS] = ETCD_PERMITS, [PAWL_MODE_LATCH] = ETCD_WAITS};
    char key[ETCD_KEY_MAX];

    if (w->key)
        return true;
    etcd_key(key, w->e, w->name, sections[w->mode], w->lease->id, w->by_seq.seq);
    w->key = strdup(key);
    return w->key != NULL;
}

void etcd_waiter_step(etcd_waiter *w)
{
    bool ready = w->lease && w->lease->state == LEASE_READY;

    if (w->call || w->base || !etcd_link_ready(&w->e->link))
        return;
    switch (w->state) {
    case WAITER_ASKS:
        if (!ready || etcd_waiter_behind(w))
            break;
        if (have_key(w))
            etcd_waiter_ask(w);
        else
            kit_timer_ms(w->e->env, &w->timer, RETRY_MS);
        break;
    case WAITER_QUEUED:
        if (ready && w->recheck != RECHECK_NONE)
            etcd_waiter_ask(w);
        break;
    case WAITER_HOLDS:
    case WAITER_SHELL:
    case WAITER_LINGERS:
        if (w->rewrite && ready && (!w->target || w->target->state == LEASE_READY))
            etcd_waiter_rewrite(w);
        break;
    case WAITER_LEAVES:
        if (!w->created && w->key_is != KEY_MAYBE)
            etcd_waiter_left(w, false);
        else if (ready || w->key_is != KEY_MAYBE) /* fence off late requests first */
            etcd_waiter_delete(w);
        break;
    default:
        break;
    }
}

static void try_again(pawl_timer *timer)
{
    etcd_waiter *w = timer->arg;
    pawl_op *op = w->acquires;

    if (w->state == WAITER_LINGERS) {
        if (etcd_waiter_lingers(w))
            w->e->env->timer_set(w->e->env, timer, w->linger);
        else
            etcd_waiter_leave(w, PAWL_ECANCELED);
    }
    if (!w->cancelled || !op) {
        etcd_waiter_step(w);
        return;
    }
    /* The answer takes too long. The answer will come, and the key will be deleted. The outcome of
     * the acquire is unknown only if the connection is lost or the server never answered. */
    w->acquires = NULL;
    pawl_op_finish(op, w->waited && w->key_is != KEY_MAYBE && etcd_link_ready(&w->e->link)
                           ? PAWL_ECANCELED
                           : etcd_no_answer(w->e, op->err, PAWL_EUNKNOWN));
    if (w->state != WAITER_LEAVES && !w->call)
        etcd_waiter_leave(w, PAWL_ECANCELED);
    else
        etcd_waiter_step(w);
}

void etcd_waiter_failed(etcd_call *call, int code, const char *words)
{
    etcd_waiter *w = call->about;
    bool lost = code == PAWL_EUNKNOWN || code == PAWL_ECONN || code == PAWL_ECANCELED;

    w->call = NULL;
    if (code == ETCD_NO_LEASE) { /* a move names only the target lease */
        bool moves = call->tag && w->target && w->target->id == call->tag;

        if (moves && w->state != WAITER_LEAVES)
            w->rewrite = true;
        etcd_lease_gone(moves ? w->target : w->lease);
        return;
    }
    if (code == PAWL_EUNKNOWN && w->key_is == KEY_KNOWN)
        w->key_is = KEY_MAYBE;
    if (w->state == WAITER_QUEUED)
        etcd_waiter_due(w, RECHECK_QUEUE);
    w->rewrite |= lost && (w->state == WAITER_HOLDS || w->state == WAITER_SHELL ||
                           w->state == WAITER_LINGERS);
    etcd_answer_releases(w, code);
    if (w->cancelled && w->state != WAITER_LEAVES) {
        end_acquires(w, lost ? PAWL_EUNKNOWN : code);
        etcd_waiter_leave(w, PAWL_ECANCELED);
        return;
    }
    if (w->state == WAITER_ASKS && !lost && w->acquires) {
        pawl_error_set(w->acquires->err, code, "%s", words);
        end_acquires(w, code);
        w->cancelled = true;
        etcd_waiter_leave(w, code);
        return;
    }
    if (!lost)
        kit_timer_ms(w->e->env, &w->timer, RETRY_MS);
}

/* ---- all waiters ----------------------------------------------------------------------------- */

void etcd_waiters_step(etcd *e)
{
    struct list all, *l;

    /* Step each waiter once, from front to end; new waiters are stepped when they are added. */
    list_take_all(&all, &e->waiters);
    while ((l = list_take(&all))) {
        list_append(&e->waiters, l);
        etcd_waiter_step(list_entry(l, etcd_waiter, link));
    }
}

void etcd_waiters_refuse(etcd *e, int code, const char *words)
{
    list_each_safe(etcd_waiter, w, &e->waiters, link) {
        if (w->state != WAITER_ASKS || w->call || w->key_is == KEY_MAYBE || !w->acquires ||
            w->base)
            continue;
        pawl_error_set(w->acquires->err, code, "%s", words);
        etcd_waiter_end(w, code);
    }
}

void etcd_waiters_free(etcd *e)
{
    while (!list_empty(&e->waiters))
        waiter_free(list_entry(e->waiters.next, etcd_waiter, link));
    kit_seqs_free(&e->table);
}

/* ---- the ACQUIRE op -------------------------------------------------------------------------- */

/* A downgrade: a reader shares the key of the same client's exclusive grant. */
static bool visit(etcd_waiter *w, const pawl_op *op)
{
    etcd_waiter *base = op->with_seq ? etcd_waiter_find(w->e, op->with_seq) : NULL;

    if (!base || op->mode != PAWL_MODE_SHARED || base->state != WAITER_HOLDS || base->base ||
        base->mode != PAWL_MODE_EXCLUSIVE || strcmp(base->name, w->name))
        return false;
    w->base = base;
    list_remove(&w->asking);
    list_remove(&w->in_lease);
    w->lease = base->lease;
    list_append(&w->lease->waiters, &w->in_lease);
    base->downgraded++;
    base->rewrite = true;
    etcd_waiter_step(base);
    return true;
}

/* The core repeats an acquire of the same owner. */
static void join(etcd_waiter *w, pawl_op *op)
{
    op->engine[0] = w;
    if (w->state == WAITER_HOLDS) {
        tell(op, w, w->e->env->now(w->e->env));
    } else if (w->acquires && (w->state == WAITER_ASKS || w->state == WAITER_QUEUED)) {
        op->engine[1] = w->acquires;
        w->acquires = op;
    } else {
        pawl_op_finish(op, PAWL_ECANCELED);
    }
}

void etcd_acquire(etcd *e, pawl_op *op)
{
    etcd_waiter *w = etcd_waiter_find(e, op->owner.seq);

    if (w) {
        join(w, op);
        return;
    }
    if (op->lease_ms <= 0 && op->mode != PAWL_MODE_LATCH) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must last longer than 0"));
        return;
    }
    w = waiter_new(e, op);
    if (!w) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    op->engine[0] = w;
    op->engine[1] = NULL;
    w->acquires = op;
    if (!visit(w, op))
        etcd_waiter_step(w);
}
