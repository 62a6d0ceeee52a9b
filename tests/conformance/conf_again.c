/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_again.c - one owner with several holds of a name: a downgrade, locks that are acquired again
 * by their owner, and handles with different leases.
 *
 * A lock stays held for as long as pawl_lock_valid_ms says: if another owner gets the lock before,
 * mutual exclusion is broken.
 */
#include "conf.h"

static const uint64_t exclusive[] = {PAWL_MUTEX, PAWL_FAIR, PAWL_WRITE, PAWL_SPIN};
enum { KINDS = sizeof exclusive / sizeof exclusive[0] };

static pawl_lock *of_kind(pawl_client *client, const char *name, uint64_t kind, int64_t lease_ms)
{
    return lock_new(client, name, LOCK_OPTIONS(.kind = kind, .lease_ms = lease_ms));
}

static void closed_to_all(const char *name)
{
    CHECK_CODE(try_as_stranger(name, PAWL_READ), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
}

/* The kind with which a stranger asks for a name that is held with `kind`. Services without
 * read-write locks have the mutex only. */
static uint64_t rival_of(uint64_t kind)
{
    return kind == PAWL_MUTEX ? PAWL_MUTEX : PAWL_WRITE;
}

/* Wait until the lease is over, and check that no other client gets the lock before. */
static void watch_lease(pawl_lock *lock, const char *name, uint64_t kind)
{
    do {
        if (try_as_stranger(name, rival_of(kind)) == 0)
            CHECK_EQ(pawl_lock_valid_ms(lock), 0);
    } while (pawl_lock_held(lock));
}

/* ---- Downgrade ------------------------------------------------------------------------------- */

CASE("the holder of any exclusive kind also gets the read lock, and keeps both")
{
    pawl_client *client = client_open(NULL);

    for (int i = 0; i < KINDS; i++) {
        const char *name = check_name("again");
        pawl_lock *x = of_kind(client, name, exclusive[i], 0);
        pawl_lock *r = of_kind(client, name, PAWL_READ, 0);

        CHECK_OK(pawl_lock_acquire(x, 0, NULL));
        CHECK_OK(pawl_lock_acquire(r, 20000, NULL));
        closed_to_all(name);
        CHECK_OK(pawl_lock_release(r, NULL));
        CHECK_EQ(pawl_lock_held(x), 1);
        closed_to_all(name);
        CHECK_OK(pawl_lock_release(x, NULL));
        CHECK_OK(try_as_stranger(name, PAWL_WRITE));
    }
}

CASE("the holder of any exclusive kind keeps its read lock after releasing the exclusive one")
{
    pawl_client *client = client_open(NULL);

    for (int i = 0; i < KINDS; i++) {
        const char *name = check_name("again");
        pawl_lock *x = of_kind(client, name, exclusive[i], 0);
        pawl_lock *r = of_kind(client, name, PAWL_READ, 0);

        CHECK_OK(pawl_lock_acquire(x, 0, NULL));
        CHECK_OK(pawl_lock_acquire(x, 0, NULL));
        CHECK_OK(pawl_lock_acquire(r, PAWL_FOREVER, NULL));
        CHECK_OK(pawl_lock_release(x, NULL));
        closed_to_all(name);
        CHECK_OK(pawl_lock_release(x, NULL));
        CHECK_OK(try_as_stranger(name, PAWL_READ));
        CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
        CHECK_OK(pawl_lock_release(r, NULL));
        CHECK_OK(try_as_stranger(name, PAWL_WRITE));
    }
}

CASE("a holder that cancels its own reading keeps the lock")
{
    static calls done[KINDS] = {CALLS_INIT, CALLS_INIT, CALLS_INIT, CALLS_INIT};
    pawl_client *client = client_open(NULL);

    for (int i = 0; i < KINDS; i++) {
        const char *name = check_name("again");
        pawl_lock *x = of_kind(client, name, exclusive[i], 0);
        pawl_lock *r = of_kind(client, name, PAWL_READ, 0);

        CHECK_OK(pawl_lock_acquire(x, 0, NULL));
        CHECK_OK(pawl_lock_acquire_start(r, PAWL_FOREVER, count_call, &done[i]));
        pawl_lock_cancel(r);
        event_await(&done[i].event, 1);
        CHECK(done[i].code == 0 || done[i].code == PAWL_ECANCELED);
        if (done[i].code == 0)
            CHECK_OK(pawl_lock_release(r, NULL));
        CHECK(pawl_lock_valid_ms(x) > 0);
        closed_to_all(name);
        CHECK_OK(pawl_lock_release(x, NULL));
        CHECK_OK(try_as_stranger(name, PAWL_WRITE));
    }
}

/* ---- Acquired again -------------------------------------------------------------------------- */

static void pairs_inside(uint64_t kind)
{
    const char *name = check_name("again");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    pawl_lock *lock = of_kind(client, name, kind, 0);
    int64_t began = now_ms();
    uint64_t token;
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    waiter_start(&w, of_kind(client_open(NULL), name, PAWL_WRITE, 0), PAWL_FOREVER);
    while (now_ms() - began < 2 * RENEWED_LEASE + 500) {
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_EQ(pawl_lock_token(lock), token);
        pause_ms(100);
        CHECK_OK(pawl_lock_release(lock, NULL));
        pause_ms(RENEWED_LEASE / 4);
        CHECK(event_count(&w.decided) == 0);
    }
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

CASE("a read lock that is acquired again and again is still renewed")
{
    pairs_inside(PAWL_READ);
}

CASE("a mutex that is acquired again and again is still renewed")
{
    pairs_inside(PAWL_MUTEX);
}

CASE("a lock that was entered several times stays renewed until the last release")
{
    static const uint64_t kinds[] = {PAWL_READ, PAWL_WRITE, PAWL_FAIR};
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    pawl_lock *locks[3];
    static const char *const suffixes[] = {"r", "w", "f"};
    const char *names[3];

    for (int i = 0; i < 3; i++) {
        names[i] = check_name(suffixes[i]);
        locks[i] = of_kind(client, names[i], kinds[i], 0);
    }
    for (int n = 0; n < 3; n++) {
        for (int i = 0; i < 3; i++)
            CHECK_OK(pawl_lock_acquire(locks[i], 0, NULL));
        pause_ms(RENEWED_LEASE / 3);
    }
    for (int n = 0; n < 3; n++) {
        pause_ms(RENEWED_LEASE / 2);
        for (int i = 0; i < 3; i++) {
            CHECK_CODE(try_as_stranger(names[i], PAWL_WRITE), PAWL_EBUSY);
            CHECK_OK(pawl_lock_release(locks[i], NULL));
        }
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(try_as_stranger(names[i], PAWL_WRITE));
}

static void again_with_fixed_lease(uint64_t kind)
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("fixed");
    pawl_lock *lock = of_kind(client, name, kind, DEATH_LEASE);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    pause_ms(DEATH_LEASE / 8);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    watch_lease(lock, name, kind);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
}

CASE("a mutex with a fixed lease, acquired again, keeps others out as long as valid_ms says")
{
    again_with_fixed_lease(PAWL_MUTEX);
}

CASE("a read lock with a fixed lease, acquired again, keeps others out as long as valid_ms says")
{
    again_with_fixed_lease(PAWL_READ);
}

CASE("a write lock with a fixed lease, acquired again, keeps others out as long as valid_ms says")
{
    again_with_fixed_lease(PAWL_WRITE);
}

static void again_after_renewal(uint64_t kind)
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("renewed");
    pawl_lock *lock = of_kind(client, name, kind, DEATH_LEASE / 2);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_renew(lock, 2 * DEATH_LEASE, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK(pawl_lock_valid_ms(lock) > DEATH_LEASE);
    pause_ms(DEATH_LEASE / 2 + 200);
    CHECK(pawl_lock_valid_ms(lock) > 0);
    CHECK_CODE(try_as_stranger(name, rival_of(kind)), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a mutex whose lease was renewed for longer survives an inner acquire and release")
{
    again_after_renewal(PAWL_MUTEX);
}

CASE("a read lock whose lease was renewed for longer survives an inner acquire and release")
{
    again_after_renewal(PAWL_READ);
}

CASE("a write lock whose lease was renewed for longer survives an inner acquire and release")
{
    again_after_renewal(PAWL_WRITE);
}

/* ---- Different leases ------------------------------------------------------------------------ */

CASE("a read lock with a short lease does not shorten the lease of its owner's write lock")
{
    const char *name = check_name("again");
    pawl_client *client = client_open(NULL);
    pawl_lock *w = of_kind(client, name, PAWL_WRITE, LONG_LEASE);
    pawl_lock *r = of_kind(client, name, PAWL_READ, SHORT_LEASE);

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    CHECK_OK(pawl_lock_release(r, NULL));
    pause_ms(SHORT_LEASE + 200);
    CHECK(pawl_lock_valid_ms(w) > 0);
    closed_to_all(name);
    CHECK_OK(pawl_lock_acquire(r, 0, NULL)); /* acquire again, and wait for the end of the lease */
    while (pawl_lock_held(r))
        pause_ms(10);
    pause_ms(50);
    closed_to_all(name);
    CHECK_CODE(pawl_lock_release(r, NULL), PAWL_ELOST);
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_WRITE));
}

CASE("a write lock with a short lease does not shorten the lease of its owner's read lock")
{
    const char *name = check_name("again");
    pawl_client *client = client_open(NULL);
    pawl_lock *w = of_kind(client, name, PAWL_WRITE, SHORT_LEASE);
    pawl_lock *r = of_kind(client, name, PAWL_READ, LONG_LEASE);

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_OK(pawl_lock_release(w, NULL));
    pause_ms(SHORT_LEASE + 200);
    CHECK(pawl_lock_valid_ms(r) > 0);
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
    CHECK_OK(try_as_stranger(name, PAWL_READ));
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_WRITE));
}

CASE("a writer whose lease ends lets readers in beside its own reading")
{
    const char *name = check_name("again");
    pawl_client *client = client_open(NULL);
    pawl_lock *w = of_kind(client, name, PAWL_WRITE, SHORT_LEASE);
    pawl_lock *r = of_kind(client, name, PAWL_READ, LONG_LEASE);

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    while (pawl_lock_held(w))
        pause_ms(10);
    while (try_as_stranger(name, PAWL_READ))
        pause_ms(10);
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
    CHECK_CODE(pawl_lock_release(w, NULL), PAWL_ELOST);
    CHECK(pawl_lock_valid_ms(r) > 0);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_WRITE));
}
