/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_multi.c - multi-locks: all members or none, and no deadlock.
 */
#include "conf.h"

CASE("a multi-lock takes all its members and gives all of them back")
{
    const char *na = check_name("a"), *nb = check_name("b"), *nc = check_name("c");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, na, NULL), *b = lock_new(client, nb, NULL);
    pawl_lock *c = lock_new(client_open(NULL), nc, NULL); /* of another client */
    pawl_lock *multi = multi_new(a, b, c);

    CHECK_EQ(pawl_lock_held(multi), 0);
    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    CHECK_EQ(pawl_lock_held(multi), 1);
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b) + pawl_lock_held(c), 3);
    CHECK_EQ(pawl_lock_token(multi), 0);
    CHECK(newer(pawl_lock_token(a), 0) && newer(pawl_lock_token(b), 0));
    CHECK(newer(pawl_lock_token(c), 0));
    CHECK_CODE(try_as_stranger(na, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(nb, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(nc, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(multi, NULL));
    CHECK_EQ(pawl_lock_held(multi), 0);
    CHECK_OK(try_as_stranger(na, PAWL_MUTEX));
    CHECK_OK(try_as_stranger(nb, PAWL_MUTEX));
    CHECK_OK(try_as_stranger(nc, PAWL_MUTEX));
    CHECK_CODE(pawl_lock_release(multi, NULL), PAWL_ENOTHELD);
}

CASE("a multi-lock that can't have one member keeps none, at a try and after a time-out")
{
    static const char *const names[] = {"a", "b", "c"};
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);

    for (int i = 0; i < 3; i++) { /* the busy member is first, in the middle, last */
        pawl_lock *taken = lock_new(yours, check_name(names[i]), NULL);
        pawl_lock *multi = multi_new(lock_new(mine, check_name("a"), NULL),
                                     lock_new(mine, check_name("b"), NULL),
                                     lock_new(mine, check_name("c"), NULL));

        CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
        CHECK_CODE(pawl_lock_acquire(multi, 0, NULL), PAWL_EBUSY);
        CHECK_TIMES_OUT(pawl_lock_acquire(multi, limit_ms, NULL));
        CHECK_EQ(pawl_lock_held(multi), 0);
        for (int k = 0; k < 3; k++)
            CHECK_CODE(try_as_stranger(check_name(names[k]), PAWL_MUTEX),
                       k == i ? PAWL_EBUSY : PAWL_OK);
        CHECK_EQ(pawl_lock_held(taken), 1);
        CHECK_OK(pawl_lock_release(taken, NULL));
    }
}

CASE("a multi-lock waits until the last member is free")
{
    const char *name = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *taken = lock_new(yours, name, NULL);
    pawl_lock *multi =
        multi_new(lock_new(mine, check_name("a"), NULL), lock_new(mine, name, NULL), NULL);
    waiter w;

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    waiter_start(&w, multi, PAWL_FOREVER);
    await_waiters(yours, name, 1);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_OK(waiter_code(&w));
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    waiter_leave(&w);
}

typedef struct circler {
    actor actor;
    pawl_lock *multi;
    atomic_int *inside;
} circler;

static void circle(void *arg)
{
    circler *c = arg;

    for (int i = 0; i < 100; i++) {
        CHECK_OK(pawl_lock_acquire(c->multi, PAWL_FOREVER, NULL));
        CHECK_EQ(atomic_fetch_add(c->inside, 1), 0);
        atomic_fetch_sub(c->inside, 1);
        CHECK_OK(pawl_lock_release(c->multi, NULL));
    }
}

CASE("multi-locks given in opposite orders never wait for each other in a circle")
{
    enum { N = 3 };
    const char *na = check_name("a"), *nb = check_name("b"), *nc = check_name("c");
    atomic_int inside = 0;
    circler circlers[N];

    for (int i = 0; i < N; i++) {
        pawl_client *client = client_open(NULL);
        pawl_lock *m[3] = {lock_new(client, na, NULL), lock_new(client, nb, NULL),
                           lock_new(client, nc, NULL)};

        circlers[i].multi = multi_new(m[i], m[(i + 1) % 3], m[(i + 2) % 3]);
        circlers[i].inside = &inside;
    }
    for (int i = 0; i < N; i++)
        actor_start(&circlers[i].actor, circle, &circlers[i]);
    for (int i = 0; i < N; i++)
        actor_join(&circlers[i].actor);
}

CASE("two threads with multi-locks of one client in opposite orders never block each other")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), NULL);
    pawl_lock *b = lock_new(client, check_name("b"), NULL);
    atomic_int inside = 0;
    circler one = {.multi = multi_new(a, b, NULL), .inside = &inside};
    circler two = {.multi = multi_new(b, a, NULL), .inside = &inside};

    actor_start(&one.actor, circle, &one);
    actor_start(&two.actor, circle, &two);
    actor_join(&one.actor);
    actor_join(&two.actor);
}

/* If the clients were ordered by the texts of their URLs, the second multi-lock would begin with
 * `b`, and hold `b` while it waits for `a`. */
CASE("multi-locks over two spellings of one URL begin with the same member")
{
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *one = client_open(NULL), *two = client_open_with("watchdog=31000");
    pawl_lock *taken = lock_new(client_open(NULL), na, NULL);
    pawl_lock *first = multi_new(lock_new(one, na, NULL), lock_new(two, nb, NULL), NULL);
    pawl_lock *second = multi_new(lock_new(two, na, NULL), lock_new(one, nb, NULL), NULL);
    waiter w[2];

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    waiter_start_brief(&w[0], first, PAWL_FOREVER);
    waiter_start_brief(&w[1], second, PAWL_FOREVER);
    await_waiters(one, na, 2);
    CHECK_OK(try_as_stranger(nb, PAWL_MUTEX));
    CHECK_OK(pawl_lock_release(taken, NULL));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(waiter_code(&w[i]));
        waiter_join(&w[i]);
    }
}

CASE("threads that share one multi-lock wait for each other")
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("b");
    pawl_lock *multi = multi_new(lock_new(client, check_name("a"), NULL),
                                 lock_new(client, name, NULL), NULL);
    atomic_int inside = 0;
    circler one = {.multi = multi, .inside = &inside}, two = one;

    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    actor_start(&one.actor, circle, &one);
    actor_start(&two.actor, circle, &two);
    await_waiting(client, 2);
    CHECK_OK(pawl_lock_release(multi, NULL));
    actor_join(&one.actor);
    actor_join(&two.actor);
}

CASE("a multi-lock of no members or with a name twice is refused")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), NULL);
    pawl_lock *again = lock_new(client, check_name("a"), NULL);
    pawl_lock *twice[2] = {a, again}, *same[2] = {a, a}, *untouched = a, *multi = untouched;
    pawl_error err = {0};

    CHECK_CODE(pawl_multi_new(&multi, twice, 2, &err), PAWL_EINVAL);
    CHECK(err.text[0]);
    CHECK_CODE(pawl_multi_new(&multi, same, 2, NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_multi_new(&multi, same, 0, NULL), PAWL_EINVAL);
    CHECK(multi == untouched);
}

CASE("the name of a multi-lock is one of its members', whatever their order")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), NULL);
    pawl_lock *b = lock_new(client, check_name("b"), NULL);
    const char *name = pawl_lock_name(multi_new(a, b, NULL));

    CHECK(!strcmp(name, pawl_lock_name(a)) || !strcmp(name, pawl_lock_name(b)));
    CHECK_STR(pawl_lock_name(multi_new(b, a, NULL)), name);
}

CASE("a multi-lock of thread-owned members is re-entrant")
{
    const char *name = check_name("a");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, name, NULL), *b = lock_new(client, check_name("b"), NULL);
    pawl_lock *multi = multi_new(a, b, NULL);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    CHECK_EQ(pawl_lock_hold_count(a), 3);
    CHECK_EQ(pawl_lock_hold_count(b), 2);
    CHECK_OK(pawl_lock_release(multi, NULL));
    CHECK_OK(pawl_lock_release(multi, NULL));
    CHECK_EQ(pawl_lock_hold_count(a), 1);
    CHECK_EQ(pawl_lock_held(b), 0);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(a, NULL));
}

CASE("release of a multi-lock by a stranger is refused and changes nothing")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), NULL);
    pawl_lock *b = lock_new(client, check_name("b"), NULL);
    pawl_lock *multi = multi_new(a, b, NULL);

    CHECK_CODE(pawl_lock_release(multi, NULL), PAWL_ENOTHELD);
    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    CHECK_CODE(release_in_thread(multi), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b), 2);
    CHECK_OK(pawl_lock_release(multi, NULL));
}

CASE("a multi-lock is lost as soon as the lease of one member ends")
{
    const char *nb = check_name("b");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *b = lock_new(client, nb, NULL);
    pawl_lock *multi = multi_new(a, b, NULL);
    pawl_lock *next = lock_new(client_open(NULL), pawl_lock_name(a), NULL);

    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    CHECK(pawl_lock_valid_ms(multi) <= SHORT_LEASE);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK_EQ(pawl_lock_held(multi), 0);
    CHECK_EQ(pawl_lock_valid_ms(multi), 0);
    CHECK_EQ(pawl_lock_held(b), 1);
    CHECK_CODE(pawl_lock_release(multi, NULL), PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(b), 0);
    CHECK_OK(try_as_stranger(nb, PAWL_MUTEX));
    CHECK_EQ(pawl_lock_held(next), 1);
}

CASE("a multi-lock that waits is cancelled and keeps nothing")
{
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *multi = multi_new(lock_new(mine, na, NULL), lock_new(mine, nb, NULL), NULL);
    waiter w;

    for (int i = 0; i < 2; i++) {
        const char *busy = i ? na : nb;
        pawl_lock *taken = lock_new(yours, busy, NULL);

        CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
        waiter_start(&w, multi, PAWL_FOREVER);
        await_waiters(yours, busy, 1);
        CHECK(pawl_lock_cancel(multi) >= 1);
        CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
        waiter_join(&w);
        CHECK_OK(try_as_stranger(i ? nb : na, PAWL_MUTEX));
        CHECK_OK(pawl_lock_release(taken, NULL));
        CHECK_OK(try_as_stranger(busy, PAWL_MUTEX));
    }
}

CASE("a multi-lock of handle-owned members is acquired and released asynchronously")
{
    static calls got = CALLS_INIT, gone = CALLS_INIT;
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    const pawl_lock_options *handle = LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE);
    pawl_lock *a = lock_new(mine, na, handle), *b = lock_new(mine, nb, handle);
    pawl_lock *multi = multi_new(b, a, NULL), *taken = lock_new(yours, na, NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(multi, PAWL_FOREVER, count_call, &got));
    await_waiters(yours, na, 1);
    CHECK_EQ(event_count(&got.event), 0);
    CHECK_OK(pawl_lock_release(taken, NULL));
    event_await(&got.event, 1);
    CHECK_OK(got.code);
    CHECK(got.lock == multi);
    CHECK_EQ(pawl_lock_held(multi) + pawl_lock_held(a) + pawl_lock_held(b), 3);
    CHECK_CODE(try_as_stranger(nb, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release_start(multi, count_call, &gone));
    event_await(&gone.event, 1);
    CHECK_OK(gone.code);
    CHECK_OK(try_as_stranger(na, PAWL_MUTEX));
    CHECK_OK(try_as_stranger(nb, PAWL_MUTEX));
    CHECK_EQ(event_count(&got.event), 1);
}

CASE("a multi-lock of thread-owned members can't be acquired asynchronously")
{
    static calls got = CALLS_INIT;
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), NULL);
    pawl_lock *b = lock_new(client, check_name("b"), NULL);

    CHECK_CODE(pawl_lock_acquire_start(multi_new(a, b, NULL), 0, count_call, &got), PAWL_EINVAL);
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b), 0);
    CHECK_EQ(event_count(&got.event), 0);
}

CASE("freeing a multi-lock releases the members that it holds")
{
    const char *na = check_name("a");
    pawl_client *client = client_open(NULL);
    pawl_lock *multi =
        multi_new(lock_new(client, na, NULL), lock_new(client, check_name("b"), NULL), NULL);
    pawl_lock *next = lock_new(client_open(NULL), na, NULL);

    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    lock_free(multi);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
}

static void count_only(void *arg, pawl_lock *lock, int code)
{
    calls *c = arg;

    (void)lock; /* freed meanwhile */
    c->code = code;
    event_raise(&c->event);
}

CASE("freeing a multi-lock that waits ends the wait, and done says so once")
{
    static calls got = CALLS_INIT;
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    const pawl_lock_options *handle = LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE);
    pawl_lock *a = lock_new(mine, na, handle), *b = lock_new(mine, nb, handle);
    pawl_lock *multi = multi_new(a, b, NULL), *taken = lock_new(yours, nb, NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(multi, PAWL_FOREVER, count_only, &got));
    await_waiters(yours, nb, 1);
    lock_free(multi);
    event_await(&got.event, 1);
    CHECK_CODE(got.code, PAWL_ECANCELED);
    await_waiters(yours, nb, 0);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_OK(pawl_lock_acquire(lock_new(yours, na, NULL), PAWL_FOREVER, NULL));
    CHECK_OK(try_as_stranger(nb, PAWL_MUTEX));
    CHECK_EQ(event_count(&got.event), 1);
}

CASE("freeing an idle multi-lock does not end a wait for a member alone")
{
    const char *name = check_name("a");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *a = lock_new(mine, name, NULL), *b = lock_new(mine, check_name("b"), NULL);
    pawl_lock *multi = multi_new(a, b, NULL), *taken = lock_new(yours, name, NULL);
    waiter w;

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    waiter_start(&w, a, PAWL_FOREVER);
    await_waiters(yours, name, 1);
    lock_free(multi);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

CASE("freeing a multi-lock that was acquired twice releases all of it")
{
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *a = lock_new(mine, na, NULL), *b = lock_new(mine, nb, NULL);
    pawl_lock *multi = multi_new(a, b, NULL);

    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    lock_free(multi);
    CHECK_OK(pawl_lock_acquire(lock_new(yours, na, NULL), 20000, NULL));
    CHECK_OK(pawl_lock_acquire(lock_new(yours, nb, NULL), 20000, NULL));
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b), 0);
    CHECK_CODE(pawl_lock_release(a, NULL), PAWL_ENOTHELD);
}

/* ---- Members that are lost meanwhile, cancels between members, frees ------------------------- */

CASE("a multi-lock is not acquired if a member was lost while another was waited for")
{
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *a = lock_new(mine, na, LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *multi = multi_new(a, lock_new(mine, nb, NULL), NULL);
    pawl_lock *taken = lock_new(yours, nb, NULL), *next = lock_new(yours, na, NULL);
    waiter w;

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    waiter_start(&w, multi, PAWL_FOREVER);
    await_acquired(mine, 1);
    await_waiters(yours, nb, 1);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL)); /* the lease of `a` has ended */
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_CODE(waiter_code(&w), PAWL_ELOST);
    waiter_join(&w);
    CHECK_EQ(pawl_lock_held(next), 1);
    CHECK_OK(pawl_lock_acquire(taken, 20000, NULL)); /* the multi-lock released its members */
}

CASE("a multi-lock is not acquired asynchronously if a member was broken meanwhile")
{
    static calls got = CALLS_INIT, lost = CALLS_INIT;
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *a = lock_new(mine, na, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE,
                                                   .on_lost = count_call, .arg = &lost));
    pawl_lock *b = lock_new(mine, nb, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    pawl_lock *multi = multi_new(a, b, NULL), *taken = lock_new(yours, nb, NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(multi, PAWL_FOREVER, count_call, &got));
    await_acquired(mine, 1);
    await_waiters(yours, nb, 1);
    CHECK_OK(pawl_lock_break(lock_new(yours, na, NULL), NULL));
    event_await(&lost.event, 1);
    CHECK_OK(pawl_lock_release(taken, NULL));
    event_await(&got.event, 1);
    CHECK_CODE(got.code, PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b), 0);
    CHECK_OK(pawl_lock_acquire(taken, 20000, NULL));
}

CASE("a multi-lock that is cancelled between two members is cancelled")
{
    const char *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *multi = multi_new(lock_new(mine, check_name("a"), NULL), lock_new(mine, nb, NULL),
                                 NULL);
    pawl_lock *taken = lock_new(yours, nb, NULL);
    waiter w;

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    for (int i = 0; i < 50; i++) {
        uint64_t before = stats_of(mine).acquired;

        waiter_start(&w, multi, PAWL_FOREVER);
        while (stats_of(mine).acquired == before)
            ;
        CHECK_EQ(pawl_lock_cancel(multi), 1);
        CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
        waiter_join(&w);
    }
}

CASE("a multi-lock that waits and its members can be freed at once")
{
    static calls got = CALLS_INIT;
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    const pawl_lock_options *handle = LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE);
    pawl_lock *taken = lock_new(yours, nb, NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    for (int i = 1; i <= 20; i++) {
        pawl_lock *a = lock_new(mine, na, handle), *b = lock_new(mine, nb, handle);
        pawl_lock *multi = multi_new(a, b, NULL);

        CHECK_OK(pawl_lock_acquire_start(multi, PAWL_FOREVER, count_only, &got));
        lock_free(multi);
        lock_free(a);
        lock_free(b);
        event_await(&got.event, i);
        CHECK_CODE(got.code, PAWL_ECANCELED);
    }
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_OK(pawl_lock_acquire(lock_new(yours, na, NULL), 20000, NULL));
}

static int free_it(void *arg)
{
    lock_free(arg);
    return 0;
}

CASE("freeing a multi-lock in another thread releases what its owner holds through it")
{
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *a = lock_new(mine, na, NULL), *b = lock_new(mine, nb, NULL);
    pawl_lock *multi = multi_new(a, b, NULL);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL)); /* acquired by itself: stays held */
    CHECK_OK(pawl_lock_acquire(multi, 0, NULL));
    in_thread(free_it, multi);
    CHECK_EQ(pawl_lock_hold_count(a), 1);
    CHECK_OK(pawl_lock_acquire(a, 0, NULL)); /* the owner of `a` need not wait */
    CHECK_EQ(pawl_lock_hold_count(a), 2);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_OK(pawl_lock_acquire(lock_new(yours, nb, NULL), 20000, NULL));
    CHECK_CODE(pawl_lock_acquire(lock_new(yours, na, NULL), 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_OK(pawl_lock_acquire(lock_new(yours, na, NULL), 0, NULL));
}
