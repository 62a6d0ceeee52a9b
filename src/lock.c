/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - pawl_lock: a handle with the name of a lock and the options for acquiring the lock.
 *
 * A handle stores neither states nor grants. They are in the holds of the name (hold.h). A call
 * finds its hold by the number of the owner: the number of the calling thread or of the handle. A
 * multi-lock (multi.c) is a pawl_lock, too.
 */
#include <stdlib.h>

#include "core.h"

static int check_options(const pawl_lock_options *o, uint32_t caps, pawl_error *err)
{
    if (o->kind > PAWL_SPIN)
        return pawl_error_set(err, PAWL_EINVAL, "pawl_lock_options.kind is %llu; PAWL_MUTEX to "
                              "PAWL_SPIN exist", (unsigned long long)o->kind);
    if (o->owner > PAWL_OWNER_HANDLE)
        return pawl_error_set(err, PAWL_EINVAL, "pawl_lock_options.owner is %llu; give "
                              "PAWL_OWNER_THREAD or PAWL_OWNER_HANDLE",
                              (unsigned long long)o->owner);
    if (pawl__bad_ms(o->lease_ms) || pawl__bad_ms(o->max_hold_ms) || pawl__bad_ms(o->at_least_ms))
        return pawl_error_set(err, PAWL_EINVAL, "pawl_lock_options: lease_ms, max_hold_ms and "
                              "at_least_ms are milliseconds from 0 to ten years");
    if (o->kind == PAWL_READ && !(caps & PAWL_CAP_SHARED))
        return pawl_error_set(err, PAWL_ENOTSUP, "this engine has no shared locks");
    if (o->kind == PAWL_FAIR && !(caps & PAWL_CAP_QUEUE))
        return pawl_error_set(err, PAWL_ENOTSUP, "this engine has no queue, so no fair locks");
    return 0;
}

static struct terms terms_of(const pawl_lock_options *o, const pawl_client *client)
{
    bool cohort = o->kind == PAWL_MUTEX && client->cohort > 1 && (client->caps & PAWL_CAP_RANGE) &&
                  !o->lease_ms && !o->max_hold_ms;

    return (struct terms){
        .mode = o->kind == PAWL_READ ? PAWL_MODE_SHARED : PAWL_MODE_EXCLUSIVE,
        .kind = (uint8_t)o->kind,
        .queue = o->kind != PAWL_SPIN && (client->caps & PAWL_CAP_QUEUE),
        .cohort = cohort,
        .reentrant = o->owner == PAWL_OWNER_THREAD,
        .lease_ms = o->lease_ms,
        .max_hold_ms = o->max_hold_ms,
        .at_least_ms = o->at_least_ms,
        .on_lost = o->on_lost,
        .arg = o->arg,
    };
}

int pawl_lock_new(pawl_lock **ret, pawl_client *client, const char *name,
                  const pawl_lock_options *given, pawl_error *err)
{
    pawl_lock_options options;
    pawl_lock *lock;
    int code;

    if (!ret || !client)
        return pawl_error_set(err, PAWL_EINVAL, "%s is NULL", ret ? "client" : "ret");
    if ((code = pawl__name_check(name, err)) ||
        (code = pawl__options_copy(&options, sizeof options, given, "pawl_lock_options", err)) ||
        (code = pawl__enter(client, false, err)))
        return code;
    code = check_options(&options, client->caps, err);
    lock = code ? NULL : calloc(1, sizeof *lock);
    if (lock && !(lock->name_state = pawl__name_get(client, name))) {
        free(lock);
        lock = NULL;
    }
    if (lock) {
        lock->refs = 1;
        lock->client = client;
        client->refs++;
        lock->terms = terms_of(&options, client);
        lock->by_thread = options.owner == PAWL_OWNER_THREAD;
        lock->handle = PAWL_HANDLE_BIT | ++client->last_handle;
        *ret = lock;
    } else if (!code) {
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    }
    pawl__leave(client);
    return code;
}

/* ---- freeing --------------------------------------------------------------------------------- */

void pawl__lock_unref(pawl_lock *lock)
{
    if (--lock->refs)
        return;
    lock->client->refs--;
    pawl__name_put(lock->client, lock->name_state);
    free(lock);
}

static void abandon_holds(pawl_lock *lock)
{
    for (struct list *l = lock->name_state->holds.next,
         *next; l != &lock->name_state->holds; l = next) {
        struct hold *hold = list_entry(l, struct hold, in_name);

        next = l->next;
        if (hold->lock == lock)
            pawl__hold_abandon(hold, true);
    }
}

void pawl_lock_free(pawl_lock *lock)
{
    pawl_client *client;

    if (!lock)
        return;
    if (lock->multi) {
        pawl__multi_free(lock);
        return;
    }
    client = lock->client;
    if (client->generation != pawl__fork_generation())
        return; /* the fork may have interrupted a thread that was changing the lists */
    pawl__cancellation_off();
    pawl__lock(client);
    client->refs++;
    pawl__defer_begin(client); /* no request is submitted during the walk over the list */
    abandon_holds(lock);
    pawl__defer_end(client);
    if (client->state == CLIENT_OPEN) {
        pawl__before_unlock(client);
        pawl__background_need(client);
    }
    lock->freed = true;
    pawl__lock_unref(lock);
    pawl__unlock(client);
    pawl__client_unref(client);
    pawl__cancellation_back();
}

/* ---- acquiring and releasing ----------------------------------------------------------------- */

static uint64_t holder_of(const pawl_lock *lock)
{
    return lock->by_thread ? pawl__thread_id() : lock->handle;
}

struct hold *pawl__lock_hold(const pawl_lock *lock)
{
    const struct hold *acting = pawl__acting();
    uint64_t holder = lock->handle;

    if (acting && acting->name_state == lock->name_state &&
        acting->terms.mode == lock->terms.mode &&
        (acting->owner.holder == lock->handle || (lock->by_thread && acting->terms.reentrant)))
        return (struct hold *)(uintptr_t)acting;
    if (lock->by_thread)
        holder = pawl__thread_id();
    return holder ? pawl__hold_find(lock->name_state, holder, lock->terms.mode) : NULL;
}

/* Check the arguments of an acquire and lock the client. `cancels` is the value of group->cancels
 * when the acquire of the multi-lock began. */
static int begin_acquire(pawl_lock *lock, struct asker *asker, unsigned cancels, int64_t wait_ms,
                         pawl_error *err)
{
    int code;

    if (!lock || wait_ms < PAWL_FOREVER)
        return pawl_error_set(err, PAWL_EINVAL,
                              lock ? "wait_ms is negative; PAWL_FOREVER is -1" : "lock is NULL");
    asker->lock = lock;
    asker->holder = holder_of(lock);
    if (!asker->holder)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    code = pawl__enter(lock->client, asker->thread, err);
    if (code)
        return code;
    /* A multi-lock is often freed together with its members: then the cancel is the reason. */
    if (asker->group && atomic_load(&asker->group->cancels) != cancels)
        code = pawl__error_about(err, PAWL_ECANCELED, lock->name_state->name, NULL);
    else if (lock->freed)
        code = pawl_error_set(err, PAWL_ESTATE, "the handle was freed");
    if (code)
        pawl__leave(lock->client);
    return code;
}

int pawl__lock_acquire(pawl_lock *lock, const struct group *group, unsigned cancels,
                       int64_t wait_ms, pawl_error *err)
{
    struct waiter_thread thread;
    struct asker asker = {.thread = &thread, .group = group};
    int code = begin_acquire(lock, &asker, cancels, wait_ms, err);

    if (code)
        return code;
    pawl__wait_begin(&thread, err);
    code = pawl__hold_acquire(lock->client, lock->name_state, &lock->terms, &asker, 0, wait_ms,
                              err);
    if (code)
        pawl__wait_end(&thread);
    else
        code = pawl__wait(lock->client, &thread);
    pawl__leave(lock->client);
    return code;
}

int pawl_lock_acquire(pawl_lock *lock, int64_t wait_ms, pawl_error *err)
{
    return lock && lock->multi ? pawl__multi_acquire(lock, wait_ms, err)
                               : pawl__lock_acquire(lock, NULL, 0, wait_ms, err);
}

int pawl__lock_acquire_start(pawl_lock *lock, const struct group *group, unsigned cancels,
                             int64_t wait_ms, pawl_done_fn *done, void *arg)
{
    struct asker asker = {.done = done, .arg = arg, .group = group};
    int code = begin_acquire(lock, &asker, cancels, wait_ms, NULL);

    if (code)
        return code;
    code = pawl__hold_acquire(lock->client, lock->name_state, &lock->terms, &asker, 0, wait_ms,
                              NULL);
    pawl__leave(lock->client);
    return code;
}

int pawl_lock_acquire_start(pawl_lock *lock, int64_t wait_ms, pawl_done_fn *done, void *arg)
{
    if (!done)
        return PAWL_EINVAL;
    return lock && lock->multi ? pawl__multi_acquire_start(lock, wait_ms, done, arg)
                               : pawl__lock_acquire_start(lock, NULL, 0, wait_ms, done, arg);
}

/* Detects a frequent mistake: one thread acquires, and another thread releases. */
static bool another_thread_holds(const pawl_lock *lock)
{
    const struct list *holds = &lock->name_state->holds;

    for (const struct list *l = holds->next; lock->by_thread && l != holds; l = l->next) {
        const struct hold *hold = list_entry(l, struct hold, in_name);

        if (hold->state == HOLD_HELD && hold->lock == lock && !hold->finished)
            return true;
    }
    return false;
}

static int not_held(const pawl_lock *lock, pawl_error *err)
{
    if (another_thread_holds(lock))
        return pawl_error_set(err, PAWL_ENOTHELD, "'%s': another thread holds it and must release "
                              "it; for a lock that any thread may release, set owner = "
                              "PAWL_OWNER_HANDLE", SHOWN(lock->name_state->name));
    return pawl__error_about(err, PAWL_ENOTHELD, lock->name_state->name, NULL);
}

static bool releasable(const struct hold *hold)
{
    return hold && (hold->state == HOLD_HELD || hold->state == HOLD_LOST ||
                    hold->state == HOLD_UNRELEASED);
}

bool pawl__lock_releasable(const pawl_lock *lock)
{
    bool result;

    if (pawl__enter(lock->client, false, NULL))
        return false;
    result = releasable(pawl__lock_hold(lock));
    pawl__leave(lock->client);
    return result;
}

int pawl__lock_check_held(const pawl_lock *lock, pawl_error *err)
{
    struct hold *hold;
    int code = pawl__enter(lock->client, false, err);

    if (code)
        return code;
    hold = pawl__lock_hold(lock);
    if (hold && hold->state == HOLD_HELD && pawl__now(lock->client) >= hold->deadline)
        pawl__hold_lost(hold, 0);
    if (lock->freed) /* freeing released the lock: the lock was not lost */
        code = pawl_error_set(err, PAWL_ESTATE, "the handle was freed");
    else if (!hold || hold->state != HOLD_HELD)
        code = pawl_error_set(err, PAWL_ELOST, "'%s' was lost while others were waited for (%s); "
                              "nothing is held", SHOWN(lock->name_state->name),
                              pawl_lost_text(hold ? hold->why : PAWL_LOST_GONE));
    pawl__leave(lock->client);
    return code;
}

void pawl__lock_release_times(pawl_lock *lock, uint64_t holder, unsigned times)
{
    struct hold *hold;

    if (pawl__enter(lock->client, false, NULL))
        return;
    hold = pawl__hold_find(lock->name_state, lock->by_thread ? holder : lock->handle,
                           lock->terms.mode);
    if (times && releasable(hold))
        pawl__hold_release_times(hold, times);
    pawl__leave(lock->client);
}

int pawl_lock_release(pawl_lock *lock, pawl_error *err)
{
    struct waiter_thread thread;
    struct asker asker = {.lock = lock, .thread = &thread};
    struct hold *hold;
    int code;

    if (!lock)
        return pawl_error_set(err, PAWL_EINVAL, "lock is NULL");
    if (lock->multi)
        return pawl__multi_release(lock, err);
    code = pawl__enter(lock->client, true, err);
    if (code)
        return code;
    pawl__wait_begin(&thread, err);
    hold = pawl__lock_hold(lock);
    code = releasable(hold) ? pawl__hold_release(hold, 0, &asker, err) : not_held(lock, err);
    if (code)
        pawl__wait_end(&thread);
    else
        code = pawl__wait(lock->client, &thread);
    pawl__leave(lock->client);
    return code;
}

int pawl_lock_release_start(pawl_lock *lock, pawl_done_fn *done, void *arg)
{
    struct asker asker = {.lock = lock, .done = done, .arg = arg};
    struct hold *hold;
    int code;

    if (!lock || !done)
        return PAWL_EINVAL;
    if (lock->multi)
        return pawl__multi_release_start(lock, done, arg);
    code = pawl__enter(lock->client, false, NULL);
    if (code)
        return code;
    hold = pawl__lock_hold(lock);
    code = releasable(hold) ? pawl__hold_release(hold, 0, &asker, NULL) : PAWL_ENOTHELD;
    pawl__leave(lock->client);
    return code;
}

int pawl_lock_cancel(pawl_lock *lock)
{
    if (!lock)
        return PAWL_EINVAL;
    return lock->multi ? pawl__multi_cancel(lock) : pawl__lock_cancel(lock, NULL);
}

int pawl__lock_cancel(pawl_lock *lock, const struct group *group)
{
    int n = 0, code = pawl__enter(lock->client, false, NULL);

    if (code)
        return code;
    for (struct list *l = lock->name_state->holds.next,
         *next; l != &lock->name_state->holds; l = next) {
        struct hold *hold = list_entry(l, struct hold, in_name);

        next = l->next;
        if (hold->lock != lock || (group && hold->group != group) ||
            (hold->state != HOLD_WAITING && hold->state != HOLD_ACQUIRING))
            continue;
        pawl__defer_begin(lock->client); /* no hold ends during the walk over the list */
        pawl__hold_cancel(hold, PAWL_ECANCELED);
        pawl__defer_end(lock->client);
        n++;
    }
    pawl__leave(lock->client);
    return n;
}

/* ---- renewing and breaking ------------------------------------------------------------------- */

/* Renew the lease and wait for the answer. The hold may be released or lost before the answer
 * arrives. */
static int renew_hold(pawl_client *client, struct hold *hold, int64_t lease_ms, pawl_error *err)
{
    pawl_renewal item = {.name = hold->name_state->name,
                         .owner = hold->owner,
                         .lease_ms = lease_ms,
                         .mode = hold->terms.mode,
                         .lock_kind = hold->terms.kind};
    uint64_t id = hold->id;
    int64_t now = pawl__now(client);
    struct request r;
    int code;

    if (hold->terms.max_hold_ms) {
        int64_t left = hold->terms.max_hold_ms - (now - hold->since) / PAWL_NS_PER_MS;

        if (left < item.lease_ms)
            item.lease_ms = left < 1 ? 1 : left;
    }

    pawl__exchange_init(&r, client, PAWL_OP_RENEW, hold->terms.mode, hold->name_state->name);
    r.op.batch = &item;
    r.op.batch_len = 1;
    code = pawl__exchange(&r, 0, err);
    if (hold->id != id) /* the hold was released, and its memory is used by another hold */
        return pawl__error_about(err, PAWL_ENOTHELD, item.name, NULL);
    if (!code && item.code == PAWL_ENOTHELD)
        pawl__hold_lost(hold, item.reason       ? item.reason
                              : hold->verify_why ? hold->verify_why
                                                 : PAWL_LOST_GONE);
    if (hold->state == HOLD_LOST)
        return pawl__hold_error_lost(hold, err);
    if (hold->state != HOLD_HELD)
        return pawl__error_about(err, PAWL_ENOTHELD, item.name, NULL);
    if (code)
        return code;
    if (item.code)
        return pawl__error_about(err, item.code, item.name, NULL);
    hold->name_state->series->stats.renewed++;
    pawl__lease_extend(hold, r.op.lease_from ? r.op.lease_from : r.sent, item.lease_ms,
                        r.op.granted_ms);
    return 0;
}

static int renew_one(pawl_lock *lock, int64_t lease_ms, pawl_error *err)
{
    struct hold *hold;
    int code;

    code = pawl__enter(lock->client, true, err);
    if (code)
        return code;
    hold = pawl__lock_hold(lock);
    if (!lease_ms)
        lease_ms = lock->terms.lease_ms ? lock->terms.lease_ms : lock->client->env.watchdog_ms;
    if (hold && hold->state == HOLD_HELD && pawl__now(lock->client) >= hold->deadline)
        pawl__hold_lost(hold, 0);
    if (hold && hold->state == HOLD_HELD)
        code = renew_hold(lock->client, hold, lease_ms, err);
    else if (hold && hold->state == HOLD_LOST)
        code = pawl__hold_error_lost(hold, err);
    else
        code = not_held(lock, err);
    pawl__leave(lock->client);
    return code;
}

static int break_one(pawl_lock *lock, int64_t unused, pawl_error *err)
{
    struct request r;
    int code = pawl__enter(lock->client, true, err);

    (void)unused;
    if (code)
        return code;
    pawl__exchange_init(&r, lock->client, PAWL_OP_BREAK, lock->terms.mode, lock->name_state->name);
    r.once = true; /* a repeated BREAK would end the grant of the next holder */
    r.op.by = lock->client->client_info;
    code = pawl__exchange(&r, 0, err);
    pawl__leave(lock->client);
    return code;
}

int pawl_lock_renew(pawl_lock *lock, int64_t lease_ms, pawl_error *err)
{
    if (!lock || pawl__bad_ms(lease_ms))
        return pawl_error_set(err, PAWL_EINVAL, lock ? "lease_ms is negative or above ten years"
                                                     : "lock is NULL");
    if (lock->multi)
        return pawl__multi_each(lock, renew_one, lease_ms, err);
    return renew_one(lock, lease_ms, err);
}

int pawl_lock_break(pawl_lock *lock, pawl_error *err)
{
    if (!lock)
        return pawl_error_set(err, PAWL_EINVAL, "lock is NULL");
    if (lock->multi)
        return pawl__multi_each(lock, break_one, 0, err);
    return break_one(lock, 0, err);
}
