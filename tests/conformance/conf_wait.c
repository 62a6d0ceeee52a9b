/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_wait.c - waiting: order, time limits, cancelling.
 */
#include "conf.h"

#include <time.h>

CASE("a wait of 0 on a free lock succeeds, a wait of PAWL_FOREVER too")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("w"), NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(pawl_lock_acquire(lock, INT64_MAX, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a timed wait ends with a time-out, not before its time")
{
    const char *name = check_name("w");
    pawl_lock *mine = lock_new(client_open(NULL), name, NULL);
    pawl_lock *yours = lock_new(client_open(NULL), name, NULL);
    pawl_error err = {0};

    CHECK_OK(pawl_lock_acquire(mine, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(yours, 0, NULL), PAWL_EBUSY);
    CHECK_TIMES_OUT(pawl_lock_acquire(yours, limit_ms, &err));
    CHECK_CODE(err.code, PAWL_ETIMEDOUT);
    CHECK_EQ(pawl_lock_held(yours), 0);
    CHECK_EQ(pawl_lock_held(mine), 1);
}

CASE("a timed wait behind a thread of the same client ends with a time-out, not before its time")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("w"), NULL);
    int64_t began = now_ms();
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&w, lock, 120);
    CHECK_CODE(waiter_code(&w), PAWL_ETIMEDOUT);
    CHECK(w.at_ms - began >= 119);
    waiter_join(&w);
    CHECK_EQ(stats_of(client).waiting, 0);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a waiter that gave up is out of the queue and delays nobody")
{
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *holder = lock_new(mine, name, NULL);

    CHECK_OK(pawl_lock_acquire(holder, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(lock_new(yours, name, NULL), 0, NULL), PAWL_EBUSY);
    CHECK_TIMES_OUT(pawl_lock_acquire(lock_new(yours, name, NULL), limit_ms, NULL));
    await_waiters(mine, name, 0);
    CHECK_OK(pawl_lock_release(holder, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("a waiter gets the lock when it is released")
{
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    uint64_t token;
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    waiter_start(&w, lock_new(client_open(NULL), name, NULL), PAWL_FOREVER);
    await_waiters(mine, name, 1);
    CHECK_EQ(event_count(&w.decided), 0);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(waiter_code(&w));
    CHECK(newer(w.token, token));
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
    waiter_leave(&w);
}

CASE("waiters of different clients are served first come first served")
{
    enum { N = 6 };
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, ORDERED);
    waiter w[N];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < N; i++) {
        waiter_start_brief(&w[i], lock_new(client_open(NULL), name, ORDERED), PAWL_FOREVER);
        await_queued(mine, name, (uint64_t)i + 1);
    }
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++)
        waiter_leave(&w[i]);
    for (int i = 0; i < N; i++)
        CHECK_EQ(w[i].turn, i + 1);
}

CASE("waiters of one client are served first come first served")
{
    enum { N = 6 };
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("w"), ORDERED);
    waiter w[N];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < N; i++) {
        waiter_start_brief(&w[i], lock, PAWL_FOREVER);
        await_waiting(client, (uint64_t)i + 1);
    }
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++)
        waiter_leave(&w[i]);
    for (int i = 0; i < N; i++)
        CHECK_EQ(w[i].turn, i + 1);
}

CASE("a try never overtakes a waiter, not even at the moment of the release")
{
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, ORDERED), *queued = lock_new(yours, name, ORDERED);
    pawl_lock *third = lock_new(client_open(NULL), name, ORDERED);

    for (int i = 0; i < 30; i++) {
        waiter w;

        CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
        waiter_start(&w, queued, PAWL_FOREVER);
        await_queued(mine, name, 1);
        CHECK_OK(pawl_lock_release(lock, NULL));
        CHECK_CODE(pawl_lock_acquire(third, 0, NULL), PAWL_EBUSY);
        waiter_leave(&w);
    }
}

CASE("of waiters with different limits each ends at its own")
{
    enum { N = 4 };
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    waiter w[N];
    int64_t began;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(lock_new(yours, name, NULL), 0, NULL), PAWL_EBUSY);
    began = now_ms();
    for (int i = 0; i < N; i++)
        waiter_start(&w[i], lock_new(i % 2 ? mine : yours, name, NULL), 500 - 80 * i);
    for (int i = 0; i < N; i++) {
        if (can(PAWL_CAN_QUEUE) || waiter_code(&w[i]) != PAWL_EUNKNOWN) /* a poll was under way */
            CHECK_CODE(waiter_code(&w[i]), PAWL_ETIMEDOUT);
        CHECK(w[i].at_ms - began >= 499 - 80 * i);
        waiter_join(&w[i]);
    }
    CHECK_EQ(pawl_lock_held(lock), 1);
}

CASE("forty threads that wait for one lock all get it")
{
    enum { N = 40 };
    const char *name = check_name("w");
    pawl_client *clients[2] = {client_open(NULL), client_open(NULL)};
    pawl_lock *lock = lock_new(clients[0], name, NULL);
    waiter w[N];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < N; i++)
        waiter_start_brief(&w[i], lock_new(clients[i % 2], name, NULL), PAWL_FOREVER);
    await_waiting(clients[0], N / 2);
    await_waiting(clients[1], N / 2);
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++)
        waiter_leave(&w[i]);
}

/* ---- Cancelling ------------------------------------------------------------------------------ */

CASE("a wait is cancelled from another thread")
{
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *holder = lock_new(mine, name, NULL), *lock = lock_new(yours, name, NULL);
    waiter w;

    CHECK_OK(pawl_lock_acquire(holder, 0, NULL));
    waiter_start(&w, lock, PAWL_FOREVER);
    await_waiters(mine, name, 1);
    CHECK_EQ(pawl_lock_cancel(lock), 1);
    CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
    waiter_join(&w);
    await_waiters(mine, name, 0);
    CHECK_OK(pawl_lock_release(holder, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
}

CASE("cancelling a handle that nobody waits on does nothing")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("w"), NULL);

    CHECK_EQ(pawl_lock_cancel(lock), 0);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_lock_cancel(lock), 0);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("cancelling a handle ends all its waits and no other handle's")
{
    const char *name = check_name("w");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, NULL), *other = lock_new(client, name, NULL);
    waiter a, b, c;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&a, lock, PAWL_FOREVER);
    waiter_start(&b, other, PAWL_FOREVER);
    waiter_start(&c, lock, PAWL_FOREVER);
    await_waiting(client, 3);
    CHECK_EQ(pawl_lock_cancel(lock), 2);
    CHECK_CODE(waiter_code(&a), PAWL_ECANCELED);
    CHECK_CODE(waiter_code(&c), PAWL_ECANCELED);
    CHECK_EQ(event_count(&b.decided), 0);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&b);
    waiter_join(&a);
    waiter_join(&c);
}

CASE("a cancelled waiter in the middle leaves the others in order")
{
    enum { N = 5 };
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, ORDERED);
    waiter w[N];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < N; i++) {
        waiter_start_brief(&w[i], lock_new(client_open(NULL), name, ORDERED), PAWL_FOREVER);
        await_queued(mine, name, (uint64_t)i + 1);
    }
    pawl_lock_cancel(w[0].lock);
    pawl_lock_cancel(w[2].lock);
    CHECK_CODE(waiter_code(&w[0]), PAWL_ECANCELED);
    CHECK_CODE(waiter_code(&w[2]), PAWL_ECANCELED);
    await_queued(mine, name, N - 2);
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++)
        waiter_join(&w[i]);
    CHECK_EQ(w[1].turn, 1);
    CHECK_EQ(w[3].turn, 2);
    CHECK_EQ(w[4].turn, 3);
}

CASE("closing the client cancels its waits")
{
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *holder = lock_new(mine, name, NULL), *lock = lock_new(yours, name, NULL);
    waiter a, b;

    CHECK_OK(pawl_lock_acquire(holder, 0, NULL));
    waiter_start(&a, lock, PAWL_FOREVER);
    waiter_start(&b, lock, 600000);
    await_waiting(yours, 2);
    client_close(yours);
    CHECK_CODE(waiter_code(&a), PAWL_ECANCELED);
    CHECK_CODE(waiter_code(&b), PAWL_ECANCELED);
    waiter_join(&a);
    waiter_join(&b);
    await_waiters(mine, name, 0);
    CHECK_EQ(pawl_lock_held(holder), 1);
}

CASE("cancelling at the moment of the release leaves the lock held by one or by none, never stuck")
{
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *holder = lock_new(mine, name, NULL), *lock = lock_new(yours, name, NULL);

    for (int i = 0; i < 100; i++) {
        waiter w;

        CHECK_OK(pawl_lock_acquire(holder, PAWL_FOREVER, NULL));
        waiter_start_brief(&w, lock, PAWL_FOREVER);
        await_waiters(mine, name, 1);
        CHECK_OK(pawl_lock_release(holder, NULL));
        pawl_lock_cancel(lock);
        waiter_join(&w);
        CHECK(w.code == 0 || w.code == PAWL_ECANCELED);
    }
    CHECK_OK(pawl_lock_acquire(holder, 20000, NULL));
}

/* ---- The longest waits ----------------------------------------------------------------------- */

/* The longest wait whose end still fits into the system's clock. */
static int64_t longest_wait(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (INT64_MAX - (int64_t)t.tv_sec * 1000000000 - t.tv_nsec) / 1000000;
}

CASE("a free lock is acquired whatever wait is allowed")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("w"), NULL);
    int64_t longest = longest_wait();
    int64_t waits[] = {INT64_MAX / 1000000 - 1000, longest - 1, longest, longest + 1,
                       INT64_MAX / 1000000, INT64_MAX / 1000000 + 1, INT64_MAX};

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        CHECK_OK(pawl_lock_acquire(lock, waits[i], NULL));
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
}

CASE("a client sleeps through the longest waits")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("w");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    pawl_lock *taken = lock_new(yours, name, NULL);
    clock_t used;

    CHECK(pawl_client_fd(mine) >= 0);
    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(lock, longest_wait() - 1, count_call, &got));
    await_waiters(yours, name, 1);
    used = clock();
    pause_ms(300);
    used = clock() - used;
    CHECK(used * 1000 / CLOCKS_PER_SEC < 60); /* ms of processor time, not of waiting */
}
