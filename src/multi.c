/* SPDX-License-Identifier: Apache-2.0
 *
 * multi.c - multi-locks: several locks that are acquired together or not at all.
 *
 * ORDER. Members are acquired one after the other in an order that every process agrees on: by the
 * identity of the service (engine.h: the same for all spellings of its URL, as far as the engine
 * can know), then by name. A holder of some members only waits for members that come later in this
 * order, so multi-locks never wait for each other in a circle. After the first failure the acquired
 * members are released. After the last member is acquired, all members are checked once more: a
 * member that was lost during the wait for another member is a failure, too.
 *
 * MEMORY. The handle and a chain that is under way each have a reference to the multi-lock, and the
 * multi-lock has a reference to each member. So members exist until the chain ends, even if the
 * program frees them; but no lock is acquired through a freed handle (pawl_lock.freed).
 *
 *   handle   open --pawl_lock_free--> freed
 *   chain    none --start--> under way (busy) --last callback--> none; then `done` is called
 *
 * The asynchronous form is a chain: the done callback of one member starts the acquire of the next
 * member or, after a failure, the release of the previous member. Only one member is under way at
 * any time, so the chain's fields need no mutex: each start and each callback pass through a
 * client's mutex. Freeing the handle cancels the chain, which then releases the acquired members
 * and ends with PAWL_ECANCELED. If the handle is freed at the moment of success, either the chain
 * sees `freed` or pawl_lock_free sees that the chain is no longer `busy`.
 *
 * CANCEL counts the acquires under way, increments group.cancels and then cancels each member's
 * waits of this group. An acquire reads group.cancels before the acquire is counted, and compares
 * the value under the member's mutex before waiting. So each counted acquire either sees that the
 * value has changed, or its wait is found and cancelled.
 *
 * OWNERS. `mutex` guards the list of owners. An entry says how many times more a thread has
 * acquired all members than released them. Freeing the handle, in any thread, releases all of
 * these.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "core.h"

struct owner {
    struct owner *next;
    uint64_t thread; /* 0 where all members are handle-owned */
    unsigned times;
};

struct multi {
    struct group group;
    size_t n;
    atomic_uint refs;      /* one for the handle, one for the chain */
    atomic_uint acquiring; /* acquires under way */
    atomic_bool busy;      /* a chain is under way */
    atomic_bool freed;
    bool by_thread;        /* some members are thread-owned */
    pthread_mutex_t mutex;
    struct owner *owners;
    /* the chain */
    pawl_lock *self;
    size_t at;        /* acquiring: the member under way; releasing: the number left */
    int code;         /* the first failure */
    unsigned cancels_before;
    int64_t deadline; /* boot clock of the first member's client, or PAWL_NEVER; 0: one try each */
    bool acquires;
    struct owner *owner; /* of an acquire: a new entry for the list */
    pawl_done_fn *done;
    void *arg;
    pawl_lock *members[];
};

/* ---- making and freeing ---------------------------------------------------------------------- */

static int order(const void *a, const void *b)
{
    const pawl_lock *x = *(pawl_lock *const *)a, *y = *(pawl_lock *const *)b;
    int by_service = strcmp(x->client->identity, y->client->identity);

    return by_service ? by_service : strcmp(x->name_state->name, y->name_state->name);
}

static int check_members(pawl_lock *const *members, size_t n, pawl_error *err)
{
    if (!members || n == 0)
        return pawl_error_set(err, PAWL_EINVAL, "a multi-lock needs at least one member");
    for (size_t i = 0; i < n; i++) {
        if (!members[i] || members[i]->multi)
            return pawl_error_set(err, PAWL_EINVAL, "member %zu is %s", i,
                                  members[i] ? "itself a multi-lock" : "NULL");
        if (members[i]->client->generation != pawl__fork_generation())
            return pawl_error_set(err, PAWL_EFORK, "member %zu belongs to the parent process; "
                                  "open a client after fork()", i);
    }
    return 0;
}

static int check_order(const struct multi *multi, pawl_error *err)
{
    for (size_t i = 1; i < multi->n; i++)
        if (!order(&multi->members[i - 1], &multi->members[i]))
            return pawl_error_set(err, PAWL_EINVAL, "'%s' is a member twice",
                                  SHOWN(multi->members[i]->name_state->name));
    return 0;
}

static void ref_member(pawl_lock *member)
{
    pthread_mutex_lock(&member->client->mu);
    member->refs++;
    pthread_mutex_unlock(&member->client->mu);
}

static void unref_member(pawl_lock *member)
{
    pawl_client *client = member->client;

    pthread_mutex_lock(&client->mu);
    client->refs++;
    pawl__lock_unref(member);
    pthread_mutex_unlock(&client->mu);
    pawl__client_unref(client);
}

static struct multi *multi_make(pawl_lock *const *members, size_t n)
{
    struct multi *multi;

    if (n >= SIZE_MAX / sizeof *members / 2)
        return NULL;
    multi = calloc(1, sizeof *multi + n * sizeof *members);
    if (!multi)
        return NULL;
    multi->n = n;
    for (size_t i = 0; i < n; i++)
        multi->by_thread |= members[i]->by_thread;
    atomic_init(&multi->refs, 1);
    pthread_mutex_init(&multi->mutex, NULL);
    memcpy(multi->members, members, n * sizeof *members);
    qsort(multi->members, n, sizeof *members, order);
    return multi;
}

int pawl_multi_new(pawl_lock **ret, pawl_lock *const *members, size_t n, pawl_error *err)
{
    struct multi *multi;
    pawl_lock *lock;
    int code = ret ? check_members(members, n, err)
                   : pawl_error_set(err, PAWL_EINVAL, "ret is NULL");

    if (code)
        return code;
    lock = calloc(1, sizeof *lock);
    multi = multi_make(members, n);
    code = lock && multi ? check_order(multi, err)
                         : pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    if (code) {
        free(lock);
        free(multi);
        return code;
    }
    for (size_t i = 0; i < n; i++)
        ref_member(multi->members[i]);
    multi->self = lock;
    lock->multi = multi;
    lock->client = multi->members[0]->client;
    lock->name_state = multi->members[0]->name_state;
    *ret = lock;
    return 0;
}

static void unref(struct multi *multi)
{
    if (atomic_fetch_sub(&multi->refs, 1) > 1)
        return;
    for (size_t i = 0; i < multi->n; i++)
        unref_member(multi->members[i]);
    while (multi->owners) {
        struct owner *owner = multi->owners;

        multi->owners = owner->next;
        free(owner);
    }
    pthread_mutex_destroy(&multi->mutex);
    free(multi->self);
    free(multi);
}

/* ---- owners ---------------------------------------------------------------------------------- */

/* An entry for the calling thread, made before anything is acquired; NULL: no memory. */
static struct owner *owner_new(const struct multi *multi)
{
    struct owner *owner = calloc(1, sizeof *owner);

    if (owner)
        owner->thread = multi->by_thread ? pawl__thread_id() : 0;
    return owner;
}

/* The link to this thread's entry, or the end of the list. With the mutex. */
static struct owner **owner_at(struct multi *multi, uint64_t thread)
{
    struct owner **at = &multi->owners;

    while (*at && (*at)->thread != thread)
        at = &(*at)->next;
    return at;
}

/* All members are acquired. Takes ownership of `owner`, also if the list already has an entry. */
static void owner_acquired(struct multi *multi, struct owner *owner)
{
    struct owner **at;

    pthread_mutex_lock(&multi->mutex);
    at = owner_at(multi, owner->thread);
    if (*at)
        free(owner);
    else
        *at = owner;
    (*at)->times++;
    pthread_mutex_unlock(&multi->mutex);
}

static void owner_released(struct multi *multi)
{
    struct owner **at, *owner;

    pthread_mutex_lock(&multi->mutex);
    at = owner_at(multi, multi->by_thread ? pawl__thread_id() : 0);
    owner = *at;
    if (owner && --owner->times == 0) {
        *at = owner->next;
        free(owner);
    }
    pthread_mutex_unlock(&multi->mutex);
}

/* Release the members for all owners, as often as each owner still holds them. */
static void release_all(struct multi *multi)
{
    struct owner *owners, *next;

    pthread_mutex_lock(&multi->mutex);
    owners = multi->owners;
    multi->owners = NULL;
    pthread_mutex_unlock(&multi->mutex);
    for (; owners; owners = next) {
        next = owners->next;
        for (size_t i = multi->n; i-- > 0;)
            pawl__lock_release_times(multi->members[i], owners->thread, owners->times);
        free(owners);
    }
}

/* Free the handle. A chain that is under way releases its members and then calls `done`. */
void pawl__multi_free(pawl_lock *lock)
{
    struct multi *multi = lock->multi;

    for (size_t i = 0; i < multi->n; i++)
        if (multi->members[i]->client->generation != pawl__fork_generation())
            return; /* as pawl_lock_free */
    atomic_store(&multi->freed, true);
    if (atomic_load(&multi->busy))
        pawl__multi_cancel(lock);
    else
        release_all(multi);
    unref(multi);
}

/* ---- blocking -------------------------------------------------------------------------------- */

static int64_t time_left(const struct multi *multi, int64_t deadline)
{
    int64_t left;

    if (deadline == PAWL_NEVER)
        return PAWL_FOREVER;
    if (deadline == 0)
        return 0;
    left = deadline - pawl__now(multi->members[0]->client);
    return left > 0 ? (left + PAWL_NS_PER_MS - 1) / PAWL_NS_PER_MS : 0;
}

static int64_t deadline_in(const struct multi *multi, int64_t wait_ms)
{
    int64_t now = pawl__now(multi->members[0]->client);

    if (wait_ms == 0)
        return 0;
    if (wait_ms < 0 || wait_ms > (PAWL_NEVER - now) / PAWL_NS_PER_MS)
        return PAWL_NEVER;
    return now + wait_ms * PAWL_NS_PER_MS;
}

static int release_below(struct multi *multi, size_t n, pawl_error *err)
{
    int first = 0;

    while (n--) {
        int code = pawl_lock_release(multi->members[n], first ? NULL : err);

        if (code && !first)
            first = code;
    }
    return first;
}

/* If the time limit passed between two members, the code is PAWL_ETIMEDOUT, not PAWL_EBUSY. */
static int acquire_member(struct multi *multi, size_t i, unsigned cancels, int64_t deadline,
                          pawl_error *err)
{
    int code = pawl__lock_acquire(multi->members[i], &multi->group, cancels,
                                  time_left(multi, deadline), err);

    if (code == PAWL_EBUSY && deadline)
        code = pawl__error_about(err, PAWL_ETIMEDOUT, multi->members[i]->name_state->name, NULL);
    return code;
}

/* Check that all members are still held after the last one was acquired. */
static int check_all(struct multi *multi, pawl_error *err)
{
    int code = 0;

    for (size_t i = 0; i < multi->n && !code; i++)
        code = pawl__lock_check_held(multi->members[i], err);
    return code;
}

static int acquire_all(struct multi *multi, unsigned cancels, int64_t wait_ms, pawl_error *err)
{
    int64_t deadline = deadline_in(multi, wait_ms);
    size_t i = 0;
    int code = 0;

    while (i < multi->n && !code) {
        code = acquire_member(multi, i, cancels, deadline, err);
        i += !code;
    }
    if (!code)
        code = check_all(multi, err);
    if (code)
        release_below(multi, i, NULL);
    return code;
}

int pawl__multi_acquire(pawl_lock *lock, int64_t wait_ms, pawl_error *err)
{
    struct multi *multi = lock->multi;
    unsigned cancels = atomic_load(&multi->group.cancels); /* before `acquiring` is incremented */
    struct owner *owner;
    int code;

    if (wait_ms < PAWL_FOREVER)
        return pawl_error_set(err, PAWL_EINVAL, "wait_ms is negative; PAWL_FOREVER is -1");
    if (pawl__in_callback())
        return pawl_error_set(err, PAWL_EDEADLK,
                              "a callback must not make a call that blocks; use the _start form");
    owner = owner_new(multi);
    if (!owner)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    atomic_fetch_add(&multi->acquiring, 1);
    code = acquire_all(multi, cancels, wait_ms, err);
    atomic_fetch_sub(&multi->acquiring, 1);
    if (code)
        free(owner);
    else
        owner_acquired(multi, owner);
    return code;
}

/* Does the multi-lock belong to the parent of a forked process? Checking one member is enough:
 * pawl_multi_new refuses members of a parent process. */
static bool is_parents(const struct multi *multi)
{
    return multi->members[0]->client->generation != pawl__fork_generation();
}

int pawl__multi_release(pawl_lock *lock, pawl_error *err)
{
    struct multi *multi = lock->multi;
    bool any = false;

    if (is_parents(multi))
        return pawl_error_set(err, PAWL_EFORK,
                              "the client belongs to the parent process; open one after fork()");
    if (pawl__in_callback()) /* before anything is counted */
        return pawl_error_set(err, PAWL_EDEADLK,
                              "a callback must not make a call that blocks; use the _start form");
    for (size_t i = 0; i < multi->n; i++)
        any |= pawl__lock_releasable(multi->members[i]);
    if (!any)
        return pawl__error_about(err, PAWL_ENOTHELD, lock->name_state->name, NULL);
    owner_released(multi);
    return release_below(multi, multi->n, err);
}

int pawl__multi_each(pawl_lock *lock, int (*fn)(pawl_lock *, int64_t, pawl_error *), int64_t arg,
                     pawl_error *err)
{
    int first = 0;

    for (size_t i = 0; i < lock->multi->n; i++) {
        int code = fn(lock->multi->members[i], arg, first ? NULL : err);

        if (code && !first)
            first = code;
    }
    return first;
}

int pawl__multi_cancel(pawl_lock *lock)
{
    struct multi *multi = lock->multi;
    int n = (int)atomic_load(&multi->acquiring);

    atomic_fetch_add(&multi->group.cancels, 1);
    for (size_t i = 0; i < multi->n; i++)
        pawl__lock_cancel(multi->members[i], &multi->group);
    return n;
}

/* ---- asynchronous ---------------------------------------------------------------------------- */

static void finish(struct multi *multi)
{
    pawl_done_fn *done = multi->done;
    void *arg = multi->arg;
    int code = multi->code;
    bool acquired = multi->acquires && !code;

    if (acquired)
        owner_acquired(multi, multi->owner);
    else
        free(multi->owner);
    multi->owner = NULL;
    if (multi->acquires)
        atomic_fetch_sub(&multi->acquiring, 1);
    atomic_store(&multi->busy, false);
    if (atomic_load(&multi->freed)) { /* freed at the moment of success */
        release_all(multi);
        if (acquired)
            code = PAWL_ECANCELED;
    }
    done(arg, multi->self, code);
    unref(multi);
}

/* Release the acquired members, the last one first; then call `done`. */
static void released(void *arg, pawl_lock *member, int code);

static void release_next(struct multi *multi)
{
    while (multi->at) {
        int code = pawl_lock_release_start(multi->members[--multi->at], released, multi);

        if (!code)
            return;
        if (!multi->code)
            multi->code = code;
    }
    finish(multi);
}

static void released(void *arg, pawl_lock *member, int code)
{
    struct multi *multi = arg;

    (void)member;
    if (code && !multi->code)
        multi->code = code;
    release_next(multi);
}

static void acquired(void *arg, pawl_lock *member, int code)
{
    struct multi *multi = arg;

    (void)member;
    multi->at += !code;
    if (!code && atomic_load(&multi->freed))
        code = PAWL_ECANCELED;
    if (!code && multi->at == multi->n && !(code = check_all(multi, NULL))) {
        finish(multi);
        return;
    }
    if (!code)
        code = pawl__lock_acquire_start(multi->members[multi->at], &multi->group,
                                        multi->cancels_before, time_left(multi, multi->deadline),
                                        acquired, multi);
    if (code) {
        multi->code = code == PAWL_EBUSY && multi->deadline ? PAWL_ETIMEDOUT : code;
        release_next(multi);
    }
}

static int begin_chain(struct multi *multi, pawl_done_fn *done, void *arg)
{
    if (is_parents(multi))
        return PAWL_EFORK;
    if (multi->by_thread)
        return PAWL_EINVAL; /* callbacks run in another thread than the caller's */
    if (atomic_exchange(&multi->busy, true))
        return PAWL_ESTATE;
    atomic_fetch_add(&multi->refs, 1);
    multi->done = done;
    multi->arg = arg;
    multi->code = 0;
    multi->cancels_before = atomic_load(&multi->group.cancels);
    multi->acquires = false;
    return 0;
}

/* The chain could not be started. */
static int end_chain(struct multi *multi, int code)
{
    if (multi->acquires)
        atomic_fetch_sub(&multi->acquiring, 1);
    free(multi->owner);
    multi->owner = NULL;
    atomic_store(&multi->busy, false);
    unref(multi);
    return code;
}

int pawl__multi_acquire_start(pawl_lock *lock, int64_t wait_ms, pawl_done_fn *done, void *arg)
{
    struct multi *multi = lock->multi;
    int code = wait_ms < PAWL_FOREVER ? PAWL_EINVAL : begin_chain(multi, done, arg);

    if (code)
        return code;
    multi->at = 0;
    multi->deadline = deadline_in(multi, wait_ms);
    multi->acquires = true;
    atomic_fetch_add(&multi->acquiring, 1);
    multi->owner = owner_new(multi);
    if (!multi->owner)
        return end_chain(multi, PAWL_ENOMEM);
    code = pawl__lock_acquire_start(multi->members[0], &multi->group, multi->cancels_before,
                                    wait_ms, acquired, multi);
    return code ? end_chain(multi, code) : 0;
}

int pawl__multi_release_start(pawl_lock *lock, pawl_done_fn *done, void *arg)
{
    struct multi *multi = lock->multi;
    int code = begin_chain(multi, done, arg);

    if (code)
        return code;
    owner_released(multi);
    multi->at = multi->n;
    while (multi->at) { /* the chain begins with the first member that can be released */
        code = pawl_lock_release_start(multi->members[--multi->at], released, multi);
        if (!code)
            return 0;
        if (!multi->code)
            multi->code = code;
    }
    return end_chain(multi, multi->code);
}

/* ---- queries --------------------------------------------------------------------------------- */

int64_t pawl__multi_valid_ms(const pawl_lock *lock)
{
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < lock->multi->n; i++) {
        int64_t ms = pawl_lock_valid_ms(lock->multi->members[i]);

        if (ms < least)
            least = ms;
    }
    return least;
}

int pawl__multi_hold_count(const pawl_lock *lock)
{
    int least = INT32_MAX;

    for (size_t i = 0; i < lock->multi->n; i++) {
        int count = pawl_lock_hold_count(lock->multi->members[i]);

        if (count < least)
            least = count;
    }
    return least;
}

int pawl__multi_lost_reason(const pawl_lock *lock, char *cause)
{
    int why = 0;

    for (size_t i = 0; i < lock->multi->n && !why; i++)
        why = pawl__lost_reason(lock->multi->members[i], cause);
    return why;
}
