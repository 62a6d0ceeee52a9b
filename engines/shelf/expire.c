/* SPDX-License-Identifier: Apache-2.0
 *
 * expire.c - how grants and queue entries end without their owner: leases that ran out, processes
 * that died, break.
 *
 * There is no background work: the client that edits a lock first ends everything that has expired
 * on that lock (lockstate_expire). Asking whether a process lives costs a system call, so the edit
 * only checks processes whose death matters: the processes of the holders, of the front of the
 * queue, and of the waiters ahead of the owner of the edit.
 */
#include "lockstate.h"

static bool ended(const lockstate_edit *edit, const lockstate_entry *e)
{
    return e->expires <= edit->now ||
           (!(e->flags & LOCKSTATE_LINGER) && edit->dead(edit->arg, e));
}

/* Returns true if at least one holder was dropped. */
static bool drop_holders(lockstate_edit *edit, lockstate_lock *lock)
{
    bool any = false;

    for (size_t i = 0; i < lock->holders;) {
        if (ended(edit, lockstate_entries(lock) + i)) {
            lockstate_remove(edit->shelf, lock, i);
            any = true;
        } else {
            i++;
        }
    }
    return any;
}

/* Drop dead waiters before index `end`. A live waiter that lost its predecessor is notified, except
 * the waiter at `end`, the owner of the edit. `patient`: continue after the first live waiter. */
static void drop_waiters(lockstate_edit *edit, lockstate_lock *lock, size_t end, bool patient)
{
    bool moved = false;

    for (size_t i = lock->holders; i < end;) {
        const lockstate_entry *e = lockstate_entries(lock) + i;

        if (edit->dead(edit->arg, e)) {
            lockstate_remove(edit->shelf, lock, i);
            end--;
            moved = true;
        } else {
            if (moved)
                edit->tell(edit->arg, e, LOCKSTATE_CHECK);
            moved = false;
            i++;
            if (!patient)
                break;
        }
    }
}

void lockstate_expire(lockstate_edit *edit, uint64_t client, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    lockstate_front before;
    bool known;
    size_t admitted, used = edit->shelf->used;
    int64_t self;

    if (!lock)
        return;
    before = lockstate_front_of(lock);
    drop_holders(edit, lock);
    self = lockstate_index(lock, client, seq);
    known = self >= (int64_t)lock->holders;
    drop_waiters(edit, lock, known ? (size_t)self : (size_t)lock->holders + lock->waiters,
                 known || lock->type == PAWL_TYPE_LATCH);
    admitted = lockstate_admit(edit, lock);
    if (admitted || edit->shelf->used != used)
        lockstate_conclude(edit, lock, &before, admitted);
}

void lockstate_prune(lockstate_edit *edit, lockstate_lock *lock)
{
    drop_holders(edit, lock);
    drop_waiters(edit, lock, (size_t)lock->holders + lock->waiters, true);
}

int lockstate_break(lockstate_edit *edit)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    lockstate_front before;
    bool any, had;

    if (!lock || lock->type == PAWL_TYPE_LATCH)
        return PAWL_ENOTHELD;
    before = lockstate_front_of(lock);
    any = drop_holders(edit, lock);
    had = lock->holders > 0;
    if (!any && !had)
        return PAWL_ENOTHELD;
    while (lock->holders) {
        const lockstate_entry *e = lockstate_entries(lock);

        if (!(e->flags & LOCKSTATE_LINGER)) /* an owner that has not claimed still waits */
            edit->tell(edit->arg, e, e->flags & LOCKSTATE_CLAIM ? LOCKSTATE_CHECK
                                                                : LOCKSTATE_EVICTED);
        lockstate_remove(edit->shelf, lock, 0);
    }
    lockstate_conclude(edit, lock, &before, lockstate_admit(edit, lock));
    return had ? 0 : PAWL_ENOTHELD;
}

void lockstate_retell(lockstate_edit *edit, uint64_t client, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    const lockstate_entry *e = lock ? lockstate_entries(lock) : NULL;

    if (!lock || lock->type == PAWL_TYPE_LATCH)
        return;
    if (lock->waiters)
        edit->tell(edit->arg, &e[lock->holders], LOCKSTATE_CHECK);
    for (size_t i = lock->holders; i-- > 0;)
        if ((e[i].flags & LOCKSTATE_CLAIM) && (e[i].client != client || e[i].seq != seq))
            edit->tell(edit->arg, &e[i], LOCKSTATE_CHECK);
}

void lockstate_sweep(lockstate_edit *edit)
{
    for (lockstate_lock *l = lockstate_first(edit->shelf), *next; l; l = next) {
        size_t i = 0;

        while (i < l->holders && lockstate_entries(l)[i].expires <= edit->now)
            i++;
        next = l;
        if (i < l->holders || l->waiters || (l->type == PAWL_TYPE_LATCH && l->value > 0)) {
            next = lockstate_next(edit->shelf, l);
        } else {
            lockstate_drop(edit->shelf, l);
            edit->changed = true;
            if ((size_t)((unsigned char *)l - edit->shelf->bytes) >= edit->shelf->used)
                next = NULL;
        }
    }
}
