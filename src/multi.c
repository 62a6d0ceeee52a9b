/* SPDX-License-Identifier: Apache-2.0
 *
 * multi.c - several locks as one: all or none.
 *
 * Members are acquired one after the other in an order that every process agrees on: by the URL of
 * the client, then by name. A holder of some members only ever waits for larger ones, so no circle
 * of waiting can form between multi-locks. The first failure gives back what was acquired.
 *
 * The asynchronous form is a chain: the done callback of one member starts the next (or, after a
 * failure, the release of the one before). Only one link is under way at any time, so the chain's
 * fields need no mutex: each link's start and callback pass through a client's mutex.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "core.h"

struct multi {
    size_t n;
    atomic_uint refs;      /* the handle's, and the chain's */
    atomic_uint cancels;   /* how often it was cancelled: an acquire sees whether that changed */
    atomic_uint held;      /* acquired and not released */
    atomic_bool busy;      /* a chain is under way */
    atomic_bool freed;
    /* the chain */
    pawl_lock *self;
    size_t at;        /* acquiring: the member under way; releasing: those below are to go */
    int code;         /* the first failure */
    unsigned cancels_before;
    int64_t deadline; /* boot clock of the first member's client, or PAWL_NEVER; 0: one try each */
    pawl_done_fn *done;
    void *arg;
    pawl_lock *members[];
};

static int order(const void *a, const void *b)
{
    const pawl_lock *x = *(pawl_lock *const *)a, *y = *(pawl_lock *const *)b;
    int by_url = strcmp(x->client->url, y->client->url);

    return by_url ? by_url : strcmp(x->site->name, y->site->name);
}

static int check_members(pawl_lock *const *members, size_t n, pawl_error *err)
{
    if (!members || n == 0)
        return pawl_error_set(err, PAWL_EINVAL, "a multi-lock needs at least one member");
    for (size_t i = 0; i < n; i++)
        if (!members[i] || members[i]->multi)
            return pawl_error_set(err, PAWL_EINVAL, "member %zu is %s", i,
                                  members[i] ? "itself a multi-lock" : "NULL");
    return 0;
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
    multi = n < SIZE_MAX / sizeof *members / 2 ? calloc(1, sizeof *multi + n * sizeof *members)
                                               : NULL;
    if (!lock || !multi) {
        free(lock);
        free(multi);
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    }
    multi->n = n;
    multi->self = lock;
    atomic_init(&multi->refs, 1);
    memcpy(multi->members, members, n * sizeof *members);
    qsort(multi->members, n, sizeof *members, order);
    for (size_t i = 1; i < n && !code; i++)
        if (!order(&multi->members[i - 1], &multi->members[i]))
            code = pawl_error_set(err, PAWL_EINVAL, "'%s' is a member twice",
                                  multi->members[i]->site->name);
    if (code) {
        free(multi);
        free(lock);
        return code;
    }
    lock->multi = multi;
    lock->client = multi->members[0]->client;
    lock->site = multi->members[0]->site;
    *ret = lock;
    return 0;
}

static void unref(struct multi *multi)
{
    if (atomic_fetch_sub(&multi->refs, 1) > 1)
        return;
    free(multi->self);
    free(multi);
}

/* Release what was acquired and not released, as often as it was; by whoever takes the count. */
static void give_back(struct multi *multi)
{
    unsigned times = atomic_exchange(&multi->held, 0);

    for (size_t i = multi->n; times && i-- > 0;)
        pawl__lock_give_back(multi->members[i], times);
}

/* A chain that is under way ends by itself, gives back what it got, and tells. */
void pawl__multi_free(pawl_lock *lock)
{
    struct multi *multi = lock->multi;

    atomic_store(&multi->freed, true);
    if (atomic_load(&multi->busy))
        pawl__multi_cancel(lock); /* else nothing waits, and the members' own waits are not ours */
    else
        give_back(multi);
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

/* The next member; the time that ran out between two members is a time-out, not "busy". */
static int acquire_member(struct multi *multi, size_t i, int64_t deadline, pawl_error *err)
{
    int code = pawl_lock_acquire(multi->members[i], time_left(multi, deadline), err);

    if (code == PAWL_EBUSY && deadline)
        code = pawl__error_about(err, PAWL_ETIMEDOUT, multi->members[i]->site->name, NULL);
    return code;
}

int pawl__multi_acquire(pawl_lock *lock, int64_t wait_ms, pawl_error *err)
{
    struct multi *multi = lock->multi;
    unsigned cancels = atomic_load(&multi->cancels);
    int64_t deadline = deadline_in(multi, wait_ms);
    size_t i = 0;
    int code = 0;

    if (wait_ms < PAWL_FOREVER)
        return pawl_error_set(err, PAWL_EINVAL, "wait_ms is negative; PAWL_FOREVER is -1");
    while (i < multi->n && !code) {
        if (atomic_load(&multi->cancels) != cancels)
            code = pawl__error_about(err, PAWL_ECANCELED, lock->site->name, NULL);
        else
            code = acquire_member(multi, i, deadline, err);
        i += !code;
    }
    if (code)
        release_below(multi, i, NULL);
    else
        atomic_fetch_add(&multi->held, 1);
    return code;
}

static void no_longer_held(struct multi *multi)
{
    unsigned held = atomic_load(&multi->held);

    while (held && !atomic_compare_exchange_weak(&multi->held, &held, held - 1))
        ;
}

int pawl__multi_release(pawl_lock *lock, pawl_error *err)
{
    if (pawl__in_callback()) /* before anything is counted */
        return pawl_error_set(err, PAWL_EDEADLK,
                              "a callback must not make a call that blocks; use the _start form");
    if (pawl__multi_hold_count(lock) == 0) { /* unless lost: then each member is told off below */
        bool any = false;

        for (size_t i = 0; i < lock->multi->n; i++)
            any |= pawl_lock_token(lock->multi->members[i]) != 0;
        if (!any)
            return pawl__error_about(err, PAWL_ENOTHELD, lock->site->name, NULL);
    }
    no_longer_held(lock->multi);
    return release_below(lock->multi, lock->multi->n, err);
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
    int n = 0;

    atomic_fetch_add(&lock->multi->cancels, 1);
    for (size_t i = 0; i < lock->multi->n; i++) {
        int code = pawl_lock_cancel(lock->multi->members[i]);

        n += code > 0 ? code : 0;
    }
    return n;
}

/* ---- asynchronous ---------------------------------------------------------------------------- */

static void finish(struct multi *multi)
{
    pawl_done_fn *done = multi->done;
    void *arg = multi->arg;
    int code = multi->code;

    atomic_store(&multi->busy, false);
    if (atomic_load(&multi->freed)) /* in the moment of success: one of us two sees the other */
        give_back(multi);
    done(arg, multi->self, code);
    unref(multi);
}

/* Release what is acquired, from the last member down; then tell. */
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
    if (!code && (atomic_load(&multi->cancels) != multi->cancels_before ||
                  atomic_load(&multi->freed)))
        code = PAWL_ECANCELED;
    if (!code && multi->at == multi->n) {
        atomic_fetch_add(&multi->held, 1);
        finish(multi);
        return;
    }
    if (!code)
        code = pawl_lock_acquire_start(multi->members[multi->at],
                                       time_left(multi, multi->deadline), acquired, multi);
    if (code) {
        multi->code = code == PAWL_EBUSY && multi->deadline ? PAWL_ETIMEDOUT : code;
        release_next(multi);
    }
}

static int begin_chain(struct multi *multi, pawl_done_fn *done, void *arg)
{
    for (size_t i = 0; i < multi->n; i++)
        if (multi->members[i]->by_thread)
            return PAWL_EINVAL; /* the callbacks run on other threads than the caller's */
    if (atomic_exchange(&multi->busy, true))
        return PAWL_ESTATE;
    atomic_fetch_add(&multi->refs, 1);
    multi->done = done;
    multi->arg = arg;
    multi->code = 0;
    multi->cancels_before = atomic_load(&multi->cancels);
    return 0;
}

/* Nothing was started after all. */
static int end_chain(struct multi *multi, int code)
{
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
    code = pawl_lock_acquire_start(multi->members[0], wait_ms, acquired, multi);
    return code ? end_chain(multi, code) : 0;
}

int pawl__multi_release_start(pawl_lock *lock, pawl_done_fn *done, void *arg)
{
    struct multi *multi = lock->multi;
    int code = begin_chain(multi, done, arg);

    if (code)
        return code;
    no_longer_held(multi);
    multi->at = multi->n;
    while (multi->at) { /* the first that can be released begins the chain */
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
