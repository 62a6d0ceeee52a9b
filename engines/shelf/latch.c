/* SPDX-License-Identifier: Apache-2.0
 *
 * latch.c - the count-down latch on a shelf. The rules are stated in lockstate.h.
 *
 * The record of a latch has a count, waiters in any order, and receipts in the place of holders. A
 * receipt says that a set or count-down of this owner was carried out. If the answer was lost and
 * the owner repeats the request, the receipt prevents a second change. Receipts are kept for a
 * while after the count has reached 0, because a late repetition of the last count-down would
 * otherwise count down the next round.
 */
#include "lockstate.h"

static bool has_receipt(const lockstate_lock *lock, const lockstate_entry *who)
{
    const lockstate_entry *e = lockstate_entries(lock);

    for (size_t i = 0; i < lock->holders; i++)
        if (e[i].seq == who->seq && e[i].client == who->client)
            return true;
    return false;
}

static void add_receipt(lockstate_edit *edit, lockstate_lock *lock, const lockstate_entry *who)
{
    lockstate_entry *e;

    while (lock->holders && (lock->holders >= LOCKSTATE_RECEIPTS ||
                             lockstate_entries(lock)->expires <= edit->now))
        lockstate_remove(edit->shelf, lock, 0);
    e = lockstate_insert(edit->shelf, lock, lock->holders);
    lock->holders++;
    *e = *who;
    e->mode = PAWL_MODE_LATCH;
    e->flags = LOCKSTATE_RECEIPT;
    e->since = edit->now;
    e->expires = edit->now + (int64_t)LOCKSTATE_RECEIPT_MS * PAWL_NS_PER_MS;
}

static bool full(const lockstate_edit *edit)
{
    return edit->shelf->cap - edit->shelf->used < LOCKSTATE_GROWTH;
}

int lockstate_latch_wait(lockstate_edit *edit, lockstate_entry *want, const lockstate_ask *ask)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    lockstate_entry *e;

    if (lock && lock->type != PAWL_TYPE_LATCH)
        return PAWL_ESTATE;
    if (!lock || lock->value <= 0)
        return 0;
    if (lockstate_index(lock, want->client, want->seq) >= 0)
        return LOCKSTATE_QUEUED;
    if (!ask->queue)
        return PAWL_EBUSY;
    if (full(edit))
        return PAWL_ENOMEM;
    e = lockstate_insert(edit->shelf, lock, (size_t)lock->holders + lock->waiters);
    lock->waiters++;
    *e = *want;
    e->since = edit->now;
    edit->changed = true;
    return LOCKSTATE_QUEUED;
}

int lockstate_latch_set(lockstate_edit *edit, const lockstate_entry *who, int64_t count)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);

    if (count < 1)
        return PAWL_EINVAL;
    if (lock && lock->type != PAWL_TYPE_LATCH)
        return PAWL_ESTATE;
    if (lock && has_receipt(lock, who))
        return 0;
    if (lock && lock->value > 0)
        return PAWL_ESTATE;
    if (full(edit))
        return PAWL_ENOMEM;
    if (!lock)
        lock = lockstate_create(edit->shelf, edit->name, edit->name_len, PAWL_TYPE_LATCH);
    if (!lock)
        return PAWL_EINVAL; /* the name is too long */
    lock->value = count;
    add_receipt(edit, lock, who);
    edit->changed = true;
    return 0;
}

int lockstate_latch_down(lockstate_edit *edit, const lockstate_entry *who)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);

    if (lock && lock->type != PAWL_TYPE_LATCH)
        return PAWL_ESTATE;
    if (!lock || lock->value <= 0 || has_receipt(lock, who))
        return 0;
    if (full(edit))
        return PAWL_ENOMEM;
    lock->value--;
    add_receipt(edit, lock, who);
    while (!lock->value && lock->waiters) {
        size_t last = (size_t)lock->holders + lock->waiters - 1;

        edit->tell(edit->arg, lockstate_entries(lock) + last, LOCKSTATE_CHECK);
        lockstate_remove(edit->shelf, lock, last);
    }
    edit->changed = true;
    return 0;
}
