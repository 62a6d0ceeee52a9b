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

static void forget_call(etcd_waiter *s)
{
    if (s->call)
        s->call->about = NULL;
    s->call = NULL;
}

static void waiter_free(etcd_waiter *s)
{
    etcd *e = s->e;

    kit_seqs_remove(&e->table, &s->by_seq);
    forget_call(s);
    e->env->timer_clear(e->env, &s->timer);
    etcd_watch_stop(&s->ahead);
    etcd_watch_stop(&s->own);
    list_remove(&s->link);
    list_remove(&s->in_lease);
    list_remove(&s->fresh);
    etcd_waiter_leave_order(s);
    if (s->lease)
        s->lease->used = e->env->now(e->env);
    if (s->target && s->target->ends)
        etcd_lease_free(s->target);
    if (s->lease && s->lease->ends && list_empty(&s->lease->waiters))
        etcd_lease_free(s->lease);
    free(s->ahead_key);
    free(s->key);
    free(s);
}

/* ---- creating and ending a waiter ------------------------------------------------------------ */

static bool take_lease(etcd_waiter *s)
{
    s->lease = etcd_lease_for(s->e, s->lease_ms);
    if (!s->lease)
        return false;
    list_append(&s->lease->waiters, &s->in_lease);
    return true;
}

static void try_again(pawl_timer *timer);

static etcd_waiter *waiter_new(etcd *e, pawl_op *op)
{
    etcd_waiter *s = calloc(1, sizeof *s + strlen(op->name) + 1);

    if (!s)
        return NULL;
    s->e = e;
    s->by_seq.seq = op->owner.seq;
    s->mode = op->mode;
    s->queue = op->queue;
    s->permits = op->permits;
    s->capacity = op->count;
    s->lease_ms = op->mode == PAWL_MODE_LATCH ? ETCD_HELPERS_MS : op->lease_ms;
    s->since = e->env->wall_ms(e->env);
    s->timer = (pawl_timer){.fire = try_again, .arg = s};
    strcpy(s->name, op->name);
    etcd_waiter_watches(s);
    list_init(&s->in_lease);
    list_init(&s->fresh);
    list_init(&s->asking);
    if (!kit_seqs_add(&e->table, &s->by_seq)) {
        free(s);
        return NULL;
    }
    if (!take_lease(s)) {
        kit_seqs_remove(&e->table, &s->by_seq);
        free(s);
        return NULL;
    }
    list_append(&e->waiters, &s->link);
    etcd_waiter_enter_order(s);
    return s;
}

static void tell(pawl_op *op, const etcd_waiter *s, int64_t from)
{
    int64_t left = etcd_lease_left(s->lease, from);

    op->token = s->token;
    op->ntokens = 1;
    op->lease_from = from;
    op->granted_ms = left < op->lease_ms ? left : 0;
    op->waited = s->waited;
    pawl_op_finish(op, 0);
}

static void end_acquires(etcd_waiter *s, int code)
{
    pawl_op *op = s->acquires, *next;

    s->acquires = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        pawl_op_finish(op, code);
    }
}

void etcd_waiter_granted(etcd_waiter *s, uint64_t token, int64_t from)
{
    pawl_env *env = s->e->env;
    pawl_op *op = s->acquires, *next;

    etcd_watch_stop(&s->ahead);
    s->state = WAITER_HOLDS;
    etcd_waiter_leave_order(s);
    s->token = token;
    s->since = env->wall_ms(env);
    s->recheck = RECHECK_NONE;
    s->key_is = KEY_KNOWN;
    env->timer_clear(env, &s->timer);
    if (!op) {
        etcd_waiter_leave(s, PAWL_ECANCELED);
        return;
    }
    if (!s->base)
        etcd_waiter_watch_soon(s, &s->e->unwatched_holders);
    s->acquires = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        tell(op, s, from);
    }
}

void etcd_waiter_opened(etcd_waiter *s)
{
    for (pawl_op *op = s->acquires; op; op = op->engine[1])
        op->waited = s->waited;
    end_acquires(s, 0);
    if (s->created)
        etcd_waiter_leave(s, PAWL_ECANCELED);
    else
        etcd_waiter_end(s, PAWL_ECANCELED);
}

void etcd_waiter_end(etcd_waiter *s, int code)
{
    end_acquires(s, code);
    etcd_answer_releases(s, PAWL_ENOTHELD);
    waiter_free(s);
}

/* The key of the base grant is gone: the downgraded readers lose their grants, or ask for keys. */
static void downgraded_lost(etcd_waiter *base)
{
    list_each_safe(etcd_waiter, s, &base->e->waiters, link) {
        if (s->base != base)
            continue;
        s->base = NULL;
        if (s->state == WAITER_HOLDS) {
            s->state = WAITER_GONE;
        } else if (s->lease) {
            etcd_waiter_enter_order(s);
            etcd_waiter_step(s); /* asks for a key of its own */
        }
    }
    base->downgraded = 0;
}

void etcd_waiter_lost(etcd_waiter *s)
{
    enum etcd_waiter_state state = s->state;

    forget_call(s);
    etcd_watch_stop(&s->ahead);
    etcd_watch_stop(&s->own);
    list_remove(&s->fresh);
    s->created = 0;
    s->key_is = KEY_KNOWN;
    s->recheck = RECHECK_NONE;
    s->rewrite = false;
    s->moving = NULL;
    if (!s->target || !s->target->ends)
        s->target = NULL;
    if (state == WAITER_HOLDS || state == WAITER_GONE) {
        s->state = WAITER_GONE;
        s->base = NULL;
        downgraded_lost(s);
        etcd_answer_releases(s, PAWL_ENOTHELD);
    } else if (state == WAITER_SHELL) {
        downgraded_lost(s);
        etcd_waiter_end(s, PAWL_ECANCELED);
    } else if (state == WAITER_LEAVES || state == WAITER_LINGERS) {
        etcd_waiter_left(s, false);
    } else {
        s->state = WAITER_ASKS;
        s->base = NULL;
        etcd_waiter_enter_order(s);
        if (!s->lease) {
            free(s->key);
            s->key = NULL;
        }
        if (!s->lease && !take_lease(s))
            etcd_waiter_end(s, PAWL_ENOMEM);
    }
}

/* ---- the next step --------------------------------------------------------------------------- */

static bool have_key(etcd_waiter *s)
{
    static const enum etcd_section sections[] = {
        [PAWL_MODE_EXCLUSIVE] = ETCD_LOCKS, [PAWL_MODE_SHARED] = ETCD_READS,
        [PAWL_MODE_PERMITS] = ETCD_PERMITS, [PAWL_MODE_LATCH] = ETCD_WAITS};
    char key[ETCD_KEY_MAX];

    if (s->key)
        return true;
    etcd_key(key, s->e, s->name, sections[s->mode], s->lease->id, s->by_seq.seq);
    s->key = strdup(key);
    return s->key != NULL;
}

void etcd_waiter_step(etcd_waiter *s)
{
    bool ready = s->lease && s->lease->state == LEASE_READY;

    if (s->call || s->base || !etcd_link_ready(&s->e->link))
        return;
    switch (s->state) {
    case WAITER_ASKS:
        if (!ready || etcd_waiter_behind(s))
            break;
        if (have_key(s))
            etcd_waiter_ask(s);
        else
            kit_timer_ms(s->e->env, &s->timer, RETRY_MS);
        break;
    case WAITER_QUEUED:
        if (ready && s->recheck != RECHECK_NONE)
            etcd_waiter_ask(s);
        break;
    case WAITER_HOLDS:
    case WAITER_SHELL:
    case WAITER_LINGERS:
        if (s->rewrite && ready && (!s->target || s->target->state == LEASE_READY))
            etcd_waiter_rewrite(s);
        break;
    case WAITER_LEAVES:
        if (!s->created && s->key_is != KEY_MAYBE)
            etcd_waiter_left(s, false);
        else if (ready || s->key_is != KEY_MAYBE) /* fence off late requests first */
            etcd_waiter_delete(s);
        break;
    default:
        break;
    }
}

static void try_again(pawl_timer *timer)
{
    etcd_waiter *s = timer->arg;
    pawl_op *op = s->acquires;

    if (s->state == WAITER_LINGERS) {
        if (etcd_waiter_lingers(s))
            s->e->env->timer_set(s->e->env, timer, s->linger);
        else
            etcd_waiter_leave(s, PAWL_ECANCELED);
    }
    if (!s->cancelled || !op) {
        etcd_waiter_step(s);
        return;
    }
    /* The answer takes too long. The answer will come, and the key will be deleted. The outcome of
     * the acquire is unknown only if the connection is lost or the server never answered. */
    s->acquires = NULL;
    pawl_op_finish(op, s->waited && s->key_is != KEY_MAYBE && etcd_link_ready(&s->e->link)
                           ? PAWL_ECANCELED
                           : etcd_no_answer(s->e, op->err, PAWL_EUNKNOWN));
    if (s->state != WAITER_LEAVES && !s->call)
        etcd_waiter_leave(s, PAWL_ECANCELED);
    else
        etcd_waiter_step(s);
}

void etcd_waiter_failed(etcd_call *call, int code, const char *words)
{
    etcd_waiter *s = call->about;
    bool lost = code == PAWL_EUNKNOWN || code == PAWL_ECONN || code == PAWL_ECANCELED;

    s->call = NULL;
    if (code == ETCD_NO_LEASE) { /* a move names only the target lease */
        bool moves = call->tag && s->target && s->target->id == call->tag;

        if (moves && s->state != WAITER_LEAVES)
            s->rewrite = true;
        etcd_lease_gone(moves ? s->target : s->lease);
        return;
    }
    if (code == PAWL_EUNKNOWN && s->key_is == KEY_KNOWN)
        s->key_is = KEY_MAYBE;
    if (s->state == WAITER_QUEUED)
        etcd_waiter_due(s, RECHECK_QUEUE);
    s->rewrite |= lost && (s->state == WAITER_HOLDS || s->state == WAITER_SHELL ||
                           s->state == WAITER_LINGERS);
    etcd_answer_releases(s, code);
    if (s->cancelled && s->state != WAITER_LEAVES) {
        end_acquires(s, lost ? PAWL_EUNKNOWN : code);
        etcd_waiter_leave(s, PAWL_ECANCELED);
        return;
    }
    if (s->state == WAITER_ASKS && !lost && s->acquires) {
        pawl_error_set(s->acquires->err, code, "%s", words);
        end_acquires(s, code);
        s->cancelled = true;
        etcd_waiter_leave(s, code);
        return;
    }
    if (!lost)
        kit_timer_ms(s->e->env, &s->timer, RETRY_MS);
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
    list_each_safe(etcd_waiter, s, &e->waiters, link) {
        if (s->state != WAITER_ASKS || s->call || s->key_is == KEY_MAYBE || !s->acquires ||
            s->base)
            continue;
        pawl_error_set(s->acquires->err, code, "%s", words);
        etcd_waiter_end(s, code);
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
static bool visit(etcd_waiter *s, const pawl_op *op)
{
    etcd_waiter *base = op->with_seq ? etcd_waiter_find(s->e, op->with_seq) : NULL;

    if (!base || op->mode != PAWL_MODE_SHARED || base->state != WAITER_HOLDS || base->base ||
        base->mode != PAWL_MODE_EXCLUSIVE || strcmp(base->name, s->name))
        return false;
    s->base = base;
    list_remove(&s->asking);
    list_remove(&s->in_lease);
    s->lease = base->lease;
    list_append(&s->lease->waiters, &s->in_lease);
    base->downgraded++;
    base->rewrite = true;
    etcd_waiter_step(base);
    return true;
}

/* The core repeats an acquire of the same owner. */
static void join(etcd_waiter *s, pawl_op *op)
{
    op->engine[0] = s;
    if (s->state == WAITER_HOLDS) {
        tell(op, s, s->e->env->now(s->e->env));
    } else if (s->acquires && (s->state == WAITER_ASKS || s->state == WAITER_QUEUED)) {
        op->engine[1] = s->acquires;
        s->acquires = op;
    } else {
        pawl_op_finish(op, PAWL_ECANCELED);
    }
}

void etcd_acquire(etcd *e, pawl_op *op)
{
    etcd_waiter *s = etcd_waiter_find(e, op->owner.seq);

    if (s) {
        join(s, op);
        return;
    }
    if (op->lease_ms <= 0 && op->mode != PAWL_MODE_LATCH) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must last longer than 0"));
        return;
    }
    s = waiter_new(e, op);
    if (!s) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    op->engine[0] = s;
    op->engine[1] = NULL;
    s->acquires = op;
    if (!visit(s, op))
        etcd_waiter_step(s);
}
