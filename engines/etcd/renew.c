/* SPDX-License-Identifier: Apache-2.0
 *
 * renew.c - renewals, answered from known state: a grant is valid as long as the key exists (the
 * key is watched) and the lease is kept alive, which leases.c does anyway. So a renewal sends no
 * request of its own. A renewal is answered when each lease in it was confirmed recently on this
 * connection; other leases are confirmed now. As soon as one grant is known to be gone, the renewal
 * is answered with all that is known.
 *
 * The answer counts from now, and is valid until the first of these leases can end.
 *
 * A grant that asks for a longer time than the lease provides is moved to a longer lease.
 */
#include "etcd.h"

/* Can this grant be answered with 0 now? If not, start the requests that make an answer
 * possible. */
static bool is_good(etcd_waiter *w, int64_t lease_ms)
{
    etcd_waiter *holder = w->base ? w->base : w;

    if (!w->target && !w->base && etcd_lease_is_shorter(w->lease, lease_ms)) {
        w->target = etcd_lease_for(w->e, lease_ms);
        w->rewrite |= w->target != NULL;
        etcd_waiter_step(w);
    }
    if (w->target || holder->key_is == KEY_MOVED)
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
        etcd_waiter *w = etcd_waiter_find(e, item->owner.seq);

        if (!w || w->state != WAITER_HOLDS) {
            item->code = PAWL_ENOTHELD;
            gone = true;
        } else if (is_good(w, item->lease_ms)) {
            int64_t ms = etcd_lease_left((w->base ? w->base : w)->lease, now);

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
