/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_cohort.c - passing a lock on inside the process: each owner gets its own token, and the
 * number of times is limited.
 */
#include "conf.h"

/* Two threads contend for the lock once, so that the client passes the lock on from now on. */
static void warm_up(pawl_client *client, pawl_lock *lock)
{
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    waiter_start_brief(&w, lock, PAWL_FOREVER);
    await_waiting(client, 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&w);
}

CASE("a lock is handed on inside the process, each time with a larger token")
{
    enum { N = 20 };
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("c"), NULL);
    uint64_t last;
    waiter w[N];

    need_ranges();
    warm_up(client, lock);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    last = pawl_lock_token(lock);
    for (int i = 0; i < N; i++) {
        waiter_start(&w[i], lock, PAWL_FOREVER);
        await_waiting(client, (uint64_t)i + 1);
    }
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++) {
        CHECK_OK(waiter_code(&w[i]));
        CHECK(newer(w[i].token, last));
        last = w[i].token;
        CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
        waiter_leave(&w[i]);
    }
    CHECK(stats_of(client).handed_over > 0);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK(newer(pawl_lock_token(lock), last));
}

/* The owner of the mutex also holds the read lock: the next thread gets the mutex after both were
 * released. */
static void read_beside(bool keep)
{
    const char *name = check_name("c");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, NULL);
    pawl_lock *read = lock_new(client, name, LOCK_OPTIONS(.kind = PAWL_READ));
    pawl_lock *other = lock_new(client_open(NULL), name, NULL);
    int64_t until = 0;
    uint64_t token;
    waiter w;

    need_ranges();
    warm_up(client, lock);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    waiter_start(&w, lock, PAWL_FOREVER);
    await_waiting(client, 1);
    CHECK_OK(pawl_lock_acquire(read, 0, NULL));
    token = pawl_lock_token(read);
    if (!keep)
        CHECK_OK(pawl_lock_release(read, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    if (keep) {
        CHECK_TIMES_OUT(pawl_lock_acquire(other, limit_ms, NULL));
        until = now_ms();
        CHECK_OK(pawl_lock_release(read, NULL));
    }
    CHECK_OK(waiter_code(&w));
    CHECK(w.at_ms >= until);
    CHECK(newer(w.token, token));
    waiter_leave(&w);
}

CASE("a lock whose owner has read meanwhile is handed on with a larger token than the reader's")
{
    read_beside(false);
}

CASE("a lock whose owner goes on reading is not handed on")
{
    read_beside(true);
}

CASE("tokens go on rising when the lock leaves a process that had reserved some")
{
    const char *name = check_name("c");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *a = lock_new(mine, name, NULL), *b = lock_new(yours, name, NULL);
    uint64_t last = 0;

    for (int i = 0; i < 10; i++) {
        warm_up(mine, a);
        CHECK_OK(pawl_lock_acquire(a, PAWL_FOREVER, NULL));
        CHECK(newer(pawl_lock_token(a), last));
        last = pawl_lock_token(a);
        CHECK_OK(pawl_lock_release(a, NULL));
        CHECK_OK(pawl_lock_acquire(b, PAWL_FOREVER, NULL));
        CHECK(newer(pawl_lock_token(b), last));
        last = pawl_lock_token(b);
        CHECK_OK(pawl_lock_release(b, NULL));
    }
}

CASE("another client gets its turn after at most `cohort` grants in a row")
{
    enum { N = 14, COHORT = 4 };
    const char *name = check_name("c");
    pawl_client *mine = client_open(CLIENT_OPTIONS(.cohort = COHORT)), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    int before = 0;
    waiter w[N], other;

    need_ranges();
    need(PAWL_CAN_QUEUE, "without a queue, no client is sure to get a turn");
    warm_up(mine, lock);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    for (int i = 0; i < N; i++)
        waiter_start_brief(&w[i], lock, PAWL_FOREVER);
    await_waiting(mine, N);
    waiter_start_brief(&other, lock_new(yours, name, NULL), PAWL_FOREVER);
    await_waiters(yours, name, 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&other);
    for (int i = 0; i < N; i++) {
        waiter_leave(&w[i]);
        before += w[i].turn < other.turn;
    }
    CHECK(before <= COHORT);
}

/* Threads of two clients, queued in a known order, must be served in this order. */
static void strict_order(uint64_t kind, uint64_t cohort)
{
    static const int from[] = {0, 0, 1, 1, 0, 1, 0};
    enum { N = sizeof from / sizeof from[0] };
    const char *name = check_name("c");
    pawl_client *clients[2] = {client_open(CLIENT_OPTIONS(.cohort = cohort)),
                               client_open(CLIENT_OPTIONS(.cohort = cohort))};
    pawl_lock *holder = lock_new(client_open(NULL), name, LOCK_OPTIONS(.kind = kind));
    waiter w[N];
    int first;

    CHECK_OK(pawl_lock_acquire(holder, 0, NULL));
    for (int i = 0; i < N; i++) {
        waiter_start_brief(&w[i], lock_new(clients[from[i]], name, LOCK_OPTIONS(.kind = kind)),
                           PAWL_FOREVER);
        await_queued(clients[0], name, (uint64_t)i + 1);
    }
    CHECK_OK(pawl_lock_release(holder, NULL));
    for (int i = 0; i < N; i++)
        waiter_leave(&w[i]);
    first = w[0].turn;
    for (int i = 0; i < N; i++)
        CHECK_EQ(w[i].turn, first + i);
    CHECK_EQ(stats_of(clients[0]).handed_over, 0);
}

CASE("a fair lock serves threads of two clients strictly in the order they came")
{
    strict_order(PAWL_FAIR, 32);
}

CASE("with cohort=1 a mutex serves threads of two clients strictly in the order they came")
{
    need_order();
    strict_order(PAWL_MUTEX, 1);
}

CASE("a waiter inside the process that gives up does not stop those behind it")
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("c");
    pawl_lock *lock = lock_new(client, name, NULL), *leaves = lock_new(client, name, NULL);
    waiter a, b, c;

    warm_up(client, lock);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    waiter_start(&a, leaves, PAWL_FOREVER);
    await_waiting(client, 1);
    waiter_start(&b, lock, 1000); /* long enough to be seen waiting on a busy machine */
    await_waiting(client, 2);
    waiter_start(&c, lock, PAWL_FOREVER);
    CHECK_EQ(pawl_lock_cancel(leaves), 1);
    CHECK_CODE(waiter_code(&a), PAWL_ECANCELED);
    CHECK_CODE(waiter_code(&b), PAWL_ETIMEDOUT);
    await_waiting(client, 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(waiter_code(&c));
    waiter_leave(&c);
    waiter_join(&a);
    waiter_join(&b);
}

CASE("an owner that takes the lock over inside the process has a lease of its own kind")
{
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = 20000));
    const char *name = check_name("c");
    pawl_lock *brief = lock_new(client, name, LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *fixed = lock_new(client, name, LOCK_OPTIONS(.lease_ms = LONG_LEASE));
    pawl_lock *watched = lock_new(client, name, NULL);
    waiter w;

    warm_up(client, watched);
    CHECK_OK(pawl_lock_acquire(brief, PAWL_FOREVER, NULL));
    waiter_start(&w, watched, PAWL_FOREVER);
    await_waiting(client, 1);
    CHECK_OK(pawl_lock_release(brief, NULL));
    CHECK_OK(waiter_code(&w));
    pause_ms(SHORT_LEASE + 100);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    waiter_leave(&w);
    CHECK_OK(pawl_lock_acquire(watched, PAWL_FOREVER, NULL));
    CHECK_OK(pawl_lock_release(watched, NULL));
    CHECK_OK(pawl_lock_acquire(fixed, PAWL_FOREVER, NULL));
    CHECK(pawl_lock_valid_ms(fixed) > lease_given(40000) / 2);
}

CASE("threads behind a holder that loses its lease get the lock when it is lost")
{
    static calls lost = CALLS_INIT;
    pawl_client *client = client_open(NULL);
    const char *name = check_name("c");
    pawl_lock *lock = lock_new(
        client, name,
        LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = count_call, .arg = &lost));
    waiter a, b;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start_brief(&a, lock_new(client, name, NULL), PAWL_FOREVER);
    waiter_start_brief(&b, lock_new(client, name, NULL), PAWL_FOREVER);
    CHECK_OK(waiter_code(&a));
    CHECK_OK(waiter_code(&b));
    event_await(&lost.event, 1);
    CHECK_EQ(event_count(&lost.event), 1);
    waiter_leave(&a);
    waiter_leave(&b);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
}

CASE("threads behind a holder that is broken get the lock")
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("c");
    pawl_lock *lock = lock_new(client, name, NULL);
    waiter a, b;

    warm_up(client, lock);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    waiter_start_brief(&a, lock, PAWL_FOREVER);
    waiter_start_brief(&b, lock, PAWL_FOREVER);
    await_waiting(client, 2);
    CHECK_OK(pawl_lock_break(lock_new(client_open(NULL), name, NULL), NULL));
    waiter_leave(&a);
    waiter_leave(&b);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
}

/* The lease of the ended thread lasts longer than the waits of this case. */
CASE("when a lock is broken whose thread has ended, the other threads of its client get the lock")
{
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = LONG_LEASE));
    const char *name = check_name("c");
    pawl_lock *lock = lock_new(client, name, NULL);
    pawl_lock *other = lock_new(client_open(NULL), name, NULL);
    waiter w;

    CHECK_OK(acquire_in_thread(lock));
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_break(other, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 10000, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));

    CHECK_OK(acquire_in_thread(lock));
    waiter_start_brief(&w, lock, 10000);
    await_waiting(client, 1);
    CHECK_OK(pawl_lock_break(other, NULL));
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

/* The thread ends while its acquire waits behind another thread of its client. */
CASE("when a lock is broken that a thread got after its end, other threads get the lock")
{
    static calls got = CALLS_INIT;
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = LONG_LEASE));
    const char *name = check_name("c");
    pawl_lock *lock = lock_new(client, name, NULL);
    waiter w;

    warm_up(client, lock);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK_OK(start_in_thread(lock, count_call, &got));
    waiter_start_brief(&w, lock, 10000);
    await_waiting(client, 2);
    CHECK_OK(pawl_lock_release(lock, NULL));
    event_await(&got.event, 1);
    CHECK_OK(pawl_lock_break(lock_new(client_open(NULL), name, NULL), NULL));
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

CASE("closing a client cancels a thread that waits behind another thread of the client")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("c"), NULL);
    waiter w;

    warm_up(client, lock);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&w, lock, PAWL_FOREVER);
    await_waiting(client, 1);
    client_close(client);
    CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
    waiter_join(&w);
    CHECK_OK(try_as_stranger(check_name("c"), PAWL_MUTEX));
}
