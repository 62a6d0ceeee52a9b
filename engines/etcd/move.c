/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c - keys that move to another lease: a longer one (renew.c), or one that ends by itself.
 *
 * MOVING. A move is a rewrite of the key (leave.c) that names the other lease, on condition that
 * the key is the one that was created for this waiter. Until an answer comes, the key may be under
 * either lease; waiter->moving says so. If the old lease ends meanwhile, the key is gone or has
 * moved; a moved key without a waiter would stay as long as the other lease is kept alive. So the
 * waiter goes on under the other lease: the next rewrite shows whether the key exists, and a waiter
 * that leaves deletes the key in any case. If the key exists, the key was never gone, since its
 * creation is compared, and the lock is still held.
 *
 * LINGERING. A released lock that is to stay taken for a while (op->linger_ms) moves to a separate
 * lease of that length, which is never kept alive, so the service ends the lock even if the process
 * is gone. A running process deletes the key on time. etcd counts in seconds and has a shortest
 * lease, so the lock of a process that has ended stays up to that much longer.
 *
 *     HOLDS or SHELL --release--> LINGERS --moved: the release is answered--> timer --> LEAVES
 */
#include "etcd.h"

static void change_lease(etcd_waiter *w, etcd_lease *lease)
{
    list_remove(&w->in_lease);
    if (w->lease)
        w->lease->used = w->e->env->now(w->e->env);
    w->lease = lease;
    list_append(&lease->waiters, &w->in_lease);
}

void etcd_waiter_moved(etcd_waiter *w, etcd_lease *lease)
{
    struct list *waiters = &w->e->waiters;

    change_lease(w, lease);
    list_each(etcd_waiter, l, waiters, link)
        if (l->base == w)
            change_lease(l, lease);
    if (w->target == lease)
        w->target = NULL;
}

bool etcd_waiter_ended_with(etcd_waiter *w, const etcd_lease *lease)
{
    etcd_waiter *holder = w->base ? w->base : w;
    etcd_lease *to = holder->moving ? holder->moving : w->base ? holder->lease : NULL;

    if (!to || to == lease)
        return true;
    change_lease(w, to);
    if (w->base)
        return false;
    if (w->call)
        w->call->about = NULL;
    w->call = NULL;
    w->moving = NULL;
    w->target = w->target == to ? NULL : w->target;
    w->rewrite = w->state != WAITER_LEAVES;
    if (w->rewrite)
        w->key_is = KEY_MOVED;
    return false;
}

/* ---- lingering ------------------------------------------------------------------------------- */

bool etcd_waiter_lingers(const etcd_waiter *w)
{
    return w->linger > w->e->env->now(w->e->env);
}

void etcd_waiter_linger(etcd_waiter *w)
{
    pawl_env *env = w->e->env;
    int64_t ms = (w->linger - env->now(env)) / PAWL_NS_PER_MS + 1;

    w->state = WAITER_LINGERS;
    list_remove(&w->fresh);
    env->timer_set(env, &w->timer, w->linger);
    w->target = etcd_lease_that_ends(w->e, ms);
    if (!w->target) { /* the key lingers as long as the process runs */
        etcd_answer_releases(w, 0);
        return;
    }
    w->rewrite = true;
    etcd_waiter_step(w);
}

void etcd_linger_refused(etcd_lease *lease)
{
    struct list *waiters = &lease->e->waiters;

    list_each_safe(etcd_waiter, w, waiters, link) {
        if (w->target != lease)
            continue;
        w->target = NULL;
        etcd_answer_releases(w, 0);
    }
    etcd_lease_free(lease);
}
