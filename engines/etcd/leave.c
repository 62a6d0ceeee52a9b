/* SPDX-License-Identifier: Apache-2.0
 *
 * leave.c - release and cancel: how keys are deleted, and how remaining keys are rewritten.
 *
 * A key is deleted by name, and no other owner ever has that name, so a second delete does no harm.
 * When the answer is lost, the outcome of the release is unknown; the waiter goes on by itself
 * until the key is certainly gone, whether the release is sent again or not.
 *
 * A cancelled acquire ends with PAWL_ECANCELED only if the server has answered that another key is
 * ahead. If no answer came, the acquire ends with PAWL_ECONN (not sent) or PAWL_EUNKNOWN, so that a
 * silent server never looks like a lock that is held.
 *
 * A key is rewritten when the owner keeps only some permits, when a downgraded reader starts or
 * stops using the key, to show since when the owner holds, and to move to another lease (move.c).
 * The condition is that the key is still the same key, so a late rewrite brings nothing back.
 */
#include <unistd.h>

#include "etcd.h"

#define CANCEL_MS 100 /* how long to wait for the answer to a cancel */
#define ANSWER_MS 400 /* how long to wait for the first answer, if none has come */

void etcd_answer_releases(etcd_waiter *w, int code)
{
    pawl_op *op = w->releases, *next;

    w->releases = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        pawl_op_finish(op, code);
    }
}

/* ---- deleting -------------------------------------------------------------------------------- */

void etcd_waiter_left(etcd_waiter *w, bool was)
{
    etcd_answer_releases(w, was ? 0 : PAWL_ENOTHELD);
    etcd_waiter_end(w, w->refused);
}

static bool answer_delete(etcd_call *call, pb_span message)
{
    etcd_waiter *w = call->about;
    int64_t deleted;

    if (!etcd_read_deleted(message, &deleted))
        return false;
    w->call = NULL;
    etcd_waiter_left(w, deleted > 0);
    return true;
}

void etcd_waiter_delete(etcd_waiter *w)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/DeleteRange",
        .answer = answer_delete, .failed = etcd_waiter_failed};
    etcd_call *call = etcd_call_new(w->e, &type, w);

    if (call)
        etcd_pb_bytes(&call->body, 1, w->key, strlen(w->key));
    if (call && etcd_call_send(call))
        w->call = call;
    else
        kit_timer_ms(w->e->env, &w->timer, 100);
}

void etcd_waiter_leave(etcd_waiter *w, int code)
{
    if (w->call && (w->state == WAITER_HOLDS || w->state == WAITER_SHELL)) {
        w->call->about = NULL; /* a rewrite: harmless now or later */
        w->call = NULL;
    }
    etcd_watch_stop(&w->ahead);
    etcd_watch_stop(&w->own);
    list_remove(&w->fresh);
    w->state = WAITER_LEAVES;
    w->refused = code;
    w->recheck = RECHECK_NONE;
    w->rewrite = false;
    etcd_waiter_enter_order(w);
    etcd_waiter_next(w);
    etcd_waiter_step(w);
}

/* ---- rewriting ------------------------------------------------------------------------------- */

size_t etcd_waiter_value(const etcd_waiter *w, char text[ETCD_VALUE_MAX])
{
    const pawl_env *env = w->e->env;
    etcd_value v = {.since = w->since, .pid = getpid(), .token = w->token,
                    .permits = w->permits, .capacity = w->capacity,
                    .readers = w->downgraded, .shared = w->state == WAITER_SHELL || w->only_reads};

    if (w->mode != PAWL_MODE_PERMITS)
        v.capacity = 0;
    snprintf(v.host, sizeof v.host, "%s", env->host);
    snprintf(v.program, sizeof v.program, "%s", env->program);
    snprintf(v.label, sizeof v.label, "%s", env->label);
    return etcd_value_write(text, &v);
}

/* Grant the downgraded readers, now that the key counts them. */
static void admit_downgraded(etcd_waiter *base, const etcd_call *call, int64_t revision)
{
    list_each_safe(etcd_waiter, w, &base->e->waiters, link) {
        if (w->base == base && w->state == WAITER_ASKS)
            etcd_waiter_granted(w, (uint64_t)revision, call->sent);
    }
}

/* The last downgraded reader has left. */
static void shell_ends(etcd_waiter *w)
{
    w->only_reads = true;
    if (etcd_waiter_lingers(w))
        etcd_waiter_linger(w);
    else
        etcd_waiter_leave(w, PAWL_ECANCELED);
}

static bool answer_rewrite(etcd_call *call, pb_span message)
{
    etcd_waiter *w = call->about;
    etcd_txn txn;
    etcd_kvs own;
    etcd_kv kv;

    if (!etcd_read_txn(message, &txn) || txn.revision <= 0 ||
        (!txn.succeeded && !etcd_txn_range(&txn, 0, &own)))
        return false;
    w->call = NULL;
    if (!txn.succeeded && etcd_next_kv(&own, &kv) && kv.created == w->created) {
        w->rewrite = true;
        etcd_lease_unfenced(w->lease, call->fence);
        etcd_waiter_step(w);
        return true;
    }
    w->moving = NULL;
    w->key_is = w->key_is == KEY_MOVED ? KEY_KNOWN : w->key_is;
    if (!txn.succeeded) {
        etcd_waiter_vanished(w);
        return true;
    }
    if (!w->own.id && list_empty(&w->fresh)) /* the watch was compacted away */
        etcd_watch_start(&w->own, w->e, w->key, "", txn.revision + 1);
    if (!w->rewrite)
        etcd_answer_releases(w, 0);
    admit_downgraded(w, call, txn.revision);
    if (call->tag && w->target && w->target->id == call->tag)
        etcd_waiter_moved(w, w->target);
    etcd_renewals_check(w->e);
    if (w->state == WAITER_SHELL && !w->downgraded)
        shell_ends(w);
    else
        etcd_waiter_step(w);
    return true;
}

void etcd_waiter_rewrite(etcd_waiter *w)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_rewrite,
        .failed = etcd_waiter_failed};
    etcd_call *call = etcd_call_new(w->e, &type, w);
    etcd_range own = {.key = etcd_span(w->key)};
    etcd_query q = {.range = own, .keys_only = true};
    char value[ETCD_VALUE_MAX];
    size_t n = etcd_waiter_value(w, value);

    if (call) {
        call->tag = w->target ? w->target->id : 0;
        etcd_if_created(&call->body, &own, w->created);
        etcd_if_fenced(call, w->lease);
        etcd_do_put(&call->body, ETCD_THEN, own.key, (pb_span){(const uint8_t *)value, n},
                    call->tag ? call->tag : w->lease->id);
        etcd_do_range(&call->body, ETCD_ELSE, &q);
    }
    if (call && etcd_call_send(call)) {
        w->call = call;
        w->moving = call->tag ? w->target : w->moving;
        w->rewrite = false;
    }
}

/* ---- the ops --------------------------------------------------------------------------------- */

static void unchain(pawl_op **chain, pawl_op *op)
{
    while (*chain && *chain != op)
        chain = (pawl_op **)&(*chain)->engine[1];
    if (*chain)
        *chain = op->engine[1];
}

/* A downgraded reader leaves. */
static void downgraded_leaves(etcd_waiter *w)
{
    etcd_waiter *base = w->base;
    pawl_op *releases = w->releases;

    w->base = NULL;
    base->linger = w->linger > base->linger ? w->linger : base->linger;
    base->downgraded--;
    base->rewrite = true;
    if (base->state != WAITER_SHELL || base->downgraded) { /* the key stays */
        etcd_answer_releases(w, 0);
        etcd_waiter_step(base);
    } else {
        w->releases = NULL;
        for (pawl_op *op = releases, *next; op; op = next) {
            next = op->engine[1];
            op->engine[0] = base;
            op->engine[1] = base->releases;
            base->releases = op;
        }
        shell_ends(base);
    }
    etcd_waiter_end(w, PAWL_ECANCELED);
}

static void give_up(etcd_waiter *w, pawl_op *op)
{
    const etcd_link *link = &w->e->link;
    int code;

    if (!etcd_link_ready(link) && link->last_code)
        code = pawl_error_set(op->err, link->last_code, "%s", link->words);
    else
        code = etcd_no_answer(w->e, op->err, PAWL_ECONN);
    w->acquires = NULL;
    pawl_op_finish(op, code);
    etcd_waiter_end(w, code);
}

void etcd_acquire_cancel(etcd *e, pawl_op *op)
{
    etcd_waiter *w = op->engine[0];

    unchain(&w->acquires, op);
    if (w->acquires) { /* a repeated acquire of the same owner */
        pawl_op_finish(op, PAWL_ECANCELED);
        return;
    }
    w->acquires = op;
    op->engine[1] = NULL;
    if (w->base) {
        downgraded_leaves(w);
    } else if (w->state == WAITER_ASKS && !w->call && w->key_is != KEY_MAYBE) {
        give_up(w, op);
    } else {
        int64_t ms = !etcd_link_ready(&e->link) ? 0 : w->waited ? CANCEL_MS : ANSWER_MS;

        w->cancelled = true;
        kit_timer_ms(e->env, &w->timer, ms);
        if (!w->call)
            etcd_waiter_leave(w, PAWL_ECANCELED);
    }
}

void etcd_release(etcd *e, pawl_op *op)
{
    etcd_waiter *w = etcd_waiter_find(e, op->owner.seq);

    if (!w || w->acquires || (w->state == WAITER_SHELL && !w->rewrite && !w->call)) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        return;
    }
    if (w->state == WAITER_GONE) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        etcd_waiter_end(w, PAWL_ENOTHELD);
        return;
    }
    if (w->state == WAITER_HOLDS && op->permits && op->permits >= w->permits) {
        pawl_op_finish(op, 0);
        return;
    }
    if (w->state == WAITER_LINGERS && !w->target && !w->rewrite && !w->call) {
        pawl_op_finish(op, 0);
        return;
    }
    if (op->linger_ms > 0 && w->state == WAITER_HOLDS)
        w->linger = e->env->now(e->env) + op->linger_ms * PAWL_NS_PER_MS;
    op->engine[0] = w;
    op->engine[1] = w->releases;
    w->releases = op;
    if (w->state != WAITER_HOLDS) {
        w->cancelled |= w->state == WAITER_ASKS || w->state == WAITER_QUEUED;
        etcd_waiter_step(w);
    } else if (w->base) {
        downgraded_leaves(w);
    } else if (op->permits || w->downgraded) {
        w->permits = op->permits;
        w->state = w->downgraded ? WAITER_SHELL : WAITER_HOLDS;
        w->rewrite = true;
        etcd_waiter_step(w);
    } else if (etcd_waiter_lingers(w)) {
        etcd_waiter_linger(w);
    } else {
        etcd_waiter_leave(w, PAWL_ECANCELED);
    }
}

/* The waiter goes on leaving by itself. */
void etcd_release_cancel(etcd *e, pawl_op *op)
{
    etcd_waiter *w = op->engine[0];

    (void)e;
    unchain(&w->releases, op);
    pawl_op_finish(op, PAWL_EUNKNOWN);
}
