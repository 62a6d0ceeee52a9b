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

static void change_lease(etcd_waiter *s, etcd_lease *lease)
{
    list_remove(&s->in_lease);
    if (s->lease)
        s->lease->used = s->e->env->now(s->e->env);
    s->lease = lease;
    list_append(&lease->waiters, &s->in_lease);
}

void etcd_waiter_moved(etcd_waiter *s, etcd_lease *lease)
{
    struct list *waiters = &s->e->waiters;

    change_lease(s, lease);
    list_each(etcd_waiter, l, waiters, link)
        if (l->base == s)
            change_lease(l, lease);
    if (s->target == lease)
        s->target = NULL;
}

bool etcd_waiter_ended_with(etcd_waiter *s, const etcd_lease *lease)
{
    etcd_waiter *holder = s->base ? s->base : s;
    etcd_lease *to = holder->moving ? holder->moving : s->base ? holder->lease : NULL;

    if (!to || to == lease)
        return true;
    change_lease(s, to);
    if (s->base)
        return false;
    if (s->call)
        s->call->about = NULL;
    s->call = NULL;
    s->moving = NULL;
    s->target = s->target == to ? NULL : s->target;
    s->rewrite = s->state != WAITER_LEAVES;
    if (s->rewrite)
        s->key_is = KEY_MOVED;
    return false;
}

/* ---- lingering ------------------------------------------------------------------------------- */

bool etcd_waiter_lingers(const etcd_waiter *s)
{
    return s->linger > s->e->env->now(s->e->env);
}

void etcd_waiter_linger(etcd_waiter *s)
{
    pawl_env *env = s->e->env;
    int64_t ms = (s->linger - env->now(env)) / PAWL_NS_PER_MS + 1;

    s->state = WAITER_LINGERS;
    list_remove(&s->fresh);
    env->timer_set(env, &s->timer, s->linger);
    s->target = etcd_lease_that_ends(s->e, ms);
    if (!s->target) { /* the key lingers as long as the process runs */
        etcd_answer_releases(s, 0);
        return;
    }
    s->rewrite = true;
    etcd_waiter_step(s);
}

void etcd_linger_refused(etcd_lease *lease)
{
    struct list *waiters = &lease->e->waiters;

    list_each_safe(etcd_waiter, s, waiters, link) {
        if (s->target != lease)
            continue;
        s->target = NULL;
        etcd_answer_releases(s, 0);
    }
    etcd_lease_free(lease);
}
