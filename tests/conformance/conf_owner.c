/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_owner.c - owners of locks: re-entry, hold counts, calls by other threads, handle owners.
 */
#include "conf.h"

CASE("a thread that holds the lock gets it again, and the last release frees it")
{
    const char *name = check_name("o");
    pawl_lock *lock = lock_new(client_open(NULL), name, NULL);

    for (int i = 1; i <= 3; i++) {
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_EQ(pawl_lock_hold_count(lock), i);
    }
    for (int i = 2; i >= 1; i--) {
        CHECK_OK(pawl_lock_release(lock, NULL));
        CHECK_EQ(pawl_lock_hold_count(lock), i);
        CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    }
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_EQ(pawl_lock_hold_count(lock), 0);
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("re-entry keeps the token")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("o"), NULL);
    uint64_t token;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK_EQ(pawl_lock_token(lock), token);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_EQ(pawl_lock_token(lock), token);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a thread re-enters through a second handle of the name")
{
    const char *name = check_name("o");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, name, NULL), *b = lock_new(client, name, NULL);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_EQ(pawl_lock_token(a), pawl_lock_token(b));
    CHECK_EQ(pawl_lock_hold_count(a), 2);
    CHECK_EQ(pawl_lock_hold_count(b), 2);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_EQ(pawl_lock_held(b), 1);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(b, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("freeing a handle that only entered again changes nothing")
{
    const char *name = check_name("o");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, name, NULL), *b = lock_new(client, name, NULL);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    lock_free(b);
    CHECK_EQ(pawl_lock_hold_count(a), 2);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("a thread waits on re-entry for nobody, even when others are queued")
{
    const char *name = check_name("o");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, ORDERED);
    waiter near, far;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&far, lock_new(yours, name, ORDERED), PAWL_FOREVER);
    await_queued(mine, name, 1);
    waiter_start(&near, lock, PAWL_FOREVER);
    await_waiting(mine, 1);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_EQ(event_count(&near.decided) + event_count(&far.decided), 0);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&far);
    waiter_leave(&near);
}

CASE("release of a lock that was never acquired is refused")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("o"), NULL);
    pawl_error err = {0};

    CHECK_CODE(pawl_lock_release(lock, &err), PAWL_ENOTHELD);
    CHECK_CODE(err.code, PAWL_ENOTHELD);
    CHECK(err.text[0]);
}

CASE("one release too many is refused")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("o"), NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ENOTHELD);
}

static int release_of_another(void *arg)
{
    pawl_error err = {0};
    int code = pawl_lock_release(arg, &err);

    CHECK(strstr(err.text, "another thread holds it and must release it"));
    CHECK(strstr(err.text, "PAWL_OWNER_HANDLE"));
    return code;
}

CASE("release by another thread is refused and changes nothing")
{
    const char *name = check_name("o");
    pawl_lock *lock = lock_new(client_open(NULL), name, NULL);
    uint64_t token;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    CHECK_CODE(in_thread(release_of_another, lock), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_EQ(pawl_lock_hold_count(lock), 2);
    CHECK_EQ(pawl_lock_token(lock), token);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
}

CASE("release by another client is refused and changes nothing")
{
    const char *name = check_name("o");
    pawl_lock *mine = lock_new(client_open(NULL), name, NULL);
    pawl_lock *yours = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(pawl_lock_acquire(mine, 0, NULL));
    CHECK_CODE(pawl_lock_release(yours, NULL), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(mine), 1);
    CHECK_CODE(pawl_lock_acquire(yours, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(mine, NULL));
}

static int ask_all(void *arg)
{
    CHECK_EQ(pawl_lock_held(arg), 0);
    CHECK_EQ(pawl_lock_hold_count(arg), 0);
    CHECK_EQ(pawl_lock_token(arg), 0);
    CHECK_EQ(pawl_lock_valid_ms(arg), 0);
    return 0;
}

CASE("held, hold count, token and validity are the calling thread's own")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("o"), NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(in_thread(ask_all, lock));
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK(pawl_lock_valid_ms(lock) > 0);
}

/* ---- Handle owners --------------------------------------------------------------------------- */

static int look_and_release(void *arg)
{
    CHECK_EQ(pawl_lock_held(arg), 1);
    CHECK_EQ(pawl_lock_hold_count(arg), 1);
    CHECK(newer(pawl_lock_token(arg), 0));
    return pawl_lock_release(arg, NULL);
}

CASE("a handle-owned lock can be released by another thread")
{
    const char *name = check_name("o");
    pawl_lock *lock = lock_new(client_open(NULL), name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(in_thread(look_and_release, lock));
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("a handle-owned lock outlives the thread that acquired it")
{
    const char *name = check_name("o");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));

    CHECK_OK(acquire_in_thread(lock));
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_EQ(stats_of(client).orphaned, 0);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a handle that holds its lock refuses to acquire it again")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("o"),
                               LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_lock_acquire(lock, PAWL_FOREVER, NULL), PAWL_ESTATE);
    CHECK_EQ(pawl_lock_hold_count(lock), 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ENOTHELD);
}

CASE("two handle owners exclude each other inside one thread")
{
    const char *name = check_name("o");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    pawl_lock *b = lock_new(client, name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(b, 0, NULL), PAWL_EBUSY);
    CHECK_CODE(pawl_lock_release(b, NULL), PAWL_ENOTHELD);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_OK(pawl_lock_release(b, NULL));
}

CASE("a handle owner and the thread that uses it exclude each other")
{
    const char *name = check_name("o");
    pawl_client *client = client_open(NULL);
    pawl_lock *handle = lock_new(client, name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    pawl_lock *thread = lock_new(client, name, NULL);

    CHECK_OK(pawl_lock_acquire(handle, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(thread, 0, NULL), PAWL_EBUSY);
    CHECK_EQ(pawl_lock_held(thread), 0);
    CHECK_OK(pawl_lock_release(handle, NULL));
    CHECK_OK(pawl_lock_acquire(thread, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(handle, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(thread, NULL));
}

/* ---- Threads that end ------------------------------------------------------------------------ */

static void note_warning(void *arg, int level, const char *text)
{
    (void)text;
    if (level == PAWL_LOG_WARNING || level == PAWL_LOG_ERROR)
        event_raise(arg);
}

CASE("a thread that ends while it holds is counted and reported, and its lease ends")
{
    static event heard = EVENT_INIT;
    const char *name = check_name("o");
    pawl_client *mine = client_open(
        CLIENT_OPTIONS(.watchdog_ms = SHORT_LEASE, .log = note_warning, .log_arg = &heard));
    pawl_lock *lock = lock_new(mine, name, NULL);
    pawl_lock *other = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(acquire_in_thread(lock));
    CHECK_OK(pawl_lock_acquire(other, PAWL_FOREVER, NULL));
    event_await(&heard, 1);
    CHECK_EQ(stats_of(mine).orphaned, 1);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(other), 1);
}

CASE("a new thread does not inherit the holds of one that ended")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("o"),
                               LOCK_OPTIONS(.lease_ms = LONG_LEASE));

    CHECK_OK(acquire_in_thread(lock));
    for (int i = 0; i < 20; i++) {
        CHECK_CODE(try_in_thread(lock), PAWL_EBUSY);
        CHECK_OK(in_thread(ask_all, lock));
    }
}

CASE("a thread that frees a handle may acquire the lock through another one at once")
{
    const char *name = check_name("a");
    pawl_client *client = client_open(NULL);

    for (int i = 0; i < 20; i++) {
        pawl_lock *lock = lock_new(client, name, NULL);

        CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
        lock_free(lock);
    }
}

CASE("a renewal by hand does not go past max_hold_ms")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("a"),
                               LOCK_OPTIONS(.lease_ms = 60000, .max_hold_ms = 90000));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_renew(lock, LONG_LEASE, NULL));
    CHECK(pawl_lock_valid_ms(lock) <= 90000);
    CHECK_OK(pawl_lock_release(lock, NULL));
}
