/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate.c - grants locks and permits. The rules are stated in lockstate.h.
 *
 * Every edit has the same steps: record the front waiter and the end of the lease that blocks the
 * front (lockstate_front_of), change the record, grant from the front, and notify the owners whose
 * position has changed (lockstate_conclude).
 */
#include "lockstate.h"

/* The permits of all holders together. */
struct tally {
    size_t exclusive, shared;
    uint64_t permits;
};

static int64_t after_ms(int64_t now, int64_t ms)
{
    if (ms < 0)
        ms = 0;
    return ms > (PAWL_NEVER - now) / PAWL_NS_PER_MS ? PAWL_NEVER : now + ms * PAWL_NS_PER_MS;
}

lockstate_front lockstate_front_of(const lockstate_lock *lock)
{
    const lockstate_entry *e = lockstate_entries(lock);
    lockstate_front f = {.due = PAWL_NEVER};

    for (size_t i = 0; i < lock->holders; i++)
        if (e[i].expires < f.due)
            f.due = e[i].expires;
    if (lock->waiters) {
        f.client = e[lock->holders].client;
        f.seq = e[lock->holders].seq;
    }
    return f;
}

static void count(struct tally *t, const lockstate_entry *e)
{
    if (e->mode == PAWL_MODE_EXCLUSIVE)
        t->exclusive++;
    else if (e->mode == PAWL_MODE_SHARED)
        t->shared++;
    else
        t->permits += e->permits;
}

static struct tally tally(const lockstate_lock *lock)
{
    const lockstate_entry *e = lockstate_entries(lock);
    struct tally t = {0};

    for (size_t i = 0; i < lock->holders; i++)
        count(&t, &e[i]);
    return t;
}

static bool fits(const lockstate_lock *lock, const struct tally *t, const lockstate_entry *e)
{
    if (e->mode == PAWL_MODE_EXCLUSIVE)
        return t->exclusive + t->shared == 0;
    if (e->mode == PAWL_MODE_SHARED)
        return t->exclusive == 0;
    return t->permits + e->permits <= (uint64_t)lock->value;
}

int64_t lockstate_available(const lockstate_lock *lock)
{
    struct tally t = tally(lock);

    return t.permits < (uint64_t)lock->value ? lock->value - (int64_t)t.permits : 0;
}

bool lockstate_in_use(const lockstate_lock *lock)
{
    return lock->waiters || (lock->type == PAWL_TYPE_LATCH ? lock->value > 0 : lock->holders > 0);
}

static void grant(lockstate_edit *edit, lockstate_entry *e, int64_t ms)
{
    e->token = edit->fence(edit->arg, e->ntokens);
    e->since = edit->now;
    e->expires = after_ms(edit->now, ms);
}

/* The owner confirms or renews the grant. A late repetition must not shorten the lease. */
static void claim(const lockstate_edit *edit, lockstate_entry *e, int64_t ms)
{
    int64_t expires = after_ms(edit->now, ms);

    if (expires > e->expires)
        e->expires = expires;
    e->flags &= (uint8_t)~LOCKSTATE_CLAIM;
}

size_t lockstate_admit(lockstate_edit *edit, lockstate_lock *lock)
{
    struct tally t = tally(lock);
    size_t n = 0;

    while (lock->type != PAWL_TYPE_LATCH && lock->waiters) {
        lockstate_entry *e = lockstate_entries(lock) + lock->holders;

        if (!fits(lock, &t, e))
            break;
        if (edit->dead(edit->arg, e)) {
            lockstate_remove(edit->shelf, lock, lock->holders);
            continue;
        }
        grant(edit, e, e->lease_ms < LOCKSTATE_CLAIM_MS ? e->lease_ms : LOCKSTATE_CLAIM_MS);
        e->flags |= LOCKSTATE_CLAIM;
        count(&t, e);
        lock->holders++;
        lock->waiters--;
        n++;
    }
    return n;
}

void lockstate_conclude(lockstate_edit *edit, lockstate_lock *lock, const lockstate_front *before,
                        size_t admitted)
{
    const lockstate_entry *e = lockstate_entries(lock);
    lockstate_front f = lockstate_front_of(lock);

    edit->changed = true;
    if (lock->waiters && lock->type != PAWL_TYPE_LATCH &&
        (f.client != before->client || f.seq != before->seq || f.due < before->due))
        edit->tell(edit->arg, &e[lock->holders], LOCKSTATE_CHECK);
    for (size_t i = 0; i < admitted; i++)
        edit->tell(edit->arg, &e[lock->holders - 1 - i], LOCKSTATE_CHECK);
    if (!lockstate_in_use(lock) && !lock->holders)
        lockstate_drop(edit->shelf, lock);
}

static void take_away(lockstate_edit *edit, lockstate_lock *lock, size_t index)
{
    lockstate_front before = lockstate_front_of(lock);

    lockstate_remove(edit->shelf, lock, index);
    if (lock->type != PAWL_TYPE_LATCH && index > lock->holders &&
        index < (size_t)lock->holders + lock->waiters)
        edit->tell(edit->arg, lockstate_entries(lock) + index, LOCKSTATE_CHECK);
    lockstate_conclude(edit, lock, &before, lockstate_admit(edit, lock));
}

/* ---- acquire --------------------------------------------------------------------------------- */

static int check_capacity(const lockstate_lock *lock, const lockstate_entry *want,
                          const lockstate_ask *ask)
{
    int64_t capacity = lock ? lock->value : ask->capacity;

    if (want->mode != PAWL_MODE_PERMITS)
        return 0;
    if (capacity <= 0 || (ask->capacity && ask->capacity != capacity))
        return PAWL_ESTATE;
    return want->permits < 1 || want->permits > capacity ? PAWL_EINVAL : 0;
}

/* The owner's grant, if its lease has not ended. */
static lockstate_entry *held(const lockstate_edit *edit, const lockstate_lock *lock,
                             uint64_t client, uint64_t seq)
{
    int64_t i = lock ? lockstate_index(lock, client, seq) : -1;
    lockstate_entry *e = i >= 0 ? lockstate_entries(lock) + i : NULL;

    return e && i < (int64_t)lock->holders && e->expires > edit->now ? e : NULL;
}

static bool may_pass(const lockstate_edit *edit, const lockstate_lock *lock,
                     const lockstate_entry *want, const lockstate_ask *ask)
{
    const lockstate_entry *e;

    if (!ask->with_seq || want->mode != PAWL_MODE_SHARED)
        return false;
    e = held(edit, lock, want->client, ask->with_seq);
    return e && e->mode == PAWL_MODE_EXCLUSIVE;
}

static bool free_now(const lockstate_edit *edit, const lockstate_lock *lock,
                     const lockstate_entry *want, const lockstate_ask *ask)
{
    struct tally t;

    if (!lock || may_pass(edit, lock, want, ask))
        return true;
    t = tally(lock);
    return !lock->waiters && fits(lock, &t, want);
}

static int add(lockstate_edit *edit, lockstate_lock *lock, lockstate_entry *want,
               const lockstate_ask *ask, bool granted)
{
    lockstate_front before;
    lockstate_entry *e;

    if (edit->shelf->cap - edit->shelf->used < LOCKSTATE_GROWTH)
        return PAWL_ENOMEM;
    if (!lock) {
        lock = lockstate_create(edit->shelf, edit->name, edit->name_len,
                                want->mode == PAWL_MODE_PERMITS ? PAWL_TYPE_SEMAPHORE
                                                                : PAWL_TYPE_LOCK);
        if (!lock)
            return PAWL_EINVAL; /* the name is too long */
        lock->value = want->mode == PAWL_MODE_PERMITS ? ask->capacity : 0;
    }
    before = lockstate_front_of(lock);
    e = lockstate_insert(edit->shelf, lock, lock->holders + (granted ? 0 : lock->waiters));
    *e = *want;
    if (granted) {
        lock->holders++;
        grant(edit, e, e->lease_ms);
    } else {
        lock->waiters++;
        e->since = edit->now;
    }
    *want = *e;
    if (granted)
        lockstate_conclude(edit, lock, &before, 0);
    edit->changed = true;
    return granted ? 0 : LOCKSTATE_QUEUED;
}

static int again(lockstate_edit *edit, lockstate_lock *lock, lockstate_entry *e,
                 lockstate_entry *want)
{
    lockstate_front before = lockstate_front_of(lock);

    if (e - lockstate_entries(lock) >= (int64_t)lock->holders) {
        *want = *e;
        return LOCKSTATE_QUEUED;
    }
    claim(edit, e, e->lease_ms);
    *want = *e;
    lockstate_conclude(edit, lock, &before, 0);
    return 0;
}

int lockstate_acquire(lockstate_edit *edit, lockstate_entry *want, const lockstate_ask *ask)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    int64_t i;
    int code;
    bool granted;

    if (want->mode == PAWL_MODE_LATCH)
        return lockstate_latch_wait(edit, want, ask);
    if (lock && lock->type == PAWL_TYPE_LATCH && !lockstate_in_use(lock)) {
        lockstate_drop(edit->shelf, lock);
        edit->changed = true;
        lock = NULL;
    }
    if (lock && (lock->type == PAWL_TYPE_SEMAPHORE) != (want->mode == PAWL_MODE_PERMITS))
        return PAWL_ESTATE;
    if (lock && lock->type == PAWL_TYPE_LATCH)
        return PAWL_ESTATE;
    i = lock ? lockstate_index(lock, want->client, want->seq) : -1;
    if (i >= 0 && (i >= (int64_t)lock->holders || lockstate_entries(lock)[i].expires > edit->now))
        return again(edit, lock, lockstate_entries(lock) + i, want);
    if (i >= 0) { /* the lease has ended: treated as a new request */
        take_away(edit, lock, (size_t)i);
        lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    }
    code = check_capacity(lock, want, ask);
    if (code)
        return code;
    granted = free_now(edit, lock, want, ask);
    return granted || ask->queue ? add(edit, lock, want, ask, granted) : PAWL_EBUSY;
}

/* ---- the other edits ------------------------------------------------------------------------- */

static bool lingers(const lockstate_lock *lock, uint64_t client, uint64_t seq)
{
    const lockstate_entry *e = lockstate_entries(lock);

    for (size_t i = 0; i < lock->holders; i++)
        if (e[i].seq == seq && e[i].client == client && (e[i].flags & LOCKSTATE_LINGER))
            return true;
    return false;
}

int lockstate_release(lockstate_edit *edit, uint64_t client, uint64_t seq, uint32_t keep,
                      int64_t linger_ms)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    lockstate_entry *e = held(edit, lock, client, seq);
    lockstate_front before;

    if (!e)
        return lock && linger_ms > 0 && lingers(lock, client, seq) ? 0 : PAWL_ENOTHELD;
    if (keep >= e->permits && keep)
        return 0;
    if (!keep && linger_ms <= 0) {
        take_away(edit, lock, (size_t)(e - lockstate_entries(lock)));
        return 0;
    }
    before = lockstate_front_of(lock);
    if (keep) {
        e->permits = keep;
    } else {
        e->expires = after_ms(edit->now, linger_ms);
        e->flags = (uint8_t)((e->flags | LOCKSTATE_LINGER) & ~LOCKSTATE_CLAIM);
    }
    lockstate_conclude(edit, lock, &before, lockstate_admit(edit, lock));
    return 0;
}

int lockstate_cancel(lockstate_edit *edit, uint64_t client, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    int64_t i = lock ? lockstate_index(lock, client, seq) : -1;

    if (i < 0)
        return PAWL_ENOTHELD;
    if (i < (int64_t)lock->holders && !(lockstate_entries(lock)[i].flags & LOCKSTATE_CLAIM))
        return PAWL_ESTATE;
    take_away(edit, lock, (size_t)i);
    return 0;
}

int lockstate_renew(lockstate_edit *edit, uint64_t client, uint64_t seq, int64_t lease_ms)
{
    lockstate_lock *lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
    lockstate_entry *e = held(edit, lock, client, seq);
    lockstate_front before;

    if (!e)
        return PAWL_ENOTHELD;
    before = lockstate_front_of(lock);
    e->lease_ms = lease_ms;
    claim(edit, e, lease_ms);
    lockstate_conclude(edit, lock, &before, 0);
    return 0;
}
