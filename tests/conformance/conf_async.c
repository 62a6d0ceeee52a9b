/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_async.c - asynchronous operations, and programs with an event loop of their own.
 */
#include "conf.h"

#include <poll.h>

static const pawl_lock_options handle_owned = {.size = sizeof(pawl_lock_options),
                                               .owner = PAWL_OWNER_HANDLE};

/* Set while this thread is inside a start function, to detect callbacks that come too early. */
static _Thread_local bool starting;

static void count_unless_starting(void *arg, pawl_lock *lock, int code)
{
    CHECK(!starting);
    count_call(arg, lock, code);
}

CASE("done is called once, with the outcome, not inside the start")
{
    static calls got = CALLS_INIT, gone = CALLS_INIT;
    const char *name = check_name("x");
    pawl_lock *lock = lock_new(client_open(NULL), name, &handle_owned);

    for (int i = 1; i <= 50; i++) {
        starting = true;
        CHECK_OK(pawl_lock_acquire_start(lock, 0, count_unless_starting, &got));
        starting = false;
        event_await(&got.event, i);
        CHECK_OK(got.code);
        CHECK(got.lock == lock);
        CHECK_EQ(got.held, 1);
        CHECK_EQ(got.token, pawl_lock_token(lock));
        starting = true;
        CHECK_OK(pawl_lock_release_start(lock, count_unless_starting, &gone));
        starting = false;
        event_await(&gone.event, i);
        CHECK_OK(gone.code);
        CHECK_EQ(pawl_lock_held(lock), 0);
    }
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
    CHECK_EQ(event_count(&got.event), 50);
    CHECK_EQ(event_count(&gone.event), 50);
}

CASE("an asynchronous acquire is owned by the thread that started it")
{
    static calls got = CALLS_INIT;
    pawl_lock *lock = lock_new(client_open(NULL), check_name("x"), NULL);

    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    event_await(&got.event, 1);
    CHECK_OK(got.code);
    CHECK_EQ(got.held, 1); /* inside the callback too, on any thread */
    CHECK(newer(got.token, 0));
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_CODE(try_in_thread(lock), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("two hundred locks are acquired side by side")
{
    enum { N = 200 };
    static calls got = CALLS_INIT;
    pawl_client *client = client_open(NULL);
    pawl_lock *locks[N];

    for (int i = 0; i < N; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s-%d", check_name("x"), i);
        locks[i] = lock_new(client, name, &handle_owned);
        CHECK_OK(pawl_lock_acquire_start(locks[i], PAWL_FOREVER, count_call, &got));
    }
    event_await(&got.event, N);
    for (int i = 0; i < N; i++)
        CHECK_EQ(pawl_lock_held(locks[i]), 1);
    CHECK_EQ(stats_of(client).held, N);
}

typedef struct chain {
    event granted, released;
    int turn;
} chain;

typedef struct link {
    chain *chain;
    pawl_lock *lock;
    int number;
} link_t;

static void link_released(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    CHECK_OK(code);
    event_raise(&((link_t *)arg)->chain->released);
}

static void link_granted(void *arg, pawl_lock *lock, int code)
{
    link_t *self = arg;

    CHECK_OK(code);
    CHECK_EQ(self->chain->turn++, self->number); /* under the lock */
    event_raise(&self->chain->granted);
    CHECK_OK(pawl_lock_release_start(lock, link_released, self));
}

CASE("a hundred operations that wait for one lock get it in order, and release it in callbacks")
{
    enum { N = 100 };
    static chain all = {.granted = EVENT_INIT, .released = EVENT_INIT};
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, ORDERED);
    static link_t links[N];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < N; i++) {
        links[i] = (link_t){&all, lock_new(client, name, LOCK_OPTIONS(.kind = ordered_kind(),
                            .owner = handle_owned.owner)), i};
        CHECK_OK(pawl_lock_acquire_start(links[i].lock, PAWL_FOREVER, link_granted, &links[i]));
    }
    CHECK_EQ(event_count(&all.granted), 0);
    CHECK_OK(pawl_lock_release(lock, NULL));
    event_await(&all.released, N);
    CHECK_EQ(event_count(&all.granted), N);
}

/* Start an acquire with a time limit, and then a try. Returns the code of the first. */
static int start_both(pawl_client *client, const char *name, int64_t limit_ms)
{
    calls tried = CALLS_INIT, timed = CALLS_INIT;

    CHECK_OK(pawl_lock_acquire_start(lock_new(client, name, &handle_owned), limit_ms, count_call,
                                     &timed));
    CHECK_OK(pawl_lock_acquire_start(lock_new(client, name, &handle_owned), 0, count_call,
                                     &tried));
    event_await(&tried.event, 1);
    CHECK_CODE(tried.code, PAWL_EBUSY);
    event_await(&timed.event, 1);
    CHECK_EQ(timed.held, 0);
    return timed.code;
}

CASE("an asynchronous try of a held lock ends with EBUSY, a timed one with a time-out")
{
    const char *name = check_name("x");
    pawl_lock *taken = lock_new(client_open(NULL), name, NULL);
    pawl_client *client = client_open(NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(lock_new(client, name, NULL), 0, NULL), PAWL_EBUSY);
    CHECK_TIMES_OUT(start_both(client, name, limit_ms));
}

CASE("an operation that was started is cancelled, and done says so once")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_lock *taken = lock_new(client_open(NULL), name, NULL);
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, &handle_owned);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    await_waiters(client, name, 1);
    CHECK_EQ(pawl_lock_cancel(lock), 1);
    event_await(&got.event, 1);
    CHECK_CODE(got.code, PAWL_ECANCELED);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(event_count(&got.event), 1);
}

CASE("cancelling right after the start gives one outcome and leaves nothing held by nobody")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_lock *lock = lock_new(client_open(NULL), name, &handle_owned);

    for (int i = 1; i <= 100; i++) {
        CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
        pawl_lock_cancel(lock);
        event_await(&got.event, i);
        CHECK(got.code == 0 || got.code == PAWL_ECANCELED);
        if (got.code == 0)
            CHECK_OK(pawl_lock_release(lock, NULL));
    }
    CHECK_EQ(event_count(&got.event), 100);
    CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
}

CASE("closing the client cancels operations: done is called with ECANCELED before close returns")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_lock *taken = lock_new(client_open(NULL), name, NULL);
    pawl_client *client = client_open(NULL), *looped = client_open(NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(lock_new(client, name, &handle_owned), PAWL_FOREVER,
                                     count_call, &got));
    client_close(client);
    CHECK_EQ(event_count(&got.event), 1);
    CHECK_CODE(got.code, PAWL_ECANCELED);
    CHECK(pawl_client_fd(looped) >= 0);
    CHECK_OK(pawl_lock_acquire_start(lock_new(looped, name, &handle_owned), PAWL_FOREVER,
                                     count_call, &got));
    client_close(looped);
    CHECK_EQ(event_count(&got.event), 2);
    CHECK_CODE(got.code, PAWL_ECANCELED);
}

CASE("an invalid asynchronous call fails at once, and done is not called")
{
    static calls got = CALLS_INIT;
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("x"), &handle_owned);

    CHECK_CODE(pawl_lock_acquire_start(lock, 0, NULL, NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_lock_release_start(lock, count_call, &got), PAWL_ENOTHELD);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_acquire_start(lock, 0, count_call, &got), PAWL_ESTATE);
    client_close(client);
    CHECK_CODE(pawl_lock_acquire_start(lock, 0, count_call, &got), PAWL_ESTATE);
    CHECK_CODE(pawl_lock_release_start(lock, count_call, &got), PAWL_ESTATE);
    CHECK_EQ(event_count(&got.event), 0);
}

static void free_in_callback(void *arg, pawl_lock *lock, int code)
{
    CHECK_OK(code);
    pawl_lock_free(lock);
    event_raise(arg);
}

CASE("a done callback may free its lock, which releases it")
{
    static event freed = EVENT_INIT;
    const char *name = check_name("x");
    pawl_lock *lock = lock_new(client_open(NULL), name, &handle_owned);
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);

    forget(lock);
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, free_in_callback, &freed));
    event_await(&freed, 1);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
}

static void count_only(void *arg, pawl_lock *lock, int code)
{
    calls *c = arg;

    (void)lock; /* freed meanwhile */
    c->code = code;
    event_raise(&c->event);
}

CASE("freeing a handle that waits ends the wait, and done says so once")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *taken = lock_new(yours, name, NULL), *lock = lock_new(mine, name, &handle_owned);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_only, &got));
    await_waiters(yours, name, 1);
    lock_free(lock);
    event_await(&got.event, 1);
    CHECK_CODE(got.code, PAWL_ECANCELED);
    await_waiters(yours, name, 0);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
    CHECK_EQ(event_count(&got.event), 1);
}

/* ---- The program's event loop ---------------------------------------------------------------- */

/* Poll and process until the event was raised n times; returns how many callbacks ran. */
static int loop_until(pawl_client *client, event *e, int n)
{
    struct pollfd p = {.fd = pawl_client_fd(client), .events = POLLIN};
    int ran = 0;

    while (event_count(e) < n) {
        int code;

        CHECK(poll(&p, 1, -1) == 1);
        code = pawl_client_process(client);
        CHECK(code >= 0);
        ran += code;
    }
    return ran;
}

CASE("with a loop of its own a program gets callbacks only inside pawl_client_process")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, &handle_owned);
    struct pollfd p = {.fd = pawl_client_fd(client), .events = POLLIN};

    CHECK(p.fd >= 0);
    CHECK_EQ(pawl_client_fd(client), p.fd);
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    CHECK(poll(&p, 1, -1) == 1);
    CHECK_EQ(event_count(&got.event), 0);
    CHECK_EQ(loop_until(client, &got.event, 1), 1);
    CHECK_OK(got.code);
    CHECK(pthread_equal(got.thread, pthread_self()));
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_EQ(pawl_client_process(client), 0);
}

CASE("a grant that was waited for wakes the program's loop")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *taken = lock_new(yours, name, NULL), *lock = lock_new(client, name, &handle_owned);

    CHECK(pawl_client_fd(client) >= 0);
    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    await_waiters(yours, name, 1);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK_EQ(loop_until(client, &got.event, 1), 1);
    CHECK_OK(got.code);
}

CASE("on_lost, too, comes only inside pawl_client_process")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(
        client, name,
        LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = count_call, .arg = &lost));

    CHECK(pawl_client_fd(client) >= 0);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    loop_until(client, &lost.event, 1);
    CHECK(pthread_equal(lost.thread, pthread_self()));
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_EQ(event_count(&lost.event), 1);
}

CASE("leases are renewed while the program's loop does not come round")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    pawl_lock *lock = lock_new(client, name, &handle_owned);

    CHECK(pawl_client_fd(client) >= 0);
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    loop_until(client, &got.event, 1);
    pause_ms(RENEWED_PAUSE);
    check_held(lock);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
}

CASE("a blocking call works beside the program's loop and runs no callback of it")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, &handle_owned);
    pawl_lock *other = lock_new(client, check_name("y"), NULL);

    CHECK(pawl_client_fd(client) >= 0);
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(pawl_lock_acquire(other, PAWL_FOREVER, NULL));
        CHECK_OK(pawl_lock_release(other, NULL));
    }
    CHECK_EQ(event_count(&got.event), 0);
    CHECK_EQ(loop_until(client, &got.event, 1), 1);
}
