/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_limits.c - limits of the time that a lock is held: max_hold_ms and at_least_ms.
 */
#include "conf.h"

CASE("max_hold_ms ends a hold that the watchdog would have kept")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("l");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = 2400));
    pawl_lock *lock = lock_new(
        client, name, LOCK_OPTIONS(.max_hold_ms = 5000, .on_lost = count_call, .arg = &lost));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    int64_t began = now_ms();

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= 4000); /* renewed past the first lease */
    event_await(&lost.event, 1);
    CHECK_EQ(event_count(&lost.event), 1);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(next), 1);
}

CASE("max_hold_ms bounds the validity from the beginning")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("l"),
                               LOCK_OPTIONS(.max_hold_ms = 5000));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK(pawl_lock_valid_ms(lock) > 0);
    CHECK(pawl_lock_valid_ms(lock) <= 5000);
}

CASE("at_least_ms keeps others out after the release")
{
    const char *name = check_name("l");
    pawl_client *client = client_open(NULL);
    pawl_lock *job = lock_new(client, name, LOCK_OPTIONS(.at_least_ms = 800));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    int64_t began = now_ms();

    CHECK_OK(pawl_lock_acquire(job, 0, NULL));
    CHECK_OK(pawl_lock_release(job, NULL));
    CHECK_EQ(pawl_lock_held(job), 0);
    CHECK_CODE(pawl_lock_release(job, NULL), PAWL_ENOTHELD);
    CHECK_CODE(pawl_lock_acquire(next, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= 799);
    CHECK_EQ(stats_of(client).lost, 0);
}

static int acquire_and_release(void *arg)
{
    int code = pawl_lock_acquire(arg, PAWL_FOREVER, NULL);

    return code ? code : pawl_lock_release(arg, NULL);
}

CASE("at_least_ms keeps others out after the thread has released the lock and ended")
{
    const char *name = check_name("l");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = SHORT_LEASE));
    pawl_lock *job = lock_new(client, name, LOCK_OPTIONS(.at_least_ms = 2 * SHORT_LEASE + 500));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    int64_t began = now_ms();

    CHECK_OK(in_thread(acquire_and_release, job));
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= 2 * SHORT_LEASE + 500 - 1);
    CHECK_EQ(stats_of(client).orphaned, 0);
}

/* Freeing the handle releases the lock of the thread that has ended. */
CASE("at_least_ms keeps others out after the thread has ended and its handle was freed")
{
    const char *name = check_name("l");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = SHORT_LEASE));
    pawl_lock *job = lock_new(client, name, LOCK_OPTIONS(.at_least_ms = 2 * SHORT_LEASE + 500));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    int64_t began = now_ms();

    CHECK_OK(acquire_in_thread(job));
    lock_free(job);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= 2 * SHORT_LEASE + 500 - 1);
    CHECK_EQ(stats_of(client).lost, 0);
}

static void release_in_callback(void *arg, pawl_lock *lock, int code)
{
    CHECK_OK(code);
    CHECK_OK(pawl_lock_release_start(lock, count_call, arg));
}

CASE("at_least_ms keeps others out when a callback releases the lock of a thread that has ended")
{
    static calls released = CALLS_INIT;
    const char *name = check_name("l");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = SHORT_LEASE));
    pawl_lock *job = lock_new(client, name, LOCK_OPTIONS(.at_least_ms = 2 * SHORT_LEASE + 500));
    pawl_lock *first = lock_new(client, name, NULL);
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    int64_t began;

    CHECK_OK(pawl_lock_acquire(first, 0, NULL));
    CHECK_OK(start_in_thread(job, release_in_callback, &released));
    began = now_ms();
    CHECK_OK(pawl_lock_release(first, NULL));
    event_await(&released.event, 1);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= 2 * SHORT_LEASE + 500 - 1);
    CHECK_EQ(stats_of(client).lost, 0);
}

CASE("at_least_ms keeps others out even after the client was closed")
{
    const char *name = check_name("l");
    pawl_client *client = client_open(NULL);
    pawl_lock *job = lock_new(client, name, LOCK_OPTIONS(.at_least_ms = 800));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    int64_t began = now_ms();

    need_linger();
    CHECK_OK(pawl_lock_acquire(job, 0, NULL));
    CHECK_OK(pawl_lock_release(job, NULL));
    lock_free(job);
    client_close(client);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= 799);
}

CASE("at_least_ms that has passed already delays nobody")
{
    const char *name = check_name("l");
    pawl_lock *job = lock_new(client_open(NULL), name, LOCK_OPTIONS(.at_least_ms = 100));

    CHECK_OK(pawl_lock_acquire(job, 0, NULL));
    pause_ms(120);
    CHECK_OK(pawl_lock_release(job, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("at_least_ms keeps out a thread that waits in the same client")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *job = lock_new(client, check_name("l"), LOCK_OPTIONS(.at_least_ms = 600));
    int64_t began = now_ms();
    waiter w;

    CHECK_OK(pawl_lock_acquire(job, 0, NULL));
    waiter_start(&w, job, PAWL_FOREVER);
    await_waiting(client, 1);
    CHECK_OK(pawl_lock_release(job, NULL));
    CHECK_OK(waiter_code(&w));
    CHECK(w.at_ms - began >= 599);
    waiter_leave(&w);
}
