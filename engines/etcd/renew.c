/* SPDX-License-Identifier: Apache-2.0
 *
 * renew.c - renewals, answered from what is known: a grant is good as long as its key is there (it
 * is watched) and its lease is kept alive, which leases.c does anyway. So a renewal sends nothing
 * of its own. It is answered when each lease in it was confirmed lately, on this connection; one
 * that was not is confirmed now. As soon as one grant is known to be gone all that is known is
 * told.
 *
 * The answer counts from now, and lasts as long as the lease that ends first is surely good.
 *
 * Whoever asks for longer than its lease can last is moved to a longer one.
 */
#include "etcd.h"

/* May be answered with 0 now? Else sees to it that it may be soon. */
static bool is_good(etcd_waiter *s, int64_t lease_ms)
{
    etcd_waiter *holder = s->base ? s->base : s;

    if (!s->target && !s->base && etcd_lease_is_shorter(s->lease, lease_ms)) {
        s->target = etcd_lease_for(s->e, lease_ms);
        s->rewrite |= s->target != NULL;
        etcd_waiter_step(s);
    }
    if (s->target || holder->unsure)
        return false;
    if (etcd_lease_fresh(holder->lease))
        return true;
    etcd_lease_poke(holder->lease);
    return false;
}

static bool answer(etcd *e, pawl_op *op)
{
    int64_t now = e->env->now(e->env), left = PAWL_NEVER;
    bool gone = false, good = true;

    for (size_t i = 0; i < op->batch_len; i++) {
        pawl_renewal *item = &op->batch[i];
        etcd_waiter *s = etcd_waiter_find(e, item->owner.seq);

        if (!s || s->state != WAITER_HOLDS) {
            item->code = PAWL_ENOTHELD;
            gone = true;
        } else if (is_good(s, item->lease_ms)) {
            int64_t ms = etcd_lease_left((s->base ? s->base : s)->lease, now);

            item->code = 0;
            left = ms < left ? ms : left;
        } else {
            item->code = PAWL_EUNKNOWN;
            good = false;
        }
    }
    if (!good && !gone)
        return false;
    op->lease_from = now;
    op->granted_ms = left == PAWL_NEVER ? 0 : left;
    return true;
}

void etcd_renewals_check(etcd *e)
{
    pawl_op *op = e->renewals, *next;

    e->renewals = NULL;
    for (; op; op = next) {
        next = op->engine[1];
        etcd_renew(e, op);
    }
}

void etcd_renew(etcd *e, pawl_op *op)
{
    if (answer(e, op)) {
        pawl_op_finish(op, 0);
        return;
    }
    op->engine[1] = e->renewals;
    e->renewals = op;
}

void etcd_renew_cancel(etcd *e, pawl_op *op)
{
    pawl_op **at = &e->renewals;

    while (*at && *at != op)
        at = (pawl_op **)&(*at)->engine[1];
    if (*at)
        *at = op->engine[1];
    pawl_op_finish(op, etcd_no_answer(e, op->err, PAWL_EUNKNOWN));
}
