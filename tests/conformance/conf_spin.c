/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_spin.c - the spin lock, which retries instead of queueing.
 */
#include "conf.h"

static pawl_lock *spin(pawl_client *client, const char *name)
{
    return lock_new(client, name, LOCK_OPTIONS(.kind = PAWL_SPIN));
}

CASE("a spin lock is acquired after the release, without an entry in the queue before")
{
    const char *name = check_name("p");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    uint64_t token;
    static rows all;
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    waiter_start(&w, spin(yours, name), PAWL_FOREVER);
    await_waiting(yours, 1);
    for (int i = 0; i < 20; i++) {
        inspect_rows(mine, name, &all);
        CHECK_EQ(all.n, 2);
        CHECK_EQ(all.row[0].info.waiters, 0);
        pause_ms(2);
    }
    CHECK_EQ(event_count(&w.decided), 0);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(waiter_code(&w));
    CHECK(newer(w.token, token));
    waiter_leave(&w);
}

CASE("a spin lock times out, not before its time, and can be cancelled")
{
    const char *name = check_name("p");
    pawl_client *yours = client_open(NULL);
    pawl_lock *lock = lock_new(client_open(NULL), name, NULL), *other = spin(yours, name);
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(other, 0, NULL), PAWL_EBUSY);
    CHECK_TIMES_OUT(pawl_lock_acquire(other, limit_ms, NULL));
    waiter_start(&w, other, PAWL_FOREVER);
    await_waiting(yours, 1);
    CHECK_EQ(pawl_lock_cancel(other), 1);
    CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
    waiter_join(&w);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(pawl_lock_acquire(other, PAWL_FOREVER, NULL));
}

CASE("a spin lock is re-entrant and renewed like any other")
{
    const char *name = check_name("p");
    pawl_lock *lock = spin(client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE)), name);

    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_lock_hold_count(lock), 2);
    pause_ms(RENEWED_PAUSE);
    check_held(lock);
    CHECK_CODE(try_as_stranger(name, PAWL_SPIN), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_SPIN));
}

typedef struct spinner {
    actor actor;
    pawl_lock *lock;
    atomic_int *inside;
} spinner;

static void spin_often(void *arg)
{
    spinner *s = arg;

    for (int i = 0; i < 30; i++) {
        CHECK_OK(pawl_lock_acquire(s->lock, PAWL_FOREVER, NULL));
        CHECK_EQ(atomic_fetch_add(s->inside, 1), 0);
        atomic_fetch_sub(s->inside, 1);
        CHECK_OK(pawl_lock_release(s->lock, NULL));
    }
}

CASE("four threads of two clients exclude each other by spinning")
{
    enum { N = 4 };
    const char *name = check_name("p");
    pawl_client *clients[2] = {client_open(NULL), client_open(NULL)};
    atomic_int inside = 0;
    spinner all[N];

    for (int i = 0; i < N; i++)
        all[i] = (spinner){.lock = spin(clients[i % 2], name), .inside = &inside};
    for (int i = 0; i < N; i++)
        actor_start(&all[i].actor, spin_often, &all[i]);
    for (int i = 0; i < N; i++)
        actor_join(&all[i].actor);
}
