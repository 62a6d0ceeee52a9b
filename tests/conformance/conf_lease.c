/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_lease.c - leases: their end, renewal and loss. These cases test time. Every bound is a lower
 * bound, or compares with a lease that is far longer than a case.
 */
#include "conf.h"

/* A lease ends while another client waits. Checks the rules that hold on any machine, and returns
 * whether on_lost was called before the other client got the lock: on a crowded machine the thread
 * that calls on_lost may get no processor time, and be late. */
static bool lose_to_another(pawl_client *mine, pawl_client *yours, const char *name, calls *lost)
{
    pawl_lock *lock = lock_new(
        mine, name, LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = count_call, .arg = lost));
    pawl_lock *next = lock_new(yours, name, NULL);
    int before = event_count(&lost->event);
    bool in_time;

    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK_EQ(pawl_lock_held(lock), 0);
    in_time = event_count(&lost->event) == before + 1;
    CHECK_EQ(pawl_lock_valid_ms(lock), 0);
    event_await(&lost->event, before + 1);
    CHECK(lost->lock == lock);
    CHECK_CODE(lost->code, PAWL_ELOST);
    CHECK_EQ(lost->held, 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(next), 1);
    CHECK_OK(pawl_lock_release(next, NULL));
    CHECK_EQ(event_count(&lost->event), before + 1);
    return in_time;
}

CASE("a fixed lease ends by itself, on_lost is called once and before anybody else gets the lock")
{
    static calls lost = CALLS_INIT;
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    uint64_t tries = 1;

    while (!lose_to_another(mine, yours, check_name("l"), &lost))
        CHECK(++tries <= 8);
    CHECK_EQ(stats_of(mine).lost, tries);
}

CASE("on_lost comes from Pawl itself while the program makes no call")
{
    static calls lost = CALLS_INIT;
    pawl_lock *lock = lock_new(
        client_open(NULL), check_name("l"),
        LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = count_call, .arg = &lost));
    int64_t began = now_ms();

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    event_await(&lost.event, 1);
    CHECK(now_ms() - began >= SHORT_LEASE / 2); /* not long before the end of the lease */
    CHECK_CODE(lost.code, PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(lock), 0);
}

CASE("a late release is refused and does not touch the new holder")
{
    const char *name = check_name("l");
    pawl_lock *late = lock_new(client_open(NULL), name, LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);
    uint64_t token;

    CHECK_OK(pawl_lock_acquire(late, 0, NULL));
    token = pawl_lock_token(late);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK(newer(pawl_lock_token(next), token));
    token = pawl_lock_token(next);
    CHECK_CODE(pawl_lock_release(late, NULL), PAWL_ELOST);
    CHECK_CODE(pawl_lock_release(late, NULL), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(next), 1);
    CHECK_EQ(pawl_lock_token(next), token);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(next, NULL));
}

CASE("a lost hold is re-entered only after it was released")
{
    const char *name = check_name("l");
    pawl_lock *lock = lock_new(client_open(NULL), name, LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK_OK(pawl_lock_release(next, NULL));
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_ELOST);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("every hold of a lost lock is released with ELOST, and then it is over")
{
    const char *name = check_name("l");
    pawl_lock *lock = lock_new(client_open(NULL), name, LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(next), 1);
}

CASE("on_lost is not called for a lock that was released in time")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("l");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(
        client, name,
        LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = count_call, .arg = &lost));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    pause_ms(SHORT_LEASE + 100);
    CHECK_EQ(event_count(&lost.event), 0);
    CHECK_EQ(stats_of(client).lost, 0);
}

/* ---- Validity -------------------------------------------------------------------------------- */

CASE("validity is bounded by the lease, falls as time passes, and is 0 when not held")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("l"),
                               LOCK_OPTIONS(.lease_ms = 20000));
    int64_t first, second;

    CHECK_EQ(pawl_lock_valid_ms(lock), 0);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    first = pawl_lock_valid_ms(lock);
    CHECK(first > 0 && first <= 20000);
    pause_ms(50);
    second = pawl_lock_valid_ms(lock);
    CHECK(second > 0 && second <= first - 49);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_EQ(pawl_lock_valid_ms(lock), 0);
}

CASE("the default watchdog lease is thirty seconds")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("l"), NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK(pawl_lock_valid_ms(lock) > 10000);
    CHECK(pawl_lock_valid_ms(lock) <= 30000);
}

CASE("the URL sets the watchdog lease")
{
    pawl_lock *lock;

    lock = lock_new(client_open_with("watchdog=7000"), check_name("l"), NULL);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK(pawl_lock_valid_ms(lock) > 0);
    CHECK(pawl_lock_valid_ms(lock) <= 7000);
}

/* ---- Renewal --------------------------------------------------------------------------------- */

CASE("renewing a fixed lease makes it last from now, and keeps the token")
{
    const char *name = check_name("l");
    pawl_lock *lock = lock_new(client_open(NULL), name, LOCK_OPTIONS(.lease_ms = 2 * SHORT_LEASE));
    uint64_t token;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    CHECK_OK(pawl_lock_renew(lock, LONG_LEASE, NULL));
    CHECK(pawl_lock_valid_ms(lock) > lease_given(LONG_LEASE) / 2);
    CHECK(pawl_lock_valid_ms(lock) <= LONG_LEASE);
    pause_ms(2 * SHORT_LEASE + 200);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_EQ(pawl_lock_token(lock), token);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a renewal of 0 is for the handle's own lease, and a renewal can shorten")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("l"),
                               LOCK_OPTIONS(.lease_ms = LONG_LEASE));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_renew(lock, 10000, NULL));
    CHECK(pawl_lock_valid_ms(lock) > 0);
    CHECK(pawl_lock_valid_ms(lock) <= 10000);
    CHECK_OK(pawl_lock_renew(lock, 0, NULL));
    CHECK(pawl_lock_valid_ms(lock) > 10000);
    CHECK(pawl_lock_valid_ms(lock) <= LONG_LEASE);
}

static int renew_long(void *arg)
{
    return pawl_lock_renew(arg, LONG_LEASE, NULL);
}

CASE("a renewal by a stranger is refused and changes nothing")
{
    const char *name = check_name("l");
    pawl_lock *lock = lock_new(client_open(NULL), name, LOCK_OPTIONS(.lease_ms = 20000));
    pawl_lock *other = lock_new(client_open(NULL), name, NULL);

    CHECK_CODE(pawl_lock_renew(lock, 0, NULL), PAWL_ENOTHELD);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(in_thread(renew_long, lock), PAWL_ENOTHELD);
    CHECK_CODE(pawl_lock_renew(other, LONG_LEASE, NULL), PAWL_ENOTHELD);
    CHECK(pawl_lock_valid_ms(lock) <= 20000);
    CHECK_EQ(pawl_lock_held(lock), 1);
}

CASE("a late renewal is refused and does not take the lock back")
{
    const char *name = check_name("l");
    pawl_lock *lock = lock_new(client_open(NULL), name, LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK_CODE(pawl_lock_renew(lock, LONG_LEASE, NULL), PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_EQ(pawl_lock_held(next), 1);
    CHECK_OK(pawl_lock_release(next, NULL));
    CHECK_CODE(pawl_lock_renew(lock, LONG_LEASE, NULL), PAWL_ELOST);
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}

CASE("the watchdog keeps a lock past its lease, and its token")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("l");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    pawl_lock *lock = lock_new(client, name, LOCK_OPTIONS(.on_lost = count_call, .arg = &lost));
    uint64_t token;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    pause_ms(6500);
    check_held(lock);
    CHECK_EQ(pawl_lock_token(lock), token);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    CHECK(stats_of(client).renewed >= 2);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_EQ(event_count(&lost.event), 0);
}

CASE("the watchdog keeps twenty locks of one client at once")
{
    enum { N = 20 };
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    pawl_lock *locks[N];

    for (int i = 0; i < N; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s-%d", check_name("l"), i);
        locks[i] = lock_new(client, name, NULL);
        CHECK_OK(pawl_lock_acquire(locks[i], 0, NULL));
    }
    pause_ms(5000);
    for (int i = 0; i < N; i++) {
        check_held(locks[i]);
        CHECK_OK(pawl_lock_release(locks[i], NULL));
    }
    CHECK_EQ(stats_of(client).lost, 0);
}

CASE("a lock that was released is not renewed any more")
{
    const char *name = check_name("l");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = 1500));
    pawl_lock *lock = lock_new(client, name, NULL);
    uint64_t renewed;

    for (int i = 0; i < 50; i++) {
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
    renewed = stats_of(client).renewed;
    pause_ms(1200);
    CHECK_EQ(stats_of(client).renewed, renewed);
    CHECK_OK(try_as_stranger(name, PAWL_MUTEX));
}
