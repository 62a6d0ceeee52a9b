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

void etcd_answer_releases(etcd_waiter *s, int code)
{
    pawl_op *op = s->releases, *next;

    s->releases = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        pawl_op_finish(op, code);
    }
}

/* ---- deleting -------------------------------------------------------------------------------- */

void etcd_waiter_left(etcd_waiter *s, bool was)
{
    etcd_answer_releases(s, was ? 0 : PAWL_ENOTHELD);
    etcd_waiter_end(s, s->refused);
}

static bool answer_delete(etcd_call *call, pb_span message)
{
    etcd_waiter *s = call->about;
    int64_t deleted;

    if (!etcd_read_deleted(message, &deleted))
        return false;
    s->call = NULL;
    etcd_waiter_left(s, deleted > 0);
    return true;
}

void etcd_waiter_delete(etcd_waiter *s)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/DeleteRange",
        .answer = answer_delete, .failed = etcd_waiter_failed};
    etcd_call *call = etcd_call_new(s->e, &type, s);

    if (call)
        etcd_pb_bytes(&call->body, 1, s->key, strlen(s->key));
    if (call && etcd_call_send(call))
        s->call = call;
    else
        kit_timer_ms(s->e->env, &s->timer, 100);
}

void etcd_waiter_leave(etcd_waiter *s, int code)
{
    if (s->call && (s->state == WAITER_HOLDS || s->state == WAITER_SHELL)) {
        s->call->about = NULL; /* a rewrite: harmless now or later */
        s->call = NULL;
    }
    etcd_watch_stop(&s->ahead);
    etcd_watch_stop(&s->own);
    list_remove(&s->fresh);
    s->state = WAITER_LEAVES;
    s->refused = code;
    s->recheck = RECHECK_NONE;
    s->rewrite = false;
    etcd_waiter_enter_order(s);
    etcd_waiter_next(s);
    etcd_waiter_step(s);
}

/* ---- rewriting ------------------------------------------------------------------------------- */

size_t etcd_waiter_value(const etcd_waiter *s, char text[ETCD_VALUE_MAX])
{
    const pawl_env *env = s->e->env;
    etcd_value v = {.since = s->since, .pid = getpid(), .token = s->token,
                    .permits = s->permits, .capacity = s->capacity,
                    .readers = s->downgraded, .shared = s->state == WAITER_SHELL || s->only_reads};

    if (s->mode != PAWL_MODE_PERMITS)
        v.capacity = 0;
    snprintf(v.host, sizeof v.host, "%s", env->host);
    snprintf(v.program, sizeof v.program, "%s", env->program);
    snprintf(v.label, sizeof v.label, "%s", env->label);
    return etcd_value_write(text, &v);
}

/* Grant the downgraded readers, now that the key counts them. */
static void admit_downgraded(etcd_waiter *base, const etcd_call *call, int64_t revision)
{
    list_each_safe(etcd_waiter, s, &base->e->waiters, link) {
        if (s->base == base && s->state == WAITER_ASKS)
            etcd_waiter_granted(s, (uint64_t)revision, call->sent);
    }
}

/* The last downgraded reader has left. */
static void shell_ends(etcd_waiter *s)
{
    s->only_reads = true;
    if (etcd_waiter_lingers(s))
        etcd_waiter_linger(s);
    else
        etcd_waiter_leave(s, PAWL_ECANCELED);
}

static bool answer_rewrite(etcd_call *call, pb_span message)
{
    etcd_waiter *s = call->about;
    etcd_txn txn;
    etcd_kvs own;
    etcd_kv kv;

    if (!etcd_read_txn(message, &txn) || txn.revision <= 0 ||
        (!txn.succeeded && !etcd_txn_range(&txn, 0, &own)))
        return false;
    s->call = NULL;
    if (!txn.succeeded && etcd_next_kv(&own, &kv) && kv.created == s->created) {
        s->rewrite = true;
        etcd_lease_unfenced(s->lease, call->fence);
        etcd_waiter_step(s);
        return true;
    }
    s->moving = NULL;
    s->key_is = s->key_is == KEY_MOVED ? KEY_KNOWN : s->key_is;
    if (!txn.succeeded) {
        etcd_waiter_vanished(s);
        return true;
    }
    if (!s->own.id && list_empty(&s->fresh)) /* the watch was compacted away */
        etcd_watch_start(&s->own, s->e, s->key, "", txn.revision + 1);
    if (!s->rewrite)
        etcd_answer_releases(s, 0);
    admit_downgraded(s, call, txn.revision);
    if (call->tag && s->target && s->target->id == call->tag)
        etcd_waiter_moved(s, s->target);
    etcd_renewals_check(s->e);
    if (s->state == WAITER_SHELL && !s->downgraded)
        shell_ends(s);
    else
        etcd_waiter_step(s);
    return true;
}

void etcd_waiter_rewrite(etcd_waiter *s)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_rewrite,
        .failed = etcd_waiter_failed};
    etcd_call *call = etcd_call_new(s->e, &type, s);
    etcd_range own = {.key = etcd_span(s->key)};
    etcd_query q = {.range = own, .keys_only = true};
    char value[ETCD_VALUE_MAX];
    size_t n = etcd_waiter_value(s, value);

    if (call) {
        call->tag = s->target ? s->target->id : 0;
        etcd_if_created(&call->body, &own, s->created);
        etcd_if_fenced(call, s->lease);
        etcd_do_put(&call->body, ETCD_THEN, own.key, (pb_span){(const uint8_t *)value, n},
                    call->tag ? call->tag : s->lease->id);
        etcd_do_range(&call->body, ETCD_ELSE, &q);
    }
    if (call && etcd_call_send(call)) {
        s->call = call;
        s->moving = call->tag ? s->target : s->moving;
        s->rewrite = false;
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
static void downgraded_leaves(etcd_waiter *s)
{
    etcd_waiter *base = s->base;
    pawl_op *releases = s->releases;

    s->base = NULL;
    base->linger = s->linger > base->linger ? s->linger : base->linger;
    base->downgraded--;
    base->rewrite = true;
    if (base->state != WAITER_SHELL || base->downgraded) { /* the key stays */
        etcd_answer_releases(s, 0);
        etcd_waiter_step(base);
    } else {
        s->releases = NULL;
        for (pawl_op *op = releases, *next; op; op = next) {
            next = op->engine[1];
            op->engine[0] = base;
            op->engine[1] = base->releases;
            base->releases = op;
        }
        shell_ends(base);
    }
    etcd_waiter_end(s, PAWL_ECANCELED);
}

static void give_up(etcd_waiter *s, pawl_op *op)
{
    const etcd_link *link = &s->e->link;
    int code;

    if (!etcd_link_ready(link) && link->last_code)
        code = pawl_error_set(op->err, link->last_code, "%s", link->words);
    else
        code = etcd_no_answer(s->e, op->err, PAWL_ECONN);
    s->acquires = NULL;
    pawl_op_finish(op, code);
    etcd_waiter_end(s, code);
}

void etcd_acquire_cancel(etcd *e, pawl_op *op)
{
    etcd_waiter *s = op->engine[0];

    unchain(&s->acquires, op);
    if (s->acquires) { /* a repeated acquire of the same owner */
        pawl_op_finish(op, PAWL_ECANCELED);
        return;
    }
    s->acquires = op;
    op->engine[1] = NULL;
    if (s->base) {
        downgraded_leaves(s);
    } else if (s->state == WAITER_ASKS && !s->call && s->key_is != KEY_MAYBE) {
        give_up(s, op);
    } else {
        int64_t ms = !etcd_link_ready(&e->link) ? 0 : s->waited ? CANCEL_MS : ANSWER_MS;

        s->cancelled = true;
        kit_timer_ms(e->env, &s->timer, ms);
        if (!s->call)
            etcd_waiter_leave(s, PAWL_ECANCELED);
    }
}

void etcd_release(etcd *e, pawl_op *op)
{
    etcd_waiter *s = etcd_waiter_find(e, op->owner.seq);

    if (!s || s->acquires || (s->state == WAITER_SHELL && !s->rewrite && !s->call)) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        return;
    }
    if (s->state == WAITER_GONE) {
        pawl_op_finish(op, PAWL_ENOTHELD);
        etcd_waiter_end(s, PAWL_ENOTHELD);
        return;
    }
    if (s->state == WAITER_HOLDS && op->permits && op->permits >= s->permits) {
        pawl_op_finish(op, 0);
        return;
    }
    if (s->state == WAITER_LINGERS && !s->target && !s->rewrite && !s->call) {
        pawl_op_finish(op, 0);
        return;
    }
    if (op->linger_ms > 0 && s->state == WAITER_HOLDS)
        s->linger = e->env->now(e->env) + op->linger_ms * PAWL_NS_PER_MS;
    op->engine[0] = s;
    op->engine[1] = s->releases;
    s->releases = op;
    if (s->state != WAITER_HOLDS) {
        s->cancelled |= s->state == WAITER_ASKS || s->state == WAITER_QUEUED;
        etcd_waiter_step(s);
    } else if (s->base) {
        downgraded_leaves(s);
    } else if (op->permits || s->downgraded) {
        s->permits = op->permits;
        s->state = s->downgraded ? WAITER_SHELL : WAITER_HOLDS;
        s->rewrite = true;
        etcd_waiter_step(s);
    } else if (etcd_waiter_lingers(s)) {
        etcd_waiter_linger(s);
    } else {
        etcd_waiter_leave(s, PAWL_ECANCELED);
    }
}

/* The waiter goes on leaving by itself. */
void etcd_release_cancel(etcd *e, pawl_op *op)
{
    etcd_waiter *s = op->engine[0];

    (void)e;
    unchain(&s->releases, op);
    pawl_op_finish(op, PAWL_EUNKNOWN);
}
